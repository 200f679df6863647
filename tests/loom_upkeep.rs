//! Removing, resolving and quarantine against holders and each other, model-checked. See `docs/testing.md`.
#![cfg(loom)]
#![allow(missing_docs)]

mod support;

use claimdb::{
    AdminError, Break, Claim, Durability, OnInterrupt, Outcome, Request, Resolution, SettleError, Store,
    SyncBy, Token,
};
use loom::thread;
use support::{World, models, twin};

/// A claim whose key asks for a person if it ends without being settled.
fn quarantined(store: &Store) -> Outcome {
    store.claim(Request::new("k").on_interrupt(OnInterrupt::Quarantine)).expect("the drive works")
}

fn granted(store: &Store) -> Claim {
    quarantined(store).granted().expect("nobody else is here")
}

/// Makes the key interrupted, and gives the case's token.
fn interrupt(store: &Store) -> Token {
    drop(granted(store));
    case(&quarantined(store)).expect("its holder ended")
}

fn case(told: &Outcome) -> Option<Token> {
    match told {
        Outcome::Interrupted(case) => Some(case.token()),
        _ => None,
    }
}

fn by_hand() -> Resolution {
    Resolution::completed("by hand").expect("a string is encoded")
}

/// A removal that is not forced, while the holder completes within its lease.
fn removal_against_completion(durability: Durability) {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(durability);
    let completer = thread::spawn(move || holder.complete("done"));
    let removed = match world.store.remove("k") {
        Ok(removed) => removed,
        Err(AdminError::InFlight { .. }) => false,
        Err(error) => panic!("removing: {error}"),
    };
    let told = completer.join().expect("the completer panicked");
    assert!(told.is_ok(), "rule 19: a removal ended a live claim: {told:?}");
    let stored = world.stored();
    assert_eq!(stored.is_none(), removed, "rule 19: told {removed}, and stored is {stored:?}");
}

/// A removal by force fences the holder: what it completes after that is lost.
fn forced_removal_against_completion(durability: Durability) {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(durability);
    let loss = holder.lost();
    let completer = thread::spawn(move || holder.complete("done").is_ok());
    let removed = match world.store.remove_by_force("k") {
        Ok(removed) => removed,
        Err(AdminError::InFlight { .. }) => false,
        Err(error) => panic!("removing by force: {error}"),
    };
    let told = completer.join().expect("the completer panicked");
    assert!(loss.is_raised(), "rule 19: a removal by force raised no loss");
    let stored = world.stored();
    assert!(!removed || stored.is_none(), "rule 19: it was removed by force, and stored is {stored:?}");
    assert!(removed || told, "P6 never stuck: neither removed nor completed");
}

/// The lease of a live claim is ended by hand, and another asks for the key, while its holder completes: one of them settles
/// it, and nobody has the key before.
fn ended_lease_against_completion(durability: Durability) {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(durability);
    let token = holder.token();
    let completer = thread::spawn(move || holder.complete("done").is_ok());
    let ended = world.store.end_lease("k", token).expect("the store is open");
    let next = world.claim(durability).granted();
    let taken_over = next.is_some();
    if let Some(next) = next {
        assert!(ended, "P5 no early takeover: the lease was not ended, and another was granted the key");
        assert!(next.complete("next").is_ok(), "P1 one holder: another settled what was granted");
    }
    let completed = completer.join().expect("the completer panicked");
    assert!(!(completed && taken_over), "P3 fenced: a holder whose key another was granted has completed it");
    assert!(completed || taken_over, "P6 never stuck: neither completed nor taken over");
    let expected = if completed { "done" } else { "next" };
    assert_eq!(world.stored().as_deref(), Some(expected), "P8 remembered");
}

/// A key whose holder's lease is over is resolved by hand while its holder completes after all: one settles it, and that
/// stands. It is interrupted, or nobody has asked for it yet.
fn resolution_against_late_completion_once(interrupted: bool) {
    let world = World::new(SyncBy::Caller);
    let late = granted(&world.store);
    let token = late.token();
    world.clock.advance(support::LEASE_OVER);
    if interrupted {
        assert_eq!(case(&quarantined(&world.store)), Some(token), "its lease is over");
    }
    let completer = thread::spawn(move || match late.complete("late") {
        Ok(()) => true,
        Err(SettleError::AlreadySettled(settled)) => {
            assert!(settled.by_hand());
            false
        }
        Err(error) => panic!("completing late: {error}"),
    });
    let resolved = match world.store.resolve("k", token, by_hand()) {
        Ok(resolved) => resolved,
        Err(AdminError::InFlight { .. }) => false,
        Err(error) => panic!("resolving: {error}"),
    };
    let completed = completer.join().expect("the completer panicked");
    assert!(
        completed != resolved,
        "rule 17: resolved {resolved} and completed {completed}, one under the other"
    );
    let expected = if completed { "late" } else { "by hand" };
    assert_eq!(world.stored().as_deref(), Some(expected), "rule 17: what was settled is not what is stored");
}

