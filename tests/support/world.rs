//! A store over a drive that goes wrong when a model says so.

use crate::support::Still;
use crate::support::drive::{Cut, Drive, Survivors};
use claimdb::backend::{Backend, Commit, Engine, Swap, Visit};
use claimdb::{Claim, Durability, OpenError, Outcome, Request, Settled, StorageError, Store, SyncBy};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A lease and a moment.
pub const LEASE_OVER: Duration = Duration::from_secs(31);

/// What goes wrong, once.
pub enum Fault {
    /// A commit to a key that ends so fails, and lands nothing.
    Commit(&'static str),
    /// The same, and it panics.
    Panic(&'static str),
    /// A commit to a key that ends so lands; it is told as failed, and so is the next read.
    Unheard(&'static str),
    /// A sync fails, and what it was to cover is lost, though it is still read.
    Sync,
    /// A sync panics, and the same is lost.
    SyncPanics,
    /// A commit with effects lands as several, one after another.
    Apart,
    /// A sync works, and this is done before it returns.
    During(Box<dyn FnOnce() + Send>),
}

/// A [`Drive`] with at most one [`Fault`] ahead. Loom sees its calls, and nothing of the fault.
#[derive(Clone, Default)]
pub struct Faulty {
    pub drive: Drive,
    ahead: Arc<Mutex<Ahead>>,
}

#[derive(Default)]
struct Ahead {
    fault: Option<Fault>,
    read_fails: bool,
}

impl Faulty {
    pub fn over(drive: Drive) -> Self {
        Self { drive, ..Self::default() }
    }

    pub fn arm(&self, fault: Fault) {
        self.ahead.lock().unwrap().fault = Some(fault);
    }

    pub fn disarm(&self) {
        self.ahead.lock().unwrap().fault = None;
    }

    fn take(&self, is: impl FnOnce(&Fault) -> bool) -> Option<Fault> {
        self.ahead.lock().unwrap().fault.take_if(|fault| is(fault))
    }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.drive.fmt(f)
    }
}

impl Backend for Faulty {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(Opened { engine: self.drive.open()?, faulty: self.clone() }))
    }
}

#[derive(Debug)]
struct Opened {
    engine: Box<dyn Engine>,
    faulty: Faulty,
}

fn on_purpose() -> StorageError {
    StorageError::new("using", "the drive", "on purpose")
}

/// Without the hook's words, since a model does this thousands of times.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("on purpose"))
}

impl Opened {
    fn apart(&self, commit: &Commit<'_>) -> Result<Swap, StorageError> {
        let landed = self.engine.commit(&[Commit { effects: &[], ..*commit }]).remove(0)?;
        for effect in commit.effects {
            let before = self.engine.read(&effect.key)?;
            let alone = Commit::swap(&effect.key, before.as_deref(), effect.value.as_deref());
            self.engine.commit(&[alone]).remove(0)?;
        }
        Ok(landed)
    }
}

impl Engine for Opened {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let read = self.engine.read(key);
        let fails = std::mem::take(&mut self.faulty.ahead.lock().unwrap().read_fails);
        if fails { Err(on_purpose()) } else { read }
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let one = |commit: &Commit<'_>| {
            let fault = self.faulty.take(|fault| match fault {
                Fault::Commit(end) | Fault::Panic(end) | Fault::Unheard(end) => {
                    commit.key.ends_with(end.as_bytes())
                }
                Fault::Apart => !commit.effects.is_empty(),
                _ => false,
            });
            if let Some(Fault::Commit(_)) = fault {
                return Err(on_purpose());
            }
            if let Some(Fault::Panic(_)) = fault {
                panic_quietly();
            }
            if let Some(Fault::Apart) = fault {
                return self.apart(commit);
            }
            let landed = self.engine.commit(std::slice::from_ref(commit)).remove(0);
            if fault.is_some() {
                self.faulty.ahead.lock().unwrap().read_fails = true;
                return Err(on_purpose());
            }
            landed
        };
        commits.iter().map(one).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.engine.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        let is = |fault: &Fault| matches!(fault, Fault::Sync | Fault::SyncPanics | Fault::During(_));
        let fault = self.faulty.take(is);
        if let Some(Fault::Sync | Fault::SyncPanics) = fault {
            self.faulty.drive.lose_unsynced();
        }
        match fault {
            Some(Fault::Sync) => return Err(on_purpose()),
            Some(Fault::SyncPanics) => panic_quietly(),
            _ => {}
        }
        let synced = self.engine.sync();
        if let Some(Fault::During(act)) = fault {
            act();
        }
        synced
    }
}

/// A store, what it is over, and the clock that it goes by.
pub struct World {
    pub faulty: Faulty,
    pub clock: Still,
    pub store: Store,
}

impl World {
    pub fn new(sync_by: SyncBy) -> Self {
        Self::over(Faulty::default(), Still::default(), sync_by).expect("a drive opens")
    }

    /// Does not wait for another opening to end.
    pub fn over(faulty: Faulty, clock: Still, sync_by: SyncBy) -> Result<Self, OpenError> {
        let builder = Store::builder(faulty.clone()).clock(clock.clone()).sync_by(sync_by);
        Ok(Self { faulty, clock, store: builder.lock_wait(Duration::ZERO).open()? })
    }

    /// The same place, opened again.
    pub fn reopened(&self) -> Result<Self, OpenError> {
        Self::over(self.faulty.clone(), self.clock.clone(), SyncBy::Caller)
    }

    pub fn claim(&self, durability: Durability) -> Outcome {
        claim(&self.store, durability)
    }

    pub fn grant(&self, durability: Durability) -> Claim {
        self.claim(durability).granted().expect("nobody else is here")
    }

    /// A claim whose lease is over.
    pub fn late(&self, durability: Durability) -> Claim {
        let claim = self.grant(durability);
        self.clock.advance(LEASE_OVER);
        claim
    }

    pub fn stored(&self) -> Option<String> {
        self.store.get("k").expect("the drive works").map(value)
    }

    /// All that may be left of what the drive held when the power was cut: of what was not synced, each beginning.
    pub fn survivors(&self, cut: &Cut) -> impl Iterator<Item = Self> {
        (0..=cut.unsynced()).map(|first| self.on(cut.after(Survivors::Prefix(first))))
    }

    /// Kills the process: all is there, and not more of it is synced than was.
    pub fn kill(&self) -> Drive {
        self.faulty.drive.cut_power().killed()
    }

    pub fn on(&self, drive: Drive) -> Self {
        Self::over(Faulty::over(drive), self.clock.clone(), SyncBy::Caller).expect("a drive opens")
    }
}

pub fn claim(store: &Store, durability: Durability) -> Outcome {
    store.claim(Request::new("k").durability(durability)).expect("the drive works")
}

pub fn value(settled: Settled) -> String {
    settled.completed().expect("it was completed").decode().expect("a string was stored")
}
