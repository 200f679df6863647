//! Which store a run takes, and where it makes one.

use crate::place::{Ended, Place};
use claimdb::backend::{Backend, Sled};
use std::fs;

#[test]
fn a_new_store_is_told_and_an_old_one_is_not() {
    let place = Place::new();
    let (input, store) = (place.file("input", "a\n"), place.path("store"));
    let told =
        |ended: &Ended| ended.err.lines().find(|line| line.starts_with("new store: ")).map(str::to_owned);
    let first = place.over(&input, &["--json"]);
    first.wrote(b"a\n");
    let real = fs::canonicalize(&store).unwrap();
    let expected = format!("new store: made {}; no line was seen before", real.display());
    assert_eq!(told(&first), Some(expected), "{}", first.err);
    let second = place.over(&input, &[]);
    second.wrote(b"");
    assert_eq!(told(&second), None);

    // In a folder that was made for it as well.
    fs::remove_dir_all(&store).unwrap();
    fs::create_dir(&store).unwrap();
    let third = place.over(&input, &[]);
    third.wrote(b"a\n");
    assert!(
        told(&third).is_some(),
        "lines that were seen are written again, and nobody is told why: {}",
        third.err
    );
}

/// Making it can fail midway, as on a full disk; and who found none may have waited for another run that made it.
#[test]
fn a_store_is_new_by_what_is_in_it_and_not_by_who_made_its_files() {
    let place = Place::new();
    let (input, store) = (place.file("input", "a\n"), place.path("store"));
    let told = |ended: &Ended| ended.err.contains("new store: ");
    for first in ["begun", "begun, and no more than its lock", "not there"] {
        let _ = fs::remove_dir_all(&store);
        match first {
            "begun" => drop(Sled::new(&store).open().unwrap()),
            "not there" => {}
            _ => {
                fs::create_dir(&store).unwrap();
                fs::write(store.join("lock"), "").unwrap();
            }
        }
        assert!(!store.join("format").exists(), "{first}: it is a whole store");
        let ended = place.over(&input, &[]);
        ended.wrote(b"a\n");
        assert!(told(&ended), "{first}: all lines are new, and nobody is told why: {}", ended.err);
        let ended = place.over(&input, &[]);
        ended.wrote(b"");
        assert!(!told(&ended), "{first}: {}", ended.err);
    }
    // Seen by nobody as a whole store, it holds lines all the same.
    fs::remove_file(store.join("format")).unwrap();
    let ended = place.over(&input, &[]);
    ended.wrote(b"");
    assert!(!told(&ended), "lines that were seen are told as never seen: {}", ended.err);
}

#[test]
fn no_store_is_made_among_what_is_not_its_own() {
    let place = Place::new();
    let input = place.file("input", "a\n");
    let home = place.path("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("notes"), "mine").unwrap();
    std::os::unix::fs::symlink("home", place.path("link")).unwrap();
    let bin = env!("CARGO_BIN_EXE_claimdb");
    for (folder, store) in [("home", "."), (".", "home"), (".", "home/"), (".", "link"), ("home", "../home")]
    {
        let mut command = std::process::Command::new(bin);
        command.current_dir(place.path(folder)).args(["dedup", "--store", store]).arg(&input);
        let ended = Ended::of(&mut command);
        let names: Vec<_> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["notes"], "{store}: a store was made among other files");
        assert_eq!((ended.code, ended.out.as_slice()), (Some(2), &b""[..]), "{store}: {}", ended.err);
        for words in [format!("opening the store {store}: "), "such as notes".to_owned(), "empty".to_owned()]
        {
            assert!(ended.err.contains(&words), "{store}: no {words:?} in: {}", ended.err);
        }
    }
}

/// A path that is mistyped must not look like a store that has forgotten everything.
#[test]
fn folders_above_a_new_store_are_not_made() {
    let place = Place::new();
    let input = place.file("input", "a\n");
    let bin = env!("CARGO_BIN_EXE_claimdb");
    for store in ["sene/store", "no/such/folder/store"] {
        let mut command = std::process::Command::new(bin);
        command.current_dir(place.0.path()).args(["dedup", "--store", store]).arg(&input);
        let ended = Ended::of(&mut command);
        assert_eq!((ended.code, ended.out.as_slice()), (Some(1), &b""[..]), "{store}: {}", ended.err);
        let above = store.rsplit_once('/').unwrap().0;
        for words in
            [format!("opening the store {store}: "), format!("no folder {above}"), "mkdir".to_owned()]
        {
            assert!(ended.err.contains(&words), "{store}: no {words:?} in: {}", ended.err);
        }
        assert!(!place.path(store.split('/').next().unwrap()).exists(), "{store}: a folder was made");
    }
}

#[test]
fn nothing_of_a_run_is_put_into_a_stores_folder() {
    let place = Place::new();
    let input = place.file("input", "{}\n");
    place.over(&input, &[]).wrote(b"{}\n");
    let store = place.path("store");
    fs::create_dir(store.join("below")).unwrap();
    std::os::unix::fs::symlink(&store, place.path("link")).unwrap();
    for file in ["store/bad", "store/below/bad", "store/sled/bad", "link/bad"] {
        let path = place.path(file);
        let ended = place.over(&input, &["--key", "/id", "--rejects", path.to_str().unwrap()]);
        assert_eq!(ended.code, Some(2), "{file}: {}", ended.err);
        assert!(ended.err.contains("in the folder of the store"), "{file}: {}", ended.err);
        assert!(!path.exists(), "{file} was made");
    }
    fs::write(store.join("below/there"), "").unwrap();
    std::os::unix::fs::symlink(store.join("below/there"), place.path("to-there")).unwrap();
    let path = place.path("to-there");
    let ended = place.over(&input, &["--key", "/id", "--rejects", path.to_str().unwrap()]);
    assert_eq!(ended.code, Some(2), "a link led into it: {}", ended.err);
    assert_eq!(fs::read(&path).unwrap(), b"");
    // Nor is another store, or the file for rejects of one that has not been synced yet.
    let mut nested = std::process::Command::new(env!("CARGO_BIN_EXE_claimdb"));
    let ended = Ended::of(nested.args(["dedup", "--store"]).arg(store.join("nested")).arg(&input));
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(
        ended.err.contains("in the folder of the store") && !store.join("nested").exists(),
        "{}",
        ended.err
    );
    fs::create_dir(place.path("fresh")).unwrap();
    let mut fresh = std::process::Command::new(env!("CARGO_BIN_EXE_claimdb"));
    fresh.current_dir(place.0.path()).args(["dedup", "--store", "fresh", "--key", "/id"]);
    let ended = Ended::of(fresh.args(["--rejects", "fresh/bad"]).arg(&input));
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(!place.path("fresh/bad").exists());
}
