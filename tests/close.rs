//! Closing a store, with claims, waiters and clones still about.
#![cfg(not(loom))] // real threads wait here
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)]
mod hooks;

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{
    AdminError, Builder, Claim, ClaimError, Durability, EndedBy, ExpiredLease, Fault, OpenError, Outcome,
    Request, RetryCause, SettleError, Settled, StorageError, Store,
};
use faults::{Faulty, Syncs};
use hooks::{At, CallsBack, Hooked, comes_back, poll};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const IN_TIME: Duration = Duration::from_secs(20);

fn builder(place: &(impl Backend + Clone + 'static)) -> Builder {
    Store::builder(place.clone()).lock_wait(Duration::ZERO)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < IN_TIME, "never came about: {what}");
        thread::yield_now();
    }
}

fn is_closed(told: &Result<Outcome, ClaimError>) -> bool {
    matches!(told, Err(ClaimError::Failed { fault: Fault::Closed, .. }))
}

fn close_fences_and_frees(place: &(impl Backend + Clone + 'static)) {
    let store = builder(place).open().unwrap();
    let clone = store.clone();
    let claims: Vec<_> = [Durability::Full, Durability::Result, Durability::Relaxed]
        .into_iter()
        .map(|durability| grant(&store, Request::new(format!("{durability:?}")).durability(durability)))
        .collect();
    grant(&store, "done").complete("done").unwrap();
    let waiter = {
        let store = store.clone();
        thread::spawn(move || store.claim(Request::new("Full").wait(HOUR)))
    };
    until("it waits", || store.stats().waiters == 1);
    assert!(matches!(builder(place).open(), Err(OpenError::Locked { .. })), "one opening at a time (rule 9)");

    store.close().unwrap();
    until("P6 never stuck: close wakes those who wait", || waiter.is_finished());
    let told = waiter.join().unwrap();
    assert!(is_closed(&told), "P6 never stuck: a waiter of a closed store was told {told:?}");
    assert!(is_closed(&clone.claim("done")) && is_closed(&clone.claim("new")), "a clone is closed as well");
    assert!(matches!(clone.get("done"), Err(AdminError::Failed { fault: Fault::Closed, .. })));
    assert!(matches!(clone.remove("done"), Err(AdminError::Failed { fault: Fault::Closed, .. })));
    assert!(clone.sync().is_err());
    clone.close().expect("closing again does nothing");

    // The guards of the old opening are alive, and so are its handles.
    let second = builder(place).open().expect("close gives the lock back while guards are alive");
    for claim in claims {
        let (key, token) = (claim.key().clone(), claim.token());
        let renewed = claim.renew(HOUR);
        assert!(matches!(renewed, Err(ExpiredLease::Closed { .. })), "P3 fenced: {renewed:?}");
        assert_eq!(claim.remaining(), Duration::ZERO);
        let error = claim.complete("late").expect_err("P3 fenced: close ends the claims of its opening");
        let SettleError::Retry(retry) = error else { panic!("{error:?}") };
        assert!(matches!(retry.cause, RetryCause::Fault(Fault::Closed)), "{:?}", retry.cause);
        let new = grant(&second, &key);
        assert!(new.token() > token, "P2 ordered tokens");
        let durable = key.name() == b"Full";
        assert_eq!(new.attempt(), if durable { 2 } else { 1 });
        if durable {
            assert_eq!(new.previous().map(|p| (p.token, p.ended_by)), Some((token, EndedBy::Reopened)));
        }
        assert!(retry.claim.release().is_err(), "P3 fenced");
        new.complete("new").unwrap();
        let told = second.claim(&key).unwrap().settled().and_then(Settled::completed).unwrap();
        assert_eq!(told.decode::<String>().unwrap(), "new");
    }
    assert!(second.get("done").unwrap().is_some(), "P8 remembered");
    drop((store, clone));
    assert!(builder(place).open().is_err(), "the old handles' end does not free the new opening's lock");
    second.close().unwrap();
}

#[test]
fn close_fences_claims_wakes_waiters_and_frees_memory() {
    close_fences_and_frees(&Mem::new());
    close_fences_and_frees(&Mem::with_power_cuts());
}

#[cfg(feature = "sled")]
#[test]
fn close_fences_claims_wakes_waiters_and_frees_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    close_fences_and_frees(&claimdb::backend::Sled::new(folder.path().join("store")));
}

