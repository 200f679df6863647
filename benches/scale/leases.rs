//! Claims beside many other live leases, against a bare map of as many entries.

use crate::Keys;
use crate::rows::{Rows, median, micros};
use claimdb::backend::Mem;
use claimdb::{Claim, Durability, Request, Store};
use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

const CALLS: usize = 100_000;

fn request(keys: &mut Keys) -> Request {
    Request::new(keys.fresh()).durability(Durability::Result).lease(Duration::from_secs(3600))
}

/// A store without anything stored, and its live leases.
fn store(leases: usize) -> (Store, Vec<Claim>) {
    let (store, mut keys) = (Store::builder(Mem::new()).open().unwrap(), Keys::new(7));
    let claims = (0..leases).map(|_| store.claim(request(&mut keys)).unwrap().granted().unwrap()).collect();
    (store, claims)
}

fn map(entries: usize) -> HashMap<String, u64> {
    let mut keys = Keys::new(7);
    (0..entries).map(|n| (keys.fresh(), n as u64)).collect()
}

pub fn measure(rows: &mut Rows) {
    let (few, many) = (1000, rows.many(1_000_000, 2000));
    let calls = rows.many(CALLS, 100);
    let (stores, mut maps) = ([store(few), store(many)], [map(few), map(many)]);
    let mut keys = Keys::new(1);
    let (mut ours, mut floor) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..rows.rounds {
        for at in 0..2 {
            ours[at].push(micros(calls, || {
                drop(stores[at].0.claim(request(&mut keys)).unwrap().granted().unwrap());
            }));
            floor[at].push(micros(calls, || {
                let key = keys.fresh();
                maps[at].insert(key.clone(), 1);
                black_box(maps[at].remove(&key));
            }));
        }
    }
    for (at, leases) in [few, many].into_iter().enumerate() {
        rows.add(
            &format!("claim and drop beside {leases} leases, one thread, Result, over Mem; a map's insert and remove"),
            "µs",
            &ours[at],
            &floor[at],
        );
    }
    let growth = |times: &[Vec<f64>; 2]| {
        median(times[1].iter().zip(&times[0]).map(|(many, few)| many / few).collect())
    };
    let (ours, floor) = (growth(&ours), growth(&floor));
    rows.add_ratio(&format!("the same, {many} against {few}"), "times", ours, floor, ours / floor);
}
