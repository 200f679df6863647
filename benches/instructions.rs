//! How many instructions the hot paths take, counted by callgrind: the same on a busy machine as on a quiet one.
//!
//! `cargo bench --no-default-features --bench instructions` prints a table and writes `target/figures/instructions.json`. Needs
//! `valgrind`. Everything is over `Mem`, by the manual clock, on one thread that syncs for itself; the floors are the
//! same engine's swap, and a map. Each path runs under callgrind a thousand and two thousand times, and what is told is
//! the difference, so that starting up costs nothing.
#![allow(missing_docs)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures, from outside
#![allow(clippy::unwrap_used)] // a bench that fails has nothing to say

mod about;

use claimdb::backend::{Backend, Commit, Mem};
use claimdb::{
    Durability, ManualClock, OnInterrupt, Outcome, Record, Request, State, Store, SyncBy, Terms, Token,
    WallTime,
};
use std::collections::HashMap;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

const TIMES: usize = 1000;
/// As large as a small JSON receipt.
const VALUE: [u8; 200] = [7; 200];

type Path = fn(usize);

/// Name, what it runs so many times, and which of them is its floor.
const PATHS: [(&str, Path, &str); 13] = [
    ("claim and complete, Full", |times| claim_and_complete(times, Durability::Full), "two swaps"),
    ("claim and complete, Result", |times| claim_and_complete(times, Durability::Result), "one swap"),
    ("claim and complete, Relaxed", |times| claim_and_complete(times, Durability::Relaxed), "one swap"),
    ("claim and drop, in memory", claim_and_drop, "a map's get"),
    ("losing claim on a live key", losing, "a map's get"),
    ("replay", |times| replay(times, Durability::Full), "a map's get"),
    ("replay, read from the store", |times| replay(times, Durability::Relaxed), "one read"),
    ("renew", renew, "a map's get"),
    ("record encoded and decoded", record, ""),
    ("one swap", |times| swaps(times, 1), ""),
    ("two swaps", |times| swaps(times, 2), ""),
    ("one read", reads, ""),
    ("a map's get", map, ""),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, run, path, times] = &arguments[..]
        && run == "run"
    {
        let (_, body, _) = PATHS.iter().find(|(name, ..)| name == path).unwrap();
        body(times.parse().unwrap());
        return;
    }
    let trial = arguments.iter().any(|argument| argument == "--test");
    let paths = if trial { &PATHS[..1] } else { &PATHS[..] };
    let counts: HashMap<&str, u64> = paths.iter().map(|(name, ..)| (*name, count(name))).collect();
    let mut rows = Vec::new();
    for (name, _, floor) in paths {
        let count = counts[name];
        let beside =
            counts.get(floor).map(|floor_count| format!("  {floor}: {floor_count}")).unwrap_or_default();
        println!("{name:<30} {count:>8} instructions{beside}");
        let floor = counts.get(floor).map_or(String::new(), |count| {
            format!(", \"floor\": \"{floor}\", \"floor_instructions\": {count}")
        });
        rows.push(format!("  {{\"path\": \"{name}\", \"instructions\": {count}{floor}}}"));
    }
    if !trial {
        let features = match cfg!(all(feature = "metrics", feature = "tracing")) {
            true => " --features metrics,tracing",
            false => "",
        };
        let json = format!("{{\"value_bytes\": {}, \"counted\": [{}]}}", VALUE.len(), rows.join(","));
        let command = format!("cargo bench --no-default-features{features} --bench instructions");
        about::write_counted("instructions", &command, &json);
    }
}

/// The instructions of one run of `path`.
fn count(path: &str) -> u64 {
    let collected = |times: usize| -> u64 {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().unwrap())
            .args(["run", path, &times.to_string()])
            .output()
            .expect("valgrind is installed");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{path}: {told}");
        let line = told.lines().find(|line| line.contains("Collected")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (collected(2 * TIMES) - collected(TIMES)) / TIMES as u64
}

fn store() -> Store {
    let builder = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    builder.open().unwrap()
}

/// A key of 16 characters for each number, spread over the key space.
fn key(number: usize) -> String {
    format!("{:016x}", (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn claim_and_complete(times: usize, durability: Durability) {
    let store = store();
    for number in 0..times {
        let request = Request::new(key(number)).durability(durability);
        store.claim(request).unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
    }
}

fn claim_and_drop(times: usize) {
    let store = store();
    for number in 0..times {
        let request = Request::new(key(number)).durability(Durability::Result);
        drop(store.claim(request).unwrap().granted().unwrap());
    }
}

fn losing(times: usize) {
    let store = store();
    let _held = store.claim("held").unwrap().granted().unwrap();
    for _ in 0..times {
        assert!(matches!(black_box(store.claim("held")), Ok(Outcome::InFlight(_))));
    }
}

/// What was settled relaxed is not kept in memory, to be told again.
fn replay(times: usize, durability: Durability) {
    let store = store();
    let request = Request::new("done").durability(durability);
    store.claim(request).unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
    for _ in 0..times {
        assert!(matches!(black_box(store.claim("done")), Ok(Outcome::Settled(_))));
    }
}

fn renew(times: usize) {
    let store = store();
    let claim = store.claim("held").unwrap().granted().unwrap();
    for _ in 0..times {
        claim.renew(Duration::from_secs(30)).unwrap();
    }
}

fn record(times: usize) {
    let record = Record {
        token: Token::new(1),
        attempt: 1,
        fingerprint: None,
        terms: Terms {
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(86_400),
            durability: Durability::Full,
            on_interrupt: OnInterrupt::Rerun,
            max_attempts: None,
        },
        claimed_at: WallTime::from_unix_millis(1_735_689_600_000),
        state: State::Settled {
            result: claimdb::Kept::Completed(VALUE.to_vec()),
            at: WallTime::from_unix_millis(1_735_689_600_000),
            by_hand: false,
        },
    };
    for _ in 0..times {
        let bytes = black_box(&record).encode();
        black_box(Record::decode(black_box(&bytes)).unwrap());
    }
}

fn swaps(times: usize, each: usize) {
    let engine = Mem::new().open().unwrap();
    for number in 0..times {
        let key = key(number);
        let mut before = None;
        for _ in 0..each {
            engine.commit(&[Commit::swap(key.as_bytes(), before, Some(&VALUE))]).pop().unwrap().unwrap();
            before = Some(&VALUE[..]);
        }
    }
}

fn reads(times: usize) {
    let engine = Mem::new().open().unwrap();
    engine.commit(&[Commit::swap(b"done", None, Some(&VALUE))]).pop().unwrap().unwrap();
    for _ in 0..times {
        black_box(engine.read(black_box(b"done")).unwrap());
    }
}

fn map(times: usize) {
    let map: HashMap<String, usize> = [("held".to_owned(), 1)].into();
    for _ in 0..times {
        black_box(map.get(black_box("held")));
    }
}
