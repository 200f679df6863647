//! Where callers sync: a write whose caller is gone is synced by whoever waits for its key. `tests/loom_wait.rs` has the
//! races.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::{Claim, Durability, ManualClock, Outcome, Request, Store, SyncBy};
use faults::{Faulty, Syncs};
use hooks::{At, Hooked, Woken, comes_back, poll, until};
use std::sync::mpsc::channel;
use std::task::Poll;
use std::thread;
use std::time::Duration;

fn open(faulty: &Faulty, sync_by: SyncBy) -> Store {
    let builder = Store::builder(faulty.clone()).clock(ManualClock::new()).sync_by(sync_by);
    builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap()
}

fn grant(store: &Store) -> Claim {
    store.claim(Request::new("k").durability(Durability::Result)).unwrap().granted().unwrap()
}

#[test]
fn what_a_write_that_failed_has_left_is_synced_by_who_waits() {
    let hooked = Hooked::new();
    let builder = Store::builder(hooked.clone()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    let store = builder.sweep_every(Duration::ZERO).open().unwrap();
    let (values, (sender, receiver)) = (store.kv("v"), channel());
    hooked.break_key(Some("a"));
    let reading = values.clone();
    hooked.on(At::Committed, move || {
        let (mut reader, woken) = (Box::pin(reading.get_async("a")), Woken::new());
        assert!(poll(reader.as_mut(), &woken).is_pending(), "P4: the write is not synced");
        sender.send((reader, woken)).unwrap();
    });
    values.put("a", "1").expect_err("it fails on purpose");
    let (mut reader, woken) = receiver.recv().unwrap();
    assert!(woken.count() > 0, "P6 never stuck: nobody is told that the caller of a write is gone");
    assert!(matches!(poll(reader.as_mut(), &woken), Poll::Ready(Ok(None))), "rule 3: nobody synced it");
}

/// A sync hangs that covers another write, and the caller of a removal that it does not cover goes: before that sync ends, or
/// once it was told to look again.
#[test]
fn what_a_caller_has_left_that_waited_for_a_sync_is_synced_by_who_waits() {
    for goes_before in [true, false] {
        let faulty = Faulty::new();
        let store = open(&faulty, SyncBy::Caller);
        grant(&store).complete("done").unwrap();
        faulty.syncs(Syncs::Hang);
        let values = store.kv("v");
        let other = thread::spawn(move || values.put("other", "1"));
        faulty.until_a_sync_hangs();
        let (mut removal, remover) = (Box::pin(store.remove_async("k")), Woken::new());
        assert!(poll(removal.as_mut(), &remover).is_pending(), "P4 durable before told");
        let request = Request::new("k").wait(Duration::from_secs(30));
        let (mut waiter, woken) = (Box::pin(store.claim_async(request)), Woken::new());
        assert!(poll(waiter.as_mut(), &woken).is_pending(), "P4 durable before told");
        let mut removal = Some(removal);
        if goes_before {
            drop(removal.take());
        }
        faulty.syncs(Syncs::Work);
        other.join().unwrap().unwrap();
        if let Some(removal) = removal {
            until("P6: whoever is left is told to sync", || remover.count() > 0);
            drop(removal);
        }
        until("P6: the waiter is told that the remover is gone", || woken.count() > 0);
        let told = poll(waiter.as_mut(), &woken);
        assert!(matches!(told, Poll::Ready(Ok(Outcome::Granted(_)))), "rule 3: nobody synced it: {told:?}");
    }
}

#[test]
fn a_reader_waits_for_no_writer_that_is_not_polled() {
    let faulty = Faulty::new();
    let store = open(&faulty, SyncBy::Caller);
    let values = store.kv("v");
    faulty.syncs(Syncs::Hang);
    let other = {
        let values = values.clone();
        thread::spawn(move || values.put("other", "1"))
    };
    faulty.until_a_sync_hangs();
    let mut write = Box::pin(values.put_async("k", "1"));
    assert!(poll(write.as_mut(), &Woken::new()).is_pending(), "P4 durable before told");
    let (mut reader, woken) = (Box::pin(values.get_async("k")), Woken::new());
    assert!(poll(reader.as_mut(), &woken).is_pending(), "P4 durable before told");
    faulty.syncs(Syncs::Work);
    other.join().unwrap().unwrap();
    until("P6: the reader is told to sync", || woken.count() > 0);
    let told = poll(reader.as_mut(), &woken);
    assert!(matches!(told, Poll::Ready(Ok(Some(_)))), "P6: it waits for the writer's task: {told:?}");
}

#[test]
fn whoever_loses_is_told_so_at_once_while_another_syncs() {
    let faulty = Faulty::new();
    let store = open(&faulty, SyncBy::Caller);
    let claim = grant(&store);
    faulty.syncs(Syncs::Hang);
    let settling = thread::spawn(move || claim.complete("done"));
    faulty.until_a_sync_hangs();
    let loser = store.clone();
    let told = comes_back("P6: who does not wait waits for a sync", move || loser.claim("k"));
    faulty.syncs(Syncs::Work);
    assert!(matches!(told, Ok(Outcome::InFlight(_))), "P4 durable before told: {told:?}");
    settling.join().unwrap().unwrap();
}

#[test]
fn closing_makes_the_same_calls_whoever_syncs() {
    let [by_thread, by_caller] = [SyncBy::Thread, SyncBy::Caller].map(|sync_by| {
        let faulty = Faulty::new();
        let store = open(&faulty, sync_by);
        grant(&store).complete("done").unwrap();
        let (before, syncs) = (faulty.calls(), store.stats().syncs);
        store.close().unwrap();
        (faulty.calls() - before, store.stats().syncs - syncs)
    });
    assert_eq!(by_thread, by_caller);
    assert_eq!(by_caller.1, 1, "the last sync covers everything, and one is enough");
}
