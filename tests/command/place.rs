//! A folder with what a shop's service has left behind, and commands that are run in it.

use claimdb::admin::{Server, Serving};
use claimdb::backend::{Backend as _, Sled};
use claimdb::{Claim, Durability, OnInterrupt, Outcome, Request, Store};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

pub struct Place(pub TempDir);

/// How a command has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Standard output, of a command that did what it was asked.
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    pub fn json(self) -> Value {
        let out = self.done();
        assert_eq!(out.lines().count(), 1, "{out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Standard error, of a command that ended with `code` and told nothing else.
    #[track_caller]
    pub fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        assert!(self.err.starts_with("error: ") && self.err.contains("; "), "{}", self.err);
        self.err
    }
}

impl Place {
    /// A folder with a store, `claims`, that nobody has open.
    pub fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let store = Store::open(place.path("claims")).unwrap();
        granted(&store, "order-40").complete("receipt 40").unwrap();
        granted(&store, "order-41").fail("card declined").unwrap();
        let mut claim = granted(&store, Request::new("order-42"));
        claim.checkpoint("asked the bank").unwrap();
        drop(claim);
        let quarantined = |request: Request| request.on_interrupt(OnInterrupt::Quarantine);
        drop(granted(&store, quarantined(Request::new("order-43"))));
        let refunds = store.scope("refunds").unwrap();
        drop(granted(&store, quarantined(refunds.request("order-44"))));
        assert!(matches!(refunds.claim("order-44").unwrap(), Outcome::Interrupted(_)));
        granted(&store, refunds.request(b"\x00\xff\x17")).complete(&7_u8).unwrap();
        store.close().unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn claimdb(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimdb"));
        command.current_dir(self.0.path()).args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::of(&mut self.claimdb(args))
    }

    pub fn open(&self) -> Store {
        Store::open(self.path("claims")).unwrap()
    }

    /// Files and their bytes, in and below the store's folder.
    pub fn bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn add(folder: &Path, all: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    add(&path, all);
                } else {
                    all.push((path.clone(), fs::read(path).unwrap()));
                }
            }
        }
        let mut all = Vec::new();
        add(&self.path("claims"), &mut all);
        all.sort();
        all
    }
}

pub fn granted(store: &Store, request: impl Into<Request>) -> Claim {
    store.claim(request).unwrap().granted().expect("nobody else has it")
}

/// A service that runs, with work that hangs.
pub struct Service {
    pub store: Store,
    pub stored: Claim,
    pub in_memory: Claim,
    pub serving: Serving,
}

impl Service {
    /// One with its store in `live` and its socket at `claims.sock`.
    pub fn start(place: &Place, server: Server) -> Self {
        let store = Store::open(place.path("live")).unwrap();
        let hour = Duration::from_secs(3600);
        let stored = granted(&store, Request::new("order-50").lease(hour));
        let in_memory = Request::new("order-51").durability(Durability::Result).lease(hour);
        let in_memory = granted(&store, in_memory);
        granted(&store, "order-52").complete("receipt 52").unwrap();
        let serving = server.serve(&store, place.path("claims.sock")).unwrap();
        Self { store, stored, in_memory, serving }
    }
}

/// All that the engine of the store in `claims` has.
pub fn stored(place: &Place) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let engine = Sled::existing(place.path("claims")).open().unwrap();
    let mut found = BTreeMap::new();
    let mut collect = |key: &[u8], value: &[u8]| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    engine.scan(&[], None, &mut collect).unwrap();
    found
}
