//! Repairing stores of which the engine cannot read a page any more, damaged on the disk: what can be read is kept, what
//! cannot is told, and nothing is deleted.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/engines.rs"]
mod engines;

use claimdb::{CopyError, Durability, Flaw, OpenError, Store, Verified};
use engines::Engine;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const RECORDS: usize = 500;
const VALUES: usize = 300;

/// A closed store, whose engine knows where all of it is.
struct Place {
    engine: Engine,
    folder: PathBuf,
    _above: TempDir,
}

/// What is stored for one key, and found again in the engine's file.
fn payload(engine: Engine, name: &str) -> String {
    let length = match engine {
        // So that there are several segments: the last is looked at by each opening.
        Engine::Sled => 16_000,
        #[cfg(feature = "redb")]
        Engine::Redb => 300,
    };
    format!("<{name}>").repeat(length / (name.len() + 2))
}

fn record(n: usize) -> String {
    format!("k-{n:05}")
}

fn value(n: usize) -> String {
    format!("v-{n:05}")
}

fn record_key(n: usize) -> Vec<u8> {
    [b"\x01\0", record(n).as_bytes()].concat()
}

fn value_key(n: usize) -> Vec<u8> {
    [b"\x03\x06values", value(n).as_bytes()].concat()
}

fn cannot_read(engine: &dyn claimdb::backend::Engine, key: &[u8]) -> bool {
    !matches!(catch_unwind(AssertUnwindSafe(|| engine.read(key))), Ok(Ok(Some(_))))
}

impl Place {
    fn new(engine: Engine) -> Self {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("store");
        let place = Self { engine, folder, _above: above };
        let relaxed = || Store::builder(engine.at(&place.folder)).durability(Durability::Relaxed);
        let store = relaxed().open().unwrap();
        for n in 0..RECORDS {
            let claim = store.claim(record(n)).unwrap().granted().unwrap();
            claim.complete(&payload(engine, &record(n))).unwrap();
        }
        for n in 0..VALUES {
            store.kv("values").put(value(n), payload(engine, &value(n))).unwrap();
        }
        store.close().unwrap();
        // sled notes at an opening where its pages are.
        relaxed().open().unwrap().close().unwrap();
        place
    }

    /// Damages the page that holds `key`.
    fn damage(&self, key: &[u8]) {
        let file = self.folder.join(self.engine.name()).join("db");
        let name = std::str::from_utf8(&key[key.len() - record(0).len()..]).unwrap();
        let sound = fs::read(&file).unwrap();
        for at in all_of(&sound, payload(self.engine, name).as_bytes()) {
            let mut bytes = sound.clone();
            match self.engine {
                Engine::Sled => bytes[at + 5] ^= 1,
                // What type of page it is.
                #[cfg(feature = "redb")]
                Engine::Redb => bytes[at / 4096 * 4096] = 0xff,
            }
            // The same bytes stand in pages that are used no more, and in what is left over of them.
            let copy = tempfile::tempdir().unwrap();
            let copied = copy.path().join(self.engine.name());
            fs::create_dir(&copied).unwrap();
            for entry in fs::read_dir(file.parent().unwrap()).unwrap() {
                let entry = entry.unwrap();
                if entry.path().is_file() {
                    fs::copy(entry.path(), copied.join(entry.file_name())).unwrap();
                }
            }
            fs::copy(self.folder.join("format"), copy.path().join("format")).unwrap();
            fs::copy(self.folder.join("clean"), copy.path().join("clean")).unwrap();
            fs::write(copied.join("db"), &bytes).unwrap();
            let hit = match self.engine.existing(copy.path()).open() {
                Ok(engine) => cannot_read(&*engine, key) && !cannot_read(&*engine, &record_key(0)),
                Err(_) => false,
            };
            if hit {
                fs::write(&file, &bytes).unwrap();
                return;
            }
        }
        panic!("no page of {name} was found");
    }

    /// The keys of records and values that the engine cannot read.
    fn unreadable(&self) -> BTreeSet<Vec<u8>> {
        let engine = self.engine.existing(&self.folder).open().unwrap();
        let all = (0..RECORDS).map(record_key).chain((0..VALUES).map(value_key));
        all.filter(|key| cannot_read(&*engine, key)).collect()
    }

    fn verify(&self) -> (Verified, Vec<Flaw>) {
        let mut flaws = Vec::new();
        let store = Store::builder(self.engine.existing(&self.folder));
        (store.verify(&mut |flaw| flaws.push(flaw.clone())).unwrap(), flaws)
    }
}

/// Where `what` begins in `bytes`.
fn all_of(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let first = |from: usize| bytes[from..].windows(what.len()).position(|found| found == what);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = first(from) {
        found.push(from + at);
        from += at + what.len();
    }
    found
}

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

/// redb panics for each try to read a damaged page, which is caught and needs no telling.
fn hush_redb() {
    let tell = take_hook();
    set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|at| at.file().contains("/redb-4.")) {
            tell(panic);
        }
    }));
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
    let (verified, flaws) = place.verify();
    assert!(!verified.is_sound(), "{engine:?}: P9 fail closed: damaged pages were told as sound");
    assert!(flaws.iter().any(|flaw| matches!(flaw, Flaw::NotRead { .. })), "{engine:?}: {flaws:?}");

    let repaired = Store::repair(&place.folder).unwrap();
    assert!(repaired.unread >= 4, "{engine:?}: stretches that cannot be read were not told: {repaired:?}");
    let lines = aside(&repaired.aside_in.clone().expect("the file was not made"));
    let unread: Vec<_> = lines.iter().filter(|(what, ..)| what == "unread").collect();
    assert_eq!(unread.len() as u64, repaired.unread, "{engine:?}");
    assert_eq!(
        (lines.len() - unread.len()) as u64,
        repaired.aside,
        "{engine:?}: what was put aside is counted"
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
