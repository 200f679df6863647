//! The file `clean`, the note of the last close: damaged, and as the first ones were.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/engines.rs"]
mod engines;

use claimdb::{OpenError, Remedy, Store};
use engines::Engine;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn open(engine: Engine, folder: &Path) -> Result<Store, OpenError> {
    Store::builder(engine.at(folder)).lock_wait(Duration::ZERO).sweep_every(Duration::ZERO).open()
}

/// A closed store with a record in it.
fn store(engine: Engine) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = open(engine, folder.path()).unwrap();
    store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
    store.close().unwrap();
    folder
}

fn has_its_record(engine: Engine, folder: &Path) -> bool {
    open(engine, folder).unwrap().get("k").unwrap().is_some()
}

/// What stands in the folders `aside-…` of a store.
fn put_aside(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let aside = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let aside = aside.filter(|path| path.is_dir() && path.display().to_string().contains("/aside-"));
    let files = aside.flat_map(|path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap()));
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

#[test]
fn a_note_of_the_last_close_that_is_damaged_is_told_and_a_repair_gets_past_it() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let clean = folder.path().join("clean");
        let good = fs::read(&clean).unwrap();
        let flipped = (0..good.len()).flat_map(|at| [1, 8].map(|bit| (at, bit)));
        let flipped = flipped.map(|(at, bit)| {
            let mut bytes = good.clone();
            bytes[at] ^= bit;
            bytes
        });
        for bad in flipped.chain((0..good.len()).map(|length| good[..length].to_vec())) {
            fs::write(&clean, &bad).unwrap();
            let refused = open(engine, folder.path())
                .expect_err("P9 fail closed: a note that is none was taken for one, or for none");
            let told = matches!(&refused, OpenError::Damaged { remedy: Remedy::Repair, .. });
            assert!(told && refused.to_string().contains("`clean` is not what"), "{engine:?}: {refused}");
            assert_eq!(fs::read(&clean).unwrap(), bad, "{engine:?}: a refused opening changed something");
        }
        let existing = || Store::builder(claimdb::backend::existing(folder.path()));
        let verified = existing().verify(&mut |_| {}).expect_err("P9 fail closed");
        let compacted = Store::compact(folder.path()).expect_err("P9 fail closed");
        assert!(verified.is_damage() && compacted.is_damage(), "{engine:?}: {verified}, {compacted}");
        let bad = fs::read(&clean).unwrap();
        let repaired = Store::repair(folder.path()).unwrap();
        assert_eq!((repaired.copied.records, repaired.tail_in), (1, None), "{engine:?}");
        assert_eq!(put_aside(folder.path()), [("clean".to_owned(), bad)], "{engine:?}: nothing is deleted");
        assert!(existing().verify(&mut |_| {}).unwrap().is_sound());
        assert!(has_its_record(engine, folder.path()));
    }
}

/// What is looked for after a clean close alone is looked for, since nobody leaves a damaged note but a clean close.
#[test]
fn a_damaged_log_beside_a_damaged_note_is_no_torn_tail() {
    let folder = store(Engine::Sled);
    let log = folder.path().join("sled/db");
    let mut bytes = fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] ^= 1;
    fs::write(&log, bytes).unwrap();
    fs::write(folder.path().join("clean"), "claimdb-clean 1 7 7\n").unwrap();
    let repaired = Store::repair(folder.path()).unwrap();
    assert!(repaired.tail_in.is_some(), "P9 fail closed: what may be gone was not told: {repaired:?}");
    let mut names: Vec<_> = put_aside(folder.path()).into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["clean", "tail"], "nothing is deleted");
}

#[test]
fn the_first_notes_of_a_last_close_are_read() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let main = folder.path().join(engine.name()).join("db");
        let good = fs::read(&main).unwrap();
        let note = || fs::write(folder.path().join("clean"), format!("{}\n", good.len())).unwrap();
        note();
        fs::write(&main, &good[..good.len() - 1]).unwrap();
        let refused = open(engine, folder.path()).expect_err("P8 remembered: a file that was cut was opened");
        assert!(refused.to_string().contains("something cut it"), "{engine:?}: {refused}");
        fs::write(&main, &good).unwrap();
        assert!(has_its_record(engine, folder.path()));
    }
}
