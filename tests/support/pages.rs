//! Closed stores over each engine, of which pages can be damaged on the disk.

#[path = "engines.rs"]
pub mod engines;

use claimdb::{Clock as _, Durability, Flaw, ManualClock, Store, SystemClock, Verified, WallTime};
use engines::Engine;
use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

pub const RECORDS: usize = 500;
pub const VALUES: usize = 300;

/// A closed store, whose engine knows where all of it is.
pub struct Place {
    pub engine: Engine,
    pub folder: PathBuf,
    _above: TempDir,
}

/// What is stored for one key, and found again in the engine's file.
pub fn payload(engine: Engine, name: &str) -> String {
    let length = match engine {
        // So that there are several segments: the last is looked at by each opening.
        Engine::Sled => 16_000,
        #[cfg(feature = "redb")]
        Engine::Redb => 300,
    };
    format!("<{name}>").repeat(length / (name.len() + 2))
}

pub fn record(n: usize) -> String {
    format!("k-{n:05}")
}

pub fn value(n: usize) -> String {
    format!("v-{n:05}")
}

pub fn record_key(n: usize) -> Vec<u8> {
    [b"\x01\0", record(n).as_bytes()].concat()
}

pub fn value_key(n: usize) -> Vec<u8> {
    [b"\x03\x06values", value(n).as_bytes()].concat()
}

pub fn cannot_read(engine: &dyn claimdb::backend::Engine, key: &[u8]) -> bool {
    !matches!(catch_unwind(AssertUnwindSafe(|| engine.read(key))), Ok(Ok(Some(_))))
}

impl Place {
    pub fn new(engine: Engine) -> Self {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("store");
        let place = Self { engine, folder, _above: above };
        // A time in the keys of the index that carries into its next byte decides which pages a walk finds behind a damaged
        // one, so the times are the same ones in each run, but for that byte.
        let (clock, now) = (ManualClock::new(), SystemClock::new().wall().unix_millis());
        clock.set_wall(WallTime::from_unix_millis(now & !0xffff));
        let relaxed =
            || Store::builder(engine.at(&place.folder)).durability(Durability::Relaxed).clock(clock.clone());
        let store = relaxed().open().unwrap();
        for n in 0..RECORDS {
            let claim = store.claim(record(n)).unwrap().granted().unwrap();
            claim.complete(&payload(engine, &record(n))).unwrap();
            clock.advance(Duration::from_micros(200));
        }
        for n in 0..VALUES {
            store.kv("values").put(value(n), payload(engine, &value(n))).unwrap();
        }
        store.close().unwrap();
        // sled notes at an opening where its pages are.
        relaxed().open().unwrap().close().unwrap();
        place
    }

    /// Damages the page that holds `key`.
    pub fn damage(&self, key: &[u8]) {
        let name = std::str::from_utf8(&key[key.len() - record(0).len()..]).unwrap();
        self.damage_at(key, payload(self.engine, name).as_bytes());
    }

    /// The entries of the index, of which all can be read.
    pub fn entries(&self) -> Vec<Vec<u8>> {
        let (engine, mut found) = (self.engine.existing(&self.folder).open().unwrap(), Vec::new());
        let mut look = |entry: &[u8], _: &[u8]| {
            found.push(entry.to_vec());
            ControlFlow::Continue(())
        };
        engine.scan(&[4], None, &mut look).unwrap();
        found
    }

    /// Damages the page that holds this entry of the index. sled leaves out what the keys of a page have in common, which
    /// ends before the last byte of their tokens.
    pub fn damage_entry(&self, entry: &[u8]) {
        self.damage_at(entry, &entry[16..]);
    }

    /// Damages the page that holds `key`, and with it `stored`.
    fn damage_at(&self, key: &[u8], stored: &[u8]) {
        let file = self.folder.join(self.engine.name()).join("db");
        let sound = fs::read(&file).unwrap();
        for at in all_of(&sound, stored) {
            let mut bytes = sound.clone();
            match self.engine {
                Engine::Sled => bytes[at + 5] ^= 1,
                // What type of page it is.
                #[cfg(feature = "redb")]
                Engine::Redb => bytes[at / 4096 * 4096] = 0xff,
            }
            // The same bytes stand in pages that are used no more, and in what is left over of them.
            let copy = tempfile::tempdir().unwrap();
            let copied = copy.path().join(self.engine.name());
            fs::create_dir(&copied).unwrap();
            for entry in fs::read_dir(file.parent().unwrap()).unwrap() {
                let entry = entry.unwrap();
                if entry.path().is_file() {
                    fs::copy(entry.path(), copied.join(entry.file_name())).unwrap();
                }
            }
            fs::copy(self.folder.join("format"), copy.path().join("format")).unwrap();
            fs::copy(self.folder.join("clean"), copy.path().join("clean")).unwrap();
            fs::write(copied.join("db"), &bytes).unwrap();
            let hit = match self.engine.existing(copy.path()).open() {
                Ok(engine) => cannot_read(&*engine, key) && !cannot_read(&*engine, &record_key(0)),
                Err(_) => false,
            };
            if hit {
                fs::write(&file, &bytes).unwrap();
                return;
            }
        }
        panic!("no page of {key:?} was found");
    }

    /// The keys of records and values that the engine cannot read.
    pub fn unreadable(&self) -> BTreeSet<Vec<u8>> {
        let engine = self.engine.existing(&self.folder).open().unwrap();
        let all = (0..RECORDS).map(record_key).chain((0..VALUES).map(value_key));
        all.filter(|key| cannot_read(&*engine, key)).collect()
    }

    pub fn verify(&self) -> (Verified, Vec<Flaw>) {
        let mut flaws = Vec::new();
        let store = Store::builder(self.engine.existing(&self.folder));
        (store.verify(&mut |flaw| flaws.push(flaw.clone())).unwrap(), flaws)
    }
}

/// Where `what` begins in `bytes`.
pub fn all_of(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let first = |from: usize| bytes[from..].windows(what.len()).position(|found| found == what);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = first(from) {
        found.push(from + at);
        from += at + what.len();
    }
    found
}

/// redb panics for each try to read a damaged page, which is caught and needs no telling.
pub fn hush_redb() {
    let tell = take_hook();
    set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|at| at.file().contains("/redb-4.")) {
            tell(panic);
        }
    }));
}
