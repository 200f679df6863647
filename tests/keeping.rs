//! `claimdb compact` and the other commands that keep a store, run as users run them.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/pages.rs"]
#[allow(dead_code)] // each test file uses a part
mod pages;

use claimdb::backend::{Backend as _, Commit, Swap, existing};
use claimdb::{Request, Store};
use pages::engines::Engine;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    /// With a closed store of two results, one forgotten result and a value.
    fn new(engine: Engine) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let store = Store::builder(engine.at(&place.store())).open().unwrap();
        for key in ["a", "b"] {
            store.claim(key).unwrap().granted().unwrap().complete(key).unwrap();
        }
        let passing = Request::new("c").retention(Duration::from_millis(1));
        store.claim(passing).unwrap().granted().unwrap().complete(&"c".repeat(1000)).unwrap();
        store.kv("values").put("v", "kept").unwrap();
        store.close().unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("store")
    }
}

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "{}", self.out);
        serde_json::from_str(&self.out).unwrap()
    }
}

fn claimdb(command: &str, args: &[&dyn AsRef<OsStr>]) -> Ended {
    let mut run = Command::new(env!("CARGO_BIN_EXE_claimdb"));
    run.arg(command).args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null());
    let output = run.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// The results and the value are there.
fn is_whole(store: &Path) {
    let store = Store::builder(existing(store)).open().unwrap();
    for key in ["a", "b"] {
        let settled = store.get(key).unwrap().expect("P8 remembered").completed().unwrap();
        assert_eq!(settled.decode::<String>().unwrap(), key);
    }
    assert_eq!(store.kv("values").get("v").unwrap().as_deref(), Some(&b"kept"[..]));
}

#[test]
fn each_command_has_examples_and_refuses_wrong_use() {
    for command in ["compact", "migrate", "repair", "verify"] {
        let help = claimdb(command, &[&"--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.out.contains("Examples:"), "{command}: {}", help.out);
        assert_eq!(claimdb(command, &[]).code, Some(2), "{command}");
        assert_eq!(claimdb(command, &[&"--what"]).code, Some(2), "{command}");
    }
}

/// The commands over a store, with what else they want.
#[allow(clippy::ptr_arg)] // a Path has no size, and is no object
fn over<'a>(store: &'a PathBuf, copy: &'a PathBuf) -> [(&'static str, Vec<&'a dyn AsRef<OsStr>>); 4] {
    [
        ("compact", vec![store]),
        ("verify", vec![store]),
        ("repair", vec![&"--yes", store]),
        ("migrate", vec![&"--from", &"sled", &"--to", &"sled", store, copy]),
    ]
}

#[test]
fn each_command_tells_that_a_store_is_in_use_or_is_none() {
    let place = Place::new(Engine::Sled);
    let store = Store::open(place.store()).unwrap();
    let process = format!("process {}", std::process::id());
    let (folder, nowhere, copy) = (place.store(), place.path("nowhere"), place.path("copy"));
    for (command, args) in over(&folder, &copy) {
        let locked = claimdb(command, &args);
        assert_eq!((locked.code, locked.out.as_str()), (Some(3), ""), "{command}: {}", locked.err);
        assert!(locked.err.contains("locked") && locked.err.contains(&process), "{}", locked.err);
    }
    for (command, args) in over(&nowhere, &copy) {
        let none = claimdb(command, &args);
        assert_eq!((none.code, none.out.as_str()), (Some(1), ""), "{command}: {}", none.err);
        assert!(none.err.contains("there is none") && none.err.contains("nowhere"), "{}", none.err);
    }
    store.close().unwrap();
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 1, "a folder was made");
    is_whole(&folder);
}

#[test]
fn compact_gives_its_counts() {
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        let ended = claimdb("compact", &[&place.store()]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
        assert!(
            ended.out.starts_with("compacted: 2 records and 1 value; 1 forgotten record left out"),
            "{}",
            ended.out
        );
        let counts = claimdb("compact", &[&"--json", &place.store()]).json();
        assert_eq!(counts.as_object().unwrap().len(), 6, "{counts}");
        let count = |name: &str| counts[name].as_u64().unwrap_or_else(|| panic!("no {name} in {counts}"));
        assert_eq!(
            (count("records"), count("values"), count("forgotten"), count("unreadable")),
            (2, 1, 0, 0)
        );
        assert!(count("bytes_before") > 0 && count("bytes_after") > 0, "{counts}");
        is_whole(&place.store());
    }
}

