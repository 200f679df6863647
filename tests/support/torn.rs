//! A place in memory of which stretches cannot be read, as if pages of it were damaged.

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{OpenError, StorageError};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Clones share the place.
#[derive(Debug, Clone, Default)]
pub struct Torn {
    place: Mem,
    damage: Arc<Damage>,
}

#[derive(Debug, Default)]
struct Damage {
    /// From the first key of each stretch to the first behind it.
    stretches: Mutex<Vec<Range<Vec<u8>>>>,
    /// What cannot be read the next time, and can be read from then on.
    once: Mutex<Option<Vec<u8>>>,
    /// Whether what cannot be read makes the engine panic.
    panics: AtomicBool,
    /// Whether everything is refused once something could not be read.
    ends_all: AtomicBool,
    ended: AtomicBool,
    /// How often something could not be read.
    failed: AtomicU64,
    /// The key that was looked at last.
    last: Mutex<Vec<u8>>,
}

impl Torn {
    /// From now on what lies in there cannot be read.
    pub fn tear(&self, stretch: Range<Vec<u8>>) {
        self.damage.stretches.lock().unwrap().push(stretch);
    }

    /// The next time that `key` is read it cannot be.
    pub fn tear_once(&self, key: Vec<u8>) {
        *self.damage.once.lock().unwrap() = Some(key);
    }

    /// Where something cannot be read, the engine panics.
    pub fn panics(&self) {
        self.damage.panics.store(true, Ordering::SeqCst);
    }

    /// Once something could not be read, all is refused.
    pub fn ends_all(&self) {
        self.damage.ends_all.store(true, Ordering::SeqCst);
    }

    /// How often something could not be read.
    pub fn failed(&self) -> u64 {
        self.damage.failed.load(Ordering::SeqCst)
    }

    /// The key that was looked at last.
    pub fn last(&self) -> Vec<u8> {
        self.damage.last.lock().unwrap().clone()
    }

    /// The closed place, whole.
    pub fn whole(&self) -> Box<dyn Engine> {
        self.place.open().unwrap()
    }
}

impl Backend for Torn {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        self.damage.ended.store(false, Ordering::SeqCst);
        Ok(Box::new(TornEngine { engine: self.place.open()?, damage: Arc::clone(&self.damage) }))
    }
}

#[derive(Debug)]
struct TornEngine {
    engine: Box<dyn Engine>,
    damage: Arc<Damage>,
}

impl TornEngine {
    fn look_at(&self, key: &[u8]) -> Result<(), StorageError> {
        self.goes_on()?;
        *self.damage.last.lock().unwrap() = key.to_vec();
        let stretches = self.damage.stretches.lock().unwrap();
        let torn = stretches.iter().any(|torn| *torn.start <= *key && *key < *torn.end);
        drop(stretches);
        let once = self.damage.once.lock().unwrap().take_if(|once| **once == *key).is_some();
        if !torn && !once {
            return Ok(());
        }
        self.damage.failed.fetch_add(1, Ordering::SeqCst);
        self.damage.ended.store(self.damage.ends_all.load(Ordering::SeqCst), Ordering::SeqCst);
        assert!(!self.damage.panics.load(Ordering::SeqCst), "the engine met what it cannot read");
        Err(StorageError::new("reading", "the torn place", "its page is damaged"))
    }

    fn goes_on(&self) -> Result<(), StorageError> {
        if self.damage.ended.load(Ordering::SeqCst) {
            return Err(StorageError::new("using", "the torn place", "an earlier call failed"));
        }
        Ok(())
    }
}

impl Engine for TornEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.look_at(key)?;
        self.engine.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.engine.commit(commits)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.look_at(after.unwrap_or(prefix))?;
        let mut met = Ok(());
        self.engine.scan(prefix, after, &mut |key, value| {
            met = self.look_at(key);
            if met.is_ok() { visit(key, value) } else { ControlFlow::Break(()) }
        })?;
        met
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.goes_on()?;
        self.engine.sync()
    }
}
