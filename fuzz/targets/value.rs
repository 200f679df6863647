//! Results that are asked for as another type than they were stored as.
//!
//! A single allocation is limited (`run.sh`): a length that lies must not be believed before its bytes are there.
#![no_main]

use claimdb::backend::Mem;
use claimdb::{ManualClock, Settled, Store, SyncBy};
use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Mixed {
    Unit,
    Text(String),
    Fields { number: i128, optional: Option<char>, list: Vec<(u8, String)> },
}

fuzz_target!(|bytes: &[u8]| {
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller).open();
    let store = store.expect("memory opens");
    let claim = store.claim("key").expect("memory does not fail").granted().expect("nobody else has it");
    claim.complete_bytes(bytes).expect("it is settled");
    let stored = match store.get("key") {
        Ok(Some(Settled::Completed(stored))) => stored,
        told => panic!("P8 remembered: {told:?}"),
    };
    assert_eq!(stored.bytes(), bytes, "P8 remembered");
    again::<String>(&stored);
    again::<Vec<u8>>(&stored);
    again::<Vec<String>>(&stored);
    again::<(u32, String, bool)>(&stored);
    again::<BTreeMap<u16, Vec<u64>>>(&stored);
    again::<Vec<Mixed>>(&stored);
    // Two spellings may be one float or one map; nothing else may.
    let _ = (stored.decode::<Vec<f64>>(), stored.decode::<Box<[char]>>());
});

/// What can be decoded is decoded from what it encodes to.
fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(stored: &claimdb::Stored) {
    let Ok(value) = stored.decode::<T>() else { return };
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller).open();
    let store = store.expect("memory opens");
    let claim = store.claim("key").expect("memory does not fail").granted().expect("nobody else has it");
    claim.complete(&value).expect("it is settled");
    let again = store.get("key").expect("memory does not fail").expect("it was completed");
    let again = again.completed().expect("it was completed").decode::<T>().expect("it was encoded");
    assert_eq!(again, value, "P8 remembered: another value came back");
}
