//! The plays of how claims end, and of what is done beside them.

use crate::faults::{Fault, Syncs};
use crate::plays::{FAILED, GRANTED, LATE, OVERRUN, Play, done, in_memory};
use crate::world::{DAY, LEASE, World};
use claimdb::{Durability, Omission, Request, SettleError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub const ENDS: &[Play] = &[
    (
        "complete",
        World::new,
        |w| w.grant(in_memory()).complete("done").unwrap(),
        &[(GRANTED, 1), ("settles completed", 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "fail",
        World::new,
        |w| w.grant(in_memory()).fail("no").unwrap(),
        &[(GRANTED, 1), ("settles failed", 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "omit",
        World::new,
        |w| w.grant(in_memory()).omit(Omission::OnPurpose).unwrap(),
        &[(GRANTED, 1), ("settles omitted", 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "release in memory",
        World::new,
        |w| w.grant(in_memory()).release().unwrap(),
        &[(GRANTED, 1), ("settles released", 1)],
    ),
    (
        "release, stored",
        World::new,
        |w| w.grant("k").release().unwrap(),
        &[(GRANTED, 1), ("settles released", 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "many completions",
        World::new,
        |w| {
            let claims =
                ["a", "b"].map(|key| (w.grant(Request::new(key).durability(Durability::Result)), "done"));
            assert!(w.store.complete_many(claims).iter().all(Result::is_ok));
        },
        &[(GRANTED, 2), ("settles completed", 2), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "a completion whose fate is unknown, tried again",
        World::new,
        |w| {
            let claim = w.grant(in_memory());
            w.drive.arm(0, 2, Fault::FailAfter);
            let claim = claim.complete("done").unwrap_err().into_claim().expect("it comes back");
            w.drive.disarm();
            claim.complete("done").unwrap();
        },
        &[(GRANTED, 1), ("settles completed", 1), ("sync", 1), ("sync_writes", 2)],
    ),
    ("a drop", World::new, |w| drop(w.grant(in_memory())), &[(GRANTED, 1)]),
    (
        "a panic in run",
        World::new,
        |w| {
            let run = || w.store.run(in_memory(), |_| -> Result<(), &str> { panic!("on purpose") });
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        },
        &[(GRANTED, 1)],
    ),
    (
        "a completion after the lease",
        World::new,
        |w| {
            let claim = w.grant(in_memory());
            w.clock.advance(LEASE);
            claim.complete("late, and still its own").unwrap();
        },
        &[(GRANTED, 1), ("settles completed", 1), (OVERRUN, 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "a drop after the lease",
        World::new,
        |w| {
            let claim = w.grant(in_memory());
            w.clock.advance(LEASE);
            drop(claim);
        },
        &[(GRANTED, 1), (OVERRUN, 1)],
    ),
    (
        "a removal after the lease, and a late settle",
        World::new,
        |w| {
            let claim = w.grant("k");
            w.clock.advance(LEASE);
            assert!(w.store.remove("k").unwrap());
            assert!(matches!(claim.complete("late"), Err(SettleError::Lost(_))));
        },
        &[(GRANTED, 1), (OVERRUN, 1), (LATE, 1), ("sync", 3), ("sync_writes", 3)],
    ),
    (
        "a forced removal in time, and a late settle",
        World::new,
        |w| {
            let claim = w.grant("k");
            assert!(w.store.remove_by_force("k").unwrap());
            assert!(matches!(claim.complete("late"), Err(SettleError::Lost(_))));
        },
        &[(GRANTED, 1), (LATE, 1), ("sync", 3), ("sync_writes", 3)],
    ),
    (
        "a removal that fails, after which the claim settles",
        World::new,
        |w| {
            let claim = w.grant(in_memory());
            w.clock.advance(LEASE);
            w.drive.arm(0, 1, Fault::FailBefore);
            drop(w.store.remove("k").unwrap_err());
            w.drive.disarm();
            claim.complete("done").unwrap();
        },
        &[(GRANTED, 1), ("settles completed", 1), (OVERRUN, 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "a close after the lease",
        World::new,
        |w| {
            let _claim = w.grant(in_memory());
            w.clock.advance(LEASE);
            w.store.close().unwrap();
        },
        &[(GRANTED, 1), (OVERRUN, 1), ("sync", 1), ("sync_writes", 1)],
    ),
    (
        "a lock after its lease",
        World::new,
        |w| {
            let lock = w.store.lock("k", Duration::ZERO).unwrap().unwrap();
            w.clock.advance(LEASE);
            drop(lock);
        },
        &[(OVERRUN, 1)],
    ),
    ("a lock in time", World::new, |w| drop(w.store.lock("k", Duration::ZERO).unwrap()), &[]),
    (
        "a sweep",
        done,
        |w| {
            w.clock.advance(2 * DAY);
            assert_eq!(w.store.sweep(10).unwrap().deleted, 1);
        },
        &[("swept_records", 1)],
    ),
    (
        "a sweep that fails",
        done,
        |w| {
            w.drive.arm(0, 1, Fault::FailBefore);
            drop(w.store.sweep(10).unwrap_err());
        },
        &[("sweep_failures", 1)],
    ),
    (
        "a sync that fails",
        World::new,
        |w| {
            w.drive.syncs(Syncs::Fail);
            drop(w.store.claim("k").unwrap_err());
            drop(w.store.claim("k").unwrap_err());
        },
        &[(FAILED, 2)],
    ),
];
