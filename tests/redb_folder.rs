//! redb's folder: whose store it is, what damage to it says, and what is written when.
#![cfg(all(not(loom), feature = "redb"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::{Backend, Commit, Engine, Redb, Swap, Visit};
use claimdb::{Durability, OpenError, Outcome, Request, StorageError, Store};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

fn open(folder: &Path) -> Result<Store, OpenError> {
    Store::builder(Redb::new(folder)).lock_wait(Duration::ZERO).sweep_every(Duration::ZERO).open()
}

fn complete(store: &Store, key: &str) {
    store.claim(key).unwrap().granted().unwrap().complete("done").unwrap();
}

/// A closed store with a record in it.
fn store() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    complete(&store, "k");
    store.close().unwrap();
    folder
}

fn has_its_record(folder: &Path) -> bool {
    open(folder).unwrap().get("k").unwrap().is_some()
}

/// What a kill would leave of an open store.
fn copy(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("redb")).unwrap();
    for file in ["format", "redb/db"] {
        fs::copy(folder.join(file), copy.path().join(file)).unwrap();
    }
    copy
}

fn is_damaged(folder: &Path) {
    let error = open(folder).expect_err("P8 remembered: a store without its records was opened");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&folder.display().to_string()), "the message does not say where: {text}");
    assert!(text.contains("Nothing that is stored was deleted"), "{text}");
    assert!(!text.contains("DB corrupted"), "in redb's words, and not in ours: {text}");
}

#[test]
fn the_folder_is_its_owners_alone_and_names_its_engine() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("store");
    let store = open(&folder).unwrap();
    let has_mode = |path: &str, mode| {
        let found = fs::metadata(folder.join(path)).unwrap().mode() & 0o777;
        assert_eq!(found, mode, "{path} has mode {found:o}");
    };
    let files = ["redb/db", "lock", "format", "reserve"];
    files.iter().for_each(|path| has_mode(path, 0o600));
    ["", "redb"].iter().for_each(|path| has_mode(path, 0o700));
    assert_eq!(fs::read_to_string(folder.join("format")).unwrap(), "claimdb 1 redb\n");
    let error = open(&folder).expect_err("rule 9: one opening at a time");
    let OpenError::Locked { holder, .. } = error else { panic!("{error:?}") };
    assert_eq!(holder, format!(" (process {})", std::process::id()));
    store.close().unwrap();
    has_mode("clean", 0o600);
    Store::compact(&folder).unwrap();
    files.iter().chain(&["clean"]).for_each(|path| has_mode(path, 0o600));
    has_mode("redb", 0o700);
}

#[test]
fn everything_is_in_one_table_as_the_format_says() {
    use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};
    let folder = store();
    let database = redb::Database::open(folder.path().join("redb/db")).unwrap();
    let reading = database.begin_read().unwrap();
    assert_eq!(reading.list_tables().unwrap().count(), 1);
    let table = reading.open_table(TableDefinition::<&[u8], &[u8]>::new("claimdb")).unwrap();
    let keys: Vec<_> = table.iter().unwrap().map(|pair| pair.unwrap().0.value().to_vec()).collect();
    // The store's own entries, the record, and its entry of the index.
    let spaces: Vec<_> = keys.iter().map(|key| key[0]).collect();
    assert_eq!(spaces.first(), Some(&0), "{keys:?}");
    assert!(spaces.contains(&1) && spaces.contains(&4), "{keys:?}");
    assert!(keys.contains(&[&[1, 0][..], b"k"].concat()), "{keys:?}");
}

#[cfg(feature = "sled")]
#[test]
fn a_store_of_one_engine_is_refused_by_the_other_and_left_alone() {
    let other = |folder: &Path, error: OpenError, made_with, opened_with| {
        let OpenError::OtherEngine { place, found, asked } = &error else {
            panic!("P8 remembered: {made_with}'s store was taken for {opened_with}'s: {error:?}")
        };
        assert_eq!((found.as_str(), *asked), (made_with, opened_with));
        assert_eq!(place, &folder.canonicalize().unwrap().display().to_string());
        let text = error.to_string();
        assert!(text.contains(made_with) && text.contains("claimdb migrate"), "{text}");
    };
    let by_redb = store();
    let error = Store::open(by_redb.path()).expect_err("P8 remembered: redb's store was opened as sled's");
    other(by_redb.path(), error, "redb", "sled");
    assert!(!by_redb.path().join("sled").exists(), "a refused opening made a store of its own");
    assert!(has_its_record(by_redb.path()));

    let by_sled = tempfile::tempdir().unwrap();
    let store = Store::open(by_sled.path()).unwrap();
    complete(&store, "k");
    store.close().unwrap();
    assert_eq!(fs::read_to_string(by_sled.path().join("format")).unwrap(), "claimdb 1 sled\n");
    // Stores made before there was a choice name no engine, and are sled's.
    for text in ["claimdb 1 sled\n", "claimdb 1\n"] {
        fs::write(by_sled.path().join("format"), text).unwrap();
        let error = open(by_sled.path()).expect_err("P8 remembered: sled's store was opened as redb's");
        other(by_sled.path(), error, "sled", "redb");
        assert!(!by_sled.path().join("redb").exists(), "a refused opening made a store of its own");
        let store = Store::open(by_sled.path()).unwrap();
        assert!(store.get("k").unwrap().is_some());
        store.close().unwrap();
    }
}

