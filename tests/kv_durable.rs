//! Plain values told once they are durable: syncs that hang and fail, power cuts, closed stores.
#![cfg(not(loom))] // real threads wait here
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::backend::Mem;
use claimdb::{
    Compared, Durability, Fault as Cause, KvError, KvScan, Outcome, Request, SettleError, Store, SyncBy,
    Writes,
};
use faults::{Fault, Faulty, Syncs};
use std::thread;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(300);
const IN_TIME: Duration = Duration::from_secs(20);

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < IN_TIME, "never came about: {what}");
        thread::yield_now();
    }
}

fn fault<T: std::fmt::Debug>(told: Result<T, KvError>) -> Cause {
    match told {
        Err(KvError::Failed { fault, .. }) => fault,
        other => panic!("P4 durable before told: expected a fault, was told {other:?}"),
    }
}

fn is_pending<T: std::fmt::Debug>(told: Result<T, KvError>) -> bool {
    matches!(fault(told), Cause::SyncPending { .. })
}

fn is_poisoned<T: std::fmt::Debug>(told: Result<T, KvError>) -> bool {
    matches!(fault(told), Cause::Poisoned(_))
}

fn is_closed<T: std::fmt::Debug>(told: Result<T, KvError>) -> bool {
    matches!(fault(told), Cause::Closed)
}

#[test]
fn a_power_cut_takes_nothing_that_was_told() {
    for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
        let mem = Mem::with_power_cuts();
        let open = || Store::builder(mem.clone()).durability(durability).open().unwrap();
        let store = open();
        let values = store.kv("v");
        values.put("a", "1").unwrap();
        values.put("b", "1").unwrap();
        values.delete("b").unwrap();
        store.write(Writes::new().put("v", "c", "1").put("v", "d", "1")).unwrap();
        assert!(values.compare_and_swap("e", None, Some(b"1")).unwrap().is_swapped());
        mem.crash();
        let found = open().kv("v").scan("").unwrap().map(|pair| pair.unwrap().0).collect::<Vec<_>>();
        let expected = if durability == Durability::Relaxed { "" } else { "acde" };
        assert_eq!(found.concat(), expected.as_bytes(), "P4 durable before told: {durability:?}");
    }
    let mem = Mem::with_power_cuts();
    let store = Store::builder(mem.clone()).durability(Durability::Relaxed).open().unwrap();
    store.kv("v").put("a", "1").unwrap();
    store.sync().unwrap();
    mem.crash();
    assert!(Store::builder(mem).open().unwrap().kv("v").get("a").unwrap().is_some());
}

