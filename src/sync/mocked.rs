//! Loom's.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
pub(super) use loom::thread_local;

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

    pub(crate) fn wait<'a, T>(&self, guard: loom::sync::MutexGuard<'a, T>) -> loom::sync::MutexGuard<'a, T> {
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
