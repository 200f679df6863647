//! Plain values: what each operation answers, over every engine, at the limits, and damaged.
#![cfg(not(loom))] // real files, and one thread that writes
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::{Backend, Commit, Mem, Swap};
use claimdb::{
    Compared, Damage, Durability, Key, KeyError, Kv, KvError, KvScan, MAX_NAME, MAX_SCOPE, MAX_WRITES,
    MAX_WRITES_BYTES, ManualClock, Store, SyncBy, Writes,
};
use std::ops::ControlFlow;
use std::path::Path;

fn open(place: &(impl Backend + Clone + 'static)) -> Store {
    Store::builder(place.clone()).open().unwrap()
}

fn over_every_backend(check: impl Fn(&Store)) {
    check(&open(&Mem::new()));
    check(&open(&Mem::with_power_cuts()));
    check(&Store::builder(Mem::new()).sync_by(SyncBy::Caller).clock(ManualClock::new()).open().unwrap());
    check(&Store::builder(Mem::new()).durability(Durability::Relaxed).open().unwrap());
    #[cfg(feature = "sled")]
    {
        let folder = tempfile::tempdir().unwrap();
        check(&open(&claimdb::backend::Sled::new(folder.path().join("store"))));
    }
}

fn pairs(values: &Kv, prefix: impl AsRef<[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    values.scan(prefix).unwrap().map(Result::unwrap).collect()
}

fn keys(values: &Kv, prefix: impl AsRef<[u8]>) -> Vec<Vec<u8>> {
    pairs(values, prefix).into_iter().map(|(key, _)| key).collect()
}

/// All that is stored, looked at beside the closed store.
fn stored(mem: &Mem) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let engine = mem.open().expect("the store is closed");
    engine
        .scan(&[3], None, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn put_raw(mem: &Mem, key: &[u8], value: &[u8]) {
    let engine = mem.open().expect("the store is closed");
    let expected = engine.read(key).unwrap();
    let swap = engine.commit(&[Commit::swap(key, expected.as_deref(), Some(value))]).remove(0);
    assert_eq!(swap.unwrap(), Swap::Done);
}

#[test]
fn values_are_put_read_replaced_and_deleted() {
    over_every_backend(|store| {
        let values = store.kv("values");
        assert_eq!(values.get("a").unwrap(), None);
        values.delete("a").expect("deleting nothing is fine");
        values.put("a", "one").unwrap();
        assert_eq!(values.get("a").unwrap().as_deref(), Some(&b"one"[..]));
        values.put("a", "").unwrap();
        assert_eq!(values.get("a").unwrap().as_deref(), Some(&b""[..]), "no bytes are a value");
        values.put(b"\x00\xff", [0, 255]).unwrap();
        assert_eq!(values.get(b"\x00\xff").unwrap().as_deref(), Some(&[0, 255][..]));
        values.delete("a").unwrap();
        assert_eq!(values.get("a").unwrap(), None);
        values.put_value("n", &(7_u64, "seven")).unwrap();
        assert_eq!(values.get_value::<(u64, String)>("n").unwrap(), Some((7, "seven".to_owned())));
        assert_eq!(values.get_value::<u64>("absent").unwrap(), None);
        let error = values.get_value::<u8>("n").unwrap_err();
        assert!(matches!(error, KvError::Undecodable { .. }), "{error}");
        assert_eq!(store.stats().entries, 0);
    });
}

#[test]
fn compare_and_swap_swaps_what_was_expected_and_tells_what_was_not() {
    over_every_backend(|store| {
        let values = store.kv("values");
        let swap = |expected: Option<&str>, new: Option<&str>| {
            let bytes = |value: Option<&str>| value.map(|value| value.as_bytes().to_vec());
            values.compare_and_swap("k", bytes(expected).as_deref(), bytes(new).as_deref()).unwrap()
        };
        let differs = |current: Option<&str>| Compared::Differs { current: current.map(|v| v.into()) };
        assert_eq!(swap(Some("x"), Some("y")), differs(None));
        assert_eq!(swap(None, None), Compared::Swapped);
        assert_eq!(swap(None, Some("")), Compared::Swapped);
        assert_eq!(swap(None, Some("a")), differs(Some("")), "no bytes are a value");
        assert_eq!(swap(Some(""), Some("a")), Compared::Swapped);
        assert_eq!(swap(Some("b"), None), differs(Some("a")));
        assert_eq!(swap(Some("a"), None), Compared::Swapped);
        assert_eq!(values.get("k").unwrap(), None);
        assert_eq!(store.stats().entries, 0);
    });
}

#[test]
fn of_many_that_swap_one_counter_none_is_lost() {
    over_every_backend(|store| {
        let values = store.kv("values");
        let add = || loop {
            let seen = values.get("n").unwrap();
            let n = seen.as_deref().map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
            let new = (n + 1).to_le_bytes();
            if values.compare_and_swap("n", seen.as_deref(), Some(&new)).unwrap().is_swapped() {
                return;
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|_| add()));
            }
        });
        assert_eq!(values.get_value::<u64>("n").unwrap(), Some(80), "a swap was lost");
        assert_eq!(store.stats().entries, 0);
    });
}

