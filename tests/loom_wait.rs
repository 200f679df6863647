//! Waiters, and whoever frees the key or leaves the queue, model-checked. See `docs/testing.md`.
//!
//! A wake-up that is lost leaves a waiter waiting for ever, which loom finds as a deadlock: no clock moves.
#![cfg(loom)]
#![allow(missing_docs)]

mod support;

use claimdb::{Break, Claim, ClaimError, Durability, Outcome, Request, Store, SyncBy};
use loom::thread;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;
use support::{Fault, World, hanging_twin, models};

fn waits() -> Request {
    Request::new("k").durability(Durability::Result).wait(Duration::from_secs(60))
}

fn waiting(store: &Store) -> Result<Outcome, ClaimError> {
    store.claim(waits())
}

/// Two wait for a key whose holder ends: both are told, one after the other.
fn two_waiters(end: fn(Claim)) {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Result);
    let other = {
        let store = world.store.clone();
        // It ends at once if it is granted the key, and the next is granted it.
        thread::spawn(move || drop(waiting(&store).expect("the drive works")))
    };
    let ender = thread::spawn(move || end(holder));
    match waiting(&world.store).expect("the drive works") {
        Outcome::Granted(_) | Outcome::Settled(_) => {}
        told => panic!("P6 never stuck: a waiter was told {told:?}"),
    }
    other.join().expect("a waiter panicked");
    ender.join().expect("the holder panicked");
}

/// A task waits and is dropped, at whatever moment: the wake that it may have had goes to the one behind it.
fn cancelled_waiter_once() {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Result);
    let cancelled = {
        let store = world.store.clone();
        thread::spawn(move || {
            let task = pin!(store.claim_async(waits()));
            drop(task.poll(&mut Context::from_waker(Waker::noop())));
        })
    };
    let ender = thread::spawn(move || drop(holder));
    let granted = waiting(&world.store).expect("the drive works").granted();
    assert!(granted.is_some(), "P6 never stuck: the waiter was not granted a key that is free");
    cancelled.join().expect("the task panicked");
    ender.join().expect("the holder panicked");
    drop(granted);
    world.store.close().expect("the drive works");
}

/// A waiter whose holder's completion is not synced is told that it is not known.
fn waiter_against_failed_sync_once() {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Result);
    world.faulty.arm(Fault::Sync);
    let completer = thread::spawn(move || drop(holder.complete("done")));
    let told = waiting(&world.store);
    assert!(told.is_err(), "P9 fail closed: a waiter was told {told:?} after a failed sync");
    completer.join().expect("the completer panicked");
}

fn waiter_against_close_once() {
    let world = World::new(SyncBy::Caller);
    let _holder = world.grant(Durability::Result);
    let store = world.store.clone();
    let closer = thread::spawn(move || store.close().expect("the drive works"));
    let told = waiting(&world.store);
    assert!(told.is_err(), "rule 9: a waiter of a closed store was told {told:?}");
    closer.join().expect("closing panicked");
}

/// A claimant fails while it has the key's place, by an error or a panic of the engine's: the waiter gets it.
fn waiter_against_a_failing_claimant(fault: fn() -> Fault) {
    let world = World::new(SyncBy::Caller);
    world.faulty.arm(fault());
    let claim = |store: &Store| {
        let claim = || store.claim(Request::new("k").wait(Duration::from_secs(60)));
        let claimed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(claim));
        claimed.is_ok_and(|claimed| claimed.is_ok_and(|outcome| outcome.granted().is_some()))
    };
    let other = {
        let store = world.store.clone();
        thread::spawn(move || claim(&store))
    };
    let granted = [claim(&world.store), other.join().expect("a claimant panicked")];
    assert_ne!(granted[0], granted[1], "P6 never stuck: one claimant failed, and granted were {granted:?}");
    let last = world.claim(Durability::Full);
    assert!(
        last.granted().is_some_and(|claim| claim.attempt() == 2),
        "P6 never stuck: the key is in flight, and nobody has it"
    );
}

/// A completion lands and is told as an error: the waiter, wherever it is on its way, syncs it and goes on.
fn waiter_against_an_unheard_completion() {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Result);
    world.faulty.arm(Fault::Unheard("k"));
    let completer = thread::spawn(move || drop(holder.complete("done")));
    // It may be the one that hears the other error of the drive's.
    let told = waiting(&world.store);
    completer.join().expect("the completer panicked");
    let last = world.claim(Durability::Result);
    let stuck = matches!(last, Outcome::InFlight(_)) && !matches!(told, Ok(Outcome::Granted(_)));
    assert!(!stuck, "P6 never stuck: the key is in flight, and nobody has it, after {told:?}");
}

models! {
    waiter_against_unheard_completion, Some(4), waiter_against_an_unheard_completion;
    two_waiters_against_drop, Some(3), || two_waiters(drop);
    two_waiters_against_completion, Some(3), || {
        two_waiters(|claim| claim.complete("done").expect("nobody took the key"));
    };
    two_waiters_against_release, Some(3), || {
        two_waiters(|claim| claim.release().expect("nobody took the key"));
    };
    cancelled_waiter, Some(3), cancelled_waiter_once;
    waiter_against_failed_sync, Some(5), waiter_against_failed_sync_once;
    waiter_against_close, None, waiter_against_close_once;
    waiter_against_failing_claimant, Some(4), || {
        waiter_against_a_failing_claimant(|| Fault::Commit("k"));
    };
    waiter_against_panicking_claimant, Some(4), || {
        waiter_against_a_failing_claimant(|| Fault::Panic("k"));
    };
}

#[test]
fn twin_place_left() {
    hanging_twin(Break::PlaceLeft, || waiter_against_a_failing_claimant(|| Fault::Commit("k")));
}

#[test]
fn twin_end_wakes_nobody() {
    hanging_twin(Break::EndWakesNobody, || two_waiters(drop));
}

#[test]
fn twin_wake_not_passed() {
    hanging_twin(Break::WakeNotPassed, cancelled_waiter_once);
}

#[test]
fn twin_poison_wakes_nobody() {
    hanging_twin(Break::PoisonWakesNobody, waiter_against_failed_sync_once);
}
