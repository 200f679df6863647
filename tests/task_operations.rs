//! Every operation that may wait, as a task does it: what it is told and when, and what it leaves behind when it is
//! dropped.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // an executor of its own, from outside
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say
#![cfg(not(loom))]

#[path = "support/faults.rs"]
#[allow(dead_code)]
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)]
mod hooks;
#[path = "support/operations.rs"]
mod operations;

use claimdb::{
    Claim, ClaimError, Durability, ManualClock, Outcome, Request, Resolution, Run, RunError, Store, SyncBy,
    Writes, backend::Mem,
};
use faults::{Faulty, Syncs};
use hooks::{At, Hooked, Woken, block_on, poll};
use operations::{QUARANTINE, claim, operations, readers};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

struct World {
    store: Store,
    faulty: Faulty,
    clock: ManualClock,
}

/// Lets syncs go on when a test has failed: the store, which is dropped afterwards, would wait for them.
struct Unhang(Faulty);

impl Drop for Unhang {
    fn drop(&mut self) {
        self.0.syncs(Syncs::Work);
    }
}

/// A store with the settled key `settled`, the interrupted key `case` and the plain values `old` and `gone`.
fn world() -> World {
    let (faulty, clock) = (Faulty::new(), ManualClock::new());
    let store =
        Store::builder(faulty.clone()).clock(clock.clone()).sweep_every(Duration::ZERO).open().unwrap();
    claim(&store, "settled").complete("done").unwrap();
    let case = Request::new("case").on_interrupt(QUARANTINE);
    drop(store.claim(&case).unwrap().granted().unwrap());
    assert!(matches!(store.claim("case").unwrap(), Outcome::Interrupted(_)));
    store.write(Writes::new().put("v", "old", "1").put("v", "gone", "1")).unwrap();
    assert_eq!(store.stats().entries, 0);
    World { store, faulty, clock }
}

#[test]
fn no_task_is_told_before_its_sync() {
    for (name, operation) in operations() {
        let World { store, faulty, .. } = world();
        let mut told = operation(&store);
        faulty.syncs(Syncs::Hang);
        let _unhang = Unhang(faulty.clone());
        let woken = Woken::new();
        let first = poll(told.as_mut(), &woken);
        assert!(first.is_pending(), "P4 durable before told: {name} was told {first:?}");
        faulty.until_a_sync_hangs();
        let second = poll(told.as_mut(), &woken);
        assert!(second.is_pending(), "P4 durable before told: {name} was told {second:?}");
        faulty.syncs(Syncs::Work);
        assert_eq!(block_on(told), Ok(()), "{name}");
        assert_eq!(store.stats().entries, 0, "{name}");
    }
}

#[test]
fn no_reading_task_is_told_of_what_is_not_durable() {
    for (name, reader) in readers() {
        let World { store, faulty, .. } = world();
        let claim =
            store.claim(Request::new("unsynced").durability(Durability::Result)).unwrap().granted().unwrap();
        faulty.syncs(Syncs::Hang);
        let _unhang = Unhang(faulty.clone());
        let writes = Writes::new().put("v", "new", "2").put_value("v", "number", &2_u8).delete("v", "gone");
        let mut writer = claim.complete_with_async("done", writes);
        let woken = Woken::new();
        assert!(poll(Pin::new(&mut writer), &woken).is_pending());
        let mut told = reader(&store);
        let first = poll(told.as_mut(), &woken);
        assert!(first.is_pending(), "P4 durable before told: {name} was told {first:?}");
        // Whether or not the writer still asks.
        drop(writer);
        faulty.syncs(Syncs::Work);
        assert_eq!(block_on(told), Ok(()), "{name}");
        assert_eq!(store.stats().entries, 0, "{name}");
    }
}

