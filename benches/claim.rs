//! What a claim costs, each beside its floor: bare sled doing the same writes and syncs, keys and values as long as claimdb's, or a
//! bare map.
//!
//! `cargo bench --bench claim` prints criterion's figures, each of one thread, then the throughput of one and of 64 threads, measured
//! in turn, and writes them to `claim-costs.json` and `claim-throughput.json` in `target/figures/`. Every store is on the file system of the
//! temporary folder, so set `TMPDIR` to measure another.
#![allow(missing_docs)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures, from outside
#![allow(clippy::unwrap_used)] // a bench that fails has nothing to say

mod about;
mod throughput;
mod wake_up;
#[path = "scale/written.rs"]
mod written;

use claimdb::backend::Sled;
use claimdb::{
    Durability, EndedBy, Kept, OnInterrupt, Outcome, Previous, Record, Request, State, Store, Terms, Token,
    WallTime,
};
use criterion::{BatchSize, Criterion, criterion_group};
use std::collections::HashMap;
use std::fs::File;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use written::Written;

/// As large as a small JSON receipt.
pub const VALUE: [u8; 200] = [7; 200];

/// A fresh key for each call, spread over the key space.
pub struct Keys(u64);

impl Keys {
    pub fn new(start: u64) -> Self {
        Self(start)
    }

    pub fn fresh(&mut self) -> String {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        format!("{:016x}", self.0)
    }
}

pub fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::builder(Sled::new(folder.path().join("store"))).open().unwrap();
    (folder, store)
}

/// sled as claimdb sets it up, without claimdb.
pub struct Bare {
    pub db: sled::Db,
    log: File,
    _folder: TempDir,
}

impl Bare {
    pub fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = sled::Config::new().path(folder.path()).flush_every_ms(None).segment_size(8 << 20);
        let db = config.cache_capacity(128 << 20).open().unwrap();
        let log = File::open(folder.path().join("db")).unwrap();
        Self { db, log, _folder: folder }
    }

    pub fn swap(&self, key: impl AsRef<[u8]>, old: Option<&[u8]>, new: &[u8]) {
        self.db.compare_and_swap(key, old, Some(new)).unwrap().unwrap();
    }

    pub fn sync(&self) {
        self.db.flush().unwrap();
        self.log.sync_data().unwrap();
    }
}

/// What a claim writes before it is settled: the record that `written` is of, pending.
fn pending(written: &Written, previous: Option<Previous>) -> Vec<u8> {
    let mut record = Record::decode(&written.record).unwrap();
    assert_eq!(record.encode(), written.record, "records are stored as they are encoded");
    record.state = State::Pending { previous, checkpoint: None };
    record.encode()
}

