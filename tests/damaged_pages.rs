//! Repairing stores of which the engine cannot read a page any more, damaged on the disk: what can be read is kept, what
//! cannot is told, and nothing is deleted.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/pages.rs"]
mod pages;

use claimdb::{CopyError, Flaw, Key, OpenError, Store};
use pages::engines::Engine;
use pages::{Place, RECORDS, VALUES, cannot_read, hush_redb, payload, record, record_key, value, value_key};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The lines of the file that things were put aside in: what, two fields, and a reason.
fn aside(path: &Path) -> Vec<(String, Vec<u8>, Vec<u8>, String)> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("claimdb aside 1"));
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    };
    let line = |line: &str| {
        let mut fields = line.splitn(4, ' ');
        let mut next = || fields.next().unwrap();
        (next().to_owned(), bytes(next()), bytes(next()), next().to_owned())
    };
    lines.map(line).collect()
}

#[test]
fn what_the_engine_cannot_read_is_told_and_the_rest_is_kept() {
    hush_redb();
    Engine::ALL.iter().for_each(|engine| repaired_around_pages(*engine));
}

fn repaired_around_pages(engine: Engine) {
    let place = Place::new(engine);
    let damaged = [record_key(60), record_key(200), value_key(40), value_key(41), value_key(150)];
    for key in &damaged {
        place.damage(key);
    }
    let unreadable = place.unreadable();
    assert!(damaged.iter().all(|key| unreadable.contains(key)));
    told_by_verifying(&place, &unreadable, RECORDS as u64);

    let repaired = Store::repair(&place.folder).unwrap();
    assert!(repaired.unread >= 4, "{engine:?}: stretches that cannot be read were not told: {repaired:?}");
    let of_values = repaired.unread_values;
    assert!(
        (1..repaired.unread).contains(&of_values),
        "{engine:?}: values were told as records: {repaired:?}"
    );
    assert_eq!(repaired.aside, 0, "{engine:?}: what is named and not there is no thing that was put aside");
    let lines = aside(&repaired.aside_in.clone().expect("the file was not made"));
    let unread: Vec<_> = lines.iter().filter(|(what, ..)| what == "unread").collect();
    assert_eq!(unread.len() as u64, repaired.unread, "{engine:?}");
    assert_eq!(
        (lines.len() - unread.len()) as u64,
        repaired.named,
        "{engine:?}: what is only named is counted"
    );
    let is_told = |key: &[u8]| {
        let within = |after: &[u8], until: &[u8]| after < key && (until.is_empty() || key < until);
        unread.iter().any(|(_, after, until, _)| within(after, until))
    };
    let kept = repaired.kept_in.clone().expect("the engine's files were deleted");
    assert!(kept.join("db").is_file(), "nothing is deleted: {}", kept.display());

    let store = Store::builder(engine.existing(&place.folder)).open().unwrap();
    let mut lost = BTreeSet::new();
    for n in 0..RECORDS {
        let key = record_key(n);
        let listed = lines.iter().any(|(what, named, ..)| what == "record" && *named == key);
        match store.get(record(n).as_str()).unwrap().and_then(|settled| settled.completed()) {
            Some(stored) => {
                assert_eq!(stored.decode::<String>().unwrap(), payload(engine, &record(n)));
                assert!(!listed, "{engine:?}: {} is there, and told as lost", record(n));
            }
            None => {
                assert!(is_told(&key) && listed, "{engine:?}: P8 remembered: {} is lost untold", record(n));
                assert!(store.claim(record(n).as_str()).unwrap().granted().is_some());
                lost.insert(key);
            }
        }
    }
    for n in 0..VALUES {
        let key = value_key(n);
        match store.kv("values").get(value(n)).unwrap() {
            Some(stored) => assert_eq!(stored, payload(engine, &value(n)).into_bytes()),
            None => {
                assert!(is_told(&key), "{engine:?}: P8 remembered: {} is lost untold", value(n));
                lost.insert(key);
            }
        }
    }
    println!("{engine:?}: {} stretches with {} keys could not be read", unread.len(), lost.len());
    assert!(lost == unreadable, "{engine:?}: P8 remembered: what could be read was left out");
    store.close().unwrap();
    let (verified, flaws) = place.verify();
    assert!(verified.is_sound(), "{engine:?}: {flaws:?}");
    // Nothing is left to tell of, and what was kept stays.
    let again = Store::repair(&place.folder).unwrap();
    assert_eq!((again.unread, again.aside, again.kept_in), (0, 0, None), "{engine:?}");
    assert!(kept.join("db").is_file(), "{engine:?}");
}

