//! Folders that cannot be a store, are one already, or were one: what opening them says, and what it leaves alone.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::Sled;
use claimdb::{CopyError, Key, OpenError, Store};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Tells a child of these tests which folder to hold.
const HOLD: &str = "CLAIMDB_TEST_HOLD";

fn open(folder: &Path) -> Result<Store, OpenError> {
    Store::builder(Sled::new(folder)).lock_wait(Duration::ZERO).open()
}

/// What stands in a folder: names, and the contents of files. The lock file is information for people.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
                found.insert(path, None);
            } else if path.file_name().is_none_or(|name| name != "lock") {
                found.insert(path.clone(), Some(fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// A closed store with a record in it.
fn store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).unwrap();
    store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
    store.close().unwrap();
    folder
}

fn has_its_record(folder: &Path) -> bool {
    open(folder).unwrap().get("k").unwrap().is_some()
}

/// Opens `folder`, which must fail, say where, and change nothing.
fn is_refused(folder: &Path) -> OpenError {
    let before = contents(folder);
    let error = open(folder).expect_err("this cannot be opened");
    let text = error.to_string();
    assert!(text.contains(&folder.display().to_string()), "the message does not say where: {text}");
    let after = contents(folder);
    assert!(before.keys().eq(after.keys()), "files came or went: {:?}, {:?}", before.keys(), after.keys());
    for (path, bytes) in before {
        assert!(after[&path] == bytes, "a refused opening changed {}", path.display());
    }
    error
}

#[test]
fn a_store_that_is_open_in_this_process_is_locked() {
    let folder = store();
    let store = open(folder.path()).unwrap();
    let expected = format!(" (process {})", std::process::id());
    for _ in 0..2 {
        let error = open(folder.path()).expect_err("rule 9: one opening at a time");
        let OpenError::Locked { place, holder } = &error else { panic!("{error:?}") };
        assert_eq!(place, &folder.path().canonicalize().unwrap().display().to_string());
        assert_eq!(holder, &expected);
        assert!(error.to_string().contains("lock_wait"), "{error}");
    }
    // By whatever path.
    let link = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path(), link.path().join("link")).unwrap();
    assert!(matches!(open(&link.path().join("link")), Err(OpenError::Locked { .. })));
    assert!(store.get("k").unwrap().is_some(), "the open one goes on");
    store.close().unwrap();
    assert!(has_its_record(folder.path()));
}

/// Not a test of its own: what [`hold`] runs in another process.
#[test]
fn hold_a_store_if_asked_to() {
    let Some(folder) = std::env::var_os(HOLD) else { return };
    let store = open(Path::new(&folder)).unwrap();
    println!("\nholding");
    // Until the other side is gone or has had enough.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(store);
}

