//! Repairing stores that sled refuses since its log is damaged in what its snapshot knows: what an opening recommends works,
//! what is lost is told, and a repair that cannot be made changes nothing.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/folders.rs"]
mod folders;

use claimdb::backend::Sled;
use claimdb::{CopyError, Durability, OpenError, Remedy, Repaired, Request, Store};
use folders::copy;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYS: usize = 300;

fn open(folder: &Path) -> Result<Store, OpenError> {
    Store::builder(Sled::new(folder)).lock_wait(Duration::ZERO).sweep_every(Duration::ZERO).open()
}

fn value(key: usize) -> Vec<u8> {
    vec![u8::try_from(key % 251).unwrap() + 1; 2_000]
}

/// Settles these keys, and then writes one large value so often.
fn fill(folder: &Path, keys: Range<usize>, rewrites: usize) {
    let store = open(folder).unwrap();
    for key in keys {
        let request = Request::new(format!("k{key:05}")).durability(Durability::Relaxed);
        store.claim(request).unwrap().granted().unwrap().complete_bytes(value(key)).unwrap();
    }
    for n in 0..rewrites {
        store.kv("large").put("v", vec![u8::try_from(n % 251).unwrap(); 130_000]).unwrap();
        // So that segments say of those before them that they were synced.
        if n % 30 == 0 {
            store.sync().unwrap();
        }
    }
    store.close().unwrap();
}

/// A closed store whose snapshot knows all of its log.
fn known() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..KEYS, 1);
    open(folder.path()).unwrap().close().unwrap();
    folder
}

/// How far the newest snapshot reaches.
fn reaches(folder: &Path) -> u64 {
    let names = fs::read_dir(folder.join("sled")).unwrap().map(|entry| entry.unwrap().file_name());
    let reaches = names.filter_map(|name| name.to_str()?.strip_prefix("snap.").map(str::to_owned));
    reaches.map(|reaches| u64::from_str_radix(&reaches, 16).unwrap()).max().unwrap()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// All that stands in a folder. The lock file is information for people.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path.clone());
                found.insert(path, None);
            } else if !path.ends_with("lock") {
                let bytes = fs::read(&path).unwrap();
                found.insert(path, Some(bytes));
            }
        }
    }
    found
}

fn is_unchanged(before: &BTreeMap<PathBuf, Option<Vec<u8>>>, folder: &Path, by: &str) {
    let after = contents(folder);
    assert!(before.keys().eq(after.keys()), "{by}: files came or went: {:?}", after.keys());
    assert!(*before == after, "{by} changed something");
}

/// Opens what cannot be opened: the damage, and what is recommended.
fn refused(folder: &Path) -> (String, Remedy) {
    let before = contents(folder);
    let error = open(folder).expect_err("P8 remembered: a store that lost something was opened");
    is_unchanged(&before, folder, "a refused opening");
    let OpenError::Damaged { remedy, .. } = &error else { panic!("{error:?}") };
    (error.to_string(), *remedy)
}

/// A repair that is not recommended: it fails, says so too, and changes nothing.
fn no_repair_is_made(folder: &Path, text: &str) {
    assert!(text.contains("only a backup") && !text.contains("claimdb repair"), "what to do instead: {text}");
    let before = contents(folder);
    let error = Store::repair(folder).expect_err("only a backup helps");
    let CopyError::Open(OpenError::Damaged { remedy: Remedy::Backup, .. }) = &error else {
        panic!("{error:?}")
    };
    is_unchanged(&before, folder, "a repair that cannot be made");
    assert_eq!(error.to_string(), text);
}

/// Looks for the first `keys` keys. Gives how many are gone, all of which must be told.
fn lost(folder: &Path, keys: usize, repaired: &Repaired) -> usize {
    let told = repaired.aside_in.as_ref().map(|path| fs::read_to_string(path).unwrap()).unwrap_or_default();
    let told: BTreeSet<&str> =
        told.lines().filter_map(|line| line.strip_prefix("record ")?.split(' ').next()).collect();
    let store = open(folder).unwrap_or_else(|error| panic!("P6 never stuck: {error}"));
    let mut lost = 0;
    for key in 0..keys {
        let name = format!("k{key:05}");
        match store.get(name.as_str()).unwrap() {
            Some(settled) => assert_eq!(settled.completed().unwrap().bytes(), value(key)),
            None => {
                let hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
                let is_told = told.contains(format!("0100{hex}").as_str());
                assert!(is_told, "P8 remembered: {name} is lost untold");
                lost += 1;
            }
        }
    }
    store.close().unwrap();
    lost
}

#[test]
fn a_repair_that_is_recommended_works_and_any_other_changes_nothing() {
    let sound = known();
    let reaches = reaches(sound.path());
    assert!(reaches < 8 << 20, "all of it lies in one segment");
    let (mut repaired_at, mut refused_at, mut most) = (0, 0, 0);
    // In its header, in the page that sled's others hang on, and anywhere.
    let anywhere = (1..20).map(|part| reaches / 20 * part);
    for (at, clean) in [5, 30].into_iter().chain(anywhere).flat_map(|at| [(at, true), (at, false)]) {
        let folder = tempfile::tempdir().unwrap();
        copy(sound.path(), folder.path());
        flip(&folder.path().join("sled/db"), at);
        if !clean {
            fs::remove_file(folder.path().join("clean")).unwrap();
        }
        let (text, remedy) = refused(folder.path());
        if remedy == Remedy::Backup {
            refused_at += 1;
            no_repair_is_made(folder.path(), &text);
            continue;
        }
        let place = folder.path().canonicalize().unwrap();
        assert!(text.contains(&format!("`claimdb repair '{}'`", place.display())), "{text}");
        let repaired = Store::repair(folder.path()).unwrap_or_else(|error| {
            panic!("P6 never stuck: a repair was recommended for byte {at}: {error}")
        });
        assert_eq!(repaired.tail_in.is_some(), clean, "after an unclean end no checksum is looked at");
        repaired_at += 1;
        most = most.max(lost(folder.path(), KEYS, &repaired));
        let verified = Store::builder(Sled::existing(folder.path())).verify(&mut |_| {}).unwrap();
        assert!(verified.is_sound(), "{verified:?}");
    }
    println!(
        "repair_log: repaired at {repaired_at} places, refused at {refused_at}, {most} of {KEYS} lost at most"
    );
    assert!(repaired_at >= 32, "most of a log is pages, one of which is damaged: {repaired_at}");
    assert!(most <= 17, "P8 remembered: one page was damaged, and {most} records are gone");
}

