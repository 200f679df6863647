//! What the store looks like from outside, and looking at it now and then.

use super::Store;
use super::engine::EngineCell;
use super::sweep::Sweeper;
use crate::clock::Clock;
use crate::commit::GroupCommit;
use crate::error::Fault;
use crate::lease::{Mark, Table};
use crate::telemetry::{Looked, Telemetry};
use crate::timer::{LastAlarm, Timer};
use std::sync::Arc;
use std::time::Duration;

/// Whether there is anybody to tell of a look.
const IS_WATCHED: bool = cfg!(any(feature = "metrics", feature = "tracing"));

/// Looks at a store's parts. It keeps those and not the store, so that the store closes when its last user goes.
pub(super) struct Watch {
    pub(super) table: Arc<Table>,
    pub(super) commit: Arc<GroupCommit<Mark>>,
    pub(super) engine: Arc<EngineCell>,
    pub(super) sweeper: Arc<Sweeper>,
    pub(super) timer: Timer,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) alarm: LastAlarm,
}

impl Store {
    /// What the store has done since it was opened, and what it holds in memory now. With the feature `metrics` the
    /// recorder is told as well how things stand now: see [`Builder::watch_every`](crate::Builder::watch_every). Asks no
    /// storage.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let claim = store.claim("order-42")?.granted().expect("it is free");
    /// let stats = store.stats();
    /// assert_eq!((stats.granted, stats.live_claims, stats.settled), (1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.watch.look()
    }
}

impl Watch {
    /// Looks each time `every` has passed, on the timer's thread.
    pub(super) fn start(self: &Arc<Self>, every: Duration) {
        if !IS_WATCHED {
            return;
        }
        let this = Arc::downgrade(self);
        let alarm = self.timer.set(self.clock.now().after(every), move || {
            if let Some(watch) = this.upgrade() {
                watch.start(every);
            }
        });
        // Without a timer nobody looks but who asks for the statistics.
        self.alarm.keep(alarm.ok());
        // At last: it calls the engine, which is somebody else's code and may panic.
        self.look();
    }

    /// Looks at what is left of the store, and tells how it was closed.
    pub(super) fn ended(&self, failed: Option<&Fault>) {
        if IS_WATCHED {
            self.look();
        }
        self.telemetry.closed(failed.map(|fault| fault as _));
    }

    pub(super) fn look(&self) -> Stats {
        let counts = &*self.telemetry;
        let commit = self.commit.stats();
        let table = self.table.occupancy();
        let timer = self.timer.lateness();
        let sweep = self.sweeper.stats();
        let disk_full = self.engine.get().is_ok_and(|engine| engine.room().is_err());
        counts.show(&Looked {
            live_claims: table.live,
            overdue_claims: table.overdue,
            waiters: table.waiters,
            unsynced: table.unsynced,
            sync_running: commit.running.unwrap_or_default(),
            disk_full,
        });
        let (completed, failed, omitted) =
            (counts.completed.get(), counts.failed.get(), counts.omitted.get());
        let (lease_over, dropped, reopened) = (
            counts.reclaimed_lease_over.get(),
            counts.reclaimed_dropped.get(),
            counts.reclaimed_reopened.get(),
        );
        Stats {
            granted: counts.granted.get(),
            reclaimed: lease_over + dropped + reopened,
            reclaimed_lease_over: lease_over,
            reclaimed_dropped: dropped,
            reclaimed_reopened: reopened,
            told_settled: counts.told_settled.get(),
            told_in_flight: counts.told_in_flight.get(),
            told_mismatched: counts.told_mismatched.get(),
            told_interrupted: counts.told_interrupted.get(),
            claims_failed: counts.claims_failed.get(),
            settled: completed + failed + omitted,
            completed,
            failed,
            omitted,
            released: counts.released.get(),
            refused_late: counts.refused_late.get(),
            lease_overruns: counts.lease_overruns.get(),
            damaged: counts.damaged.get(),
            syncs: counts.syncs.count(),
            sync_time: counts.syncs.total_time(),
            writes_synced: counts.writes_synced.total(),
            largest_sync: counts.writes_synced.most(),
            sync_running: commit.running,
            slow_syncs: counts.slow_syncs.get(),
            slowest_sync: commit.slowest,
            disk_full,
            poisoned: self.commit.poisoned().is_some(),
            entries: table.entries,
            live_claims: table.live,
            overdue_claims: table.overdue,
            unsynced: table.unsynced,
            waiters: table.waiters,
            timer_worst_late: timer.worst,
            timer_overdue: timer.overdue,
            swept: counts.swept.get(),
            sweep_failures: counts.sweep_failures.get(),
            since_sweep: sweep.since_success,
            sweep_backlog: sweep.backlog,
            store_bytes: Some(counts.size()).filter(|bytes| *bytes > 0),
        }
    }
}

