//! One thread for all that happens at a time without anybody waiting for it: deadlines of tasks, renewals, and
//! leases that run out under a holder who wants to know.
//!
//! The thread starts when first needed. Nothing that the protocol promises hangs on it: deadlines are judged where
//! a key is touched. If it stalls, tasks wait longer and leases are not renewed, so it says how late it is.
//!
//! # Locking
//! One mutex around the queue, never held while an alarm runs. The thread is started under it.

use crate::clock::{Clock, Moment, expired};
use crate::error::StorageError;
use crate::sync::{Break, Mutex, Signal, spawn};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// What is done when the time has come. Runs on the timer's thread: it must not wait.
type Action = Box<dyn FnOnce() + Send>;

/// Waits for nothing in particular: far enough that no clock gets there.
const NEVER: Moment = Moment::new(Duration::from_secs(u64::MAX / 2));

#[derive(Clone)]
pub(crate) struct Timer(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    /// Raised when an alarm is before all that the thread waits for, or the thread is to end.
    changed: Arc<Signal>,
}

struct Queue {
    /// By time, and by number among those of one time.
    alarms: BTreeMap<(Moment, u64), Action>,
    next_number: u64,
    /// When the thread looks again, if it is not told to before. The alarm that it waits for may have been cancelled:
    /// it looks once for nothing then, and is not woken for each alarm that comes and goes meanwhile.
    looks_again: Moment,
    running: bool,
    ended: bool,
    worst: Duration,
}

/// An alarm that is set. Dropping it cancels it, unless it is ringing.
#[must_use = "an alarm that is dropped does not ring"]
pub(crate) struct Alarm {
    timer: Timer,
    at: (Moment, u64),
}

/// How late alarms ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lateness {
    /// The latest that one has rung.
    pub(crate) worst: Duration,
    /// How long the first one that is due has not rung; more than a moment means that the thread is stalled.
    pub(crate) overdue: Duration,
}

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let (alarms, looks_again, worst) = (BTreeMap::new(), NEVER, Duration::ZERO);
        let queue = Queue { alarms, next_number: 0, looks_again, running: false, ended: false, worst };
        let queue = Mutex::new(queue);
        Self(Arc::new(Shared { clock, queue, changed: Arc::new(Signal::new()) }))
    }

    /// Runs `action` at `at`, or at once if that has passed. Drops it if the thread is to end.
    pub(crate) fn set(
        &self,
        at: Moment,
        action: impl FnOnce() + Send + 'static,
    ) -> Result<Alarm, StorageError> {
        let (at, sooner) = {
            let mut queue = self.0.queue.lock();
            queue.next_number += 1;
            let at = (at, queue.next_number);
            if queue.ended {
                // Dropped after the lock, as by `end`.
                drop(queue);
                drop(action);
                return Ok(Alarm { timer: self.clone(), at });
            }
            let start = !queue.running;
            if start {
                // Under the lock: nobody may count on a thread that cannot be started.
                let shared = Arc::clone(&self.0);
                if let Err(error) = spawn("claimdb-timer", move || shared.run()) {
                    drop(queue);
                    drop(action);
                    return Err(StorageError::new("starting the timer thread of", "the store", error));
                }
                queue.running = true;
            }
            let sooner = !start && at.0 < queue.looks_again;
            queue.looks_again = at.0.min(queue.looks_again);
            queue.alarms.insert(at, Box::new(action));
            (at, sooner)
        };
        if sooner {
            self.0.changed.notify();
        }
        Ok(Alarm { timer: self.clone(), at })
    }

    /// Cancels all alarms and ends the thread.
    pub(crate) fn end(&self) {
        let cancelled = {
            let mut queue = self.0.queue.lock();
            queue.ended = true;
            std::mem::take(&mut queue.alarms)
        };
        self.0.changed.notify();
        drop(cancelled);
    }

    pub(crate) fn lateness(&self) -> Lateness {
        let now = self.0.clock.now();
        let queue = self.0.queue.lock();
        let overdue = queue.alarms.first_key_value().map_or(Duration::ZERO, |((at, _), _)| now.since(*at));
        Lateness { worst: queue.worst, overdue }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let now = self.clock.now();
            let (due, next) = {
                let mut queue = self.queue.lock();
                if queue.ended {
                    return;
                }
                let later = queue.alarms.split_off(&(now, u64::MAX));
                let due = std::mem::replace(&mut queue.alarms, later);
                if let Some(((at, _), _)) = due.first_key_value() {
                    queue.worst = queue.worst.max(now.since(*at));
                }
                let next = queue.alarms.first_key_value().map_or(NEVER, |((at, _), _)| *at);
                queue.looks_again = next;
                (due, next)
            };
            for ((at, _), action) in due {
                debug_assert!(expired(now, at), "only what is due was taken out");
                // An action may call an engine, which is somebody else's code: if it panics, the deadlines of all
                // others still have their thread.
                let _ = catch_unwind(AssertUnwindSafe(action));
            }
            self.clock.wait(&self.changed, next);
        }
    }
}

/// Keeps an alarm that sets the next one when it rings. Dropping this cancels it.
#[derive(Debug, Default)]
pub(crate) struct LastAlarm(Mutex<Option<Alarm>>);

impl LastAlarm {
    /// Keeps the one that was set last. It may be kept already: an alarm can ring, and the next one be set and kept,
    /// before it is kept itself.
    pub(crate) fn keep(&self, alarm: Option<Alarm>) {
        // Dropped after the lock, since that locks the timer.
        let _cancelled = {
            let mut kept = self.0.lock();
            let number = |alarm: &Option<Alarm>| alarm.as_ref().map(|alarm| alarm.at.1);
            if number(&alarm) > number(&kept) || Break::SpentAlarmKept.is() {
                std::mem::replace(&mut *kept, alarm)
            } else {
                alarm
            }
        };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // Dropped after the lock: an action may own what locks the timer when it goes.
        let action = self.timer.0.queue.lock().alarms.remove(&self.at);
        drop(action);
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("alarms", &self.0.queue.lock().alarms.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("at", &self.at.0).finish_non_exhaustive()
    }
}