fn claim_and_complete(c: &mut Criterion) {
    let mut group = c.benchmark_group("claim and complete");
    for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
        let (_folder, store) = store();
        let mut keys = Keys::new(1);
        group.bench_function(format!("{durability:?}"), |b| {
            b.iter_batched(
                || Request::new(keys.fresh()).durability(durability),
                |request| {
                    let Outcome::Granted(claim) = store.claim(request).unwrap() else { panic!() };
                    claim.complete_bytes(VALUE).unwrap();
                },
                BatchSize::SmallInput,
            );
        });
        let (bare, written) = (Bare::open(), Written::new());
        let pending = pending(&written, None);
        let (mut keys, mut end) = (Keys::new(1), 0);
        group.bench_function(format!("{durability:?}, floor: bare sled, the same writes and syncs"), |b| {
            b.iter_batched(
                || {
                    let name = keys.fresh();
                    end += 1;
                    (written.key(&name), written.entry(end, &name))
                },
                |(key, entry)| {
                    let old = (durability == Durability::Full).then_some(&pending[..]);
                    if let Some(pending) = old {
                        bare.swap(&key, None, pending);
                        bare.sync();
                    }
                    bare.db.insert(entry, &[]).unwrap();
                    bare.swap(&key, old, &written.record);
                    if durability != Durability::Relaxed {
                        bare.sync();
                    }
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn claim(c: &mut Criterion) {
    let mut group = c.benchmark_group("claim");
    for durability in [Durability::Full, Durability::Result] {
        let (_folder, store) = store();
        let mut keys = Keys::new(1);
        group.bench_function(format!("{durability:?}, granted"), |b| {
            b.iter_batched(
                || Request::new(keys.fresh()).durability(durability),
                |request| store.claim(request).unwrap(),
                BatchSize::SmallInput,
            );
        });
        let (bare, written) = (Bare::open(), Written::new());
        let pending = pending(&written, None);
        let mut keys = Keys::new(1);
        let floor = match durability {
            Durability::Full => "Full, floor: bare sled, the same write and sync",
            _ => "Result, floor: bare sled, get of an absent key",
        };
        group.bench_function(floor, |b| {
            b.iter_batched(
                || written.key(&keys.fresh()),
                |key| match durability {
                    Durability::Full => {
                        bare.swap(&key, None, &pending);
                        bare.sync();
                    }
                    _ => assert!(bare.db.get(&key).unwrap().is_none()),
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn losing_claim(c: &mut Criterion) {
    let mut group = c.benchmark_group("losing claim on a live key");
    let (_folder, store) = store();
    let request = Request::new("k").durability(Durability::Result).lease(Duration::from_secs(86_400));
    let held = store.claim(&request).unwrap();
    group.bench_function("claimdb", |b| b.iter(|| store.claim(&request).unwrap()));
    drop(held);
    let map: Mutex<HashMap<String, Instant>> =
        Mutex::new(HashMap::from([("k".to_owned(), Instant::now() + Duration::from_secs(86_400))]));
    group.bench_function("floor: a bare map behind a mutex, and a clock reading", |b| {
        b.iter(|| map.lock().unwrap().get("k").map(|deadline| Instant::now() < *deadline));
    });
    group.finish();
}

fn replay(c: &mut Criterion) {
    const KEYS: u64 = 10_000;
    let mut group = c.benchmark_group("replay of an old completion");
    let (_folder, store) = store();
    let (bare, written) = (Bare::open(), Written::new());
    let (mut keys, mut end) = (Keys::new(1), 0);
    for _ in 0..KEYS {
        let key = keys.fresh();
        end += 1;
        let request = Request::new(&key).durability(Durability::Relaxed);
        store.claim(request).unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
        bare.db.insert(written.entry(end, &key), &[]).unwrap();
        bare.swap(written.key(&key), None, &written.record);
    }
    let again = || {
        let (mut keys, mut count) = (Keys::new(1), 0);
        move || {
            count = (count + 1) % KEYS;
            if count == 1 {
                keys = Keys::new(1);
            }
            keys.fresh()
        }
    };
    group.bench_function("claimdb", |b| {
        b.iter_batched(again(), |key| store.claim(key).unwrap().settled(), BatchSize::SmallInput);
    });
    group.bench_function("floor: bare sled, get", |b| {
        let mut again = again();
        let key = || written.key(&again());
        b.iter_batched(key, |key| bare.db.get(&key).unwrap(), BatchSize::SmallInput);
    });
    group.finish();
}

/// One that was told a moment ago, and is told again from memory.
fn replay_of_a_recent_one(c: &mut Criterion) {
    let mut group = c.benchmark_group("replay of a recent completion");
    let (_folder, store) = store();
    store.claim("k").unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
    group.bench_function("claimdb", |b| b.iter(|| store.claim("k").unwrap().settled()));
    let end = Instant::now() + Duration::from_secs(86_400);
    let map = Mutex::new(HashMap::from([("k".to_owned(), (end, VALUE.to_vec()))]));
    group.bench_function("floor: a bare map behind a mutex, a clock reading, and a copy", |b| {
        b.iter(|| {
            let (end, value) = map.lock().unwrap().get("k").cloned().unwrap();
            (Instant::now() < end).then_some(value)
        });
    });
    group.finish();
}

fn renew(c: &mut Criterion) {
    let mut group = c.benchmark_group("renew");
    let (_folder, store) = store();
    let claim = store.claim(Request::new("k").durability(Durability::Result)).unwrap().granted().unwrap();
    group.bench_function("claimdb", |b| b.iter(|| claim.renew(Duration::from_secs(30)).unwrap()));
    let map: Mutex<HashMap<String, Instant>> = Mutex::new(HashMap::from([("k".to_owned(), Instant::now())]));
    group.bench_function("floor: a bare map behind a mutex, and a clock reading", |b| {
        b.iter(|| *map.lock().unwrap().get_mut("k").unwrap() = Instant::now() + Duration::from_secs(30));
    });
    group.finish();
}

/// A claim that takes over from one that was dropped, as the next attempt.
fn reclaim(c: &mut Criterion) {
    let mut group = c.benchmark_group("reclaim");
    let (_folder, store) = store();
    let request = Request::new("k").lease(Duration::from_secs(86_400));
    drop(store.claim(&request).unwrap());
    group.bench_function("claimdb", |b| {
        b.iter(|| store.claim(&request).unwrap().granted().unwrap().attempt())
    });
    let (bare, written) = (Bare::open(), Written::new());
    let key = written.key(&Keys::new(1).fresh());
    let previous = Previous { token: Token::new(1 << 50), ended_by: EndedBy::Dropped };
    let mut record = pending(&written, Some(previous));
    bare.swap(&key, None, &record);
    group.bench_function("floor: bare sled, get, the same write and sync", |b| {
        b.iter(|| {
            let old = bare.db.get(&key).unwrap().unwrap();
            // As long, and another one.
            record[0] = record[0].wrapping_add(1);
            bare.swap(&key, Some(&old), &record);
            bare.sync();
        });
    });
    group.finish();
}

fn record(c: &mut Criterion) {
    let mut group = c.benchmark_group("a record with 200 bytes");
    let record = Record {
        token: Token::new(1 << 50),
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
            result: Kept::Completed(VALUE.to_vec()),
            at: WallTime::from_unix_millis(1_735_689_600_000),
            by_hand: false,
        },
    };
    let bytes = record.encode();
    group.bench_function("encoded", |b| b.iter(|| record.encode()));
    group.bench_function("decoded", |b| b.iter(|| Record::decode(&bytes).unwrap()));
    group.bench_function("floor: its bytes copied, with their checksum", |b| {
        b.iter(|| (bytes.clone(), crc32fast::hash(&bytes)));
    });
    group.finish();
}

criterion_group! {
    name = micro;
    config = Criterion::default().sample_size(30).measurement_time(Duration::from_secs(3)).without_plots();
    targets = claim_and_complete, claim, losing_claim, replay, replay_of_a_recent_one, renew, reclaim, wake_up::wake_up, record
}

fn main() {
    let trial = std::env::args().any(|argument| argument == "--test");
    let start = SystemTime::now();
    micro();
    Criterion::default().configure_from_args().final_summary();
    // Whoever names some of the above wants those.
    if std::env::args().skip(1).all(|argument| argument.starts_with('-')) {
        if !trial {
            throughput::costs::write(start);
        }
        throughput::run(trial);
    }
}
