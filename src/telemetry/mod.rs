//! What a store tells of itself: counts, for [`Store::stats`](crate::Store::stats) and for recorders (feature `metrics`),
//! and what an operator wants to read at night (feature `tracing`).
//!
//! Each floor calls this where it decides that something has happened, and nothing else counts or logs. So the
//! statistics and the metrics are one count, and each event is told once. `docs/telemetry.md` has them all.
//!
//! No key, value or fingerprint is ever told. What stands for a key is its [`KeyLabel`], as in errors.
//!
//! Recorders and subscribers are somebody else's code. What is counted and logged here is told by the store in the
//! middle of what others wait for, so a panic of theirs ends here. One of a span's goes on in whoever is at work in it.
//!
//! # Locking
//! Nothing here is called under a lock, for the same reason.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

mod count;
#[cfg(any(feature = "sled", feature = "redb"))]
pub(crate) mod opening;
mod span;

pub(crate) use count::{Count, Gauge, Sizes, float};
pub(crate) use span::Span;

use crate::error::{Damage, Poisoned};
use crate::key::KeyLabel;
use crate::sync::Level;
use crate::token::Token;
use count::{Meter, Unit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Calls somebody else's code. A panic of it is its own loss; the hook has told it.
#[cfg(any(feature = "metrics", feature = "tracing"))]
fn tell(call: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
}

/// The target of all spans and events.
#[cfg(feature = "tracing")]
const TARGET: &str = "claimdb";

/// The counts of one opening of a store.
pub(crate) struct Telemetry {
    #[cfg_attr(not(feature = "tracing"), allow(dead_code))]
    store: Arc<str>,
    pub(crate) granted: Count,
    pub(crate) told_settled: Count,
    pub(crate) told_in_flight: Count,
    pub(crate) told_mismatched: Count,
    pub(crate) told_interrupted: Count,
    pub(crate) claims_failed: Count,
    pub(crate) completed: Count,
    pub(crate) failed: Count,
    pub(crate) omitted: Count,
    pub(crate) released: Count,
    pub(crate) reclaimed_lease_over: Count,
    pub(crate) reclaimed_dropped: Count,
    pub(crate) reclaimed_reopened: Count,
    pub(crate) lease_overruns: Count,
    pub(crate) refused_late: Count,
    pub(crate) damaged: Count,
    /// The times that syncs took which ended well.
    pub(crate) syncs: Sizes,
    /// The writes that each of them covered.
    pub(crate) writes_synced: Sizes,
    pub(crate) slow_syncs: Count,
    pub(crate) swept: Count,
    pub(crate) sweep_failures: Count,
    live_claims: Gauge,
    overdue_claims: Gauge,
    waiters: Gauge,
    unsynced: Gauge,
    sync_running: Gauge,
    sweep_backlog: Gauge,
    store_bytes: Gauge,
    disk_full: Gauge,
    poisoned: Gauge,
    /// As of the last look at it; 0 for none.
    size: Level,
}

/// What is looked at now and then, and told to a recorder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looked {
    pub(crate) live_claims: usize,
    pub(crate) overdue_claims: usize,
    pub(crate) waiters: usize,
    pub(crate) unsynced: usize,
    pub(crate) sync_running: Duration,
    pub(crate) disk_full: bool,
}

/// Why a key was taken over from a holder that had not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaim {
    LeaseOver,
    Dropped,
    Reopened,
}