#[test]
fn what_came_after_the_snapshot_is_kept_although_its_segment_is_damaged_before() {
    // All of it in the same segment; and others behind that, which say that it was synced.
    for (keys, rewrites) in [(2 * KEYS, 0), (KEYS + 2, 400)] {
        let sound = known();
        let reaches = reaches(sound.path());
        fill(sound.path(), KEYS..keys, rewrites);
        for at in [5, reaches / 3, reaches / 2] {
            let folder = tempfile::tempdir().unwrap();
            copy(sound.path(), folder.path());
            flip(&folder.path().join("sled/db"), at);
            let (text, remedy) = refused(folder.path());
            assert_eq!(remedy, Remedy::Repair, "{text}");
            let repaired = Store::repair(folder.path()).unwrap();
            let lost = lost(folder.path(), keys, &repaired);
            assert!(lost <= 17, "P8 remembered: one page was damaged, and {lost} records are gone");
        }
    }
}

#[test]
fn a_damaged_snapshot_over_a_damaged_log_is_for_a_backup_and_stays_as_it_is() {
    for clean in [true, false] {
        let folder = known();
        let reaches = reaches(folder.path());
        flip(&folder.path().join("sled/db"), reaches / 2);
        flip(&folder.path().join(format!("sled/snap.{reaches:016X}")), 3);
        if !clean {
            fs::remove_file(folder.path().join("clean")).unwrap();
        }
        let (text, remedy) = refused(folder.path());
        assert_eq!(remedy, Remedy::Backup, "{text}");
        no_repair_is_made(folder.path(), &text);
    }
}

/// sled does not open with pages in segments that the file does not have.
#[test]
fn a_log_that_was_cut_by_whole_segments_is_not_repaired() {
    const SEGMENT: u64 = 8 << 20;
    let sound = tempfile::tempdir().unwrap();
    fill(sound.path(), 0..KEYS, 300);
    open(sound.path()).unwrap().close().unwrap();
    let length = fs::metadata(sound.path().join("sled/db")).unwrap().len();
    assert!(length > 3 * SEGMENT, "the log has {length} bytes");
    for cut in [SEGMENT, 2 * SEGMENT - 1000, 2 * SEGMENT] {
        let folder = tempfile::tempdir().unwrap();
        copy(sound.path(), folder.path());
        fs::remove_file(folder.path().join("clean")).unwrap();
        let log = OpenOptions::new().write(true).open(folder.path().join("sled/db")).unwrap();
        log.set_len(cut).unwrap();
        let (text, remedy) = refused(folder.path());
        assert_eq!(
            remedy,
            Remedy::Backup,
            "P6 never stuck: a repair was recommended for {cut} bytes: {text}"
        );
        no_repair_is_made(folder.path(), &text);
    }
}

/// What lies behind the break would be left out, and nobody would be told of it.
#[test]
fn a_log_that_goes_on_behind_its_break_is_not_repaired() {
    const SEGMENT: u64 = 8 << 20;
    let sound = known();
    let reaches = reaches(sound.path());
    // Into the next segment, and no further: one more would say that this one was synced.
    fill(sound.path(), KEYS..KEYS + 1, 70);
    let length = fs::metadata(sound.path().join("sled/db")).unwrap().len();
    assert!((SEGMENT + 1..=2 * SEGMENT).contains(&length), "the log has {length} bytes");
    for clean in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        copy(sound.path(), folder.path());
        // The header of the segment that the snapshot reaches into, and what comes after that in it.
        flip(&folder.path().join("sled/db"), 5);
        flip(&folder.path().join("sled/db"), (reaches + SEGMENT) / 2);
        if !clean {
            fs::remove_file(folder.path().join("clean")).unwrap();
        }
        let (text, remedy) = refused(folder.path());
        assert_eq!(
            remedy,
            Remedy::Backup,
            "P8 remembered: a repair would lose untold what comes later: {text}"
        );
        no_repair_is_made(folder.path(), &text);
    }
}

#[test]
fn a_repair_that_fails_midway_says_what_it_has_put_aside_and_is_made_again() {
    let folder = known();
    fs::write(folder.path().join("tail"), "scribble").unwrap();
    // In the way of the folder for the new files.
    fs::create_dir(folder.path().join("fresh")).unwrap();
    let error = Store::repair(folder.path()).expect_err("something is in the way");
    let text = error.to_string();
    let CopyError::HalfRepaired { tail_in, .. } = error else {
        panic!("it does not say what it has done: {text}")
    };
    assert!(tail_in.is_file() && text.contains(&tail_in.display().to_string()), "{text}");
    assert!(
        text.contains("stands as it was") && text.contains("repair the store before it is used"),
        "{text}"
    );
    assert!(!text.contains("was deleted"), "{text}");
    fs::remove_dir(folder.path().join("fresh")).unwrap();
    let repaired = Store::repair(folder.path()).unwrap();
    assert_eq!(lost(folder.path(), KEYS, &repaired), 0);
}
