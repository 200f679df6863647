//! Syncs, and what is looked at now and then: what a recorder is told when.

use crate::faults::Syncs;
use crate::world::{LEASE, SEC, World};
use claimdb::backend::{Redb, Sled};
use claimdb::{Builder, Durability, Outcome, Request, Store, SyncBy};
use metrics_exporter_prometheus::PrometheusBuilder;
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(3);

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never came about: {what}");
        thread::yield_now();
    }
}

/// With threads of its own.
fn on_threads(builder: Builder) -> Builder {
    builder.sync_by(SyncBy::Thread).watch_every(EVERY).slow_sync(5 * SEC).sync_limit(1000 * SEC)
}

#[test]
fn a_slow_sync_is_counted_once_while_it_runs_and_not_again_when_it_ends() {
    let world = World::with(on_threads);
    let slow = || world.metrics().get("claimdb_slow_syncs_total").copied().unwrap_or_default();
    let running = || world.metrics().get("claimdb_sync_running_seconds").copied().unwrap_or_default();
    world.drive.syncs(Syncs::Hang);
    let claimant = {
        let store = world.store.clone();
        thread::spawn(move || store.claim("k"))
    };
    world.drive.until_a_sync_hangs();
    for (at, slow_then) in [(3.0, 0.0), (6.0, 1.0), (9.0, 1.0)] {
        until("the timer waits", || world.clock.waiting() >= 2);
        world.clock.advance(EVERY);
        // By the timer alone: nobody asks for the statistics.
        until("the store is looked at", || running() == at);
        assert_eq!(slow(), slow_then, "rule 10: a hung storage call is reported, after {at} s");
    }
    assert_eq!(world.store.stats().slow_syncs, 1);
    world.drive.syncs(Syncs::Work);
    assert!(matches!(claimant.join().unwrap(), Ok(Outcome::Granted(_))));
    let stats = world.store.stats();
    assert_eq!((slow(), running(), stats.slow_syncs), (1.0, 0.0, 1), "a slow sync was counted twice");
    assert_eq!((stats.slowest_sync, stats.sync_time), (9 * SEC, 9 * SEC));
    world.grant("fast").complete("done").unwrap();
    assert_eq!((slow(), world.store.stats().slow_syncs), (1.0, 1));
}

#[test]
fn a_slow_sync_that_nobody_looked_at_is_counted_when_it_ends() {
    let world = World::with(|builder| on_threads(builder).watch_every(Duration::ZERO));
    world.drive.syncs(Syncs::Hang);
    let claimant = {
        let store = world.store.clone();
        thread::spawn(move || store.claim("k"))
    };
    world.drive.until_a_sync_hangs();
    world.clock.advance(5 * SEC);
    world.drive.syncs(Syncs::Work);
    assert!(matches!(claimant.join().unwrap(), Ok(Outcome::Granted(_))));
    assert_eq!(world.metrics().get("claimdb_slow_syncs_total"), Some(&1.0));
    assert_eq!(world.store.stats().slow_syncs, 1);
}

#[test]
fn a_failed_sync_poisons_the_gauge_until_the_store_is_opened_again() {
    let world = World::new();
    let poisoned = |world: &World| world.metrics().get("claimdb_poisoned").copied().unwrap_or_default();
    assert_eq!(poisoned(&world), 0.0);
    world.drive.syncs(Syncs::Fail);
    assert!(world.store.claim("k").is_err());
    assert_eq!((poisoned(&world), world.store.stats().poisoned), (1.0, true), "P9: nobody is told");
    world.drive.syncs(Syncs::Work);
    assert!(world.store.close().is_err());
    let recorder = PrometheusBuilder::new().build_recorder();
    let open = || Store::builder(world.drive.clone()).clock(world.clock.clone()).open().unwrap();
    let (_first, page) = metrics::with_local_recorder(&recorder, || (open(), recorder.handle().render()));
    assert!(page.contains("claimdb_poisoned{store=\"default\"} 0"), "{page}");
}

#[test]
fn a_completion_whose_sync_ends_too_late_is_counted_once_however_often_it_is_tried() {
    let world = World::with(|builder| on_threads(builder).watch_every(Duration::ZERO));
    let mut claim = world.grant(Request::new("k").durability(Durability::Result));
    world.drive.syncs(Syncs::Hang);
    for _ in 0..3 {
        let completer = thread::spawn(move || claim.complete("done"));
        until("it waits for a sync", || world.clock.waiting() == 1);
        world.clock.advance(1000 * SEC);
        claim = completer.join().unwrap().unwrap_err().into_claim().expect("it comes back");
    }
    // Before anything is compared: a test that fails must not wait for a sync that hangs.
    world.drive.syncs(Syncs::Work);
    claim.complete("done").unwrap();
    assert_eq!(world.store.stats().completed, 1, "a settle is counted at each confirmation");
    assert_eq!(world.metrics().get("claimdb_settles_total{state=\"completed\"}"), Some(&1.0));
}