#[test]
fn what_no_finished_sync_covers_is_told_to_nobody() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
    let values = store.kv("v");
    values.put("old", "1").unwrap();
    values.put("gone", "1").unwrap();
    let claim = store.claim(Request::new("k").durability(Durability::Result)).unwrap().granted().unwrap();
    faulty.syncs(Syncs::Hang);
    assert!(is_pending(values.put("put", "1")));
    assert!(is_pending(values.delete("gone")));
    assert!(is_pending(store.write(Writes::new().put("v", "w1", "1").put("v", "w2", "1"))));
    assert!(is_pending(values.compare_and_swap("cas", None, Some(b"1")).map(drop)));
    let told = claim.complete_with("done", Writes::new().put("v", "e1", "1").put("v", "e2", "1"));
    assert!(matches!(told, Err(SettleError::Retry(_))), "P4 durable before told: {told:?}");
    for key in ["put", "gone", "w1", "w2", "cas", "e1", "e2"] {
        assert!(is_pending(values.get(key)), "P4 durable before told: {key}");
        assert!(is_pending(values.compare_and_swap(key, Some(b"x"), None).map(drop)), "{key}");
        let scanned = values.scan(key).unwrap().collect::<Result<Vec<_>, _>>();
        assert!(is_pending(scanned), "P4 durable before told: a scan told of {key}");
    }
    // What needs no sync is told as ever.
    assert_eq!(values.get("old").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(values.get("absent").unwrap(), None);
    assert_eq!(values.scan("old").unwrap().count(), 1);
    assert_eq!(store.kv("other").scan("").unwrap().count(), 0);

    faulty.syncs(Syncs::Work);
    until("syncs go on", || store.sync().is_ok());
    let found: Vec<_> = store.kv("v").scan("").unwrap().map(|pair| pair.unwrap().0).collect();
    assert_eq!(found.concat(), b"case1e2oldputw1w2");
    let Err(SettleError::Retry(retry)) = told else { unreachable!("seen above") };
    retry.claim.complete_with("done", Writes::new().put("v", "e1", "1").put("v", "e2", "1")).unwrap();
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_scan_waits_for_the_marks_of_its_own_page_alone() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
    let values = store.kv("v");
    let name = |number: usize| format!("{number:03}");
    for number in 0..3 * KvScan::PAGE {
        values.put(name(number), "1").unwrap();
    }
    let begun = || {
        let mut scan = values.scan("").unwrap();
        scan.next().unwrap().unwrap();
        scan
    };
    let (first, second) = (begun(), begun());
    faulty.syncs(Syncs::Hang);
    let last = KvScan::PAGE - 1;
    assert!(is_pending(values.put(name(last), "2")));
    let told = first.map(|told| told.expect("no page waits for what lies before it"));
    assert_eq!(told.count(), 3 * KvScan::PAGE - 1);
    let told = values.scan("").unwrap().next().unwrap();
    assert!(is_pending(told), "P4 durable before told: the last of a page");

    assert!(is_pending(values.put(name(last + 2), "2")));
    let told: Vec<_> = second.collect();
    assert_eq!(told.len(), last + 1, "what was left of the first page, and an error");
    assert!(is_pending(told.into_iter().next_back().unwrap()), "P4 durable before told: within a page");
    let told = values.scan("2").unwrap().map(|told| told.expect("no scan waits for what is none of it"));
    assert_eq!(told.count(), 100);
}

