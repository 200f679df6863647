//! `Debug` of each public part of a store names what it is, and shows what its documentation says and no key or value. What
//! ended a copy tells whether that is damage.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used)] // tests play the caller

use claimdb::backend::{Backend as _, Commit, Mem};
use claimdb::{
    CopyError, Ending, Key, KvError, ManualClock, OnInterrupt, OpenError, Outcome, Request, RunError,
    SettleError, Settled, StorageError, Store, Writes,
};
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::time::Duration;

const SECRET: &str = "canary";

/// `value` as `Debug` shows it, which begins with `name`, has all of `parts` and no secret.
fn check(name: &str, parts: &[&str], value: &impl Debug) {
    let shown = format!("{value:?}");
    assert!(shown.starts_with(name), "{name} is shown as {shown:?}");
    for part in parts {
        assert!(shown.contains(part), "{name} does not show {part}: {shown}");
    }
    assert!(!shown.contains(SECRET), "keys and values do not belong in logs: {shown}");
    let bytes = format!("{:?}", SECRET.as_bytes());
    assert!(!shown.contains(bytes.trim_matches(['[', ']'])), "{shown}");
}

fn open() -> (Store, ManualClock) {
    let clock = ManualClock::new();
    (Store::builder(Mem::new()).value_limit(64).clock(clock.clone()).open().unwrap(), clock)
}

#[test]
fn debug_shows_what_a_claim_is_and_what_it_is_told() {
    let (store, clock) = open();
    let label = Key::new(SECRET).unwrap().label().to_string();
    let claim = store.claim(SECRET).unwrap().granted().unwrap();
    let token = claim.token().to_string();
    check("Claim", &[&label, &token, "attempt: 1"], &claim);
    let signal = claim.lost();
    check("LossSignal", &["KeyLabel(", "None"], &signal);
    check("InFlight", &[&token], &store.claim(SECRET).unwrap());

    let Err(SettleError::Retry(retry)) = claim.complete(&SECRET.repeat(20)) else { panic!("it is too long") };
    check("Retry", &[&token, "TooLarge"], &retry);
    retry.claim.complete(SECRET).unwrap();
    check("LossSignal", &["Ended"], &signal);
    let Settled::Completed(stored) = store.get(SECRET).unwrap().unwrap() else { panic!("it is completed") };
    check("Stored", &[&format!("length: {}", stored.bytes().len()), &token], &stored);

    let request = || Request::new("q").on_interrupt(OnInterrupt::Quarantine);
    let mut claim = store.claim(request()).unwrap().granted().unwrap();
    let token = claim.token().to_string();
    claim.checkpoint(SECRET.as_bytes()).unwrap();
    drop(claim);
    let Outcome::Interrupted(case) = store.claim(request()).unwrap() else { panic!("it is quarantined") };
    check("Interrupted", &[&token, "attempt: 1", "Dropped", "6"], &case);

    for (shown, ending) in [
        ("Complete", Ending::Complete),
        ("Fail(..)", Ending::fail(SECRET).unwrap()),
        ("Omit", Ending::Omit),
        ("Release", Ending::Release),
        ("Drop", Ending::Drop),
    ] {
        check(shown, &[], &ending);
    }
    let lock = store.lock(SECRET, Duration::ZERO).unwrap().unwrap();
    check("Lock", &[&lock.token().to_string()], &lock);
    clock.advance(Duration::from_secs(1));
}