#[test]
fn one_sync_covers_the_writes_of_many() {
    let world = World::with(|builder| on_threads(builder).watch_every(Duration::ZERO));
    let claims =
        ["a", "b", "c", "d"].map(|key| world.grant(Request::new(key).durability(Durability::Result)));
    world.drive.syncs(Syncs::Hang);
    let mut waiting = 0;
    let completers = claims.map(|claim| {
        let completer = thread::spawn(move || claim.complete("done"));
        waiting += 1;
        until("it waits for a sync", || world.clock.waiting() == waiting);
        // The first sync is begun for the first, and the others come too late for it.
        world.drive.until_a_sync_hangs();
        completer
    });
    world.drive.syncs(Syncs::Work);
    for completer in completers {
        completer.join().unwrap().unwrap();
    }
    let (stats, metrics) = (world.store.stats(), world.metrics());
    assert_eq!((stats.syncs, stats.writes_synced, stats.largest_sync), (2, 4, 3));
    assert_eq!(metrics.get("claimdb_sync_writes_count"), Some(&2.0));
    assert_eq!(metrics.get("claimdb_sync_writes_sum"), Some(&4.0));
    assert_eq!(metrics.get("claimdb_sync_writes{quantile=\"1\"}"), Some(&3.0));
}

#[test]
fn what_is_live_is_told_when_it_is_looked_at() {
    let world = World::new();
    let gauges = |world: &World| {
        let metrics = world.metrics();
        let of = |name: &str| metrics.get(&format!("claimdb_{name}")).copied().unwrap_or_default();
        (of("live_claims"), of("overdue_claims"), of("waiters"), of("unsynced_writes"))
    };
    let claim = world.grant("k");
    let _lock = world.store.lock("l", Duration::ZERO).unwrap();
    let waits = {
        let store = world.store.clone();
        thread::spawn(move || store.claim(Request::new("k").wait(LEASE)))
    };
    until("it waits", || world.store.stats().waiters == 1);
    assert_eq!(gauges(&world), (2.0, 0.0, 1.0, 0.0));
    claim.complete("done").unwrap();
    assert!(matches!(waits.join().unwrap(), Ok(Outcome::Settled(_))));
    let relaxed = world.grant(Request::new("r").durability(Durability::Relaxed));
    world.clock.advance(LEASE);
    let stats = world.store.stats();
    assert_eq!(gauges(&world), (0.0, 2.0, 0.0, 0.0), "the lock's lease is over, and the claim's");
    assert_eq!((stats.live_claims, stats.overdue_claims), (0, 2));
    drop(relaxed);
    world.store.close().unwrap();
    assert_eq!(gauges(&world), (0.0, 0.0, 0.0, 0.0), "a closed store holds nothing");
}

#[test]
fn the_size_on_disk_is_told_and_follows_the_files() {
    let folder = tempfile::tempdir().unwrap();
    for (engine, least) in [("sled", 16 << 20), ("redb", 1 << 12)] {
        let path = folder.path().join(engine);
        let recorder = PrometheusBuilder::new().build_recorder();
        let builder = || match engine {
            "sled" => Store::builder(Sled::new(&path)).value_limit(8 << 20),
            _ => Store::builder(Redb::new(&path)).value_limit(8 << 20),
        };
        let store = metrics::with_local_recorder(&recorder, || builder().open()).unwrap();
        let bytes = store.stats().store_bytes.expect("it has files");
        assert!(bytes >= least, "{engine}: {bytes}");
        let shown = format!("claimdb_store_bytes{{store=\"default\"}} {bytes}");
        assert!(recorder.handle().render().contains(&shown), "{}", recorder.handle().render());
        for number in 0..3 {
            store.kv("large").put(format!("{number}"), vec![7; 8 << 20]).unwrap();
        }
        assert!(!store.sweep(10).unwrap().more);
        let now = store.stats().store_bytes.unwrap();
        assert!(now >= bytes + (8 << 20), "{engine}: 24 MiB were stored, and {bytes} became {now}");
        store.close().unwrap();
    }
    assert_eq!(World::new().store.stats().store_bytes, None, "memory has no files");
}

#[test]
fn stores_of_one_process_are_told_apart_by_their_names() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let open = |name: &str| Store::builder(claimdb::backend::Mem::new()).name(name).open();
    let stores =
        metrics::with_local_recorder(&recorder, || ["payments", "mail"].map(|name| open(name).unwrap()));
    drop(stores[1].claim("k"));
    let page = recorder.handle().render();
    for (store, count) in [("payments", 0), ("mail", 1)] {
        let line = format!("claimdb_claims_total{{store=\"{store}\",outcome=\"granted\"}} {count}");
        assert!(page.contains(&line), "{line} is not on the page: {page}");
    }
    for name in [String::new(), "x".repeat(65)] {
        let error = open(&name).unwrap_err().to_string();
        assert!(error.contains("name is of") && error.contains("from 1 to 64 bytes"), "{error}");
    }
}
