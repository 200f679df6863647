//! What is told of a record by refusing: that it is settled, gone, interrupted or another's. Like all that is told, it
//! survives a power cut.
//!
//! The record is written by a call that lands and is told as failed, as is the look that follows, so that no sync covers
//! it; callers sync, so nobody does until somebody has to. Then a holder is refused, and the power is cut.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{
    CheckpointError, Claim, Durability, Fault as Cause, KeyState, ManualClock, Omission, OnInterrupt,
    Outcome, Request, Resolution, RetryCause, SettleError, Store, SyncBy, Writes,
};
use faults::{Fault, Faulty, Syncs};
use std::time::Duration;

const LEASE_OVER: Duration = Duration::from_secs(31);

struct World {
    faulty: Faulty,
    clock: ManualClock,
    store: Store,
}

/// How a holder that may not do what it asks is refused.
#[derive(Debug, PartialEq)]
enum Told {
    Lost,
    AlreadySettled,
    Interrupted,
    /// Nothing is told: it is to try again.
    Retry {
        poisoned: bool,
    },
    Done,
}

type Verb = (&'static str, fn(&Store, Claim) -> Told);

const SETTLES: [Verb; 5] = [
    ("complete", |_, claim| settled(claim.complete("other"))),
    ("complete_with", |_, claim| settled(claim.complete_with("other", Writes::new()))),
    ("complete_many", |store, claim| settled(store.complete_many([(claim, "other")]).remove(0))),
    ("complete_many, one of which is done", |store, claim| {
        let one = grant(store, Request::new("one").durability(Durability::Relaxed));
        let mut told = store.complete_many([(one, "other"), (claim, "other")]);
        settled(told.remove(1))
    }),
    ("fail", |_, claim| settled(claim.fail("other"))),
];
const RELEASE: Verb = ("release", |_, claim| settled(claim.release()));
const CHECKPOINT: Verb = ("checkpoint", |_, mut claim| match claim.checkpoint("half") {
    Ok(()) => Told::Done,
    Err(CheckpointError::Lost(_)) => Told::Lost,
    Err(CheckpointError::AlreadySettled(_)) => Told::AlreadySettled,
    Err(CheckpointError::Interrupted(_)) => Told::Interrupted,
    Err(CheckpointError::Failed { cause, .. }) => retry(&cause),
    Err(other) => panic!("{other}"),
});

fn settled(told: Result<(), SettleError>) -> Told {
    match told {
        Ok(()) => Told::Done,
        Err(SettleError::Lost(_)) => Told::Lost,
        Err(SettleError::AlreadySettled(_)) => Told::AlreadySettled,
        Err(SettleError::Interrupted(_)) => Told::Interrupted,
        Err(SettleError::Retry(tried)) => retry(&tried.cause),
        Err(other) => panic!("{other}"),
    }
}

fn retry(cause: &RetryCause) -> Told {
    Told::Retry { poisoned: matches!(cause, RetryCause::Fault(Cause::Poisoned(_))) }
}

fn grant(store: &Store, request: Request) -> Claim {
    store.claim(request).unwrap().granted().unwrap()
}

impl World {
    fn new() -> Self {
        Self::over(Faulty::new(), ManualClock::new())
    }

    fn over(faulty: Faulty, clock: ManualClock) -> Self {
        let store = Store::builder(faulty.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
        let store = store.sweep_every(Duration::ZERO).open().unwrap();
        Self { faulty, clock, store }
    }

    fn grant(&self, durability: Durability) -> Claim {
        grant(&self.store, Request::new("k").durability(durability))
    }

    /// A claim that is stored and whose lease is over.
    fn late(&self) -> Claim {
        let claim = self.grant(Durability::Full);
        self.clock.advance(LEASE_OVER);
        claim
    }

    /// Does what makes a commit, after so many other calls, that lands, and neither it nor the look after it is heard.
    fn unheard<T>(&self, before: u64, act: impl FnOnce(&Store) -> T) -> T {
        self.faulty.arm(before, 2, Fault::FailAfter);
        let told = act(&self.store);
        assert_eq!(self.faulty.disarm(), ["commit", "read"], "the test tests nothing");
        told
    }

    fn state_after_a_power_cut(self) -> KeyState {
        let Self { faulty, clock, store } = self;
        faulty.crash();
        drop(store);
        Self::over(faulty, clock).store.inspect("k").unwrap().state
    }
}

/// Each verb is refused as `expected` by the record that `written` leaves, which `stands` after a power cut. If the sync
/// fails, nothing is told.
fn refused(
    verbs: impl IntoIterator<Item = Verb>,
    written: impl Fn(&World) -> Claim,
    expected: Told,
    stands: KeyState,
) {
    let (mut undone, mut told_all_the_same) = (Vec::new(), Vec::new());
    for (verb, act) in verbs {
        let world = World::new();
        let claim = written(&world);
        assert_eq!(act(&world.store, claim), expected, "{verb}");
        if world.state_after_a_power_cut() != stands {
            undone.push(verb);
        }

        let world = World::new();
        let claim = written(&world);
        world.faulty.syncs(Syncs::Fail);
        if act(&world.store, claim) != (Told::Retry { poisoned: true }) {
            told_all_the_same.push(verb);
        }
    }
    assert!(
        undone.is_empty(),
        "P4 durable before told: {expected:?} was told, and a power cut undid that: {undone:?}"
    );
    assert!(told_all_the_same.is_empty(), "P9 fail closed: told after a failed sync: {told_all_the_same:?}");
}

fn all() -> impl Iterator<Item = Verb> {
    SETTLES.into_iter().chain([RELEASE, CHECKPOINT])
}

#[test]
fn that_the_claim_itself_has_settled_it() {
    let omitted = |durability| {
        move |world: &World| {
            let claim = world.grant(durability);
            let told = world.unheard(0, |_| claim.omit(Omission::OnPurpose));
            told.unwrap_err().into_claim().unwrap()
        }
    };
    refused(all(), omitted(Durability::Full), Told::AlreadySettled, KeyState::Settled);
    // One in memory has nothing to save progress in.
    let in_memory = SETTLES.into_iter().chain([RELEASE]);
    refused(in_memory, omitted(Durability::Result), Told::AlreadySettled, KeyState::Settled);
}

#[test]
fn that_it_was_resolved_by_hand() {
    let resolved = |world: &World| {
        let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
        let claim = grant(&world.store, request.clone());
        world.clock.advance(LEASE_OVER);
        let Outcome::Interrupted(case) = world.store.claim(request).unwrap() else {
            panic!("it is quarantined")
        };
        let resolve = |store: &Store| store.resolve("k", case.token(), Resolution::omitted());
        world.unheard(1, resolve).unwrap_err();
        claim
    };
    refused(all(), resolved, Told::AlreadySettled, KeyState::Settled);
}

#[test]
fn that_the_record_is_gone() {
    let removed = |world: &World| {
        let claim = world.late();
        world.unheard(1, |store| store.remove("k")).unwrap_err();
        claim
    };
    refused(all(), removed, Told::Lost, KeyState::Absent);
}

#[test]
fn that_it_became_interrupted() {
    let interrupted = |world: &World| {
        let claim = world.late();
        let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
        world.unheard(1, |store| store.claim(request)).unwrap_err();
        claim
    };
    refused([RELEASE, CHECKPOINT], interrupted, Told::Interrupted, KeyState::Interrupted);
}

#[test]
fn whose_token_the_record_has_now() {
    let mut undone = Vec::new();
    for (verb, act) in all() {
        let world = World::new();
        let claim = world.late();
        let old = claim.token();
        world.unheard(1, |store| store.claim("k")).unwrap_err();
        assert_eq!(act(&world.store, claim), Told::Lost, "{verb}");
        let World { faulty, clock, store } = world;
        faulty.crash();
        drop(store);
        let left = World::over(faulty, clock).store.inspect("k").unwrap().token;
        if left.is_none_or(|left| left <= old) {
            undone.push(verb);
        }
    }
    assert!(
        undone.is_empty(),
        "P4 durable before told: a claim was told of, and a power cut undid it: {undone:?}"
    );
}
