//! Locks, signals, atomics, threads and random seeds: the real ones, loom's under `cfg(loom)`, or shuttle's under
//! `cfg(shuttle)`.
//!
//! This folder alone names any of them, so that a model runs the same code as production. Loom explores every
//! interleaving of a few threads, shuttle draws some of many. Neither has timed waits; [`Signal::wait_for`] is therefore
//! only called by [`SystemClock`](crate::SystemClock), and models use [`ManualClock`](crate::ManualClock).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the one place that may

mod breaks;
#[cfg(any(loom, shuttle))]
#[path = "mocked.rs"]
mod imp;
#[cfg(not(any(loom, shuttle)))]
#[path = "real.rs"]
mod imp;
#[cfg(loom)]
mod steps;

use crossbeam_utils::CachePadded;
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use breaks::Break;
pub(crate) use imp::{AtomicU64, Guard, Mutex, Ordering, ThreadId, hash_seed, process_seed, spawn};
#[cfg(loom)]
pub use steps::Steps;

/// Puts what the store does among the steps of a model's run; outside models it is nothing.
#[cfg(loom)]
#[track_caller]
pub(crate) fn note(does: &'static str, what: &'static str) {
    Steps::note(if what.is_empty() {
        does.into()
    } else {
        std::borrow::Cow::from(format!("{does}: {what}"))
    });
}

/// Puts what the store does among the steps of a model's run; outside models it is nothing.
#[cfg(not(loom))]
pub(crate) const fn note(_does: &'static str, _what: &'static str) {}

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
    #[cfg_attr(loom, track_caller)]
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
    #[cfg_attr(loom, track_caller)]
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
    /// Under loom and shuttle, which have no timed waits.
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

/// Counts events for statistics. Threads that count at one time have places of their own for it, and so do not take a cache
/// line from each other. Never part of a decision, so models do not need to see it.
#[derive(Debug, Default)]
pub(crate) struct Counter(Box<[CachePadded<std::sync::atomic::AtomicU64>; COUNTING_PLACES]>);

/// A thread has one of so many places. Those that share one count right as well, and get in each other's way. A model's
/// threads take turns.
const COUNTING_PLACES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

std::thread_local! {
    static COUNTING_PLACE: usize = {
        static THREADS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        THREADS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % COUNTING_PLACES
    };
}

impl Counter {
    pub(crate) fn add(&self, events: u64) {
        let place = COUNTING_PLACE.try_with(|place| *place).unwrap_or(0); // a thread that is ending has none
        // Relaxed: a statistic orders nothing.
        self.0[place].fetch_add(events, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.iter().map(|place| place.load(std::sync::atomic::Ordering::Relaxed)).sum()
    }
}

/// A number for statistics that is no count.
#[derive(Debug, Default)]
pub(crate) struct Level(std::sync::atomic::AtomicU64);

impl Level {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Makes it `least` at least.
    pub(crate) fn raise_to(&self, least: u64) {
        self.0.fetch_max(least, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Which thread this is.
pub(crate) fn current_thread() -> ThreadId {
    imp::current_thread()
}

/// A store and a key.
type Work = (usize, Arc<[u8]>);

// One stack for each thread, or for each of a model's.
imp::thread_local! {
    static WORKING: RefCell<Vec<Work>> = RefCell::default();
}

/// Tells, until it is dropped, that this thread does the work of a key. It stays on the thread: work inside work ends
/// before the work around it.
#[derive(Debug)]
pub(crate) struct Working(PhantomData<*const ()>);

impl Working {
    /// `store` tells stores apart that are open at one time. Nothing is told once the thread is ending.
    pub(crate) fn on(store: usize, key: &Arc<[u8]>) -> Option<Self> {
        let told = WORKING.try_with(|working| working.borrow_mut().push((store, Arc::clone(key))));
        told.is_ok().then_some(Self(PhantomData))
    }

    /// Whether this thread does the work of `key`, itself or around what it does now.
    pub(crate) fn is_on(store: usize, key: &[u8]) -> bool {
        let is = |(at, name): &Work| *at == store && **name == *key;
        WORKING.try_with(|working| working.borrow().iter().any(is)).unwrap_or(false)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ = WORKING.try_with(|working| working.borrow_mut().pop());
    }
}

/// Builds the hashers of one table; random in production, fixed in models.
#[cfg(not(any(loom, shuttle)))]
pub(crate) type HashSeed = std::collections::hash_map::RandomState;
/// Builds the hashers of one table; random in production, fixed in models.
#[cfg(any(loom, shuttle))]
pub(crate) type HashSeed = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
