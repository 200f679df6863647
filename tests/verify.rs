//! Verifying and repairing stores: each kind of damage is found, what can be read is kept, the rest is put aside.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::backend::{Backend as _, Commit, Sled, Swap};
use claimdb::{
    CopyError, Damage, Durability, Flaw, OpenError, Outcome, Part, Request, Store, Token, Verified,
};
use faults::{Fault, Faulty};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const CEILING: &[u8] = b"\0token-ceiling";
const HIGH_WATER: &[u8] = b"\0high-water";

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A closed store, whose bytes can be written to.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let store = Store::open(place.folder()).unwrap();
        for n in 0..150 {
            let durability = if n % 2 == 0 { Durability::Full } else { Durability::Result };
            let request = Request::new(format!("k-{n:03}")).durability(durability);
            store.claim(request).unwrap().granted().unwrap().complete(&n).unwrap();
            store.kv("values").put(format!("v-{n:03}"), format!("{n}")).unwrap();
        }
        // Their entries stay behind, and are no damage.
        store.claim("released").unwrap().granted().unwrap().release().unwrap();
        store.remove("k-100").unwrap();
        drop(store.claim("pending").unwrap().granted().unwrap());
        store.close().unwrap();
        place
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn stored(&self) -> Pairs {
        let engine = Sled::existing(self.folder()).open().unwrap();
        let mut found = Pairs::new();
        let mut collect = |key: &[u8], value: &[u8]| {
            found.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        engine.scan(&[], None, &mut collect).unwrap();
        found
    }

    fn put(&self, key: &[u8], value: Option<&[u8]>) {
        let engine = Sled::existing(self.folder()).open().unwrap();
        let seen = engine.read(key).unwrap();
        let swap = engine.commit(&[Commit::swap(key, seen.as_deref(), value)]).remove(0).unwrap();
        assert_eq!(swap, Swap::Done);
        engine.sync().unwrap();
    }

    fn verify(&self) -> (Verified, Vec<Flaw>) {
        let mut flaws = Vec::new();
        let told = Store::builder(Sled::existing(self.folder())).verify(&mut |flaw| flaws.push(flaw.clone()));
        (told.unwrap(), flaws)
    }
}

fn record(n: usize) -> Vec<u8> {
    [b"\x01\0", format!("k-{n:03}").as_bytes()].concat()
}

fn plain(n: usize) -> Vec<u8> {
    [b"\x03\x06values", format!("v-{n:03}").as_bytes()].concat()
}

/// The entries of a record in the retention index.
fn entries_of(stored: &Pairs, key: &[u8]) -> Vec<Vec<u8>> {
    stored.keys().filter(|entry| entry[0] == 4 && entry[17..] == *key).cloned().collect()
}

