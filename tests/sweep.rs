//! What is swept, what is not (rule 21).
#![cfg(not(loom))] // the support code plays faults on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/sweeps.rs"]
#[allow(dead_code)] // each test file uses a part
mod sweeps;

use claimdb::{Claim, Durability, KeyState, Omission, OnInterrupt, Outcome, Resolution, SettleError, Swept};
use std::time::Duration;
use sweeps::{ALL, SEC, World, short};

#[test]
fn what_is_forgotten_is_deleted_with_its_entry_and_not_a_moment_sooner() {
    let ends: [fn(Claim); 4] = [
        |claim| claim.complete("done").unwrap(),
        |claim| claim.fail("no").unwrap(),
        |claim| claim.omit(Omission::OnPurpose).unwrap(),
        |claim| claim.complete_bytes(Vec::new()).unwrap(),
    ];
    for durability in ALL {
        for end in ends {
            let world = World::new();
            let claim = world.grant(short(durability));
            world.clock.advance(10 * SEC);
            end(claim);
            assert_eq!(world.sweep(), Swept::default(), "nothing is due");
            world.clock.advance(60 * SEC - Duration::from_millis(1));
            assert_eq!(world.sweep().deleted, 0, "P8 remembered: {durability:?}");
            assert!(world.store.get("k").unwrap().is_some(), "P8 remembered: {durability:?}");
            world.clock.advance(Duration::from_millis(1));
            assert_eq!(world.sweep().deleted, 1, "rule 21: it is due and stays: {durability:?}");
            world.is_swept(&format!("{durability:?}"));
            assert_eq!(world.grant("k").attempt(), 1);
        }
    }
}

#[test]
fn a_pending_record_that_nobody_asks_for_is_swept_after_its_retention_from_the_claim() {
    for reopened in [false, true] {
        let mut world = World::new();
        drop(world.grant(short(Durability::Full)));
        if reopened {
            world.reopen();
        }
        world.clock.advance(60 * SEC - Duration::from_millis(1));
        world.sweep();
        assert_eq!(world.stored(), (1, 1), "swept before its retention");
        world.clock.advance(Duration::from_millis(1));
        world.is_swept("pending");
        let claim = world.grant(short(Durability::Full));
        assert_eq!((claim.attempt(), claim.previous()), (1, None));
        drop(claim);
        assert_eq!(world.store.stats().entries, 0);
    }
}

#[test]
fn a_live_claim_is_never_swept_however_long_it_is_renewed() {
    for durability in ALL {
        let world = World::new();
        let claim = world.grant(short(durability).retention(10 * SEC));
        for _ in 0..20 {
            world.clock.advance(20 * SEC);
            claim.renew(30 * SEC).unwrap();
            world.sweep();
        }
        let told = claim.complete("done");
        assert!(told.is_ok(), "rule 21: a live claim was swept: {durability:?}: {told:?}");
        world.sweep();
        assert!(world.store.get("k").unwrap().is_some(), "P8 remembered: {durability:?}");
        world.clock.advance(40 * SEC);
        world.is_swept("settled after long");
    }
}

#[test]
fn a_holder_whose_lease_is_over_may_settle_until_its_record_is_swept() {
    let world = World::new();
    let claim = world.grant(short(Durability::Full).lease(SEC));
    world.clock.advance(59 * SEC);
    world.sweep();
    claim.complete("late").unwrap();
    world.clock.advance(60 * SEC);
    world.is_swept("settled late");

    let claim = world.grant(short(Durability::Full).lease(SEC));
    world.clock.advance(60 * SEC);
    world.is_swept("abandoned");
    let told = claim.complete("later");
    assert!(matches!(told, Err(SettleError::Lost(_))), "P3 fenced: its record is gone: {told:?}");
    assert_eq!((world.stored(), world.store.stats().entries), ((0, 0), 0));
}

#[test]
fn a_claim_in_memory_is_not_fenced_by_the_sweep_of_what_was_there_before() {
    for durability in [Durability::Result, Durability::Relaxed] {
        let world = World::new();
        world.grant(short(durability)).complete("old").unwrap();
        world.clock.advance(60 * SEC);
        let claim = world.grant(short(durability).lease(SEC));
        world.clock.advance(2 * SEC);
        world.sweep();
        let told = claim.complete("new");
        assert!(
            told.is_ok(),
            "P3 fenced: the sweep took the key of a holder whose token is current: {told:?}"
        );
        assert!(world.store.get("k").unwrap().is_some(), "P8 remembered");
        world.clock.advance(60 * SEC);
        world.is_swept("both");
    }
}

#[test]
fn an_interrupted_record_is_not_swept_and_once_settled_it_is() {
    let settles: [fn(&World, Claim); 2] = [
        |world, claim| {
            let token = claim.token();
            drop(claim);
            let resolution = Resolution::completed("by hand").unwrap();
            assert!(world.store.resolve("k", token, resolution).unwrap());
        },
        |_, claim| claim.complete("late").unwrap(),
    ];
    for settle in settles {
        let world = World::new();
        let request = short(Durability::Full).on_interrupt(OnInterrupt::Quarantine);
        let claim = world.grant(&request);
        world.clock.advance(31 * SEC);
        assert!(matches!(world.store.claim(&request).unwrap(), Outcome::Interrupted(_)));
        for _ in 0..3 {
            world.clock.advance(365 * 86_400 * SEC);
            world.sweep();
            let told = world.store.claim(&request).unwrap();
            assert!(matches!(told, Outcome::Interrupted(_)), "an interrupted record was swept: {told:?}");
        }
        assert_eq!(world.stored(), (1, 0), "the entry of an interrupted record is looked at for ever");
        settle(&world, claim);
        world.clock.advance(60 * SEC - Duration::from_millis(1));
        world.sweep();
        assert!(world.store.get("k").unwrap().is_some(), "P8 remembered");
        world.clock.advance(Duration::from_millis(1));
        world.is_swept("settled after an interruption");
    }
}

#[test]
fn what_was_reclaimed_released_or_removed_leaves_no_entries() {
    for durability in ALL {
        let world = World::new();
        drop(world.grant(short(durability)));
        world.clock.advance(SEC);
        drop(world.grant(short(durability)));
        world.clock.advance(SEC);
        world.grant(short(durability)).release().unwrap();
        world.grant(short(durability)).complete("done").unwrap();
        assert!(world.store.remove("k").unwrap());
        world.clock.advance(SEC);
        world.grant(short(durability)).complete("done").unwrap();
        world.clock.advance(60 * SEC - Duration::from_millis(1));
        world.sweep();
        assert!(world.store.get("k").unwrap().is_some(), "P8 remembered: {durability:?}");
        world.clock.advance(Duration::from_millis(1));
        world.is_swept(&format!("{durability:?}"));
    }
}

#[test]
fn a_removal_by_force_of_what_was_just_swept_survives_a_power_cut() {
    let mut world = World::new();
    let late = world.grant(short(Durability::Full));
    world.clock.advance(60 * SEC);
    world.is_swept("pending");
    // There is a holder, whose record is gone until no power cut brings it back.
    assert!(world.store.remove_by_force("k").unwrap());
    world.faulty.crash();
    let _ = world.store.close();
    world.store = World::open(&world.faulty, &world.clock);
    let state = world.store.inspect("k").unwrap().state;
    assert_eq!(
        state,
        KeyState::Absent,
        "P4 durable before told: a removal was told, and a power cut undid it"
    );
    drop(late);
}