#[test]
fn a_reader_waits_for_the_sync_and_is_told_then() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).open().unwrap();
    store.kv("v").put("gone", "1").unwrap();
    faulty.syncs(Syncs::Hang);
    thread::scope(|scope| {
        let writer = scope.spawn(|| store.write(Writes::new().put("v", "a", "1").delete("v", "gone")));
        until("it is written", || store.stats().unsynced == 2);
        faulty.until_a_sync_hangs();
        let reader = scope.spawn(|| store.kv("v").get("a").unwrap());
        let swapper = scope.spawn(|| store.kv("v").compare_and_swap("a", None, None).unwrap());
        let scanner = scope.spawn(|| store.kv("v").scan("").unwrap().map(Result::unwrap).collect::<Vec<_>>());
        until("they wait", || store.stats().waiters == 3);
        assert!(!reader.is_finished() && !swapper.is_finished() && !scanner.is_finished());
        faulty.syncs(Syncs::Work);
        writer.join().unwrap().unwrap();
        assert_eq!(reader.join().unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(swapper.join().unwrap(), Compared::Differs { current: Some(b"1".into()) });
        assert_eq!(scanner.join().unwrap(), [(b"a".to_vec(), b"1".to_vec())]);
    });
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_reader_waits_for_what_it_read_and_not_for_later_writes() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).open().unwrap();
    faulty.syncs(Syncs::Hang);
    thread::scope(|scope| {
        scope.spawn(|| store.kv("v").put("hot", "1"));
        faulty.until_a_sync_hangs();
        let reader = scope.spawn(|| store.kv("v").get("hot"));
        until("it has read and waits", || store.stats().waiters == 1);
        scope.spawn(|| store.kv("v").put("hot", "2"));
        until("it is written again", || store.stats().unsynced == 2);
        faulty.syncs(Syncs::One);
        until("a key that is always being written can be read", || reader.is_finished());
        assert_eq!(reader.join().unwrap().unwrap().as_deref(), Some(&b"1"[..]));
        let unsynced = store.stats().unsynced;
        faulty.syncs(Syncs::Work);
        assert_eq!(unsynced, 1, "rule 1: the mark of a write is gone that no finished sync covers");
    });
    assert_eq!(store.kv("v").get("hot").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_write_that_failed_and_landed_is_told_once_it_is_synced() {
    type Told = Result<(), KvError>;
    let writes: [fn(&Store) -> Told; 3] = [
        |store| store.kv("v").put("a", "1"),
        |store| store.kv("v").compare_and_swap("a", None, Some(b"1")).map(drop),
        |store| store.write(Writes::new().put("v", "a", "1").put("v", "b", "1")),
    ];
    for write in writes {
        let faulty = Faulty::new();
        let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
        faulty.syncs(Syncs::Hang);
        faulty.arm(1, 1, Fault::FailAfter);
        write(&store).unwrap_err();
        assert_eq!(faulty.disarm(), ["commit"]);
        assert!(is_pending(store.kv("v").get("a")));
        faulty.syncs(Syncs::Work);
        until("syncs go on", || store.sync().is_ok());
        assert!(store.kv("v").get("a").unwrap().is_some());
    }
}

#[test]
fn after_a_failed_sync_nothing_is_told_that_it_was_to_cover() {
    for syncs in [Syncs::Fail, Syncs::Panic] {
        let faulty = Faulty::new();
        let store = Store::builder(faulty.clone()).open().unwrap();
        let values = store.kv("v");
        values.put("old", "1").unwrap();
        let claim = store.claim(Request::new("k").durability(Durability::Result)).unwrap().granted().unwrap();
        faulty.syncs(syncs);
        let told = claim.complete_with("done", Writes::new().put("v", "e", "1"));
        assert!(matches!(told, Err(SettleError::Retry(_))), "P9 fail closed: {told:?}");
        assert!(is_poisoned(values.get("e")), "P9 fail closed");
        assert!(is_poisoned(values.scan("").unwrap().collect::<Result<Vec<_>, _>>()), "P9 fail closed");
        assert_eq!(values.get("old").unwrap().as_deref(), Some(&b"1"[..]), "a finished sync covers it");
        let stored = faulty.stored(&[3]);
        assert!(is_poisoned(values.put("old", "2")) && is_poisoned(values.delete("old")));
        assert!(is_poisoned(store.write(Writes::new().put("v", "old", "2"))));
        assert!(is_poisoned(values.compare_and_swap("old", Some(b"1"), None).map(drop)));
        assert_eq!(faulty.stored(&[3]), stored, "P9 fail closed: a poisoned store was written to");
    }
}

#[test]
fn after_a_failed_sync_no_value_is_told_if_some_were_written_without_one() {
    let write = |store: &Store, durability| {
        let claim = store.claim(Request::new("k").durability(durability)).unwrap().granted().unwrap();
        claim.complete_with("done", Writes::new().put("v", "e", "1")).unwrap();
    };
    for relaxed in [true, false] {
        let faulty = Faulty::new();
        let store = Store::builder(faulty.clone()).open().unwrap();
        write(&store, if relaxed { Durability::Relaxed } else { Durability::Result });
        assert!(store.kv("v").get("e").unwrap().is_some());
        faulty.syncs(Syncs::Fail);
        store.sync().unwrap_err();
        let told = store.kv("v").get("e");
        if relaxed {
            assert!(is_poisoned(told), "P9 fail closed");
            assert!(is_poisoned(store.kv("v").scan("").unwrap().collect::<Result<Vec<_>, _>>()));
        } else {
            assert!(told.unwrap().is_some(), "a finished sync covers it");
        }
    }
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).durability(Durability::Relaxed).open().unwrap();
    store.kv("v").put("e", "1").unwrap();
    faulty.syncs(Syncs::Fail);
    store.sync().unwrap_err();
    assert!(is_poisoned(store.kv("v").get("e")), "P9 fail closed");
}

