//! A closed redb store that is damaged in many ways: no look changes a byte of it, wherever it is killed; what changes an answer
//! is told by verifying; and of what a repair does not keep nothing is lost untold.
#![cfg(all(not(loom), feature = "cli", feature = "redb"))]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)] // tests play the caller, and kill

#[path = "support/pages.rs"]
#[allow(dead_code)] // each test file uses a part
mod pages;
#[path = "support/random.rs"]
mod random;

use claimdb::backend::{Backend as _, Redb};
use claimdb::{CopyError, Flaw, Store};
use pages::{hush_redb, record_key};
use random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const RECORDS: usize = 200;
const VALUES: usize = 60;

fn name(n: usize) -> String {
    pages::record(n)
}

fn payload(name: &str) -> String {
    format!("<{name}>").repeat(30)
}

/// A store that was closed, and what stands in its folder then.
struct Sound {
    folder: PathBuf,
    file: Vec<u8>,
    clean: Vec<u8>,
    _above: TempDir,
}

impl Sound {
    fn new() -> Self {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("store");
        let store = Store::builder(Redb::new(&folder)).open().unwrap();
        for n in 0..RECORDS {
            let claim = store.claim(name(n)).unwrap().granted().unwrap();
            if n % 7 != 0 {
                claim.complete(&payload(&name(n))).unwrap();
            }
        }
        for n in 0..VALUES {
            store.kv("values").put(pages::value(n), payload(&pages::value(n))).unwrap();
        }
        store.close().unwrap();
        let (file, clean) =
            (fs::read(folder.join("redb/db")).unwrap(), fs::read(folder.join("clean")).unwrap());
        Self { folder, file, clean, _above: above }
    }

    /// Puts it back, with `file` as the engine's.
    fn with(&self, file: &[u8]) {
        for entry in fs::read_dir(&self.folder).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().unwrap().to_str().unwrap() {
                "format" | "lock" | "reserve" => {}
                _ if path.is_dir() => fs::remove_dir_all(path).unwrap(),
                _ => fs::remove_file(path).unwrap(),
            }
        }
        fs::create_dir(self.folder.join("redb")).unwrap();
        fs::write(self.folder.join("redb/db"), file).unwrap();
        fs::write(self.folder.join("clean"), &self.clean).unwrap();
    }

    fn is_as(&self, file: &[u8], after: &str) {
        let same = fs::read(self.folder.join("redb/db")).unwrap() == file;
        assert!(same, "a look has changed the engine's file: {after}");
        let clean = fs::read(self.folder.join("clean")).ok();
        assert_eq!(
            clean.as_ref(),
            Some(&self.clean),
            "a look has changed the note of the last close: {after}"
        );
        let names: BTreeSet<_> = fs::read_dir(&self.folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected = ["clean", "format", "lock", "redb", "reserve"].map(str::to_owned).into();
        assert_eq!(names, expected, "a look has left something: {after}");
    }
}

type Answers = BTreeMap<String, String>;

/// All that the store tells, by key and by walking.
fn answers(folder: &Path) -> Answers {
    let mut all = Answers::new();
    let store = match Store::builder(Redb::existing(folder)).read_only().open() {
        Ok(store) => store,
        Err(error) => {
            all.insert("opening".to_owned(), error.to_string());
            return all;
        }
    };
    for n in 0..RECORDS {
        let told = store.inspect(name(n)).map(|told| (told.state, told.token, told.next));
        all.insert(name(n), told.map_or("error".to_owned(), |told| format!("{told:?}")));
        let told = store.get(name(n).as_str()).map(|settled| {
            settled.and_then(|settled| settled.completed()).map(|stored| stored.decode::<String>().ok())
        });
        all.insert(format!("get {n}"), told.map_or("error".to_owned(), |told| format!("{told:?}")));
    }
    for n in 0..VALUES {
        let told = store.kv("values").get(pages::value(n));
        all.insert(format!("value {n}"), told.map_or("error".to_owned(), |told| format!("{told:?}")));
    }
    let listed: Vec<_> = store.keys(None).unwrap().map(|key| key.map(|(key, _)| key).ok()).collect();
    all.insert("list".to_owned(), format!("{listed:?}"));
    all
}

fn verify(folder: &Path) -> Result<Vec<Flaw>, CopyError> {
    let mut flaws = Vec::new();
    Store::builder(Redb::existing(folder)).verify(&mut |flaw| flaws.push(flaw.clone()))?;
    Ok(flaws)
}

/// What a repair's file tells: keys of records, and stretches.
struct Aside {
    records: BTreeSet<Vec<u8>>,
    stretches: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Aside {
    fn read(path: Option<&Path>) -> Self {
        let text = path.map(|path| fs::read_to_string(path).unwrap()).unwrap_or_default();
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
        };
        let (mut records, mut stretches) = (BTreeSet::new(), Vec::new());
        for line in text.lines().skip(1) {
            let mut fields = line.splitn(4, ' ');
            let mut next = || fields.next().unwrap();
            match (next(), bytes(next()), bytes(next())) {
                ("record", key, _) => drop(records.insert(key)),
                ("unread", after, until) => stretches.push((after, until)),
                _ => {}
            }
        }
        Self { records, stretches }
    }

    fn tells_of(&self, key: &[u8]) -> bool {
        let within = |(after, until): &(Vec<u8>, Vec<u8>)| {
            after.as_slice() < key && (until.is_empty() || key < until.as_slice())
        };
        self.records.contains(key) || self.stretches.iter().any(within)
    }
}