#[test]
fn a_task_dropped_at_any_poll_leaves_nothing_behind() {
    for (name, operation) in operations() {
        for n in 0.. {
            let World { store, faulty, .. } = world();
            let mut told = operation(&store);
            let woken = Woken::new();
            let mut ready = false;
            for _ in 0..n {
                faulty.syncs(Syncs::Hang);
                ready = poll(told.as_mut(), &woken).is_ready();
                faulty.syncs(Syncs::Work);
                if ready {
                    break;
                }
                // The sync that this poll asked for: the next one gets further.
                store.sync().unwrap();
            }
            drop(told);
            store.sync().unwrap();
            let left = store.stats();
            assert_eq!(
                (left.waiters, left.unsynced, left.live_claims),
                (0, 0, 0),
                "{name}, dropped at poll {n}"
            );
            for key in ["k", "l"] {
                match store.claim(key).unwrap() {
                    // A claim that had been granted, and went with the future, was an attempt.
                    Outcome::Granted(claim) => {
                        let attempts = if name.starts_with("claim") { 1 } else { 2 };
                        assert!(
                            claim.attempt() <= attempts,
                            "rule 15: never granted costs no attempt; {name}, dropped at poll {n}"
                        );
                        claim.release().unwrap();
                    }
                    Outcome::Settled(_) => {}
                    Outcome::Interrupted(case) => {
                        assert!(name.contains("quarantine"), "{name}, dropped at poll {n}");
                        assert!(store.resolve(key, case.token(), Resolution::released()).unwrap());
                    }
                    other => panic!("P6 never stuck: {name}, dropped at poll {n}: {other:?}"),
                }
            }
            assert_eq!(store.stats().entries, 0, "{name}, dropped at poll {n}");
            if ready {
                break;
            }
        }
    }
}

#[test]
fn a_task_keeps_its_deadline_while_a_sync_hangs() {
    for (name, operation) in operations() {
        let World { store, faulty, clock } = world();
        let mut told = operation(&store);
        faulty.syncs(Syncs::Hang);
        let _unhang = Unhang(faulty.clone());
        let woken = Woken::new();
        assert!(poll(told.as_mut(), &woken).is_pending(), "{name}");
        // The sync limit; a step of less than the lease would do as well.
        clock.advance(30 * SEC);
        let told = block_on(told);
        assert!(told.is_err(), "P6 never stuck, P4 durable before told: {name} was told {told:?}");
        faulty.syncs(Syncs::Work);
    }
}

#[test]
fn a_dropped_scan_turns_no_page() {
    let World { store, faulty, .. } = world();
    let mut scan = store.kv("v").scan("").unwrap();
    faulty.syncs(Syncs::Hang);
    let woken = Woken::new();
    let mut put = store.kv("v").put_async("new", "2");
    assert!(poll(Pin::new(&mut put), &woken).is_pending());
    {
        let next = pin!(scan.next_async());
        assert!(poll(next, &woken).is_pending());
    }
    faulty.syncs(Syncs::Work);
    let found: Vec<_> = scan.map(|pair| pair.unwrap().0).collect();
    assert_eq!(found, [&b"gone"[..], b"new", b"old"]);
}

#[test]
fn a_lock_goes_to_the_task_that_waits() {
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).open().unwrap();
    let held = store.lock("l", Duration::ZERO).unwrap().unwrap();
    let (mut first, mut second) = (store.lock_async("l", SEC), store.lock_async("l", SEC));
    let woken = Woken::new();
    assert!(poll(Pin::new(&mut first), &woken).is_pending());
    assert!(poll(Pin::new(&mut second), &woken).is_pending());
    drop(held);
    drop(first); // chosen, and gone
    let lock = block_on(second).unwrap().expect("P6 never stuck: the turn died with the first");
    assert!(block_on(store.lock_async("l", Duration::ZERO)).unwrap().is_none());
    drop(lock);
    assert_eq!(store.stats().entries, 0);
    let told = block_on(store.lock_async("l", Duration::from_secs(90_000)));
    assert!(matches!(told, Err(ClaimError::InvalidRequest(_))), "{told:?}");
}

#[test]
fn work_of_a_task_is_nested_wherever_it_is_polled() {
    let store = Store::builder(Mem::new()).open().unwrap();
    let other = store.clone();
    let work = async |claim: &Claim| {
        // Gives its thread away once, and goes on on another.
        let mut polled = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let nested = other.claim_async(Request::new(claim.key()).wait(100 * SEC)).await;
        assert!(matches!(nested, Err(ClaimError::Nested { .. })), "P6 never stuck, nested: {nested:?}");
        Ok::<_, String>(7)
    };
    let mut run = Box::pin(store.run_async("k", work));
    let woken = Woken::new();
    while store.stats().granted == 0 {
        assert!(poll(run.as_mut(), &woken).is_pending());
    }
    // Between two polls this thread does no work of the key: its claim is no nested one.
    assert!(matches!(store.claim("k").unwrap(), Outcome::InFlight(_)));
    let told = std::thread::scope(|scope| scope.spawn(|| block_on(run)).join().unwrap());
    assert!(matches!(told, Ok(Run::Fresh(7))), "{told:?}");
}

