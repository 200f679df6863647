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
