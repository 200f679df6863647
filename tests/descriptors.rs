//! A process that has no file descriptors left: what needs one fails, and nothing is lost or poisoned over it.
//!
//! The limit is the process's, so this is one test in a file of its own.
#![cfg(all(not(loom), feature = "sled", target_os = "linux"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::Sled;
use claimdb::{Claim, Store};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Above what sled keeps in its log, so that it makes a file of it.
const LARGE: usize = 6 << 20;
const LIMIT: Duration = Duration::from_secs(60);

fn stored(store: &Store, key: &str) -> Option<String> {
    store.get(key).unwrap().and_then(|settled| settled.completed()?.decode().ok())
}

fn all_descriptors() -> Vec<File> {
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken
}

#[test]
fn a_store_outlives_a_process_without_descriptors() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: Some(256) }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let open = |folder: &Path| {
        let builder = Store::builder(Sled::new(folder)).value_limit(2 * LARGE).sync_limit(LIMIT);
        builder.sweep_every(Duration::ZERO).open().unwrap()
    };
    let store = open(folder.path());
    let grant = |key: &str| -> Claim { store.claim(key).unwrap().granted().unwrap() };
    let (small, large) = (grant("small"), grant("large"));

    // Within the first two seconds of an opening each barrier looks into `blobs/`.
    let taken = all_descriptors();
    small.complete("done").expect("a sync without a descriptor to spare does not poison");
    let more = grant("more");
    assert!(!store.stats().poisoned, "no descriptors left is no failed sync");

    // sled needs one for a large result, and would wait for that write for ever.
    let start = Instant::now();
    let Err(error) = large.complete_bytes(vec![7; LARGE]) else { panic!("sled made no file of it") };
    assert!(error.into_claim().is_some(), "P9 fail closed: its fate is unknown, so it comes back");
    let Err(error) = more.complete("done") else { panic!("P4 durable before told") };
    assert!(start.elapsed() < LIMIT / 2, "P6 never stuck: {error}, after {:?}", start.elapsed());
    assert!(store.stats().poisoned);
    drop(taken);
    assert_eq!(stored(&store, "small"), Some("done".into()), "P8 remembered");
    let start = Instant::now();
    drop((error, store));
    assert!(start.elapsed() < LIMIT / 2, "P6 never stuck: closing took {:?}", start.elapsed());

    // The sled that waits for ever is left to itself, and its lock is given back.
    let store = open(folder.path());
    assert_eq!(stored(&store, "small"), Some("done".into()), "P8 remembered");
    store.claim("large").unwrap().granted().expect("its opening has ended").complete("small").unwrap();
    store.close().unwrap();
}
