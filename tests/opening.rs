//! Opening real folders after damage: what is mended, what is refused, and that nothing is lost over either.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::Sled;
use claimdb::{Durability, OpenError, Request, Store};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const KEYS: usize = 300;

fn open(folder: &Path) -> Result<Store, OpenError> {
    Store::builder(Sled::new(folder)).lock_wait(Duration::ZERO).sweep_every(Duration::ZERO).open()
}

fn value(key: usize) -> Vec<u8> {
    let byte = u8::try_from(key % 251).unwrap();
    vec![byte + 1; 2_000]
}

fn fill(store: &Store) {
    let request = |key| Request::new(format!("k{key}")).durability(Durability::Result);
    let claim = |key| store.claim(request(key)).unwrap().granted().unwrap();
    let results = (0..KEYS).map(|key| (claim(key), value(key)));
    for (claim, value) in results.collect::<Vec<_>>() {
        claim.complete_bytes(value).unwrap();
    }
}

/// A closed store with records in its log that no snapshot knows of.
fn fresh() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    fill(&store);
    store.close().unwrap();
    folder
}

/// The same, with a snapshot that knows all of them.
fn with_snapshot() -> tempfile::TempDir {
    let folder = fresh();
    open(folder.path()).unwrap().close().unwrap();
    assert_eq!(snapshots(folder.path()).len(), 1);
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().to_str().unwrap().to_owned();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let names = names(&folder.join("sled"));
    names.iter().filter(|name| name.starts_with("snap.")).map(|name| folder.join("sled").join(name)).collect()
}

fn asides(folder: &Path) -> Vec<PathBuf> {
    names(folder).iter().filter(|name| name.starts_with("aside-")).map(|name| folder.join(name)).collect()
}

fn log(folder: &Path) -> PathBuf {
    folder.join("sled").join("db")
}

