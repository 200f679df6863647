//! What walks over keys tell of what no finished sync covers, and of what is damaged.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{AdminError, Fault, Key, KvError, LiveClaims, ManualClock, Store};
use faults::Faulty;

fn key(name: &str) -> Key {
    Key::scoped("t", name).unwrap()
}

/// The bytes under which the record of `name`, or the value of it under `t`, is stored.
fn encoded(space: u8, name: &str) -> Vec<u8> {
    [&[space, 1, b't'], name.as_bytes()].concat()
}

#[test]
fn a_damaged_record_ends_no_walk_and_keeps_no_scope_from_being_emptied() {
    for live in [LiveClaims::Refuse, LiveClaims::Fence] {
        let faulty = Faulty::new();
        let open = || Store::builder(faulty.clone()).clock(ManualClock::new()).open().unwrap();
        let store = open();
        for name in ["a", "b", "c"] {
            store.claim(key(name)).unwrap().granted().unwrap().complete("x").unwrap();
        }
        store.close().unwrap();
        faulty.put(&encoded(1, "b"), Some(b"damaged"));
        let store = open();
        let told: Vec<_> = store.scan("t", "").unwrap().map(|listed| listed.is_ok()).collect();
        assert_eq!(told, [true, false, true], "a damaged record ended a walk");
        let count = store.scope("t").unwrap().count().unwrap();
        assert_eq!((count.settled, count.damaged), (2, 1));
        assert_eq!(store.scopes().unwrap(), [b"t"], "what cannot be read is there all the same");

        let emptied = store.scope("t").unwrap().empty(live);
        assert!(emptied.is_err(), "nobody asked for the damaged record to go: {emptied:?}");
        let mut left = store.scan("t", "").unwrap();
        let Some(Err(AdminError::Listed { key, fault: Fault::Damaged(_) })) = left.next() else {
            panic!("it should be all that is left")
        };
        assert!(left.next().is_none());
        assert!(store.remove_by_force(&key).unwrap(), "a record that cannot be decoded could not be removed");
        assert_eq!(store.scope("t").unwrap().empty(live).unwrap(), 0);
        let claim = store.claim(&key).unwrap().granted().unwrap();
        assert_eq!(claim.attempt(), 1);
    }
}

#[test]
fn a_damaged_value_ends_no_scan_and_is_named() {
    let faulty = Faulty::new();
    let open = || Store::builder(faulty.clone()).clock(ManualClock::new()).open().unwrap();
    let store = open();
    for name in ["a", "b-canary", "c"] {
        store.kv("t").put(name, "x").unwrap();
    }
    store.close().unwrap();
    faulty.put(&encoded(3, "b-canary"), Some(b"damaged"));
    let store = open();
    let told: Vec<_> = store.kv("t").scan("").unwrap().collect();
    let [Ok((first, _)), Err(error), Ok((last, _))] = &told[..] else {
        panic!("a damaged value ended a scan: {told:?}")
    };
    assert_eq!((&first[..], &last[..]), (&b"a"[..], &b"c"[..]));
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    let KvError::Scanned { key, .. } = error else { panic!("{error:?}") };
    store.kv("t").delete(key.bytes()).unwrap();
    assert!(store.kv("t").scan("").unwrap().all(|told| told.is_ok()));
}
