//! The twins: engines that lose a commit now and then.
#![allow(clippy::disallowed_types)] // a harness: its locks are not the library's

use claimdb::backend::{Backend, Commit, Engine, Swap, Visit, Write};
use claimdb::{OpenError, StorageError};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// One commit in so many is lost.
const ONE_IN: u64 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loses {
    Nothing,
    /// A commit is told as done, and is not.
    AtOnce,
    /// The same, and it is remembered until the engine is closed: as if it were in memory and not in the log.
    AtTheEnd,
}

#[derive(Debug)]
pub struct Losing<B> {
    backend: B,
    loses: Loses,
}

impl<B: Backend> Losing<B> {
    pub fn over(backend: B, loses: Loses) -> Self {
        Self { backend, loses }
    }
}

impl<B: Backend> Backend for Losing<B> {
    fn place(&self) -> String {
        self.backend.place()
    }

    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let engine = self.backend.open()?;
        if self.loses == Loses::Nothing {
            return Ok(engine);
        }
        Ok(Box::new(LosingEngine { engine, loses: self.loses, lost: Mutex::default() }))
    }
}

#[derive(Debug, Default)]
struct Lost {
    commits: u64,
    values: HashMap<Vec<u8>, Option<Vec<u8>>>,
}

#[derive(Debug)]
struct LosingEngine {
    engine: Box<dyn Engine>,
    loses: Loses,
    /// Held while it commits: whoever wants the key that is being lost waits.
    lost: Mutex<Lost>,
}

impl LosingEngine {
    fn one(&self, commit: &Commit<'_>) -> Result<Swap, StorageError> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.commits += 1;
        // What was lost of this key is written late.
        if let Some(value) = lost.values.remove(commit.key) {
            let late = Write { key: commit.key.to_vec(), value };
            self.put(&late)?;
        }
        // Of records and values alone.
        if lost.commits.is_multiple_of(ONE_IN) && matches!(commit.key.first(), Some(1 | 3)) {
            let current = self.engine.read(commit.key)?;
            if current.as_deref() == commit.expected {
                if self.loses == Loses::AtTheEnd {
                    lost.values.insert(commit.key.to_vec(), commit.new.map(<[u8]>::to_vec));
                }
                return Ok(Swap::Done);
            }
        }
        self.engine.commit(std::slice::from_ref(commit)).swap_remove(0)
    }

    fn put(&self, write: &Write) -> Result<(), StorageError> {
        let current = self.engine.read(&write.key)?;
        let swap = Commit::swap(&write.key, current.as_deref(), write.value.as_deref());
        self.engine.commit(&[swap]).swap_remove(0).map(drop)
    }
}

impl Engine for LosingEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        match lost.values.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.engine.read(key),
        }
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        commits.iter().map(|commit| self.one(commit)).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.engine.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.engine.sync()
    }

    fn room(&self) -> Result<(), StorageError> {
        self.engine.room()
    }
}
