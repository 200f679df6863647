//! Looking at redb stores that are damaged in one way each: what is told of it, what it leaves as it is, and what a repair
//! gets past.
#![cfg(all(not(loom), feature = "sled", feature = "redb"))] // real files
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/folders.rs"]
mod folders;
#[path = "support/pages.rs"]
#[allow(dead_code)] // each test file uses a part
mod pages;

use claimdb::backend::Redb;
use claimdb::{CopyError, Flaw, OpenError, Remedy, Store};
use pages::engines::Engine;
use pages::{Place, RECORDS, VALUES, all_of, hush_redb, record, record_key};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// The bytes of all files in a store's folder, but for the text of the lock.
fn all_bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in [folder.to_owned(), folder.join("redb")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.ends_with("lock") {
                found.insert(path.display().to_string(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// No copy is made of it, which would be sound.
fn is_not_copied(folder: &Path) {
    let store = || Store::builder(Redb::existing(folder));
    let copy = folder.with_file_name("copy");
    let into = |folder: &Path| Box::new(Redb::new(folder)) as _;
    let before = all_bytes(folder);
    let looked_at = store().read_only().open().unwrap();
    let backed_up = looked_at.backup_into(&copy, into);
    drop(looked_at);
    let told = [backed_up, store().migrate_into(&copy, into), Store::compact(folder)];
    for (told, what) in told.iter().zip(["backing up", "migrating", "compacting"]) {
        let damage = told.as_ref().is_err_and(CopyError::is_damage);
        assert!(damage, "P9 fail closed: {what} washed damage clean: {told:?}");
    }
    assert!(!copy.exists());
    assert!(all_bytes(folder) == before, "a refused copy has changed the store");
}

/// Opening it for use is refused as what a repair gets past, and changes nothing.
fn is_refused(folder: &Path) {
    let before = all_bytes(folder);
    let refused = Store::builder(Redb::existing(folder)).open().err();
    let repairable = matches!(refused, Some(OpenError::Damaged { remedy: Remedy::Repair, .. }));
    assert!(repairable, "told as beyond repair: {refused:?}");
    assert!(all_bytes(folder) == before, "a refused opening has changed the store");
}

#[test]
fn a_key_of_which_a_bit_has_changed_is_told_and_named() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    let file = place.folder.join("redb/db");
    let sound = fs::read(&file).unwrap();
    // Of the last of ten, so that the key stays between its neighbours; and where it is the record's, not the index's.
    let n = RECORDS / 2 + 9;
    let (name, key) = (record(n), record_key(n));
    let hit = all_of(&sound, &key).into_iter().any(|at| {
        let mut bytes = sound.clone();
        bytes[at + key.len() - 1] ^= 4;
        fs::write(&file, &bytes).unwrap();
        let store = Store::builder(Redb::existing(&place.folder)).read_only().open().unwrap();
        store.get(name.as_str()).unwrap().is_none()
    });
    assert!(hit, "the check looks at the wrong thing");
    let (verified, flaws) = place.verify();
    let told = flaws.iter().any(|flaw| matches!(flaw, Flaw::Altered { .. }));
    assert!(told, "P9 fail closed: a key that has changed reads as free, and is told as sound: {flaws:?}");
    assert_eq!(verified.records, RECORDS as u64);
    is_not_copied(&place.folder);
    let repaired = Store::repair(&place.folder).unwrap();
    assert!(repaired.altered && repaired.missing >= 1, "P8 remembered: lost untold: {repaired:?}");
    let told = fs::read_to_string(repaired.aside_in.unwrap()).unwrap();
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(told.contains(&format!("\nrecord {hex}  it is not there")), "P8 remembered: lost untold: {told}");
    assert!(repaired.kept_in.unwrap().join("db").is_file(), "nothing is deleted");
    assert!(place.verify().0.is_sound());
}

/// The entry in the index of record `n`.
fn entry_of(place: &Place, n: usize) -> Vec<u8> {
    place.entries().into_iter().find(|entry| entry[17..] == record_key(n)).unwrap()
}

#[test]
fn a_key_that_has_changed_is_told_also_where_its_entry_cannot_be_read() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    let file = place.folder.join("redb/db");
    let n = RECORDS / 2 + 9;
    place.damage_entry(&entry_of(&place, n));
    let sound = fs::read(&file).unwrap();
    let key = record_key(n);
    let hit = all_of(&sound, &key).into_iter().any(|at| {
        let mut bytes = sound.clone();
        bytes[at + key.len() - 1] ^= 4;
        fs::write(&file, &bytes).unwrap();
        let store = Store::builder(Redb::existing(&place.folder)).read_only().open().unwrap();
        store.get(record(n).as_str()).unwrap().is_none()
    });
    assert!(hit, "the check looks at the wrong thing");
    let (_, flaws) = place.verify();
    let told = flaws.iter().any(|flaw| matches!(flaw, Flaw::Altered { .. }));
    assert!(told, "P9 fail closed: a key that has changed is told as damage of the index alone: {flaws:?}");
    let repaired = Store::repair(&place.folder).unwrap();
    assert!(repaired.altered && repaired.unread_index > 0, "P8 remembered: lost untold: {repaired:?}");
    assert!(repaired.kept_in.unwrap().join("db").is_file(), "the only copy of a record was deleted");
}

#[test]
fn a_damaged_page_at_the_beginning_is_walked_around_as_others_are() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    let file = place.folder.join("redb/db");
    let sound = fs::read(&file).unwrap();
    let payload = pages::payload(Engine::Redb, &record(0));
    let hit = all_of(&sound, payload.as_bytes()).into_iter().any(|at| {
        let mut bytes = sound.clone();
        bytes[at / 4096 * 4096..][..4096].fill(0);
        fs::write(&file, &bytes).unwrap();
        Store::builder(Redb::existing(&place.folder)).read_only().open().is_err()
    });
    assert!(hit, "the check looks at the wrong thing");
    is_refused(&place.folder);
    let (verified, flaws) = place.verify();
    let from_the_beginning = |flaw: &Flaw| matches!(flaw, Flaw::NotRead { to_end: false, .. });
    assert!(flaws.iter().any(from_the_beginning), "P9 fail closed: {flaws:?}");
    assert!(verified.records >= (RECORDS - 20) as u64, "what could be read was not looked at: {verified:?}");
    let repaired = Store::repair(&place.folder).unwrap();
    assert_eq!(repaired.copied.records, verified.records, "P8 remembered: what could be read was left out");
    assert_eq!(repaired.copied.records + repaired.named, RECORDS as u64, "P8 remembered: lost untold");
    assert!(repaired.new_ceiling.is_some(), "P2 ordered tokens: the ceiling was on that page");
    let store = Store::builder(Redb::existing(&place.folder)).open().unwrap();
    assert!((20..RECORDS).all(|n| store.get(record(n).as_str()).unwrap().is_some()), "P8 remembered");
}

#[test]
fn what_is_written_behind_the_end_is_told_and_repaired() {
    let place = Place::new(Engine::Redb);
    let file = place.folder.join("redb/db");
    fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"junk").unwrap();
    is_refused(&place.folder);
    let before = all_bytes(&place.folder);
    let (verified, flaws) = place.verify();
    assert!(matches!(&flaws[..], [Flaw::Altered { .. }]), "P9 fail closed: {flaws:?}");
    assert_eq!((verified.records, verified.values), (RECORDS as u64, VALUES as u64));
    is_not_copied(&place.folder);
    assert!(all_bytes(&place.folder) == before, "a look has changed the store");
    let repaired = Store::repair(&place.folder).unwrap();
    assert_eq!((repaired.copied.records, repaired.missing, repaired.aside), (RECORDS as u64, 0, 0));
    let kept = fs::read(repaired.kept_in.unwrap().join("db")).unwrap();
    assert!(kept.ends_with(b"junk"), "nothing is deleted");
    let store = Store::builder(Redb::existing(&place.folder)).open().unwrap();
    assert!((0..RECORDS).all(|n| store.get(record(n).as_str()).unwrap().is_some()), "P8 remembered");
}

