//! Deleting what is forgotten, against sled's own removes of as many records and index entries; and claims beside it.

use crate::rows::{Rows, micros};
use crate::written::Written;
use crate::{Keys, VALUE, bare_sled};
use claimdb::backend::Sled;
use claimdb::{Durability, ManualClock, Request, Store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn fill(store: &Store, keys: &mut Keys, records: usize) {
    for _ in 0..records {
        let request = Request::new(keys.fresh()).durability(Durability::Relaxed).retention(DAY);
        store.claim(request).unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
    }
}

fn sweep_all(store: &Store) -> usize {
    let mut deleted = 0;
    loop {
        let swept = store.sweep(1000).unwrap();
        deleted += swept.deleted;
        if !swept.more {
            return deleted;
        }
    }
}

/// The 99th percentile of claiming and completing, in microseconds, until told to stop; of a second at least.
fn p99(store: &Store, keys: &mut Keys, span: Duration, stop: &AtomicBool) -> f64 {
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < span || !stop.load(Ordering::Relaxed) {
        let request = Request::new(keys.fresh()).durability(Durability::Relaxed).retention(365 * DAY);
        let begun = Instant::now();
        store.claim(request).unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

pub fn measure(rows: &mut Rows) {
    let records = rows.many(200_000, 500);
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let builder = Store::builder(Sled::new(folder.path().join("store"))).clock(clock.clone());
    let store = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap();
    let bare = bare_sled(&folder.path().join("bare"));
    let (mut keys, mut others, written) = (Keys::new(1), Keys::new(2), Written::new());
    let (mut end, mut removed) = (0, 0);
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    let (mut beside, mut without) = (Vec::new(), Vec::new());
    for round in 0..rows.rounds {
        fill(&store, &mut keys, records);
        clock.advance(2 * DAY);
        let begun = Instant::now();
        assert_eq!(sweep_all(&store), records);
        ours.push(begun.elapsed().as_secs_f64() * 1e6 / records as f64);
        let mut fresh = Keys::new(100 + round as u64);
        for _ in 0..records {
            let name = fresh.fresh();
            end += 1;
            bare.insert(written.entry(end, &name), &[]).unwrap();
            bare.insert(written.key(&name), &written.record[..]).unwrap();
        }
        let mut again = Keys::new(100 + round as u64);
        floor.push(micros(records, || {
            let name = again.fresh();
            removed += 1;
            bare.remove(written.key(&name)).unwrap().unwrap();
            bare.remove(written.entry(removed, &name)).unwrap().unwrap();
        }));
        // Beside a sweep, and then as long without one.
        fill(&store, &mut keys, records);
        clock.advance(2 * DAY);
        let swept = AtomicBool::new(false);
        let (mut span, mut found) = (Duration::ZERO, 0.0);
        thread::scope(|scope| {
            let sweeping = scope.spawn(|| {
                let begun = Instant::now();
                sweep_all(&store);
                swept.store(true, Ordering::Relaxed);
                begun.elapsed()
            });
            found = p99(&store, &mut others, Duration::ZERO, &swept);
            span = sweeping.join().unwrap();
        });
        beside.push(found);
        without.push(p99(&store, &mut others, span, &AtomicBool::new(true)));
    }
    rows.add("sweeping a record, one thread, beside sled's two removes", "µs", &ours, &floor);
    rows.add(
        "p99 of claim and complete, Relaxed, one thread, during a sweep and without",
        "µs",
        &beside,
        &without,
    );
}
