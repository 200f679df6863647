//! Folders that somebody's hand or half a copy has made odd, over each engine: what is left of a store is kept, and said
//! to be one.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/engines.rs"]
mod engines;
#[path = "support/folders.rs"]
mod folders;

use claimdb::{CopyError, OpenError, Store};
use engines::Engine;
use folders::copy;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
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

/// What opening, verifying and repairing say of it, none of which may succeed.
fn refusals(engine: Engine, folder: &Path) -> [OpenError; 3] {
    let of = |error| match error {
        CopyError::Open(error) => error,
        error => panic!("{engine:?}: {error:?}"),
    };
    let verified = Store::builder(claimdb::backend::existing(folder)).verify(&mut |_| {});
    let opened = open(engine, folder).expect_err("P8 remembered: what is left of a store was opened");
    [opened, of(verified.unwrap_err()), of(Store::repair(folder).unwrap_err())]
}

fn damages(engine: Engine, folder: &Path) -> [String; 3] {
    refusals(engine, folder).map(|error| match error {
        OpenError::Damaged { .. } => error.to_string(),
        error => panic!("{engine:?}: this is damage, and was told as: {error}"),
    })
}

#[test]
fn what_a_compaction_has_left_is_kept_where_the_engines_files_are_gone() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let (files, fresh) = (folder.path().join(engine.name()), folder.path().join("fresh"));
        fs::write(folder.path().join("compacting"), "").unwrap();
        fs::create_dir(&fresh).unwrap();
        fs::rename(&files, fresh.join(engine.name())).unwrap();
        damages(engine, folder.path());
        let left = fresh.join(engine.name());
        assert!(
            left.join("db").is_file(),
            "{engine:?}: P8 remembered: all that was left of a store was deleted"
        );
        fs::rename(&left, &files).unwrap();
        assert!(has_its_record(engine, folder.path()));
        assert!(!fresh.exists(), "{engine:?}: what is no longer needed stays");
    }
}

#[test]
fn a_store_without_its_format_file_is_its_engines_and_nobody_elses() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        // As a kill leaves it, without the note of a clean close, which would give it away.
        for file in ["format", "clean"] {
            fs::remove_file(folder.path().join(file)).unwrap();
        }
        for &other in Engine::ALL.iter().filter(|other| **other != engine) {
            let error = open(other, folder.path())
                .expect_err("P8 remembered: a new store was made beside the old one");
            assert!(matches!(error, OpenError::OtherEngine { .. }), "{engine:?}: {error:?}");
            assert!(!folder.path().join(other.name()).exists(), "{engine:?}: a refused opening made a store");
        }
        let existing = claimdb::backend::existing(folder.path());
        let verified =
            Store::builder(existing).verify(&mut |_| {}).expect("there is a store, of this engine");
        assert!(verified.is_sound(), "{engine:?}: {verified:?}");
        assert!(has_its_record(engine, folder.path()));
    }
}

#[test]
fn a_damaged_format_file_is_mended_as_the_error_says() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let format = folder.path().join("format");
        let good = fs::read_to_string(&format).unwrap();
        for bad in ["", "\0\0\0\0"] {
            fs::write(&format, bad).unwrap();
            for text in damages(engine, folder.path()) {
                assert!(text.contains(good.trim_end()), "{engine:?}: it does not say what to do: {text}");
            }
        }
        fs::write(&format, good).unwrap();
        assert!(has_its_record(engine, folder.path()));
    }
}

#[test]
fn a_format_file_that_names_another_engine_than_the_files_are_of_is_told_as_that() {
    for &engine in Engine::ALL {
        for other in Engine::ALL.iter().map(|other| other.name()).filter(|other| *other != engine.name()) {
            let folder = store(engine);
            let format = folder.path().join("format");
            fs::write(&format, format!("claimdb 1 {other}\n")).unwrap();
            let line = format!("claimdb 1 {}", engine.name());
            for text in damages(engine, folder.path()) {
                assert!(
                    text.contains(&format!("`{line}`")) && !text.contains("only a backup"),
                    "{engine:?}: it does not say what to do: {text}"
                );
            }
            assert!(!folder.path().join(other).exists(), "{engine:?}: a refused opening made a store");
            fs::write(&format, line).unwrap();
            assert!(has_its_record(engine, folder.path()));
        }
    }
}

