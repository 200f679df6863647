//! redb stores of which a part is missing or lies in another's place, so that a walk or a search does not come by what is behind:
//! all is kept, named, or lies in a stretch that is told.
#![cfg(all(not(loom), feature = "sled", feature = "redb"))] // real files
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/pages.rs"]
#[allow(dead_code)] // each test file uses a part
mod pages;

use claimdb::backend::Redb;
use claimdb::{CopyError, Flaw, OpenError, Remedy, Store};
use pages::engines::Engine;
use pages::{Place, RECORDS, VALUES, all_of, hush_redb, record, record_key};
use std::collections::BTreeMap;
use std::fs;
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

/// The entry in the index of record `n`.
fn entry_of(place: &Place, n: usize) -> Vec<u8> {
    place.entries().into_iter().find(|entry| entry[17..] == record_key(n)).unwrap()
}

/// As a write leaves it that went to the wrong place: a page of the index in the place of the page with `payload`, so that
/// `is_gone`. What lies behind would be passed over by a walk, and found by a search.
fn put_index_over(place: &Place, payload: &str, is_gone: impl Fn(&Store) -> bool) {
    let (file, entry) = (place.folder.join("redb/db"), entry_of(place, 60));
    let sound = fs::read(&file).unwrap();
    let pages = |of: &[u8]| all_of(&sound, of).into_iter().map(|at| at / 4096 * 4096).collect::<Vec<_>>();
    let froms = pages(&entry[16..]);
    let mut swaps =
        pages(payload.as_bytes()).into_iter().flat_map(|to| froms.iter().map(move |from| (to, *from)));
    let swapped = swaps.any(|(to, from)| {
        let mut bytes = sound.clone();
        bytes.copy_within(from..from + 4096, to);
        fs::write(&file, &bytes).unwrap();
        is_gone(&Store::builder(Redb::existing(&place.folder)).read_only().open().unwrap())
    });
    assert!(swapped, "the check looks at the wrong thing");
}

/// The stretches that a repair's file tells of.
fn stretches(told: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    let lines = told.lines().filter_map(|line| line.strip_prefix("unread "));
    let mut fields = lines.map(|line| line.splitn(3, ' '));
    let mut found = Vec::new();
    for mut fields in fields.by_ref() {
        found.push((bytes(fields.next().unwrap()), bytes(fields.next().unwrap())));
    }
    found
}

/// All is there after a repair, or named, or lies in a stretch that is told; and no more than `most` is lost.
fn is_kept_or_told(place: &Place, most: usize) {
    let repaired = Store::repair(&place.folder).unwrap();
    assert!(repaired.kept_in.as_ref().unwrap().join("db").is_file(), "nothing is deleted");
    let told = fs::read_to_string(repaired.aside_in.as_ref().unwrap()).unwrap();
    let stretches = stretches(&told);
    let lies_in = |key: &[u8]| {
        stretches
            .iter()
            .any(|(after, until)| after.as_slice() < key && (until.is_empty() || key < until.as_slice()))
    };
    let store = Store::builder(Redb::existing(&place.folder)).open().unwrap();
    for n in 0..RECORDS {
        let hex: String = record_key(n).iter().map(|byte| format!("{byte:02x}")).collect();
        let there = store.get(record(n).as_str()).unwrap().is_some();
        assert!(
            there || told.contains(&hex),
            "P8 remembered: {} is lost, and nothing tells of it",
            record(n)
        );
    }
    for n in 0..VALUES {
        let there = store.kv("values").get(pages::value(n)).unwrap().is_some();
        let told = lies_in(&pages::value_key(n));
        assert!(there || told, "{} is lost, and nothing tells of it: {repaired:?}", pages::value(n));
    }
    let kept = repaired.copied.records + repaired.copied.values;
    assert!(kept >= (RECORDS + VALUES - most) as u64, "what could be read was left out: {repaired:?}");
    drop(store);
    assert!(place.verify().0.is_sound());
}

#[test]
fn records_behind_a_page_of_the_index_in_a_records_place_are_kept_or_named() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    put_index_over(&place, &pages::payload(Engine::Redb, &record(200)), |store| {
        !matches!(store.get(record(200).as_str()), Ok(Some(_)))
    });
    let store = Store::builder(Redb::existing(&place.folder)).read_only().open().unwrap();
    let listed: Vec<_> = store.keys(None).unwrap().collect();
    assert!(
        listed.iter().any(Result::is_err),
        "P9 fail closed: a listing passed over records: {} of {RECORDS} were told as all",
        listed.len()
    );
    assert!(store.get(record(200).as_str()).is_err(), "P9 fail closed: told as free");
    drop(store);
    let (verified, flaws) = place.verify();
    let named = flaws.iter().any(|flaw| matches!(flaw, Flaw::NotRead { keys, .. } if !keys.is_empty()));
    assert!(named, "P9 fail closed: {flaws:?}");
    assert!(verified.records >= (RECORDS - 20) as u64, "what could be read was not looked at: {verified:?}");
    assert_eq!(verified.values, VALUES as u64, "what could be read was not looked at: {verified:?}");
    is_not_copied(&place.folder);
    is_kept_or_told(&place, 20);
}

