//! Recorders and subscribers that panic: their loss, and not the store's. In real time where syncs are waited for: no manual
//! clock would end a wait for one that nobody makes.

use crate::faults::{Faulty, Syncs};
use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{ClaimError, Fault, ManualClock, OpenError, Outcome, Settled, StorageError, Store, SyncBy};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

/// Real time, for the test alone: what has not come about by then never will.
const IN_TIME: Duration = Duration::from_secs(20);

/// A recorder whose every handle panics once it is told to.
#[derive(Clone, Default)]
struct Panics(Arc<AtomicBool>);

impl Panics {
    fn told(&self) {
        assert!(!self.0.load(Ordering::Relaxed), "on purpose");
    }
}

impl CounterFn for Panics {
    fn increment(&self, _: u64) {
        self.told();
    }

    fn absolute(&self, _: u64) {
        self.told();
    }
}

impl GaugeFn for Panics {
    fn increment(&self, _: f64) {
        self.told();
    }

    fn decrement(&self, _: f64) {
        self.told();
    }

    fn set(&self, _: f64) {
        self.told();
    }
}

impl HistogramFn for Panics {
    fn record(&self, _: f64) {
        self.told();
    }
}

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(self.clone()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.clone()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(self.clone()))
    }
}

/// A subscriber that panics at the beginning of a sync's span, or at what is recorded of it, and at each event.
struct AtSyncs {
    begins: bool,
}

const SYNC: u64 = 2;

impl Subscriber for AtSyncs {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let is_sync = span.metadata().name() == "sync";
        assert!(!(is_sync && self.begins), "on purpose");
        Id::from_u64(if is_sync { SYNC } else { 1 })
    }

    fn record(&self, span: &Id, _: &Record<'_>) {
        assert!(span.into_u64() != SYNC, "on purpose");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        // Not at what sled logs, which would be a panic of its own.
        assert!(!event.metadata().target().starts_with("claimdb"), "on purpose");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Completes a key and has another read it; tells whether all of that went as ever.
fn completes(store: &Store, key: &str) -> bool {
    let complete = || {
        let claim = store.claim(key).ok()?.granted()?;
        claim.complete("done").ok()?;
        Some(matches!(store.claim(key), Ok(Outcome::Settled(Settled::Completed(_)))))
    };
    catch_unwind(AssertUnwindSafe(complete)).ok().flatten() == Some(true)
}

#[test]
fn a_recorder_that_panics_stops_no_sync_and_no_claim() {
    for sync_by in [SyncBy::Thread, SyncBy::Caller] {
        let panics = Panics::default();
        let builder = Store::builder(Faulty::new()).sync_by(sync_by).sync_limit(Duration::from_secs(20));
        let store = metrics::with_local_recorder(&panics, || builder.open()).unwrap();
        panics.0.store(true, Ordering::Relaxed);
        let completed = ["one", "two"].map(|key| completes(&store, key));
        panics.0.store(false, Ordering::Relaxed);
        assert_eq!(
            completed, [true; 2],
            "P6 never stuck: {sync_by:?}: a recorder that panics has stopped the store"
        );
        store.close().unwrap();
    }
}

#[test]
fn a_recorder_that_panics_over_an_overrun_does_not_panic_in_a_drop() {
    let (panics, clock) = (Panics::default(), ManualClock::new());
    let builder = Store::builder(Faulty::new()).clock(clock.clone()).sync_by(SyncBy::Caller);
    let store = metrics::with_local_recorder(&panics, || builder.open()).unwrap();
    let claim = store.claim("k").unwrap().granted().expect("nobody else has it");
    clock.advance(claim.remaining());
    panics.0.store(true, Ordering::Relaxed);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(claim)));
    panics.0.store(false, Ordering::Relaxed);
    assert!(dropped.is_ok(), "P6 never stuck: a drop has panicked");
    assert!(store.claim("k").unwrap().granted().is_some(), "P6 never stuck: the claim was dropped");
}

#[test]
fn a_subscriber_that_panics_at_a_sync_stops_no_other() {
    for begins in [true, false] {
        let builder =
            Store::builder(Faulty::new()).sync_by(SyncBy::Caller).sync_limit(Duration::from_secs(1));
        let store = builder.open().unwrap();
        let complete = || ["one", "two"].map(|key| completes(&store, key));
        let completed = tracing::subscriber::with_default(AtSyncs { begins }, complete);
        assert_eq!(completed, [true; 2], "P6 never stuck: a subscriber that panics has stopped the syncs");
        store.close().unwrap();
    }
}

#[test]
fn a_store_opens_though_the_subscriber_panics_over_what_it_finds() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("store");
    let open = || Store::open(&folder);
    open().unwrap().claim("k").unwrap().granted().expect("it is free").complete("done").unwrap();
    std::fs::remove_file(folder.join("clean")).unwrap();
    let opened =
        tracing::subscriber::with_default(AtSyncs { begins: false }, || catch_unwind(AssertUnwindSafe(open)));
    let store = opened.expect("P6 never stuck: a subscriber that panics has stopped an opening").unwrap();
    assert!(store.get("k").unwrap().is_some());
}

#[test]
fn a_failed_sync_poisons_though_the_subscriber_panics_over_it() {
    let drive = Faulty::new();
    let builder = Store::builder(drive.clone()).sync_by(SyncBy::Caller).sync_limit(Duration::from_secs(1));
    let store = builder.open().unwrap();
    drive.syncs(Syncs::Fail);
    let sync = || catch_unwind(AssertUnwindSafe(|| store.sync()));
    let told = tracing::subscriber::with_default(AtSyncs { begins: false }, sync);
    assert!(!matches!(told, Ok(Ok(()))), "P9 fail closed: a failed sync was told as one that ended well");
    drive.syncs(Syncs::Work);
    let told = store.claim("k");
    let poisoned = matches!(told, Err(ClaimError::Failed { fault: Fault::Poisoned(_), .. }));
    assert!(poisoned, "P9 fail closed: a failed sync went unnoticed: {told:?}");
}

/// Memory that panics when its room is asked for the second time.
#[derive(Debug, Clone, Default)]
struct Roomy {
    mem: Mem,
    asked: Arc<AtomicU64>,
}

#[derive(Debug)]
struct RoomyEngine(Box<dyn Engine>, Arc<AtomicU64>);

impl Backend for Roomy {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(RoomyEngine(self.mem.open()?, Arc::clone(&self.asked))))
    }
}

impl Engine for RoomyEngine {
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

    fn room(&self) -> Result<(), StorageError> {
        let before = self.1.fetch_add(1, Ordering::SeqCst);
        assert!(before != 1, "on purpose");
        Ok(())
    }
}

#[test]
fn an_engine_that_panics_at_a_look_is_looked_at_again() {
    let (roomy, clock, every) = (Roomy::default(), ManualClock::new(), Duration::from_secs(5));
    let builder = Store::builder(roomy.clone()).clock(clock.clone()).watch_every(every);
    let store = builder.sweep_every(Duration::ZERO).open().unwrap();
    for look in 2..=4 {
        clock.advance(every);
        let start = Instant::now();
        while roomy.asked.load(Ordering::SeqCst) < look {
            assert!(start.elapsed() < IN_TIME, "P6 never stuck: nobody looks for the look number {look}");
            std::thread::yield_now();
        }
    }
    store.close().unwrap();
}
