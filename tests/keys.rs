//! Keys: which are distinct, which are allowed, and that no message gives one away.
#![cfg(not(loom))] // models have keys enough
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use claimdb::backend::{Backend, Mem};
use claimdb::{
    Claim, Fingerprint, Key, KeyError, MAX_NAME, MAX_SCOPE, ManualClock, OnInterrupt, Outcome, Request,
    Resolution, Settled, Store, Token,
};
use proptest::prelude::*;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::time::Duration;

fn store(mem: &Mem) -> Store {
    Store::builder(mem.clone()).clock(ManualClock::new()).open().unwrap()
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    store.claim(request).unwrap().granted().expect("nobody has the key")
}

fn stored_keys(mem: &Mem) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let engine = mem.open().expect("the store is closed");
    let mut collect = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        ControlFlow::Continue(())
    };
    engine.scan(&[1], None, &mut collect).unwrap();
    found
}

/// Pairs of scope and name that a careless encoding would take for one another.
fn pairs() -> Vec<(Vec<u8>, Vec<u8>)> {
    let parts: [&[u8]; 14] = [
        b"", b"a", b"ab", b"abc", b"bc", b"c", b"\x00", b"\x01", b"\x02", b"\x00a", b"\x01a", b"\x02ab",
        b"a\x00b", b"\xff",
    ];
    let pair = |scope: &[u8]| parts.map(|name| (scope.to_vec(), name.to_vec()));
    parts.iter().flat_map(|scope| pair(scope)).filter(|(_, name)| !name.is_empty()).collect()
}

#[test]
fn no_two_pairs_of_scope_and_name_are_one_key() {
    let mem = Mem::new();
    let store = store(&mem);
    for (n, (scope, name)) in pairs().iter().enumerate() {
        let key = Key::scoped(scope, name).unwrap();
        assert_eq!(
            (key.scope(), key.name()),
            (&scope[..], &name[..]),
            "a key gives back what it was made of"
        );
        grant(&store, key).complete(&n).unwrap();
    }
    for (n, (scope, name)) in pairs().iter().enumerate() {
        let stored = store.get(Key::scoped(scope, name).unwrap()).unwrap().and_then(Settled::completed);
        assert_eq!(stored.unwrap().decode::<usize>().unwrap(), n, "two keys were one");
    }
    store.close().unwrap();
    assert_eq!(stored_keys(&mem).len(), pairs().len());
}

#[test]
fn stored_keys_are_the_documented_bytes() {
    let mem = Mem::new();
    let store = store(&mem);
    grant(&store, Key::scoped("ab", "c").unwrap()).complete("x").unwrap();
    grant(&store, "c").complete("x").unwrap();
    grant(&store, Key::scoped([7; 255], [8; 1024]).unwrap()).complete("x").unwrap();
    store.close().unwrap();
    let long = [&[1, 255][..], &[7; 255], &[8; 1024]].concat();
    assert_eq!(stored_keys(&mem), [b"\x01\x00c".to_vec(), b"\x01\x02abc".to_vec(), long]);
}

proptest! {
    #[test]
    fn distinct_pairs_are_distinct_keys(
        one in (prop::collection::vec(0..4_u8, 0..6), prop::collection::vec(0..4_u8, 1..6)),
        two in (prop::collection::vec(0..4_u8, 0..6), prop::collection::vec(0..4_u8, 1..6)),
    ) {
        // Few bytes, small ones, so that parts look like lengths of parts.
        let [a, b] = [&one, &two].map(|(scope, name)| Key::scoped(scope, name).unwrap());
        prop_assert_eq!(a == b, one == two);
        prop_assert_eq!(a.scope(), &one.0[..]);
        prop_assert_eq!(a.name(), &one.1[..]);
    }

    #[test]
    fn any_bytes_are_a_key(
        scope in prop::collection::vec(any::<u8>(), 0..=MAX_SCOPE),
        name in prop::collection::vec(any::<u8>(), 1..=MAX_NAME),
    ) {
        let key = Key::scoped(&scope, &name).unwrap();
        prop_assert_eq!((key.scope(), key.name()), (&scope[..], &name[..]));
    }
}