/// As a machine leaves it that crashes, or a service that is killed, over a file with a damaged page: redb then checks all of
/// it, and refuses.
#[test]
fn a_damaged_file_that_was_open_is_looked_at_and_repaired() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    place.damage(&record_key(60));
    let unreadable = place.unreadable();
    let killed = tempfile::tempdir().unwrap();
    let folder = killed.path().join("store");
    let open = Store::builder(Redb::existing(&place.folder)).open().unwrap();
    folders::copy(&place.folder, &folder);
    drop(open);
    is_refused(&folder);
    let before = all_bytes(&folder);
    let mut flaws = Vec::new();
    let verified =
        Store::builder(Redb::existing(&folder)).verify(&mut |flaw| flaws.push(flaw.clone())).unwrap();
    assert!(matches!(&flaws[..], [Flaw::NotRead { .. }]), "P9 fail closed: {flaws:?}");
    assert!(all_bytes(&folder) == before, "a look has changed the store");
    let repaired = Store::repair(&folder).unwrap();
    assert!(repaired.unread == 1 && repaired.named == unreadable.len() as u64, "{repaired:?}");
    assert_eq!(repaired.copied.records, verified.records, "P8 remembered: what could be read was left out");
    assert!(Store::builder(Redb::existing(&folder)).open().is_ok());
}