/// Searches go astray there, and a walk does not.
#[test]
fn where_a_key_of_a_page_above_has_changed_all_is_kept() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    let file = place.folder.join("redb/db");
    let sound = fs::read(&file).unwrap();
    let look = || Store::builder(Redb::existing(&place.folder)).read_only().open().unwrap();
    let is_astray = |n: usize| !matches!(look().get(record(n).as_str()), Ok(Some(_)));
    let mut hits = 0;
    for n in 9..RECORDS / 2 {
        let (name, above) = (record_key(n), 2);
        for at in all_of(&sound, &name).into_iter().filter(|at| sound[at / 4096 * 4096] == above) {
            let mut bytes = sound.clone();
            bytes[at..at + name.len()].copy_from_slice(&record_key(n - 9));
            fs::write(&file, &bytes).unwrap();
            if !is_astray(n) {
                continue;
            }
            hits += 1;
            let (verified, flaws) = place.verify();
            assert!(
                matches!(&flaws[..], [Flaw::Altered { .. }]),
                "what can be read was not looked at: {flaws:?}"
            );
            assert_eq!((verified.records, verified.values), (RECORDS as u64, VALUES as u64));
        }
    }
    assert!(hits > 10, "the check looks at the wrong thing: {hits}");
    let repaired = Store::repair(&place.folder).unwrap();
    let kept = (repaired.copied.records, repaired.copied.values);
    assert_eq!(kept, (RECORDS as u64, VALUES as u64), "what could be read was left out: {repaired:?}");
}

#[test]
fn values_behind_a_page_of_the_index_in_their_place_are_kept_or_in_a_stretch_that_is_told() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    put_index_over(&place, &pages::payload(Engine::Redb, &pages::value(150)), |store| {
        !matches!(store.kv("values").get(pages::value(150)), Ok(Some(_)))
    });
    let (verified, flaws) = place.verify();
    assert!(matches!(&flaws[..], [Flaw::ValuesNotRead { to_end: false, .. }]), "P9 fail closed: {flaws:?}");
    assert_eq!(verified.records, RECORDS as u64);
    is_kept_or_told(&place, 20);
}

/// Without the page that leads to all others nothing can be read; here it lies before large values.
#[test]
fn of_a_file_that_was_cut_what_is_left_is_told_and_repaired() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    let (file, large) = (place.folder.join("redb/db"), |n: usize| format!("w-{n:03}"));
    let store = Store::builder(Redb::existing(&place.folder)).open().unwrap();
    let values = store.kv("values");
    for n in 0..60 {
        values.put(large(n), vec![7; 50_000]).unwrap();
    }
    for n in 0..30 {
        values.delete(large(n)).unwrap();
    }
    // Places that came free are used again a commit later.
    for n in 0..20 {
        values.put("last", [n]).unwrap();
    }
    store.close().unwrap();
    drop((values, store));
    let (sound, clean) = (fs::read(&file).unwrap(), fs::read(place.folder.join("clean")).unwrap());
    let (mut repaired, mut refused) = (0, 0);
    for tenths in [9, 8, 7, 6, 5, 0] {
        let length = sound.len() * tenths / 10 + 100;
        fs::remove_dir_all(place.folder.join("redb")).unwrap();
        fs::create_dir(place.folder.join("redb")).unwrap();
        fs::write(&file, &sound[..length]).unwrap();
        fs::write(place.folder.join("clean"), &clean).unwrap();
        let before = all_bytes(&place.folder);
        let remedy = match Store::builder(Redb::existing(&place.folder)).open().err() {
            Some(OpenError::Damaged { remedy, reason, .. }) if reason.contains("something cut it") => remedy,
            told => panic!("P9 fail closed: {length} of {} bytes: {told:?}", sound.len()),
        };
        assert!(all_bytes(&place.folder) == before, "a refused opening has changed the store");
        if remedy == Remedy::Backup {
            refused += 1;
            let told = Store::repair(&place.folder).expect_err("it was told as beyond repair");
            assert!(told.is_damage() && told.to_string().contains("something cut it"), "{told}");
            assert!(all_bytes(&place.folder) == before, "a refused repair has changed the store");
            continue;
        }
        repaired += 1;
        assert!(!place.verify().0.is_sound(), "P9 fail closed: {length} bytes are told as all");
        is_not_copied(&place.folder);
        is_kept_or_told(&place, RECORDS + VALUES - 10);
    }
    assert!(repaired >= 1 && refused >= 1, "what is left was not saved: {repaired}, {refused}");
}
