//! Claims that lose against a live lease, against a look into a dashmap and one at the clock.

use crate::Keys;
use crate::rows::{Rows, on_threads};
use claimdb::backend::Mem;
use claimdb::{Claim, Durability, Outcome, Request, Store};
use dashmap::DashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Longer than any run.
const DAY: Duration = Duration::from_secs(86_400);

pub fn measure(rows: &mut Rows) {
    for live in [1000, rows.many(1_000_000, 2000)] {
        let mut keys = Keys::new(3);
        let keys: Vec<String> = (0..live).map(|_| keys.fresh()).collect();
        let request = |key: &String| Request::new(key).durability(Durability::Result).lease(DAY);
        let store = Store::builder(Mem::new()).open().unwrap();
        let held: Vec<Claim> =
            keys.iter().map(|key| store.claim(request(key)).unwrap().granted().unwrap()).collect();
        let map: DashMap<String, Instant> =
            keys.iter().map(|key| (key.clone(), Instant::now() + DAY)).collect();
        // Asked for in an order that no cache foresees; the same for both.
        let order = |thread: usize| {
            let mut at = 7_919 * (thread + 1);
            let length = keys.len();
            move || {
                at = (at.wrapping_mul(6_364_136_223_846_793_005)).wrapping_add(1_442_695_040_888_963_407);
                (at >> 33) % length
            }
        };
        let requests: Vec<Request> = keys.iter().map(request).collect();
        for threads in [1, 2] {
            let (mut ours, mut floor) = (Vec::new(), Vec::new());
            for _ in 0..rows.rounds {
                ours.push(on_threads(threads, rows.span(), |thread| {
                    let (mut next, store, requests) = (order(thread), &store, &requests);
                    move || match store.claim(&requests[next()]).unwrap() {
                        Outcome::InFlight(told) => drop(black_box(told)),
                        other => panic!("the key is held: {other:?}"),
                    }
                }));
                floor.push(on_threads(threads, rows.span(), |thread| {
                    let (mut next, map, keys) = (order(thread), &map, &keys);
                    move || {
                        let live = map.get(&keys[next()]).is_some_and(|end| Instant::now() < *end);
                        assert!(black_box(live));
                    }
                }));
            }
            let what = format!(
                "losing claims, {live} live keys, {threads} threads, beside dashmap and a clock, over Mem"
            );
            rows.add(&what, "operations/s", &ours, &floor);
        }
        drop(held);
    }
}