#[test]
fn a_closed_store_refuses_and_wakes_those_who_wait() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).sync_limit(Duration::from_secs(5)).open().unwrap();
    let values = store.kv("v");
    values.put("a", "1").unwrap();
    let mut scan = values.scan("").unwrap();
    faulty.syncs(Syncs::Hang);
    thread::scope(|scope| {
        scope.spawn(|| values.put("b", "1"));
        until("it is written", || store.stats().unsynced == 1);
        let reader = scope.spawn(|| values.get("b"));
        until("it waits", || store.stats().waiters == 1);
        let closer = scope.spawn(|| store.close());
        until("P6 never stuck: close wakes readers", || reader.is_finished());
        assert!(is_closed(reader.join().unwrap()));
        faulty.syncs(Syncs::Work);
        closer.join().unwrap().unwrap();
    });
    assert!(is_closed(values.get("a")) && is_closed(values.put("a", "2")) && is_closed(values.delete("a")));
    assert!(is_closed(store.write(Writes::new().put("v", "a", "2"))));
    assert!(is_closed(values.compare_and_swap("a", None, None)));
    assert!(is_closed(scan.next().unwrap()) && scan.next().is_none());
    let again = Store::builder(faulty).open().unwrap();
    assert_eq!(again.kv("v").scan("").unwrap().count(), 2, "close makes durable what was written");
}

#[test]
fn a_reader_syncs_what_a_writer_that_failed_has_left() {
    let faulty = Faulty::new();
    let builder = Store::builder(faulty.clone()).sync_by(SyncBy::Caller).sync_limit(SHORT);
    let store = builder.open().unwrap();
    faulty.arm(1, 1, Fault::FailAfter);
    assert!(store.kv("v").put("a", "1").is_err());
    assert_eq!(faulty.disarm(), ["commit"]);
    assert_eq!(store.kv("v").get("a").unwrap().as_deref(), Some(&b"1"[..]), "nobody else would sync it");
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn tasks_complete_with_effects() {
    let store = Store::builder(Mem::with_power_cuts()).sync_by(SyncBy::Caller).open().unwrap();
    let Outcome::Granted(claim) = store.claim("k").unwrap() else { panic!() };
    let mut settle = std::pin::pin!(claim.complete_with_async("done", Writes::new().put("v", "e", "1")));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let told = std::future::Future::poll(settle.as_mut(), &mut context);
    assert!(matches!(told, std::task::Poll::Ready(Ok(()))), "{told:?}");
    assert!(store.kv("v").get("e").unwrap().is_some());
}

#[test]
fn after_a_failed_sync_values_are_refused_if_any_of_them_was_written_without_one() {
    for durability in [Durability::Full, Durability::Relaxed] {
        let faulty = Faulty::new();
        let store = Store::builder(faulty.clone()).durability(durability).open().unwrap();
        let values = store.kv("v");
        values.put("early", "1").unwrap();
        let claim = store.claim("k").unwrap().granted().unwrap();
        claim.complete_with("done", Writes::new().put("v", "beside", "2")).unwrap();
        faulty.syncs(Syncs::Fail);
        if durability == Durability::Relaxed {
            values.put("late", "3").expect("it asks for no sync");
        }
        assert!(store.sync().is_err());
        for key in ["early", "beside", "none"] {
            let told = values.get(key);
            match durability {
                Durability::Relaxed => {
                    assert!(is_poisoned(told), "P9 fail closed: nothing says which is lost")
                }
                _ => assert_eq!(told.unwrap().is_some(), key != "none", "{key} is durable"),
            }
        }
    }
}
