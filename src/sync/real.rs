//! The real ones.

use std::collections::hash_map::RandomState;
use std::time::Duration;

pub(crate) use std::sync::atomic::Ordering;
pub(super) use std::thread_local;

// Types of our own, not re-exports: clippy's ban on the originals would follow a re-export everywhere.

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

pub(crate) type Guard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
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