#[test]
fn names_keep_values_apart_from_each_other_and_from_claims() {
    over_every_backend(|store| {
        for (name, key) in [("", "ab"), ("a", "b"), ("ab", "c"), ("a", "bc"), ("\u{1}", "a")] {
            assert_eq!(store.kv(name).get(key).unwrap(), None, "two keys were one");
            store.kv(name).put(key, [name, key].concat()).unwrap();
        }
        assert_eq!(keys(&store.kv("a"), ""), [b"b".to_vec(), b"bc".to_vec()]);
        assert_eq!(store.kv("a").get("bc").unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(store.get(Key::scoped("a", "b").unwrap()).unwrap(), None);
        assert_eq!(store.scan("a", "").unwrap().count(), 0);
        assert!(store.claim(Key::scoped("a", "b").unwrap()).unwrap().granted().is_some());
    });
}

#[test]
fn several_writes_land_together_and_the_last_of_a_key_counts() {
    over_every_backend(|store| {
        store.write(Writes::new()).expect("nothing to do is fine");
        store.kv("a").put("gone", "x").unwrap();
        let writes =
            Writes::new().put("a", "k", "1").put("b", "k", "2").delete("a", "gone").put("a", "k", "3");
        assert_eq!((writes.len(), writes.is_empty()), (3, false));
        store.write(writes).unwrap();
        assert_eq!(pairs(&store.kv("a"), ""), [(b"k".to_vec(), b"3".to_vec())]);
        assert_eq!(store.kv("b").get("k").unwrap().as_deref(), Some(&b"2"[..]));
        store.write(Writes::new().delete("b", "k")).unwrap();
        assert_eq!(store.kv("b").get("k").unwrap(), None);
        assert_eq!(store.stats().entries, 0);
    });
}

#[test]
fn a_scan_goes_by_prefix_in_order_over_pages_while_others_write() {
    over_every_backend(|store| {
        let values = store.kv("values");
        let count = 2 * KvScan::PAGE + 5;
        let key = |n: usize| format!("{n:04}");
        for page in (0..count).collect::<Vec<_>>().chunks(100) {
            let put = |writes: Writes, n: &usize| writes.put("values", key(*n), n.to_le_bytes());
            store.write(page.iter().fold(Writes::new(), put)).unwrap();
        }
        for other in [&b"0001\xff"[..], b"\xff", b"\xff\xff", b"\xff\xff\x00"] {
            values.put(other, "").unwrap();
        }
        assert_eq!(keys(&values, "0001"), [b"0001".to_vec(), b"0001\xff".to_vec()]);
        assert_eq!(keys(&values, b"\xff\xff"), [&b"\xff\xff"[..], b"\xff\xff\x00"]);
        assert!(keys(&values, "x").is_empty());
        let writes = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = 0;
                while writes.load(std::sync::atomic::Ordering::Relaxed) {
                    n = (n + 7) % count;
                    values.put(format!("{n:04}+"), "new").unwrap();
                    values.delete(format!("{n:04}+")).unwrap();
                }
            });
            for _ in 0..3 {
                let found = keys(&values, "0");
                assert!(found.is_sorted(), "in the order of keys");
                let old = found.into_iter().filter(|key| key.len() == 4).collect::<Vec<_>>();
                let expected: Vec<_> = (0..count).map(|n| key(n).into_bytes()).collect();
                assert_eq!(old, expected, "a value that was not touched was passed over or shown twice");
            }
            writes.store(false, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(store.stats().entries, 0);
    });
}