#[derive(Debug, Default)]
struct Tally {
    sound: usize,
    refused: usize,
    repaired: usize,
    lost: usize,
    killed: usize,
}

struct World {
    sound: Sound,
    expected: Answers,
    tally: Tally,
    random: Random,
}

impl World {
    /// Looks at the store with `file` as the engine's, kills some that look as well, and repairs it.
    fn round(&mut self, what: &str, file: &[u8]) {
        self.sound.with(file);
        if self.random.below(4) == 0 {
            self.kill_one_that_looks();
            self.sound.is_as(file, what);
        }
        let told = verify(&self.sound.folder);
        self.sound.is_as(file, what);
        let is_told = match &told {
            Ok(flaws) => !flaws.is_empty(),
            Err(error) if error.is_damage() => true,
            Err(error) => panic!("{what}: told as something else than damage: {error}"),
        };
        let seen = answers(&self.sound.folder);
        self.sound.is_as(file, what);
        let differs: Vec<_> =
            self.expected.iter().filter(|(key, said)| seen.get(*key) != Some(said)).collect();
        assert!(
            differs.is_empty() || is_told,
            "P9 fail closed: {what} changes {} answers and is told as sound, such as {:?}",
            differs.len(),
            differs[0]
        );
        if is_told {
            match Redb::existing(&self.sound.folder).open() {
                Ok(_) => self.sound.with(file),
                Err(_) => self.sound.is_as(file, &format!("a refused opening, {what}")),
            }
            self.repair(what, file);
        } else {
            self.tally.sound += 1;
        }
    }

    /// At a random moment, from before it opens the store until after it has ended.
    fn kill_one_that_looks(&mut self) {
        let folder = &self.sound.folder;
        let mut run = Command::new(env!("CARGO_BIN_EXE_claimdb"));
        match self.random.below(4) {
            0 => run.arg("verify").arg(folder),
            1 => run.args(["list", "--store"]).arg(folder),
            2 => run.args(["stats", "--store"]).arg(folder),
            _ => run.args(["backup", "--store"]).args([folder, &folder.with_file_name("copy")]),
        };
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros(self.random.below(40_000) as u64));
        self.tally.killed += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        for copy in ["copy", "copy.partial"] {
            let _ = fs::remove_dir_all(folder.with_file_name(copy));
        }
    }

    fn repair(&mut self, what: &str, file: &[u8]) {
        let repaired = match Store::repair(&self.sound.folder) {
            Ok(repaired) => repaired,
            Err(error) => {
                assert!(error.is_damage(), "{what}: told as something else than damage: {error}");
                self.sound.is_as(file, what);
                self.tally.refused += 1;
                return;
            }
        };
        self.tally.repaired += 1;
        let folder = &self.sound.folder;
        assert_eq!(verify(folder).unwrap(), [], "{what}");
        let aside = Aside::read(repaired.aside_in.as_deref());
        let seen = answers(folder);
        for n in 0..RECORDS {
            let (key, get) = (name(n), format!("get {n}"));
            if (&seen[&key], &seen[&get]) != (&self.expected[&key], &self.expected[&get]) {
                self.tally.lost += 1;
                assert!(
                    aside.tells_of(&record_key(n)),
                    "P8 remembered: {what}: {key} is {} after a repair, and nothing tells of it: {repaired:?}",
                    seen[&key]
                );
            }
        }
    }
}

/// `CLAIMDB_DAMAGES` says of how many places each kind of damage is tried.
#[test]
fn no_look_changes_a_damaged_file_and_whatever_changes_an_answer_is_told() {
    hush_redb();
    let tries = std::env::var("CLAIMDB_DAMAGES").map_or(30, |tries| tries.parse().expect("a number"));
    let sound = Sound::new();
    let file = sound.file.clone();
    assert_eq!(verify(&sound.folder).unwrap(), []);
    sound.is_as(&file, "nothing");
    let expected = answers(&sound.folder);
    let mut world = World { sound, expected, tally: Tally::default(), random: Random(20_261_130) };
    for (kind, length) in [("a bit", 0), ("a sector", 512), ("a page", 4096)] {
        for part in 0..tries {
            // Spread over the whole file, and anywhere in its part.
            let (from, to) = (file.len() * part / tries, file.len() * (part + 1) / tries);
            let (at, bit) = (from + world.random.below(to - from), world.random.below(8));
            let mut bytes = file.clone();
            match length {
                0 => bytes[at] ^= 1 << bit,
                length => bytes[at / length * length..][..length].fill(0),
            }
            world.round(&format!("{kind} at byte {at}"), &bytes);
        }
    }
    // Where there is least else that would tell: the end of a key.
    let keys = pages::all_of(&file, &record_key(0)[..6]);
    for _ in 0..tries {
        let at = keys[world.random.below(keys.len())] + record_key(0).len() - 1;
        let mut bytes = file.clone();
        bytes[at] ^= 1 << world.random.below(8);
        world.round(&format!("a bit of a key at byte {at}"), &bytes);
    }
    println!("{:?}", world.tally);
    let Tally { sound, refused, repaired, lost, killed } = world.tally;
    let all_kinds = [sound, refused, repaired, lost, killed].iter().all(|count| *count > 0);
    assert!(all_kinds, "the check looks at the wrong thing: {:?}", world.tally);
}
