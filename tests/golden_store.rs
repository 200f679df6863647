//! A whole folder as the first released format has it, which every later version must open and read.
//!
//! `tests/golden/store_v1.txt` holds its files: a line `file NAME LENGTH`, and below it `OFFSET: HEX` for each 32 bytes
//! that are not all zero. `CLAIMDB_WRITE_GOLDEN=1` writes a new one, for a new version of the format.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::Sled;
use claimdb::{
    Durability, Fingerprint, ManualClock, OnInterrupt, Outcome, Request, Settled, Store, Token, WallTime,
};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LINE: usize = 32;
/// 2026-01-01.
const THEN: u64 = 1_767_225_600_000;
const CENTURY: Duration = Duration::from_secs(36_500 * 86_400);

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/store_v1.txt")
}

fn open(folder: &Path, wall: u64) -> Store {
    let clock = ManualClock::new();
    clock.set_wall(WallTime::from_unix_millis(wall));
    Store::builder(Sled::new(folder)).clock(clock).sweep_every(Duration::ZERO).open().unwrap()
}

fn fingerprint() -> Fingerprint {
    Fingerprint::of_bytes(b"the request")
}

/// A record in each state, a value, and an effect; closed cleanly.
fn make(folder: &Path) {
    let store = open(folder, THEN);
    let request = |key| Request::new(key).retention(CENTURY);
    let claim = |request: Request| store.claim(request).unwrap().granted().unwrap();
    claim(request("completed").fingerprint(fingerprint())).complete("receipt 7").unwrap();
    claim(request("failed")).fail("declined").unwrap();
    claim(request("omitted")).omit(claimdb::Omission::OnPurpose).unwrap();
    claim(request("in memory").durability(Durability::Result)).complete("kept").unwrap();
    let mut pending = claim(request("pending"));
    pending.checkpoint(b"page 7").unwrap();
    drop(claim(request("interrupted").on_interrupt(OnInterrupt::Quarantine)));
    assert!(matches!(store.claim(request("interrupted")).unwrap(), Outcome::Interrupted(_)));
    store.kv("settings").put("colour", "blue").unwrap();
    store.close().unwrap();
    drop(pending);
    // So that there is a snapshot, and a log that goes on after it.
    open(folder, THEN).close().unwrap();
}

fn write(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["format", "clean", "tail", "sled/conf", "sled/db"]
        .map(str::to_owned)
        .into_iter()
        .chain(snapshots(folder))
    {
        let bytes = fs::read(folder.join(&name)).unwrap();
        writeln!(text, "file {name} {}", bytes.len()).unwrap();
        for (number, line) in bytes.chunks(LINE).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0))
        {
            write!(text, "{:x}: ", number * LINE).unwrap();
            line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

fn snapshots(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("sled")).unwrap();
    let names = entries.map(|entry| format!("sled/{}", entry.unwrap().file_name().to_str().unwrap()));
    names.filter(|name| name.contains("snap.")).collect()
}

fn unpack(text: &str, folder: &Path) {
    fs::create_dir_all(folder.join("sled")).unwrap();
    let mut file = None;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("file ") {
            let (name, length) = head.split_once(' ').unwrap();
            let made = File::create(folder.join(name)).unwrap();
            made.set_len(length.parse().unwrap()).unwrap();
            file = Some(made);
            continue;
        }
        let (offset, hex) = line.split_once(": ").unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<_> = (0..hex.len()).step_by(2).map(byte).collect();
        file.as_ref().unwrap().write_all_at(&bytes, u64::from_str_radix(offset, 16).unwrap()).unwrap();
    }
}

fn text(store: &Store, key: &str) -> Option<String> {
    match store.get(key).unwrap()? {
        Settled::Completed(stored) | Settled::Failed(stored) => Some(stored.decode().unwrap()),
        Settled::Omitted(_) => None,
    }
}

#[test]
fn a_store_of_version_1_is_opened_and_read() {
    let folder = tempfile::tempdir().unwrap();
    if std::env::var_os("CLAIMDB_WRITE_GOLDEN").is_some() {
        make(folder.path());
        fs::write(golden(), write(folder.path())).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    unpack(&fs::read_to_string(golden()).unwrap(), folder.path());
    // Half a year later.
    let store = open(folder.path(), THEN + 180 * 86_400_000);
    assert_eq!(text(&store, "completed").as_deref(), Some("receipt 7"));
    assert_eq!(text(&store, "failed").as_deref(), Some("declined"));
    assert_eq!(text(&store, "in memory").as_deref(), Some("kept"));
    assert!(matches!(store.get("omitted").unwrap(), Some(Settled::Omitted(_))));
    assert_eq!(store.kv("settings").get("colour").unwrap().as_deref(), Some(&b"blue"[..]));

    let told = store.claim(Request::new("completed").fingerprint(fingerprint())).unwrap();
    assert!(told.settled().is_some(), "P8 remembered: its fingerprint is no longer the same");
    assert!(matches!(store.claim("completed").unwrap(), Outcome::Mismatched(_)), "P7 mismatch is harmless");
    let Outcome::Interrupted(case) = store.claim("interrupted").unwrap() else {
        panic!("it was quarantined")
    };
    assert!(case.token() < Token::new((THEN / 1000 + 1) << 20));
    let claim = store.claim("pending").unwrap().granted().expect("P5: its opening has ended");
    assert_eq!((claim.attempt(), claim.last_checkpoint()), (2, Some(&b"page 7"[..])));
    assert!(claim.token() > claim.previous().unwrap().token, "P2 ordered tokens");
}
