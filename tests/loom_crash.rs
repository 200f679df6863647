//! Crashes at any point, and syncs that fail, model-checked. See `docs/testing.md`.
//!
//! A crash is one step, which loom puts anywhere: the opening ends, the calls of those who still have it fail, and what
//! the drive held is looked at with each beginning of what was not synced.
#![cfg(loom)]
#![allow(missing_docs)]

mod support;

use claimdb::{
    AdminError, Break, Claim, Durability, KeyState, Omission, OnInterrupt, Outcome, Request, Resolution,
    SettleError, Store, SyncBy, Token,
};
use loom::thread;
use support::{Fault, Faulty, LEASE_OVER, World, models, twin, value};

/// A holder completes while the power is cut: a completion that was told survives it, and the key is never stuck.
fn completion(durability: Durability, sync_by: SyncBy) {
    let world = World::new(sync_by);
    let holder = world.grant(durability);
    let token = holder.token();
    let completer = thread::spawn(move || holder.complete("done").is_ok());
    let left = world.faulty.drive.cut_power();
    let told = completer.join().expect("the completer panicked");
    for left in world.survivors(&left) {
        match left.claim(durability) {
            Outcome::Settled(settled) => assert_eq!(value(settled), "done"),
            Outcome::Granted(again) => {
                assert!(!told, "P4 durable before told: a power cut undid a completion");
                assert!(again.token() > token, "P2 ordered tokens: {} after {token}", again.token());
            }
            other => panic!("P6 never stuck: after a power cut a claimant was told {other:?}"),
        }
    }
}

/// The same with somebody who reads, at whatever moment: what it was told survives.
fn reader(sync_by: SyncBy) {
    let world = World::new(sync_by);
    let holder = world.grant(Durability::Result);
    let completer = thread::spawn(move || holder.complete("done").is_ok());
    let reader = {
        let store = world.store.clone();
        // After the cut it is told an error.
        thread::spawn(move || store.get("k").ok().flatten().map(value))
    };
    let left = world.faulty.drive.cut_power();
    let told = completer.join().expect("the completer panicked");
    let read = reader.join().expect("the reader panicked");
    for left in world.survivors(&left) {
        let stored = left.stored();
        assert!(!told || stored.is_some(), "P4 durable before told: a power cut undid a completion");
        assert!(read.is_none() || stored == read, "P4 durable before told: a power cut undid what was read");
    }
}

/// Two complete keys of their own, and one syncs for both: each that was told survives a power cut.
fn two_writers_once(sync_by: SyncBy) {
    let world = World::new(sync_by);
    let holder = |key| {
        let request = Request::new(key).durability(Durability::Result);
        world.store.claim(request).expect("the drive works").granted().expect("it is free")
    };
    let (first, second) = (holder("a"), holder("b"));
    let other = thread::spawn(move || second.complete("done").is_ok());
    let told = [first.complete("done").is_ok(), false];
    let left = world.faulty.drive.cut_power();
    let told = [told[0], other.join().expect("a writer panicked")];
    for left in world.survivors(&left) {
        for (key, told) in ["a", "b"].into_iter().zip(told) {
            let stored = left.store.get(key).expect("the drive works").is_some();
            assert!(!told || stored, "P4 durable before told: a power cut undid the completion of {key}");
        }
    }
}

/// Someone changes the key while the power is cut: what was told of the change survives.
fn change(before: fn(&World), act: fn(&Store) -> bool, stands: fn(&World) -> bool) {
    let world = World::new(SyncBy::Caller);
    before(&world);
    let store = world.store.clone();
    let changing = thread::spawn(move || act(&store));
    let left = world.faulty.drive.cut_power();
    let told = changing.join().expect("the changer panicked");
    for left in world.survivors(&left) {
        assert!(!told || stands(&left), "P4 durable before told: a power cut undid a change");
    }
}

fn completed(world: &World) {
    world.grant(Durability::Result).complete("done").expect("nobody else is here");
}

/// A claim whose key asks for a person if it ends without being settled.
fn quarantined(store: &Store) -> Option<Claim> {
    let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    store.claim(request).ok()?.granted()
}

fn interrupted(world: &World) {
    drop(quarantined(&world.store));
    assert!(matches!(world.claim(Durability::Full), Outcome::Interrupted(_)));
}

fn nothing(_: &World) {}

fn is_absent(world: &World) -> bool {
    world.store.inspect("k").expect("the drive works").state == KeyState::Absent
}

fn is_settled(world: &World) -> bool {
    world.store.inspect("k").expect("the drive works").state == KeyState::Settled
}

fn removal() {
    change(completed, |store| store.remove("k").unwrap_or(false), is_absent);
}

