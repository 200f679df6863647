//! Cost as a store grows, against sled's own.

use crate::rows::{Rows, median, micros};
use crate::written::Written;
use crate::{Keys, VALUE, bare_sled};
use claimdb::backend::Sled;
use claimdb::{Durability, Request, Store};

const CALLS: usize = 20_000;

pub fn measure(rows: &mut Rows) {
    let sizes = [rows.many(100_000, 500), rows.many(5_000_000, 2000)];
    let calls = rows.many(CALLS, 100);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::builder(Sled::new(folder.path().join("store"))).open().unwrap();
    let bare = bare_sled(&folder.path().join("bare"));
    let (mut keys, mut bare_keys, written) = (Keys::new(1), Keys::new(1), Written::new());
    let mut end = 0;
    let mut one = || {
        let request = Request::new(keys.fresh()).durability(Durability::Relaxed);
        store.claim(request).unwrap().granted().unwrap().complete_bytes(VALUE).unwrap();
    };
    // What that writes: a record by compare-and-swap, and an entry of the index.
    let mut one_bare = || {
        let name = bare_keys.fresh();
        end += 1;
        bare.insert(written.entry(end, &name), &[]).unwrap();
        let swapped = bare.compare_and_swap(written.key(&name), None::<&[u8]>, Some(&written.record[..]));
        swapped.unwrap().unwrap();
    };
    let (mut grown, mut growth) = (0, [Vec::new(), Vec::new()]);
    for size in sizes {
        for _ in grown..size {
            one();
            one_bare();
        }
        grown = size;
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..rows.rounds {
            ours.push(micros(calls, &mut one));
            floor.push(micros(calls, &mut one_bare));
        }
        rows.add(
            &format!("claim and complete, Relaxed, one thread, at {size} keys, sled's two writes"),
            "µs",
            &ours,
            &floor,
        );
        growth[0].push(median(ours));
        growth[1].push(median(floor));
    }
    let [ours, floor] = growth.map(|at| at[1] / at[0]);
    rows.add_ratio(
        &format!("the same, {} against {}", sizes[1], sizes[0]),
        "times",
        ours,
        floor,
        ours / floor,
    );
}
