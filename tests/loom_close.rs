//! Closing, opening again, and openings that stall, model-checked. See `docs/testing.md`.
#![cfg(loom)]
#![allow(missing_docs)]

mod support;

use claimdb::backend::{Backend, Commit, Engine, Swap, Visit};
use claimdb::{
    AdminError, Break, Claim, ClaimError, Durability, Fault, KeyState, OpenError, Outcome, Request,
    StorageError, Store, SyncBy,
};
use loom::thread;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::drive::Drive;
use support::{LEASE_OVER, Still, World, broken, claim, models, twin, value};

/// A holder does something while its store is closed and opened again, and the next opening claims its key. Gives what
/// `act` gave, and what the next opening's claimant was told.
fn close_against<T: 'static>(
    durability: Durability,
    sync_by: SyncBy,
    act: fn(Claim) -> T,
) -> (T, Outcome, World) {
    let world = World::new(sync_by);
    let holder = world.grant(durability);
    let loss = holder.lost();
    let acting = thread::spawn(move || act(holder));
    world.store.close().expect("the drive works");
    let next = world.reopened();
    let next = next.unwrap_or_else(|error| panic!("rule 9: a closed store is not let go: {error}"));
    let told = next.claim(durability);
    let acted = acting.join().expect("the holder panicked");
    assert!(loss.is_raised(), "rule 9: a claim of a closed store is not lost");
    (acted, told, next)
}

fn completion(durability: Durability, sync_by: SyncBy) {
    let (told, next, _) = close_against(durability, sync_by, |claim| claim.complete("done").is_ok());
    match next {
        Outcome::Settled(settled) => assert_eq!(value(settled), "done"),
        Outcome::Granted(_) => {
            assert!(!told, "P8 remembered: a completion was told, and the key granted again")
        }
        other => panic!("P6 never stuck: the next opening was told {other:?}"),
    }
}

fn renewal() {
    let (_, next, _world) = close_against(Durability::Result, SyncBy::Caller, |claim| {
        let told = claim.renew(2 * LEASE_OVER).is_ok();
        (told, claim)
    });
    assert!(next.granted().is_some(), "P6 never stuck: the next opening was not granted the key");
}

/// Whoever claims, sweeps or reads in a store that is being closed is told that it is, or what it would have been.
fn close_against_calls(call: fn(&Store)) {
    let world = World::new(SyncBy::Caller);
    let store = world.store.clone();
    let calling = thread::spawn(move || call(&store));
    world.store.close().expect("the drive works");
    let next = world.reopened();
    let next = next.unwrap_or_else(|error| panic!("rule 9: a closed store is not let go: {error}"));
    calling.join().expect("the caller panicked");
    let told = next.claim(Durability::Full);
    assert!(told.granted().is_some(), "P6 never stuck: the next opening was not granted the key");
}

/// The key is free: its claimant is granted it, or told that the store was closed.
fn claims(store: &Store, durability: Durability) {
    match store.claim(Request::new("k").durability(durability)) {
        Ok(Outcome::Granted(claim)) => drop(claim),
        Ok(other) => panic!("rule 9: a claimant beside one that closes was told {other:?}"),
        Err(ClaimError::Failed { fault: Fault::Closed, .. }) => {}
        Err(error) => panic!("rule 9: a claimant beside one that closes was told {error}"),
    }
}

fn told_closed(error: &AdminError) {
    let closed = matches!(error, AdminError::Failed { fault: Fault::Closed, .. });
    assert!(closed, "rule 9: who calls beside one that closes was told {error}");
}

/// Two close at once. Whoever comes second may be done sooner, so both are waited for.
fn close_against_close_once() {
    let world = World::new(SyncBy::Caller);
    let store = world.store.clone();
    let closing = thread::spawn(move || store.close());
    let closed = [world.store.close(), closing.join().expect("closing panicked")];
    for told in closed {
        assert!(told.is_ok(), "rule 9: closing beside another that closes was told {told:?}");
    }
    let next = world.reopened();
    assert!(next.is_ok(), "rule 9: a closed store is not let go: {:?}", next.err());
}

/// The process of an opening stalls at any point: the place stays its own until it is killed, and then the next opening
/// takes its claim over.
fn stalled_opening_once() {
    let world = World::new(SyncBy::Caller);
    let holder = world.grant(Durability::Full);
    let stalling = thread::spawn(move || holder.complete("late").is_ok());
    match world.reopened() {
        Err(OpenError::Locked { .. }) => {}
        Err(error) => panic!("opening: {error}"),
        Ok(_) => panic!("P1 one holder: two openings of one place"),
    }
    world.faulty.drive.kill();
    let next = world.reopened().expect("nobody has it");
    let told = next.claim(Durability::Full);
    let late = stalling.join().expect("the old holder panicked");
    match told {
        Outcome::Settled(settled) => assert_eq!(value(settled), "late"),
        Outcome::Granted(claim) => {
            assert!(!late, "P3 fenced: the old opening's completion was told, and the key granted again");
            assert_eq!(claim.attempt(), 2, "rule 18: attempt {} after the first", claim.attempt());
        }
        other => panic!("P6 never stuck: the next opening was told {other:?}"),
    }
}

