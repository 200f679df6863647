//! Sweeps in the middle of other writes, over storage that fails, and cut short by the power.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{
    Claim, Durability, ManualClock, OnInterrupt, OpenError, Outcome, Request, Resolution, StorageError,
    Store, SyncBy,
};
use faults::{FAULTS, Fault, Faulty};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

/// Memory that lets something happen between a commit's hints and its swap, as engines may.
#[derive(Clone)]
struct Gap(Mem, Arc<Mutex<Option<Between>>>);
type Between = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("memory with a gap")
    }
}

#[derive(Debug)]
struct GapEngine(Box<dyn Engine>, Gap);

impl Backend for Gap {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(GapEngine(self.0.open()?, self.clone())))
    }
}

impl Engine for GapEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let [commit] = commits else { return self.0.commit(commits) };
        if commit.key[0] != 1 || commit.hints.is_empty() {
            return self.0.commit(commits);
        }
        for hint in commit.hints {
            let before = self.0.read(&hint.key).unwrap();
            let alone = Commit::swap(&hint.key, before.as_deref(), hint.value.as_deref());
            self.0.commit(&[alone]).remove(0).unwrap();
        }
        let between = self.1.1.lock().unwrap().take();
        if let Some(between) = between {
            between();
        }
        self.0.commit(&[Commit { hints: &[], ..commit.clone() }])
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
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