#[test]
fn a_page_ends_by_bytes_as_well() {
    let store = open(&Mem::new());
    let values = store.kv("large");
    let value = vec![7; KvScan::PAGE_BYTES / 2 + 1];
    for n in 0..5_u8 {
        values.put([n], &value).unwrap();
    }
    let mut scan = values.scan("").unwrap();
    assert_eq!(scan.next().unwrap().unwrap().0, [0]);
    assert_eq!(format!("{scan:?}"), "KvScan { ready: 1, done: false, .. }", "two values fill a page");
    assert_eq!(scan.count(), 4);
}

#[test]
fn limits_are_kept_and_told() {
    let limit = 100;
    let store = Store::builder(Mem::new()).value_limit(limit).open().unwrap();
    let values = store.kv(vec![b'n'; MAX_SCOPE]);
    let longest = vec![b'k'; MAX_NAME];
    values.put(&longest, vec![1; limit]).unwrap();
    assert_eq!(values.get(&longest).unwrap(), Some(vec![1; limit]));
    assert_eq!(keys(&values, &longest), std::slice::from_ref(&longest));

    let invalid = |told: Result<(), KvError>| match told.unwrap_err() {
        KvError::InvalidKey { error, .. } => error,
        other => panic!("{other}"),
    };
    let (long, name) = ([&longest[..], b"k"].concat(), vec![b'n'; MAX_SCOPE + 1]);
    assert_eq!(invalid(values.put("", "")), KeyError::Empty);
    assert_eq!(invalid(values.delete(&long)), KeyError::NameTooLong { length: MAX_NAME + 1 });
    assert_eq!(invalid(values.scan(&long).map(drop)), KeyError::PrefixTooLong { length: MAX_NAME + 1 });
    assert_eq!(
        invalid(store.kv(&name).get("k").map(drop)),
        KeyError::ValuesTooLong { length: MAX_SCOPE + 1 }
    );
    assert_eq!(invalid(store.write(Writes::new().put("v", "", ""))), KeyError::Empty);
    let told = invalid(store.write(Writes::new().delete(name, "k").put("v", "k", "")));
    assert_eq!(told, KeyError::ValuesTooLong { length: MAX_SCOPE + 1 });

    let large = vec![1; limit + 1];
    let told = [
        values.put("k", &large),
        values.compare_and_swap("k", None, Some(&large)).map(drop),
        store.write(Writes::new().put("v", "k", "").put("v", "l", &large[..])),
    ];
    for told in told {
        let error = told.unwrap_err();
        assert!(matches!(error, KvError::TooLarge { length: 101, limit: 100, .. }), "{error}");
        assert!(error.to_string().contains("Builder::value_limit"), "{error}");
    }
    assert_eq!(store.kv("v").get("k").unwrap(), None, "nothing was changed");

    let many =
        |count: usize| (0..count).fold(Writes::new(), |writes, n| writes.put("v", n.to_le_bytes(), ""));
    store.write(many(MAX_WRITES)).unwrap();
    let error = store.write(many(MAX_WRITES + 1)).unwrap_err();
    assert!(matches!(error, KvError::TooMany { writes: 1025, .. }), "{error}");

    let store = Store::builder(Mem::new()).value_limit(MAX_WRITES_BYTES).open().unwrap();
    let half = MAX_WRITES_BYTES / 2;
    let writes = Writes::new().put("v", "a", vec![0; half]).put("v", "b", vec![0; half - 8]);
    store.write(writes.clone()).unwrap();
    let error = store.write(writes.put("v", "c", "")).unwrap_err();
    assert!(
        matches!(error, KvError::TooMany { writes: 3, bytes } if bytes == MAX_WRITES_BYTES + 4),
        "{error}"
    );
}

fn golden() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/value_v1.hex");
    let text = std::fs::read_to_string(path).unwrap();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// The key of the golden value: space, length of the name, name, key.
const GOLDEN_KEY: &[u8] = b"\x03\x08balancesalice";

