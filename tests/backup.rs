//! Backups of a store that goes on: one moment, nothing that is not durable, and tokens that go on.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::{Backend, Mem};
use claimdb::{
    Claim, CopyError, Durability, Fault as Cause, Flaw, ManualClock, OpenError, Request, Store, Token,
    WallTime, Writes,
};
use faults::{FAULTS, Faulty, Syncs};
use hooks::{At, Hooked, until};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

fn open(place: &(impl Backend + Clone + 'static)) -> Store {
    // Nothing is swept beside the test.
    Store::builder(place.clone()).sweep_every(Duration::ZERO).lock_wait(Duration::ZERO).open().unwrap()
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    store.claim(request).unwrap().granted().expect("P6 never stuck: it is free")
}

/// So many that the walk takes several pages, which lie between the keys that the tests look at.
fn fill(store: &Store) {
    for n in 0..300_u64 {
        let writes = Writes::new().put_value("m", n.to_be_bytes(), &n);
        store.write(writes).unwrap();
    }
}

fn is_settled(store: &Store, key: &str) -> bool {
    store.get(key).unwrap().is_some()
}

fn value(store: &Store, name: &str, key: &str) -> Option<u64> {
    store.kv(name).get_value(key).unwrap()
}

#[test]
fn what_lands_in_the_middle_of_a_backup_is_in_it_whole_or_not_at_all() {
    // At the n-th commit of the copy: its mark, then its pages.
    for at in 0..4 {
        let (source, target) = (Mem::new(), Hooked::new());
        let store = open(&source);
        fill(&store);
        store.write(Writes::new().put_value("a", "x", &1_u64).put_value("z", "x", &1_u64)).unwrap();
        let (claim, other) = (grant(&store, "k"), grant(&store, "given-up"));
        for _ in 0..at {
            target.on(At::Commit, || {});
        }
        let late = store.clone();
        target.on(At::Commit, move || {
            // Records lie before values, so the walk has been past the one and has not been at the other.
            claim.complete_with("done", Writes::new().put_value("z", "effect", &1_u64)).unwrap();
            late.write(Writes::new().put_value("a", "x", &2_u64).put_value("z", "x", &2_u64)).unwrap();
            late.kv("a").delete("gone").unwrap();
            late.kv("z").put_value("last", &1_u64).unwrap();
            other.release().unwrap();
            grant(&late, "new").complete("done").unwrap();
        });
        store.kv("a").put_value("gone", &1_u64).unwrap();
        store.backup_to(&target).unwrap();
        let told = &mut |flaw: &Flaw| panic!("rule 21: changed meanwhile: {flaw}");
        let stale = Store::builder(target.clone()).verify(told).unwrap().stale_entries;
        assert_eq!(stale, 0, "rule 21: what changed meanwhile is indexed as it was");
        let copy = open(&target);
        let effect = value(&copy, "z", "effect").is_some();
        assert_eq!(is_settled(&copy, "k"), effect, "rule 25: a backup tore a completion from its effects");
        let (first, last) = (value(&copy, "a", "x"), value(&copy, "z", "x"));
        assert_eq!(first, last, "a backup is of no one moment: it tore a batch of values, at commit {at}");
        let (is_gone, is_there) = (value(&copy, "a", "gone").is_none(), value(&copy, "z", "last").is_some());
        assert_eq!(is_gone, is_there, "at commit {at}");
        assert!(is_settled(&copy, "k"), "what is changed before the moment is in it");
    }
}

#[test]
fn a_backup_holds_all_that_was_told_and_what_is_pending_belongs_to_an_opening_that_has_ended() {
    let (source, target, clock) = (Mem::new(), Faulty::new(), ManualClock::new());
    let builder = Store::builder(source).clock(clock.clone());
    let store = builder.sweep_every(Duration::ZERO).open().unwrap();
    for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
        let request = Request::new(format!("{durability:?}")).durability(durability);
        grant(&store, request).complete("done").unwrap();
    }
    grant(&store, Request::new("forgotten").retention(SEC)).complete("old").unwrap();
    clock.advance(2 * SEC);
    let pending = grant(&store, "pending");
    let in_memory = grant(&store, Request::new("in memory").durability(Durability::Result));
    store.kv("values").put("k", "v").unwrap();
    let copied = store.backup_to(&target).unwrap();
    assert_eq!((copied.records, copied.values, copied.forgotten, copied.unreadable), (4, 1, 1, 0));
    assert_eq!(target.stored(&[4]).len(), 4, "each record that is swept one day has its entry");
    // The store goes on as if nothing had been.
    pending.complete("done").unwrap();
    in_memory.complete("done").unwrap();
    let last = grant(&store, "later");
    let token = last.token();
    drop(last);

    let copy = Store::builder(target.clone()).clock(clock.clone()).open().unwrap();
    for key in ["Full", "Result", "Relaxed"] {
        assert!(is_settled(&copy, key), "P8 remembered: {key}");
    }
    let again = grant(&copy, "pending");
    assert_eq!(again.attempt(), 2, "its opening has ended");
    assert_eq!(grant(&copy, "in memory").attempt(), 1);
    copy.close().unwrap();

    // P2 of a copy that is restored: by the clock, or by a floor.
    store.close().unwrap();
    clock.advance(5 * SEC);
    let restored = |floor: Token, wall: Option<WallTime>| {
        if let Some(wall) = wall {
            clock.set_wall(wall);
        }
        let copy = Store::builder(target.clone()).clock(clock.clone()).token_floor(floor).open().unwrap();
        let granted = grant(&copy, "new").token();
        copy.close().unwrap();
        granted
    };
    let by_clock = restored(Token::new(0), None);
    assert!(by_clock > token, "P2 ordered tokens: {by_clock} after {token}, and the clock has moved on");
    let by_floor = restored(Token::new(by_clock.get() * 2), Some(WallTime::from_unix_millis(0)));
    assert!(by_floor > by_clock, "P2 ordered tokens: {by_floor} is below the floor");
}

