//! Claims over an engine that knows none: stored in it, or kept in memory beside it.

use super::Level;
use crate::job::{Result, Session, System};
use crate::queue::{Caller, Queue, Step};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// An engine as one thread uses it.
pub trait Rows {
    /// Whether `key` was absent and is now there. It is synced.
    fn insert(&mut self, key: &str) -> Result<bool>;

    /// Stores the result. It is synced.
    fn put(&mut self, key: &str) -> Result<()>;

    /// Whether `key` is there.
    fn has(&mut self, key: &str) -> Result<bool>;
}

pub trait Engine: Sync {
    fn rows(&self) -> Result<Box<dyn Rows + '_>>;
}

/// An engine with claims.
pub struct Embedded<E> {
    engine: E,
    level: Level,
    /// The keys that are claimed at [`Level::Result`].
    claimed: Mutex<HashSet<String>>,
}

impl<E: Engine + 'static> Embedded<E> {
    pub fn boxed(engine: E, level: Level) -> Box<dyn System> {
        Box::new(Self { engine, level, claimed: Mutex::default() })
    }
}

impl<E: Engine> System for Embedded<E> {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let rows = self.engine.rows()?;
        Ok(match self.level {
            Level::Full => Box::new(Stored { rows }),
            Level::Result => Box::new(InMemory { rows, claimed: &self.claimed }),
        })
    }
}

struct Stored<'a> {
    rows: Box<dyn Rows + 'a>,
}

impl Session for Stored<'_> {
    fn claim(&mut self, key: &str) -> Result<bool> {
        self.rows.insert(key)
    }

    fn store(&mut self, key: &str) -> Result<()> {
        self.rows.put(key)
    }
}

struct InMemory<'a> {
    rows: Box<dyn Rows + 'a>,
    claimed: &'a Mutex<HashSet<String>>,
}

impl InMemory<'_> {
    fn free(&self, key: &str) {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl Session for InMemory<'_> {
    fn claim(&mut self, key: &str) -> Result<bool> {
        let taken = self.claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        if taken && self.rows.has(key)? {
            self.free(key);
            return Ok(false);
        }
        Ok(taken)
    }

    fn store(&mut self, key: &str) -> Result<()> {
        self.rows.put(key)?;
        self.free(key);
        Ok(())
    }
}

/// Tells whether a key is there.
pub type Look<'a> = Box<dyn FnMut(&str) -> Result<bool> + 'a>;

/// How a thread reads an engine whose writes are queued.
pub trait Readers: Sync {
    fn reader(&self) -> Result<Look<'_>>;
}

/// An engine whose writes go through a [`Queue`], and whose reads each thread makes by itself.
pub struct Queued<R> {
    pub queue: Queue,
    pub readers: R,
}

impl<R: Readers> Engine for Queued<R> {
    fn rows(&self) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(QueuedRows { caller: self.queue.caller()?, look: self.readers.reader()? }))
    }
}

struct QueuedRows<'a> {
    caller: Caller,
    look: Look<'a>,
}

impl Rows for QueuedRows<'_> {
    fn insert(&mut self, key: &str) -> Result<bool> {
        self.caller.ask(Step::Claim, key)
    }

    fn put(&mut self, key: &str) -> Result<()> {
        match self.caller.ask(Step::Store, key)? {
            true => Ok(()),
            false => Err(format!("there was nothing to store the result of {key} in").into()),
        }
    }

    fn has(&mut self, key: &str) -> Result<bool> {
        (self.look)(key)
    }
}