#[test]
fn a_value_is_stored_as_it_is_documented() {
    let mem = Mem::new();
    let store = open(&mem);
    store.kv("balances").put("alice", "100 cents").unwrap();
    store.close().unwrap();
    assert_eq!(stored(&mem), [(GOLDEN_KEY.to_vec(), golden())], "a value is written as something else");
    let payload = b"100 cents";
    let checked = [&[1, 0], &9_u32.to_le_bytes()[..], payload].concat();
    let checksum = crc32fast::hash(&checked).to_le_bytes();
    assert_eq!(golden(), [&[0xC1, 0xDB], &checked[..6], &checksum[..], payload].concat());
    put_raw(&mem, GOLDEN_KEY, &golden());
    let value = open(&mem).kv("balances").get("alice").unwrap();
    assert_eq!(value.as_deref(), Some(&payload[..]), "a golden value is read as something else");
}

#[test]
fn damage_is_told_and_replaced_unread() {
    let mem = Mem::new();
    open(&mem).close().unwrap();
    let whole = golden();
    let flipped = (0..whole.len() * 8).map(|bit| {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    for bytes in flipped.chain((0..whole.len()).map(|end| whole[..end].to_vec())) {
        put_raw(&mem, GOLDEN_KEY, &bytes);
        let store = open(&mem);
        let values = store.kv("balances");
        let told = [
            values.get("alice").map(drop),
            values.compare_and_swap("alice", None, None).map(drop),
            values.scan("").unwrap().try_for_each(|pair| pair.map(drop)),
        ];
        for told in told {
            let damaged = matches!(told, Err(KvError::Damaged { .. } | KvError::Scanned { .. }));
            assert!(damaged, "damage was taken for a value: {told:?}");
        }
        values.put("alice", "mended").unwrap();
        assert_eq!(values.get("alice").unwrap().as_deref(), Some(&b"mended"[..]));
        store.close().unwrap();
    }
    let mut later = whole[..12].to_vec();
    later[2] = 2;
    later[4] = 0;
    let checksum = crc32fast::hash(&later[2..8]).to_le_bytes();
    later[8..].copy_from_slice(&checksum);
    put_raw(&mem, GOLDEN_KEY, &later);
    let error = open(&mem).kv("balances").get("alice").unwrap_err();
    let newer = Damage::UnknownVersion { version: 2, newest: 1 };
    assert!(matches!(&error, KvError::Damaged { damage, .. } if *damage == newer), "{error}");
}

#[test]
fn nothing_shows_a_key_or_a_value() {
    let (secret, mem) = ("secret", Mem::new());
    let store = Store::builder(mem.clone()).value_limit(3).open().unwrap();
    let values = store.kv(secret);
    values.put(secret, "hid").unwrap();
    let differs = values.compare_and_swap(secret, None, None).unwrap();
    assert_eq!(format!("{differs:?}"), "Differs { current: Some(3 bytes) }");
    let mut scan = values.scan(secret).unwrap();
    let error = values.put(secret, secret).unwrap_err();
    let writes = Writes::new().put(secret, secret, secret);
    let mut shown = format!("{values:?} {writes:?} {error:?} {error} {scan:?} {store:?}");
    scan.next().unwrap().unwrap();
    shown += &format!("{scan:?}");
    store.close().unwrap();
    put_raw(&mem, b"\x03\x06secretsecret", b"secret");
    let error = open(&mem).kv(secret).get(secret).unwrap_err();
    shown += &format!("{error:?} {error}");
    assert!(!shown.contains("secret") && !shown.contains("hid") && !shown.contains("115, 101"), "{shown}");
}

#[test]
fn of_several_writes_of_one_key_the_last_counts_whatever_the_others_are() {
    struct Unspeakable;
    impl serde::Serialize for Unspeakable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    let store = Store::builder(Mem::new()).value_limit(3).open().unwrap();
    let good = |writes: Writes| writes.put("a", "k", "ok");
    let bad: [fn(Writes) -> Writes; 2] =
        [|writes| writes.put("a", "k", "too large"), |writes| writes.put_value("a", "k", &Unspeakable)];
    for bad in bad {
        store.write(good(bad(Writes::new()))).expect("what was replaced counts for nothing");
        let told = store.write(bad(good(Writes::new())));
        let refused = matches!(told, Err(KvError::TooLarge { .. } | KvError::NotEncodable { .. }));
        assert!(refused, "the last of two writes did not count: {told:?}");
    }
    let told = store.write(Writes::new().put("a", "", "no key").put("a", "k", "ok"));
    assert!(matches!(told, Err(KvError::InvalidKey { .. })), "nothing replaces what is no key: {told:?}");
}
