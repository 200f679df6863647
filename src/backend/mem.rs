//! Memory: for tests, for models, and for stores that need not outlive the process.

use super::{Backend, Commit, Engine, Swap, Visit, Write};
use crate::error::{OpenError, StorageError};
use crate::sync::{Mutex, note};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A place in memory. Clones share it; it can be opened again after its engine was dropped, and keeps its bytes.
///
/// [`crash`](Mem::crash) plays a power cut: the opening has ended, the calls of those who still hold it fail, and on a place
/// of [`with_power_cuts`](Mem::with_power_cuts) what no finished sync covers is gone.
///
/// ```
/// use claimdb::{Durability, Request, Store, backend::Mem};
/// let mem = Mem::with_power_cuts();
/// let store = Store::builder(mem.clone()).open()?;
/// store.claim("order-42")?.granted().expect("it is free").complete("receipt 7")?;
/// let relaxed = Request::new("order-43").durability(Durability::Relaxed);
/// store.claim(relaxed)?.granted().expect("it is free").complete("receipt 8")?;
/// mem.crash();
/// let store = Store::builder(mem).open()?;
/// assert!(store.get("order-42")?.is_some()); // it was told as durable
/// assert!(store.get("order-43")?.is_none()); // and this was not
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Mem(Arc<Mutex<Memory>>);

struct Memory {
    bytes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How to undo what was not synced, oldest first; `None` where power cuts are not played, since without
    /// syncs it would grow for ever.
    undo: Option<Vec<Write>>,
    /// Which opening is current. A crash ends it, so that its engine becomes a ghost.
    opening: u64,
    open: bool,
}

impl Mem {
    /// An empty place that keeps what was written and plays no power cuts.
    #[must_use]
    pub fn new() -> Self {
        Self::with_undo(None)
    }

    /// An empty place that remembers what a power cut would take: for tests and models.
    #[must_use]
    pub fn with_power_cuts() -> Self {
        Self::with_undo(Some(Vec::new()))
    }

    fn with_undo(undo: Option<Vec<Write>>) -> Self {
        Self(Arc::new(Mutex::new(Memory { bytes: BTreeMap::new(), undo, opening: 0, open: false })))
    }

    /// Cuts the power: ends the opening, and on a place of [`with_power_cuts`](Self::with_power_cuts) takes back what no
    /// finished sync covers. A place of [`new`](Self::new) keeps it all, so a test of crashes over that shows nothing.
    #[cfg_attr(loom, track_caller)]
    pub fn crash(&self) {
        let mut memory = self.0.lock();
        note("cuts the power", "");
        let unsynced = memory.undo.as_mut().map(std::mem::take).unwrap_or_default();
        for Write { key, value } in unsynced.into_iter().rev() {
            match value {
                Some(value) => memory.bytes.insert(key, value),
                None => memory.bytes.remove(&key),
            };
        }
        memory.opening += 1;
        memory.open = false;
    }
}

impl Default for Mem {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Mem {
    fn place(&self) -> String {
        PLACE.to_owned()
    }

    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let mut memory = self.0.lock();
        if memory.open {
            return Err(OpenError::Locked { place: PLACE.to_owned(), holder: String::new() });
        }
        memory.open = true;
        memory.opening += 1;
        Ok(Box::new(MemEngine { memory: Arc::clone(&self.0), opening: memory.opening }))
    }
}

const PLACE: &str = "memory";

#[derive(Debug)]
struct MemEngine {
    memory: Arc<Mutex<Memory>>,
    opening: u64,
}

impl MemEngine {
    fn alive(&self, memory: &Memory, doing: &'static str) -> Result<(), StorageError> {
        if memory.opening == self.opening {
            return Ok(());
        }
        Err(StorageError::new(doing, PLACE, "the power was cut"))
    }
}

impl Engine for MemEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let memory = self.memory.lock();
        self.alive(&memory, "reading")?;
        Ok(memory.bytes.get(key).cloned())
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let mut memory = self.memory.lock();
        commits
            .iter()
            .map(|commit| {
                self.alive(&memory, "writing to")?;
                for hint in commit.hints {
                    memory.write(&hint.key, hint.value.as_deref());
                }
                let current = memory.bytes.get(commit.key);
                if current.map(Vec::as_slice) != commit.expected {
                    return Ok(Swap::Refused { current: current.cloned() });
                }
                memory.write(commit.key, commit.new);
                note("writes", "");
                for effect in commit.effects {
                    memory.write(&effect.key, effect.value.as_deref());
                }
                Ok(Swap::Done)
            })
            .collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let mut at = after.map(<[u8]>::to_vec);
        // One pair at a time: `visit` is the caller's code, and runs without the lock.
        loop {
            let next = {
                let memory = self.memory.lock();
                self.alive(&memory, "scanning")?;
                use std::ops::Bound::{Excluded, Included, Unbounded};
                let from = match &at {
                    Some(at) if at.as_slice() >= prefix => Excluded(at.as_slice()),
                    _ => Included(prefix),
                };
                let first = memory.bytes.range::<[u8], _>((from, Unbounded)).next();
                first
                    .filter(|(key, _)| key.starts_with(prefix))
                    .map(|(key, value)| (key.clone(), value.clone()))
            };
            let Some((key, value)) = next else { return Ok(()) };
            if visit(&key, &value) == ControlFlow::Break(()) {
                return Ok(());
            }
            at = Some(key);
        }
    }

    fn sync(&self) -> Result<(), StorageError> {
        let mut memory = self.memory.lock();
        self.alive(&memory, "syncing")?;
        note("syncs", "");
        if let Some(undo) = &mut memory.undo {
            undo.clear();
        }
        Ok(())
    }
}

impl Drop for MemEngine {
    fn drop(&mut self) {
        let mut memory = self.memory.lock();
        if memory.opening == self.opening {
            memory.open = false;
        }
    }
}

impl fmt::Debug for Memory {
    /// Shows how much there is, not what: keys and values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("pairs", &self.bytes.len())
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Memory {
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        let before = match value {
            Some(value) => self.bytes.insert(key.to_vec(), value.to_vec()),
            None => self.bytes.remove(key),
        };
        if let Some(undo) = &mut self.undo {
            undo.push(Write { key: key.to_vec(), value: before });
        }
    }
}
