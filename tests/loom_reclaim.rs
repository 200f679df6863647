//! Taking an expired key over, against whatever its old holder does late, model-checked. See `docs/testing.md`.
#![cfg(loom)]
#![allow(missing_docs)]

mod support;

use claimdb::backend::Mem;
use claimdb::{
    Break, Claim, Durability, ExpiredLease, ManualClock, Outcome, Request, RetryCause, SettleError, Store,
    SyncBy,
};
use loom::thread;
use std::time::Duration;
use support::{LEASE_OVER, World, claim, models, twin, value};

/// What the old holder of an expired claim was told.
#[derive(Debug, PartialEq)]
enum Late {
    Done,
    Lost,
    /// Another was on its way to the key.
    TryAgain,
}

fn settled(told: Result<(), SettleError>) -> Late {
    match told {
        Ok(()) => Late::Done,
        Err(SettleError::Lost(_)) => Late::Lost,
        Err(SettleError::Retry(retry)) if matches!(retry.cause, RetryCause::BeingTaken) => Late::TryAgain,
        Err(error) => panic!("settling late: {error}"),
    }
}

fn completes(claim: Claim) -> Late {
    settled(claim.complete("late"))
}

fn releases(claim: Claim) -> Late {
    settled(claim.release())
}

/// The lease is over, so this is never done.
fn renews(claim: Claim) -> Late {
    match claim.renew(LEASE_OVER) {
        Ok(()) => Late::Done,
        Err(ExpiredLease::Expired { .. } | ExpiredLease::Lost { .. }) => Late::Lost,
        Err(error) => panic!("renewing late: {error}"),
    }
}

fn drops(claim: Claim) -> Late {
    drop(claim);
    Late::Lost
}

/// Two take an expired key over while its old holder comes back. Gives what that one was told, and the attempts of
/// those who were granted the key; they still have it.
fn two_successors(durability: Durability, late: fn(Claim) -> Late) -> (Late, Vec<u32>) {
    let world = World::new(SyncBy::Caller);
    let old = world.late(durability);
    let take = move |store: &Store| match claim(store, durability) {
        Outcome::Granted(claim) => Some(claim),
        Outcome::InFlight(_) => None,
        Outcome::Settled(settled) => {
            assert_eq!(value(settled), "late");
            None
        }
        other => panic!("a successor was told {other:?}"),
    };
    let coming = thread::spawn(move || late(old));
    let other = {
        let store = world.store.clone();
        thread::spawn(move || take(&store))
    };
    let mut granted = Vec::from_iter(take(&world.store));
    let told = coming.join().expect("the old holder panicked");
    granted.extend(other.join().expect("a successor panicked"));
    assert!(granted.len() <= 1, "P1 one holder: an expired key was granted to both successors");
    if granted.len() == 1 {
        let next = world.claim(durability);
        assert!(
            matches!(next, Outcome::InFlight(_)),
            "P1 one holder: the successor has the key, and another was told {next:?}"
        );
    }
    (told, granted.iter().map(Claim::attempt).collect())
}

fn two_successors_against_completion(durability: Durability) {
    let (told, granted) = two_successors(durability, completes);
    let fenced = told != Late::Done || granted.is_empty();
    assert!(fenced, "P3 fenced: a late completion was acknowledged although another was granted the key");
    assert!(told == Late::Done || granted.len() == 1, "P6 never stuck: told {told:?}, granted {granted:?}");
    assert!(granted.iter().all(|attempt| *attempt == 2), "rule 18: attempts {granted:?} after the first");
}

fn two_successors_against_release(durability: Durability) {
    let (told, granted) = two_successors(durability, releases);
    let released = told == Late::Done;
    assert!(released || granted.len() == 1, "P6 never stuck: told {told:?}, granted {granted:?}");
    let expected = if released { 1 } else { 2 };
    assert!(
        granted.iter().all(|attempt| *attempt == expected),
        "rule 18: released {released}, and the next is attempt {granted:?}"
    );
}

fn two_successors_against_renewal_once() {
    let (told, granted) = two_successors(Durability::Result, renews);
    assert_eq!(told, Late::Lost, "rule 11: a lease was renewed that was over");
    assert_eq!(granted.len(), 1, "P6 never stuck: nobody was granted an expired key");
}

fn two_successors_against_drop(durability: Durability) {
    let (_, granted) = two_successors(durability, drops);
    assert_eq!(granted.len(), 1, "P6 never stuck: nobody was granted an expired key");
}

/// A lease is renewed while it runs out and another asks for the key.
fn renewal_against_expiry_once() {
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller);
    let store = store.open().expect("memory opens");
    let holder = claim(&store, Durability::Result).granted().expect("nobody else is here");
    let holding = thread::spawn(move || {
        let renewed = holder.renew(2 * LEASE_OVER).is_ok();
        (renewed, holder)
    });
    clock.advance(LEASE_OVER);
    let taken = claim(&store, Durability::Result).granted();
    let (renewed, _holder) = holding.join().expect("the holder panicked");
    assert!(!(renewed && taken.is_some()), "P5 no early takeover: a renewed lease was not over");
    assert!(renewed || taken.is_some(), "P6 never stuck: the lease was over, and nobody was granted the key");
}

/// A claim that is renewed by itself ends, while a renewal comes due.
fn keep_alive_against(end: fn(Claim), then: fn(Outcome)) {
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller);
    let store = store.open().expect("memory opens");
    let request = || Request::new("k").durability(Durability::Result);
    let holder = store.claim(request()).expect("memory does not fail").granted().expect("it is free");
    holder.keep_alive(Duration::from_secs(3600)).expect("the lease runs");
    let ending = thread::spawn(move || end(holder));
    clock.advance(Duration::from_secs(16));
    ending.join().expect("the holder panicked");
    then(store.claim(request()).expect("memory does not fail"));
    store.close().expect("memory closes");
}

models! {
    two_successors_against_completion_durable, Some(3), || {
        two_successors_against_completion(Durability::Full);
    };
    two_successors_against_completion_in_memory, Some(3), || {
        two_successors_against_completion(Durability::Result);
    };
    two_successors_against_release_durable, Some(3), || {
        two_successors_against_release(Durability::Full);
    };
    two_successors_against_release_in_memory, Some(3), || {
        two_successors_against_release(Durability::Result);
    };
    two_successors_against_renewal, Some(4), two_successors_against_renewal_once;
    two_successors_against_drop_durable, Some(3), || two_successors_against_drop(Durability::Full);
    two_successors_against_drop_in_memory, Some(4), || {
        two_successors_against_drop(Durability::Result);
    };
    renewal_against_expiry, None, renewal_against_expiry_once;
    keep_alive_against_completion, Some(3), || {
        keep_alive_against(
            |claim| claim.complete("done").expect("it is kept alive"),
            |next| assert!(next.settled().is_some(), "P8 remembered: it was completed"),
        );
    };
    keep_alive_against_release, Some(3), || {
        keep_alive_against(
            |claim| claim.release().expect("it is kept alive"),
            |next| assert!(next.granted().is_some(), "P6 never stuck: a renewal outlived its claim"),
        );
    };
}

#[test]
fn twin_ends_anothers() {
    twin(Break::EndsAnothers, "P1 one holder", || two_successors_against_drop(Durability::Result));
}

#[test]
fn twin_renews_former() {
    twin(Break::RenewsFormer, "rule 11", two_successors_against_renewal_once);
}
