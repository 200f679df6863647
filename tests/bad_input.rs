//! What makes no sense is refused with an error that says what and where, and changes nothing.
#![cfg(not(loom))] // the support code plays faults on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{
    AdminError, Builder, ClaimError, Durability, ExpiredLease, Key, KeyError, MAX_LEASE, MAX_NAME,
    MAX_RETENTION, MAX_SCOPE, MAX_VALUE_LIMIT, MAX_WAIT, ManualClock, Omission, OnInterrupt, OpenError,
    Outcome, Request, Resolution, RetryCause, SettleError, Settled, Store, Token,
};
use faults::Faulty;
use serde::Serialize;
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);
const LESS: Duration = Duration::from_nanos(999_999);
const NANO: Duration = Duration::from_nanos(1);

fn builder(faulty: &Faulty) -> Builder {
    Store::builder(faulty.clone()).clock(ManualClock::new()).lock_wait(Duration::ZERO)
}

/// Checks that `error` says each of `parts`.
fn says(error: &impl std::error::Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "the message does not say {part:?}: {text}");
    }
}

#[test]
fn a_key_that_is_none_is_refused_everywhere() {
    let faulty = Faulty::new();
    let store = builder(&faulty).open().unwrap();
    let before = faulty.stored(b"");
    let long = "n".repeat(MAX_NAME + 1);
    let too_long = KeyError::NameTooLong { length: MAX_NAME + 1 };
    for (key, expected, words) in [("", KeyError::Empty, "empty"), (&long[..], too_long, "1025 bytes")] {
        let error = store.claim(key).expect_err("this is no key");
        assert!(matches!(error, ClaimError::InvalidKey(found) if found == expected), "{error:?}");
        says(&error, &["claiming", words, "1 to 1024 bytes"]);
        let resolved = store.resolve(key, Token::new(1), Resolution::released());
        for error in [store.get(key).map(drop), store.remove(key).map(drop), resolved.map(drop)] {
            let error = error.expect_err("this is no key");
            assert!(matches!(error, AdminError::InvalidKey { error, .. } if error == expected), "{error:?}");
            says(&error, &[words, "1 to 1024 bytes"]);
        }
        let run = store.run(key, |_| -> Result<(), String> { panic!("it ran without a key") });
        assert!(run.is_err());
    }
    let scope = vec![b's'; MAX_SCOPE + 1];
    let error = store.scan(&scope, "").expect_err("this is no scope");
    says(&error, &["scanning", "scope has 256 bytes", "at most 255"]);
    let error = store.scan("", &long).expect_err("no key begins like this");
    says(&error, &["scanning", "the prefix has 1025 bytes", "at most 1024 bytes"]);
    assert!(!error.to_string().contains("hash"), "the hash of a prefix is no prefix: {error}");
    assert_eq!(Key::scoped(&scope, "n"), Err(KeyError::ScopeTooLong { length: 256 }));
    assert_eq!(faulty.stored(b""), before, "something was changed");
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn settings_out_of_bounds_are_refused_by_name() {
    let day = Duration::from_secs(86_400);
    let greatest = (MAX_LEASE, MAX_RETENTION, MAX_WAIT);
    assert_eq!(greatest, (366 * day, 36_525 * day, day), "the bounds are not those that messages tell");
    type Set = fn(Builder, Duration) -> Builder;
    let cases: [(&str, &str, Set, Vec<Duration>); 7] = [
        ("lease", "1 ms to 366 days", Builder::lease, vec![LESS, MAX_LEASE + NANO]),
        ("retention", "1 ms to 36525 days", Builder::retention, vec![LESS, MAX_RETENTION + NANO]),
        ("sync_limit", "1 ms to 24 h", Builder::sync_limit, vec![LESS, day + NANO]),
        ("slow_sync", "1 ms to 24 h", Builder::slow_sync, vec![LESS, day + NANO]),
        ("sweep_every", "zero, or from 1 ms to 24 h", Builder::sweep_every, vec![NANO, LESS, day + NANO]),
        ("watch_every", "zero, or from 1 ms to 24 h", Builder::watch_every, vec![NANO, LESS, day + NANO]),
        ("lock_wait", "at most 24 h", Builder::lock_wait, vec![day + NANO]),
    ];
    let faulty = Faulty::new();
    let refused = |builder: Builder, parts: &[&str]| {
        let error = builder.open().expect_err("this makes no sense");
        assert!(matches!(error, OpenError::InvalidSetting(_)), "{error:?}");
        says(&error, &["opening a store"]);
        says(&error, parts);
    };
    for (name, allowed, set, mut given) in cases {
        given.push(Duration::MAX);
        if !["lock_wait", "sweep_every", "watch_every"].contains(&name) {
            given.push(Duration::ZERO);
        }
        for given in given {
            refused(set(builder(&faulty), given), &[name, allowed, &format!("{given:?}")]);
        }
    }
    for given in [0, MAX_VALUE_LIMIT + 1, usize::MAX] {
        refused(
            builder(&faulty).value_limit(given),
            &["value_limit", &given.to_string(), "1 byte to 64 MiB"],
        );
    }
    for given in [1 << 62, u64::MAX] {
        refused(
            builder(&faulty).token_floor(Token::new(given)),
            &["token_floor", &given.to_string(), "2^62"],
        );
    }
    assert_eq!(faulty.stored(b""), [], "a store was made all the same");

    let store = builder(&faulty).lease(MILLI).retention(MILLI).sync_limit(MILLI).value_limit(1);
    let store = store.sweep_every(MILLI).watch_every(MILLI).open();
    store.expect("the least that is allowed").close().unwrap();
    let store = builder(&faulty).lease(MAX_LEASE).retention(MAX_RETENTION).sync_limit(day).lock_wait(day);
    let store = store.value_limit(MAX_VALUE_LIMIT).token_floor(Token::new((1 << 62) - 1)).open();
    let claim = store.expect("the most that is allowed").claim("k").unwrap().granted().unwrap();
    assert!(claim.token() >= Token::new((1 << 62) - 1));
    claim.complete("done").unwrap();
}

#[test]
fn requests_out_of_bounds_are_refused_by_name() {
    let faulty = Faulty::new();
    let store = builder(&faulty).open().unwrap();
    let before = faulty.stored(b"");
    let ask = || Request::new("k");
    let result = || ask().durability(Durability::Result);
    let (lease, retention, wait) = ("1 ms to 366 days", "1 ms to 36525 days", "at most 24 h");
    let cases = [
        (ask().lease(Duration::ZERO), ["lease is 0ns", lease]),
        (ask().lease(LESS), ["lease is 999.999µs", lease]),
        (ask().lease(MAX_LEASE + NANO), ["lease", lease]),
        (ask().lease(Duration::MAX), ["lease", lease]),
        (ask().retention(Duration::ZERO), ["retention is 0ns", retention]),
        (ask().retention(MAX_RETENTION + NANO), ["retention", retention]),
        (ask().retention(Duration::MAX), ["retention", retention]),
        (ask().wait(MAX_WAIT + NANO), ["wait", wait]),
        (ask().wait(Duration::MAX), ["wait", wait]),
        (ask().max_attempts(0), ["max_attempts is 0", "at least 1"]),
        (result().max_attempts(3), ["max_attempts", "Durability::Full"]),
        (result().on_interrupt(OnInterrupt::Quarantine), ["on_interrupt is Quarantine", "Durability::Full"]),
        (
            ask().durability(Durability::Relaxed).on_interrupt(OnInterrupt::Quarantine),
            ["on_interrupt is Quarantine", "Durability::Full"],
        ),
    ];
    for (request, parts) in cases {
        let error = store.claim(&request).expect_err("this makes no sense");
        assert!(matches!(error, ClaimError::InvalidRequest(_)), "{error:?}");
        says(&error, &["claiming"]);
        says(&error, &parts);
    }
    assert_eq!(faulty.stored(b""), before, "something was changed");
    assert_eq!((store.stats().entries, store.stats().granted), (0, 0));

    for request in [
        ask().lease(MILLI).retention(MILLI).max_attempts(1),
        ask().lease(MAX_LEASE).retention(MAX_RETENTION).wait(MAX_WAIT).max_attempts(u32::MAX),
    ] {
        let claim = store.claim(&request).unwrap().granted().expect("this is allowed");
        for lease in [Duration::ZERO, LESS, MAX_LEASE + NANO, Duration::MAX] {
            let before = claim.remaining();
            let error = claim.renew(lease).expect_err("this makes no sense");
            assert!(matches!(error, ExpiredLease::Invalid { .. }), "{error:?}");
            says(&error, &["renewing", "key#", "lease is"]);
            let error = claim.keep_alive(lease).expect_err("this makes no sense");
            says(&error, &["renewing", "key#", "max_hold is", "1 ms to 366 days"]);
            assert_eq!(claim.remaining(), before);
        }
        claim.release().unwrap();
    }
}

#[test]
fn a_quarantine_with_a_default_of_less_than_full_is_refused() {
    let store = builder(&Faulty::new()).durability(Durability::Result).open().unwrap();
    let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    assert!(matches!(store.claim(&request), Err(ClaimError::InvalidRequest(_))));
    assert!(store.claim(request.durability(Durability::Full)).unwrap().granted().is_some());
}

#[test]
fn a_value_above_the_limit_gives_the_claim_back_and_changes_nothing() {
    const LIMIT: usize = 100;
    const PREFIX: usize = 8; // what bincode puts before a sequence of bytes
    for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
        for (length, fits) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false)] {
            for settle in ["complete", "complete_bytes", "fail"] {
                let faulty = Faulty::new();
                let store = builder(&faulty).value_limit(LIMIT).open().unwrap();
                let request = Request::new("k").durability(durability);
                let claim = store.claim(&request).unwrap().granted().unwrap();
                let (token, before) = (claim.token(), faulty.stored(b"\x01"));
                let value = vec![7_u8; length - PREFIX];
                let told = match settle {
                    "complete" => claim.complete(&value),
                    "fail" => claim.fail(&value),
                    _ => claim.complete_bytes(vec![7; length]),
                };
                if fits {
                    told.expect("it fits");
                    let settled = store.claim(&request).unwrap().settled().expect("it was settled");
                    let stored = match settled {
                        Settled::Completed(stored) | Settled::Failed(stored) => stored,
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(stored.bytes().len(), length);
                    continue;
                }
                let Err(SettleError::Retry(retry)) = told else { panic!("{settle}: {told:?}") };
                let TooLarge { length: found, limit } = too_large(&retry.cause);
                assert_eq!((found, limit, retry.claim.token()), (LIMIT + 1, LIMIT, token));
                says(&retry, &["key#", &token.to_string(), "101 bytes", "takes 100", "omit"]);
                assert_eq!(faulty.stored(b"\x01"), before, "the record was changed");
                let told = store.claim(&request).unwrap();
                assert!(matches!(told, Outcome::InFlight(_)), "P1 one holder: {told:?}");
                retry.claim.omit(Omission::TooLarge).unwrap();
                let told = store.claim(&request).unwrap().settled();
                let Some(Settled::Omitted(omitted)) = told else { panic!("P8 remembered: {told:?}") };
                assert_eq!(omitted.reason(), Omission::TooLarge);
            }
        }
    }
}