#[test]
fn a_repair_of_a_file_that_was_cut_moves_nothing_and_says_that_a_backup_is_needed() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let file = folder.path().join(engine.name()).join("db");
        let good = fs::read(&file).unwrap();
        for length in [Some(good.len() / 2), Some(0), None] {
            match length {
                Some(length) => fs::write(&file, &good[..length]).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            for text in damages(engine, folder.path()) {
                assert!(
                    text.contains("only a backup") && !text.contains("claimdb repair"),
                    "{engine:?}: {text}"
                );
            }
            let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            assert_eq!(names, engine.closed(), "{engine:?}: a refused repair moved something");
        }
        fs::write(&file, &good).unwrap();
        assert!(has_its_record(engine, folder.path()));
    }
}

#[test]
fn what_is_not_a_file_is_damage_and_nobody_waits_for_it() {
    for &engine in Engine::ALL {
        let main = format!("{}/db", engine.name());
        let of_sled: &[&str] = if engine == Engine::Sled { &["sled/conf"] } else { &[] };
        for name in ["lock", "format", "clean", "tail", "reserve", &main].iter().chain(of_sled) {
            for pipe in [true, false] {
                let folder = store(engine);
                let path = folder.path().join(name);
                let _ = fs::remove_file(&path);
                match pipe {
                    true => rustix::fs::mknodat(
                        rustix::fs::CWD,
                        &path,
                        rustix::fs::FileType::Fifo,
                        rustix::fs::Mode::RUSR,
                        0,
                    )
                    .unwrap(),
                    false => fs::create_dir(&path).unwrap(),
                }
                let (told, telling) = mpsc::channel();
                let at = folder.path().to_owned();
                thread::spawn(move || told.send(damages(engine, &at)));
                let texts = telling.recv_timeout(Duration::from_secs(60));
                let texts = texts
                    .expect("P6 never stuck: something waits for a pipe, or does not take it for damage");
                let expected = format!("`{name}` in it is not a file");
                assert!(texts.iter().all(|text| text.contains(&expected)), "{engine:?}: {texts:?}");
            }
        }
    }
}

#[test]
fn a_file_in_place_of_the_engines_folder_is_told_as_that() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let (files, away) = (folder.path().join(engine.name()), folder.path().join("away"));
        fs::rename(&files, &away).unwrap();
        fs::write(&files, "mine").unwrap();
        let expected = format!("`{}` in it is not a folder; move it away", engine.name());
        for text in damages(engine, folder.path()) {
            assert!(text.contains(&expected), "{engine:?}: it does not say what is there: {text}");
        }
        assert_eq!(fs::read(&files).unwrap(), b"mine", "{engine:?}: what is somebody's was touched");
        fs::remove_file(&files).unwrap();
        fs::rename(&away, &files).unwrap();
        assert!(has_its_record(engine, folder.path()));
    }
}

#[test]
fn what_is_left_of_a_store_is_never_begun_anew() {
    for &engine in Engine::ALL {
        for left in ["tail", "reserve", "clean", "compacting"] {
            let folder = store(engine);
            fs::remove_dir_all(folder.path().join(engine.name())).unwrap();
            for name in ["tail", "reserve", "clean", "format"].into_iter().filter(|name| *name != left) {
                let _ = fs::remove_file(folder.path().join(name));
            }
            if !folder.path().join(left).exists() {
                fs::write(folder.path().join(left), "").unwrap();
            }
            let files = || fs::read_dir(folder.path()).unwrap().count();
            let before = files();
            for text in damages(engine, folder.path()) {
                assert!(
                    text.contains("only a backup")
                        && text.contains(&format!("`{}/db`", engine.name()))
                        && !text.contains("cut"),
                    "{engine:?}, {left}: it does not say what to do: {text}"
                );
            }
            assert_eq!(
                files(),
                before,
                "{engine:?}, {left}: P8 remembered: a store was begun over what was left"
            );
        }
        // A first opening that was killed leaves as much.
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lock"), "").unwrap();
        open(engine, folder.path()).expect("P6 never stuck: nothing was there yet").close().unwrap();
        // So does one that was killed once its engine was open, before the first sync.
        let (folder, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let opened = engine.at(folder.path()).open().unwrap();
        copy(folder.path(), killed.path());
        drop(opened);
        assert!(killed.path().join("reserve").exists() && !killed.path().join("format").exists());
        open(engine, killed.path()).expect("P6 never stuck: nothing was told yet").close().unwrap();
    }
}

/// sled writes its settings in two steps, and refuses for ever a folder in which it finds the first alone.
#[test]
fn a_first_opening_that_was_cut_off_is_made_again() {
    let whole = fs::read(store(Engine::Sled).path().join("sled/conf")).unwrap();
    for written in 0..=whole.len() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sled")).unwrap();
        fs::write(folder.path().join("sled/conf"), &whole[..written]).unwrap();
        if written % 2 == 0 {
            // A file system may have made room for what it had not written yet.
            let file = fs::OpenOptions::new().write(true).open(folder.path().join("sled/conf")).unwrap();
            file.set_len(whole.len() as u64).unwrap();
        }
        let opened = open(Engine::Sled, folder.path());
        let store =
            opened.unwrap_or_else(|error| panic!("P6 never stuck: {written} bytes of `conf`: {error}"));
        store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
        store.close().unwrap();
        assert!(has_its_record(Engine::Sled, folder.path()));
        assert_eq!(fs::read(folder.path().join("sled/conf")).unwrap(), whole);
    }
}

