//! Memory whose calls fail when a test says so.
//!
//! Every call of the engine is numbered from the moment a fault is armed. The n-th one, or the n-th and those after
//! it, fails or panics, before or after it has landed. Syncs can be told apart, and can hang until released.

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{OpenError, StorageError};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

/// How a call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An error, and nothing was done.
    FailBefore,
    /// An error, and yet it was done.
    FailAfter,
    /// A panic, and nothing was done.
    PanicBefore,
    /// A panic, and yet it was done.
    PanicAfter,
}

pub const FAULTS: [Fault; 4] = [Fault::FailBefore, Fault::FailAfter, Fault::PanicBefore, Fault::PanicAfter];

/// What the syncs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    Work,
    Fail,
    Panic,
    Hang,
    /// One works, and those after it hang.
    One,
}

/// A [`Mem`] with faults. Clones share both.
#[derive(Debug, Clone)]
pub struct Faulty {
    pub mem: Mem,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    state: Mutex<State>,
    changed: Condvar,
    opened: Mutex<Option<Weak<dyn Engine>>>,
}

#[derive(Debug)]
struct State {
    calls: u64,
    armed: Option<(std::ops::Range<u64>, Fault)>,
    fired: Vec<&'static str>,
    syncs: Syncs,
    hanging: usize,
}

impl Faulty {
    pub fn new() -> Self {
        let state = State { calls: 0, armed: None, fired: Vec::new(), syncs: Syncs::Work, hanging: 0 };
        let plan =
            Arc::new(Plan { state: Mutex::new(state), changed: Condvar::new(), opened: Mutex::new(None) });
        Self { mem: Mem::with_power_cuts(), plan }
    }

    /// From now on the call number `first`, counted from 0, and the `count - 1` calls after it go wrong.
    pub fn arm(&self, first: u64, count: u64, fault: Fault) {
        let mut state = self.plan.lock();
        state.calls = 0;
        state.fired.clear();
        state.armed = Some((first..first + count, fault));
    }

    /// How many calls there were since a fault was armed last, or since the beginning.
    pub fn calls(&self) -> u64 {
        self.plan.lock().calls
    }

    /// Ends the faults, and tells which calls went wrong.
    pub fn disarm(&self) -> Vec<&'static str> {
        let mut state = self.plan.lock();
        state.armed = None;
        std::mem::take(&mut state.fired)
    }

    /// All that is stored now under keys that begin with `prefix`, looked at beside the store that has it open.
    pub fn stored(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let opened = self.plan.opened.lock().unwrap().as_ref().and_then(Weak::upgrade);
        let engine = opened.unwrap_or_else(|| self.mem.open().unwrap().into());
        let mut found = Vec::new();
        let mut collect = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        engine.scan(prefix, None, &mut collect).unwrap();
        found
    }

    /// Puts bytes into the closed place, whatever is there; `None` deletes.
    pub fn put(&self, key: &[u8], value: Option<&[u8]>) {
        let engine = self.mem.open().expect("the place is closed");
        let expected = engine.read(key).unwrap();
        let commit = Commit { key, expected: expected.as_deref(), new: value, hints: &[], effects: &[] };
        assert_eq!(engine.commit(&[commit]).remove(0).unwrap(), Swap::Done);
        engine.sync().unwrap();
    }

    /// What syncs do from now on; those that hang go on as this says.
    pub fn syncs(&self, syncs: Syncs) {
        self.plan.lock().syncs = syncs;
        self.plan.changed.notify_all();
    }

    /// Blocks until a sync hangs.
    pub fn until_a_sync_hangs(&self) {
        let mut state = self.plan.lock();
        while state.hanging == 0 {
            state = self.plan.changed.wait(state).unwrap();
        }
    }
}

impl Plan {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Panics on purpose happen outside the lock.
        self.state.lock().unwrap()
    }

    fn next(&self, call: &'static str) -> Option<Fault> {
        let mut state = self.lock();
        let number = state.calls;
        state.calls += 1;
        let fault =
            state.armed.as_ref().filter(|(range, _)| range.contains(&number)).map(|(_, fault)| *fault);
        if fault.is_some() {
            state.fired.push(call);
        }
        fault
    }

    fn around<T>(&self, call: &'static str, body: impl FnOnce() -> T) -> Result<T, StorageError> {
        let fault = self.next(call);
        match fault {
            None => return Ok(body()),
            Some(Fault::FailBefore) => {}
            Some(Fault::PanicBefore) => panic!("{call} panics on purpose"),
            Some(Fault::FailAfter) => drop(body()),
            Some(Fault::PanicAfter) => {
                drop(body());
                panic!("{call} panics on purpose, after it landed");
            }
        }
        Err(broken(call))
    }
}

fn broken(call: &'static str) -> StorageError {
    StorageError::new(call, "the faulty memory", "on purpose")
}

impl Backend for Faulty {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let engine: Arc<dyn Engine> = self.mem.open()?.into();
        *self.plan.opened.lock().unwrap() = Some(Arc::downgrade(&engine));
        Ok(Box::new(FaultyEngine { engine, plan: Arc::clone(&self.plan) }))
    }
}

#[derive(Debug)]
struct FaultyEngine {
    engine: Arc<dyn Engine>,
    plan: Arc<Plan>,
}

impl Engine for FaultyEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.plan.around("read", || self.engine.read(key))?
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        match self.plan.around("commit", || self.engine.commit(commits)) {
            Ok(answers) => answers,
            Err(error) => commits.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.plan.around("scan", || self.engine.scan(prefix, after, visit))?
    }

    fn sync(&self) -> Result<(), StorageError> {
        let syncs = {
            let mut state = self.plan.lock();
            while state.syncs == Syncs::Hang {
                state.hanging += 1;
                self.plan.changed.notify_all();
                state = self.plan.changed.wait(state).unwrap();
                state.hanging -= 1;
            }
            if state.syncs == Syncs::One {
                state.syncs = Syncs::Hang;
            }
            state.syncs
        };
        match syncs {
            Syncs::Fail => return Err(broken("sync")),
            Syncs::Panic => panic!("sync panics on purpose"),
            Syncs::Work | Syncs::Hang | Syncs::One => {}
        }
        self.plan.around("sync", || self.engine.sync())?
    }
}