fn the_last_handle_frees(place: &(impl Backend + Clone + 'static)) {
    let store = builder(place).open().unwrap();
    let (clone, claim) = (store.clone(), grant(&store, "k"));
    drop(store);
    assert!(builder(place).open().is_err(), "a clone is left");
    drop(clone);
    assert!(builder(place).open().is_err(), "a claim is left");
    claim.complete("done").expect("a claim keeps its opening");
    let store = builder(place).open().expect("the last handle frees the lock");
    assert!(store.get("k").unwrap().is_some());
    let scan = store.scan("", "").unwrap();
    drop(store);
    assert!(builder(place).open().is_err(), "a scan is left");
    assert_eq!(scan.count(), 1);
    builder(place).open().expect("the last handle frees the lock");
}

#[test]
fn dropping_the_last_handle_frees_memory() {
    the_last_handle_frees(&Mem::new());
}

#[cfg(feature = "sled")]
#[test]
fn dropping_the_last_handle_frees_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    the_last_handle_frees(&claimdb::backend::Sled::new(folder.path().join("store")));
}

#[test]
fn a_relaxed_result_is_durable_after_close() {
    let mem = Mem::with_power_cuts();
    let store = builder(&mem).open().unwrap();
    grant(&store, Request::new("k").durability(Durability::Relaxed)).complete("done").unwrap();
    store.close().unwrap();
    mem.crash();
    assert!(builder(&mem).open().unwrap().get("k").unwrap().is_some());
}

#[test]
fn close_has_a_bound_in_time_although_a_sync_hangs() {
    let faulty = Faulty::new();
    let store = builder(&faulty).sync_limit(Duration::from_millis(20)).open().unwrap();
    let claim = grant(&store, "k");
    faulty.syncs(Syncs::Hang);
    let start = Instant::now();
    let told = store.close();
    assert!(start.elapsed() < IN_TIME, "close has a bound in time: {:?}", start.elapsed());
    let pending = matches!(told, Err(AdminError::Failed { fault: Fault::SyncPending { .. }, .. }));
    assert!(pending, "P4 durable before told: {told:?}");
    assert!(is_closed(&store.claim("k")), "it is closed all the same");
    assert!(matches!(builder(&faulty).open(), Err(OpenError::Locked { .. })), "a hung sync keeps the lock");
    faulty.syncs(Syncs::Work);
    let second = builder(&faulty).lock_wait(IN_TIME).open().expect("a sync that has ended frees the lock");
    assert!(claim.complete("late").is_err(), "P3 fenced");
    assert_eq!(grant(&second, "k").attempt(), 2);
}

/// The next commit hangs until what is given back is dropped.
fn hang_a_commit(place: &Hooked) -> mpsc::Sender<()> {
    let (held, hangs) = mpsc::channel::<()>();
    place.on(At::Commit, move || assert!(hangs.recv().is_err()));
    held
}

#[test]
fn close_has_a_bound_in_time_although_a_write_hangs() {
    let place = Hooked::new();
    let store = builder(&place).sync_limit(Duration::from_millis(20)).open().unwrap();
    let (claiming, last) = (hang_a_commit(&place), hang_a_commit(&place));
    let claimant = {
        let store = store.clone();
        thread::spawn(move || store.claim("k"))
    };
    until("its write hangs", || place.calls() > 0 && store.stats().entries == 1);
    let closing = store.clone();
    let told = comes_back("close, while a write hangs", move || closing.close());
    let Err(AdminError::Failed { fault: fault @ Fault::EngineInUse { in_waker: false, .. }, .. }) = told
    else {
        panic!("no sync runs, and a write does: {told:?}");
    };
    assert!(!fault.to_string().contains("sync"), "no sync runs: {fault}");
    assert!(matches!(builder(&place).open(), Err(OpenError::Locked { .. })), "a hung write keeps the lock");
    drop((claiming, last));
    assert!(claimant.join().unwrap().is_err(), "P3 fenced");
    builder(&place).lock_wait(IN_TIME).open().expect("a write that has ended frees the lock");
}

