//! What others can do to a key while somebody is on the way to it: in the middle of a call of the engine's.
#![cfg(not(any(loom, shuttle)))] // the hooks are on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::{Claim, Durability, ManualClock, Outcome, Request, Store, SyncBy};
use hooks::{At, Hooked};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

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
        Self { store: builder.open().unwrap(), backend, clock }
    }

    fn grant(&self) -> Claim {
        self.store.claim(Request::new("k").lease(LEASE)).unwrap().granted().unwrap()
    }

    /// One that has lost the key to another, and the other.
    fn lost_and_holder(&self) -> (Claim, Claim) {
        let lost = self.grant();
        self.clock.advance(LEASE);
        (lost, self.grant())
    }

    /// Removes the key by force, with `meanwhile` in the middle of that; it fails and leaves the record if it is to.
    fn remove_by_force(&self, fails: bool, meanwhile: impl FnOnce() + Send + 'static) {
        let done = Arc::new(Mutex::new(false));
        let told = Arc::clone(&done);
        self.backend.on(At::Read, move || {
            meanwhile();
            *told.lock().unwrap() = true;
        });
        self.backend.break_key(fails.then_some("k"));
        let removed = self.store.remove_by_force("k");
        self.backend.break_key(None);
        assert_eq!(removed.is_err(), fails, "{removed:?}");
        assert!(*done.lock().unwrap(), "there was no middle");
    }
}

#[test]
fn who_has_lost_the_key_renews_nobodys_claim_while_it_is_removed_by_force() {
    let world = World::new();
    let (lost, holder) = world.lost_and_holder();
    let left = holder.remaining();
    let (store, told) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    *store.lock().unwrap() = Some(lost);
    let (lost, renewed) = (Arc::clone(&store), Arc::clone(&told));
    world.remove_by_force(true, move || {
        *renewed.lock().unwrap() = lost.lock().unwrap().as_ref().map(|lost| lost.renew(100 * LEASE).is_ok());
    });
    assert_eq!(
        *told.lock().unwrap(),
        Some(false),
        "P3 fenced: one that had lost the key was told that it is renewed"
    );
    assert_eq!(holder.remaining(), left, "P3 fenced: one that had lost the key renewed another's claim");
}

#[test]
fn who_has_lost_the_key_ends_nobodys_claim_while_it_is_removed_by_force() {
    let world = World::new();
    let (lost, holder) = world.lost_and_holder();
    world.remove_by_force(true, move || drop(lost));
    let renewed = holder.renew(LEASE);
    assert!(renewed.is_ok(), "P5 no early takeover: another's drop ended the claim: {renewed:?}");
}

#[test]
fn a_claim_that_ends_while_it_is_removed_by_force_does_not_come_back() {
    let world = World::new();
    let holder = world.grant();
    world.remove_by_force(true, move || drop(holder));
    let told = world.store.claim("k").unwrap();
    assert!(matches!(told, Outcome::Granted(_)), "P6 never stuck: nobody has the key, and told was {told:?}");
}

#[test]
fn a_holder_has_had_the_key_since_it_was_granted() {
    let world = World::new();
    let clock = world.clock.clone();
    world.backend.on(At::Sync, move || clock.advance(Duration::from_secs(5)));
    let _holder = world.grant();
    match world.store.claim("k").unwrap() {
        Outcome::InFlight(holder) => {
            assert_eq!(holder.age(), Duration::ZERO, "the sync of the claim counts as time it had the key");
        }
        other => panic!("P1 one holder: {other:?}"),
    }
}

#[test]
fn what_is_settled_while_its_record_is_read_is_not_told_before_its_sync() {
    let world = World::new();
    let claim = world.grant();
    let ((syncs, is_synced), (go_on, goes_on)) = (channel(), channel());
    world.backend.on(At::Read, move || {
        thread::spawn(move || claim.complete("done"));
        is_synced.recv().unwrap();
    });
    world.backend.on(At::Sync, move || {
        syncs.send(()).unwrap();
        goes_on.recv().unwrap();
    });
    let told = world.store.get("k").unwrap();
    go_on.send(()).unwrap();
    assert!(told.is_none(), "P4 durable before told: {told:?}");
}

#[test]
fn a_claim_in_memory_does_not_go_by_a_record_that_has_changed_since_it_was_read() {
    let world = World::new();
    let request = || Request::new("k").durability(Durability::Result);
    let store = world.store.clone();
    world.backend.on(At::HasRead, move || {
        store.claim(request()).unwrap().granted().unwrap().complete("done").unwrap();
    });
    let told = world.store.claim(request()).unwrap();
    assert!(matches!(told, Outcome::Settled(_)), "P8 remembered: what is done was granted again: {told:?}");
}

#[test]
fn a_sweep_keeps_what_is_being_claimed_and_counts_it() {
    let world = World::new();
    let request = || Request::new("k").retention(LEASE);
    world.store.claim(request()).unwrap().granted().unwrap().complete("done").unwrap();
    world.clock.advance(LEASE);
    let (store, swept) = (world.store.clone(), Arc::new(Mutex::new(None)));
    let told = Arc::clone(&swept);
    world.backend.on(At::Commit, move || *told.lock().unwrap() = Some(store.sweep(10).unwrap()));
    let claim = world.store.claim(request()).unwrap().granted().expect("it is forgotten");
    let swept = swept.lock().unwrap().take().expect("the claim commits");
    assert_eq!((swept.deleted, swept.kept, swept.dropped), (0, 1, 0), "rule 21: it is being claimed");
    claim.complete("again").unwrap();
}