/// redb's head has two commits, and one bit says which is the last. Nothing else tells, so this is what it is, and the document
/// says so. After a clean close both hold the same.
#[test]
fn the_bit_that_says_which_commit_is_the_last_brings_back_the_one_before() {
    let place = Place::new(Engine::Redb);
    let killed = tempfile::tempdir().unwrap();
    let folder = killed.path().join("store");
    let open = Store::builder(Redb::existing(&place.folder)).open().unwrap();
    open.claim("last").unwrap().granted().unwrap().complete("done").unwrap();
    folders::copy(&place.folder, &folder);
    open.close().unwrap();
    for (folder, is_lost) in [(&folder, true), (&place.folder, false)] {
        let file = folder.join("redb/db");
        let mut bytes = fs::read(&file).unwrap();
        bytes[9] ^= 1;
        fs::write(&file, bytes).unwrap();
        let verified = Store::builder(Redb::existing(folder)).verify(&mut |_| {}).unwrap();
        assert!(verified.is_sound(), "it is told now, and the document says that it is not: {verified:?}");
        let store = Store::builder(Redb::existing(folder)).read_only().open().unwrap();
        let lost = store.get("last").unwrap().is_none();
        assert_eq!(lost, is_lost, "the document says what is brought back");
    }
}

#[test]
fn files_that_were_moved_away_are_said_to_be_where_they_are() {
    for &engine in Engine::ALL {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("store");
        let store = Store::builder(engine.at(&folder)).open().unwrap();
        store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
        store.close().unwrap();
        fs::create_dir(folder.join("fresh")).unwrap();
        let moved = format!("fresh/{}", engine.name());
        fs::rename(folder.join(engine.name()), folder.join(&moved)).unwrap();
        let refused = Store::builder(engine.existing(&folder)).open().unwrap_err();
        let told = matches!(&refused, OpenError::Damaged { remedy: Remedy::AsTold, .. });
        assert!(told && refused.to_string().contains(&format!("`{moved}`")), "{engine:?}: {refused}");
        fs::rename(folder.join(&moved), folder.join(engine.name())).unwrap();
        let store = Store::builder(engine.existing(&folder)).open().unwrap();
        assert!(store.get("k").unwrap().is_some(), "{engine:?}: P8 remembered");
    }
}
