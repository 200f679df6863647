//! Memory that calls back in the middle of the store's calls, and futures that are polled by hand.

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{OpenError, StorageError};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Real time, for the test alone: what has not come about by then never will.
pub const IN_TIME: Duration = Duration::from_secs(20);

/// Where in a call of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Read,
    HasRead,
    Commit,
    Committed,
    Sync,
}

type Hook = Box<dyn FnOnce() + Send>;

/// A [`Mem`] with hooks. Clones share both.
#[derive(Clone)]
pub struct Hooked {
    pub mem: Mem,
    inner: Arc<Inner>,
}

struct Inner {
    hooks: Mutex<Vec<(At, Hook)>>,
    broken: Mutex<Option<Vec<u8>>>,
    calls: AtomicU64,
}

impl Hooked {
    pub fn new() -> Self {
        let inner = Inner { hooks: Mutex::default(), broken: Mutex::default(), calls: AtomicU64::default() };
        Self { mem: Mem::with_power_cuts(), inner: Arc::new(inner) }
    }

    /// Runs `hook` once, at the next such call; it may use the store.
    pub fn on(&self, at: At, hook: impl FnOnce() + Send + 'static) {
        self.inner.hooks.lock().unwrap().push((at, Box::new(hook)));
    }

    /// From now on commits to keys that end in `name` fail and land nothing.
    pub fn break_key(&self, name: Option<&str>) {
        *self.inner.broken.lock().unwrap() = name.map(|name| name.as_bytes().to_vec());
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.inner.calls.load(Ordering::SeqCst)
    }
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Backend for Hooked {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(HookedEngine { engine: self.mem.open()?, inner: Arc::clone(&self.inner) }))
    }
}

struct HookedEngine {
    engine: Box<dyn Engine>,
    inner: Arc<Inner>,
}

impl HookedEngine {
    fn call(&self, at: At) {
        self.inner.calls.fetch_add(1, Ordering::SeqCst);
        self.run(at);
    }

    fn run(&self, at: At) {
        // Taken out first: a hook that uses the store comes by here again.
        let hook = {
            let mut hooks = self.inner.hooks.lock().unwrap();
            let position = hooks.iter().position(|(when, _)| *when == at);
            position.map(|position| hooks.remove(position).1)
        };
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl std::fmt::Debug for HookedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookedEngine")
    }
}

impl Engine for HookedEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.call(At::Read);
        let read = self.engine.read(key);
        self.run(At::HasRead);
        read
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.call(At::Commit);
        let broken = self.inner.broken.lock().unwrap().clone();
        let one = |commit: &Commit<'_>| match &broken {
            Some(name) if commit.key.ends_with(name) => {
                Err(StorageError::new("writing to", "memory", "it fails on purpose"))
            }
            _ => self.engine.commit(std::slice::from_ref(commit)).remove(0),
        };
        let answers = commits.iter().map(one).collect();
        self.run(At::Committed);
        answers
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.engine.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.call(At::Sync);
        self.engine.sync()
    }
}

/// Counts wake-ups, and unparks nobody: the tests poll when they mean to.
#[derive(Default)]
pub struct Woken(AtomicUsize);

impl Woken {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs a closure when it is woken.
pub struct CallsBack<F>(pub F);

impl<F: Fn() + Send + Sync> Wake for CallsBack<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

pub fn poll<F: Future + ?Sized>(
    future: Pin<&mut F>,
    wake: &Arc<impl Wake + Send + Sync + 'static>,
) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(wake))))
}

/// Waits, by looking again, until something has come about that another thread does.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < IN_TIME, "P6 never stuck: never came about: {what}");
        thread::yield_now();
    }
}

/// Polls until it is ready, each time it was woken.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, woken) = (std::pin::pin!(future), Woken::new());
    loop {
        let seen = woken.count();
        if let Poll::Ready(output) = poll(future.as_mut(), &woken) {
            return output;
        }
        until("a future is woken", || woken.count() > seen);
    }
}

/// Runs `body` on a thread of its own, and fails if it does not come back.
pub fn comes_back<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(body);
    until(what, || thread.is_finished());
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
