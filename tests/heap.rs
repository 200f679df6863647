//! Memory is flat after many contended claims. In a file of its own: the whole process is measured, by one test at a time.
#![cfg(all(not(loom), target_os = "linux"))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code, clippy::disallowed_types, clippy::disallowed_methods)] // each test file uses a part
mod hooks;

use claimdb::backend::Mem;
use claimdb::{Durability, LossCause, ManualClock, Outcome, Request, Store, SyncBy};
use hooks::{Woken, block_on, poll, until};
use std::sync::Mutex;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

/// What the process has in memory, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says so");
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn looks_at_a_loss_that_nobody_awaits_leave_nothing() {
    let _alone = ALONE.lock();
    const LOOKS: usize = 60_000;
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).open().unwrap();
    let claim = store.claim(Request::new("k").lease(3600 * SEC)).unwrap().granted().unwrap();
    let look = |looks: usize| {
        for _ in 0..looks {
            let lost = claim.lost();
            assert!(!lost.is_raised());
            assert!(poll(Box::pin(lost.raised()).as_mut(), &Woken::new()).is_pending());
        }
    };
    look(LOOKS / 3);
    let before = resident();
    look(LOOKS);
    let grown = resident().saturating_sub(before);
    assert!(grown < LOOKS * 16, "ML-05: {grown} bytes more after {LOOKS} looks at a loss");
    claim.renew(3600 * SEC).unwrap();
    let mut raised = Box::pin(claim.lost().raised());
    assert!(poll(raised.as_mut(), &Woken::new()).is_pending());
    clock.advance(3600 * SEC);
    assert_eq!(block_on(raised), LossCause::LeaseOver, "P6 never stuck");
}

#[test]
fn contended_claims_with_cancels_and_timeouts_leave_the_heap_as_it_was() {
    let _alone = ALONE.lock();
    const ROUNDS: usize = 60_000;
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    let contend = |rounds: usize| {
        for n in 0..rounds {
            let durability = if n % 4 == 0 { Durability::Full } else { Durability::Result };
            let request = Request::new("k").durability(durability).retention(SEC);
            let holder = store.claim(&request).unwrap().granted().expect("it was given back");
            assert!(matches!(store.claim(&request).unwrap(), Outcome::InFlight(_)));
            let wait = request.wait(SEC);
            let (mut cancelled, mut late) =
                (Box::pin(store.claim_async(&wait)), Box::pin(store.claim_async(&wait)));
            assert!(poll(cancelled.as_mut(), &Woken::new()).is_pending());
            assert!(poll(late.as_mut(), &Woken::new()).is_pending());
            drop(cancelled);
            if n % 100 == 0 {
                clock.advance(SEC);
                assert!(matches!(block_on(late).unwrap(), Outcome::InFlight(_)));
                holder.release().unwrap();
                // The storage is memory as well: what the retention index has of the claims that are over.
                while store.sweep(1000).unwrap().more {}
            } else {
                drop(holder);
                block_on(late).unwrap().granted().expect("P6 never stuck").release().unwrap();
            }
        }
    };
    contend(ROUNDS / 3);
    let before = resident();
    contend(ROUNDS);
    let grown = resident().saturating_sub(before);
    // A leak of the smallest allocation for each round would be more.
    assert!(grown < ROUNDS * 16, "ML-05: {grown} bytes more after {ROUNDS} contended claims");
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn leases_that_are_over_give_their_memory_back_in_few_steps() {
    let _alone = ALONE.lock();
    const SHARDS: usize = 64;
    // About 1300 for each shard of the lease table, which has room for 1792 then; two steps lead back from there.
    const KEYS: usize = SHARDS * 1300;
    let builder = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    let store = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap();
    let claim = |n: usize| {
        let request = Request::new(n.to_string()).durability(Durability::Result);
        store.claim(request).unwrap().granted().unwrap()
    };
    let mut claims = Vec::with_capacity(KEYS);
    let granted = allocation_counter::measure(|| claims.extend((0..KEYS).map(claim)));
    let ended = allocation_counter::measure(|| claims.clear());
    let left = granted.bytes_current + ended.bytes_current;
    assert!(left * 10 < granted.bytes_current, "ML-05: {left} of {} bytes are left", granted.bytes_current);
    assert!(ended.count_total <= 2 * SHARDS as u64, "each step moves what is left: {ended:?}");
    let few = allocation_counter::measure(|| (0..100).for_each(|_| drop(claim(1))));
    let one = allocation_counter::measure(|| drop(claim(1)));
    assert_eq!(few.count_total, 100 * one.count_total, "small tables stay as they are");
}

#[test]
fn a_loss_that_is_looked_at_again_is_awaited_once() {
    let _alone = ALONE.lock();
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).open().unwrap();
    let claim = store.claim("k").unwrap().granted().unwrap();
    let (mut raised, mut another) = (Box::pin(claim.lost().raised()), Box::pin(claim.lost().raised()));
    let (woken, others) = (Woken::new(), Woken::new());
    assert!(poll(another.as_mut(), &others).is_pending());
    assert!(poll(raised.as_mut(), &woken).is_pending());
    let again = allocation_counter::measure(|| {
        assert!((0..1000).all(|_| poll(raised.as_mut(), &woken).is_pending()));
    });
    assert_eq!(again.bytes_current, 0, "ML-05: {again:?}");
    drop(another);
    drop(claim);
    assert_eq!((woken.count(), others.count()), (1, 0), "P6 never stuck");
}

/// The threads of this process that sync a store.
fn syncing() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // One that ends meanwhile has no name any more.
    let name = |thread: &std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads.flatten().filter(|thread| name(thread).is_ok_and(|name| name == "claimdb-sync\n")).count()
}

#[test]
fn one_thread_syncs_and_none_where_callers_do() {
    let _alone = ALONE.lock();
    until("the stores of other tests have ended", || syncing() == 0);
    for (sync_by, threads) in [(SyncBy::Thread, 1), (SyncBy::Caller, 0)] {
        let store = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(sync_by).open().unwrap();
        for key in ["a", "b", "c"] {
            store.claim(key).unwrap().granted().unwrap().complete(key).unwrap();
        }
        assert_eq!(syncing(), threads, "{sync_by:?}");
        store.close().unwrap();
        until("the thread has ended", || syncing() == 0);
    }
}

#[test]
fn a_listing_holds_few_bytes_however_large_the_results() {
    let _alone = ALONE.lock();
    const MIB: usize = 1 << 20;
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller).open().unwrap();
    for n in 0..200 {
        let request = Request::new(n.to_string()).durability(Durability::Relaxed);
        let claim = store.claim(request).unwrap().granted().unwrap();
        claim.complete_bytes(vec![0; MIB]).unwrap();
    }
    let mut listed = 0;
    let listing = allocation_counter::measure(|| listed = store.keys(None).unwrap().count());
    assert_eq!(listed, 200, "P8 remembered");
    assert!(listing.bytes_max < 8 * MIB as u64, "ML-01: a listing had {} bytes at once", listing.bytes_max);
}
