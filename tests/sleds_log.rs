//! What claimdb makes of sled's log, against sled itself: of many logs, whole and damaged, both make the same snapshot.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/child.rs"]
mod child;
#[path = "support/folders.rs"]
mod folders;

use child::Random;
use claimdb::backend::{Backend, Commit, Engine, Sled, Write};
use claimdb::{OpenError, Store};
use folders::copy;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

const SEGMENT: u64 = 8 << 20;
/// The latest snapshot: its name and its bytes.
type Snapshot = Option<(String, Vec<u8>)>;

fn snapshot(sled: &Path) -> Snapshot {
    let names = fs::read_dir(sled).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let newest = names.filter(|name| name.starts_with("snap.")).max()?;
    let bytes = fs::read(sled.join(&newest)).unwrap();
    Some((newest, bytes))
}

/// What sled makes of a copy of the log; `None` if it does not open.
fn sleds(folder: &Path) -> Option<Snapshot> {
    let copied = tempfile::tempdir().unwrap();
    copy(&folder.join("sled"), copied.path());
    let path = copied.path().to_owned();
    let opened = catch_unwind(move || {
        let config = sled::Config::new().path(&path).segment_size(8 << 20).flush_every_ms(None);
        config.open().map(|db| (snapshot(&path), db)).ok()
    });
    opened.ok().flatten().map(|(snapshot, _)| snapshot)
}

fn ours(folder: &Path) -> Result<Snapshot, OpenError> {
    let engine = Sled::existing(folder).open()?;
    let found = snapshot(&folder.join("sled"));
    drop(engine);
    Ok(found)
}

/// Some of everything that a store writes: values of all sizes, those in files of their own among them, deletions,
/// transactions, and keys that are written so often that segments are used again.
fn work(engine: &dyn Engine, random: &mut Random, commits: usize) {
    for _ in 0..commits {
        let sizes = if random.below(8) == 0 { 5 } else { 4 };
        let length = [10, 300, 3_000, 60_000, 700_000][random.below(sizes)];
        // Large ones are neighbours, so that a leaf outgrows the log.
        let key = match length {
            700_000 => format!("\x09large-{:02}", random.below(12)),
            _ => format!("\x09k-{:04}", random.below(400)),
        };
        let value = vec![u8::try_from(random.below(256)).unwrap(); length];
        let seen = engine.read(key.as_bytes()).unwrap();
        let new = (random.below(5) > 0).then_some(value.as_slice());
        let effects: Vec<_> = (0..if random.below(20) == 0 { 4 } else { 0 })
            .map(|n| Write {
                key: format!("\x09e-{n}-{}", random.below(50)).into(),
                value: Some(vec![7; 500]),
            })
            .collect();
        let commit = Commit { effects: &effects, ..Commit::swap(key.as_bytes(), seen.as_deref(), new) };
        engine.commit(&[commit]).remove(0).unwrap();
        if random.below(40) == 0 {
            engine.sync().unwrap();
        }
    }
}

/// A store's folder as it was at some moments of its use, in the middle of some openings and closed.
fn moments(random: &mut Random) -> Vec<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    Store::builder(Sled::new(folder.path())).open().unwrap().close().unwrap();
    let mut moments = Vec::new();
    let mut take = || {
        let taken = tempfile::tempdir().unwrap();
        copy(folder.path(), taken.path());
        moments.push(taken);
    };
    for commits in [30, 400, 900] {
        let engine = Sled::existing(folder.path()).open().unwrap();
        work(&*engine, random, commits);
        engine.sync().unwrap();
        take();
        work(&*engine, random, commits / 2);
        take();
        drop(engine);
        take();
    }
    moments
}

#[test]
fn an_opening_makes_the_snapshot_that_sled_would_make() {
    let seed = std::env::var("CLAIMDB_SEED").map_or(7, |seed| seed.parse().unwrap());
    let random = &mut Random(seed);
    let (mut same, mut refused, mut both_refused) = (0, 0, 0);
    for moment in moments(random) {
        for damage in 0..6 {
            let (folder, without) = (tempfile::tempdir().unwrap(), random.below(3) == 0);
            copy(moment.path(), folder.path());
            if without {
                let (name, _) = snapshot(&folder.path().join("sled")).unwrap();
                fs::remove_file(folder.path().join("sled").join(name)).unwrap();
            }
            if damage > 0 {
                let _ = fs::remove_file(folder.path().join("clean"));
                hurt(folder.path(), damage, random);
            }
            let theirs = sleds(folder.path());
            match (ours(folder.path()), theirs) {
                (Ok(ours), Some(theirs)) => {
                    let names =
                        |found: &Snapshot| found.as_ref().map(|(name, bytes)| (name.clone(), bytes.len()));
                    assert_eq!(
                        names(&ours),
                        names(&theirs),
                        "damage {damage}, without a snapshot: {without}"
                    );
                    assert!(ours == theirs, "damage {damage}: {:?} differ in their bytes", names(&ours));
                    same += 1;
                }
                (Err(OpenError::Damaged { .. }), theirs) if damage > 0 => {
                    (refused, both_refused) = (refused + 1, both_refused + usize::from(theirs.is_none()));
                }
                (ours, theirs) => {
                    panic!(
                        "P8 remembered: damage {damage}: {:?}, and sled {:?}",
                        ours.err(),
                        theirs.is_some()
                    )
                }
            }
        }
    }
    println!(
        "sleds_log: {same} logs: the same snapshot; refused {refused}, {both_refused} of them by sled as well"
    );
    assert!(same >= 25, "too few were compared: {same}");
}

/// What may become of the files of a store that was not closed.
fn hurt(folder: &Path, how: usize, random: &mut Random) {
    let log = OpenOptions::new().write(true).open(folder.join("sled/db")).unwrap();
    let length = log.metadata().unwrap().len();
    let segments = usize::try_from(length.div_ceil(SEGMENT)).unwrap();
    let anywhere =
        |random: &mut Random| u64::try_from(random.below(usize::try_from(length).unwrap())).unwrap();
    match how {
        1 => log.set_len(anywhere(random)).unwrap(),
        2 => log.write_all_at(&[0x55; 64], anywhere(random)).unwrap(),
        3 => log.write_all_at(&[0; 4096], anywhere(random) / 4096 * 4096).unwrap(),
        // The header of a segment.
        4 => log.write_all_at(&[0; 20], u64::try_from(random.below(segments)).unwrap() * SEGMENT).unwrap(),
        _ => {
            let blobs = fs::read_dir(folder.join("sled/blobs")).unwrap().map(|entry| entry.unwrap().path());
            let mut blobs: Vec<PathBuf> = blobs.collect();
            blobs.sort();
            if blobs.is_empty() {
                return;
            }
            let blob = &blobs[random.below(blobs.len())];
            match random.below(2) {
                0 => fs::remove_file(blob).unwrap(),
                _ => OpenOptions::new().write(true).open(blob).unwrap().set_len(1_000).unwrap(),
            }
        }
    }
}
