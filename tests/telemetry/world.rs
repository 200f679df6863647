//! A store over a faulty drive, by the manual clock, and a recorder of its own.

use crate::faults::Faulty;
use claimdb::{Claim, ManualClock, Outcome, Request, Stats, Store, SyncBy};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::collections::BTreeMap;
use std::time::Duration;

pub const SEC: Duration = Duration::from_secs(1);
pub const LEASE: Duration = Duration::from_secs(30);
pub const DAY: Duration = Duration::from_secs(86_400);

/// Metrics by name and labels, those that are zero left out.
pub type Metrics = BTreeMap<String, f64>;

pub struct World {
    pub store: Store,
    pub clock: ManualClock,
    pub drive: Faulty,
    pub recorded: PrometheusHandle,
    settings: fn(claimdb::Builder) -> claimdb::Builder,
}

impl World {
    pub fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub fn with(settings: fn(claimdb::Builder) -> claimdb::Builder) -> Self {
        Self::over(ManualClock::new(), Faulty::new(), settings)
    }

    fn over(clock: ManualClock, drive: Faulty, settings: fn(claimdb::Builder) -> claimdb::Builder) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let builder = Store::builder(drive.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
        let builder = settings(builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO));
        let store = metrics::with_local_recorder(&recorder, || builder.open()).unwrap();
        Self { store, clock, drive, recorded: recorder.handle(), settings }
    }

    /// The next opening, with a recorder of its own.
    pub fn reopened(self) -> Self {
        let Self { store, clock, drive, settings, .. } = self;
        store.close().unwrap();
        Self::over(clock, drive, settings)
    }

    pub fn grant(&self, request: impl Into<Request>) -> Claim {
        match self.store.claim(request).unwrap() {
            Outcome::Granted(claim) => claim,
            other => panic!("expected a grant, was told {other:?}"),
        }
    }

    /// What the recorder was told, and what is not zero of it.
    pub fn metrics(&self) -> Metrics {
        read(&self.recorded.render())
    }
}

/// The metrics of a page of them, the store's name left out.
pub fn read(page: &str) -> Metrics {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let metric = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let name = name.replace("store=\"default\",", "").replace("{store=\"default\"}", "");
        (name, value.parse::<f64>().unwrap())
    };
    lines.map(metric).filter(|(_, value)| *value != 0.0).collect()
}

/// The counters as the statistics have them, under the names that they have as metrics.
pub fn counted(stats: &Stats) -> Metrics {
    let label = |name: &str, label: &str, value: &str| format!("claimdb_{name}{{{label}=\"{value}\"}}");
    let claims = |outcome| label("claims_total", "outcome", outcome);
    let settles = |state| label("settles_total", "state", state);
    let reclaims = |cause| label("reclaims_total", "cause", cause);
    let plain = |name: &str| format!("claimdb_{name}");
    let counts = [
        (claims("granted"), stats.granted),
        (claims("settled"), stats.told_settled),
        (claims("in_flight"), stats.told_in_flight),
        (claims("mismatched"), stats.told_mismatched),
        (claims("interrupted"), stats.told_interrupted),
        (claims("failed"), stats.claims_failed),
        (settles("completed"), stats.completed),
        (settles("failed"), stats.failed),
        (settles("omitted"), stats.omitted),
        (settles("released"), stats.released),
        (reclaims("lease_over"), stats.reclaimed_lease_over),
        (reclaims("dropped"), stats.reclaimed_dropped),
        (reclaims("reopened"), stats.reclaimed_reopened),
        (plain("lease_overruns_total"), stats.lease_overruns),
        (plain("late_settles_refused_total"), stats.refused_late),
        (plain("damaged_records_total"), stats.damaged),
        (plain("slow_syncs_total"), stats.slow_syncs),
        (plain("swept_records_total"), stats.swept),
        (plain("sweep_failures_total"), stats.sweep_failures),
        (plain("sync_seconds_count"), stats.syncs),
        (plain("sync_writes_sum"), stats.writes_synced),
    ];
    counts.into_iter().map(|(name, count)| (name, count as f64)).filter(|(_, count)| *count != 0.0).collect()
}

/// What of `metrics` counts events.
pub fn counters(metrics: &Metrics) -> Metrics {
    let counts =
        |name: &&String| name.contains("_total") || name.ends_with("_count") || name.ends_with("_writes_sum");
    let wanted = metrics.iter().filter(|(name, _)| counts(name) && !name.ends_with("sync_writes_count"));
    wanted.map(|(name, value)| (name.clone(), *value)).collect()
}