/// What a store has done since it was opened, and what it holds in memory now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Claims granted. Locks are none.
    pub granted: u64,
    /// Of those, claims that took over from one that had ended without settling.
    pub reclaimed: u64,
    /// Of those, over one whose lease had run out.
    pub reclaimed_lease_over: u64,
    /// Of those, over one that was dropped, by a panic for example.
    pub reclaimed_dropped: u64,
    /// Of those, over one of an earlier opening.
    pub reclaimed_reopened: u64,
    /// Claims answered with what was stored.
    pub told_settled: u64,
    /// Claims answered with *in flight*.
    pub told_in_flight: u64,
    /// Claims answered with *mismatched*.
    pub told_mismatched: u64,
    /// Claims answered with *interrupted*.
    pub told_interrupted: u64,
    /// Claims that were told an error.
    pub claims_failed: u64,
    /// Keys completed, failed or omitted.
    pub settled: u64,
    /// Of those, completed.
    pub completed: u64,
    /// Of those, failed for good.
    pub failed: u64,
    /// Of those, omitted.
    pub omitted: u64,
    /// Claims released.
    pub released: u64,
    /// Settles refused because the claim was lost.
    pub refused_late: u64,
    /// Claims and [locks](Store::lock) whose lease had run out when they ended, in whatever way.
    pub lease_overruns: u64,
    /// Damaged records met, each time one is.
    pub damaged: u64,
    /// Syncs that ended well.
    pub syncs: u64,
    /// How long those took in all.
    pub sync_time: Duration,
    /// Writes that those syncs covered.
    pub writes_synced: u64,
    /// The most that one of them covered.
    pub largest_sync: u64,
    /// How long the running sync has been at it, if one is running.
    pub sync_running: Option<Duration>,
    /// Syncs that took as long as [`Builder::slow_sync`](crate::Builder::slow_sync) or longer. The running one counts
    /// as soon as it does: a disk that hangs shows here before any caller's limit is over.
    pub slow_syncs: u64,
    /// How long the slowest sync took, the running one included.
    pub slowest_sync: Duration,
    /// Whether there is no room for new work, so that claims are refused.
    pub disk_full: bool,
    /// Whether a sync failed, so that the store refuses writes.
    pub poisoned: bool,
    /// Keys that memory knows anything of.
    pub entries: usize,
    /// Claims and [locks](Store::lock) whose lease has not run out.
    pub live_claims: usize,
    /// Claims and locks whose lease has run out, and which have neither ended nor been taken over.
    pub overdue_claims: usize,
    /// Settling writes that no finished sync covers yet.
    pub unsynced: usize,
    /// Callers that wait for a key.
    pub waiters: usize,
    /// The latest that a renewal, a task's deadline or a loss signal has come since the store was opened.
    pub timer_worst_late: Duration,
    /// How long the next of these has been due; more than a moment means that the timer thread is stalled.
    pub timer_overdue: Duration,
    /// Records deleted by sweeps.
    pub swept: u64,
    /// Sweeps that failed, and damaged records that they met.
    pub sweep_failures: u64,
    /// How long ago the last sweep ended well; `None` if none has since the store was opened.
    pub since_sweep: Option<Duration>,
    /// How long ago the first record that the last sweep left undone came due; zero if it left none.
    pub sweep_backlog: Duration,
    /// How many bytes the store takes on its disk, as of its opening or the last sweep that left nothing undone; `None`
    /// if its engine cannot tell.
    pub store_bytes: Option<u64>,
}