#[test]
fn dropping_the_last_handle_has_a_bound_in_time_although_a_write_hangs() {
    let place = Hooked::new();
    let store = builder(&place).sync_limit(Duration::from_millis(20)).open().unwrap();
    let last = hang_a_commit(&place);
    comes_back("the last handle is dropped, while a write hangs", move || drop(store));
    drop(last);
    builder(&place).lock_wait(IN_TIME).open().expect("a write that has ended frees the lock");
}

#[test]
fn a_store_that_its_own_waker_closes_makes_its_last_sync_and_goes() {
    let faulty = Faulty::new();
    let store = builder(&faulty).open().unwrap();
    let claim = grant(&store, "k");
    let told = Arc::new(Mutex::new(None));
    let waker = {
        let (store, told) = (store.clone(), Arc::clone(&told));
        Arc::new(CallsBack(move || {
            let relaxed = grant(&store, Request::new("relaxed").durability(Durability::Relaxed));
            relaxed.complete("done").unwrap();
            told.lock().unwrap().get_or_insert(store.close());
        }))
    };
    faulty.syncs(Syncs::Hang);
    let mut completing = Box::pin(claim.complete_async("done"));
    assert!(poll(completing.as_mut(), &waker).is_pending());
    faulty.syncs(Syncs::Work);
    until("its waker has closed the store", || told.lock().unwrap().is_some());
    let told = told.lock().unwrap().take();
    let Some(Err(AdminError::Failed { fault: fault @ Fault::EngineInUse { in_waker: true, .. }, .. })) = told
    else {
        panic!("it could not wait for its own thread: {told:?}");
    };
    assert!(fault.to_string().contains("waker"), "{fault}");
    // Looked at beside the store: an opening would make the sync that this one has to make.
    until("the lock goes once the waker is through", || faulty.open().is_ok());
    faulty.crash();
    let store = builder(&faulty).open().unwrap();
    assert!(store.get("k").unwrap().is_some(), "P4 durable before told");
    assert!(store.get("relaxed").unwrap().is_some(), "the last sync was not made");
}

#[derive(Debug, Clone)]
struct PanicsAtItsEnd(Mem);

#[derive(Debug)]
struct Ending(Box<dyn Engine>);

impl Backend for PanicsAtItsEnd {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(Ending(self.0.open()?)))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        panic!("this engine panics on purpose");
    }
}

impl Engine for Ending {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.0.commit(commits)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
    }
}

#[test]
fn an_engine_that_panics_when_it_is_dropped_is_an_error_of_close() {
    let place = PanicsAtItsEnd(Mem::new());
    let store = builder(&place).open().unwrap();
    grant(&store, "k").complete("done").unwrap();
    for _ in 0..2 {
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.close()));
        let told = told.expect("an engine that panics harms nobody");
        let Err(AdminError::Failed { fault: Fault::Storage(error), .. }) = told else { panic!("{told:?}") };
        assert!(error.to_string().contains("panicked"), "{error}");
    }
    drop(builder(&place).open().expect("the lock is free"));
}

#[test]
fn what_a_failed_sync_left_behind_is_told_as_closed_once_it_is() {
    let faulty = Faulty::new();
    let store = builder(&faulty).open().unwrap();
    let mut stored = grant(&store, "stored");
    let in_memory = grant(&store, Request::new("in memory").durability(Durability::Result));
    faulty.syncs(Syncs::Fail);
    store.sync().expect_err("it fails on purpose");
    store.close().expect_err("a sync failed");
    let retried = |told: Result<(), SettleError>| match told {
        Err(SettleError::Retry(retry)) => retry.cause.to_string(),
        told => panic!("of a closed store a holder was told {told:?}"),
    };
    let told = [
        stored.checkpoint("half").unwrap_err().to_string(),
        retried(stored.complete("done")),
        retried(in_memory.release()),
        store.claim("k").unwrap_err().to_string(),
        store.get("k").unwrap_err().to_string(),
        store.remove("k").unwrap_err().to_string(),
        store.sync().unwrap_err().to_string(),
        store.kv("values").put("a", "1").unwrap_err().to_string(),
        store.kv("values").get("a").unwrap_err().to_string(),
    ];
    for told in told {
        assert!(told.contains("closed"), "rule 9: of a closed store somebody was told: {told}");
    }
}
