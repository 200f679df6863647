//! What a store has done since it was opened, by the names that scripts read.

use super::answer::{Answer, Stored};
use crate::store::{Stats, Store};
use serde_json::{Map, Value, json};
use std::time::Duration;

pub(super) fn stats(store: &Store, stored: Option<Stored>) -> Answer {
    Answer::Stats { opening: Some(opening(&store.stats())), stored }
}

fn opening(stats: &Stats) -> Map<String, Value> {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    // Each of them, so that a new one is not overlooked.
    let Stats {
        granted,
        reclaimed,
        reclaimed_lease_over,
        reclaimed_dropped,
        reclaimed_reopened,
        told_settled,
        told_in_flight,
        told_mismatched,
        told_interrupted,
        claims_failed,
        settled,
        completed,
        failed,
        omitted,
        released,
        refused_late,
        lease_overruns,
        damaged,
        syncs,
        sync_time,
        writes_synced,
        largest_sync,
        sync_running,
        slow_syncs,
        slowest_sync,
        disk_full,
        poisoned,
        entries,
        live_claims,
        overdue_claims,
        unsynced,
        waiters,
        timer_worst_late,
        timer_overdue,
        swept,
        sweep_failures,
        since_sweep,
        sweep_backlog,
        store_bytes,
    } = *stats;
    let told = json!({
        "granted": granted,
        "reclaimed": reclaimed,
        "reclaimed_lease_over": reclaimed_lease_over,
        "reclaimed_dropped": reclaimed_dropped,
        "reclaimed_reopened": reclaimed_reopened,
        "told_settled": told_settled,
        "told_in_flight": told_in_flight,
        "told_mismatched": told_mismatched,
        "told_interrupted": told_interrupted,
        "claims_failed": claims_failed,
        "settled": settled,
        "completed": completed,
        "failed": failed,
        "omitted": omitted,
        "released": released,
        "refused_late": refused_late,
        "lease_overruns": lease_overruns,
        "damaged": damaged,
        "syncs": syncs,
        "sync_time_ms": millis(sync_time),
        "writes_synced": writes_synced,
        "largest_sync": largest_sync,
        "sync_running_ms": sync_running.map(millis),
        "slow_syncs": slow_syncs,
        "slowest_sync_ms": millis(slowest_sync),
        "disk_full": disk_full,
        "poisoned": poisoned,
        "entries": entries,
        "live_claims": live_claims,
        "overdue_claims": overdue_claims,
        "unsynced": unsynced,
        "waiters": waiters,
        "timer_worst_late_ms": millis(timer_worst_late),
        "timer_overdue_ms": millis(timer_overdue),
        "swept": swept,
        "sweep_failures": sweep_failures,
        "since_sweep_ms": since_sweep.map(millis),
        "sweep_backlog_ms": millis(sweep_backlog),
        "store_bytes": store_bytes,
    });
    match told {
        Value::Object(told) => told,
        _ => Map::new(),
    }
}
