//! What walks over keys tell of what no finished sync covers, and of what is damaged.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{
    AdminError, Durability, Fault, Key, KeyState, KvError, LiveClaims, ManualClock, Next, OnInterrupt,
    Outcome, Request, Store,
};
use faults::{Faulty, Syncs};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// A real sync limit for the tests in which a sync hangs; nothing depends on how long it is.
const SHORT: Duration = Duration::from_millis(50);

fn key(name: &str) -> Key {
    Key::scoped("t", name).unwrap()
}

fn is_poisoned<T>(told: &Result<T, AdminError>) -> bool {
    matches!(
        told,
        Err(AdminError::Failed { fault: Fault::Poisoned(_), .. }
            | AdminError::Listed { fault: Fault::Poisoned(_), .. })
    )
}

type Told = Vec<Result<String, AdminError>>;
type Look = (&'static str, fn(&Store) -> Told);

fn named<T>(listed: Result<(Key, T), AdminError>) -> Result<String, AdminError> {
    listed.map(|(key, _)| String::from_utf8(key.name().to_vec()).unwrap())
}

const LOOKS: [Look; 6] = [
    ("scan", |store| store.scan("t", "").unwrap().map(named).collect()),
    ("pending", |store| store.pending().map(named).collect()),
    ("interrupted", |store| store.interrupted().map(named).collect()),
    ("count", |store| vec![store.scope("t").unwrap().count().map(|count| format!("{count:?}"))]),
    ("scopes", |store| vec![store.scopes().map(|scopes| format!("{scopes:?}"))]),
    ("inspect", |store| vec![store.inspect(key("a")).map(|told| format!("{:?}", told.state))]),
];

#[test]
fn after_a_failed_sync_no_listing_tells_what_no_finished_sync_covers() {
    type Act = (&'static str, fn(&Store, &Faulty));
    let relaxed = |store: &Store, faulty: &Faulty| {
        let request = Request::new(key("a")).durability(Durability::Relaxed);
        store.claim(request).unwrap().granted().unwrap().complete("x").unwrap();
        faulty.syncs(Syncs::Fail);
        assert!(store.sync().is_err());
    };
    let acts: [Act; 5] = [
        ("a claim", |store, faulty| {
            faulty.syncs(Syncs::Fail);
            assert!(store.claim(key("a")).is_err());
        }),
        ("a removal", |store, faulty| {
            store.claim(key("a")).unwrap().granted().unwrap().complete("x").unwrap();
            faulty.syncs(Syncs::Fail);
            assert!(store.remove(key("a")).is_err());
        }),
        ("a completion", |store, faulty| {
            let claim = store.claim(key("a")).unwrap().granted().unwrap();
            faulty.syncs(Syncs::Fail);
            assert!(claim.complete("x").is_err());
        }),
        ("a relaxed completion", relaxed),
        ("an interruption", |store, faulty| {
            let request = || Request::new(key("a")).on_interrupt(OnInterrupt::Quarantine);
            drop(store.claim(request()).unwrap());
            faulty.syncs(Syncs::Fail);
            assert!(store.claim(request()).is_err());
        }),
    ];
    for (act, play) in acts {
        let open = |faulty: &Faulty| Store::builder(faulty.clone()).clock(ManualClock::new()).open().unwrap();
        let faulty = Faulty::new();
        let store = open(&faulty);
        play(&store, &faulty);
        for (look, tell) in LOOKS {
            let told = tell(&store);
            assert!(
                matches!(&told[..], [one] if is_poisoned(one)),
                "P9 fail closed: {look} after {act} failed told {told:?}"
            );
        }
        // What a finished sync covers is told as ever, also behind the error.
        let faulty = Faulty::new();
        let store = open(&faulty);
        for name in ["0", "z"] {
            store.claim(key(name)).unwrap().granted().unwrap().complete("x").unwrap();
        }
        play(&store, &faulty);
        let scanned: Vec<_> = store.scan("t", "").unwrap().map(named).collect();
        let [Ok(first), Err(AdminError::Listed { key: failed, .. }), Ok(last)] = &scanned[..] else {
            panic!("P9 fail closed: after {act} failed: {scanned:?}")
        };
        assert_eq!((&first[..], failed.name(), &last[..]), ("0", &b"a"[..], "z"), "after {act}");
    }
}

#[test]
fn no_listing_tells_a_durable_claim_before_its_sync() {
    // Its claimant still waits for the sync, or was told that it waited too long.
    for limit in [HOUR, SHORT] {
        let faulty = Faulty::new();
        let store = Store::builder(faulty.clone()).sync_limit(limit).open().unwrap();
        faulty.syncs(Syncs::Hang);
        let claiming = {
            let store = store.clone();
            thread::spawn(move || store.claim(key("a")).map(|told| told.granted()))
        };
        faulty.until_a_sync_hangs();
        let mut told = None;
        if limit == SHORT {
            assert!(claiming.join().unwrap().is_err());
        } else {
            told = Some(claiming);
        }
        let early: Vec<_> = store.pending().map(named).collect();
        assert!(early.is_empty(), "P4 durable before told: pending: {early:?}");
        let count = store.scope("t").unwrap().count().unwrap();
        assert_eq!(count.pending, 0, "P4 durable before told: {count:?}");
        assert!(store.scopes().unwrap().is_empty(), "P4 durable before told: scopes");
        let state = store.inspect(key("a")).unwrap().state;
        assert_eq!(state, KeyState::Settling, "P4 durable before told: inspect");

        faulty.syncs(Syncs::Work);
        let claim = told.map(|claiming| claiming.join().unwrap().unwrap().unwrap());
        store.sync().unwrap();
        assert_eq!(store.pending().map(named).collect::<Result<Vec<_>, _>>().unwrap(), ["a"]);
        assert_eq!(store.scope("t").unwrap().count().unwrap().pending, 1);
        assert_eq!(store.scopes().unwrap(), [b"t"]);
        assert_eq!(store.inspect(key("a")).unwrap().state, KeyState::Pending);
        drop(claim);
    }
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
        assert!(
            matches!(&emptied, Err(AdminError::NotEmptied { removed: 2, damaged: 1, first })
                if matches!(&**first, AdminError::Listed { .. })),
            "nobody asked for the damaged record to go, and what went is to be told: {emptied:?}"
        );
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

#[test]
fn a_stored_key_that_is_none_keeps_no_scope_from_being_told() {
    let faulty = Faulty::new();
    let open = || Store::builder(faulty.clone()).clock(ManualClock::new()).open().unwrap();
    let store = open();
    for key in [Key::new("a").unwrap(), key("a")] {
        store.claim(key).unwrap().granted().unwrap().complete("x").unwrap();
    }
    store.close().unwrap();
    // Between the two: a scope of one byte, which is missing.
    faulty.put(&[1, 1], Some(b"x"));
    let told = open().scopes().unwrap();
    assert_eq!(told, [&b""[..], b"t"], "what is no key ended a walk");
}

#[test]
fn of_what_was_never_granted_an_inspection_tells_what_a_claim_would_be_told() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
    let request = || Request::new(key("a")).on_interrupt(OnInterrupt::Quarantine);
    faulty.syncs(Syncs::Hang);
    assert!(store.claim(request()).is_err(), "its sync hangs");
    faulty.syncs(Syncs::Work);
    store.sync().unwrap();
    let next = store.inspect(key("a")).unwrap().next;
    let told = store.claim(request()).unwrap();
    assert!(matches!(told, Outcome::Granted(_)), "rule 15: nobody was granted the one before: {told:?}");
    assert_eq!(next, Next::Granted, "rule 15: an inspection told another answer than the claim's");
    drop(told);
    let next = store.inspect(key("a")).unwrap().next;
    assert_eq!(next, Next::Interrupted, "rule 18: what was granted is quarantined");
}
