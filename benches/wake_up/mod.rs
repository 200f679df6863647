//! From the end of a claim to the waiter awake, of a thread and of a task, each beside a bare hand-over.

use claimdb::backend::Mem;
use claimdb::{Claim, Durability, Request, Store};
use criterion::{Bencher, Criterion};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// From the end of a claim to the moment at which a thread that waits for the key is awake and has it. The floor is a
/// condition variable: the same two threads, and nothing to decide. Whoever waits sleeps by then, as the waiters of a claim do
/// whose work takes its time; one that is only about to sleep is told several times faster.
pub fn wake_up(c: &mut Criterion) {
    let mut group = c.benchmark_group("wake-up");
    let store = Store::builder(Mem::new()).durability(Durability::Result).open().unwrap();
    let wait = Request::new("k").wait(Duration::from_secs(60)).lease(Duration::from_secs(3600));
    let take = || store.claim(&wait).unwrap().granted().unwrap();
    group.bench_function("claimdb", |b| by_claims(b, &store, take));
    let (flag, changed) = (Mutex::new((false, false)), Condvar::new());
    group.bench_function("floor: a bare condvar", |b| {
        b.iter_custom(|times| {
            handovers(
                times,
                |begin, asleep| {
                    *flag.lock().unwrap() = (false, false);
                    begin();
                    while !flag.lock().unwrap().0 {
                        std::hint::spin_loop();
                    }
                    asleep();
                    let start = Instant::now();
                    flag.lock().unwrap().1 = true;
                    changed.notify_one();
                    start
                },
                || {
                    let mut flag = flag.lock().unwrap();
                    flag.0 = true;
                    while !flag.1 {
                        flag = changed.wait(flag).unwrap();
                    }
                    Instant::now()
                },
            )
        });
    });
    let take = || on_this_thread(store.claim_async(&wait)).unwrap().granted().unwrap();
    group.bench_function("claimdb, a task", |b| by_claims(b, &store, take));
    let flag = Mutex::new((None::<Waker>, false));
    group.bench_function("floor: a bare waker", |b| {
        b.iter_custom(|times| {
            handovers(
                times,
                |begin, asleep| {
                    *flag.lock().unwrap() = (None, false);
                    begin();
                    while flag.lock().unwrap().0.is_none() {
                        std::hint::spin_loop();
                    }
                    asleep();
                    let start = Instant::now();
                    let waker = {
                        let mut flag = flag.lock().unwrap();
                        flag.1 = true;
                        flag.0.take()
                    };
                    waker.unwrap().wake();
                    start
                },
                || {
                    on_this_thread(std::future::poll_fn(|context| {
                        let mut flag = flag.lock().unwrap();
                        if flag.1 {
                            return Poll::Ready(());
                        }
                        flag.0 = Some(context.waker().clone());
                        Poll::Pending
                    }));
                    Instant::now()
                },
            )
        });
    });
    group.finish();
}

/// Claims that are taken by `take`, each dropped when the next one waits for it.
fn by_claims(b: &mut Bencher<'_>, store: &Store, take: impl Fn() -> Claim + Sync) {
    b.iter_custom(|times| {
        handovers(
            times,
            |begin, asleep| {
                let held = take();
                begin();
                while store.stats().waiters == 0 {
                    std::hint::spin_loop();
                }
                asleep();
                let start = Instant::now();
                drop(held);
                start
            },
            || {
                let held = take();
                let awake = Instant::now();
                drop(held);
                awake
            },
        )
    });
}

/// The smallest runtime there is: a thread that sleeps until it is woken.
fn on_this_thread<T>(task: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// How long so many hand-overs take from `give`, which lets the other thread begin, sees to it that that sleeps, and tells when
/// it gave, to `take`, which tells when it had it.
fn handovers(
    times: u64,
    give: impl Fn(&dyn Fn(), &dyn Fn()) -> Instant,
    take: impl Fn() -> Instant + Send,
) -> Duration {
    let (begin, begun) = mpsc::channel();
    let (had, took) = mpsc::channel();
    let (told, taker) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            told.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            begun.iter().try_for_each(|()| had.send(take()))
        });
        let state = std::path::Path::new("/proc").join(taker.recv().unwrap()).join("stat");
        let asleep = || while !std::fs::read_to_string(&state).unwrap().contains(") S ") {};
        let one = |_| {
            let given = give(&|| begin.send(()).unwrap(), &asleep);
            took.recv().unwrap().saturating_duration_since(given)
        };
        let sum = (0..times).map(one).sum();
        drop(begin);
        sum
    })
}