#[test]
fn work_of_a_task_settles_as_that_of_a_thread() {
    let World { store, .. } = world();
    let fails = block_on(store.run_async("k", async |_: &Claim| Err::<u8, _>("declined")));
    assert!(matches!(fails, Err(RunError::Work("declined"))));
    assert_eq!(claim(&store, "k").attempt(), 1, "a failure releases");
    let large = block_on(store.run_async("large", async |_: &Claim| Ok::<_, String>("x".repeat(2 << 20))));
    assert_eq!(large.unwrap().into_value().len(), 2 << 20, "P8: the caller keeps its value");
    let again = block_on(store.run_async("large", async |_: &Claim| -> Result<String, String> {
        panic!("P8 remembered: finished work ran again")
    }));
    assert!(matches!(again, Err(RunError::Refused(claimdb::Refused::Omitted(_)))), "{again:?}");
    // Dropped while it works: the claim is dropped.
    let mut run = Box::pin(store.run_async("gone", async |_: &Claim| {
        std::future::pending::<()>().await;
        Ok::<u8, String>(1)
    }));
    let woken = Woken::new();
    let granted = store.stats().granted;
    while store.stats().granted == granted {
        assert!(poll(run.as_mut(), &woken).is_pending());
    }
    drop(run);
    assert_eq!(claim(&store, "gone").attempt(), 2, "P6: a dropped future frees its key as the next attempt");
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_store_closes_beside_a_task_that_is_polled_no_more() {
    for (name, operation) in operations() {
        let World { store, faulty, clock } = world();
        let mut told = operation(&store);
        faulty.syncs(Syncs::Hang);
        let _unhang = Unhang(faulty.clone());
        let woken = Woken::new();
        assert!(poll(told.as_mut(), &woken).is_pending(), "{name}");
        faulty.syncs(Syncs::Work);
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| store.close());
            for _ in 0..10_000_000_u64 {
                if closing.is_finished() {
                    break;
                }
                std::thread::yield_now();
            }
            // Should it still wait for something, its bound is over now, and it says for what.
            clock.advance(60 * SEC);
            let closed = closing.join().unwrap();
            closed.unwrap_or_else(|error| panic!("rule 9: {name} keeps the store from closing: {error}"));
        });
        Store::builder(faulty.clone())
            .open()
            .unwrap_or_else(|error| panic!("{name} keeps the lock: {error}"));
        drop(told);
    }
}

/// Where callers sync, a task that is woken to sync what it wrote is dropped instead: whoever waits for the key already
/// is woken and does.
#[test]
fn a_task_that_is_dropped_when_it_should_sync_leaves_that_to_a_waiter() {
    let place = Hooked::new();
    let store = Store::builder(place.clone()).sync_by(SyncBy::Caller).clock(ManualClock::new());
    let store = store.sweep_every(Duration::ZERO).open().unwrap();
    let request = Request::new("k").durability(Durability::Result);
    let claim = store.claim(request).unwrap().granted().unwrap();
    let (completer, waiter) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let woken = Woken::new();
    let (completing, parked, wakes, other) =
        (Arc::clone(&completer), Arc::clone(&waiter), Arc::clone(&woken), store.clone());
    // While somebody syncs, what is written then is left to the next sync.
    place.on(At::Sync, move || {
        let mut complete = Box::pin(claim.complete_async("done"));
        assert!(poll(complete.as_mut(), &Woken::new()).is_pending());
        *completing.lock().unwrap() = Some(complete);
        let mut wait = Box::pin(other.claim_async(Request::new("k").wait(60 * SEC)));
        assert!(poll(wait.as_mut(), &wakes).is_pending());
        *parked.lock().unwrap() = Some(wait);
    });
    store.kv("v").put("other", "1").unwrap();
    let (completer, mut waiter) =
        (completer.lock().unwrap().take().unwrap(), waiter.lock().unwrap().take().unwrap());
    assert_eq!(woken.count(), 0, "the test tests nothing: the waiter was woken before");
    drop(completer);
    assert!(woken.count() > 0, "P6 never stuck: nobody was told to sync what a task had written");
    assert!(matches!(poll(waiter.as_mut(), &woken), Poll::Ready(Ok(Outcome::Settled(_)))), "P6 never stuck");
}