#[test]
fn lengths_are_bounded() {
    let name = |length| Key::new(vec![b'n'; length]).map(drop);
    assert_eq!(name(0), Err(KeyError::Empty));
    assert_eq!((name(1), name(1024)), (Ok(()), Ok(())));
    assert_eq!(name(1025), Err(KeyError::NameTooLong { length: 1025 }));
    assert_eq!(name(1 << 24), Err(KeyError::NameTooLong { length: 1 << 24 }));
    let scope = |length| Key::scoped(vec![b's'; length], "n").map(drop);
    assert_eq!((scope(0), scope(1), scope(255)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(scope(256), Err(KeyError::ScopeTooLong { length: 256 }));
    assert_eq!(Key::scoped("s", ""), Err(KeyError::Empty), "a scope alone is no key");
    assert_eq!((MAX_NAME, MAX_SCOPE), (1024, 255));
}

#[test]
fn nothing_is_folded_trimmed_or_normalised() {
    let store = store(&Mem::new());
    let names: [&[u8]; 17] = [
        b"key",
        b"Key",
        b"KEY",
        b"key ",
        b" key",
        b"key\n",
        b"key\0",
        b"\0key",
        b"\0",
        b"\0\0",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
        "🔑".as_bytes(),
        "🔑\u{fe0f}".as_bytes(),
        b"\xff\xfe",
        b"\xc3\x28",
        b"\xed\xa0\x80",
    ];
    for name in names {
        grant(&store, name).complete_bytes(name).unwrap();
    }
    for name in names {
        let stored = store.get(name).unwrap().and_then(Settled::completed).unwrap();
        assert_eq!(stored.bytes(), name, "two keys were one");
    }
    let scanned: Vec<_> = store.scan("", "").unwrap().map(|found| found.unwrap().0.name().to_vec()).collect();
    let mut sorted = names.map(<[u8]>::to_vec);
    sorted.sort();
    assert_eq!(scanned, sorted, "in the order of bytes");
}

#[test]
fn a_scan_sees_its_scope_and_prefix_alone() {
    let store = store(&Mem::new());
    for (scope, name) in pairs() {
        let value = [&scope[..], b"|", &name].concat();
        grant(&store, Key::scoped(&scope, &name).unwrap()).complete_bytes(value).unwrap();
    }
    for (scope, prefix) in
        pairs().into_iter().chain(pairs().into_iter().map(|(scope, _)| (scope, Vec::new())))
    {
        let found: Vec<_> = store.scan(&scope, &prefix).unwrap().map(Result::unwrap).collect();
        let mut expected: Vec<_> = pairs();
        expected.retain(|(found, name)| *found == scope && name.starts_with(&prefix));
        expected.sort();
        let keys: Vec<_> = found.iter().map(|(key, _)| (key.scope().to_vec(), key.name().to_vec())).collect();
        assert_eq!(keys, expected);
        for (key, settled) in found {
            let stored = settled.completed().unwrap();
            assert_eq!(stored.bytes(), [key.scope(), b"|", key.name()].concat());
        }
    }
    assert_eq!(store.scan("no such scope", "").unwrap().count(), 0);
}

#[test]
fn a_scan_of_many_pages_gives_each_key_once_and_in_order() {
    let store = store(&Mem::new());
    for n in 0..1000_u32 {
        grant(&store, Key::scoped("s", format!("{n:04}")).unwrap()).complete(&n).unwrap();
        grant(&store, Key::scoped("t", format!("{n:04}")).unwrap()).complete(&n).unwrap();
    }
    let found: Vec<_> = store.scan("s", "").unwrap().map(|found| found.unwrap().0.name().to_vec()).collect();
    assert_eq!(found, (0..1000).map(|n| format!("{n:04}").into_bytes()).collect::<Vec<_>>());
    assert_eq!(store.scan("s", "05").unwrap().count(), 100);
}

/// Secrets that no message may show: a key, its scope, a value, a checkpoint's like, and a fingerprint.
const SECRETS: [&str; 3] = ["canary-name", "canary-scope", "canary-value"];
const FINGERPRINT: [u8; 32] = [0xA7; 32];

/// Checks that `shown` has none of the secrets, as text or as a list of bytes.
fn is_discreet(shown: &str) {
    let lists = SECRETS.map(|secret| format!("{:?}", secret.as_bytes()));
    let fingerprint = format!("{:?}", &FINGERPRINT[..4]);
    let secrets = SECRETS.iter().map(|secret| (*secret).to_owned()).chain(lists).chain([fingerprint]);
    for secret in secrets {
        let inner = secret.trim_matches(['[', ']']);
        assert!(!shown.contains(inner), "a secret is given away: {shown}");
    }
}

fn shown(what: &impl Debug) {
    is_discreet(&format!("{what:?}"));
    is_discreet(&format!("{what:#?}").replace(['\n', ' '], "").replace(',', ", "));
}

fn told(error: &(impl std::error::Error + 'static)) {
    let mut error: Option<&dyn std::error::Error> = Some(error);
    while let Some(this) = error {
        is_discreet(&this.to_string());
        is_discreet(&format!("{this:?}"));
        error = this.source();
    }
}

#[test]
fn no_message_gives_a_key_or_a_value_away() {
    let mem = Mem::new();
    let builder = Store::builder(mem.clone()).clock(ManualClock::new()).value_limit(20);
    let store = builder.clone().open().unwrap();
    let key = Key::scoped(SECRETS[1], SECRETS[0]).unwrap();
    let request = Request::new(&key).fingerprint(Fingerprint::new(FINGERPRINT));
    is_discreet(&format!("{key} {}", key.label()));
    assert_eq!(key.to_string(), key.label().to_string());
    shown(&(&key, key.label(), &request));

    let claim = grant(&store, &request);
    shown(&claim);
    let in_flight = store.claim(&request).unwrap();
    shown(&(&in_flight, &store));
    let mismatched = store.claim(&key).unwrap();
    assert!(matches!(mismatched, Outcome::Mismatched(_)));
    shown(&mismatched);
    told(&store.remove(&key).expect_err("it is in flight"));
    told(&store.run::<String, String>(&key, |_| Ok(String::new())).expect_err("it is in flight"));
    told(&claim.renew(Duration::ZERO).expect_err("this is no lease"));
    let error = claim.complete(&SECRETS.concat()).expect_err("it is too large");
    told(&error);
    let claim = error.into_claim().unwrap();
    claim.complete_bytes(SECRETS[2]).unwrap();
    let settled = store.claim(&request).unwrap();
    shown(&settled);
    shown(&store.get(&key).unwrap());
    shown(&store.scan(SECRETS[1], SECRETS[0]).unwrap());
    let scanned: Vec<_> = store.scan(SECRETS[1], SECRETS[0]).unwrap().collect();
    assert_eq!(scanned.len(), 1);
    shown(&scanned);
    let stored = settled.settled().and_then(Settled::completed).unwrap();
    told(&stored.decode::<u64>().expect_err("these are more bytes"));

    let quarantine = Request::new(&key).on_interrupt(OnInterrupt::Quarantine);
    store.remove(&key).unwrap();
    drop(grant(&store, &quarantine));
    let interrupted = store.claim(&quarantine).unwrap();
    assert!(matches!(interrupted, Outcome::Interrupted(_)));
    shown(&interrupted);
    let resolution = Resolution::completed(SECRETS[2]).unwrap();
    shown(&resolution);
    assert!(!store.resolve(&key, Token::new(1), resolution).unwrap());
    shown(&(&store, &mem, &builder));
    let late = {
        store.remove(&key).unwrap();
        let claim = grant(&store, &key);
        store.close().unwrap();
        claim.complete_bytes(SECRETS[2]).expect_err("the store is closed")
    };
    told(&late);
    told(&store.claim(&key).expect_err("the store is closed"));
    shown(&mem.open().unwrap());
    told(&Key::scoped(SECRETS[1], SECRETS[0].repeat(100)).expect_err("too long"));
}

#[test]
fn labels_tell_keys_apart_and_stay_the_same() {
    let keys: Vec<_> = (0..1000).map(|n| Key::new(format!("key {n}")).unwrap()).collect();
    let mut labels: Vec<_> = keys.iter().map(|key| key.label().to_string()).collect();
    assert!(keys.iter().zip(&labels).all(|(key, label)| key.clone().to_string() == *label));
    assert!(labels.iter().all(|label| label.starts_with("key#") && label.len() == 16));
    labels.sort();
    labels.dedup();
    assert_eq!(labels.len(), keys.len());
}

#[test]
fn a_loss_signal_shows_whose_it_is_by_label() {
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).open().unwrap();
    let key = Key::new(SECRETS[0]).unwrap();
    let claim = grant(&store, &key);
    let lost = claim.lost();
    let shown = format!("{lost:?}");
    assert!(shown.contains(&format!("{:?}", key.label())) && shown.contains("Loss(None)"), "{shown}");
    drop(claim);
    assert!(format!("{lost:?}").contains("Loss(Some(Ended))"), "{lost:?}");
}