#[test]
fn debug_shows_how_far_a_walk_is_and_how_much_is_to_be_written() {
    let (store, _) = open();
    for name in [SECRET, "a", "b"] {
        let claim = store.claim(Key::scoped(SECRET, name).unwrap()).unwrap().granted().unwrap();
        claim.complete(SECRET).unwrap();
    }
    check("Store", &["poisoned: None"], &store);
    check("StoreFuture", &[], &store.claim_async(SECRET));
    check("Scope", &["template"], &store.scope(SECRET).unwrap());
    let mut listing = store.scan(SECRET, "").unwrap();
    check("Listing", &["ready: 0", "done: false"], &listing);
    listing.next().unwrap().unwrap();
    check("Listing", &["ready: 2", "done: true"], &listing);

    let values = store.kv(SECRET);
    values.put(SECRET, SECRET).unwrap();
    check("Kv", &["poisoned: None"], &values);
    check("KvScan", &["ready: 0", "done: false"], &values.scan("").unwrap());
    let differs = values.compare_and_swap(SECRET, None, None).unwrap();
    check("Differs", &["6"], &differs);
    check("Swapped", &[], &values.compare_and_swap(SECRET, Some(SECRET.as_bytes()), None).unwrap());
    let writes = Writes::new().put(SECRET, SECRET, SECRET).delete(SECRET, "other");
    check("Writes", &["writes: 2", "invalid: None"], &writes);
    let error = values.put(SECRET, SECRET.repeat(20)).unwrap_err();
    assert!(matches!(error, KvError::TooLarge { .. }));
    check("TooLarge", &["120", "64"], &error);
}

#[test]
fn debug_and_messages_of_what_failed_show_no_key_and_no_value() {
    let mem = Mem::new();
    let store = Store::builder(mem.clone()).open().unwrap();
    store.kv("v").put(SECRET, SECRET).unwrap();
    store.close().unwrap();
    let engine = mem.open().unwrap();
    let mut stored = Vec::new();
    engine
        .scan(&[], None, &mut |key, value| {
            stored.extend(key.ends_with(SECRET.as_bytes()).then(|| (key.to_vec(), value.to_vec())));
            ControlFlow::Continue(())
        })
        .unwrap();
    let [(key, value)] = &stored[..] else { panic!("one value was put") };
    engine.commit(&[Commit::swap(key, Some(value), Some(SECRET.as_bytes()))]).remove(0).unwrap();
    drop(engine);
    let store = Store::builder(mem).open().unwrap();
    let told = store.kv("v").scan("").unwrap().next().unwrap().unwrap_err();
    let KvError::Scanned { key, .. } = &told else { panic!("{told:?}") };
    assert_eq!(key.bytes(), SECRET.as_bytes());
    check("key#", &[], key);
    assert!(key.to_string().starts_with("key#") && told.to_string().contains(&key.to_string()), "{told}");
    assert!(!told.to_string().contains(SECRET), "keys and values do not belong in logs: {told}");

    let failed: Result<_, RunError<String, &str>> = store.run("k", |_| Err("declined"));
    check("Work(", &["declined"], &failed.unwrap_err());
    let _busy = store.claim("busy").unwrap();
    let refused: Result<_, RunError<String, &str>> = store.run("busy", |_| Ok(SECRET.to_owned()));
    check("Refused(InFlight", &[], &refused.unwrap_err());
}

#[test]
fn damage_is_told_as_damage_and_nothing_else_is() {
    let storage = |damage: bool| match damage {
        true => StorageError::of_damage("reading", "the store", "it is torn"),
        false => StorageError::new("reading", "the store", "it is away"),
    };
    for damage in [true, false] {
        let replacing =
            CopyError::Replacing { doing: "swapping", place: "p".into(), source: storage(damage) };
        let errors = [
            CopyError::Storage(storage(damage)),
            replacing,
            CopyError::Target { place: "p".into(), source: storage(damage) },
            CopyError::Fault(storage(damage).into()),
        ];
        for error in errors {
            assert_eq!(error.is_damage(), damage, "whether trying again helps is told wrong of: {error}");
        }
    }
    let unfinished = OpenError::UnfinishedCopy { place: "p".into() };
    assert!(
        CopyError::Open(unfinished).is_damage(),
        "a copy that was not finished is told as if it could be used"
    );
    assert!(!CopyError::NotEmpty { place: "p".into() }.is_damage());
}