fn quarantined_release() {
    let release = |store: &Store| quarantined(store).is_some_and(|claim| claim.release().is_ok());
    change(nothing, release, is_absent);
}

/// What frees a key is told to nobody before it is durable: else work runs anew, and what it was freed of comes back.
fn removal_told_to_a_claimant_once() {
    let world = World::new(SyncBy::Caller);
    completed(&world);
    let store = world.store.clone();
    let removing = thread::spawn(move || store.remove("k").unwrap_or(false));
    let granted = world.claim(Durability::Result).granted();
    let left = world.faulty.drive.cut_power();
    removing.join().expect("the remover panicked");
    for left in world.survivors(&left) {
        assert!(
            granted.is_none() || is_absent(&left),
            "P4 durable before told: a power cut undid a removal that a claimant was told of"
        );
    }
}

/// Somebody would change the key by hand while its holder, whose lease is over, ends it: who is told that there is nothing
/// to change is told so of what survives.
fn nothing_to_change(
    before: fn(&World),
    end: fn(Claim) -> Result<(), SettleError>,
    act: fn(&Store, Token) -> Result<bool, AdminError>,
    stands: fn(&World) -> bool,
) {
    let world = World::new(SyncBy::Caller);
    let holder = quarantined(&world.store).expect("nobody else is here");
    let token = holder.token();
    world.clock.advance(LEASE_OVER);
    before(&world);
    let ender = thread::spawn(move || drop(end(holder)));
    let told = act(&world.store, token);
    let left = world.faulty.drive.cut_power();
    ender.join().expect("the holder panicked");
    for left in world.survivors(&left) {
        assert!(
            !matches!(told, Ok(false)) || stands(&left),
            "P4 durable before told: there was nothing to change, and a power cut undid that"
        );
    }
}

fn resolution_of_nothing() {
    let interrupted =
        |world: &World| assert!(matches!(world.claim(Durability::Full), Outcome::Interrupted(_)));
    let resolve = |store: &Store, token| store.resolve("k", token, Resolution::omitted());
    nothing_to_change(interrupted, |claim| claim.complete("done"), resolve, is_settled);
}

fn removal_of_nothing() {
    nothing_to_change(nothing, Claim::release, |store, _| store.remove("k"), is_absent);
}

/// After a kill the cache holds what the disk does not: an opening tells nothing that a power cut could still take.
fn opening_after_a_kill_once() {
    let world = World::new(SyncBy::Caller);
    world.grant(Durability::Relaxed).complete("done").expect("nobody else is here");
    let drive = world.kill();
    let (faulty, clock) = (Faulty::over(drive), world.clock.clone());
    let opened = faulty.clone();
    let opener = thread::spawn(move || {
        let world = World::over(opened, clock, SyncBy::Caller).ok()?;
        world.store.get("k").ok().flatten().map(value)
    });
    let left = faulty.drive.cut_power();
    let told = opener.join().expect("the opener panicked");
    for left in world.survivors(&left) {
        assert!(
            told.is_none() || left.stored() == told,
            "P4 durable before told: a power cut undid what an opening told of"
        );
    }
}

/// A sync fails, and what it was to cover is lost: nobody is told of that as done, as absent, or not at all.
fn failed_sync(fault: fn() -> Fault) {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Result);
    world.faulty.arm(fault());
    let completer = thread::spawn(move || match holder.complete("done") {
        Ok(()) => panic!("P9 fail closed: a completion was told whose sync failed"),
        Err(error) => drop(error),
    });
    if let Ok(Some(_)) = world.store.get("k") {
        panic!("P9 fail closed: a reader was told of what a failed sync lost");
    }
    completer.join().expect("the completer panicked");
    let read = world.store.get("k");
    assert!(read.is_err(), "P9 fail closed: after a failed sync a reader was told {read:?}");
    let claimed = world.store.claim(Request::new("k"));
    assert!(claimed.is_err(), "P9 fail closed: after a failed sync a claimant was told {claimed:?}");
}

/// One sync fails and the next would work: nobody is told by that one, whoever had come to wait for it.
fn failed_sync_against_a_second_writer(sync_by: SyncBy) {
    let world = World::new(sync_by);
    let holder = |key| {
        let request = Request::new(key).durability(Durability::Result);
        world.store.claim(request).expect("the drive works").granted().expect("it is free")
    };
    let (first, second) = (holder("a"), holder("b"));
    world.faulty.arm(Fault::Sync);
    let other = thread::spawn(move || second.complete("done").is_ok());
    let told = [first.complete("done").is_ok(), other.join().expect("a writer panicked")];
    assert_eq!(told, [false, false], "P9 fail closed: after a failed sync a completion was told");
    world.store.close().expect_err("a sync failed");
}