/// A drive whose lock is not kept: each opening is let in beside those that are there.
#[derive(Clone, Debug, Default)]
struct Unlocked {
    drive: Drive,
    opened: Arc<Mutex<Option<Arc<dyn Engine>>>>,
}

#[derive(Debug)]
struct Shared(Arc<dyn Engine>);

impl Backend for Unlocked {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let mut opened = self.opened.lock().unwrap();
        if opened.is_none() {
            *opened = Some(Arc::from(self.drive.open()?));
        }
        Ok(Box::new(Shared(opened.clone().expect("it was just opened"))))
    }
}

impl Engine for Shared {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.0.commit(commits)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
    }
}

fn opened(place: &Unlocked, clock: &Still) -> Store {
    let builder = Store::builder(place.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
    builder.open().expect("the drive works")
}

/// A stalled opening whose lock was taken from it goes on after the next one has taken its stored claim over. No lock
/// keeps them apart, and the record's token does.
fn stalled_opening_without_a_lock_once() {
    let (place, clock) = (Unlocked::default(), Still::default());
    let stalled = opened(&place, &clock);
    let old = claim(&stalled, Durability::Full).granted().expect("nobody else is here");
    let stalling = thread::spawn(move || old.complete("old").is_ok());
    let next = opened(&place, &clock);
    let new = match claim(&next, Durability::Full) {
        Outcome::Granted(claim) => Some(claim.complete("new").is_ok()),
        Outcome::Settled(_) => None,
        other => panic!("the next opening was told {other:?}"),
    };
    let old = stalling.join().expect("the old holder panicked");
    assert!(
        !(old && new.is_some()),
        "P3 fenced: a stalled opening's completion was told, and the key granted"
    );
    assert!(old || new == Some(true), "P6 never stuck: both completions were refused");
}

/// Two open one place at once and claim its key: one of them has it.
fn two_openings_once(place: impl Backend + Clone + 'static) {
    fn opens(place: impl Backend + 'static, clock: Still) -> Option<(Option<Claim>, Store)> {
        let builder = Store::builder(place).clock(clock).sync_by(SyncBy::Caller);
        let store = builder.lock_wait(Duration::ZERO).open().ok()?;
        Some((claim(&store, Durability::Result).granted(), store))
    }
    let clock = Still::default();
    let other = {
        let (place, clock) = (place.clone(), clock.clone());
        thread::spawn(move || opens(place, clock))
    };
    let mine = opens(place, clock);
    let opened = [mine, other.join().expect("an opener panicked")];
    let held = opened.iter().flatten().filter(|(granted, _)| granted.is_some()).count();
    assert_eq!(held, 1, "P1 one holder: {held} openings of one place granted its key");
}

models! {
    close_against_completion_durable, Some(5), || completion(Durability::Full, SyncBy::Caller);
    close_against_completion_in_memory, Some(5), || completion(Durability::Result, SyncBy::Caller);
    close_against_completion_grouped, Some(3), || completion(Durability::Full, SyncBy::Thread);
    close_against_renewal, None, renewal;
    close_against_sweep, None, || close_against_calls(|store| match store.sweep(10) {
        Ok(swept) => assert_eq!((swept.deleted, swept.kept), (0, 0), "rule 9: there is nothing to sweep"),
        Err(error) => told_closed(&error),
    });
    close_against_reader, None, || close_against_calls(|store| match store.inspect("k") {
        Ok(read) => assert_eq!(read.state, KeyState::Absent, "rule 9: nobody has the key"),
        Err(error) => told_closed(&error),
    });
    close_against_claim, Some(6), || close_against_calls(|store| claims(store, Durability::Result));
    close_against_stored_claim, Some(5), || close_against_calls(|store| claims(store, Durability::Full));
    close_against_close, Some(4), close_against_close_once;
    stalled_opening, None, stalled_opening_once;
    stalled_opening_without_a_lock, None, stalled_opening_without_a_lock_once;
    two_openings, None, || two_openings_once(Drive::default());
}

#[test]
fn twin_two_openings() {
    broken("TwoOpenings", "P1 one holder", || two_openings_once(Unlocked::default()));
}

#[test]
fn twin_close_fences_nothing() {
    twin(Break::CloseFencesNothing, "rule 9", renewal);
}

#[test]
fn twin_close_leaves_writes() {
    twin(Break::CloseLeavesWrites, "rule 9", || completion(Durability::Full, SyncBy::Caller));
}
