//! Claim and complete over each engine, in turn: sled, redb with its queue, and redb with a transaction for each
//! caller, which is what the queue is there against.
//!
//! `cargo bench --features redb --bench backends` prints medians and writes them to `target/figures/backends.json`. Every store is on the file
//! system of the temporary folder, so set `TMPDIR` to measure another.
#![allow(missing_docs)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures, from outside
#![allow(clippy::unwrap_used)] // a bench that fails has nothing to say

mod about;
#[path = "../tests/support/plain_redb.rs"]
mod plain_redb;

use claimdb::backend::{Redb, Sled};
use claimdb::{Builder, Durability, Outcome, Request, Store};
use plain_redb::PlainRedb;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const DURABILITIES: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];
const THREADS: [u64; 2] = [1, 64];
const VALUE: [u8; 200] = [7; 200];
/// How many records the folder's size is looked at with.
const RECORDS: u64 = 20_000;

type Make = fn(&Path) -> Builder;

fn plain(folder: &Path, two_phases: bool) -> Builder {
    Store::builder(PlainRedb { file: folder.join("db"), syncs: true, two_phases })
}

const ENGINES: [(&str, Make); 4] = [
    ("sled", |folder| Store::builder(Sled::new(folder))),
    ("redb", |folder| Store::builder(Redb::new(folder))),
    ("redb, a transaction for each caller", |folder| plain(folder, true)),
    ("redb, a transaction for each caller, one phase", |folder| plain(folder, false)),
];

fn one(store: &Store, durability: Durability) {
    static KEY: AtomicU64 = AtomicU64::new(0);
    // Spread over the key space.
    let key = KEY.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let request = Request::new(format!("{key:016x}")).durability(durability);
    let Outcome::Granted(claim) = store.claim(request).unwrap() else { panic!("keys repeat") };
    claim.complete_bytes(VALUE).unwrap();
}

fn rate(store: &Store, durability: Durability, threads: u64, span: Duration) -> f64 {
    let start = Instant::now();
    let work = || {
        let mut done = 0_u64;
        while start.elapsed() < span {
            one(store, durability);
            done += 1;
        }
        done
    };
    let done: u64 = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    done as f64 / start.elapsed().as_secs_f64()
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let bytes = entries.map(|entry| match entry.metadata().unwrap() {
        found if found.is_dir() => bytes_in(&entry.path()),
        found => found.len(),
    });
    bytes.sum()
}

fn main() {
    let trial = std::env::args().any(|argument| argument == "--test");
    let (rounds, span) = if trial { (1, Duration::from_millis(20)) } else { (5, Duration::from_secs(1)) };
    let mut json = String::new();
    println!("claim and complete, {} bytes, operations a second, median of {rounds} rounds:", VALUE.len());
    for durability in DURABILITIES {
        let folders = ENGINES.map(|_| tempfile::tempdir().unwrap());
        let stores: Vec<_> = ENGINES
            .iter()
            .zip(&folders)
            .map(|((_, make), folder)| make(folder.path()).sweep_every(Duration::ZERO).open().unwrap())
            .collect();
        let mut rates = ENGINES.map(|_| THREADS.map(|_| Vec::new()));
        for _ in 0..rounds {
            for (store, rates) in stores.iter().zip(&mut rates) {
                for (threads, rates) in THREADS.iter().zip(rates) {
                    rates.push(rate(store, durability, *threads, span));
                }
            }
        }
        for ((name, _), rates) in ENGINES.iter().zip(rates) {
            let [one, many] = rates.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                rates[rates.len() / 2]
            });
            println!("{name:<48} {durability:?} {one:>10.0} {many:>10.0}");
            write!(
                json,
                "\n  {{\"engine\": \"{name}\", \"durability\": \"{durability:?}\", \"threads_1\": {one:.0}, \
                 \"threads_64\": {many:.0}}},"
            )
            .unwrap();
        }
    }
    let mut sizes = String::new();
    for (name, make) in &ENGINES[..2] {
        let folder = tempfile::tempdir().unwrap();
        let store = make(folder.path()).open().unwrap();
        for _ in 0..if trial { 10 } else { RECORDS } {
            one(&store, Durability::Relaxed);
        }
        store.close().unwrap();
        let bytes = bytes_in(folder.path());
        println!("{name}: {bytes} bytes on disk with {RECORDS} records");
        write!(sizes, "\n  {{\"engine\": \"{name}\", \"bytes\": {bytes}}},").unwrap();
    }
    if trial {
        return;
    }
    let text = format!(
        "{{\"value_bytes\": {}, \"rounds\": {rounds}, \"round_seconds\": {}, \"operations_per_second\": [{}], \
         \"records\": {RECORDS}, \"on_disk\": [{}]}}",
        VALUE.len(),
        span.as_secs(),
        json.trim_end_matches(','),
        sizes.trim_end_matches(',')
    );
    about::write("backends", "cargo bench --features redb --bench backends", &text);
}
