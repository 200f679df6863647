//! Loom's, or shuttle's, which have the same names.

#[cfg(loom)]
use super::steps::switch;
#[cfg(loom)]
use loom as mock;
#[cfg(shuttle)]
use shuttle as mock;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

pub(crate) use mock::sync::atomic::Ordering;
pub(super) use mock::thread_local;

/// Shuttle repeats a run by its schedule.
#[cfg(shuttle)]
const fn switch(_: &'static str) {}

// What takes a lock or an atomic says where it was called, here and to loom: with `LOOM_LOCATION` that tells of a deadlock
// who waits where.

#[derive(Debug)]
pub(crate) struct Mutex<T>(mock::sync::Mutex<T>);

pub(crate) type Guard<'a, T> = mock::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(mock::sync::Mutex::new(value))
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let guard = match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        switch("takes the lock");
        guard
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[derive(Debug)]
pub(crate) struct AtomicU64(mock::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(mock::sync::atomic::AtomicU64::new(value))
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> u64 {
        let value = self.0.load(order);
        switch("reads the atomic");
        value
    }

    #[track_caller]
    pub(crate) fn fetch_add(&self, more: u64, order: Ordering) -> u64 {
        let value = self.0.fetch_add(more, order);
        switch("adds to the atomic");
        value
    }

    #[track_caller]
    pub(crate) fn fetch_max(&self, other: u64, order: Ordering) -> u64 {
        let value = self.0.fetch_max(other, order);
        switch("raises the atomic");
        value
    }
}

#[derive(Debug)]
pub(crate) struct Condvar(mock::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(mock::sync::Condvar::new())
    }

    #[track_caller]
    pub(crate) fn wait<'a, T>(&self, guard: mock::sync::MutexGuard<'a, T>) -> mock::sync::MutexGuard<'a, T> {
        switch("waits");
        let guard = match self.0.wait(guard) {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        switch("was woken");
        guard
    }

    pub(crate) fn wait_for<'a, T>(
        &self,
        _guard: mock::sync::MutexGuard<'a, T>,
        _limit: Duration,
    ) -> mock::sync::MutexGuard<'a, T> {
        panic!("models have no real time: they use ManualClock")
    }

    #[track_caller]
    pub(crate) fn notify_one(&self) {
        switch("wakes");
        self.0.notify_one();
    }
}

pub(crate) type ThreadId = mock::thread::ThreadId;

pub(crate) fn current_thread() -> ThreadId {
    mock::thread::current().id()
}

pub(crate) fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    drop(mock::thread::spawn(body));
    Ok(())
}

/// Fixed, so that each run of a model visits the same states.
pub(crate) fn hash_seed() -> BuildHasherDefault<DefaultHasher> {
    BuildHasherDefault::default()
}

pub(crate) fn process_seed() -> BuildHasherDefault<DefaultHasher> {
    BuildHasherDefault::default()
}