#[test]
fn a_backup_tells_of_nothing_that_is_not_durable_in_its_store() {
    for fails in [false, true] {
        let (source, target) = (Faulty::new(), Faulty::new());
        let store = open(&source);
        let claim = grant(&store, Request::new("k").durability(Durability::Result));
        source.syncs(Syncs::Hang);
        let settling = thread::spawn(move || claim.complete("done").is_ok());
        source.until_a_sync_hangs();
        let done = Arc::new(AtomicBool::new(false));
        let backing_up = {
            let (store, target, done) = (store.clone(), target.clone(), Arc::clone(&done));
            thread::spawn(move || {
                let told = store.backup_to(&target);
                done.store(true, Ordering::SeqCst);
                told
            })
        };
        // A look, the mark, its sync, and the page with the record: what is left is to wait for the store's sync.
        until("the backup has copied the record", || target.calls() >= 4);
        for _ in 0..2000 {
            thread::yield_now();
        }
        assert!(!done.load(Ordering::SeqCst), "P4: a backup told of a completion that no sync covers");
        source.syncs(if fails { Syncs::Fail } else { Syncs::Work });
        let told = backing_up.join().unwrap();
        assert_eq!(settling.join().unwrap(), !fails);
        let opened = Store::builder(target).lock_wait(Duration::ZERO).open();
        if fails {
            assert!(matches!(told, Err(CopyError::Fault(Cause::Poisoned(_)))), "P4: {told:?}");
            let refused = matches!(opened, Err(OpenError::UnfinishedCopy { .. }));
            assert!(refused, "P4: a copy of what may be lost passes for a store");
        } else {
            told.unwrap();
            assert!(is_settled(&opened.unwrap(), "k"));
        }
    }
}

