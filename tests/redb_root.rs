//! redb stores whose first page, from which every search begins, is another one, or whose note of the last close is an earlier
//! one: nothing is begun anew, and what is there is kept.
#![cfg(all(not(loom), feature = "sled", feature = "redb"))] // real files
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "support/pages.rs"]
#[allow(dead_code)] // each test file uses a part
mod pages;

use claimdb::backend::Redb;
use claimdb::{OpenError, Store};
use pages::engines::Engine;
use pages::{Place, RECORDS, all_of, hush_redb, record_key};
use std::fs;

/// A leaf of the index in the place of the first page shows a store with entries of the index alone.
#[test]
fn a_store_that_shows_no_token_ceiling_is_not_begun_anew() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    let file = place.folder.join("redb/db");
    let sound = fs::read(&file).unwrap();
    let entry = place.entries().into_iter().find(|entry| entry[17..] == record_key(60)).unwrap();
    let from = all_of(&sound, &entry[16..])[0] / 4096 * 4096;
    let mut met = 0;
    for to in (4096..sound.len()).step_by(4096) {
        let mut bytes = sound.clone();
        bytes.copy_within(from..from + 4096, to);
        fs::write(&file, &bytes).unwrap();
        let existing = || Store::builder(Redb::existing(&place.folder));
        match existing().read_only().open() {
            Err(OpenError::Damaged { reason, .. }) if reason.contains("no token ceiling") => {}
            Err(OpenError::NoStore { .. }) => panic!("P9 fail closed: page {}: told as no store", to / 4096),
            _ => continue,
        }
        met += 1;
        let clean = fs::read(place.folder.join("clean")).unwrap();
        match existing().open() {
            Err(OpenError::Damaged { .. }) => {}
            other => panic!("P9 fail closed: page {}: all keys are free: {other:?}", to / 4096),
        }
        // The opening that was refused is one that did not end well.
        fs::write(place.folder.join("clean"), clean).unwrap();
    }
    assert!(met > 0, "no page leads to all others");
}

#[test]
fn a_note_of_an_earlier_close_does_not_take_what_is_there() {
    hush_redb();
    let length = |place: &Place| fs::metadata(place.folder.join("redb/db")).unwrap().len();
    for part in [0, 1, 2] {
        let place = Place::new(Engine::Redb);
        let noted = length(&place) * part / 4;
        fs::write(place.folder.join("clean"), format!("{noted}\n")).unwrap();
        match Store::builder(Redb::existing(&place.folder)).open() {
            Err(OpenError::Damaged { .. }) => {}
            other => panic!("{other:?}"),
        }
        let repaired = Store::repair(&place.folder).unwrap_or_else(|error| {
            panic!("P6 never stuck: noted as of {noted} bytes it was to be repaired, and is told: {error}")
        });
        let there = repaired.copied.records == RECORDS as u64;
        assert!(there || repaired.unread + repaired.missing > 0, "P8 remembered: {noted}: {repaired:?}");
    }
}

/// The leaf that holds the first keys in the place of the first page: all that is shown is as if it were all.
#[cfg(feature = "cli")]
#[test]
fn a_listing_that_lacks_keys_without_a_sign_is_told_as_damage() {
    hush_redb();
    let place = Place::new(Engine::Redb);
    let file = place.folder.join("redb/db");
    let sound = fs::read(&file).unwrap();
    let from = all_of(&sound, &record_key(0))[0] / 4096 * 4096;
    let mut met = 0;
    for to in (4096..sound.len()).step_by(4096).filter(|to| *to != from) {
        let mut bytes = sound.clone();
        bytes.copy_within(from..from + 4096, to);
        fs::write(&file, &bytes).unwrap();
        let Ok(store) = Store::builder(Redb::existing(&place.folder)).read_only().open() else { continue };
        let listed = store.keys(None).unwrap().collect::<Result<Vec<_>, _>>();
        if !listed.is_ok_and(|listed| listed.len() < RECORDS) {
            continue;
        }
        drop(store);
        met += 1;
        for command in ["list", "stats"] {
            let mut claimdb = std::process::Command::new(env!("CARGO_BIN_EXE_claimdb"));
            let ended = claimdb.arg(command).arg("--store").arg(&place.folder).output().unwrap();
            let told = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(4), "P9 fail closed: {command}, page {}: {told}", to / 4096);
        }
    }
    assert!(met > 0, "no page leads to all others");
}
