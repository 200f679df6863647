//! Results that are told again without a read of the store (rule 22): only what still stands, and only to whom it is for.
#![cfg(not(loom))] // tests/loom_recent.rs has the races
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::{Durability, ManualClock, Outcome, Request, Resolution, Settled, Store, SyncBy};
use hooks::Hooked;
use std::time::Duration;

const RETENTION: Duration = Duration::from_secs(3600);

struct World {
    backend: Hooked,
    clock: ManualClock,
    store: Store,
}

impl World {
    fn new() -> Self {
        let (backend, clock) = (Hooked::new(), ManualClock::new());
        let builder = Store::builder(backend.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
        let builder = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO);
        Self { store: builder.retention(RETENTION).open().unwrap(), backend, clock }
    }

    fn settle(&self, key: &str, durability: Durability, value: &str) {
        let claim = self.store.claim(Request::new(key).durability(durability)).unwrap().granted().unwrap();
        claim.complete_bytes(value.as_bytes()).unwrap();
    }

    /// What a retry is told, and how often it asked the storage.
    fn retry(&self, request: impl Into<Request>) -> (Option<Vec<u8>>, u64) {
        let before = self.backend.calls();
        let told = match self.store.claim(request.into()).unwrap() {
            Outcome::Settled(Settled::Completed(stored)) => Some(stored.into_bytes()),
            _ => None,
        };
        (told, self.backend.calls() - before)
    }

    /// Settled, and told from memory.
    fn known(durability: Durability) -> Self {
        let world = Self::new();
        world.settle("k", durability, "done");
        world.retry("k");
        assert_eq!(world.retry("k"), (Some(b"done".into()), 0), "a second retry asked the storage");
        world
    }

    fn is_granted(&self, why: &str) {
        let told = self.store.claim("k").unwrap();
        assert!(matches!(told, Outcome::Granted(_)), "rule 22: {why}, and a retry was told {told:?}");
    }
}

#[test]
fn a_second_retry_asks_no_storage() {
    for durability in [Durability::Full, Durability::Result] {
        World::known(durability);
    }
    let world = World::new();
    for key in ["failed", "omitted"] {
        let claim = world.store.claim(key).unwrap().granted().unwrap();
        match key {
            "failed" => claim.fail("declined").unwrap(),
            _ => claim.omit(claimdb::Omission::OnPurpose).unwrap(),
        }
        let first = world.store.claim(key).unwrap().settled().unwrap();
        let calls = world.backend.calls();
        assert_eq!(world.store.claim(key).unwrap().settled().unwrap(), first);
        assert_eq!(world.backend.calls(), calls, "{key}: a second retry asked the storage");
    }
}

#[test]
fn what_no_sync_of_its_own_covers_is_read_each_time() {
    let world = World::new();
    world.settle("k", Durability::Relaxed, "done");
    world.retry("k");
    assert_eq!(
        world.retry("k"),
        (Some(b"done".into()), 1),
        "rule 22: only what is synced is told from memory"
    );
}

#[test]
fn what_is_long_is_read_each_time() {
    let world = World::new();
    for (length, reads) in [(1024, 0), (1025, 1)] {
        let (key, value) = (length.to_string(), "x".repeat(length));
        world.settle(&key, Durability::Result, &value);
        world.retry(key.as_str());
        assert_eq!(world.retry(key.as_str()), (Some(value.into_bytes()), reads), "of {length} bytes");
    }
}

#[test]
fn it_is_forgotten_when_its_retention_is_over() {
    let world = World::known(Durability::Result);
    world.clock.advance(RETENTION - Duration::from_millis(1));
    assert_eq!(world.retry("k"), (Some(b"done".into()), 0));
    world.clock.advance(Duration::from_millis(1));
    world.is_granted("its retention is over");
}

#[test]
fn it_is_for_the_same_work_alone() {
    let world = World::new();
    let of = |work: &str| Request::new("k").fingerprint(claimdb::Fingerprint::of_bytes(work));
    world.store.claim(of("this")).unwrap().granted().unwrap().complete("done").unwrap();
    world.retry(of("this"));
    let calls = world.backend.calls();
    let told = world.store.claim(of("that")).unwrap();
    assert!(matches!(told, Outcome::Mismatched(_)), "P7 mismatch is harmless: other work was told {told:?}");
    assert_eq!(world.backend.calls(), calls, "it was not told from memory");
    assert_eq!(world.retry(of("this")).1, 0);
}

#[test]
fn whoever_changes_the_record_is_seen() {
    let world = World::known(Durability::Full);
    assert!(world.store.remove("k").unwrap());
    world.is_granted("it was removed");

    let world = World::known(Durability::Full);
    assert!(world.store.remove_by_force("k").unwrap());
    world.is_granted("it was removed by force");

    let world = World::known(Durability::Full);
    world.store.remove("k").unwrap();
    let request = Request::new("k").on_interrupt(claimdb::OnInterrupt::Quarantine);
    let case = world.store.claim(request).unwrap().granted().unwrap();
    let token = case.token();
    drop(case);
    assert!(matches!(world.store.claim("k").unwrap(), Outcome::Interrupted(_)));
    world.store.resolve("k", token, Resolution::completed_bytes(b"by hand".to_vec())).unwrap();
    for reads in [1, 0] {
        assert_eq!(world.retry("k"), (Some(b"by hand".into()), reads), "rule 22: it was resolved");
    }
}

#[test]
fn a_closed_store_tells_nothing() {
    let world = World::known(Durability::Full);
    world.store.close().unwrap();
    let told = world.store.claim("k");
    assert!(told.is_err(), "rule 9: a closed store told {told:?}");
}

#[test]
fn many_keys_are_told_each_its_own() {
    let world = World::new();
    let keys: Vec<String> = (0..10_000).map(|n| format!("key {n}")).collect();
    for key in &keys {
        world.settle(key, Durability::Result, key);
    }
    for _ in 0..2 {
        for key in &keys {
            let told = world.retry(key.as_str()).0;
            assert_eq!(told.as_deref(), Some(key.as_bytes()), "rule 22: another's was told");
        }
    }
    // The latest thousand are told from memory, but for a few that share their slots with too many.
    let latest = &keys[9000..];
    let reads: u64 = latest.iter().map(|key| world.retry(key.as_str()).1).sum();
    assert!(reads < 100, "of 1,000 that were told lately {reads} were read again");
}
