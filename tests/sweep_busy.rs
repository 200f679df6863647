//! The retention index of keys that are in flight whenever it is swept (rule 21).
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::{Backend, Mem};
use claimdb::{Claim, Durability, ManualClock, Outcome, Request, Store, SyncBy};
use hooks::{At, Hooked, until};
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(10);
const ROUNDS: usize = 200;

struct World {
    hooked: Hooked,
    clock: ManualClock,
    store: Store,
}

impl World {
    fn new() -> Self {
        let (hooked, clock) = (Hooked::new(), ManualClock::new());
        let builder = Store::builder(hooked.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
        Self { store: builder.open().unwrap(), hooked, clock }
    }

    fn grant(&self, durability: Durability) -> Claim {
        let request = Request::new("k").durability(durability).lease(LEASE).retention(RETENTION);
        match self.store.claim(request).unwrap() {
            Outcome::Granted(claim) => claim,
            other => panic!("expected a grant, was told {other:?}"),
        }
    }

    /// How many records and how many entries are stored; closes the store.
    fn stored(self) -> (usize, usize) {
        self.store.close().unwrap();
        (count(&self.hooked.mem, 1), count(&self.hooked.mem, 4))
    }
}

fn count(mem: &Mem, space: u8) -> usize {
    let (engine, mut count) = (mem.open().unwrap(), 0);
    let mut one = |_: &[u8], _: &[u8]| {
        count += 1;
        ControlFlow::Continue(())
    };
    engine.scan(&[space], None, &mut one).unwrap();
    count
}

fn sweep(store: &Store) {
    while store.sweep(1000).unwrap().more {}
}

fn stays_small(world: World, what: &str) {
    let (records, entries) = world.stored();
    assert!(entries <= 3, "rule 21: {entries} entries for {records} records after {ROUNDS} rounds: {what}");
}

#[test]
fn a_key_that_is_claimed_at_every_sweep_keeps_no_entries_of_older_claims() {
    type Ends = (&'static str, fn(&World, Claim));
    let ends: [Ends; 5] = [
        ("its lease ran out", |world, claim| {
            world.clock.advance(LEASE);
            std::mem::forget(claim);
        }),
        ("dropped", |_, claim| drop(claim)),
        ("released", |_, claim| claim.release().unwrap()),
        ("completed and forgotten", |world, claim| {
            claim.complete("done").unwrap();
            world.clock.advance(RETENTION);
        }),
        ("completed and removed", |world, claim| {
            claim.complete("done").unwrap();
            assert!(world.store.remove("k").unwrap());
        }),
    ];
    for (name, end) in ends {
        for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
            let world = World::new();
            for _ in 0..ROUNDS {
                let claim = world.grant(durability);
                world.clock.advance(20 * SEC); // all entries but those of a lease that is awaited come due
                sweep(&world.store);
                end(&world, claim);
            }
            stays_small(world, &format!("{name}, {durability:?}"));
        }
    }
}

#[test]
fn a_key_that_is_being_settled_at_every_sweep_keeps_no_entries_of_older_claims() {
    for durability in [Durability::Full, Durability::Result] {
        let world = World::new();
        for _ in 0..ROUNDS {
            let claim = world.grant(durability);
            world.clock.advance(20 * SEC);
            let store = world.store.clone();
            world.hooked.on(At::Sync, move || sweep(&store));
            claim.complete("done").unwrap();
            assert!(world.store.remove("k").unwrap());
        }
        stays_small(world, &format!("{durability:?}"));
    }
}

#[test]
fn an_entry_outlives_a_claim_that_comes_to_nothing() {
    // What a claim in memory was granted over is still stored, and has no other entry.
    for durability in [Durability::Result, Durability::Relaxed] {
        let world = World::new();
        world.grant(durability).complete("old").unwrap();
        world.clock.advance(RETENTION);
        let claim = world.grant(durability);
        sweep(&world.store);
        drop(claim);
        world.clock.advance(LEASE);
        sweep(&world.store);
        assert_eq!(world.stored(), (0, 0), "rule 21: a record was left without an entry: {durability:?}");
    }
    // A record that is swapped back when another of the same call fails.
    let world = World::new();
    drop(world.grant(Durability::Full));
    world.clock.advance(RETENTION);
    world.hooked.break_key(Some("l"));
    let store = world.store.clone();
    world.hooked.on(At::Committed, move || sweep(&store));
    world.store.claim_all(["k", "l"]).expect_err("the second of them fails");
    world.hooked.break_key(None);
    sweep(&world.store);
    world.clock.advance(86_400 * SEC); // the retention of the claim that was taken back
    sweep(&world.store);
    assert_eq!(world.stored(), (0, 0), "rule 21: a record was left without an entry: swapped back");
}

#[test]
fn an_entry_outlives_a_claim_that_is_swapped_back_while_its_record_is_read() {
    type Look = (&'static str, fn(&Store));
    let looks: [Look; 2] = [
        ("a sweep", sweep),
        ("a rebuilding of the index", |store| {
            store.rebuild_index().unwrap();
        }),
    ];
    for (name, look) in looks {
        for settled in [true, false] {
            let world = World::new();
            let claim = world.grant(Durability::Full);
            if settled {
                claim.complete("old").unwrap()
            } else {
                drop(claim)
            }
            world.clock.advance(RETENTION);
            world.hooked.break_key(Some("l"));
            // It has looked at memory, and reads the record while another's is there that is to be swapped back.
            let (looked, wait_looked) = channel();
            let (swapped, wait_swapped) = channel();
            world.hooked.on(At::Read, move || {
                looked.send(()).unwrap();
                wait_swapped.recv().unwrap();
            });
            let store = world.store.clone();
            let looking = thread::spawn(move || look(&store));
            wait_looked.recv().unwrap();
            world.hooked.on(At::Committed, move || {
                swapped.send(()).unwrap();
                looking.join().unwrap();
            });
            world.store.claim_all(["k", "l"]).expect_err("the second of them fails");
            world.hooked.break_key(None);
            for _ in 0..3 {
                world.clock.advance(86_400 * SEC);
                sweep(&world.store);
            }
            assert_eq!(
                world.stored(),
                (0, 0),
                "rule 21: a record was left without an entry by {name}, settled: {settled}"
            );
        }
    }
}

#[test]
fn a_key_that_is_claimed_while_its_record_is_deleted_is_kept() {
    let world = World::new();
    world.grant(Durability::Full).complete("done").unwrap();
    world.clock.advance(2 * RETENTION);
    let (store, (sender, receiver)) = (world.store.clone(), channel());
    world.hooked.on(At::Commit, move || {
        let claim = store.claim("k").unwrap().granted().expect("P6: it is forgotten");
        sender.send(claim).unwrap();
    });
    let swept = world.store.sweep(10).unwrap();
    assert_eq!((swept.deleted, swept.kept), (0, 1), "rule 21: what was just claimed is told as deleted");
    receiver.recv().unwrap().complete("again").expect("P3: its record was deleted");
}

#[test]
fn one_round_of_the_sweeping_thread_looks_at_all_that_is_due() {
    let clock = ManualClock::new();
    let builder = Store::builder(Mem::new()).clock(clock.clone()).durability(Durability::Relaxed);
    let store = builder.retention(RETENTION).watch_every(Duration::ZERO).open().unwrap();
    for n in 0..1000 {
        store.claim(n.to_string()).unwrap().granted().unwrap().complete("done").unwrap();
    }
    clock.advance(2 * RETENTION);
    // More than it looks at in one step, and the time of its next round does not come.
    until("one round sweeps all that is due", || store.stats().swept == 1000);
}
