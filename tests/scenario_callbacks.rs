//! Code of the caller's that the store runs, or that runs the store in the middle of its own calls: wakers that call
//! back, wakers that panic.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::Mem;
use claimdb::{Durability, ManualClock, Outcome, Request, Store};
use hooks::{CallsBack, Woken, block_on, comes_back, poll, until};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

fn world() -> (Store, ManualClock) {
    let clock = ManualClock::new();
    (Store::builder(Mem::new()).clock(clock.clone()).open().unwrap(), clock)
}

/// How a key is freed, and so on which thread its waiters are woken.
#[derive(Debug, Clone, Copy)]
enum End {
    /// On the holder's.
    Drop,
    Release,
    /// On the one that syncs.
    Complete,
    /// On the one that rings alarms.
    Deadline,
}

const ENDS: [End; 4] = [End::Drop, End::Release, End::Complete, End::Deadline];

#[test]
fn a_waker_may_use_the_store_it_was_woken_by() {
    for end in ENDS {
        comes_back(&format!("DL-04: {end:?} with a waker that calls back"), move || {
            let (store, clock) = world();
            let holder = store.claim("k").unwrap().granted().unwrap();
            let guard = Mutex::new(store.claim("other").unwrap().granted());
            let calls = Arc::new(AtomicUsize::new(0));
            let waker = {
                let (store, calls) = (store.clone(), Arc::clone(&calls));
                Arc::new(CallsBack(move || {
                    // Nothing here waits for a sync: the thread that would do it may be this one.
                    drop(guard.lock().unwrap().take());
                    drop(store.claim("k").unwrap());
                    let memory = Request::new("memory").durability(Durability::Relaxed);
                    drop(store.claim(memory).unwrap());
                    store.inspect("k").unwrap();
                    store.get("k").unwrap();
                    assert!(store.stats().waiters < 9);
                    calls.fetch_add(1, Ordering::SeqCst);
                }))
            };
            let request = Request::new("k").durability(Durability::Result).wait(5 * SEC);
            let mut future = Box::pin(store.claim_async(&request));
            assert!(poll(future.as_mut(), &waker).is_pending());
            match end {
                End::Drop => drop(holder),
                End::Release => holder.release().unwrap(),
                End::Complete => holder.complete("done").unwrap(),
                End::Deadline => {
                    clock.advance(5 * SEC);
                    std::mem::forget(holder);
                }
            }
            until("the waker was called", || calls.load(Ordering::SeqCst) > 0);
            drop(block_on(future).unwrap());
            assert!(store.claim("other").unwrap().granted().is_some(), "its guard was dropped in the waker");
        });
    }
}

#[test]
fn a_waker_that_panics_hurts_nobody_but_its_task() {
    for end in ENDS {
        comes_back(&format!("PN-01: {end:?} with a waker that panics"), move || {
            let (store, clock) = world();
            let holder = store.claim("k").unwrap().granted().unwrap();
            let panics = Arc::new(CallsBack(|| panic!("this waker panics on purpose")));
            let request = Request::new("k").durability(Durability::Result);
            let mut bad = Box::pin(store.claim_async(request.clone().wait(5 * SEC)));
            let mut good = Box::pin(store.claim_async(request.wait(10 * SEC)));
            assert!(poll(bad.as_mut(), &panics).is_pending());
            let woken = Woken::new();
            assert!(poll(good.as_mut(), &woken).is_pending());
            match end {
                End::Drop => drop(holder), // cannot panic
                End::Release => holder.release().unwrap(),
                End::Complete => holder.complete("done").expect("its own settle has nothing to do with it"),
                End::Deadline => {
                    clock.advance(5 * SEC);
                    until("the bad one's alarm rang", || store.stats().timer_overdue == Duration::ZERO);
                    clock.advance(5 * SEC);
                    until("the timer goes on", || woken.count() > 0);
                    std::mem::forget(holder);
                }
            }
            drop(bad);
            let told = block_on(good).unwrap();
            match end {
                End::Drop | End::Release => assert!(matches!(told, Outcome::Granted(_)), "{told:?}"),
                End::Complete => assert!(matches!(told, Outcome::Settled(_)), "{told:?}"),
                End::Deadline => assert!(matches!(told, Outcome::InFlight(_)), "{told:?}"),
            }
            // Syncs, alarms and claims go on.
            store.claim("next").unwrap().granted().unwrap().complete("done").unwrap();
            assert!(!store.stats().poisoned);
        });
    }
}
