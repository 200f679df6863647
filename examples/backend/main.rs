//! An engine of one's own: `cargo run --example backend`.
//!
//! `journal` is an engine over a map and a file that grows: small, and real. `contract` is what every engine is checked by,
//! claimdb's own too. This runs the checks over the journal, and then a store, whose power is cut and whose file is damaged.
// A program of its own: its locks are not the library's.
#![allow(clippy::disallowed_types)]

mod contract;
mod journal;

use claimdb::backend::{Backend as _, Commit};
use claimdb::{OpenError, Outcome, Settled, Store};
use journal::Journal;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or_else(|| temporary.path().join("store"), PathBuf::from);
    if folder.exists() {
        return Err("this starts from nothing: name a folder that is not there".into());
    }

    for (name, check) in contract::CHECKS {
        let place = tempfile::tempdir()?;
        check(&Journal::new(place.path().join("store")));
        println!("holds: {}", name.replace('_', " "));
    }

    // A store over it is a store like any other.
    let store = Store::builder(Journal::new(&folder)).open()?;
    let Outcome::Granted(claim) = store.claim("order-42")? else { return Err("the store is new".into()) };
    claim.complete("receipt 42")?;
    let Outcome::Granted(unfinished) = store.claim("order-43")? else {
        return Err("the store is new".into());
    };
    let token = unfinished.token();

    // The power is cut: what the disk has is what was synced, and perhaps the beginning of more.
    let cut = temporary.path().join("cut");
    copy(&folder, &cut)?;
    fs::write(cut.join("journal"), [fs::read(cut.join("journal"))?, vec![0xff; 100]].concat())?;
    let after = Store::builder(Journal::new(&cut)).open()?;
    assert_eq!(receipt(&after)?, "receipt 42", "P4: what was told is there");
    let Outcome::Granted(second) = after.claim("order-43")? else {
        return Err("P6: its holder is gone".into());
    };
    assert!(second.token() > token, "P2: tokens are ordered over a power cut");
    assert_eq!(second.attempt(), 2, "and the claim that was granted is known");
    second.complete("receipt 43")?;
    after.close()?;
    println!("after a power cut: the receipt is there, and order-43 is attempt 2");

    // What was not synced may be gone, but a commit is never half there.
    let engine = Journal::new(&cut).open()?;
    let effects = [claimdb::backend::Write { key: b"effect".to_vec(), value: Some(b"1".to_vec()) }];
    engine.commit(&[Commit { effects: &effects, ..Commit::swap(b"key", None, Some(b"1")) }]).remove(0)?;
    copy(&cut, &temporary.path().join("early"))?;
    engine.sync()?;
    copy(&cut, &temporary.path().join("late"))?;
    for (name, expected) in [("early", None), ("late", Some(b"1".to_vec()))] {
        let engine = Journal::new(temporary.path().join(name)).open()?;
        assert_eq!((engine.read(b"key")?, engine.read(b"effect")?), (expected.clone(), expected), "{name}");
    }
    println!("before a sync nothing of a commit is there, and after it all");

    // A bit that rots is told when the store is opened, rather than read as something else, or as nothing.
    let mut bytes = fs::read(cut.join("journal"))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    drop(engine);
    fs::write(cut.join("journal"), bytes)?;
    let damaged = Store::builder(Journal::new(&cut)).open().expect_err("P9: damage is no answer");
    assert!(matches!(damaged, OpenError::Storage { .. }), "{damaged}");
    println!("{damaged}");

    drop(unfinished);
    store.close()?;
    Ok(())
}

/// What an earlier claim of order-42 has stored.
fn receipt(store: &Store) -> Result<String, Box<dyn Error>> {
    match store.claim("order-42")? {
        Outcome::Settled(Settled::Completed(stored)) => Ok(stored.decode()?),
        other => Err(format!("P8: order-42 was completed: {other:?}").into()),
    }
}

/// The files as they are on the disk at this moment, where there is no lock on them.
fn copy(folder: &Path, target: &Path) -> std::io::Result<()> {
    fs::create_dir(target)?;
    fs::copy(folder.join("journal"), target.join("journal")).map(drop)
}
