//! Why segments are of 8 MiB: sled loses count of a buffer of 16 MiB that is filled to its last byte, and writes over it.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many small writes go through sled, of one sequence that fills the first 16 MiB to the last byte, before something
/// breaks.
fn goes_through(segment: usize, writes: u64) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let config = sled::Config::new().path(folder.path()).flush_every_ms(None).segment_size(segment);
    // Dropping one that is broken waits for ever.
    let db = ManuallyDrop::new(config.cache_capacity(128 << 20).open().unwrap());
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let value = [7; 128];
    let mut last = std::collections::HashMap::new();
    for number in 0..writes {
        let (key, length) = (random() % 20_000, random() % 100);
        let value = &value[..usize::try_from(length).unwrap()];
        let written = catch_unwind(AssertUnwindSafe(|| db.insert(key.to_be_bytes(), value)));
        written.map_err(|_| format!("the write {number} panicked"))?.map_err(|error| error.to_string())?;
        last.insert(key, value.len());
    }
    let read = |key: u64| db.get(key.to_be_bytes()).unwrap().map(|value| value.len());
    match last.iter().find(|(key, length)| read(**key) != Some(**length)) {
        Some((key, _)) => Err(format!("{key} reads as {:?}", read(*key))),
        None => {
            db.flush().unwrap();
            Ok(())
        }
    }
}

#[test]
fn segments_of_16_mib_break_and_those_of_8_mib_do_not() {
    let broken = goes_through(16 << 20, 200_000);
    assert!(broken.is_err(), "sled takes 16 MiB now: larger segments are possible");
    assert_eq!(goes_through(8 << 20, 200_000), Ok(()), "P8 remembered: what was written is lost");
}