/// A link to itself cannot be read by anybody, whoever runs this.
fn cannot_be_read(file: &Path) {
    let _ = fs::remove_file(file);
    std::os::unix::fs::symlink(file, file).unwrap();
}

/// The same as [`refusals`], with what a repair that was begun says around it.
fn told(engine: Engine, folder: &Path) -> [String; 3] {
    let verified = Store::builder(claimdb::backend::existing(folder)).verify(&mut |_| {});
    let opened = open(engine, folder).expect_err("P8 remembered: what nobody can judge was opened");
    [opened.to_string(), verified.unwrap_err().to_string(), Store::repair(folder).unwrap_err().to_string()]
}

#[test]
fn a_note_of_the_last_close_that_cannot_be_read_is_not_taken_for_none() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let (main, clean) = (folder.path().join(engine.name()).join("db"), folder.path().join("clean"));
        let (good, noted) = (fs::read(&main).unwrap(), fs::read(&clean).unwrap());
        // What is damage after a clean close alone.
        fs::write(&main, &good[..good.len() - 1]).unwrap();
        cannot_be_read(&clean);
        for told in told(engine, folder.path()) {
            assert!(told.contains("reading the file `clean`"), "P8 remembered: {engine:?}: {told}");
        }
        // Neither is that of a whole store, since nothing tells that it is one.
        fs::write(&main, &good).unwrap();
        let told = open(engine, folder.path()).expect_err("it cannot be read").to_string();
        assert!(told.contains("reading the file `clean`"), "{engine:?}: {told}");
        fs::remove_file(&clean).unwrap();
        fs::write(&clean, noted).unwrap();
        assert!(has_its_record(engine, folder.path()));
    }
}

#[test]
fn new_files_never_take_the_place_of_a_link() {
    for &engine in Engine::ALL {
        for linked in [engine.name().to_owned(), format!("{}/db", engine.name())] {
            let (folder, disk) = (store(engine), tempfile::tempdir().unwrap());
            let (path, there) = (folder.path().join(&linked), disk.path().join("files"));
            fs::rename(&path, &there).unwrap();
            std::os::unix::fs::symlink(&there, &path).unwrap();
            let told = [Store::compact(folder.path()).err(), Store::repair(folder.path()).err()];
            for told in told {
                let told = told.expect("the old files were left where the link led").to_string();
                assert!(told.contains(&format!("`{linked}` is a symbolic link")), "{engine:?}: {told}");
            }
            assert!(path.is_symlink() && !folder.path().join("compacting").exists(), "{engine:?}");
            assert!(has_its_record(engine, folder.path()));
        }
    }
}

#[test]
fn old_files_are_kept_where_the_mark_that_says_so_cannot_be_read() {
    for &engine in Engine::ALL {
        let folder = store(engine);
        let (replaced, mark) = (folder.path().join("replaced"), folder.path().join("compacting"));
        fs::create_dir(&replaced).unwrap();
        fs::write(replaced.join("db"), "what a repair was to keep").unwrap();
        cannot_be_read(&mark);
        for told in told(engine, folder.path()) {
            assert!(told.contains("reading the file `compacting`"), "{engine:?}: {told}");
        }
        fs::remove_file(&mark).unwrap();
        fs::write(&mark, "aside-1-files").unwrap();
        assert!(has_its_record(engine, folder.path()));
        let kept = folder.path().join("aside-1-files").join("db");
        assert!(kept.exists(), "what a repair was to keep was deleted: {engine:?}");
    }
}