struct TooLarge {
    length: usize,
    limit: usize,
}

fn too_large(cause: &RetryCause) -> TooLarge {
    match *cause {
        RetryCause::TooLarge { length, limit } => TooLarge { length, limit },
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_value_that_cannot_be_encoded_gives_the_claim_back() {
    struct Unspeakable;
    impl Serialize for Unspeakable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("it cannot be said"))
        }
    }
    let faulty = Faulty::new();
    let store = builder(&faulty).open().unwrap();
    let claim = store.claim("k").unwrap().granted().unwrap();
    let before = faulty.stored(b"");
    let Err(SettleError::Retry(retry)) = claim.complete(&Unspeakable) else { panic!("it was settled") };
    assert!(matches!(retry.cause, RetryCause::NotEncodable(_)), "{:?}", retry.cause);
    says(&retry, &["Unspeakable", "could not be encoded: it cannot be said;", "omit"]);
    assert_eq!(faulty.stored(b""), before, "the record was changed");
    retry.claim.complete("this can").unwrap();
}

#[test]
fn a_value_of_another_type_is_refused_and_stays_readable() {
    let store = builder(&Faulty::new()).open().unwrap();
    store.claim("k").unwrap().granted().unwrap().complete(&(1_u64, 2_u64)).unwrap();
    let stored = store.get("k").unwrap().and_then(Settled::completed).unwrap();
    let error = stored.decode::<u64>().expect_err("there are more bytes than that");
    says(&error, &["16 bytes", "u64", "8 bytes were left over", "Stored::bytes"]);
    says(&stored.decode::<String>().expect_err("there are other bytes than that"), &["String"]);
    let error = stored.decode::<(u64, u64, u8)>().expect_err("there are fewer bytes than that");
    says(&error, &["at least 1 more byte would"]);
    store.kv("t").put_value("k", &(1_u64, 2_u64)).unwrap();
    let error = store.kv("t").get_value::<u64>("k").expect_err("there are more bytes than that");
    says(&error, &["reading key#", "8 bytes were left over", "get the bytes with Kv::get,"]);
    assert!(stored.decode::<Vec<[u64; 4]>>().is_err());
    assert_eq!(stored.decode::<(u64, u64)>().unwrap(), (1, 2));
}

