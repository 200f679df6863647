//! Compacting real folders, over each engine: what stays, what each cut leaves behind, kills and power cuts.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/disk.rs"]
#[allow(dead_code)] // each test file uses a part
mod disk;
#[path = "support/engines.rs"]
mod engines;

use claimdb::{CopyError, Durability, OpenError, Request, Settled, Store, Token};
use engines::Engine;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tells a child of these tests which folder to compact until it is killed.
const COMPACT: &str = "CLAIMDB_TEST_COMPACT";
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn open(engine: Engine, folder: &Path) -> Store {
    Store::builder(engine.at(folder)).retention(YEAR).open().unwrap()
}

/// What a store was told, by key, and the greatest token of it.
#[derive(Default)]
struct Told {
    results: BTreeMap<String, String>,
    values: BTreeMap<String, String>,
    token: Option<Token>,
}

impl Told {
    /// Does a piece of work and keeps a value, and remembers what it was told.
    fn work(&mut self, store: &Store, n: usize, size: usize) {
        let (key, result) = (format!("k-{n:05}"), format!("{n}-{}", "r".repeat(size)));
        let claim = store.claim(key.as_str()).unwrap().granted().expect("P6: nobody has it");
        let token = claim.token();
        assert!(Some(token) > self.token, "P2 ordered tokens: {token} after {:?}", self.token);
        claim.complete(&result).unwrap();
        self.token = Some(token);
        self.results.insert(key.clone(), result.clone());
        store.kv("values").put(&key, &result).unwrap();
        self.values.insert(key, result);
    }

    /// All that was told is there exactly once, and nothing else.
    fn is_there(&self, store: &Store) {
        let result = |settled: &Settled| match settled {
            Settled::Completed(stored) => stored.decode::<String>().unwrap(),
            other => panic!("P8 remembered: {other:?}"),
        };
        let found: Vec<_> = store.scan("", "").unwrap().map(Result::unwrap).collect();
        let name = |key: &claimdb::Key| String::from_utf8(key.name().to_vec()).unwrap();
        let map: BTreeMap<_, _> = found.iter().map(|(key, settled)| (name(key), result(settled))).collect();
        assert_eq!(found.len(), map.len());
        assert!(map == self.results, "P8 remembered: {} results for {}", map.len(), self.results.len());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let values = store.kv("values").scan("").unwrap().map(Result::unwrap);
        let values: BTreeMap<_, _> = values.map(|(key, value)| (text(key), text(value))).collect();
        assert!(values == self.values, "P8: {} values for {}", values.len(), self.values.len());
    }
}

/// A closed store with much that is forgotten or was replaced, and some that is not. Closing it makes all durable.
fn used(engine: Engine, folder: &Path) -> Told {
    let relaxed = Store::builder(engine.at(folder)).retention(YEAR).durability(Durability::Relaxed);
    let store = relaxed.open().unwrap();
    let mut told = Told::default();
    for n in 0..150 {
        let passing = Request::new(format!("gone-{n}")).retention(Duration::from_millis(1));
        store.claim(passing).unwrap().granted().unwrap().complete(&"x".repeat(50_000)).unwrap();
    }
    for n in 0..200 {
        told.work(&store, n, 100);
    }
    // A claim that is pending when the store is closed.
    let held = Request::new("held").durability(Durability::Full);
    let claim = store.claim(held).unwrap().granted().unwrap();
    told.token = told.token.max(Some(claim.token()));
    store.close().unwrap();
    drop(claim);
    told
}