#[test]
fn at_every_fault_a_backup_is_whole_or_refused_and_the_store_goes_on() {
    for (side, fault) in [0, 1].into_iter().flat_map(|side| FAULTS.map(|fault| (side, fault))) {
        let mut fired = 0;
        for n in 0..40 {
            let name = format!("{fault:?} at call {n} of side {side}");
            let (source, target, clock) = (Faulty::new(), Faulty::new(), ManualClock::new());
            let store = Store::builder(source.clone()).clock(clock.clone()).open().unwrap();
            fill(&store);
            grant(&store, "k").complete("done").unwrap();
            [&source, &target][side].arm(n, 1, fault);
            let told = catch_unwind(AssertUnwindSafe(|| store.backup_to(&target)));
            let calls = [&source, &target][side].disarm();
            let done = matches!(told, Ok(Ok(_)));
            assert!(
                !done || calls.iter().all(|call| *call == "close"),
                "a backup that failed was told of: {name}"
            );
            target.crash();
            let empty = target.stored(&[]).is_empty();
            match Store::builder(target).clock(clock).lock_wait(Duration::ZERO).open() {
                Ok(_) if empty => {}
                Ok(copy) => assert!(is_settled(&copy, "k"), "{name}"),
                Err(OpenError::UnfinishedCopy { .. }) => assert!(!done, "{name}"),
                Err(error) => panic!("{name}: {error}"),
            }
            if store.stats().poisoned {
                assert!(calls.contains(&"sync"), "{name}");
            } else {
                grant(&store, "more").complete("done").unwrap();
                store.backup_to(&Mem::new()).unwrap_or_else(|error| panic!("after {name}: {error}"));
            }
            fired += calls.len();
            if calls.is_empty() {
                break;
            }
        }
        assert!(fired > 2, "{fault:?} never fired on side {side}: the test tests nothing");
    }
}