impl Telemetry {
    /// The counts of a store called `store`, all at zero, and known to the recorder that is installed now.
    pub(crate) fn new(store: &Arc<str>) -> Self {
        let meter = Meter { store };
        let [granted, told_settled, told_in_flight, told_mismatched, told_interrupted, claims_failed] = meter
            .counts(
                "claimdb_claims_total",
                "outcome",
                ["granted", "settled", "in_flight", "mismatched", "interrupted", "failed"],
                "Claims, by what they were told",
            );
        let [completed, failed, omitted, released] = meter.counts(
            "claimdb_settles_total",
            "state",
            ["completed", "failed", "omitted", "released"],
            "Claims that ended by settling, by how",
        );
        let [reclaimed_lease_over, reclaimed_dropped, reclaimed_reopened] = meter.counts(
            "claimdb_reclaims_total",
            "cause",
            ["lease_over", "dropped", "reopened"],
            "Claims granted over one that had ended without settling, by how that ended",
        );
        let this = Self {
            granted,
            told_settled,
            told_in_flight,
            told_mismatched,
            told_interrupted,
            claims_failed,
            completed,
            failed,
            omitted,
            released,
            reclaimed_lease_over,
            reclaimed_dropped,
            reclaimed_reopened,
            lease_overruns: meter.count(
                "claimdb_lease_overruns_total",
                "Claims and locks whose lease had run out when they ended, in whatever way",
            ),
            refused_late: meter.count(
                "claimdb_late_settles_refused_total",
                "Settles refused because another had been granted the key, or it was removed",
            ),
            damaged: meter.count("claimdb_damaged_records_total", "Damaged records met, each time one is"),
            syncs: meter.sizes("claimdb_sync_seconds", Unit::Seconds, "How long syncs took that ended well"),
            writes_synced: meter.sizes(
                "claimdb_sync_writes",
                Unit::Count,
                "How many writes each sync covered",
            ),
            slow_syncs: meter
                .count("claimdb_slow_syncs_total", "Syncs that took as long as Builder::slow_sync or longer"),
            swept: meter.count("claimdb_swept_records_total", "Records deleted by sweeps"),
            sweep_failures: meter.count(
                "claimdb_sweep_failures_total",
                "Sweeps that failed, and damaged records that they met",
            ),
            live_claims: meter.gauge(
                "claimdb_live_claims",
                Unit::Count,
                "Claims and locks whose lease has not run out",
            ),
            overdue_claims: meter.gauge(
                "claimdb_overdue_claims",
                Unit::Count,
                "Claims and locks whose lease has run out, and which have neither ended nor been taken over",
            ),
            waiters: meter.gauge("claimdb_waiters", Unit::Count, "Callers that wait for a key"),
            unsynced: meter.gauge(
                "claimdb_unsynced_writes",
                Unit::Count,
                "Settling writes that no finished sync covers yet",
            ),
            sync_running: meter.gauge(
                "claimdb_sync_running_seconds",
                Unit::Seconds,
                "How long the running sync has been at it; 0 if none is running",
            ),
            sweep_backlog: meter.gauge(
                "claimdb_sweep_backlog_seconds",
                Unit::Seconds,
                "How long ago the first record that the last sweep left undone came due; 0 if it left none",
            ),
            store_bytes: meter.gauge(
                "claimdb_store_bytes",
                Unit::Bytes,
                "What the store takes on its disk, as of its opening or its last sweep",
            ),
            disk_full: meter.gauge(
                "claimdb_disk_full",
                Unit::Count,
                "1 while there is no room for new work, so that claims are refused; else 0",
            ),
            poisoned: meter.gauge(
                "claimdb_poisoned",
                Unit::Count,
                "1 from a failed sync until the store is opened again; else 0",
            ),
            size: Level::default(),
            store: Arc::clone(store),
        };
        this.poisoned.set(0.0);
        this.sweep_backlog.set(0.0);
        this
    }

    pub(crate) fn reclaimed(&self, cause: Reclaim, key: KeyLabel, token: Token, attempt: u32) {
        let (count, cause) = match cause {
            Reclaim::LeaseOver => (&self.reclaimed_lease_over, "lease over"),
            Reclaim::Dropped => (&self.reclaimed_dropped, "dropped"),
            Reclaim::Reopened => (&self.reclaimed_reopened, "reopened"),
        };
        count.add(1);
        #[cfg(feature = "tracing")]
        tell(|| {
            tracing::info!(
                target: TARGET, store = &*self.store, %key, token = token.get(), attempt, cause,
                "granted a key whose holder had ended without settling"
            );
        });
    }

    /// The lease of a claim had run out when it ended. `key` is as it is stored.
    pub(crate) fn lease_overrun(&self, key: &[u8], token: Option<Token>, attempt: u32, by: Duration) {
        self.lease_overruns.add(1);
        #[cfg(feature = "tracing")]
        tell(|| {
            tracing::warn!(
                target: TARGET, store = &*self.store, key = %KeyLabel::of(key), token = token.map(Token::get), attempt, ?by,
                "a claim outlived its lease: make the lease longer, or keep it alive"
            );
        });
    }