fn length(engine: Engine, folder: &Path) -> u64 {
    fs::metadata(folder.join(engine.name()).join("db")).unwrap().len()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn compacting_gives_space_back_and_changes_nothing_that_is_told() {
    for &engine in Engine::ALL {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("store");
        let mut told = used(engine, &folder);
        let before = length(engine, &folder);
        let copied = Store::compact(&folder).unwrap();
        assert_eq!((copied.records, copied.values, copied.unreadable), (201, 200, 0), "{engine:?}");
        let after = length(engine, &folder);
        assert!(after < before, "{engine:?}: no space was given back: {before} bytes before, {after} after");
        assert_eq!(names(&folder), engine.closed());
        let store = open(engine, &folder);
        told.is_there(&store);
        let again = store.claim("held").unwrap().granted().expect("P6: its opening has ended");
        assert_eq!(again.attempt(), 2);
        again.release().unwrap();
        told.work(&store, 1000, 100);
        store.close().unwrap();
        Store::compact(&folder).unwrap();
        told.is_there(&open(engine, &folder));
    }
}

#[test]
fn a_store_that_is_open_or_is_none_is_not_compacted() {
    for &engine in Engine::ALL {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("store");
        let store = open(engine, &folder);
        let told = Store::compact(&folder);
        assert!(matches!(told, Err(CopyError::Open(OpenError::Locked { .. }))), "rule 9: {told:?}");
        store.close().unwrap();
        let nowhere = place.path().join("nowhere");
        for none in [nowhere.as_path(), place.path()] {
            let told = Store::compact(none);
            assert!(matches!(told, Err(CopyError::Open(OpenError::NoStore { .. }))), "{told:?}");
        }
        assert!(!nowhere.exists());
        assert_eq!(names(place.path()), ["store"]);
    }
}

#[test]
fn what_is_somebody_elses_is_not_touched() {
    for &engine in Engine::ALL {
        let place = tempfile::tempdir().unwrap();
        let theirs = ["fresh/a", "replaced/b", "notes"];
        for name in theirs {
            fs::create_dir_all(place.path().join(name).parent().unwrap()).unwrap();
            fs::write(place.path().join(name), name).unwrap();
        }
        let told = used(engine, place.path());
        let refused = Store::compact(place.path());
        assert!(refused.is_err(), "a folder that is not claimdb's was written over");
        told.is_there(&open(engine, place.path()));
        for name in theirs {
            let there = fs::read_to_string(place.path().join(name));
            assert_eq!(there.ok().as_deref(), Some(name), "nothing is ever wiped: {name} is gone");
        }
    }
}

#[test]
fn closing_a_store_waits_for_nothing() {
    let place = tempfile::tempdir().unwrap();
    // The wait for an engine that is not done has a bound of a second; the quickest of a few tells whether it ran out.
    let quickest = (0..5).map(|_| {
        let store = open(Engine::Sled, place.path());
        let start = Instant::now();
        store.close().unwrap();
        start.elapsed()
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_secs(1), "each close waits for what it holds itself: {quickest:?}");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Makes of a closed store what a cut leaves behind.
type Cut<'a> = &'a dyn Fn(&Path);

/// What each cut leaves behind, and what the next opening is to find.
#[test]
fn wherever_it_is_cut_the_next_opening_finds_the_one_or_the_other_and_clears_up() {
    Engine::ALL.iter().for_each(|engine| cut_everywhere(*engine));
}

fn cut_everywhere(engine: Engine) {
    let (files, fresh) = (engine.name(), format!("fresh/{}", engine.name()));
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let told = used(engine, &folder);
    let compacted = place.path().join("compacted");
    copy_folder(&folder, &compacted);
    Store::compact(&compacted).unwrap();
    let cuts: [(&str, Cut<'_>); 6] = [
        ("while the new files are filled", &|at| {
            fs::create_dir_all(at.join(&fresh)).unwrap();
            fs::write(at.join(&fresh).join("db"), [0; 100]).unwrap();
        }),
        ("before the first rename", &|at| copy_folder(&compacted, &at.join("fresh"))),
        ("between the renames", &|at| {
            copy_folder(&compacted, &at.join("fresh"));
            fs::rename(at.join(files), at.join("replaced")).unwrap();
        }),
        ("after the second rename", &|at| {
            fs::rename(at.join(files), at.join("replaced")).unwrap();
            copy_folder(&compacted.join(files), &at.join(files));
            fs::create_dir(at.join("fresh")).unwrap();
        }),
        ("while the old files are deleted", &|at| {
            fs::rename(at.join(files), at.join("replaced")).unwrap();
            fs::remove_file(at.join("replaced/db")).unwrap();
            copy_folder(&compacted.join(files), &at.join(files));
        }),
        ("while the new folder is deleted", &|at| fs::create_dir(at.join("fresh")).unwrap()),
    ];
    for (when, cut) in cuts {
        for by_compact in [false, true] {
            let at = place.path().join("cut");
            copy_folder(&folder, &at);
            fs::remove_file(at.join("clean")).unwrap();
            fs::write(at.join("compacting"), "").unwrap();
            cut(&at);
            if by_compact {
                Store::compact(&at).unwrap_or_else(|error| panic!("cut {when}: {error}"));
            }
            let store = Store::builder(engine.at(&at)).open();
            let store = store.unwrap_or_else(|error| panic!("P8 remembered: {engine:?} cut {when}: {error}"));
            told.is_there(&store);
            store.close().unwrap();
            assert_eq!(names(&at), engine.closed(), "cut {when}");
            fs::remove_dir_all(&at).unwrap();
        }
    }
}

/// Not a test of its own: what [`start`] runs in another process.
#[test]
fn compact_until_killed_if_asked_to() {
    let Some(folder) = std::env::var_os(COMPACT) else { return };
    for _ in 0..1000 {
        println!("\ncompacting");
        Store::compact(Path::new(&folder)).unwrap();
    }
}

/// Starts a process that compacts `folder`, and returns when it begins.
fn start(folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "compact_until_killed_if_asked_to", "--nocapture"])
        .env(COMPACT, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line == "compacting"), "the other process did not begin");
    // Its later lines must find a reader.
    std::thread::spawn(move || said.count());
    child
}

/// A small generator with nothing to install.
struct Random(u64);

impl Random {
    fn below(&mut self, span: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        span.mul_f64((self.0 >> 40) as f64 / f64::from(1 << 24))
    }
}

/// When `path` was there; now, if it never is.
fn seen(path: &Path) -> Instant {
    let limit = Instant::now() + Duration::from_secs(10);
    while !path.exists() && Instant::now() < limit {
        std::thread::yield_now();
    }
    Instant::now()
}

#[test]
fn killed_at_any_moment_all_that_was_told_is_there_exactly_once() {
    Engine::ALL.iter().for_each(|engine| kill_at_any_moment(*engine));
}

fn kill_at_any_moment(engine: Engine) {
    const LEAST: u32 = 15;
    const ROUNDS: u32 = 30;
    const LIMIT: Duration = Duration::from_secs(20);
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let mut told = used(engine, &folder);
    let start_of_one = Instant::now();
    Store::compact(&folder).unwrap();
    let one = start_of_one.elapsed();
    // Repeatable as far as other processes are.
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (begin, mut rounds, mut left) = (Instant::now(), 0, BTreeMap::<String, u32>::new());
    while rounds < LEAST || (rounds < ROUNDS && begin.elapsed() < LIMIT) {
        let mut child = start(&folder);
        // At any time, while the new files are filled, and about the two renames.
        let strike = match rounds % 3 {
            0 => Instant::now() + random.below(one),
            1 => seen(&folder.join("fresh")) + random.below(one / 2),
            _ => seen(&folder.join("replaced")) + random.below(Duration::from_millis(3)),
        };
        while Instant::now() < strike {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        *left.entry(names(&folder).join(" ")).or_default() += 1;
        let store = open(engine, &folder);
        told.is_there(&store);
        told.work(&store, 2000 + rounds as usize, 100);
        store.close().unwrap();
        rounds += 1;
    }
    let took = begin.elapsed();
    println!("compact: over {}: kills: {rounds}, in {took:.0?}; what they left: {left:?}", engine.name());
    let in_the_middle = left.keys().filter(|names| names.contains("fresh") || names.contains("replaced"));
    assert!(in_the_middle.count() > 0, "none was killed in the middle: {left:?}");
}

#[test]
fn at_any_power_cut_all_that_was_told_is_there_exactly_once() {
    if let Err(reason) = disk::Disk::available() {
        // As root on Linux there is nothing in the way.
        assert!(reason == "not root" || !cfg!(target_os = "linux"), "no disk to cut the power of: {reason}");
        // As the other harnesses tell it.
        println!("test compact_power_cut ... ignored, {reason}");
        return;
    }
    Engine::ALL.iter().for_each(|engine| cut_the_power(*engine));
}

fn cut_the_power(engine: Engine) {
    const ROUNDS: u32 = 20;
    const LIMIT: Duration = Duration::from_secs(20);
    let disk = disk::Disk::new("compact", 512).unwrap();
    let folder = disk.path().join("store");
    let mut told = used(engine, &folder);
    let (begin, mut random, mut rounds) = (Instant::now(), Random(0x5851_f42d_4c95_7f2d), 0);
    while rounds < ROUNDS && begin.elapsed() < LIMIT {
        let mut child = start(&folder);
        let strike = Instant::now() + random.below(Duration::from_secs(1));
        while Instant::now() < strike {
            std::hint::spin_loop();
        }
        disk.cut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        disk.restore().unwrap();
        let opened = Store::builder(engine.at(&folder)).retention(YEAR).open();
        let store = opened.unwrap_or_else(|error| panic!("P8 remembered: round {rounds}: {error}"));
        told.is_there(&store);
        told.work(&store, 3000 + rounds as usize, 100);
        store.close().unwrap();
        rounds += 1;
    }
    println!("compact: over {}: power cuts: {rounds}, in {:.0?}", engine.name(), begin.elapsed());
    assert!(rounds >= 5, "only {rounds} cuts in {LIMIT:?} mean nothing");
}