/// Two resolve one case. One of them gives the key back, and it becomes another case: the other leaves that alone.
fn resolution_against_the_next_case() {
    let world = World::new(SyncBy::Caller);
    let first = interrupt(&world.store);
    let store = world.store.clone();
    let other = thread::spawn(move || {
        let resolved = store.resolve("k", first, Resolution::released()).unwrap_or(false);
        // While the other has the key's place to resolve it, it is in flight.
        let next = || {
            drop(quarantined(&store).granted());
            case(&quarantined(&store))
        };
        (resolved, resolved.then(next).flatten())
    });
    let resolved = world.store.resolve("k", first, by_hand()).unwrap_or(false);
    let (released, second) = other.join().expect("the other panicked");
    assert!(!(resolved && released), "rule 19: {first} was resolved twice, the second time as {second:?}");
}

/// Work that is quarantined ends with its holder, and is granted to nobody, whatever he asks for.
fn quarantine_against_claimants_once() {
    let world = World::new(SyncBy::Caller);
    let holder = granted(&world.store);
    let ender = thread::spawn(move || drop(holder));
    let other = {
        let store = world.store.clone();
        thread::spawn(move || support::claim(&store, Durability::Full))
    };
    let told = [world.claim(Durability::Full), other.join().expect("a claimant panicked")];
    ender.join().expect("the holder panicked");
    for told in told {
        let refused = matches!(told, Outcome::InFlight(_) | Outcome::Interrupted(_));
        assert!(refused, "rule 18: work that is quarantined was told {told:?}");
    }
    assert!(
        matches!(world.claim(Durability::Full), Outcome::Interrupted(_)),
        "P6 never stuck: its holder ended"
    );
}

/// A claim is released within its lease while another asks for the key: it is done, and nobody is told of an attempt.
fn release_against_claim_once() {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Full);
    let releasing = thread::spawn(move || holder.release());
    let told = world.claim(Durability::Full);
    let released = releasing.join().expect("the holder panicked");
    assert!(released.is_ok(), "rule 14: a release within the lease was told {released:?}");
    match told {
        Outcome::InFlight(_) => {}
        Outcome::Granted(claim) => {
            let attempt = claim.attempt();
            assert_eq!(attempt, 1, "rule 14: it was released, and the next is attempt {attempt}");
        }
        other => panic!("a claimant was told {other:?}"),
    }
}

models! {
    removal_against_completion_durable, Some(6), || removal_against_completion(Durability::Full);
    removal_against_completion_in_memory, Some(6), || removal_against_completion(Durability::Result);
    forced_removal_against_completion_durable, Some(5), || {
        forced_removal_against_completion(Durability::Full);
    };
    forced_removal_against_completion_in_memory, Some(5), || {
        forced_removal_against_completion(Durability::Result);
    };
    ended_lease_against_completion_durable, Some(4), || {
        ended_lease_against_completion(Durability::Full);
    };
    ended_lease_against_completion_in_memory, Some(4), || {
        ended_lease_against_completion(Durability::Result);
    };
    resolution_against_late_completion, Some(5), || resolution_against_late_completion_once(true);
    resolution_of_pending_against_late_completion, Some(5), || {
        resolution_against_late_completion_once(false);
    };
    resolution_against_next_case, Some(4), resolution_against_the_next_case;
    quarantine_against_claimants, Some(4), quarantine_against_claimants_once;
    release_against_claim, None, release_against_claim_once;
}

#[test]
fn twin_removes_live() {
    twin(Break::RemovesLive, "rule 19", || removal_against_completion(Durability::Full));
}

#[test]
fn twin_resolves_any() {
    twin(Break::ResolvesAny, "rule 19", resolution_against_the_next_case);
}

#[test]
fn twin_replaces_settled() {
    twin(Break::ReplacesSettled, "rule 17", || resolution_against_late_completion_once(true));
}

#[test]
fn twin_records_terms_ignored() {
    twin(Break::RecordsTermsIgnored, "rule 18", quarantine_against_claimants_once);
}

#[test]
fn twin_freed_before_swap() {
    twin(Break::FreedBeforeSwap, "rule 14", release_against_claim_once);
}
