//! A drive whose calls fail when a test says so.
//!
//! Every call of the engine, its opening and its closing included, is numbered from the moment a fault is armed. The
//! n-th one, or the n-th and those after it, fails, panics, or is where the power is cut or the process is killed,
//! before or after it has landed. Syncs can be told apart, and can hang until released.

#[path = "drive.rs"]
pub mod drive;

use claimdb::backend::{Backend, Commit, Engine, Swap, Visit};
use claimdb::{OpenError, StorageError};
use drive::{Cut, Drive};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// How a call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An error, and nothing was done.
    FailBefore,
    /// An error that tells of damage, and nothing was done.
    Damaged,
    /// An error, and yet it was done.
    FailAfter,
    /// A panic, and nothing was done.
    PanicBefore,
    /// A panic, and yet it was done.
    PanicAfter,
    /// The machine goes down: this call and all after it are errors, and nothing was done.
    DownBefore,
    /// The machine goes down, and yet it was done.
    DownAfter,
}

/// Those after which the store goes on.
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

/// A [`Drive`] with faults. Clones share both.
#[derive(Debug, Clone)]
pub struct Faulty {
    drive: Drive,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    drive: Drive,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    calls: u64,
    armed: Option<(std::ops::Range<u64>, Fault)>,
    fired: Vec<&'static str>,
    syncs: Syncs,
    hanging: usize,
    /// What the drive held when the machine went down.
    down: Option<Cut>,
}

impl Faulty {
    pub fn new() -> Self {
        Self::over(Drive::default())
    }

    pub fn over(drive: Drive) -> Self {
        let state =
            State { calls: 0, armed: None, fired: Vec::new(), syncs: Syncs::Work, hanging: 0, down: None };
        let plan = Plan { drive: drive.clone(), state: Mutex::new(state), changed: Condvar::new() };
        Self { drive, plan: Arc::new(plan) }
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

    /// Which calls have gone wrong so far.
    pub fn fired(&self) -> Vec<&'static str> {
        self.plan.lock().fired.clone()
    }

    /// Cuts the power: nothing survives that was not synced.
    pub fn crash(&self) {
        self.drive.crash();
    }

    /// What the drive held when the machine went down, if it did.
    pub fn down(&self) -> Option<Cut> {
        self.plan.lock().down.clone()
    }

    pub fn is_down(&self) -> bool {
        self.plan.lock().down.is_some()
    }

    /// All that is stored now under keys that begin with `prefix`, looked at beside the store that has it open.
    pub fn stored(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.drive.stored(prefix)
    }

    /// Puts bytes into the closed place, whatever is there; `None` deletes.
    pub fn put(&self, key: &[u8], value: Option<&[u8]>) {
        self.drive.put(key, value);
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
        match self.next(call) {
            None => return Ok(body()),
            Some(Fault::FailBefore) => {}
            Some(Fault::Damaged) => {
                return Err(StorageError::of_damage(call, "the faulty drive", "on purpose"));
            }
            Some(Fault::PanicBefore) => panic!("{call} panics on purpose"),
            Some(Fault::DownBefore) => self.go_down(),
            Some(Fault::FailAfter) => drop(body()),
            Some(Fault::PanicAfter) => {
                drop(body());
                panic!("{call} panics on purpose, after it landed");
            }
            Some(Fault::DownAfter) => {
                drop(body());
                self.go_down();
            }
        }
        Err(broken(call))
    }

    fn go_down(&self) {
        self.lock().down = Some(self.drive.cut());
        self.drive.kill();
    }
}

fn broken(call: &'static str) -> StorageError {
    StorageError::new(call, "the faulty drive", "on purpose")
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("calls", &self.calls)
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}

impl Backend for Faulty {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let failed = |source| OpenError::Storage { place: "the faulty drive".to_owned(), source };
        if self.is_down() {
            return Err(failed(broken("open")));
        }
        let engine = self.plan.around("open", || self.drive.open()).map_err(failed)??;
        Ok(Box::new(FaultyEngine { engine: Some(engine), plan: Arc::clone(&self.plan) }))
    }
}

#[derive(Debug)]
struct FaultyEngine {
    /// `None` only while being dropped.
    engine: Option<Box<dyn Engine>>,
    plan: Arc<Plan>,
}

impl FaultyEngine {
    fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().unwrap()
    }
}

impl Drop for FaultyEngine {
    fn drop(&mut self) {
        let engine = self.engine.take();
        if std::thread::panicking() {
            // A second panic would end the process.
            return;
        }
        let _ = self.plan.around("close", || drop(engine));
    }
}

impl Engine for FaultyEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.plan.around("read", || self.engine().read(key))?
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        match self.plan.around("commit", || self.engine().commit(commits)) {
            Ok(answers) => answers,
            Err(error) => commits.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.plan.around("scan", || self.engine().scan(prefix, after, visit))?
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
        self.plan.around("sync", || self.engine().sync())?
    }
}
