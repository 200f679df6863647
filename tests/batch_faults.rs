//! Several commits in one call, when the engine fails some of them or answers fewer than it was asked.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{
    ClaimError, Durability, Key, ManualClock, OpenError, Outcome, Request, StorageError, Store, SyncBy,
};
use hooks::Hooked;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory that, while it is told so, leaves the last of several commits out, and its answer.
#[derive(Debug, Clone, Default)]
struct Sparing {
    mem: Mem,
    spares: Arc<AtomicBool>,
}

#[derive(Debug)]
struct SparingEngine(Box<dyn Engine>, Arc<AtomicBool>);

impl Backend for Sparing {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(SparingEngine(self.mem.open()?, Arc::clone(&self.spares))))
    }
}

impl Engine for SparingEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let spares = commits.len() > 1 && self.1.load(Ordering::SeqCst);
        self.0.commit(&commits[..commits.len() - usize::from(spares)])
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
    }
}

fn open(backend: impl Backend + 'static) -> Store {
    Store::builder(backend).clock(ManualClock::new()).sync_by(SyncBy::Caller).open().unwrap()
}

#[test]
fn a_commit_that_the_engine_does_not_answer_has_failed() {
    let sparing = Sparing::default();
    let store = open(sparing.clone());
    sparing.spares.store(true, Ordering::SeqCst);
    let all = store.claim_all(["a", "b"]);
    assert!(
        matches!(all, Err(ClaimError::Failed { .. })),
        "P9 fail closed: what was not answered is granted: {all:?}"
    );
    let each = store.claim_many(["c", "d"]);
    let told: Vec<_> = each.iter().map(Result::is_ok).collect();
    assert_eq!(told, [true, false], "P9 fail closed: what was not answered is granted");
    sparing.spares.store(false, Ordering::SeqCst);
    for key in ["a", "b", "d"] {
        let attempt = store.claim(key).unwrap().granted().expect("P6 never stuck").attempt();
        assert_eq!(attempt, 1, "rule 24: {key} was granted to nobody");
    }
}

#[test]
fn a_copy_whose_commits_are_not_all_answered_has_failed() {
    let store = open(Mem::new());
    for key in ["a", "b"] {
        store.claim(key).unwrap().granted().unwrap().complete("x").unwrap();
    }
    let target = Sparing::default();
    target.spares.store(true, Ordering::SeqCst);
    let told = store.backup_to(&target);
    assert!(told.is_err(), "P9 fail closed: a copy that lacks a record is told as made: {told:?}");
}

#[test]
fn of_several_that_fail_the_first_is_told() {
    let hooked = Hooked::new();
    let store = open(hooked.clone());
    hooked.break_key(Some("-x"));
    let told = store.claim_all(["a-x", "b-x"]);
    let Err(ClaimError::Failed { key, .. }) = told else { panic!("P9 fail closed: {told:?}") };
    assert_eq!(key, Key::new("a-x").unwrap().label(), "the error names another than the first");
}

#[test]
fn what_was_swapped_back_leaves_nothing_in_memory() {
    let hooked = Hooked::new();
    let store = Store::builder(hooked.clone()).clock(ManualClock::new()).open().unwrap();
    hooked.break_key(Some("b"));
    assert!(store.claim_all(["a", "b"]).is_err(), "P9 fail closed");
    hooked.break_key(None);
    assert_eq!(store.stats().entries, 0, "nobody has these keys, and nothing is stored of them");
    let again = store.claim("a").unwrap().granted().expect("it is free");
    assert_eq!((again.attempt(), again.previous()), (1, None), "rule 24: it was never claimed");
}

#[test]
fn claims_in_memory_alone_are_granted_without_a_sync() {
    let hooked = Hooked::new();
    let store = Store::builder(hooked).clock(ManualClock::new()).open().unwrap();
    let before = store.stats().syncs;
    let request = |key: &str| Request::new(key).durability(Durability::Result);
    let told = store.claim_many([request("a"), request("b")]);
    assert!(told.iter().all(|told| matches!(told, Ok(Outcome::Granted(_)))), "{told:?}");
    assert_eq!(store.stats().syncs, before, "nothing was written that a sync would make durable");
}
