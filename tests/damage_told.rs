//! What each command says of a store of which its engine cannot read a page: that it is damaged, by its exit code, and one
//! thing to do about it.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/pages.rs"]
#[allow(dead_code)] // each test file uses a part
mod pages;

use claimdb::backend::Commit;
use claimdb::{CopyError, Store};
use pages::engines::Engine;
use pages::{Place, hush_redb, record, record_key};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

fn claimdb(args: &[&dyn AsRef<OsStr>], input: &str) -> Ended {
    let mut run = Command::new(env!("CARGO_BIN_EXE_claimdb"));
    run.args(args.iter().map(AsRef::as_ref));
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().unwrap();
    // A command that reads nothing has ended by now.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let ended = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) }
}

/// The command says that the store is damaged, and what to do about that alone.
#[track_caller]
fn is_told_as_damaged(what: &str, ended: &Ended) {
    let Ended { code, err, .. } = ended;
    assert_eq!(*code, Some(4), "P9 fail closed: {what} does not tell damage by its exit code: {err}");
    assert!(err.contains("repair"), "{what} does not say what to do: {err}");
    for other in ["mend the cause", "Mend the cause", "try again"] {
        assert!(!err.contains(other), "{what} gives two pieces of advice: {err}");
    }
    assert!(!err.contains("panicked at"), "{what} tells what its engine says to those who wrote it: {err}");
}

#[test]
fn each_command_tells_a_page_that_cannot_be_read_as_damage() {
    hush_redb();
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        place.damage(&record_key(60));
        let (folder, copy) = (&place.folder, place.folder.with_file_name("copy"));
        let key = record(60);
        let told = |args: &[&dyn AsRef<OsStr>], input: &str| {
            let ended = claimdb(args, input);
            is_told_as_damaged(&format!("{engine:?}: {}", args[0].as_ref().display()), &ended);
            ended
        };
        let listed = told(&[&"list", &"--store", folder], "");
        assert!(listed.err.contains(", and then it was cut off"), "{}", listed.err);
        let listed = told(&[&"list", &"--store", folder, &"--json"], "");
        let counts: Value = serde_json::from_str(listed.out.lines().last().unwrap()).unwrap();
        let lines = listed.out.lines().count() as u64;
        assert_eq!((&counts["keys"], &counts["more"]), (&(lines - 1).into(), &true.into()), "{counts}");
        let counted = told(&[&"stats", &"--store", folder], "").err;
        assert!(
            counted.contains("cut off at 0 pending") && counted.contains(" settled"),
            "no counts: {counted}"
        );
        told(&[&"inspect", &"--store", folder, &key], "");
        told(&[&"release", &"--store", folder, &"--yes", &key], "");
        told(&[&"purge", &"--store", folder, &"--yes", &"--key", &key], "");
        told(&[&"verify", folder], "");
        told(&[&"compact", folder], "");
        told(&[&"backup", &"--store", folder, &copy], "");
        assert!(!copy.exists(), "{engine:?}: P9 fail closed: a copy without what cannot be read was made");
        let name = engine.name();
        told(&[&"migrate", &"--from", &name, &"--to", &name, folder, &copy], "");
        assert!(!copy.exists(), "{engine:?}: P9 fail closed: a copy without what cannot be read was made");
        assert!(!copy.with_extension("partial").exists() && !folder.join("fresh").exists());
    }
}

#[test]
fn dedup_tells_a_page_that_cannot_be_read_as_damage() {
    let place = Place::new(Engine::Sled);
    // The keys of lines have a scope, so they lie behind the last key that has none.
    place.damage(&record_key(pages::RECORDS - 1));
    let ended = claimdb(&[&"dedup", &"--store", &place.folder], "a line\n");
    is_told_as_damaged("dedup", &ended);
    assert_eq!(ended.out, "", "P9 fail closed: a line whose key cannot be looked up was written");
}