    pub(crate) fn settle_refused_late(&self, key: KeyLabel, token: Token, by: Option<Token>) {
        self.refused_late.add(1);
        #[cfg(feature = "tracing")]
        tell(|| {
            tracing::warn!(
                target: TARGET, store = &*self.store, %key, token = token.get(), current = by.map(Token::get),
                "refused to settle a claim that was lost: what its work did outside the store may be done twice"
            );
        });
    }

    pub(crate) fn damaged(&self, key: KeyLabel, damage: &Damage) {
        self.damaged.add(1);
        #[cfg(feature = "tracing")]
        tell(|| {
            tracing::error!(
                target: TARGET, store = &*self.store, %key, %damage,
                "met a damaged record; its key is not granted: restore a backup, or close the store and repair it"
            );
        });
    }

    /// A sync has ended well that took so long and covered so many writes.
    pub(crate) fn synced(&self, took: Duration, writes: u64) {
        self.syncs.record_time(took);
        self.writes_synced.record(writes);
    }

    /// A sync has been running for longer than is good, or has ended after that. Told once of each.
    pub(crate) fn slow_sync(&self, so_far: Duration) {
        self.slow_syncs.add(1);
        #[cfg(feature = "tracing")]
        tell(
            || tracing::warn!(target: TARGET, store = &*self.store, ?so_far, "a sync is slow: look at the disk"),
        );
    }

    /// A sync has failed.
    pub(crate) fn is_poisoned(&self, poisoned: &Poisoned) {
        self.poisoned.set(1.0);
        #[cfg(feature = "tracing")]
        tell(|| tracing::error!(target: TARGET, store = &*self.store, "{poisoned}"));
    }

    pub(crate) fn sweep_failed(&self, error: &dyn fmt::Display) {
        self.sweep_failures.add(1);
        #[cfg(feature = "tracing")]
        tell(|| {
            tracing::warn!(
                target: TARGET, store = &*self.store, error = %error,
                "a sweep failed; the next one goes on behind it"
            );
        });
    }

    /// How long ago the first record that a sweep has left undone came due.
    pub(crate) fn sweep_left(&self, backlog: Duration) {
        self.sweep_backlog.set(backlog.as_secs_f64());
    }

    /// How many bytes the store takes on its disk.
    pub(crate) fn measured(&self, bytes: u64) {
        self.size.set(bytes);
        self.store_bytes.set(float(bytes));
    }

    /// What was [`measured`](Self::measured) last.
    pub(crate) fn size(&self) -> u64 {
        self.size.get()
    }

    /// Somebody changed something over an admin socket, or was refused to. `change` says who and what, and shows no key.
    #[cfg(feature = "admin")]
    pub(crate) fn changed_over_socket(&self, change: &dyn fmt::Display) {
        #[cfg(feature = "tracing")]
        tell(|| tracing::warn!(target: TARGET, store = &*self.store, "{change}"));
    }

    /// The store is open, and hands out tokens from `first` on.
    pub(crate) fn opened(&self, first: Token) {
        #[cfg(feature = "tracing")]
        tell(|| tracing::info!(target: TARGET, store = &*self.store, first_token = first.get(), "opened"));
    }

    pub(crate) fn closed(&self, error: Option<&dyn fmt::Display>) {
        #[cfg(feature = "tracing")]
        tell(|| match error {
            None => tracing::info!(target: TARGET, store = &*self.store, "closed"),
            Some(error) => {
                tracing::warn!(target: TARGET, store = &*self.store, error = %error, "closed, and not cleanly");
            }
        });
    }

    /// Tells a recorder how things stand.
    pub(crate) fn show(&self, looked: &Looked) {
        let number = |count: usize| float(count as u64);
        self.live_claims.set(number(looked.live_claims));
        self.overdue_claims.set(number(looked.overdue_claims));
        self.waiters.set(number(looked.waiters));
        self.unsynced.set(number(looked.unsynced));
        self.sync_running.set(looked.sync_running.as_secs_f64());
        self.disk_full.set(if looked.disk_full { 1.0 } else { 0.0 });
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}
