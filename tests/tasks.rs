//! The store from tasks: what futures answer, and what they leave behind when they are dropped.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // an executor of its own, from outside
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say
#![cfg(not(loom))]

use claimdb::backend::Mem;
use claimdb::{
    Claim, Durability, LossCause, ManualClock, Outcome, Request, SettleError, Settled, Store, SyncBy,
};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

/// Counts wake-ups, and unparks nobody: the tests poll when they mean to.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<F: Future>(future: Pin<&mut F>, woken: &Arc<Woken>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(woken))))
}

/// Polls until it is ready, each time it was woken; gives other threads their turn meanwhile.
fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, woken) = (pin!(future), Arc::new(Woken::default()));
    let mut seen = usize::MAX;
    for _ in 0..100_000_000_u64 {
        let count = woken.0.load(Ordering::SeqCst);
        if count != seen {
            seen = count;
            if let Poll::Ready(output) = poll(future.as_mut(), &woken) {
                return output;
            }
        }
        std::thread::yield_now();
    }
    panic!("P6 never stuck: a future was not woken");
}

fn world(sync_by: SyncBy) -> (Store, ManualClock) {
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(sync_by).open();
    (store.expect("memory opens"), clock)
}

fn granted(outcome: Outcome) -> Claim {
    outcome.granted().expect("nobody else has the key")
}

fn value(outcome: Outcome) -> String {
    match outcome {
        Outcome::Settled(Settled::Completed(stored)) => stored.decode().expect("a string was stored"),
        other => panic!("expected a replay, was told {other:?}"),
    }
}