#[test]
fn a_backup_that_cannot_be_made_is_told_and_writers_go_on() {
    let (source, target) = (Hooked::new(), Mem::new());
    let builder = Store::builder(source.clone()).sync_limit(Duration::from_millis(50));
    let store = builder.sweep_every(Duration::ZERO).open().unwrap();
    // A write that hangs in the engine: what it writes is of no moment.
    let (hung, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    {
        let (hung, release) = (Arc::clone(&hung), Arc::clone(&release));
        source.on(At::Commit, move || {
            hung.store(true, Ordering::SeqCst);
            until("the test lets go", || release.load(Ordering::SeqCst));
        });
    }
    let writer = {
        let store = store.clone();
        thread::spawn(move || store.kv("v").put("k", "v"))
    };
    until("the write hangs", || hung.load(Ordering::SeqCst));
    let told = store.backup_to(&target);
    assert!(matches!(told, Err(CopyError::Busy { .. })), "{told:?}");
    release.store(true, Ordering::SeqCst);
    writer.join().unwrap().unwrap();
    store.backup_to(&target).unwrap();

    // One at a time, and not into a place that holds something.
    let second = Hooked::new();
    let other = store.clone();
    second.on(At::Commit, move || {
        let told = other.backup_to(&Mem::new());
        assert!(matches!(told, Err(CopyError::Busy { .. })), "two at a time: {told:?}");
    });
    store.backup_to(&second).unwrap();
    assert!(matches!(store.backup_to(&target), Err(CopyError::NotEmpty { .. })));

    // Closed in the middle.
    let third = Hooked::new();
    let other = store.clone();
    third.on(At::Commit, move || other.close().expect("a backup keeps nobody from closing"));
    let told = store.backup_to(&third);
    assert!(matches!(told, Err(CopyError::Fault(Cause::Closed))), "{told:?}");
    assert!(matches!(store.backup_to(&Mem::new()), Err(CopyError::Fault(Cause::Closed))));
    let refused = Store::builder(third).open();
    assert!(matches!(refused, Err(OpenError::UnfinishedCopy { .. })));
}

/// Four threads complete with effects while backups are made; each is opened and judged.
fn while_four_threads_complete(
    store: &Store,
    durability: Durability,
    backups: usize,
    make: impl Fn(usize) -> Store,
) {
    const THREADS: usize = 4;
    // So many for each backup: some before it, the others while it is made.
    const EACH: u64 = 150;
    const BEFORE: u64 = 20;
    let allowed = AtomicU64::new(0);
    let told: [AtomicU64; THREADS] = Default::default();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (thread, told) in told.iter().enumerate() {
            let (over, allowed) = (&over, &allowed);
            scope.spawn(move || {
                for n in 1.. {
                    while n > allowed.load(Ordering::SeqCst) {
                        if over.load(Ordering::SeqCst) {
                            return;
                        }
                        thread::yield_now();
                    }
                    let key = format!("{thread}-{n:06}");
                    let claim = grant(store, Request::new(key.as_str()).durability(durability));
                    // One lies before all records of other threads in no order that the walk takes, one behind.
                    let effects = Writes::new().put_value("a", &key, &n).put_value("z", &key, &n);
                    let effects = effects.put_value("count", format!("{thread}"), &n);
                    claim.complete_with(&n, effects).unwrap();
                    told.store(n, Ordering::SeqCst);
                }
            });
        }
        let judged = catch_unwind(AssertUnwindSafe(|| {
            for backup in 0..backups {
                let so_far = backup as u64 * EACH;
                allowed.store(so_far + EACH, Ordering::SeqCst);
                until("some was told", || {
                    told.iter().all(|told| told.load(Ordering::SeqCst) > so_far + BEFORE)
                });
                let before: Vec<_> = told.iter().map(|told| told.load(Ordering::SeqCst)).collect();
                let copy = make(backup);
                let count = |name: &str, thread: usize| {
                    let prefix = format!("{thread}-");
                    copy.kv(name).scan(prefix).unwrap().map(Result::unwrap).count() as u64
                };
                for (thread, before) in before.into_iter().enumerate() {
                    let settled = copy.scan("", format!("{thread}-")).unwrap().map(Result::unwrap);
                    let settled = settled.count() as u64;
                    assert!(
                        settled >= before,
                        "P8: told {before} of thread {thread}, and {settled} are there"
                    );
                    let last = value(&copy, "count", &thread.to_string());
                    assert_eq!(
                        (count("a", thread), count("z", thread), last),
                        (settled, settled, Some(settled)),
                        "rule 25: completions and effects of one moment came apart, backup {backup}"
                    );
                    // One after the other, so those of one moment are the first ones.
                    assert!(is_settled(&copy, &format!("{thread}-{settled:06}")), "of no one moment");
                }
                let newest = copy.scan("", "").unwrap().map(|found| found.unwrap().1.about().token()).max();
                let granted = grant(&copy, "new").token();
                assert!(Some(granted) > newest, "P2 ordered tokens: {granted} after {newest:?}");
                copy.close().unwrap();
            }
        }));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = judged {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn backups_in_memory_while_four_threads_complete_with_effects() {
    let store = open(&Mem::new());
    while_four_threads_complete(&store, Durability::Full, 20, |_| {
        let target = Mem::new();
        store.backup_to(&target).unwrap();
        open(&target)
    });
}

#[cfg(feature = "sled")]
#[test]
fn backups_on_disk_while_four_threads_complete_with_effects() {
    let place = tempfile::tempdir().unwrap();
    for durability in [Durability::Full, Durability::Result] {
        let name = format!("{durability:?}");
        let store = open(&claimdb::backend::Sled::new(place.path().join(&name)));
        while_four_threads_complete(&store, durability, 5, |n| {
            let folder = place.path().join(format!("{name}-{n}"));
            store.backup(&folder).unwrap();
            let again = store.backup(&folder);
            assert!(matches!(again, Err(CopyError::NotEmpty { .. })), "a backup was written over: {again:?}");
            Store::open(&folder).unwrap()
        });
    }
}

#[cfg(feature = "sled")]
#[test]
fn a_folder_has_the_name_of_a_backup_only_once_it_is_one() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&Mem::new());
    grant(&store, "k").complete("done").unwrap();
    let folder = place.path().join("copy");
    let failing = Faulty::new();
    failing.arm(3, 1, faults::Fault::FailBefore);
    let told = store.backup_into(&folder, |partial| {
        assert!(partial.ends_with("copy.partial") && !folder.exists());
        Box::new(failing)
    });
    assert!(matches!(told, Err(CopyError::Storage(_))), "{told:?}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "what failed was left behind");

    // What one that was killed leaves behind is for a person to delete.
    std::fs::create_dir(place.path().join("copy.partial")).unwrap();
    let error = store.backup(&folder).expect_err("the name is taken");
    assert!(matches!(error, CopyError::Leftover { .. }), "{error:?}");
    assert!(error.to_string().contains("copy.partial") && error.to_string().contains("delete"), "{error}");
    std::fs::remove_dir(place.path().join("copy.partial")).unwrap();
    std::fs::create_dir(&folder).unwrap();
    store.backup(&folder).unwrap();
    assert!(is_settled(&Store::open(&folder).unwrap(), "k"));
}