fn unreadable(flaw: &Flaw) -> (Part, &Damage) {
    match flaw {
        Flaw::Unreadable { part, damage, .. } => (*part, damage),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sound_store_has_no_flaw_and_is_as_it_was() {
    let place = Place::new();
    let before = place.stored();
    let (verified, flaws) = place.verify();
    assert_eq!((flaws, verified.is_sound()), (vec![], true));
    assert_eq!((verified.records, verified.values, verified.entries), (150, 150, 152));
    assert_eq!(verified.stale_entries, 2, "the one that was released, and the one that was removed");
    assert!(place.stored() == before, "verifying changed the store");
    let store = Store::open(place.folder()).unwrap();
    let told = Store::builder(Sled::existing(place.folder())).lock_wait(Duration::ZERO).verify(&mut |_| {});
    assert!(matches!(told, Err(CopyError::Open(OpenError::Locked { .. }))), "rule 9: {told:?}");
    store.close().unwrap();
    let none = place.0.path().join("none");
    let told = Store::builder(Sled::existing(&none)).verify(&mut |_| {});
    assert!(matches!(told, Err(CopyError::Open(OpenError::NoStore { .. }))) && !none.exists(), "{told:?}");
}

/// Whether a flaw is the one that is meant.
type Meant<'a> = &'a dyn Fn(&Flaw) -> bool;
/// How bytes are changed.
type Change = fn(Vec<u8>) -> Option<Vec<u8>>;

#[test]
fn each_kind_of_damage_is_found_and_nothing_else() {
    fn flip(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        bytes[20] ^= 4;
        Some(bytes)
    }
    fn cut(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        bytes.truncate(bytes.len() - 3);
        Some(bytes)
    }
    let scribble: Change = |_| Some(b"scribble".to_vec());
    let cases: [(&str, Vec<u8>, Change, Meant<'_>); 12] = [
        ("a flipped bit", record(7), flip, &|flaw| {
            matches!(unreadable(flaw), (Part::Record, Damage::WrongChecksum { .. }))
        }),
        ("a cut record", record(7), cut, &|flaw| {
            matches!(unreadable(flaw), (Part::Record, Damage::WrongLength { .. }))
        }),
        ("no record", record(7), scribble, &|flaw| {
            matches!(unreadable(flaw), (Part::Record, Damage::NotFramed { .. }))
        }),
        ("a value that is none", plain(7), scribble, &|flaw| {
            matches!(unreadable(flaw), (Part::Value, Damage::NotFramed { .. }))
        }),
        ("a cut value", plain(7), cut, &|flaw| {
            matches!(unreadable(flaw), (Part::Value, Damage::NotFramed { .. } | Damage::WrongLength { .. }))
        }),
        ("a key of no claim", b"\x01\xffk".to_vec(), scribble, &|flaw| {
            matches!(unreadable(flaw), (Part::Record, Damage::UnknownKey { length: 3 }))
        }),
        ("a key of no value", b"\x03\xffk".to_vec(), scribble, &|flaw| {
            matches!(unreadable(flaw), (Part::Value, Damage::UnknownKey { .. }))
        }),
        ("an entry that is none", b"\x04entry".to_vec(), |_| Some(Vec::new()), &|flaw| {
            matches!(unreadable(flaw), (Part::Entry, Damage::UnknownKey { .. }))
        }),
        ("what nobody knows", b"\x09what".to_vec(), scribble, &|flaw| {
            matches!(unreadable(flaw), (Part::Unknown, Damage::UnknownKey { .. }))
        }),
        ("a damaged high-water mark", HIGH_WATER.to_vec(), flip_first, &|flaw| {
            matches!(unreadable(flaw), (Part::Own, _))
        }),
        ("a damaged ceiling", CEILING.to_vec(), flip_first, &|flaw| {
            matches!(unreadable(flaw), (Part::Own, _))
        }),
        ("no ceiling", CEILING.to_vec(), |_| None, &|flaw| *flaw == Flaw::NoCeiling),
    ];
    for (what, key, change, expected) in cases {
        let place = Place::new();
        let bytes = place.stored().remove(&key).unwrap_or_default();
        place.put(&key, change(bytes).as_deref());
        let before = place.stored();
        let (verified, flaws) = place.verify();
        assert!(!verified.is_sound() && verified.flaws == 1, "{what} was not found: {verified:?}, {flaws:?}");
        assert!(expected(&flaws[0]), "{what}: {:?}", flaws[0]);
        assert!(place.stored() == before, "verifying changed the store: {what}");
    }
}

fn flip_first(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    bytes[0] ^= 1;
    Some(bytes)
}

#[test]
fn a_record_without_an_entry_and_a_token_above_the_ceiling_are_found() {
    let place = Place::new();
    let stored = place.stored();
    for entry in entries_of(&stored, &record(8)) {
        place.put(&entry, None);
    }
    let (verified, flaws) = place.verify();
    assert!(matches!(flaws[..], [Flaw::NotIndexed { .. }]), "a record without an entry: {flaws:?}");
    assert_eq!(verified.stale_entries, 2);
    // Rebuilding the index mends that.
    let store = Store::open(place.folder()).unwrap();
    assert!(store.rebuild_index().unwrap().written >= 1);
    store.close().unwrap();
    assert!(place.verify().0.is_sound());

    // The ceiling of an earlier time is put back, as a restore of one file by hand might.
    let place = Place::new();
    let early = place.stored()[CEILING].clone();
    let builder = Store::builder(Sled::new(place.folder())).token_floor(Token::new(1 << 60));
    let store = builder.open().unwrap();
    store.claim("late").unwrap().granted().unwrap().complete("done").unwrap();
    store.close().unwrap();
    place.put(CEILING, Some(&early));
    let (_, flaws) = place.verify();
    let [flaw] = &flaws[..] else { panic!("rule 8: a token above the ceiling was not found: {flaws:?}") };
    assert!(matches!(unreadable(flaw), (Part::Record, Damage::TokenAboveCeiling { .. })), "rule 8: {flaw:?}");
    let text = flaw.to_string();
    assert!(text.starts_with("record key#") && text.contains("ceiling"), "{text}");
}

/// The lines of the file that things were put aside in: part, key, bytes.
fn aside(path: &Path) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("claimdb aside 1"));
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    };
    let line = |line: &str| {
        let mut fields = line.splitn(4, ' ');
        let mut next = || fields.next().unwrap();
        let found = (next().to_owned(), bytes(next()), bytes(next()));
        assert!(!next().is_empty(), "each line says what is wrong");
        found
    };
    lines.map(line).collect()
}

