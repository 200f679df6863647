//! Many keys and many failures: memory is back at its base afterwards, and nobody was left waiting.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::Mem;
use claimdb::{Durability, ManualClock, Outcome, Request, RunError, Settled, Store, SyncBy};
use hooks::{Woken, block_on, poll};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn is_at_its_base(store: &Store) {
    let stats = store.stats();
    let left = (stats.entries, stats.live_claims, stats.unsynced, stats.waiters);
    assert_eq!(left, (0, 0, 0, 0), "ML-01: entries, claims, marks and waiters are left behind");
}

#[test]
fn a_hundred_thousand_keys_leave_no_entry_no_mark_and_no_waiter() {
    const KEYS: usize = 100_000;
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock).sync_by(SyncBy::Caller).open().unwrap();
    for n in 0..KEYS {
        let request = Request::new(format!("key {n}")).durability(ALL[n % 3]);
        let claim = store.claim(&request).unwrap().granted().expect("it is new");
        let wait = request.wait(Duration::from_secs(3600));
        let mut waiter = Box::pin(store.claim_async(&wait));
        let woken = Woken::new();
        assert!(poll(waiter.as_mut(), &woken).is_pending());
        claim.complete(&n).unwrap();
        assert!(woken.count() > 0, "P6 never stuck: key {n}");
        match block_on(waiter).unwrap() {
            Outcome::Settled(Settled::Completed(stored)) => assert_eq!(stored.decode::<usize>().unwrap(), n),
            other => panic!("key {n}: {other:?}"),
        }
        if n % 1000 == 0 {
            is_at_its_base(&store);
        }
    }
    is_at_its_base(&store);
    assert_eq!(store.stats().settled, KEYS as u64);
}

#[test]
fn a_thousand_panics_in_ten_thousand_runs_hang_no_waiter_and_hold_no_key() {
    const THREADS: usize = 8;
    const RUNS: u64 = 10_000;
    const KEYS: usize = 16;
    /// Far beyond what a turn takes: a waiter that gets that far was forgotten.
    const FORGOTTEN: Duration = Duration::from_secs(60);
    struct OnPurpose;
    let store = Store::builder(Mem::new()).open().unwrap();
    let (started, panicked) = (AtomicU64::new(0), AtomicU64::new(0));
    let held: Vec<_> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, started, panicked, held) = (&store, &started, &panicked, &held);
            scope.spawn(move || {
                for n in 0..usize::try_from(RUNS).unwrap() / THREADS {
                    let key = (n + thread / 2) % KEYS;
                    let request = Request::new(format!("key {key}")).durability(ALL[key % 3]).wait(FORGOTTEN);
                    let run = || {
                        store.run(request, |_| {
                            let alone = !held[key].swap(true, Ordering::SeqCst);
                            assert!(alone, "P1 one holder: key {key}");
                            thread::yield_now();
                            held[key].store(false, Ordering::SeqCst);
                            if started.fetch_add(1, Ordering::SeqCst).is_multiple_of(10) {
                                resume_unwind(Box::new(OnPurpose));
                            }
                            Err::<(), _>("again")
                        })
                    };
                    match catch_unwind(AssertUnwindSafe(run)) {
                        Ok(Err(RunError::Work("again"))) => {}
                        Ok(told) => panic!("P6 never stuck: PN-01: key {key}: {told:?}"),
                        Err(panic) if panic.is::<OnPurpose>() => {
                            panicked.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(panic) => resume_unwind(panic),
                    }
                }
            });
        }
    });
    assert_eq!((started.into_inner(), panicked.into_inner()), (RUNS, RUNS / 10));
    store.sync().unwrap();
    is_at_its_base(&store);
    for key in 0..KEYS {
        assert!(store.claim(format!("key {key}")).unwrap().granted().is_some(), "PN-01: key {key} is held");
    }
}

#[test]
fn a_claim_in_memory_is_seldom_in_the_way_of_one_for_another_key() {
    let backend = hooks::Hooked::new();
    let builder = Store::builder(backend.clone()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    let store = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap();
    let claim = |store: &Store, name: String| {
        drop(store.claim(Request::new(name).durability(Durability::Result)).unwrap().granted().unwrap());
    };
    let mut read_again = 0;
    for n in 0..200 {
        let other = store.clone();
        backend.on(hooks::At::Read, move || claim(&other, format!("other {n}")));
        let before = backend.calls();
        claim(&store, n.to_string());
        // The other claim reads once, and so does this one unless something of its shard has changed meanwhile.
        read_again += backend.calls() - before - 2;
    }
    assert!(read_again < 50, "the table's shards are there for that: {read_again} of 200 read again");
}

#[test]
fn what_memory_holds_is_counted() {
    const SEC: Duration = Duration::from_secs(1);
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    let request =
        |name: &str, lease: u32| Request::new(name).durability(Durability::Result).lease(lease * SEC);
    let claim = |name, lease| store.claim(request(name, lease)).unwrap().granted().unwrap();
    let claims =
        [("a", 10), ("b", 10), ("c", 30), ("d", 30), ("e", 30)].map(|(name, lease)| claim(name, lease));
    let mut waiting =
        ["c", "d", "d"].map(|name| Box::pin(store.claim_async(request(name, 30).wait(60 * SEC))));
    assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut(), &Woken::new()).is_pending()));
    clock.advance(10 * SEC);
    let stats = store.stats();
    let counted = (stats.entries, stats.live_claims, stats.overdue_claims, stats.waiters);
    assert_eq!(counted, (5, 3, 2, 3));
    drop((claims, waiting));
    is_at_its_base(&store);
}

#[test]
fn who_waits_for_a_key_is_not_woken_for_another() {
    let builder = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    let store = builder.open().unwrap();
    let claim = |key: &str| store.claim(key).unwrap().granted().unwrap();
    let (held, woken) = (claim("held"), Woken::new());
    let wait = Request::new("held").wait(Duration::from_secs(60));
    let mut waiting = Box::pin(store.claim_async(wait));
    assert!(poll(waiting.as_mut(), &woken).is_pending());
    claim("another").complete("done").unwrap();
    assert_eq!(woken.count(), 0, "it was woken by a sync that changed nothing for it");
    drop(held);
    assert_eq!(woken.count(), 1, "P6 never stuck");
}

#[test]
fn a_lease_that_was_over_when_it_ended_is_counted() {
    const SEC: Duration = Duration::from_secs(1);
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    for (over, name) in [(29, "in time"), (30, "at its end"), (31, "late")] {
        let claim = store.claim(Request::new(name).lease(30 * SEC)).unwrap().granted().unwrap();
        clock.advance(over * SEC);
        claim.complete("done").unwrap();
    }
    assert_eq!(store.stats().lease_overruns, 2);
}