#[test]
fn migrate_copies_into_a_new_folder_and_says_when_there_is_something() {
    let place = Place::new(Engine::Sled);
    let (folder, copy) = (place.store(), place.path("copy"));
    let [.., (_, args)] = over(&folder, &copy);
    let ended = claimdb("migrate", &args);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert!(
        ended.out.starts_with("copied: 2 records and 1 value; 1 forgotten record left out"),
        "{}",
        ended.out
    );
    is_whole(&copy);
    is_whole(&folder);
    let again = claimdb("migrate", &args);
    assert_eq!((again.code, again.out.as_str()), (Some(1), ""));
    assert!(again.err.contains("something is there already") && again.err.contains("copy"), "{}", again.err);
    let other = place.path("other");
    let [.., (_, mut args)] = over(&folder, &other);
    args.push(&"--json");
    let counts = claimdb("migrate", &args).json();
    assert_eq!(counts.as_object().unwrap().len(), 4, "{counts}");
    assert_eq!((&counts["records"], &counts["values"]), (&2.into(), &1.into()), "{counts}");
    let unknown = claimdb("migrate", &[&"--from", &"what", &"--to", &"sled", &folder, &other]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("possible values: sled"), "{}", unknown.err);
}

/// Writes over the record of `a` and over the value.
fn damage(place: &Place) {
    let engine = existing(place.store()).open().unwrap();
    for key in [&b"\x01\0a"[..], b"\x03\x06valuesv"] {
        let seen = engine.read(key).unwrap();
        assert!(seen.is_some());
        let swap = engine.commit(&[Commit::swap(key, seen.as_deref(), Some(b"scribble"))]).remove(0);
        assert_eq!(swap.unwrap(), Swap::Done);
    }
    engine.sync().unwrap();
}

#[test]
fn verify_tells_what_is_wrong_by_its_lines_and_by_its_exit_code() {
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        let sound = claimdb("verify", &[&place.store()]);
        assert_eq!((sound.code, sound.err.as_str()), (Some(0), ""), "{}", sound.out);
        assert!(
            sound.out.starts_with(
                "sound: 3 records, 1 value, 3 index entries of which 0 stand for nothing, 0 flaws"
            ),
            "{}",
            sound.out
        );
        assert_eq!(claimdb("verify", &[&"--json", &place.store()]).json()["sound"], true);

        damage(&place);
        let damaged = claimdb("verify", &[&place.store()]);
        assert_eq!(damaged.code, Some(4), "damage is not told by the exit code: {}", damaged.err);
        let lines: Vec<_> = damaged.out.lines().collect();
        assert!(lines.len() == 3 && lines[0].starts_with("record key#"), "{}", damaged.out);
        assert!(lines[1].starts_with("value key#") && lines[2].starts_with("damaged: 2 records, 0 values"));
        assert!(damaged.err.contains("2 flaws") && damaged.err.contains("claimdb repair"), "{}", damaged.err);

        let damaged = claimdb("verify", &[&"--json", &place.store()]);
        assert_eq!(damaged.code, Some(4));
        let lines = damaged.out.lines().map(|line| serde_json::from_str(line).unwrap());
        let [first, _, counts] = &lines.collect::<Vec<Value>>()[..] else { panic!("{}", damaged.out) };
        assert_eq!((&first["flaw"], &first["part"]), (&"unreadable".into(), &"record".into()), "{first}");
        assert!(first["key"].as_str().unwrap().starts_with("key#") && first["message"].is_string());
        assert_eq!((first.as_object().unwrap().len(), counts.as_object().unwrap().len()), (5, 7));
        assert_eq!((&counts["flaws"], &counts["sound"]), (&2.into(), &false.into()), "{counts}");

        // A compaction keeps what it cannot read, and says so.
        let compacted = claimdb("compact", &[&place.store()]);
        assert_eq!(compacted.code, Some(4), "damage that was copied looks like success");
        assert!(compacted.err.contains("2 stored items cannot be read"), "{}", compacted.err);
        assert_eq!(claimdb("verify", &[&place.store()]).code, Some(4), "damage was lost from sight");
    }
}

#[test]
fn verify_names_what_was_put_aside_in_a_sound_store() {
    let place = Place::new(Engine::Sled);
    is_whole(&place.store());
    let entries = fs::read_dir(place.store().join("sled")).unwrap().map(|entry| entry.unwrap().path());
    let is_snapshot = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("snap.");
    let snapshot = entries.into_iter().find(is_snapshot).unwrap();
    fs::write(&snapshot, "no snapshot").unwrap();
    is_whole(&place.store());
    let told = claimdb("verify", &[&place.store()]);
    let lines: Vec<_> = told.out.lines().collect();
    let [aside, sound] = lines[..] else { panic!("what was put aside is not told: {}", told.out) };
    assert!(aside.starts_with("put aside by earlier openings and repairs: aside-20"), "{aside}");
    assert!(told.code == Some(0) && sound.starts_with("sound: "), "{sound}");
    let counts = claimdb("verify", &[&"--json", &place.store()]).json();
    assert_eq!(counts["aside"].as_array().unwrap().len(), 1, "{counts}");
}