#[test]
fn what_the_engine_cannot_read_is_a_flaw() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).open().unwrap();
    for n in 0..300 {
        store.kv("values").put(format!("v-{n:03}"), "1").unwrap();
    }
    store.close().unwrap();
    // Opening, and then the scan fails, once.
    faulty.arm(1, 1, Fault::FailBefore);
    let mut flaws = Vec::new();
    let verified = Store::builder(faulty.clone()).verify(&mut |flaw| flaws.push(flaw.clone())).unwrap();
    assert_eq!(faulty.disarm(), ["scan"]);
    assert!(matches!(flaws.as_slice(), [Flaw::NotRead { .. }]), "P9 fail closed: {flaws:?}");
    assert!(!verified.is_sound() && verified.flaws == 1, "P9 fail closed: told as sound: {verified:?}");
    assert_eq!(verified.values, 300, "what lies behind was not looked at");
}

#[test]
fn repairing_puts_aside_what_cannot_be_read_and_keeps_all_else() {
    let place = Place::new();
    let sound = place.stored();
    let broken = [record(3), record(4), plain(5), b"\x09what".to_vec()];
    for key in &broken {
        let mut bytes = sound.get(key).cloned().unwrap_or_else(|| b"no".to_vec());
        bytes[1] ^= 1;
        place.put(key, Some(&bytes));
    }
    place.put(b"\x04entry", Some(b""));
    for entry in entries_of(&sound, &record(8)) {
        place.put(&entry, None);
    }
    let damaged = place.stored();
    let repaired = Store::repair(place.folder()).unwrap();
    assert_eq!((repaired.aside, repaired.new_ceiling), (4, None), "what cannot be read was not put aside");
    assert_eq!((repaired.copied.records, repaired.copied.values, repaired.copied.unreadable), (148, 149, 0));
    let path = repaired.aside_in.unwrap();
    assert_eq!(path, place.folder().join("aside-1"));
    let found = aside(&path);
    assert_eq!(
        found.iter().map(|(part, ..)| part.as_str()).collect::<Vec<_>>(),
        ["record", "record", "value", "unknown"]
    );
    for ((_, key, bytes), expected) in found.iter().zip(&broken) {
        assert_eq!((key, bytes), (expected, &damaged[expected]), "what was put aside is not what was there");
    }
    let (verified, flaws) = place.verify();
    assert!(verified.is_sound(), "{flaws:?}");
    assert_eq!(
        (verified.records, verified.entries, verified.stale_entries),
        (148, 148, 0),
        "the index is new"
    );
    for (key, bytes) in place.stored().iter().filter(|(key, _)| [1, 3].contains(&key[0])) {
        assert_eq!(bytes, &sound[key], "P8: what could be read was changed");
    }
    let store = Store::open(place.folder()).unwrap();
    assert!(store.get("k-008").unwrap().is_some());
    // As it is said: the key of what was put aside is free.
    assert!(matches!(store.claim("k-003").unwrap(), Outcome::Granted(_)));
    store.close().unwrap();
    // Earlier files stay, and without damage there is none.
    let again = Store::repair(place.folder()).unwrap();
    assert_eq!((again.aside, again.aside_in), (0, None));
    place.put(&record(9), Some(b"scribble"));
    let third = Store::repair(place.folder()).unwrap();
    assert_eq!(third.aside_in, Some(place.folder().join("aside-2")));
    assert_eq!(aside(&path), found);
}

#[test]
fn repairing_a_lost_ceiling_never_grants_a_token_twice() {
    let cases: [(&str, Change); 3] =
        [("lost", |_| None), ("damaged", flip_first), ("put back", |_| Some(Vec::new()))];
    for (what, change) in cases {
        let place = Place::new();
        let early = place.stored()[CEILING].clone();
        // Far above the clock, so that nothing but the records tells.
        let builder = Store::builder(Sled::new(place.folder())).token_floor(Token::new(1 << 60));
        let store = builder.open().unwrap();
        let claim = store.claim("late").unwrap().granted().unwrap();
        let token = claim.token();
        claim.complete("done").unwrap();
        store.close().unwrap();
        let now = place.stored()[CEILING].clone();
        let changed = if what == "put back" { Some(early) } else { change(now) };
        place.put(CEILING, changed.as_deref());
        let repaired = Store::repair(place.folder()).unwrap();
        let ceiling = repaired.new_ceiling.unwrap_or_else(|| panic!("{what}: it is to be told"));
        assert!(ceiling > token, "P2: {what}");
        let store = Store::open(place.folder()).unwrap();
        let granted = store.claim("new").unwrap().granted().unwrap().token();
        assert!(granted > token, "P2 ordered tokens: {granted} after {token}, ceiling {what}");
        // Without a ceiling to hold it against, its record is as good as any.
        assert_eq!(store.get("late").unwrap().is_some(), what != "put back", "{what}");
        store.close().unwrap();
        assert!(place.verify().0.is_sound(), "{what}");
    }
}