#[test]
fn an_entry_whose_swap_is_still_to_come_is_kept() {
    let request = |durability| Request::new("k").durability(durability).retention(SEC);
    let quarantine = request(Durability::Full).on_interrupt(OnInterrupt::Quarantine).lease(SEC);
    let interrupted = |store: &Store, clock: &ManualClock| {
        let claim = store.claim(&quarantine).unwrap().granted().unwrap();
        clock.advance(2 * SEC);
        assert!(matches!(store.claim(&quarantine).unwrap(), Outcome::Interrupted(_)));
        store.sweep(10).unwrap();
        claim
    };
    let grant = |store: &Store, durability| store.claim(request(durability)).unwrap().granted().unwrap();
    type Write<'a> = &'a dyn Fn(&Store, &ManualClock, &dyn Fn());
    let writes: [(&str, Write<'_>); 4] = [
        ("a durable claim", &|store, _, arm| {
            arm();
            drop(grant(store, Durability::Full));
        }),
        ("the settle of a claim in memory", &|store, _, arm| {
            let claim: Claim = grant(store, Durability::Relaxed);
            arm();
            claim.complete("done").unwrap();
        }),
        ("the late settle of an interrupted record", &|store, clock, arm| {
            let claim = interrupted(store, clock);
            arm();
            claim.complete("done").unwrap();
        }),
        ("a settle by hand", &|store, clock, arm| {
            let token = interrupted(store, clock).token();
            arm();
            assert!(store.resolve("k", token, Resolution::omitted()).unwrap());
        }),
    ];
    for (name, write) in writes {
        for rebuild in [false, true] {
            let gap = Gap(Mem::new(), Arc::default());
            let clock = ManualClock::new();
            let builder = Store::builder(gap.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
            let store = builder.open().unwrap();
            write(&store, &clock, &|| {
                let (store, clock) = (store.clone(), clock.clone());
                *gap.1.lock().unwrap() = Some(Box::new(move || {
                    if rebuild {
                        let _ = store.rebuild_index().unwrap();
                    }
                    clock.advance(2 * SEC); // the entry is due before its record is there
                    store.sweep(10).unwrap();
                }));
            });
            assert!(gap.1.lock().unwrap().is_none(), "{name}: nothing happened in between");
            clock.advance(2 * SEC);
            store.sweep(10).unwrap();
            store.close().unwrap();
            assert_eq!(count(&gap.0, 1), 0, "rule 21: a record was left without an entry: {name}");
            assert_eq!(count(&gap.0, 4), 0, "rule 21: an entry was left behind: {name}");
        }
    }
}

struct World {
    faulty: Faulty,
    clock: ManualClock,
    store: Store,
    live: Option<Claim>,
}

impl World {
    /// A settled and a pending record that are due, a live claim that has been renewed beyond its retention, and a
    /// settled record that is not due.
    fn new() -> Self {
        let (faulty, clock) = (Faulty::new(), ManualClock::new());
        let store = open(&faulty, &clock);
        let grant = |name, kept| store.claim(Request::new(name).retention(kept)).unwrap().granted().unwrap();
        grant("kept", 86_400 * SEC).complete("kept").unwrap();
        grant("settled", SEC).complete("gone").unwrap();
        drop(grant("pending", SEC));
        let live = grant("live", SEC);
        clock.advance(2 * SEC);
        live.renew(3600 * SEC).unwrap();
        Self { faulty, clock, store, live: Some(live) }
    }

    /// Whatever went wrong before, sweeps that work leave what they should.
    fn comes_right(&mut self, name: &str) {
        for _ in 0..2 {
            while self.store.sweep(2).unwrap().more {}
        }
        let kept = self.store.get("kept").unwrap().is_some();
        assert!(kept, "P8 remembered: {name}");
        if let Some(live) = self.live.take() {
            let told = live.complete("done");
            assert!(told.is_ok(), "rule 21: a live claim was swept: {name}: {told:?}");
        }
        self.clock.advance(3600 * SEC); // an entry of the live claim may lie at the end of its lease
        for _ in 0..2 {
            while self.store.sweep(2).unwrap().more {}
        }
        assert_eq!(self.faulty.stored(&[1]).len(), 1, "rule 21: a record was left without an entry: {name}");
        assert_eq!(self.faulty.stored(&[4]).len(), 1, "rule 21: entries were left behind: {name}");
        let stats = self.store.stats();
        assert_eq!((stats.entries, stats.unsynced), (0, 0), "left in memory: {name}");
    }
}

fn open(faulty: &Faulty, clock: &ManualClock) -> Store {
    Store::builder(faulty.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap()
}

/// Each call of a sweep that has everything to do, and more.
const MANY: u64 = 40;

#[test]
fn a_sweep_that_fails_at_any_call_loses_nothing_and_comes_right() {
    for fault in FAULTS {
        for count in [1, 2, MANY] {
            let mut fired = 0;
            for n in 0..MANY {
                let name = format!("{fault:?}, {count} from call {n}");
                let mut world = World::new();
                world.faulty.arm(n, count, fault);
                let told = catch_unwind(AssertUnwindSafe(|| world.store.sweep(10)));
                let went_wrong = !world.faulty.disarm().is_empty();
                let failures = world.store.stats().sweep_failures;
                match told {
                    Ok(Ok(_)) => assert!(!went_wrong, "OB-09: a failure was passed over: {name}"),
                    Ok(Err(_)) => assert_eq!(failures, 1, "{name}"),
                    Err(_) => assert!(went_wrong, "{name}"),
                }
                world.comes_right(&name);
                fired += u32::from(went_wrong);
                if !went_wrong {
                    break;
                }
            }
            assert!(fired > 5, "{fault:?} hardly fired: the test tests nothing");
        }
    }
}

#[test]
fn a_power_cut_in_the_middle_of_a_sweep_loses_nothing_and_comes_right() {
    for synced in [false, true] {
        for n in 0..MANY {
            let name = format!("after {n} calls, {}", if synced { "synced" } else { "not synced" });
            let mut world = World::new();
            world.faulty.arm(n, MANY, Fault::FailBefore);
            let _ = world.store.sweep(10);
            let over = world.faulty.disarm().is_empty();
            if synced {
                world.store.sync().unwrap();
            }
            world.faulty.crash();
            world.live = None;
            world.store = open(&world.faulty, &world.clock);
            let told = world.store.get("settled").unwrap();
            assert_eq!(told, None, "a power cut brought back what was forgotten: {name}");
            world.comes_right(&name);
            if over {
                break;
            }
            assert!(n + 1 < MANY, "the sweep never ends");
        }
    }
}

#[test]
fn a_rebuild_that_fails_at_any_call_can_be_repeated() {
    for fault in FAULTS {
        for n in 0..MANY {
            let name = format!("{fault:?} at call {n}");
            let mut world = World::new();
            world.faulty.arm(n, 1, fault);
            let told = catch_unwind(AssertUnwindSafe(|| world.store.rebuild_index()));
            let fired = world.faulty.disarm();
            assert_eq!(matches!(told, Ok(Ok(_))), fired.is_empty(), "P9 fail closed: {name}");
            if world.store.stats().poisoned {
                world.live = None;
                let _ = world.store.close();
                world.store = open(&world.faulty, &world.clock);
            }
            world.store.rebuild_index().unwrap();
            world.comes_right(&name);
            if fired.is_empty() {
                break;
            }
        }
    }
}