#[test]
fn pages_that_cannot_be_read_are_told_with_the_keys_on_them_and_in_the_right_number() {
    for &engine in Engine::ALL {
        let place = pages::Place::new(engine);
        place.damage(&pages::record_key(60));
        let verified = claimdb("verify", &[&"--json", &place.folder]);
        assert_eq!((verified.code, verified.err.lines().count()), (Some(4), 1), "{}", verified.err);
        assert!(verified.err.contains("it has 1 flaw; "), "{}", verified.err);
        let lines = verified.out.lines().map(|line| serde_json::from_str(line).unwrap());
        let [flaw, counts] = &lines.collect::<Vec<Value>>()[..] else { panic!("{}", verified.out) };
        assert_eq!((&flaw["flaw"], &flaw["part"]), (&"not_read".into(), &Value::Null), "{flaw}");
        let keys = flaw["keys"].as_array().unwrap();
        assert!(!keys.is_empty() && keys.iter().all(|key| key.as_str().unwrap().starts_with("key#")));
        let found = counts["records"].as_u64().unwrap();
        assert_eq!(found + keys.len() as u64, pages::RECORDS as u64, "{engine:?}: {counts}");

        let text = claimdb("verify", &[&place.folder]);
        assert!(text.out.starts_with("engine: a stretch could not be read, in which"), "{}", text.out);
        assert!(text.out.ends_with(" stand for nothing, 1 flaw\n"), "{}", text.out);
        let repaired = claimdb("repair", &[&"--yes", &place.folder]);
        assert_eq!(repaired.code, Some(0), "{}", repaired.err);
        assert!(
            repaired.out.contains("; 0 put aside; 1 stretch could not be read, in which "),
            "{}",
            repaired.out
        );
        assert!(
            repaired.err.starts_with("1 stretch of the store could not be read at all: "),
            "{}",
            repaired.err
        );
    }
}

#[test]
fn repair_wants_to_be_agreed_to_and_says_what_is_asked_of_whom() {
    for &engine in Engine::ALL {
        let place = Place::new(engine);
        damage(&place);
        let asked = claimdb("repair", &[&place.store()]);
        assert_eq!((asked.code, asked.out.as_str()), (Some(2), ""));
        assert!(asked.err.contains("--yes"), "{}", asked.err);
        assert_eq!(
            claimdb("verify", &[&place.store()]).code,
            Some(4),
            "it was repaired without being agreed to"
        );

        let repaired = claimdb("repair", &[&"--yes", &"--json", &place.store()]);
        assert_eq!(repaired.code, Some(0), "{}", repaired.err);
        let counts = repaired.json();
        assert_eq!(counts.as_object().unwrap().len(), 14, "{counts}");
        assert_eq!((&counts["unread"], &counts["kept_in"]), (&0.into(), &Value::Null));
        assert_eq!(
            (&counts["records"], &counts["aside"], &counts["new_ceiling"]),
            (&1.into(), &2.into(), &Value::Null)
        );
        let aside = counts["aside_in"].as_str().unwrap();
        assert!(repaired.err.contains(aside) && repaired.err.contains("can run again"), "{}", repaired.err);
        let lines = fs::read_to_string(aside).unwrap();
        assert!(lines.starts_with("claimdb aside 1\nrecord 010061 7363726962626c65 "), "{lines}");
        assert_eq!(claimdb("verify", &[&place.store()]).code, Some(0));
        let store = Store::builder(existing(place.store())).open().unwrap();
        assert!(store.get("b").unwrap().is_some());
        assert!(store.claim("a").unwrap().granted().is_some());
    }
}

#[test]
fn what_compacting_failed_at_is_told_with_what_stands_and_what_to_do() {
    for (command, doing) in [("compact", "compacting"), ("repair", "repairing")] {
        let place = Place::new(Engine::Sled);
        // In the way of the folder that it fills.
        fs::create_dir(place.store().join("fresh")).unwrap();
        let ended = match command {
            "repair" => claimdb(command, &[&"--yes", &place.store()]),
            _ => claimdb(command, &[&place.store()]),
        };
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        let expected = format!("{doing} the store {}: ", place.store().display());
        for words in
            [expected.as_str(), "`fresh` stands there", "stands as it was", "Mend the cause", "try again"]
        {
            assert!(ended.err.contains(words), "it does not say {words:?}: {}", ended.err);
        }
        is_whole(&place.store());
    }
}
