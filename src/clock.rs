//! Time: the only file that reads a clock.
//!
//! Deadlines live on a monotonic clock, retention on the wall clock. On Linux the monotonic clock is
//! `CLOCK_MONOTONIC`: it stands still while the machine is suspended, as do all threads of the process. macOS
//! behaves the same (`CLOCK_UPTIME_RAW`); on Windows (`QueryPerformanceCounter`) suspended time counts, so leases
//! can run out during a suspend.
//!
//! Waiting is a clock's business too: what is waited for is either a wake-up or a clock that moved. With
//! [`ManualClock`] time moves only by [`advance`](ManualClock::advance), which makes tests exact and lets loom
//! explore deadlines.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the one place that may

use crate::sync::{Mutex, Signal, note};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// A point on a monotonic clock, as the time since that clock's origin. Only comparable within one clock.
///
/// Counted in nanoseconds, up to 584 years; what is later counts as that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(NonZeroU64); // one more than the nanoseconds, so that an optional moment takes no more room

impl Moment {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);

    /// The moment `since_origin` after the clock's origin.
    #[must_use]
    pub const fn new(since_origin: Duration) -> Self {
        Self::ORIGIN.after(since_origin)
    }

    /// This moment and `span` more, at most the last one that can be expressed.
    #[must_use]
    pub const fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// This moment less `span`, at least the origin.
    #[must_use]
    pub const fn before(self, span: Duration) -> Self {
        match NonZeroU64::new(self.0.get().saturating_sub(nanos(span))) {
            Some(before) => Self(before),
            None => Self::ORIGIN,
        }
    }

    /// The time from `earlier` to this moment; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// In nanoseconds, at most what a moment can be after its origin.
const fn nanos(span: Duration) -> u64 {
    match span.as_secs().checked_mul(1_000_000_000) {
        Some(seconds) => seconds.saturating_add(span.subsec_nanos() as u64),
        None => u64::MAX,
    }
}

/// A point in wall-clock time, in milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// The point `millis` milliseconds after 1970-01-01 UTC.
    #[must_use]
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn unix_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn unix_seconds(self) -> u64 {
        self.0 / 1000
    }

    /// As a date and a time to name a file with.
    ///
    /// ```
    /// use claimdb::WallTime;
    /// assert_eq!(WallTime::from_unix_millis(951_868_799_999).utc(), "2000-02-29T23-59-59Z");
    /// assert_eq!(WallTime::from_unix_millis(1_772_323_200_000).utc(), "2026-03-01T00-00-00Z");
    /// ```
    #[must_use]
    pub fn utc(self) -> String {
        let (days, second) = (self.unix_seconds() / 86_400, self.unix_seconds() % 86_400);
        // Years that begin in March, in cycles of 400, since the leap day is then the last of its year.
        let (cycle, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = cycle * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z")
    }

    /// This point and `span` more, at most the last one that can be expressed.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The one meaning of *expired*: the deadline has been reached.
#[must_use]
pub fn expired<T: PartialOrd>(now: T, deadline: T) -> bool {
    now >= deadline
}

/// A source of time, and the way to wait for it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The monotonic time. Never goes back.
    fn now(&self) -> Moment;

    /// The wall-clock time. May jump.
    fn wall(&self) -> WallTime;

    /// Blocks until `signal` is raised or `deadline` is reached on this clock, whichever is first. May return
    /// early for no reason; callers look again.
    fn wait(&self, signal: &Arc<Signal>, deadline: Moment);
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::new(self.origin.elapsed())
    }

    fn wall(&self) -> WallTime {
        // A clock set before 1970 counts as 1970: tokens then go by the durable ceiling alone.
        let since_1970 = std::time::SystemTime::now()
            .duration_since(std::time::SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        WallTime(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
    }

    fn wait(&self, signal: &Arc<Signal>, deadline: Moment) {
        signal.wait_for(deadline.since(self.now()));
    }
}

/// A clock that moves only when told to: for tests and models.
///
/// Clones share one time. Every wait of a store goes by its clock, so one that waits for a place that is open
/// ([`Builder::lock_wait`](crate::Builder::lock_wait)) or a sync that hangs waits until somebody moves the time.
///
/// ```
/// use claimdb::{Clock, ManualClock};
/// use std::time::Duration;
/// let clock = ManualClock::new();
/// let (then, wall) = (clock.now(), clock.wall());
/// clock.clone().advance(Duration::from_secs(30));
/// assert_eq!(clock.now().since(then), Duration::from_secs(30));
/// assert_eq!(clock.wall(), wall.after(Duration::from_secs(30)));
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Manual>>);

#[derive(Debug)]
struct Manual {
    now: Moment,
    wall: WallTime,
    waiting: Vec<(Moment, Arc<Signal>)>,
}

impl ManualClock {
    /// A clock at its origin, with the wall clock at 2025-01-01 00:00 UTC.
    #[must_use]
    pub fn new() -> Self {
        const Y2025: WallTime = WallTime(1_735_689_600_000);
        Self(Arc::new(Mutex::new(Manual { now: Moment::ORIGIN, wall: Y2025, waiting: Vec::new() })))
    }

    /// Moves both clocks forward and wakes those whose deadline was reached.
    #[cfg_attr(loom, track_caller)]
    pub fn advance(&self, span: Duration) {
        let mut due = Vec::new();
        {
            let mut manual = self.0.lock();
            note("moves the clock", "");
            manual.now = manual.now.after(span);
            manual.wall = manual.wall.after(span);
            let now = manual.now;
            manual.waiting.retain(|(deadline, signal)| {
                let reached = expired(now, *deadline);
                if reached {
                    due.push(Arc::clone(signal));
                }
                !reached
            });
        }
        for signal in due {
            signal.notify();
        }
    }

    /// Sets the wall clock alone, forwards or back.
    pub fn set_wall(&self, wall: WallTime) {
        self.0.lock().wall = wall;
    }

    /// How many threads wait on this clock now. Lets a test know that a waiter has arrived.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.0.lock().now
    }

    fn wall(&self) -> WallTime {
        self.0.lock().wall
    }

    fn wait(&self, signal: &Arc<Signal>, deadline: Moment) {
        {
            let mut manual = self.0.lock();
            if expired(manual.now, deadline) {
                return;
            }
            manual.waiting.push((deadline, Arc::clone(signal)));
        }
        // An advance between here and the wait raises the flag, which stays up: nothing is lost.
        signal.wait();
        self.0.lock().waiting.retain(|(_, waiting)| !Arc::ptr_eq(waiting, signal));
    }
}
