//! Bytes of a live lease, its key of 16 bytes and the holder's guard included, counted by the allocator.

use crate::Keys;
use crate::rows::Rows;
use claimdb::backend::Mem;
use claimdb::{Claim, Durability, Request, Store, SyncBy};
use std::time::Duration;

/// Just below what the table's shards hold before they grow: 7/8 of 2^20, less what chance spreads unevenly.
const LEASES: usize = 890_000;

pub fn measure(rows: &mut Rows) {
    let leases = rows.many(LEASES, 1000);
    let (mut keys, mut claims) = (Keys::new(1), Vec::<Claim>::with_capacity(leases));
    // No thread of the store's, since each thread counts for itself.
    let builder = Store::builder(Mem::new()).sync_by(SyncBy::Caller).sweep_every(Duration::ZERO);
    let store = builder.watch_every(Duration::ZERO).open().unwrap();
    let counted = allocation_counter::measure(|| {
        claims.extend((0..leases).map(|_| {
            let request =
                Request::new(keys.fresh()).durability(Durability::Result).lease(Duration::from_secs(3600));
            store.claim(request).unwrap().granted().unwrap()
        }));
    });
    let mut map = std::collections::HashMap::<String, [u64; 4]>::new();
    let mut keys = Keys::new(1);
    let floor = allocation_counter::measure(|| {
        map.extend((0..leases).map(|n| (keys.fresh(), [n as u64; 4])));
    });
    let each = |bytes: i64| bytes as f64 / leases as f64;
    let (ours, floor) = (each(counted.bytes_current), each(floor.bytes_current));
    rows.add_ratio(
        &format!("a live lease, at {leases}, Result, over Mem; a map's entry of 32 bytes"),
        "bytes",
        ours,
        floor,
        ours / floor,
    );
}
