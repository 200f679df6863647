//! Verifying a store of which the engine cannot read everything: each stretch of that is a flaw, all else is looked at.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/torn.rs"]
mod torn;

use claimdb::backend::{Commit, Swap};
use claimdb::{Flaw, Key, KeyLabel, ManualClock, Part, Request, Store, Verified};
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use torn::Torn;

fn record(name: &str) -> Vec<u8> {
    [b"\x01\0", name.as_bytes()].concat()
}

fn value(n: usize) -> Vec<u8> {
    [b"\x03\x06values", format!("v-{n:03}").as_bytes()].concat()
}

fn name(n: usize) -> String {
    format!("k-{n:03}")
}

fn labels(records: Range<usize>) -> Vec<KeyLabel> {
    records.map(|n| Key::new(name(n)).unwrap().label()).collect()
}

fn put(place: &Torn, key: &[u8], value: Option<&[u8]>) {
    let engine = place.whole();
    let seen = engine.read(key).unwrap();
    let swap = engine.commit(&[Commit::swap(key, seen.as_deref(), value)]).remove(0).unwrap();
    assert_eq!(swap, Swap::Done);
}

/// 300 results, which are forgotten one after the other, and 300 values.
fn filled() -> Torn {
    let place = Torn::default();
    let store = Store::builder(place.clone()).clock(ManualClock::new()).open().unwrap();
    for n in 0..300 {
        let request = Request::new(name(n)).retention(Duration::from_secs(1000 + n as u64));
        store.claim(request).unwrap().granted().unwrap().complete(&n).unwrap();
        store.kv("values").put(format!("v-{n:03}"), "1").unwrap();
    }
    store.close().unwrap();
    place
}