/// Verifying walks around what cannot be read, names the records that are hit, and counts all else.
fn told_by_verifying(place: &Place, unreadable: &BTreeSet<Vec<u8>>, entries: u64) {
    let engine = place.engine;
    let (verified, flaws) = place.verify();
    assert!(!verified.is_sound(), "{engine:?}: P9 fail closed: damaged pages were told as sound");
    let mut named = Vec::new();
    for flaw in &flaws {
        match flaw {
            Flaw::NotRead { keys, to_end: false, .. } => named.extend(keys.iter().map(ToString::to_string)),
            Flaw::ValuesNotRead { to_end: false, .. } => {}
            other => panic!("{engine:?}: {other}"),
        }
    }
    assert!(flaws.len() >= 4, "{engine:?}: each stretch is a flaw: {flaws:?}");
    let label = |n| Key::new(record(n)).unwrap().label().to_string();
    let hit: Vec<_> = (0..RECORDS).filter(|n| unreadable.contains(&record_key(*n))).map(label).collect();
    assert_eq!(named, hit, "{engine:?}: the keys that are hit were not named");
    let values = (unreadable.len() - hit.len()) as u64;
    assert_eq!(
        (verified.records, verified.values, verified.entries, verified.stale_entries),
        (RECORDS as u64 - hit.len() as u64, VALUES as u64 - values, entries, 0),
        "{engine:?}: what can be read was not looked at"
    );
}

#[test]
fn a_damaged_page_of_the_index_makes_no_record_look_as_if_it_were_not_indexed() {
    hush_redb();
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        let entries = place.entries();
        for n in [60, 350] {
            let entry = entries.iter().find(|entry| entry[17..] == record_key(n)).unwrap();
            place.damage_entry(entry);
        }
        let opened = engine.existing(&place.folder).open().unwrap();
        let sound = entries.iter().filter(|entry| !cannot_read(&*opened, entry)).count();
        drop(opened);
        assert!((200..=498).contains(&sound), "{engine:?}: {sound} entries can be read");
        let (verified, mut flaws) = place.verify();
        // redb's checksums tell that something has changed, and not whether it is the index alone.
        let altered = engine != Engine::Sled;
        if altered {
            let last = flaws.pop();
            assert!(
                matches!(last, Some(Flaw::Altered { .. })),
                "P9 fail closed: told as the index alone: {last:?}"
            );
        }
        let unread = |flaw: &Flaw| matches!(flaw, Flaw::IndexNotRead { to_end: false, .. });
        // redb keeps some keys in the pages above as well: if one of those is hit, the stretch has both.
        assert!((1..=2).contains(&flaws.len()), "{engine:?}: {flaws:?}");
        assert!(
            flaws.iter().all(unread),
            "{engine:?}: entries of the index were told as lost keys: {flaws:?}"
        );
        assert!(flaws.iter().all(|flaw| !flaw.to_string().contains("backup")), "{engine:?}: {flaws:?}");
        assert_eq!(
            (verified.records, verified.values, verified.entries, verified.stale_entries),
            (RECORDS as u64, VALUES as u64, sound as u64, 0),
            "{engine:?}: what can be read was not looked at"
        );
        let repaired = Store::repair(&place.folder).unwrap();
        assert!(
            repaired.unread == 0 && repaired.unread_index > 0 && repaired.named == 0,
            "{engine:?}: entries of the index were told as lost keys: {repaired:?}"
        );
        let kept = (repaired.altered, repaired.aside_in.is_some(), repaired.kept_in.is_some());
        assert_eq!(kept, (altered, altered, altered), "{engine:?}: {repaired:?}");
        let (verified, flaws) = place.verify();
        let all = (RECORDS as u64, VALUES as u64, RECORDS as u64);
        assert_eq!((verified.records, verified.values, verified.entries), all, "{engine:?}: {flaws:?}");
    }
}

#[test]
fn a_store_of_which_nothing_can_be_read_is_not_taken_for_an_empty_one() {
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        let file = place.folder.join(engine.name()).join("db");
        let mut bytes = fs::read(&file).unwrap();
        let half = bytes.len() / 2;
        bytes[4096..half].fill(0xa5);
        fs::write(&file, bytes).unwrap();
        match Store::repair(&place.folder) {
            Err(CopyError::Open(OpenError::Damaged { .. })) => {}
            Err(error) => println!("{engine:?}: {error}"),
            Ok(repaired) => {
                assert!(repaired.unread > 0, "{engine:?}: P8 remembered: lost untold: {repaired:?}");
                assert!(repaired.kept_in.unwrap().join("db").is_file());
            }
        }
    }
}

