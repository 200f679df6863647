//! A drive in memory with a cache that a power cut takes.
//!
//! What is read is the cache. What a power cut leaves is what was synced, and of what was not whatever the test
//! chooses: a [`Cut`] says what there is to choose from.

use claimdb::backend::{Backend, Commit, Engine, Swap, Visit, Write};
use claimdb::{OpenError, StorageError};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::ControlFlow;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

// Each call is a point at which a model may switch threads.
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

type Bytes = BTreeMap<Vec<u8>, Vec<u8>>;

/// Clones share the drive.
#[derive(Clone, Default)]
pub struct Drive(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    held: Cut,
    cache: Bytes,
    /// Which opening is current; the engines of earlier ones are ghosts.
    opening: u64,
    open: bool,
}

/// What a drive holds: what was synced, and the commits that were not, oldest first.
#[derive(Clone, Default, PartialEq)]
pub struct Cut {
    synced: Bytes,
    unsynced: Vec<Landed>,
}

/// What one commit wrote. `whole` lands as one or not at all, hints land alone as well.
#[derive(Clone, PartialEq)]
struct Landed {
    hints: Vec<Write>,
    whole: Vec<Write>,
}

/// What of the commits that were not synced survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// The first so many.
    Prefix(usize),
    /// The first so many, and the hints of the next.
    Torn(usize),
    /// Those whose bit is set.
    Subset(u64),
    /// The first so many, of the last of which half the bytes were written.
    Halved(usize),
}

impl Cut {
    /// How many commits were not synced.
    pub fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// Whether the commit number `at` wrote anything that may land without its swap.
    pub fn has_hints(&self, at: usize) -> bool {
        self.unsynced.get(at).is_some_and(|landed| !landed.hints.is_empty())
    }

    /// The keys whose bytes [`Survivors::Halved`] cuts in two.
    pub fn halved(&self, first: usize) -> Vec<Vec<u8>> {
        let last = first.checked_sub(1).and_then(|last| self.unsynced.get(last));
        let whole = last.map_or(&[][..], |landed| &landed.whole);
        whole
            .iter()
            .filter(|write| write.value.as_ref().is_some_and(|v| v.len() > 1))
            .map(|w| w.key.clone())
            .collect()
    }

    /// The drive as it is when the power comes back.
    pub fn after(&self, survivors: Survivors) -> Drive {
        let mut bytes = self.synced.clone();
        for (at, Landed { hints, whole }) in self.unsynced.iter().enumerate() {
            let (hints_survive, survives) = match survivors {
                Survivors::Prefix(first) | Survivors::Halved(first) => (at < first, at < first),
                Survivors::Torn(first) => (at <= first, at < first),
                Survivors::Subset(bits) => (bits >> at & 1 == 1, bits >> at & 1 == 1),
            };
            hints.iter().filter(|_| hints_survive).for_each(|write| put(&mut bytes, write));
            whole.iter().filter(|_| survives).for_each(|write| put(&mut bytes, write));
        }
        if let Survivors::Halved(first) = survivors {
            for key in self.halved(first) {
                bytes.entry(key).and_modify(|value| value.truncate(value.len() / 2));
            }
        }
        let held = Self { synced: bytes.clone(), unsynced: Vec::new() };
        Drive(Arc::new(Mutex::new(State { held, cache: bytes, ..State::default() })))
    }

    /// The drive as it is after the process was killed: its cache is there, and nothing more of it is synced.
    pub fn killed(&self) -> Drive {
        let mut cache = self.synced.clone();
        for Landed { hints, whole } in &self.unsynced {
            hints.iter().chain(whole).for_each(|write| put(&mut cache, write));
        }
        Drive(Arc::new(Mutex::new(State { held: self.clone(), cache, ..State::default() })))
    }
}

fn put(bytes: &mut Bytes, write: &Write) {
    match &write.value {
        Some(value) => drop(bytes.insert(write.key.clone(), value.clone())),
        None => drop(bytes.remove(&write.key)),
    }
}

impl Drive {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// What it holds.
    pub fn cut(&self) -> Cut {
        self.lock().held.clone()
    }

    /// How many commits are not synced.
    pub fn unsynced(&self) -> usize {
        self.lock().held.unsynced.len()
    }

    /// Makes the first `commits` of those durable that are not, as a sync does that began before the others.
    pub fn sync_first(&self, commits: usize) {
        self.lock().sync_first(commits);
    }