/// All files and folders below `folder`.
fn everything(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in names(&folder).into_iter().map(|name| folder.join(name)) {
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

/// sled's files and ours, but for the lock, the mark of a clean close, and what is taken from the disk ahead.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = everything(folder).into_iter().filter(|path| path.is_file());
    let files = files.filter(|path| !["lock", "clean", "reserve"].iter().any(|name| path.ends_with(name)));
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn has_all(folder: &Path) {
    let store = open(folder).unwrap_or_else(|error| panic!("P8 remembered: {error}"));
    for key in 0..KEYS {
        let found = store.get(format!("k{key}")).unwrap();
        let stored = found.unwrap_or_else(|| panic!("P8 remembered: k{key} is absent"));
        assert_eq!(stored.completed().unwrap().bytes(), value(key), "P8 remembered: k{key} is another");
    }
    store.close().unwrap();
}

/// Opens `folder`, which must be refused as damaged, and change nothing.
fn is_refused(folder: &Path) -> String {
    let before = contents(folder);
    let error = open(folder).expect_err("P8 remembered: a store that lost something was opened");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    let after = contents(folder);
    assert!(before.keys().eq(after.keys()), "files came or went: {:?}, {:?}", before.keys(), after.keys());
    assert!(before == after, "a refused opening changed something");
    let (text, place) = (error.to_string(), folder.canonicalize().unwrap().display().to_string());
    assert!(text.contains(&format!("`cp -a '{place}' '{place}.damaged'`")), "what to do next: {text}");
    assert!(!text.contains("backtrace") && !text.contains("Some("), "an engine's own words: {text}");
    text
}

#[test]
fn a_half_written_snapshot_is_cleared_before_sled_sees_it() {
    for half in [&b""[..], b"half a snapshot"] {
        let folder = with_snapshot();
        let stray = folder.path().join("sled").join("snap.7FFFFFFFFFFFFFFF.generating");
        fs::write(&stray, half).unwrap();
        has_all(folder.path());
        assert!(!stray.exists());
        assert_eq!(asides(folder.path()), [] as [PathBuf; 0]);
    }
}

#[test]
fn a_damaged_snapshot_is_put_aside_and_everything_is_there() {
    let damages: [fn(&Path); 4] = [
        |snapshot| fs::write(snapshot, b"").unwrap(),
        |snapshot| fs::write(snapshot, b"no snapshot at all, and longer than its own checksum").unwrap(),
        |snapshot| {
            let bytes = fs::read(snapshot).unwrap();
            fs::write(snapshot, &bytes[..bytes.len() - 1]).unwrap();
        },
        |snapshot| {
            let mut bytes = fs::read(snapshot).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(snapshot, bytes).unwrap();
        },
    ];
    for (clean, damage) in [true, false].into_iter().flat_map(|c| damages.map(|d| (c, d))) {
        let folder = with_snapshot();
        let snapshot = snapshots(folder.path()).remove(0);
        damage(&snapshot);
        if !clean {
            fs::remove_file(folder.path().join("clean")).unwrap();
        }
        let damaged = fs::read(&snapshot).unwrap();
        has_all(folder.path());
        let [aside] = &asides(folder.path())[..] else { panic!("it is kept in one folder") };
        let name = snapshot.file_name().unwrap();
        assert_eq!(names(aside), [name.to_str().unwrap()], "the snapshot, and no copy of the log");
        assert_eq!(fs::read(aside.join(name)).unwrap(), damaged, "nothing is wiped");
        let date = aside.file_name().unwrap().to_str().unwrap();
        assert!(date.starts_with("aside-20") && date.ends_with('Z') && date.len() == 26, "{date}");
        has_all(folder.path());
        assert_eq!(asides(folder.path()).len(), 1, "once is enough");
    }
}

/// Where the log holds the value of `key`.
fn place_of(folder: &Path, key: usize) -> u64 {
    let (bytes, value) = (fs::read(log(folder)).unwrap(), value(key));
    let found = bytes.windows(value.len()).position(|window| window == value);
    u64::try_from(found.unwrap() + value.len() / 2).unwrap()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_byte_that_went_bad_after_a_clean_close_is_damage_and_no_torn_tail() {
    for key in [0, KEYS / 2, KEYS - 1] {
        let folder = fresh();
        let at = place_of(folder.path(), key);
        flip(&log(folder.path()), at);
        for _ in 0..2 {
            let text = is_refused(folder.path());
            assert!(text.contains("checksum") && text.contains("sled/db"), "{text}");
        }
        flip(&log(folder.path()), at);
        has_all(folder.path());
    }
}

#[test]
fn a_damaged_tail_file_is_refused_and_a_repair_puts_it_aside() {
    let folder = fresh();
    let tail = folder.path().join("tail");
    let good = fs::read_to_string(&tail).unwrap();
    let other_checksum = format!("{}1", good.trim_end());
    for bad in ["", "claimdb-tail 2 0 1", "claimdb-tail 1 0", "claimdb-tail 1 0 -1", &other_checksum] {
        fs::write(&tail, bad).unwrap();
        let text = is_refused(folder.path());
        let repair = format!("`claimdb repair '{}'`", folder.path().canonicalize().unwrap().display());
        assert!(text.contains("`tail`") && text.contains(&repair), "it does not say what to do: {text}");
    }
    let repaired = Store::repair(folder.path()).unwrap_or_else(|error| panic!("P6 never stuck: {error}"));
    let [aside] = &asides(folder.path())[..] else { panic!("it is kept in one folder") };
    assert_eq!(repaired.tail_in, Some(aside.canonicalize().unwrap().join("tail")));
    assert_eq!(fs::read_to_string(aside.join("tail")).unwrap(), other_checksum, "nothing is wiped");
    assert_eq!(repaired.copied.records, u64::try_from(KEYS).unwrap());
    has_all(folder.path());
    assert_eq!(Store::repair(folder.path()).unwrap().tail_in, None, "once is enough");
    assert_eq!(asides(folder.path()).len(), 1);
}

#[test]
fn a_byte_that_went_bad_before_the_snapshot_is_an_error_and_grants_nothing() {
    let folder = with_snapshot();
    let key = KEYS / 2;
    flip(&log(folder.path()), place_of(folder.path(), key));
    fs::remove_file(folder.path().join("clean")).unwrap();
    let (before, bytes) = (snapshots(folder.path()), fs::read(log(folder.path())).unwrap());
    match open(folder.path()) {
        Ok(store) => {
            let told = store.claim(format!("k{key}"));
            let Err(error) = told else {
                panic!("P9 fail closed: a key of damaged storage was told {told:?}")
            };
            let text = error.to_string();
            assert!(!text.contains("backtrace") && !text.contains("Some("), "an engine's own words: {text}");
        }
        Err(error) => {
            assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
            assert!(
                fs::read(log(folder.path())).unwrap() == bytes,
                "P8 remembered: a refused opening cut the log"
            );
        }
    }
    assert_eq!(snapshots(folder.path()), before, "an intact snapshot is never put aside");
    assert_eq!(asides(folder.path()), [] as [PathBuf; 0]);
}

#[test]
fn a_snapshot_that_knows_more_than_the_log_is_not_put_aside_for_good() {
    let folder = with_snapshot();
    flip(&snapshots(folder.path())[0], 3);
    let good = fs::read(log(folder.path())).unwrap();
    flip(&log(folder.path()), place_of(folder.path(), KEYS - 1));
    fs::remove_file(folder.path().join("clean")).unwrap();
    for _ in 0..2 {
        let text = is_refused(folder.path());
        assert!(text.contains("snapshot is damaged"), "{text}");
    }
    fs::write(log(folder.path()), good).unwrap();
    has_all(folder.path());
}

#[test]
fn a_folder_that_everybody_may_write_to_is_refused() {
    let folder = fresh();
    let mode = |mode| fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    // The sticky bit keeps others from deleting, and not from making a `lock` or a `format` of their own.
    for exposed in [0o777, 0o1777, 0o702] {
        mode(exposed);
        let error = open(folder.path()).expect_err("everybody could change what the store tells");
        let OpenError::Exposed { place, mode } = &error else { panic!("{error:?}") };
        assert_eq!(*mode, exposed);
        let (text, chmod) = (error.to_string(), format!("`chmod o-w '{place}'`"));
        assert!(text.contains(&chmod) && text.contains(&format!("{exposed:o}")), "{text}");
    }
    // Those of a group are whom the folder's owner has let in.
    for fine in [0o775, 0o2770, 0o755, 0o700] {
        mode(fine);
        has_all(folder.path());
    }
}

#[test]
fn nobody_else_gets_at_the_files() {
    let parent = tempfile::tempdir().unwrap();
    let (made, found) = (parent.path().join("made"), parent.path().join("found"));
    fs::create_dir(&found).unwrap();
    fs::set_permissions(&found, Permissions::from_mode(0o755)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // Everything below a folder but for what was there before.
    let is_private = |folder: &Path| {
        for path in everything(folder) {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), expected, "everybody gets at {}: {:o}", path.display(), mode(&path));
        }
    };
    for folder in [&made, &found] {
        let store = open(folder).unwrap();
        fill(&store);
        // Neighbours that outgrow the log, and go into files of their own.
        for key in 0..17 {
            store.kv("large").put(format!("v{key:02}"), vec![u8::try_from(key).unwrap(); 900_000]).unwrap();
        }
        store.backup(folder.with_extension("backup")).unwrap();
        store.close().unwrap();
        assert!(!names(&folder.join("sled/blobs")).is_empty(), "no file of its own was made");
        is_private(folder);
        is_private(&folder.with_extension("backup"));
        has_all(folder);
        flip(&snapshots(folder)[0], 3);
        has_all(folder);
        Store::compact(folder).unwrap();
        is_private(folder);
        fs::write(folder.join("tail"), "no checksum").unwrap();
        Store::repair(folder).unwrap();
        is_private(folder);
        assert!(!asides(folder).is_empty());
    }
    assert_eq!((mode(&made), mode(&found)), (0o700, 0o755), "what was there stays as it was");
}

#[test]
fn the_lock_is_the_systems_and_goes_with_its_process_alone() {
    let folder = fresh();
    let lock = folder.path().join("lock");
    // The id of a process that lives, and holds nothing.
    fs::write(&lock, "1\n").unwrap();
    let store = open(folder.path()).unwrap();
    // A lock of fcntl's kind would go with the first close of the file.
    drop(fs::File::open(&lock).unwrap());
    let start = Instant::now();
    let waits = Store::builder(Sled::new(folder.path())).lock_wait(Duration::from_millis(50)).open();
    assert!(matches!(waits, Err(OpenError::Locked { .. })), "rule 9: one opening at a time: {waits:?}");
    assert!(start.elapsed() >= Duration::from_millis(50), "the wait is kept");
    assert!(start.elapsed() < Duration::from_secs(20), "P6 never stuck: every wait has a bound");

    // Whoever deletes the lock file has two stores in one folder; the first finds out before it tells anything more.
    let claim = store.claim("late").unwrap().granted().unwrap();
    fs::remove_file(&lock).unwrap();
    let told = claim.complete("done");
    assert!(told.is_err(), "rule 9: a store whose lock is gone told of a completion");
    drop((told, store));
    has_all(folder.path());
}

#[test]
fn what_was_removed_stays_removed_while_the_log_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let large = vec![7; 100_000];
    for round in 0..4 {
        let store = open(folder.path()).unwrap();
        for key in 0..20 {
            let key = format!("k{key}");
            let there = store.get(key.as_str()).unwrap().is_some();
            let removed = round > 0 && key.ends_with(['0', '2', '4', '6', '8']);
            assert_eq!(
                there,
                round > 0 && !removed,
                "P8 remembered: {key} was removed and came back, or was lost"
            );
            if there {
                store.remove(key.as_str()).unwrap();
            }
            let request = Request::new(key.as_str()).durability(Durability::Result);
            store.claim(request).unwrap().granted().unwrap().complete_bytes(large.clone()).unwrap();
        }
        for key in (0..20).step_by(2) {
            assert!(store.remove(format!("k{key}")).unwrap());
        }
        store.close().unwrap();
        // Every other opening goes by the log, as after an unclean end.
        if round % 2 == 1 {
            fs::remove_file(folder.path().join("clean")).unwrap();
            snapshots(folder.path()).iter().for_each(|snapshot| fs::remove_file(snapshot).unwrap());
        }
    }
}

/// What is in it is what sled is opened with.
#[test]
fn a_damaged_configuration_of_sleds_is_made_anew_and_loses_nothing() {
    let sound = fs::read(fresh().path().join("sled/conf")).unwrap();
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        bytes
    };
    let of_one = (0..sound.len()).step_by(5).map(flipped);
    for bytes in of_one.chain([b"not a configuration".to_vec(), vec![0xFF; 64], Vec::new()]) {
        let folder = fresh();
        let conf = folder.path().join("sled/conf");
        fs::write(&conf, &bytes).unwrap();
        has_all(folder.path());
        assert_eq!(fs::read(&conf).unwrap(), sound, "of {:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_store_that_is_only_looked_at_tells_its_size() {
    let folder = fresh();
    let store = Store::builder(Sled::new(folder.path())).read_only().open().unwrap();
    assert!(store.stats().store_bytes.is_some(), "its engine can tell how large it is");
}