#[test]
fn the_old_files_are_kept_wherever_the_repair_is_cut_off() {
    for &engine in Engine::ALL {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("store");
        let store = Store::builder(engine.at(&folder)).open().unwrap();
        store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
        store.close().unwrap();
        // After both renames, and before the mark goes.
        let (files, replaced) = (folder.join(engine.name()), folder.join("replaced"));
        fs::create_dir(&replaced).unwrap();
        fs::write(replaced.join("db"), "as it was").unwrap();
        fs::write(folder.join("compacting"), "aside-1-files").unwrap();
        fs::remove_file(folder.join("clean")).unwrap();
        let open = || Store::builder(engine.existing(&folder)).open().unwrap();
        let store = open();
        assert!(store.get("k").unwrap().is_some());
        store.close().unwrap();
        let kept = folder.join("aside-1-files");
        let there = fs::read_to_string(kept.join("db")).ok();
        assert_eq!(there.as_deref(), Some("as it was"), "{engine:?}: nothing is deleted");
        assert!(!folder.join("compacting").exists() && !replaced.exists());
        // Before the first rename, and between the two, what was there is put back.
        for between in [false, true] {
            fs::remove_dir_all(&kept).unwrap();
            fs::write(folder.join("compacting"), "aside-1-files").unwrap();
            if between {
                fs::rename(&files, &replaced).unwrap();
            }
            let store = open();
            assert!(store.get("k").unwrap().is_some(), "{engine:?}: P8 remembered");
            store.close().unwrap();
            assert!(!kept.exists() && !replaced.exists() && !folder.join("compacting").exists());
            fs::create_dir(&kept).unwrap();
        }
    }
}

#[test]
fn files_that_an_earlier_repair_kept_stay_and_are_not_taken_for_the_new_ones() {
    hush_redb();
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        place.damage(&record_key(50));
        // Somebody has deleted the file beside them, and not them.
        let earlier = place.folder.join("aside-1-files");
        fs::create_dir(&earlier).unwrap();
        fs::write(earlier.join("db"), "earlier").unwrap();
        let repaired = Store::repair(&place.folder).unwrap();
        assert!(repaired.unread > 0, "{engine:?}: {repaired:?}");
        let kept = repaired.kept_in.unwrap();
        assert_ne!(
            kept, earlier,
            "{engine:?}: P8 remembered: the files of another repair were named as this one's"
        );
        assert!(kept.join("db").is_file() && !place.folder.join("replaced").exists(), "{engine:?}: {kept:?}");
        assert_eq!(fs::read_to_string(earlier.join("db")).unwrap(), "earlier");
    }
}

/// redb looks at no checksum when it reads. A key that is no longer in its order would end a walk too soon, or begin it again.
#[cfg(feature = "redb")]
#[test]
fn keys_that_are_out_of_order_are_told_as_damage() {
    hush_redb();
    // Within the records' space; and behind it, where a walk through the records would end.
    for (at, byte) in [(2, 0xFF), (0, 2)] {
        let place = Place::new(Engine::Redb);
        let file = place.folder.join("redb/db");
        let mut bytes = fs::read(&file).unwrap();
        let key = record_key(200);
        let found: Vec<usize> =
            (0..bytes.len() - key.len()).filter(|from| bytes[*from..].starts_with(&key)).collect();
        found.iter().for_each(|from| bytes[from + at] = byte);
        fs::write(&file, bytes).unwrap();

        let store = Store::builder(Engine::Redb.existing(&place.folder)).open().unwrap();
        let whole = store.keys(None).unwrap().all(|key| key.is_ok());
        assert!(!whole, "P9 fail closed: a walk over keys that are out of order was told as whole");
        let copied = store.backup(place.folder.with_extension("copy"));
        let damage = copied.as_ref().is_err_and(CopyError::is_damage);
        assert!(damage, "P9 fail closed: a copy of keys that are out of order was made: {copied:?}");
        drop(store);
        let (verified, flaws) = place.verify();
        assert!(!verified.is_sound() && flaws.len() < 1000, "P9 fail closed: {verified:?} {flaws:?}");
    }
}