    /// Ends the opening, as the death of its process does.
    pub fn kill(&self) {
        let mut state = self.lock();
        state.opening += 1;
        state.open = false;
    }

    /// Cuts the power or kills the process: tells what the drive held, and in the same step ends the opening. There is no
    /// other after it; what the power leaves is another drive.
    #[cfg(loom)]
    pub fn cut_power(&self) -> Cut {
        let mut state = self.lock();
        state.opening += 1;
        state.open = true;
        state.held.clone()
    }

    /// What was not synced never will be, and is read as before: a sync has failed.
    #[cfg(loom)]
    pub fn lose_unsynced(&self) {
        self.lock().held.unsynced.clear();
    }

    /// Cuts the power: ends the opening, and nothing survives that was not synced.
    pub fn crash(&self) {
        self.kill();
        let mut state = self.lock();
        state.held.unsynced.clear();
        state.cache = state.held.synced.clone();
    }

    /// What is there now under keys that begin with `prefix`.
    pub fn stored(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let state = self.lock();
        let found = state.cache.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
        found.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Puts bytes under a key, whatever is there, and syncs them; `None` deletes.
    pub fn put(&self, key: &[u8], value: Option<&[u8]>) {
        let write = Write { key: key.to_vec(), value: value.map(<[u8]>::to_vec) };
        let mut state = self.lock();
        put(&mut state.cache, &write);
        state.sync();
        put(&mut state.held.synced, &write);
    }
}

impl State {
    fn sync(&mut self) {
        self.sync_first(self.held.unsynced.len());
    }

    fn sync_first(&mut self, commits: usize) {
        let commits = commits.min(self.held.unsynced.len());
        for Landed { hints, whole } in self.held.unsynced.drain(..commits) {
            hints.iter().chain(&whole).for_each(|write| put(&mut self.held.synced, write));
        }
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Swap {
        for write in commit.hints {
            put(&mut self.cache, write);
        }
        let current = self.cache.get(commit.key);
        let refused = current.map(Vec::as_slice) != commit.expected;
        let answer = if refused { Swap::Refused { current: current.cloned() } } else { Swap::Done };
        let swap = Write { key: commit.key.to_vec(), value: commit.new.map(<[u8]>::to_vec) };
        let mut whole = Vec::new();
        if !refused {
            whole.push(swap);
            whole.extend_from_slice(commit.effects);
        }
        whole.iter().for_each(|write| put(&mut self.cache, write));
        if !whole.is_empty() || !commit.hints.is_empty() {
            self.held.unsynced.push(Landed { hints: commit.hints.to_vec(), whole });
        }
        answer
    }
}

impl std::fmt::Debug for Drive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a drive in memory")
    }
}

impl Backend for Drive {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let mut state = self.lock();
        if state.open {
            return Err(OpenError::Locked { place: "the drive".to_owned(), holder: String::new() });
        }
        state.open = true;
        state.opening += 1;
        Ok(Box::new(DriveEngine { drive: self.clone(), opening: state.opening }))
    }
}

#[derive(Debug)]
struct DriveEngine {
    drive: Drive,
    opening: u64,
}

impl DriveEngine {
    fn alive(&self, doing: &'static str) -> Result<MutexGuard<'_, State>, StorageError> {
        let state = self.drive.lock();
        if state.opening == self.opening {
            return Ok(state);
        }
        Err(StorageError::new(doing, "the drive", "this opening has ended"))
    }
}

impl Engine for DriveEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.alive("reading")?.cache.get(key).cloned())
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        commits.iter().map(|commit| Ok(self.alive("writing to")?.commit(commit))).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let mut at = after.map(<[u8]>::to_vec);
        // One pair at a time: `visit` may call the drive.
        loop {
            let from = match &at {
                Some(at) if at.as_slice() >= prefix => Excluded(at.as_slice()),
                _ => Included(prefix),
            };
            let state = self.alive("scanning")?;
            let next = state.cache.range::<[u8], _>((from, Unbounded)).next();
            let next = next.filter(|(key, _)| key.starts_with(prefix));
            let Some((key, value)) = next.map(|(key, value)| (key.clone(), value.clone())) else {
                return Ok(());
            };
            drop(state);
            if visit(&key, &value) == ControlFlow::Break(()) {
                return Ok(());
            }
            at = Some(key);
        }
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.alive("syncing")?.sync();
        Ok(())
    }
}

impl Drop for DriveEngine {
    fn drop(&mut self) {
        let mut state = self.drive.lock();
        if state.opening == self.opening {
            state.open = false;
        }
    }
}
