//! Backends that break one rule of the contract, each of which must be found.

use super::faults::Faulty;
use claimdb::backend::{Backend, Commit, Engine, Swap, Visit};
use claimdb::{OpenError, StorageError};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A sync is told and not done.
    SyncUndone,
    /// The first sync of an opening covers nothing that was there before.
    NoBarrier,
    /// The effects of a commit land before its swap, each by itself.
    EffectsApart,
    /// A raised token ceiling is told and not written.
    CeilingDropped,
    /// What goes along with a swap as a hint is not written.
    HintsLost,
}

/// A faulty drive, and what is broken about it besides.
#[derive(Debug, Clone)]
pub struct Watched {
    pub faulty: Faulty,
    pub broken: Option<Broken>,
}

#[derive(Debug)]
struct WatchedEngine {
    engine: Box<dyn Engine>,
    broken: Option<Broken>,
    syncs: AtomicU64,
}

impl Backend for Watched {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let (engine, syncs) = (self.faulty.open()?, AtomicU64::new(0));
        Ok(Box::new(WatchedEngine { engine, broken: self.broken, syncs }))
    }
}

impl WatchedEngine {
    fn alone(&self, commit: &Commit<'_>) -> Result<Swap, StorageError> {
        self.engine.commit(std::slice::from_ref(commit)).remove(0)
    }

    fn swap(&self, commit: &Commit<'_>) -> Result<Swap, StorageError> {
        match self.broken {
            Some(Broken::CeilingDropped) if commit.key == b"\0token-ceiling" && commit.expected.is_some() => {
                Ok(Swap::Done)
            }
            Some(Broken::HintsLost) => self.alone(&Commit { hints: &[], ..commit.clone() }),
            Some(Broken::EffectsApart) => {
                for effect in commit.effects {
                    let before = self.engine.read(&effect.key)?;
                    self.alone(&Commit::swap(&effect.key, before.as_deref(), effect.value.as_deref()))?;
                }
                self.alone(&Commit { effects: &[], ..commit.clone() })
            }
            _ => self.alone(commit),
        }
    }
}

impl Engine for WatchedEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.engine.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        match self.broken {
            None => self.engine.commit(commits),
            Some(_) => commits.iter().map(|commit| self.swap(commit)).collect(),
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.engine.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        let first = self.syncs.fetch_add(1, Ordering::Relaxed) == 0;
        match self.broken {
            Some(Broken::SyncUndone) => Ok(()),
            Some(Broken::NoBarrier) if first => Ok(()),
            _ => self.engine.sync(),
        }
    }
}
