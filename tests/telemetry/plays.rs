//! What is played to be counted: what a play begins with, and the plays of claims.

use crate::faults::Fault;
use crate::world::{DAY, LEASE, SEC, World};
use claimdb::{AllClaimed, Durability, Fingerprint, OnInterrupt, Outcome, Request, SettleError};

/// Names, what is set up, what is played, and what is to be counted of that.
pub type Play = (&'static str, fn() -> World, fn(&World), &'static [(&'static str, u64)]);

pub const GRANTED: &str = "claims granted";
pub const SETTLED: &str = "claims settled";
pub const IN_FLIGHT: &str = "claims in_flight";
pub const MISMATCHED: &str = "claims mismatched";
pub const INTERRUPTED: &str = "claims interrupted";
pub const FAILED: &str = "claims failed";
pub const OVERRUN: &str = "lease_overruns";
pub const LATE: &str = "late_settles_refused";

pub fn key(durability: Durability) -> Request {
    Request::new("k").durability(durability)
}

pub fn in_memory() -> Request {
    key(Durability::Result)
}

pub fn quarantined() -> Request {
    Request::new("k").on_interrupt(OnInterrupt::Quarantine)
}

/// The key was completed.
pub fn done() -> World {
    let world = World::new();
    world.grant("k").complete("done").unwrap();
    world
}

/// A claim of it has been dropped.
pub fn dropped() -> World {
    let world = World::new();
    drop(world.grant("k"));
    world
}

/// So has a quarantined one.
pub fn interrupted() -> World {
    let world = World::new();
    drop(world.grant(quarantined()));
    world
}

/// Its record is none.
pub fn damaged() -> World {
    let world = done().reopened();
    world.store.close().unwrap();
    world.drive.put(b"\x01\x00k", Some(b"no record"));
    world.reopened()
}

pub const CLAIMS: &[Play] = &[
    ("a first claim", World::new, |w| drop(w.grant(in_memory())), &[(GRANTED, 1)]),
    ("a stored claim", World::new, |w| drop(w.grant("k")), &[(GRANTED, 1), ("sync", 1), ("sync_writes", 1)]),
    ("a replay", done, |w| drop(w.store.claim("k")), &[(SETTLED, 1)]),
    (
        "a busy key",
        World::new,
        |w| {
            let _held = w.grant(in_memory());
            assert!(matches!(w.store.claim("k"), Ok(Outcome::InFlight(_))));
        },
        &[(GRANTED, 1), (IN_FLIGHT, 1)],
    ),
    (
        "other work, done",
        done,
        |w| {
            let other = Request::new("k").fingerprint(Fingerprint::of_bytes("other"));
            assert!(matches!(w.store.claim(other), Ok(Outcome::Mismatched(_))));
        },
        &[(MISMATCHED, 1)],
    ),
    (
        "other work, busy",
        World::new,
        |w| {
            let _held = w.grant(in_memory());
            let other = Request::new("k").fingerprint(Fingerprint::of_bytes("other"));
            assert!(matches!(w.store.claim(other.wait(SEC)), Ok(Outcome::Mismatched(_))));
        },
        &[(GRANTED, 1), (MISMATCHED, 1)],
    ),
    (
        "a key that becomes interrupted",
        interrupted,
        |w| {
            assert!(matches!(w.store.claim("k"), Ok(Outcome::Interrupted(_))));
        },
        &[(INTERRUPTED, 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "a key that was interrupted",
        || {
            let world = interrupted();
            drop(world.store.claim("k"));
            world
        },
        |w| drop(w.store.claim("k")),
        &[(INTERRUPTED, 1)],
    ),
    ("no key", World::new, |w| drop(w.store.claim("").unwrap_err()), &[(FAILED, 1)]),
    (
        "a read that fails",
        World::new,
        |w| {
            w.drive.arm(0, 1, Fault::FailBefore);
            drop(w.store.claim("k").unwrap_err());
        },
        &[(FAILED, 1)],
    ),
    (
        "a write that fails",
        World::new,
        |w| {
            w.drive.arm(1, 2, Fault::FailBefore);
            drop(w.store.claim("k").unwrap_err());
        },
        &[(FAILED, 1)],
    ),
    (
        "a wait to its end",
        World::new,
        |w| {
            let _held = w.grant(in_memory().lease(DAY));
            let (store, clock) = (w.store.clone(), w.clock.clone());
            let waits = std::thread::spawn(move || store.claim(Request::new("k").wait(SEC)));
            while w.store.stats().waiters == 0 || clock.waiting() == 0 {
                std::thread::yield_now();
            }
            clock.advance(SEC);
            assert!(matches!(waits.join().unwrap(), Ok(Outcome::InFlight(_))));
        },
        &[(GRANTED, 1), (IN_FLIGHT, 1)],
    ),
    (
        "a wait that is given up",
        World::new,
        |w| {
            let _held = w.grant(in_memory());
            let mut waits = Box::pin(w.store.claim_async(Request::new("k").wait(SEC)));
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(waits.as_mut().poll(context).is_pending());
        },
        &[(GRANTED, 1)],
    ),
    (
        "a claim nested in its own work",
        World::new,
        |w| {
            let ran = w.store.run(in_memory(), |_| w.store.claim("k").map(drop).map_err(|_| "nested"));
            drop(ran.unwrap_err());
        },
        &[(GRANTED, 1), (FAILED, 1), ("settles released", 1)],
    ),
    (
        "many at once",
        done,
        |w| {
            let _busy = w.grant(Request::new("busy").durability(Durability::Result));
            let other = Request::new("k").fingerprint(Fingerprint::of_bytes("other"));
            let new = Request::new("new").durability(Durability::Result);
            let requests = [Request::new("k"), Request::new("busy"), other, new, Request::new("")];
            assert_eq!(w.store.claim_many(requests).len(), 5);
        },
        &[(GRANTED, 2), (SETTLED, 1), (IN_FLIGHT, 1), (MISMATCHED, 1), (FAILED, 1)],
    ),
    (
        "all of several",
        World::new,
        |w| {
            let Ok(AllClaimed::Granted(claims)) = w.store.claim_all(["a", "b"]) else {
                panic!("they are free")
            };
            assert_eq!(claims.len(), 2);
        },
        &[(GRANTED, 2), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "all, one of which is busy",
        World::new,
        |w| {
            let _busy = w.grant(in_memory());
            let told =
                w.store.claim_all(["a", "k"].map(|key| Request::new(key).durability(Durability::Result)));
            assert!(matches!(told, Ok(AllClaimed::Refused { index: 1, .. })));
        },
        &[(GRANTED, 1), (IN_FLIGHT, 1)],
    ),
    (
        "all, and the drive fails",
        World::new,
        |w| {
            w.drive.arm(0, 1, Fault::FailBefore);
            drop(w.store.claim_all(["a", "k"]).unwrap_err());
        },
        &[(FAILED, 1)],
    ),
    (
        "a reclaim of one that was dropped",
        dropped,
        |w| drop(w.grant("k")),
        &[(GRANTED, 1), ("reclaims dropped", 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "a reclaim of an earlier opening's",
        || dropped().reopened(),
        |w| drop(w.grant("k")),
        &[(GRANTED, 1), ("reclaims reopened", 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "a reclaim of one that is over, and its late settle",
        World::new,
        |w| {
            let slow = w.grant(in_memory());
            w.clock.advance(LEASE);
            let _next = w.grant(in_memory());
            assert!(matches!(slow.complete("late"), Err(SettleError::Lost(_))));
        },
        &[(GRANTED, 2), ("reclaims lease_over", 1), (OVERRUN, 1), (LATE, 1)],
    ),
    (
        "the same, stored",
        World::new,
        |w| {
            let slow = w.grant("k");
            w.clock.advance(LEASE);
            let _next = w.grant("k");
            assert!(matches!(slow.release(), Err(SettleError::Lost(_))));
        },
        // The last sync is for the refusal.
        &[(GRANTED, 2), ("reclaims lease_over", 1), (OVERRUN, 1), (LATE, 1), ("sync", 3), ("sync_writes", 3)],
    ),
    (
        "a damaged record, claimed",
        damaged,
        |w| drop(w.store.claim("k").unwrap_err()),
        &[(FAILED, 1), ("damaged_records", 1)],
    ),
    ("a damaged record, read", damaged, |w| drop(w.store.get("k").unwrap_err()), &[("damaged_records", 1)]),
    (
        "a damaged record, listed",
        damaged,
        |w| {
            assert!(w.store.scan("", "").unwrap().next().unwrap().is_err());
        },
        &[("damaged_records", 1)],
    ),
    (
        "a damaged record, swept",
        damaged,
        |w| {
            w.clock.advance(2 * DAY);
            assert_eq!(w.store.sweep(10).unwrap().kept, 1);
        },
        &[("damaged_records", 1), ("sweep_failures", 1)],
    ),
];