models! {
    completion_against_power_cut_durable, None, || completion(Durability::Full, SyncBy::Caller);
    completion_against_power_cut_in_memory, None, || completion(Durability::Result, SyncBy::Caller);
    completion_against_power_cut_grouped, Some(3), || completion(Durability::Full, SyncBy::Thread);
    reader_against_power_cut, Some(3), || reader(SyncBy::Caller);
    reader_against_power_cut_grouped, Some(2), || reader(SyncBy::Thread);
    two_writers, Some(3), || two_writers_once(SyncBy::Caller);
    two_writers_grouped, Some(3), || two_writers_once(SyncBy::Thread);
    removal_against_power_cut, None, removal;
    resolution_against_power_cut, None, || {
        change(
            interrupted,
            |store| {
                let case = store.inspect("k").ok().and_then(|case| case.token);
                case.is_some_and(|token| store.resolve("k", token, Resolution::omitted()).unwrap_or(false))
            },
            is_settled,
        );
    };
    failure_against_power_cut, None, || {
        let fail = |store: &Store| claimed(store).is_some_and(|claim| claim.fail("no").is_ok());
        change(nothing, fail, is_settled);
    };
    omission_against_power_cut, None, || {
        let omit =
            |store: &Store| claimed(store).is_some_and(|claim| claim.omit(Omission::OnPurpose).is_ok());
        change(nothing, omit, is_settled);
    };
    checkpoint_against_power_cut, None, || {
        let save = |store: &Store| {
            let claim = store.claim(Request::new("k")).ok().and_then(Outcome::granted);
            claim.is_some_and(|mut claim| claim.checkpoint("half").is_ok())
        };
        change(nothing, save, |left| left.grant(Durability::Full).last_checkpoint() == Some(b"half"));
    };
    quarantined_release_against_power_cut, None, quarantined_release;
    removal_told_to_a_claimant, Some(5), removal_told_to_a_claimant_once;
    resolution_of_nothing_against_power_cut, Some(4), resolution_of_nothing;
    removal_of_nothing_against_power_cut, Some(4), removal_of_nothing;
    opening_after_a_kill, None, opening_after_a_kill_once;
    failed_sync_against_reader, None, || failed_sync(|| Fault::Sync);
    panicking_sync_against_reader, None, || failed_sync(|| Fault::SyncPanics);
    failed_sync_against_writer, Some(5), || failed_sync_against_a_second_writer(SyncBy::Caller);
    failed_sync_against_writer_grouped, Some(3), || {
        failed_sync_against_a_second_writer(SyncBy::Thread);
    };
    abandoned_write, None, abandoned;
}

fn claimed(store: &Store) -> Option<Claim> {
    store.claim(Request::new("k").durability(Durability::Result)).ok()?.granted()
}

#[test]
fn twin_nobody_syncs() {
    twin(Break::NobodySyncs, "P6 never stuck", abandoned);
}

/// A write whose caller was told an error is synced by whoever comes to the key.
fn abandoned() {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Result);
    world.faulty.arm(Fault::Unheard("k"));
    let completer = thread::spawn(move || drop(holder.complete("done")));
    let claimed = claim_again(&world);
    completer.join().expect("the completer panicked");
    let last = claim_again(&world);
    assert!(
        !matches!(last, Some(Outcome::InFlight(_))),
        "P6 never stuck: nobody syncs what was written, first {claimed:?}, then {last:?}"
    );
}

/// It may be the one that hears an error of the drive's.
fn claim_again(world: &World) -> Option<Outcome> {
    world.store.claim(Request::new("k").durability(Durability::Result)).ok()
}

#[test]
fn twin_covers_too_much() {
    twin(Break::CoversTooMuch, "P4 durable before told", || two_writers_once(SyncBy::Thread));
}

#[test]
fn twin_poison_unasked() {
    twin(Break::PoisonUnasked, "P9 fail closed", || failed_sync_against_a_second_writer(SyncBy::Caller));
}

#[test]
fn twin_panic_is_success() {
    twin(Break::PanicIsSuccess, "P9 fail closed", || failed_sync(|| Fault::SyncPanics));
}

#[test]
fn twin_told_unsynced() {
    twin(Break::ToldUnsynced, "P4 durable before told", removal);
}

#[test]
fn twin_release_unsynced() {
    twin(Break::ReleaseUnsynced, "P4 durable before told", quarantined_release);
}

#[test]
fn twin_no_barrier() {
    twin(Break::NoBarrier, "P4 durable before told", opening_after_a_kill_once);
}

#[test]
fn twin_failed_sync_clears() {
    twin(Break::FailedSyncClears, "P9 fail closed", || failed_sync(|| Fault::Sync));
}

#[test]
fn twin_poison_untold() {
    twin(Break::PoisonUntold, "P9 fail closed", || failed_sync(|| Fault::Sync));
}