#[test]
fn a_sweep_tells_a_page_of_the_index_as_damage_and_a_repair_as_made_anew() {
    hush_redb();
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        let first = &place.entries()[0];
        place.damage_entry(first);
        let swept = claimdb(&[&"purge", &"--store", &place.folder, &"--forgotten", &"--yes"], "");
        is_told_as_damaged(&format!("{engine:?}: purge --forgotten"), &swept);
        // Behind the first page, nothing but entries can be hit.
        let place = Place::new(engine);
        let entry = &place.entries()[pages::RECORDS / 2];
        place.damage_entry(entry);
        let repaired = claimdb(&[&"repair", &"--yes", &place.folder], "");
        assert_eq!(repaired.code, Some(0), "{}", repaired.err);
        assert!(repaired.err.contains("of the retention index could not be read"), "{}", repaired.err);
        // By redb's checksums nobody can tell whether the index is all that has changed.
        let known = engine == Engine::Sled;
        let told = (repaired.err.contains("nothing is lost by it"), !repaired.err.contains("can run again"));
        assert_eq!(told, (known, known), "{engine:?}: {}", repaired.err);
    }
}

/// Writes one record, and makes what the page holds that it is on unreadable.
fn nothing_readable(folder: &Path) -> bool {
    let store = Store::open(folder).unwrap();
    store.claim("k").unwrap().granted().unwrap().complete(&"<only>".repeat(500)).unwrap();
    store.close().unwrap();
    Store::open(folder).unwrap().close().unwrap();
    let sound = fs::read(folder.join("sled/db")).unwrap();
    let found = pages::all_of(&sound, b"<only><only><only>");
    let Some(at) = found.first() else { return false };
    let mut bytes = sound.clone();
    bytes[*at] ^= 1;
    fs::write(folder.join("sled/db"), bytes).unwrap();
    true
}

#[test]
fn a_repair_that_saves_nothing_is_no_success() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("store");
    assert!(nothing_readable(&folder));
    let repaired = claimdb(&[&"repair", &"--yes", &folder], "");
    assert_eq!(
        repaired.code,
        Some(4),
        "P8 remembered: all is lost, and told as done: {}{}",
        repaired.out,
        repaired.err
    );
    assert!(repaired.err.contains("it is empty now"), "{}", repaired.err);
}

#[test]
fn a_repair_looks_before_it_asks() {
    let above = tempfile::tempdir().unwrap();
    let nowhere = claimdb(&[&"repair", &above.path().join("nowhere")], "");
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.err);
    assert!(nowhere.err.contains("there is none"), "a person is asked about nothing: {}", nowhere.err);
}

#[test]
fn verifying_a_copy_that_was_not_finished_advises_no_repair() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("copy.partial");
    Store::open(&folder).unwrap().close().unwrap();
    let engine = Engine::Sled.existing(&folder).open().unwrap();
    let ceiling = engine.read(b"\0token-ceiling").unwrap();
    let mark = include_str!("golden/unfinished_copy_v1.hex").trim().split(' ');
    let mark: Vec<u8> = mark.map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
    let swap = Commit::swap(b"\0token-ceiling", ceiling.as_deref(), Some(&mark));
    engine.commit(&[swap]).remove(0).unwrap();
    engine.sync().unwrap();
    drop(engine);
    let verified = claimdb(&[&"verify", &folder], "");
    assert_eq!(verified.code, Some(4), "{}", verified.err);
    assert!(
        verified.err.contains("delete it, and make the copy again")
            && !verified.err.contains("claimdb repair"),
        "what is advised makes no copy whole: {}",
        verified.err
    );
}

#[test]
fn a_copy_over_a_backend_is_not_made_in_a_stores_folder() {
    for &engine in Engine::ALL {
        let above = tempfile::tempdir().unwrap();
        let (folder, other) = (above.path().join("store"), above.path().join("other"));
        let store = Store::builder(engine.at(&folder)).open().unwrap();
        Store::builder(engine.at(&other)).open().unwrap().close().unwrap();
        for inside in [folder.join("copy"), other.join("a/b")] {
            let told = store.backup_to(&*engine.at(&inside));
            let what = "a copy is made in a store's folder, and would go with it";
            assert!(matches!(told, Err(CopyError::InStore { .. })), "{engine:?}: {what}: {told:?}");
            let told = Store::builder(engine.existing(&other)).migrate(&*engine.at(&inside));
            assert!(matches!(told, Err(CopyError::InStore { .. })), "{engine:?}: {what}: {told:?}");
            assert!(!inside.exists() && !other.join("a").exists(), "{engine:?}: a folder was made");
        }
        let told = store.backup_to(&*engine.at(&other));
        assert!(matches!(told, Err(CopyError::NotEmpty { .. })), "{engine:?}: {told:?}");
        assert!(store.backup_to(&*engine.at(&above.path().join("copy"))).is_ok(), "{engine:?}");
        store.close().unwrap();
    }
}