/// The entry of a record in the retention index.
fn entry_of(place: &Torn, n: usize) -> Vec<u8> {
    let mut found = Vec::new();
    let key = record(&name(n));
    let mut look = |entry: &[u8], _: &[u8]| {
        if entry[17..] == key {
            found.push(entry.to_vec());
        }
        ControlFlow::Continue(())
    };
    place.whole().scan(&[4], None, &mut look).unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn verify(place: &Torn) -> (Verified, Vec<Flaw>) {
    let mut flaws = Vec::new();
    let verified = Store::builder(place.clone()).verify(&mut |flaw| flaws.push(flaw.clone())).unwrap();
    assert_eq!(verified.flaws, flaws.len() as u64);
    (verified, flaws)
}

fn counts(verified: &Verified) -> (u64, u64, u64, u64) {
    (verified.records, verified.values, verified.entries, verified.stale_entries)
}

/// The keys that are named as those of a stretch that was walked around.
fn named(flaw: &Flaw) -> &[KeyLabel] {
    match flaw {
        Flaw::NotRead { keys, to_end: false, .. } => keys,
        Flaw::ValuesNotRead { to_end: false, .. } => &[],
        other => panic!("P9 fail closed: it was not walked around: {other:?}"),
    }
}

#[test]
fn all_that_lies_between_and_behind_is_looked_at() {
    let place = filled();
    assert_eq!(counts(&verify(&place).0), (300, 300, 300, 0));
    place.tear(record(&name(50))..record(&name(60)));
    place.tear(record(&name(120))..record(&name(121)));
    place.tear(value(10)..value(21));
    let (verified, flaws) = verify(&place);
    let [first, second, third] = &flaws[..] else { panic!("a stretch is a flaw: {flaws:?}") };
    assert_eq!(named(first), labels(50..60), "keys that are hit were not named");
    assert_eq!(named(second), labels(120..121), "keys that are hit were not named");
    assert_eq!(named(third), [], "the index knows no values");
    assert_eq!(
        counts(&verified),
        (289, 289, 300, 0),
        "what can be read was not looked at, or entries of what cannot be read count as stale"
    );
    let text = first.to_string();
    let all = labels(50..60).iter().all(|key| text.contains(&key.to_string()));
    assert!(all && text.contains("10 records: key#") && text.ends_with("its page is damaged"), "{text}");
    assert!(second.to_string().contains(" knows of 1 record: key#"), "{second}");
    let (of_values, of_records) =
        ("it holds plain values at most: ", first.to_string().contains("plain values"));
    assert!(third.to_string().contains(of_values) && !of_records, "told as records: {third}");
}

#[test]
fn entries_in_a_stretch_are_not_taken_for_missing_ones() {
    let place = filled();
    for n in [205, 250] {
        put(&place, &entry_of(&place, n), None);
    }
    place.tear(entry_of(&place, 200)..entry_of(&place, 210));
    let (verified, flaws) = verify(&place);
    let [unread, missing] = &flaws[..] else { panic!("told as not indexed, or not told: {flaws:?}") };
    assert!(matches!(unread, Flaw::IndexNotRead { to_end: false, .. }), "told as lost keys: {unread}");
    let expected = Flaw::NotIndexed { key: labels(250..251)[0] };
    assert_eq!(*missing, expected, "an entry that is missing elsewhere is to be told");
    assert_eq!(counts(&verified), (300, 300, 289, 0));
}

#[test]
fn entries_are_stale_if_no_record_can_be_theirs() {
    let place = filled();
    let store = Store::builder(place.clone()).clock(ManualClock::new()).open().unwrap();
    for name in ["k-055-released", "k-155-released"] {
        store.claim(name).unwrap().granted().unwrap().release().unwrap();
    }
    store.close().unwrap();
    assert_eq!(verify(&place).0.stale_entries, 2);
    put(&place, &record(&name(280)), Some(b"scribble"));
    place.tear(record(&name(50))..record(&name(60)));
    let (verified, flaws) = verify(&place);
    let [unread, unreadable] = &flaws[..] else { panic!("{flaws:?}") };
    assert_eq!(named(unread).len(), 11, "that one of them is gone nobody can see");
    assert!(matches!(unreadable, Flaw::Unreadable { part: Part::Record, .. }), "{unreadable:?}");
    assert_eq!(counts(&verified), (289, 300, 302, 1), "an entry is stale if its record is known to be gone");
}

#[test]
fn what_can_be_read_at_either_end_of_a_stretch_does_not_lie_in_it() {
    let place = filled();
    for n in [49, 60] {
        // Of another token than its record has.
        let mut entry = entry_of(&place, n);
        entry[16] ^= 64;
        put(&place, &entry, Some(b""));
    }
    place.tear(record(&name(50))..record(&name(60)));
    let (verified, flaws) = verify(&place);
    assert!(matches!(&flaws[..], [flaw] if named(flaw) == labels(50..60)), "{flaws:?}");
    assert_eq!(verified.stale_entries, 2, "an entry of what was read is said to be of what was not");
}

#[test]
fn what_can_be_read_when_it_is_tried_again_is_no_flaw() {
    let place = filled();
    place.tear_once(record(&name(100)));
    let (verified, flaws) = verify(&place);
    assert_eq!((place.failed(), flaws), (1, Vec::new()), "what is there is told as lost");
    assert_eq!(counts(&verified), (300, 300, 300, 0));
}

#[test]
fn where_the_engine_panics_it_cannot_read_and_a_panic_of_the_user_is_the_users() {
    let place = filled();
    place.tear(record(&name(100))..record(&name(101)));
    place.panics();
    let (verified, flaws) = verify(&place);
    assert!(matches!(&flaws[..], [flaw] if flaw.to_string().contains("it panicked")), "{flaws:?}");
    assert_eq!(counts(&verified), (299, 300, 300, 0));

    // It is told while the engine scans.
    let (place, mut times) = (filled(), 0);
    put(&place, &record(&name(10)), Some(b"scribble"));
    let mut tell = |_: &Flaw| {
        times += 1;
        assert!(times > 1, "the user's");
    };
    let told = catch_unwind(AssertUnwindSafe(|| Store::builder(place.clone()).verify(&mut tell).map(drop)));
    let panic = told.expect_err("a panic of the user's was taken for one of the engine");
    assert_eq!(panic.downcast_ref(), Some(&"the user's"));
}

#[test]
fn pairs_are_looked_at_a_page_at_a_time() {
    // Where the scan stands when the first flaw is told.
    let told_at = |key: &[u8], bytes: &[u8]| {
        let place = filled();
        let large = vec![7; 600 << 10];
        for n in 100..104 {
            put(&place, &value(n), Some(&large));
        }
        put(&place, key, Some(bytes));
        let mut at = None;
        let mut tell = |_: &Flaw| _ = at.get_or_insert_with(|| place.last());
        Store::builder(place.clone()).verify(&mut tell).unwrap();
        at.expect("it is told")
    };
    let at = told_at(&record(&name(10)), b"scribble");
    assert!(at > record(&name(60)), "each pair is looked at by itself");
    assert!(at < record(&name(140)), "more than a page is held in memory");
    assert!(
        told_at(&value(100), &vec![7; 600 << 10]) < value(103),
        "large values are held in memory together"
    );
}

#[test]
fn the_ceiling_is_missing_only_if_it_cannot_lie_in_a_stretch() {
    let place = filled();
    place.tear(b"\0tok".to_vec()..b"\0toz".to_vec());
    let (verified, flaws) = verify(&place);
    assert!(matches!(&flaws[..], [flaw] if named(flaw).is_empty()), "{flaws:?}");
    assert_eq!(counts(&verified), (300, 300, 300, 0));
}

#[test]
fn an_engine_that_refuses_everything_is_one_flaw_and_no_loss_of_entries() {
    let place = filled();
    place.tear(record(&name(200))..record(&name(201)));
    place.ends_all();
    let (verified, flaws) = verify(&place);
    let [Flaw::NotRead { keys, to_end: true, reason, .. }] = &flaws[..] else {
        panic!("P9 fail closed: {flaws:?}");
    };
    assert_eq!((keys.as_slice(), counts(&verified)), (&[][..], (200, 0, 0, 0)));
    assert!(reason.contains("its page is damaged"), "what went wrong first is to be told: {reason}");
    assert!(flaws[0].to_string().contains("up to the end of the store"), "{}", flaws[0]);
}

#[test]
fn a_stretch_may_hold_more_keys_than_are_held_in_memory() {
    const KEYS: u64 = 40_000;
    let place = filled();
    // Of records that lie behind all others, in the index in the reverse order.
    let (engine, names) = (place.whole(), (0..KEYS).map(|n| format!("l-{n:06}")));
    let entries: Vec<_> = names
        .clone()
        .zip((0..KEYS).rev())
        .map(|(name, end)| [&[4][..], &end.to_be_bytes(), &end.to_be_bytes(), &record(&name)].concat())
        .collect();
    let commits: Vec<_> = entries.iter().map(|entry| Commit::swap(entry, None, Some(b""))).collect();
    assert!(engine.commit(&commits).into_iter().all(|swap| swap.unwrap() == Swap::Done));
    drop(engine);
    put(&place, &record("l-"), Some(b"on the page"));
    place.tear(record("l-")..record("m-"));
    let (verified, flaws) = verify(&place);
    let [unread] = &flaws[..] else { panic!("a stretch is a flaw: {flaws:?}") };
    let expected: Vec<_> = names.map(|name| Key::new(name).unwrap().label()).collect();
    assert!(named(unread) == expected, "{} keys of {KEYS} were named", named(unread).len());
    assert_eq!(counts(&verified), (300, 300, 300 + KEYS, 0));
}

/// What cannot be read costs a panic of redb's for each key that is tried.
#[test]
fn behind_a_long_key_few_are_tried() {
    let place = filled();
    let long = [record("k-1").as_slice(), &[b'x'; 1000]].concat();
    put(&place, &long, Some(b"on the page before"));
    place.tear([long.as_slice(), b"y"].concat()..value(250));
    let (verified, flaws) = verify(&place);
    assert_eq!((flaws.len(), verified.values), (2, 50), "{flaws:?}");
    assert!(place.failed() < 40_000, "{} keys were tried", place.failed());
}
