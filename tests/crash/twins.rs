//! Backends that break one rule of the contract, each of which must be found.

use super::faults::Faulty;
use claimdb::backend::{Backend, Commit, Engine, Swap, Visit};
use claimdb::{Fingerprint, OnInterrupt, OpenError, Record, State, StorageError};
use std::sync::Mutex;
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
    /// A swap overwrites whatever is there.
    SwapsBlind,
    /// Records keep one fingerprint for all that was asked, that of [`OTHER_WORK`].
    FingerprintsAlike,
    /// There is room for one settled record: the next one takes its place.
    ResultsEvicted,
    /// A sync that fails is told as done.
    FailedSyncsHidden,
    /// Each attempt is kept as the first.
    AttemptsForgotten,
    /// How a claim is to be interrupted is not kept.
    TermsForgotten,
}

/// Asked for with keys that were claimed for something else.
pub const OTHER_WORK: &str = "other work";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The program, while nothing goes wrong.
    TheProgram,
    /// A call that fails, after which the store goes on.
    Failures,
    /// A power cut or a kill.
    Crashes,
}

impl Broken {
    /// What shows it.
    pub fn shown_by(self) -> Shown {
        match self {
            Self::SyncUndone | Self::NoBarrier | Self::EffectsApart | Self::CeilingDropped => Shown::Crashes,
            Self::FailedSyncsHidden => Shown::Failures,
            _ => Shown::TheProgram,
        }
    }

    /// A record, as this backend keeps it.
    fn kept(self, record: &mut Record) {
        match self {
            Self::FingerprintsAlike => record.fingerprint = Some(Fingerprint::of_bytes(OTHER_WORK)),
            Self::AttemptsForgotten => record.attempt = 1,
            Self::TermsForgotten => {
                (record.terms.on_interrupt, record.terms.max_attempts) = (OnInterrupt::Rerun, None)
            }
            _ => {}
        }
    }
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
    /// The key of the record that was settled last.
    settled: Mutex<Option<Vec<u8>>>,
}

impl Backend for Watched {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let (engine, syncs, settled) = (self.faulty.open()?, AtomicU64::new(0), Mutex::default());
        Ok(Box::new(WatchedEngine { engine, broken: self.broken, syncs, settled }))
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
                let lands = self.engine.read(commit.key)?.as_deref() == commit.expected;
                for effect in commit.effects.iter().filter(|_| lands) {
                    let before = self.engine.read(&effect.key)?;
                    self.alone(&Commit::swap(&effect.key, before.as_deref(), effect.value.as_deref()))?;
                }
                self.alone(&Commit { effects: &[], ..commit.clone() })
            }
            Some(Broken::SwapsBlind) => {
                let before = self.engine.read(commit.key)?;
                self.alone(&Commit { expected: before.as_deref(), ..commit.clone() })
            }
            Some(Broken::ResultsEvicted) => {
                let done = self.alone(commit)?;
                if done == Swap::Done && record(commit).is_some_and(|record| is_settled(&record)) {
                    self.evict_all_but(commit.key)?;
                }
                Ok(done)
            }
            Some(broken) => {
                let kept = record(commit).map(|mut record| {
                    broken.kept(&mut record);
                    record.encode()
                });
                self.alone(&Commit { new: kept.as_deref().or(commit.new), ..commit.clone() })
            }
            None => self.alone(commit),
        }
    }

    fn evict_all_but(&self, key: &[u8]) -> Result<(), StorageError> {
        let before = self.settled.lock().unwrap().replace(key.to_vec());
        let Some(before) = before.filter(|before| before != key) else { return Ok(()) };
        let bytes = self.engine.read(&before)?;
        self.alone(&Commit::swap(&before, bytes.as_deref(), None)).map(drop)
    }
}

/// What `commit` puts under a key of a record.
fn record(commit: &Commit<'_>) -> Option<Record> {
    commit.new.filter(|_| commit.key.starts_with(&[1])).and_then(|bytes| Record::decode(bytes).ok())
}

fn is_settled(record: &Record) -> bool {
    matches!(record.state, State::Settled { .. })
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
            Some(Broken::FailedSyncsHidden) => {
                let _ = self.engine.sync();
                Ok(())
            }
            _ => self.engine.sync(),
        }
    }
}