#[test]
fn tasks_are_told_what_threads_are_told() {
    let (store, clock) = world(SyncBy::Thread);
    for durability in ALL {
        let request = Request::new(format!("{durability:?}")).durability(durability);
        let claim = granted(block_on(store.claim_async(&request)).unwrap());
        assert!(matches!(block_on(store.claim_async(&request)).unwrap(), Outcome::InFlight(_)));
        block_on(claim.complete_async("done")).unwrap();
        assert_eq!(value(block_on(store.claim_async(&request)).unwrap()), "done");

        let request = Request::new(format!("{durability:?}, late")).durability(durability);
        let old = granted(block_on(store.claim_async(&request)).unwrap());
        clock.advance(31 * SEC);
        let new = granted(block_on(store.claim_async(&request)).unwrap());
        assert_eq!(new.attempt(), 2);
        assert!(matches!(block_on(old.complete_async("late")), Err(SettleError::Lost(_))), "P3 fenced");
        block_on(new.release_async()).unwrap();
    }
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_waiting_task_is_woken_by_whatever_ends_the_claim() {
    let ends: [fn(Claim, &ManualClock); 4] = [
        |claim, _| claim.complete("done").unwrap(),
        |claim, _| claim.release().unwrap(),
        |claim, _| drop(claim),
        |claim, clock| {
            clock.advance(30 * SEC);
            std::mem::forget(claim);
        },
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let (store, clock) = world(SyncBy::Thread);
        let holder = store.claim("k").unwrap().granted().unwrap();
        let mut future = pin!(store.claim_async(Request::new("k").wait(60 * SEC)));
        let woken = Arc::new(Woken::default());
        assert!(poll(future.as_mut(), &woken).is_pending());
        end(holder, &clock);
        let outcome = block_on(future).unwrap();
        match n {
            0 => assert_eq!(value(outcome), "done"),
            _ => drop(granted(outcome)),
        }
    }
}

#[test]
fn a_waiting_task_keeps_its_deadline() {
    let (store, clock) = world(SyncBy::Thread);
    let holder = store.claim("k").unwrap().granted().unwrap();
    let mut future = pin!(store.claim_async(Request::new("k").wait(5 * SEC)));
    let woken = Arc::new(Woken::default());
    assert!(poll(future.as_mut(), &woken).is_pending());
    clock.advance(5 * SEC);
    assert!(matches!(block_on(future).unwrap(), Outcome::InFlight(_)), "P6: every wait has a deadline");
    drop(holder);
    assert_eq!(store.stats().entries, 0);
}

/// Drops a future at its n-th poll for every n, and looks what is left behind. `make` gives the future, and
/// `between` runs after each poll that was pending.
fn dropped_at_every_poll<F: Future>(make: impl Fn(&Store) -> F, between: impl Fn(usize, &Store)) {
    for n in 0.. {
        let (store, _clock) = world(SyncBy::Thread);
        let woken = Arc::new(Woken::default());
        let mut ready = false;
        {
            let mut future = Box::pin(make(&store));
            for polled in 0..n {
                if poll(future.as_mut(), &woken).is_ready() {
                    ready = true;
                    break;
                }
                between(polled, &store);
            }
        }
        store.sync().unwrap();
        let left = store.stats();
        assert_eq!((left.waiters, left.unsynced), (0, 0), "dropped at poll {n}");
        let next = store.claim("k").unwrap();
        match next {
            Outcome::Granted(claim) => {
                assert_eq!(
                    claim.attempt(),
                    1,
                    "rule 15: never granted costs no attempt; dropped at poll {n}"
                );
                drop(claim.release());
            }
            Outcome::Settled(_) => {}
            other => panic!("dropped at poll {n}: the key is held: {other:?}"),
        }
        assert_eq!(store.stats().entries, 0, "dropped at poll {n}");
        if ready {
            assert!(n > 0);
            return;
        }
    }
}

#[test]
fn a_claim_dropped_at_any_poll_leaves_nothing_behind() {
    dropped_at_every_poll(
        |store| {
            let claim = store.claim_async("k");
            async move { claim.await.unwrap().granted().unwrap().release().unwrap() }
        },
        |_, store| store.sync().unwrap(),
    );
}

#[test]
fn a_settle_dropped_at_any_poll_leaves_nothing_behind() {
    for durability in ALL {
        dropped_at_every_poll(
            |store| {
                let request = Request::new("k").durability(durability);
                let claim = store.claim(request).unwrap().granted().unwrap();
                // Before its first poll nothing was done: the claim goes with the future, as dropped.
                let mut settle = Box::pin(claim.complete_async("done"));
                let woken = Arc::new(Woken::default());
                let first = poll(settle.as_mut(), &woken);
                async move {
                    match first {
                        Poll::Ready(settled) => settled.unwrap(),
                        Poll::Pending => settle.await.unwrap(),
                    }
                }
            },
            |_, store| store.sync().unwrap(),
        );
    }
}

#[test]
fn a_dropped_waiter_hands_its_turn_on() {
    let (store, _clock) = world(SyncBy::Thread);
    let holder = store.claim("k").unwrap().granted().unwrap();
    let request = Request::new("k").wait(60 * SEC);
    let (first_woken, second_woken) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let mut first = Box::pin(store.claim_async(&request));
    let mut second = Box::pin(store.claim_async(&request));
    assert!(poll(first.as_mut(), &first_woken).is_pending());
    assert!(poll(second.as_mut(), &second_woken).is_pending());
    holder.release().unwrap();
    assert_eq!(first_woken.0.load(Ordering::SeqCst), 1, "the front waiter is woken");
    assert_eq!(second_woken.0.load(Ordering::SeqCst), 0, "and it alone");
    drop(first); // chosen, and gone
    assert_eq!(
        second_woken.0.load(Ordering::SeqCst),
        1,
        "P6 never stuck: the turn died with the first waiter"
    );
    drop(granted(block_on(second).unwrap()));
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn keep_alive_renews_until_its_bound_and_no_longer() {
    let (store, clock) = world(SyncBy::Thread);
    let claim = store.claim("k").unwrap().granted().unwrap();
    claim.keep_alive(100 * SEC).unwrap();
    let until = |remaining: Duration| {
        for _ in 0..100_000_000_u64 {
            if claim.remaining() == remaining {
                return;
            }
            std::thread::yield_now();
        }
        panic!("it has {:?} left and should have {remaining:?}", claim.remaining());
    };
    for _ in 0..4 {
        clock.advance(15 * SEC); // half of the lease
        until(30 * SEC);
    }
    clock.advance(15 * SEC); // 75 s held: the bound cuts the lease short
    until(25 * SEC);
    clock.advance(25 * SEC);
    let next = store.claim("k").unwrap().granted().expect("P6: the bound on holding was not kept");
    assert_eq!(next.attempt(), 2);
}

#[test]
fn keep_alive_ends_with_its_claim() {
    let (store, clock) = world(SyncBy::Thread);
    let ends: [fn(Claim); 3] =
        [|claim| claim.complete("done").unwrap(), |claim| claim.release().unwrap(), drop];
    for (n, end) in ends.into_iter().enumerate() {
        let key = format!("k{n}");
        let claim = store.claim(&key).unwrap().granted().unwrap();
        claim.keep_alive(1000 * SEC).unwrap();
        end(claim);
        for _ in 0..10 {
            clock.advance(15 * SEC);
        }
        assert_eq!(store.stats().live_claims, 0, "RN-01: it was renewed after its end");
    }
}

#[test]
fn a_holder_learns_why_it_lost_its_claim() {
    let (store, clock) = world(SyncBy::Thread);
    let claim = store.claim("expired").unwrap().granted().unwrap();
    let lost = claim.lost();
    assert_eq!(lost.cause(), None);
    clock.advance(20 * SEC);
    claim.renew(30 * SEC).unwrap();
    clock.advance(20 * SEC);
    assert_eq!(lost.cause(), None, "it was renewed");
    let mut raised = pin!(lost.raised());
    assert!(poll(raised.as_mut(), &Arc::new(Woken::default())).is_pending());
    clock.advance(10 * SEC);
    assert_eq!(block_on(raised), LossCause::LeaseOver);
    assert_eq!(lost.cause(), Some(LossCause::LeaseOver));
    drop(claim);

    let claim = store.claim("settled").unwrap().granted().unwrap();
    let lost = claim.lost();
    claim.complete("done").unwrap();
    assert_eq!(block_on(lost.raised()), LossCause::Ended);

    let claim = store.claim("closed").unwrap().granted().unwrap();
    let lost = claim.lost();
    store.close().unwrap();
    assert_eq!(block_on(lost.raised()), LossCause::Closed);
    assert_eq!(claim.lost().cause(), Some(LossCause::Closed));
}

#[test]
fn a_deadline_sooner_than_those_that_are_waited_for_is_kept() {
    let clock = ManualClock::new();
    let builder = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller);
    let store = builder.sweep_every(Duration::ZERO).open().unwrap();
    let _claim = store.claim(Request::new("k").lease(3600 * SEC)).unwrap().granted().unwrap();
    let wait = |span| Box::pin(store.claim_async(Request::new("k").wait(span)));
    let (mut late, mut soon, woken) = (wait(60 * SEC), wait(SEC), Arc::new(Woken::default()));
    assert!(poll(late.as_mut(), &woken).is_pending());
    let start = std::time::Instant::now();
    let until = |what: &str, holds: &mut dyn FnMut() -> bool| {
        while !holds() {
            assert!(start.elapsed() < 20 * SEC, "P6 never stuck: {what}");
            std::thread::yield_now();
        }
    };
    until("the timer waits for the later deadline", &mut || clock.waiting() == 1);
    assert!(poll(soon.as_mut(), &woken).is_pending());
    clock.advance(SEC);
    until("a wait outlives its deadline while the timer sleeps until a later one", &mut || {
        matches!(poll(soon.as_mut(), &woken), Poll::Ready(Ok(Outcome::InFlight(_))))
    });
    assert!(poll(late.as_mut(), &woken).is_pending());
}

#[test]
fn a_lock_excludes_and_has_a_space_of_its_own() {
    let (store, clock) = world(SyncBy::Thread);
    let lock = store.lock("k", Duration::ZERO).unwrap().expect("it is free");
    assert!(store.lock("k", Duration::ZERO).unwrap().is_none());
    let claim = store.claim("k").unwrap().granted().expect("a lock is no claim");
    claim.complete("done").unwrap();
    clock.advance(30 * SEC);
    let next = store.lock("k", Duration::ZERO).unwrap().expect("its lease is over");
    assert!(next.token() > lock.token(), "P2 ordered tokens");
    assert!(lock.renew(SEC).is_err());
    drop(lock);
    assert!(store.lock("k", Duration::ZERO).unwrap().is_none(), "a late drop frees nothing");
    drop(next);
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn progress_goes_to_the_successor() {
    let (store, clock) = world(SyncBy::Thread);
    let mut claim = store.claim("k").unwrap().granted().unwrap();
    assert_eq!(claim.last_checkpoint(), None);
    claim.checkpoint("half").unwrap();
    clock.advance(31 * SEC);
    claim.checkpoint("more").unwrap();
    let mut next = store.claim("k").unwrap().granted().unwrap();
    assert_eq!(next.last_checkpoint(), Some(&b"more"[..]));
    assert!(claim.checkpoint("late").is_err(), "P3 fenced");
    next.checkpoint("most").unwrap();
    next.complete("done").unwrap();
    assert_eq!(value(store.claim("k").unwrap()), "done");
    let memory = Request::new("m").durability(Durability::Result);
    assert!(store.claim(memory).unwrap().granted().unwrap().checkpoint("x").is_err());
}

#[test]
fn who_awaits_a_loss_is_woken_by_no_renewal_but_one_that_ends_sooner() {
    let (store, _clock) = world(SyncBy::Caller);
    let claim = granted(store.claim(Request::new("k").lease(20 * SEC)).unwrap());
    let mut raised = Box::pin(claim.lost().raised());
    let woken = Arc::new(Woken::default());
    assert!(poll(raised.as_mut(), &woken).is_pending());
    for lease in [20, 30] {
        claim.renew(lease * SEC).unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "it was woken for a lease of {lease} s");
    }
    claim.renew(29 * SEC).unwrap();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "P6 never stuck: its lease ends sooner");
}
