//! Locks, signals, atomics, threads and random seeds: the real ones, or loom's under `cfg(loom)`.
//!
//! This is the only file that names any of them, so that a model runs the same code as production. Loom has no
//! timed waits; [`Signal::wait_for`] is therefore only called by [`SystemClock`](crate::SystemClock), and models
//! use [`ManualClock`](crate::ManualClock).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the one place that may

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) use imp::{AtomicU64, Mutex, Ordering, ThreadId, hash_seed, process_seed, spawn};

/// A flag that one side raises and the other side waits for and takes down: a thread, or a task.
///
/// Raising it before the wait begins is not lost: the flag stays up until a wait has taken it. One waiter at a
/// time; any number may raise it.
#[derive(Debug)]
pub struct Signal {
    flag: imp::Mutex<Flag>,
    changed: imp::Condvar,
}

#[derive(Debug, Default)]
struct Flag {
    raised: bool,
    /// The task that waits, if one does.
    waker: Option<Waker>,
}

impl Signal {
    /// A signal that is down.
    #[must_use]
    pub fn new() -> Self {
        Self { flag: imp::Mutex::new(Flag::default()), changed: imp::Condvar::new() }
    }

    /// Raises the flag and wakes the waiter, if there is one.
    pub fn notify(&self) {
        let waker = {
            let mut flag = self.flag.lock();
            flag.raised = true;
            flag.waker.take()
        };
        self.changed.notify_one();
        // A waker is somebody else's code, so it runs without the lock; if it panics, that is its task's loss, and
        // not that of whoever else this thread would have woken.
        if let Some(waker) = waker {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Waits until the flag is up and takes it down.
    pub fn wait(&self) {
        let mut flag = self.flag.lock();
        while !flag.raised {
            flag = self.changed.wait(flag);
        }
        flag.raised = false;
    }

    /// Waits like [`wait`](Self::wait), for `limit` of real time at most. Tells whether the flag was up.
    ///
    /// # Panics
    /// Under loom, which has no timed waits.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let mut flag = self.flag.lock();
        if !flag.raised {
            flag = self.changed.wait_for(flag, limit);
        }
        std::mem::replace(&mut flag.raised, false)
    }

    /// Ready once the flag was up and has been taken down. Dropping the future takes nothing down.
    pub fn raised(self: &Arc<Self>) -> Raised {
        Raised(Arc::clone(self))
    }
}

/// Waits for a [`Signal`] in a task.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Raised(Arc<Signal>);

impl Future for Raised {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Cloned before and dropped after the lock: a waker is somebody else's code.
        let waker = context.waker().clone();
        let (ready, _old) = {
            let mut flag = self.0.flag.lock();
            if std::mem::replace(&mut flag.raised, false) {
                (true, flag.waker.take())
            } else {
                (false, flag.waker.replace(waker))
            }
        };
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

/// An event counter for statistics. Never part of a decision, so loom does not need to see it.
#[derive(Debug, Default)]
pub(crate) struct Counter(std::sync::atomic::AtomicU64);

impl Counter {
    pub(crate) fn add(&self, events: u64) {
        // Relaxed: a statistic orders nothing.
        self.0.fetch_add(events, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Which thread this is.
pub(crate) fn current_thread() -> ThreadId {
    imp::current_thread()
}

/// The number of lease-table shards. Loom explores each lock separately, so models get by with one.
pub(crate) const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// Rules that a model may break on purpose, to see that the break is found.
///
/// Outside loom [`is`](Break::is) is constant `false` and the branch vanishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(loom), allow(dead_code))]
pub enum Break {
    /// A claim looks at the key, and takes it in a second step without looking again.
    CheckThenAct,
    /// A claim in memory goes by what it read before it took the key, whatever happened in between.
    StaleLook,
    /// A settling write does not ask whose token the record carries.
    NoTokenCheck,
    /// The unsynced mark is put on the key after the swap (rule 1).
    MarkAfterSwap,
    /// Readers check for the mark first and read the record afterwards (rule 2).
    CheckBeforeRead,
    /// The sweeper deletes whatever stands under the key, and not what it has judged (rule 21).
    SweepWithoutSwap,
}

#[cfg(loom)]
mod breaks {
    use super::Break;
    use std::cell::Cell;

    // Loom runs all threads of a model as coroutines of one system thread, so a thread-local reaches them all
    // and tests that run beside it see nothing of it.
    thread_local!(static BROKEN: Cell<Option<Break>> = const { Cell::new(None) });

    impl Break {
        pub(crate) fn is(self) -> bool {
            BROKEN.get() == Some(self)
        }

        /// Runs `model` with this rule broken.
        pub fn run(self, model: impl FnOnce()) {
            struct Mend;
            impl Drop for Mend {
                fn drop(&mut self) {
                    BROKEN.set(None);
                }
            }
            BROKEN.set(Some(self));
            let _mend = Mend;
            model();
        }
    }
}

#[cfg(not(loom))]
impl Break {
    pub(crate) const fn is(self) -> bool {
        false
    }
}

#[cfg(not(loom))]
mod imp {
    use std::collections::hash_map::RandomState;
    use std::time::Duration;

    pub(crate) use std::sync::atomic::Ordering;

    // Types of our own, not re-exports: clippy's ban on the originals would follow a re-export everywhere.

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
            self.0.lock()
        }
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(std::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(std::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub(crate) fn fetch_add(&self, more: u64, order: Ordering) -> u64 {
            self.0.fetch_add(more, order)
        }

        pub(crate) fn fetch_max(&self, other: u64, order: Ordering) -> u64 {
            self.0.fetch_max(other, order)
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(parking_lot::Condvar::new())
        }

        pub(crate) fn wait<'a, T>(
            &self,
            mut guard: parking_lot::MutexGuard<'a, T>,
        ) -> parking_lot::MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        pub(crate) fn wait_for<'a, T>(
            &self,
            mut guard: parking_lot::MutexGuard<'a, T>,
            limit: Duration,
        ) -> parking_lot::MutexGuard<'a, T> {
            self.0.wait_for(&mut guard, limit);
            guard
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    pub(crate) type ThreadId = std::thread::ThreadId;

    pub(crate) fn current_thread() -> ThreadId {
        std::thread::current().id()
    }

    /// Starts a thread; waiting for its end is up to a [`Signal`](super::Signal) that it raises.
    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
    }

    /// Keys come from outside, so the seed is random: nobody can aim at one shard.
    pub(crate) fn hash_seed() -> RandomState {
        RandomState::new()
    }

    /// One seed for the whole process, for labels that stand for keys in messages.
    pub(crate) fn process_seed() -> &'static RandomState {
        static SEED: std::sync::OnceLock<RandomState> = std::sync::OnceLock::new();
        SEED.get_or_init(RandomState::new)
    }
}

#[cfg(loom)]
mod imp {
    use std::hash::{BuildHasherDefault, DefaultHasher};
    use std::time::Duration;

    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            match self.0.lock() {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<'a, T>(
            &self,
            guard: loom::sync::MutexGuard<'a, T>,
        ) -> loom::sync::MutexGuard<'a, T> {
            match self.0.wait(guard) {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }

        pub(crate) fn wait_for<'a, T>(
            &self,
            _guard: loom::sync::MutexGuard<'a, T>,
            _limit: Duration,
        ) -> loom::sync::MutexGuard<'a, T> {
            panic!("loom has no timed waits: models use ManualClock")
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    pub(crate) type ThreadId = loom::thread::ThreadId;

    pub(crate) fn current_thread() -> ThreadId {
        loom::thread::current().id()
    }

    pub(crate) fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        drop(loom::thread::spawn(body));
        Ok(())
    }

    /// Fixed, so that each run of a model visits the same states.
    pub(crate) fn hash_seed() -> BuildHasherDefault<DefaultHasher> {
        BuildHasherDefault::default()
    }

    pub(crate) fn process_seed() -> BuildHasherDefault<DefaultHasher> {
        BuildHasherDefault::default()
    }
}

/// Builds the hashers of one table; random in production, fixed under loom.
#[cfg(not(loom))]
pub(crate) type HashSeed = std::collections::hash_map::RandomState;
/// Builds the hashers of one table; random in production, fixed under loom.
#[cfg(loom)]
pub(crate) type HashSeed = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