#[test]
fn a_file_that_is_gone_cut_or_something_else_is_damage_and_nothing_is_wiped() {
    for killed in [false, true] {
        let folder = store();
        let folder = if killed { copy(folder.path()) } else { folder };
        let file = folder.path().join("redb/db");
        let good = fs::read(&file).unwrap();
        let whole = good.len();
        for length in [0, 1, 8, 512, whole / 2, whole - 1] {
            fs::write(&file, &good[..length]).unwrap();
            is_damaged(folder.path());
            is_damaged(folder.path());
        }
        fs::write(&file, vec![0; whole]).unwrap();
        is_damaged(folder.path());
        fs::write(&file, vec![b'x'; whole]).unwrap();
        is_damaged(folder.path());
        fs::remove_file(&file).unwrap();
        is_damaged(folder.path());
        assert!(!file.exists(), "a refused opening made a store of its own");
        fs::write(&file, &good).unwrap();
        assert!(has_its_record(folder.path()), "something was wiped");
    }
}

#[test]
fn pages_that_were_overwritten_before_a_kill_are_damage_or_were_not_needed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    complete(&store, "k");
    let killed = copy(folder.path());
    let file = killed.path().join("redb/db");
    let good = fs::read(&file).unwrap();
    let mut refused = 0;
    for page in 0..good.len() / 4096 {
        let mut bad = good.clone();
        bad[page * 4096..(page + 1) * 4096].fill(0xA5);
        fs::write(&file, bad).unwrap();
        match open(killed.path()) {
            Err(OpenError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("page {page}: {error:?}"),
            Ok(store) => {
                let found = store.get("k").unwrap();
                assert!(found.is_some(), "P8 remembered: page {page} was overwritten, and nothing was said");
            }
        }
    }
    assert!(refused > 1, "only {refused} pages matter: the check looks at the wrong thing");
}

#[test]
fn what_a_kill_leaves_of_a_store_that_was_being_made_keeps_nobody_from_making_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("redb")).unwrap();
    fs::write(folder.path().join("redb/db.new"), vec![0; 70_000]).unwrap();
    let store = open(folder.path()).expect("P6 never stuck: nothing was told of that store");
    complete(&store, "k");
    store.close().unwrap();
    assert!(has_its_record(folder.path()));
}

#[test]
fn what_nobody_syncs_is_made_durable_now_and_then() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    let request = |key: usize| Request::new(format!("k{key}")).durability(Durability::Relaxed);
    for key in 0..4100 {
        let Outcome::Granted(claim) = store.claim(request(key)).unwrap() else { panic!("keys repeat") };
        claim.complete_bytes("done").unwrap();
    }
    let killed = copy(folder.path());
    let reopened = open(killed.path()).unwrap();
    assert!(reopened.get("k0").unwrap().is_some(), "4,100 transactions were kept from the disk");
}

/// A redb whose commits are counted.
#[derive(Debug)]
struct Counted(Redb, Arc<AtomicUsize>);

#[derive(Debug)]
struct CountedEngine(Box<dyn Engine>, Arc<AtomicUsize>);

impl Backend for Counted {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(CountedEngine(self.0.open()?, Arc::clone(&self.1))))
    }
}

impl Engine for CountedEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
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
fn who_loses_or_reads_writes_nothing() {
    let (folder, commits) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(0)));
    let backend = Counted(Redb::new(folder.path()), Arc::clone(&commits));
    let store = Store::builder(backend).sweep_every(Duration::ZERO).open().unwrap();
    complete(&store, "settled");
    let held = store.claim("held").unwrap().granted().unwrap();
    let before = commits.load(Ordering::Relaxed);
    for _ in 0..50 {
        assert!(matches!(store.claim("settled").unwrap(), Outcome::Settled(_)));
        assert!(matches!(store.claim("held").unwrap(), Outcome::InFlight(_)));
        assert!(store.get("settled").unwrap().is_some());
        assert_eq!(store.scan("", "").unwrap().count(), 1);
    }
    assert_eq!(commits.load(Ordering::Relaxed), before, "a claim that loses takes the one writer's turn");
    drop(held);
}