#[test]
fn what_bytes_say_of_themselves_does_not_bind_decoding() {
    let store = builder(&Faulty::new()).open().unwrap();
    for length in [u64::MAX, u64::MAX / 2, 1 << 40, 1 << 26, 1000] {
        let key = format!("k{length}");
        store.claim(&key).unwrap().granted().unwrap().complete(&length).unwrap();
        let stored = store.get(&key).unwrap().and_then(Settled::completed).unwrap();
        says(&stored.decode::<Vec<u8>>().unwrap_err(), &["is no", "Stored::bytes"]);
        says(&stored.decode::<Vec<[u64; 32]>>().unwrap_err(), &["at least 8 more bytes would"]);
        assert!(stored.decode::<String>().is_err());
        assert!(stored.decode::<std::collections::BTreeMap<u8, ()>>().is_err());
        assert!(stored.decode::<Vec<Option<()>>>().is_err());
        // As documented: items that take no bytes are as many as it says.
        if length == 1000 {
            assert_eq!(stored.decode::<Vec<()>>().unwrap().len(), 1000);
        }
    }
}

#[test]
fn a_result_by_hand_is_bound_by_the_limit_as_well() {
    let faulty = Faulty::new();
    let store = builder(&faulty).value_limit(100).open().unwrap();
    for resolution in [Resolution::completed_bytes, Resolution::failed_bytes] {
        let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
        let token = store.claim(request).unwrap().granted().unwrap().token();
        let before = faulty.stored(b"");
        let error = store.resolve("k", token, resolution(vec![7; 101])).expect_err("it is too long");
        assert!(matches!(error, AdminError::TooLarge { length: 101, limit: 100, .. }), "{error:?}");
        assert_eq!(faulty.stored(b""), before, "the record was changed");
        assert!(store.resolve("k", token, resolution(vec![7; 100])).expect("it fits"));
        assert!(store.remove("k").unwrap());
    }
}

#[test]
fn two_requests_for_one_key_on_different_terms_are_refused_by_name() {
    let store = builder(&Faulty::new()).open().unwrap();
    let ask = || Request::new("k");
    for (first, second, says_so) in [
        (ask().max_attempts(3), ask().max_attempts(4), "max_attempts is 4"),
        (ask().max_attempts(3), ask(), "max_attempts is not set"),
        (ask(), ask().lease(MILLI), "lease is 1ms"),
    ] {
        let error = store.claim_all([first, second]).expect_err("only one of them can be granted");
        says(&error, &[says_so, "what an earlier request for the same key says"]);
    }
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_lock_waits_for_a_day_at_most() {
    let store = builder(&Faulty::new()).open().unwrap();
    assert!(store.lock("k", MAX_WAIT).expect("this is allowed").is_some());
    says(&store.lock("k", MAX_WAIT + NANO).expect_err("this makes no sense"), &["wait is", "at most 24 h"]);
}
