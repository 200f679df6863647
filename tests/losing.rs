//! What a claim that loses does not do: it asks no storage, and allocates nothing.
#![cfg(not(loom))] // it counts what real threads allocate
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::{Durability, ManualClock, Outcome, Request, Store, SyncBy};
use hooks::Hooked;
use std::time::Duration;

#[test]
fn a_losing_claim_asks_no_storage_and_allocates_nothing() {
    let backend = Hooked::new();
    let builder = Store::builder(backend.clone()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    let store = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap();
    for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
        let request = Request::new(format!("{durability:?}")).durability(durability);
        let holder = store.claim(&request).unwrap().granted().unwrap();
        let calls = backend.calls();
        let counted = allocation_counter::measure(|| {
            for _ in 0..100 {
                assert!(matches!(store.claim(&request).unwrap(), Outcome::InFlight(_)));
            }
        });
        assert_eq!(backend.calls(), calls, "{durability:?}: a losing claim asked the storage");
        assert_eq!(counted.count_total, 0, "{durability:?}: a losing claim allocates: {counted:?}");
        drop(holder);
    }
}