/// Starts a process that holds the store.
fn hold(folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_a_store_if_asked_to", "--nocapture"])
        .env(HOLD, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = lines.map_while(Result::ok);
    assert!(said.any(|line| line == "holding"), "the other process did not open the store");
    // Its last lines must find a reader.
    std::thread::spawn(move || said.count());
    child
}

#[test]
fn a_store_that_is_open_in_another_process_is_locked_and_says_in_which() {
    let folder = store();
    let mut child = hold(folder.path());
    let error = open(folder.path()).expect_err("rule 9: one opening at a time, in all processes");
    let OpenError::Locked { holder, .. } = &error else { panic!("{error:?}") };
    assert_eq!(holder, &format!(" (process {})", child.id()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(has_its_record(folder.path()));

    // A process that was killed holds nothing.
    let mut child = hold(folder.path());
    assert!(open(folder.path()).is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(has_its_record(folder.path()));
}

#[test]
fn a_lock_that_is_given_back_in_time_is_waited_for() {
    let folder = store();
    let mut child = hold(folder.path());
    let waits = std::thread::spawn({
        let builder = Store::builder(Sled::new(folder.path())).lock_wait(Duration::from_secs(60));
        move || builder.open()
    });
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(waits.join().unwrap().unwrap().get("k").unwrap().is_some());
}

#[test]
fn a_file_is_not_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "somebody else's").unwrap();
    let error = open(&file).expect_err("a file is no folder");
    assert!(matches!(error, OpenError::NotAFolder { .. }), "{error:?}");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    let below = file.join("store");
    let error = open(&below).expect_err("nothing lies below a file");
    assert!(matches!(error, OpenError::Storage { .. }), "{error:?}");
    assert!(error.to_string().contains(&below.display().to_string()), "{error}");
    // Nor is there a store to be looked at, wherever a path with a file in it leads.
    let existing = |path: &Path| Store::builder(Sled::existing(path)).open().expect_err("there is none");
    assert!(matches!(existing(&file), OpenError::NotAFolder { .. }), "{:?}", existing(&file));
    assert!(matches!(existing(&below), OpenError::NoStore { .. }), "{:?}", existing(&below));
    assert_eq!(fs::read(&file).unwrap(), b"somebody else's");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// It may lead to a disk that is not mounted.
#[test]
fn nothing_is_made_where_a_link_leads_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link"), folder.path().join("disk"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    for path in [link.clone(), link.join("store"), link.join("a/b")] {
        for opened in [Store::open(&path), Store::builder(Sled::existing(&path)).open()] {
            let error = opened.expect_err("nothing is there");
            assert!(matches!(error, OpenError::DanglingLink { .. }), "{error:?}");
            assert!(error.to_string().contains(&format!("{} is a symbolic link", link.display())), "{error}");
        }
    }
    assert!(!target.exists());
    fs::create_dir(&target).unwrap();
    Store::open(link.join("store")).unwrap().close().unwrap();
    assert!(target.join("store/format").exists());
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused() {
    // The kernel's own, where not even root makes files.
    for folder in ["/proc/claimdb-test", "/proc/self", "/sys/kernel"] {
        let error = open(Path::new(folder)).expect_err("nobody can write there");
        assert!(matches!(error, OpenError::Storage { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("/proc/") || text.contains("/sys/"), "the message does not say where: {text}");
    }
}

#[test]
fn a_store_of_a_later_version_is_left_alone() {
    let folder = store();
    let format = folder.path().join("format");
    let good = fs::read(&format).unwrap();
    for (text, version) in [("claimdb 2\n", "2"), ("claimdb 4294967295", "4294967295")] {
        fs::write(&format, text).unwrap();
        let error = is_refused(folder.path());
        let OpenError::UnknownFormat { found, newest, .. } = &error else { panic!("{error:?}") };
        assert_eq!((found.as_str(), *newest), (version, 1));
        assert!(error.to_string().contains("newer claimdb"), "{error}");
    }
    fs::write(&format, good).unwrap();
    assert!(has_its_record(folder.path()));
}

#[test]
fn a_format_file_of_something_else_is_damage() {
    let folder = store();
    let format = folder.path().join("format");
    let good = fs::read(&format).unwrap();
    let bad: [&[u8]; 9] = [
        b"",
        b"claimdb",
        b"claimdb ",
        b"claimdb 0",
        b"claimdb 1x",
        b"claimdb -1",
        b"claimdb 99999999999999999999",
        b"\xff\xfe\x00",
        &[b'x'; 100_000],
    ];
    for bad in bad {
        fs::write(&format, bad).unwrap();
        let error = is_refused(folder.path());
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("format") && text.contains("Nothing that is stored was deleted"), "{text}");
        assert!(text.len() < 1000, "the message repeats the whole file");
    }
    fs::write(&format, good).unwrap();
    assert!(has_its_record(folder.path()));
}

/// Does something to sled's `db` in a store that was closed, or killed; the store must be refused as damaged, and
/// be whole again once the file is back.
fn damage_to_the_log(killed: bool, damage: impl Fn(&Path)) {
    let folder = store();
    if killed {
        let mut child = hold(folder.path());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let log = folder.path().join("sled").join("db");
    let (good, before) = (fs::read(&log).unwrap(), contents(folder.path()));
    damage(&log);
    for _ in 0..2 {
        let error = open(folder.path()).expect_err("P8 remembered: an empty store was opened in its place");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
    }
    let after = contents(folder.path());
    for (path, bytes) in &before {
        // The mark of a clean close is not: what was refused is to be looked at with care.
        if *path != log && path.file_name().is_some_and(|name| name != "clean") {
            assert!(after.get(path) == Some(bytes), "a refused opening changed {}", path.display());
        }
    }
    fs::write(&log, good).unwrap();
    assert!(has_its_record(folder.path()), "something was wiped");
}

#[test]
fn a_log_that_was_cut_to_nothing_is_damage_and_nothing_is_wiped() {
    for killed in [false, true] {
        damage_to_the_log(killed, |log| fs::write(log, b"").unwrap());
    }
}

#[test]
fn a_log_that_is_gone_is_damage_and_nothing_is_wiped() {
    for killed in [false, true] {
        damage_to_the_log(killed, |log| fs::remove_file(log).unwrap());
    }
}

#[test]
fn a_log_that_was_cut_before_its_first_record_is_damage_each_time() {
    for length in [1, 19, 20] {
        let folder = store();
        let log = folder.path().join("sled").join("db");
        fs::write(&log, &fs::read(&log).unwrap()[..length]).unwrap();
        // sled makes a log of its own of it, which the second opening must not believe.
        for _ in 0..2 {
            let error =
                open(folder.path()).expect_err("P8 remembered: an empty store was opened in its place");
            assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        }
    }
}

#[test]
fn a_log_that_was_cut_in_its_middle_after_a_clean_close_is_damage() {
    let folder = store();
    let log = folder.path().join("sled").join("db");
    let good = fs::read(&log).unwrap();
    for length in [good.len() - 1, good.len() / 2, 21] {
        fs::write(&log, &good[..length]).unwrap();
        let before = contents(folder.path());
        for _ in 0..2 {
            let error = open(folder.path()).expect_err("P8 remembered: a store without its end was opened");
            assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        }
        assert!(contents(folder.path()) == before, "a refused opening changed something");
    }
    fs::write(&log, good).unwrap();
    assert!(has_its_record(folder.path()));
}

#[test]
fn a_folder_with_other_things_in_it_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes"), "mine").unwrap();
    let store = open(folder.path()).unwrap();
    store.claim(Key::new("k").unwrap()).unwrap().granted().unwrap().complete("done").unwrap();
    store.close().unwrap();
    assert_eq!(fs::read(folder.path().join("notes")).unwrap(), b"mine");
    assert!(has_its_record(folder.path()));
}

#[test]
fn an_empty_path_is_said_to_be_one() {
    let error = open(Path::new("")).expect_err("this is no path").to_string();
    assert_eq!(error, "opening a store: the path is empty; it must be that of a store's folder");
    let error =
        Store::builder(Sled::existing("")).open().expect_err("nor is it the working folder").to_string();
    assert_eq!(error, "opening a store: the path is empty; it must be that of a store's folder");
}

/// There it would be lost with its store, and put back with it.
#[test]
fn a_backup_does_not_lie_in_a_stores_folder() {
    let place = tempfile::tempdir().unwrap();
    let (live, other, link) =
        (place.path().join("live"), place.path().join("other"), place.path().join("link"));
    let store = open(&live).unwrap();
    Store::open(&other).unwrap().close().unwrap();
    std::os::unix::fs::symlink(live.join("sled"), &link).unwrap();
    for folder in [live.join("copy"), live.join("sled/copy"), link.join("copy"), other.join("copy")] {
        let error = store.backup(&folder).expect_err("it lies in a store's folder");
        assert!(matches!(error, CopyError::InStore { .. }), "{}: {error:?}", folder.display());
        assert!(!folder.exists() && !folder.with_extension("partial").exists());
    }
    let error = store.backup("").expect_err("it is no path");
    assert!(error.to_string().contains("this names no folder"), "{error}");
    // A file of that name alone makes no store.
    std::fs::create_dir(place.path().join("mine")).unwrap();
    std::fs::write(place.path().join("mine/format"), "claim").unwrap();
    store.backup(place.path().join("mine/copy")).unwrap();
}
