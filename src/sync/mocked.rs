//! Loom's, or shuttle's, which have the same names.

#[cfg(loom)]
use loom as mock;
#[cfg(shuttle)]
use shuttle as mock;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

pub(crate) use mock::sync::atomic::{AtomicU64, Ordering};
pub(super) use mock::thread_local;

#[derive(Debug)]
pub(crate) struct Mutex<T>(mock::sync::Mutex<T>);

pub(crate) type Guard<'a, T> = mock::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(mock::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
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
pub(crate) struct Condvar(mock::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(mock::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: mock::sync::MutexGuard<'a, T>) -> mock::sync::MutexGuard<'a, T> {
        match self.0.wait(guard) {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(crate) fn wait_for<'a, T>(
        &self,
        _guard: mock::sync::MutexGuard<'a, T>,
        _limit: Duration,
    ) -> mock::sync::MutexGuard<'a, T> {
        panic!("models have no real time: they use ManualClock")
    }

    pub(crate) fn notify_one(&self) {
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
