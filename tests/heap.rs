//! Memory is flat after many contended claims. In a file of its own: the whole process is measured, by one test at a time.
#![cfg(all(not(loom), target_os = "linux"))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code, clippy::disallowed_types, clippy::disallowed_methods)] // each test file uses a part
mod hooks;

use claimdb::backend::Mem;
use claimdb::{Durability, LossCause, ManualClock, Outcome, Request, Store, SyncBy};
use hooks::{Woken, block_on, poll};
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
