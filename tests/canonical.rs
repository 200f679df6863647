//! The canonical form behind `Fingerprint::of_value`: golden files, the bytes as documented, and what is one value.
#![cfg(not(loom))] // nothing here has threads
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use claimdb::Fingerprint;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

fn of<T: Serialize + ?Sized>(value: &T) -> Fingerprint {
    Fingerprint::of_value(value).expect("it has a canonical form")
}

fn hex(fingerprint: Fingerprint) -> String {
    fingerprint.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn same<A: Serialize + ?Sized, B: Serialize + ?Sized>(one: &A, other: &B) {
    assert!(of(one) == of(other), "P7: two fingerprints of one meaning, so a retry is refused");
}

#[derive(Debug, Clone, Serialize)]
struct Order {
    article: String,
    cents: u64,
    gift: Option<bool>,
}

#[derive(Serialize)]
struct Unit;
#[derive(Serialize)]
struct Id(u32);
#[derive(Serialize)]
struct Pair(u32, &'static str);

#[derive(Clone, Serialize)]
enum Payment {
    Cash,
    Card(&'static str),
    Split(u32, u32),
    Transfer { iban: &'static str, days: u8 },
}

/// Passes its bytes on as bytes.
struct Bytes(&'static [u8]);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// A map that says its entries in this order, twice if they are there twice.
struct Entries<K, V>(Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for Entries<K, V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

fn order() -> Order {
    Order { article: "tea".to_owned(), cents: 450, gift: None }
}

/// What is behind the lines of `tests/golden/fingerprint_v1.txt`, which stay as they are for as long as records with
/// fingerprints of version 1 are read.
fn golden() -> Vec<(&'static str, Fingerprint)> {
    let scattered: HashMap<_, _> = [("one", 1), ("two", 2), ("three", 3)].into();
    vec![
        ("bytes-empty", Fingerprint::of_bytes("")),
        ("bytes", Fingerprint::of_bytes("tea")),
        ("parts-none", Fingerprint::of_parts([""; 0])),
        ("parts", Fingerprint::of_parts(["POST", "/orders", "tea"])),
        ("null", of(&())),
        ("false", of(&false)),
        ("true", of(&true)),
        ("zero", of(&0)),
        ("integer", of(&450)),
        ("negative", of(&-450)),
        ("greatest", of(&u128::MAX)),
        ("least", of(&i128::MIN)),
        ("fraction", of(&0.1)),
        ("beyond", of(&1e300)),
        ("nan", of(&f64::NAN)),
        ("text-empty", of("")),
        ("text", of("Grüße")),
        ("list-empty", of(&[(); 0])),
        ("list", of(&(1, "two", [3.5]))),
        ("map-empty", of(&HashMap::<u8, u8>::new())),
        ("map", of(&scattered)),
        ("struct", of(&order())),
        ("enum-unit", of(&Payment::Cash)),
        ("enum-newtype", of(&Payment::Card("4242"))),
        ("enum-tuple", of(&Payment::Split(1, 2))),
        ("enum-struct", of(&Payment::Transfer { iban: "DE02", days: 2 })),
        ("nested", of(&json!({"b": [{"y": null, "x": {}}, []], "a": -1.5, "": true}))),
    ]
}

#[test]
fn golden_fingerprints_are_as_they_were() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fingerprint_v1.txt");
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let now: String = golden().into_iter().map(|(name, print)| format!("{name} {}\n", hex(print))).collect();
    assert_eq!(now, stored, "P7: keys claimed by an earlier build would be told mismatched");
}

#[test]
fn the_bytes_are_as_they_are_documented() {
    let hash = |domain: u8, form: &[u8]| {
        hex(Fingerprint::new(blake3::hash(&[&[0xC1, 0xDB, 1, domain], form].concat()).into()))
    };
    assert_eq!(hex(Fingerprint::of_bytes(b"tea")), hash(0, b"tea"));
    let parts = b"\x02\0\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0c";
    assert_eq!(hex(Fingerprint::of_parts(["ab", "", "c"])), hash(1, parts));

    let value = |form: &[u8]| hash(2, form);
    assert_eq!(hex(of(&None::<u8>)), value(&[0x01]));
    assert_eq!(hex(of(&(false, true))), value(&[0x06, 0x02, 0x03, 0x00]));
    assert_eq!(hex(of(&0)), value(&[0x10]));
    assert_eq!(hex(of(&255)), value(&[0x11, 0xFF]));
    assert_eq!(hex(of(&256)), value(&[0x12, 0x00, 0x01]));
    assert_eq!(hex(of(&-256)), value(&[0x32, 0x00, 0x01]));
    assert_eq!(hex(of(&u128::MAX)), value(&[&[0x20][..], &[0xFF; 16]].concat()));
    assert_eq!(hex(of(&i128::MIN)), value(&[&[0x40][..], &[0; 15], &[0x80]].concat()));
    assert_eq!(hex(of(&1.5)), value(&[&[0x04][..], &1.5_f64.to_bits().to_le_bytes()].concat()));
    assert_eq!(hex(of(&f64::NAN)), value(b"\x04\0\0\0\0\0\0\xF8\x7F"));
    assert_eq!(hex(of("é")), value(b"\x05\x02\0\0\0\0\0\0\0\xC3\xA9"));
    // The shorter key comes first, as its bytes do.
    let map = b"\x07\x05\x01\0\0\0\0\0\0\0b\x10\x05\x02\0\0\0\0\0\0\0aa\x11\x07\x00";
    assert_eq!(hex(of(&json!({"aa": 7, "b": 0}))), value(map));
    let variant = b"\x07\x05\x05\0\0\0\0\0\0\0Split\x06\x11\x01\x11\x02\x00\x00";
    assert_eq!(hex(of(&Payment::Split(1, 2))), value(variant));
}

#[test]
fn one_meaning_has_one_fingerprint() {
    #[derive(Serialize)]
    struct Reordered {
        gift: (),
        cents: i8,
        article: &'static str,
    }
    let small = Order { cents: 45, ..order() };
    same(&small, &Reordered { gift: (), cents: 45, article: "tea" });
    same(&small, &json!({"cents": 45, "gift": null, "article": "tea"}));
    let map: HashMap<_, _> = [("cents", json!(45)), ("gift", Value::Null), ("article", json!("tea"))].into();
    same(&small, &map);
    same(&small, &BTreeMap::from_iter(map));
    same(&small, &Some(Box::new(small.clone())));

    same(&7_u8, &7_i128);
    same(&7_u8, &7.0_f32);
    same(&-7_i8, &-7.0_f64);
    same(&u64::MAX, &u128::from(u64::MAX));
    same(&2_f64.powi(127), &(1_u128 << 127));
    same(&0.0, &-0.0);
    same(&0, &-0.0_f32);
    same(&0.5_f32, &0.5_f64);
    same(&f64::NAN, &f64::from_bits(f64::NAN.to_bits() ^ 1 ^ (1 << 63)));
    same(&f32::INFINITY, &f64::INFINITY);

    same(&'é', "é");
    same(&[1_u8, 2][..], &vec![1_u64, 2]);
    same(&(1, 2), &[1, 2]);
    same(&Bytes(&[1, 2]), &[1, 2]);
    same(&None::<u8>, &());
    same(&None::<u8>, &Some(None::<u8>));
    same(&Unit, &Value::Null);
    same(&Id(7), &7);
    same(&Pair(7, "a"), &(7, "a"));

    same(&Payment::Cash, "Cash");
    same(&Payment::Card("4242"), &json!({"Card": "4242"}));
    same(&Payment::Split(1, 2), &json!({"Split": [1, 2]}));
    same(&Payment::Transfer { iban: "DE02", days: 2 }, &json!({"Transfer": {"days": 2, "iban": "DE02"}}));
    // What knows two ways to say itself says itself as in JSON.
    same(&std::net::Ipv4Addr::LOCALHOST, "127.0.0.1");
}

#[test]
fn two_meanings_have_two_fingerprints() {
    // Each differs from each other one.
    let values = [
        ("null", of(&())),
        ("false", of(&false)),
        ("true", of(&true)),
        ("0", of(&0)),
        ("1", of(&1)),
        ("-1", of(&-1)),
        ("256", of(&256)),
        ("65536", of(&65536)),
        ("-256", of(&-256)),
        ("i64 min", of(&i64::MIN)),
        ("2^53", of(&(1_u64 << 53))),
        ("2^53 + 1", of(&((1_u64 << 53) + 1))),
        ("u128 max", of(&u128::MAX)),
        ("2^128", of(&2_f64.powi(128))),
        ("0.1", of(&0.1_f64)),
        ("0.1 as f32", of(&0.1_f32)),
        ("-0.1", of(&-0.1)),
        ("infinity", of(&f64::INFINITY)),
        ("-infinity", of(&f64::NEG_INFINITY)),
        ("nan", of(&f64::NAN)),
        ("empty text", of("")),
        ("text 1", of("1")),
        ("text null", of("null")),
        ("composed", of("\u{e9}")),
        ("decomposed", of("e\u{301}")),
        ("bytes of the text 1", of(&Bytes(b"1"))),
        ("[]", of(&[(); 0])),
        ("[[]]", of(&[[(); 0]])),
        ("[[], []]", of(&[[(); 0]; 2])),
        ("[[[]]]", of(&[[[(); 0]]])),
        ("[null]", of(&[()])),
        ("[ab, c]", of(&["ab", "c"])),
        ("[a, bc]", of(&["a", "bc"])),
        ("[abc]", of(&["abc"])),
        ("[1, [2]]", of(&json!([1, [2]]))),
        ("[[1], 2]", of(&json!([[1], 2]))),
        ("[1, 2]", of(&json!([1, 2]))),
        ("[2, 1]", of(&json!([2, 1]))),
        ("{}", of(&json!({}))),
        ("{a: null}", of(&json!({"a": null}))),
        ("{a: {}}", of(&json!({"a": {}}))),
        ("{a: {b: 1}}", of(&json!({"a": {"b": 1}}))),
        ("{a: {}, b: 1}", of(&json!({"a": {}, "b": 1}))),
        ("{a: 1, b: 2}", of(&json!({"a": 1, "b": 2}))),
        ("{a: 2, b: 1}", of(&json!({"a": 2, "b": 1}))),
        ("[a, 1, b, 2]", of(&json!(["a", 1, "b", 2]))),
        ("{1: 1}, text", of(&json!({"1": 1}))),
        ("{1: 1}, number", of(&BTreeMap::from([(1, 1)]))),
    ];
    for (n, (one, print)) in values.iter().enumerate() {
        for (other, others) in &values[n + 1..] {
            assert!(print != others, "P7: {one} and {other} have one fingerprint");
        }
    }
}

#[test]
fn bytes_parts_and_values_never_meet() {
    let form = b"\x05\x01\0\0\0\0\0\0\0a"; // the canonical form of "a"
    let part = b"\x01\0\0\0\0\0\0\0a"; // the one part "a"
    let prints = [
        Fingerprint::of_bytes("a"),
        Fingerprint::of_bytes(form),
        Fingerprint::of_bytes(part),
        Fingerprint::of_parts(["a"]),
        Fingerprint::of_parts([&form[..]]),
        Fingerprint::of_parts(["a", ""]),
        Fingerprint::of_parts(["", "a"]),
        of("a"),
        Fingerprint::new(blake3::hash(b"a").into()),
        Fingerprint::new(blake3::hash(form).into()),
    ];
    for (n, one) in prints.iter().enumerate() {
        assert!(!prints[n + 1..].contains(one), "P7: {n} meets a later one");
    }
    assert!(
        Fingerprint::of_parts(["ab", "c"]) != Fingerprint::of_parts(["a", "bc"]),
        "P7: parts run together"
    );
    assert!(Fingerprint::of_parts([""; 0]) != Fingerprint::of_parts([""]));
}

/// `serde_json` passes numbers like this when some crate of the build turns on its `arbitrary_precision`.
#[derive(Clone, Serialize)]
#[serde(rename = "$serde_json::private::Number")]
struct Number {
    #[serde(rename = "$serde_json::private::Number")]
    text: &'static str,
}

#[test]
fn numbers_of_arbitrary_precision_are_the_same_numbers() {
    let number = |text| Number { text };
    same(&[number("450")], &[450]);
    same(&json!({"a": 1}), &BTreeMap::from([("a", number("1"))]));
    same(&number("-450"), &-450);
    same(&number("-0"), &0);
    same(&number("340282366920938463463374607431768211455"), &u128::MAX);
    same(&number("7.0"), &7);
    same(&number("100.50"), &100.5);
    same(&number("0.05E+1"), &0.5);
    same(&number("1e300"), &1e300);
    same(&number("0.1"), &0.1);
    same(&number("0.0"), &0);
    // An f64 would take these for others.
    for text in [
        "0.10000000000000000001",
        "1.000000000000000001",
        "1e400",
        "1e-400",
        "1e",
        "tea",
        "",
        &"9".repeat(40),
    ] {
        let told = Fingerprint::of_value(&Number { text: text.to_owned().leak() });
        assert!(told.is_err(), "P7: {text} was rounded");
    }
}

#[test]
fn what_has_no_form_is_refused_and_said() {
    let twice = Fingerprint::of_value(&[Entries(vec![("a", 1), ("b", 2), ("a", 1)])]);
    let twice = twice.expect_err("P7: one of two entries of one key was chosen").to_string();
    assert!(
        twice.contains("Entries") && twice.contains("one key twice") && twice.contains("of_bytes"),
        "{twice}"
    );
    // Keys of one meaning are one key.
    assert!(Fingerprint::of_value(&Entries(vec![(json!(1), 1), (json!(1.0), 2)])).is_err());

    let deep = |levels: usize| {
        (0..levels).fold(json!(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
    };
    assert!(Fingerprint::of_value(&deep(256)).is_ok(), "256 levels are allowed");
    let told = Fingerprint::of_value(&deep(257)).unwrap_err().to_string();
    assert!(told.contains("256 deep"), "{told}");
    // What leaves nothing of itself uses the stack all the same.
    struct Wrapped(usize, bool);
    impl Serialize for Wrapped {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match *self {
                Self(0, _) => serializer.serialize_u8(1),
                Self(levels, true) => serializer.serialize_some(&Self(levels - 1, false)),
                Self(levels, false) => {
                    serializer.serialize_newtype_struct("Newtype", &Self(levels - 1, true))
                }
            }
        }
    }
    assert_eq!(of(&Wrapped(256, true)), of(&1));
    for levels in [257, 200_000] {
        for option in [true, false] {
            let told = Fingerprint::of_value(&Wrapped(levels, option));
            let told = told.expect_err("options and newtypes may use up the stack").to_string();
            assert!(told.contains("256 deep"), "{told}");
        }
    }
    assert!(Fingerprint::of_value(&[Wrapped(255, true), Wrapped(255, true)]).is_ok());
    // Depth is given back: it is how deep things lie, not how many there are.
    assert!(Fingerprint::of_value(&vec![(deep(3), Payment::Split(1, 2), Number { text: "1" }); 300]).is_ok());

    struct Broken;
    impl Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("its file is gone"))
        }
    }
    let told = Fingerprint::of_value(&[Broken]).unwrap_err().to_string();
    assert!(told.contains("its file is gone"), "{told}");
}
