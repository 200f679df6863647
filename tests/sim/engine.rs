//! The simulator's storage: the drive of the crash harness, with switches between threads in the middle of its calls,
//! syncs that take a while, and calls that fail when the program says so.

use super::drive::{Cut, Drive, Survivors};
use super::program::{Call, Goes};
use claimdb::backend::{Backend, Commit, Engine, Swap, Visit};
use claimdb::{OpenError, StorageError};
use std::sync::{Arc, Mutex, MutexGuard};

/// Clones share it.
#[derive(Debug, Clone)]
pub struct Storage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// What each call takes and gives back, so that others run before and after it.
    turn: shuttle::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    drive: Drive,
    /// The calls that are to fail, each once.
    armed: Vec<(Call, Goes)>,
    /// How many calls have failed.
    failed: u64,
    /// Whether a sync has failed since the drive was opened.
    sync_failed: bool,
}

impl Storage {
    pub fn new() -> Self {
        let state = State { drive: Drive::default(), armed: Vec::new(), failed: 0, sync_failed: false };
        Self(Arc::new(Shared { state: Mutex::new(state), turn: shuttle::sync::Mutex::new(()) }))
    }

    /// Never held while others run.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody panics with it")
    }

    /// Lets others run.
    fn switch(&self) {
        drop(self.0.turn.lock());
    }

    /// The next such call fails.
    pub fn arm(&self, call: Call, goes: Goes) {
        self.lock().armed.push((call, goes));
    }

    /// No call fails any more.
    pub fn disarm(&self) {
        self.lock().armed.clear();
    }

    pub fn failed(&self) -> u64 {
        self.lock().failed
    }

    pub fn sync_failed(&self) -> bool {
        self.lock().sync_failed
    }

    /// Ends the opening at once, as the death of its process does, and gives what the drive held then.
    pub fn kill(&self) -> Cut {
        let mut state = self.lock();
        state.armed.clear();
        state.sync_failed = false;
        state.drive.kill();
        state.drive.cut()
    }

    /// What is there when the power comes back, of a number that says what survived.
    pub fn restore(&self, cut: &Cut, keep: u64) {
        let unsynced = cut.unsynced();
        let first = usize::try_from(keep >> 2).unwrap_or(0) % (unsynced + 1);
        let survivors = match keep & 3 {
            0 | 1 => Survivors::Prefix(first),
            2 if first < unsynced => Survivors::Torn(first),
            2 => Survivors::Prefix(first),
            _ => Survivors::Subset(keep >> 2),
        };
        let mut state = self.lock();
        state.drive = cut.after(survivors);
    }

    /// Whether this call fails, and how.
    fn next(&self, call: Call) -> Option<Goes> {
        let mut state = self.lock();
        let at = state.armed.iter().position(|(armed, _)| *armed == call)?;
        state.failed += 1;
        state.sync_failed |= call == Call::Sync;
        Some(state.armed.remove(at).1)
    }

    fn around<T>(&self, call: Call, body: impl FnOnce() -> T) -> Result<T, StorageError> {
        self.switch();
        let result = match self.next(call) {
            None => Ok(body()),
            Some(goes) => {
                if goes == Goes::WrongAfter {
                    drop(body());
                }
                Err(StorageError::new("calling", "the simulated drive", "on purpose"))
            }
        };
        self.switch();
        result
    }
}

impl Backend for Storage {
    fn place(&self) -> String {
        "the simulated drive".to_owned()
    }

    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let drive = self.lock().drive.clone();
        Ok(Box::new(SimEngine { engine: drive.open()?, drive, storage: self.clone() }))
    }
}

#[derive(Debug)]
struct SimEngine {
    engine: Box<dyn Engine>,
    drive: Drive,
    storage: Storage,
}

impl Engine for SimEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.storage.around(Call::Read, || self.engine.read(key))?
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        match self.storage.around(Call::Commit, || self.engine.commit(commits)) {
            Ok(answers) => answers,
            Err(error) => commits.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.storage.around(Call::Scan, || self.engine.scan(prefix, after, visit))?
    }

    /// What had returned when it began is durable when it ends, and no more than that is certain.
    fn sync(&self) -> Result<(), StorageError> {
        let before = self.drive.unsynced();
        self.storage.around(Call::Sync, || {
            // An opening that has ended makes nothing durable.
            self.engine.read(b"")?;
            self.drive.sync_first(before);
            Ok(())
        })?
    }
}
