//! The canonical form behind `Fingerprint::of_value` over generated values: equal exactly if they mean the same.
#![cfg(not(loom))] // nothing here has threads
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use claimdb::Fingerprint;
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn of<T: Serialize + ?Sized>(value: &T) -> Fingerprint {
    Fingerprint::of_value(value).expect("it has a canonical form")
}

/// Values as JSON can say them.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..3_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{0,2}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The value with the entries of each map in another order, which they are passed on in.
enum Shuffled {
    Leaf(Value),
    List(Vec<Shuffled>),
    Map(Vec<(String, Shuffled)>),
}

impl Shuffled {
    fn new(value: Value, seed: usize) -> Self {
        match value {
            Value::Array(items) => Self::List(items.into_iter().map(|item| Self::new(item, seed)).collect()),
            Value::Object(map) => {
                let mut entries: Vec<_> =
                    map.into_iter().map(|(key, value)| (key, Self::new(value, seed))).collect();
                if !entries.is_empty() {
                    let turn = seed % entries.len();
                    entries.rotate_left(turn);
                    if seed % 2 == 1 {
                        entries.reverse();
                    }
                }
                Self::Map(entries)
            }
            leaf => Self::Leaf(leaf),
        }
    }
}

impl Serialize for Shuffled {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Leaf(value) => value.serialize(serializer),
            Self::List(items) => items.serialize(serializer),
            Self::Map(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// One value in two ways exactly if they say the same: numbers by their value, which JSON's own text does not do.
fn meaning(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e30 => format!("{}", float as i128),
            _ => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(meaning).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let entries: BTreeMap<_, _> = map.iter().map(|(key, value)| (key, meaning(value))).collect();
            format!("{entries:?}")
        }
        other => other.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_order_of_entries_does_not_matter(value in values(), seed in 0..12_usize) {
        let shuffled = Shuffled::new(value.clone(), seed);
        prop_assert!(of(&value) == of(&shuffled), "P7: the order of a map's entries counts: {}", value);
    }

    #[test]
    fn values_are_equal_exactly_if_their_fingerprints_are(one in values(), other in values()) {
        let equal = meaning(&one) == meaning(&other);
        prop_assert!((of(&one) == of(&other)) == equal, "P7: {} and {}", one, other);
    }

    #[test]
    fn a_change_anywhere_changes_the_fingerprint(value in values(), other in values()) {
        // Wrapped and beside others, so that the change lies deep.
        let wrap = |inner: &Value| json!({"a": [1, {"b": inner, "c": []}], "d": null});
        let equal = meaning(&value) == meaning(&other);
        prop_assert!((of(&wrap(&value)) == of(&wrap(&other))) == equal, "P7: {} and {}", value, other);
    }

    #[test]
    fn a_rust_value_and_its_json_are_one(
        article in ".{0,9}", cents in any::<u64>(), gift in any::<Option<bool>>(), more in prop::collection::hash_map("[a-z]{0,9}", any::<i32>(), 0..9),
    ) {
        #[derive(Debug, Serialize)]
        struct Order {
            article: String,
            cents: u64,
            gift: Option<bool>,
        }
        let value = (Order { article, cents, gift }, more);
        prop_assert!(of(&value) == of(&serde_json::to_value(&value).unwrap()), "P7: {:?}", value);
    }

    #[test]
    fn parts_are_equal_exactly_if_their_fingerprints_are(
        one in prop::collection::vec("[ab]{0,2}", 0..4), other in prop::collection::vec("[ab]{0,2}", 0..4),
    ) {
        prop_assert!((Fingerprint::of_parts(&one) == Fingerprint::of_parts(&other)) == (one == other), "P7");
    }
}
