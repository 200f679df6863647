//! The engine of an open store, and how it is taken away from those who still use it.

use crate::backend::{Commit, Engine, Swap, Visit};
use crate::clock::{Clock, expired};
use crate::error::{Fault, StorageError};
use crate::sync::{Mutex, Signal};
use std::sync::Arc;
use std::time::Duration;

/// One commit alone.
pub(super) fn commit_one(engine: &dyn Engine, commit: &Commit<'_>) -> Result<Swap, StorageError> {
    engine.commit(std::slice::from_ref(commit)).pop().unwrap_or_else(|| {
        Err(StorageError::new("writing to", "the engine", "it answered nothing for a commit"))
    })
}

/// Hands the engine out until it is closed, in the process that opened it (rule 9). Whoever has it keeps it for one
/// call.
#[derive(Debug)]
pub(super) struct EngineCell {
    engine: Mutex<Option<Arc<dyn Engine>>>,
    opened_by: u32,
    gone: Arc<Gone>,
}

/// Tells that the engine was dropped.
#[derive(Debug, Default)]
struct Gone {
    is: Mutex<bool>,
    signal: Arc<Signal>,
}

impl EngineCell {
    pub(super) fn new(engine: Box<dyn Engine>) -> (Self, Arc<dyn Engine>) {
        let gone = Arc::new(Gone::default());
        let engine: Arc<dyn Engine> = Arc::new(Counted { engine: Some(engine), gone: Arc::clone(&gone) });
        let opened_by = std::process::id();
        (Self { engine: Mutex::new(Some(Arc::clone(&engine))), opened_by, gone }, engine)
    }

    /// Refuses a fork. Handing out the engine asks this; so must whatever changes memory alone.
    pub(super) fn check_process(&self) -> Result<(), Fault> {
        let here = std::process::id();
        if here == self.opened_by { Ok(()) } else { Err(Fault::Forked { opened_by: self.opened_by, here }) }
    }

    /// The engine, for one call.
    pub(super) fn get(&self) -> Result<Arc<dyn Engine>, Fault> {
        self.check_process()?;
        self.engine.lock().clone().ok_or(Fault::Closed)
    }

    /// Leaves the engine as it is, without dropping it: for a fork, in which it is another process's.
    pub(super) fn forget(&self) {
        std::mem::forget(self.engine.lock().take());
    }

    /// Hands the engine out no more, and waits until those who have it are done and it is dropped, for `limit` at
    /// most. Tells whether it was.
    pub(super) fn close(&self, clock: &dyn Clock, limit: Duration) -> bool {
        let engine = self.engine.lock().take();
        drop(engine);
        let deadline = clock.now().after(limit);
        loop {
            let now = clock.now();
            if *self.gone.is.lock() {
                // A signal wakes one, and there may be more who close.
                self.gone.signal.notify();
                return true;
            }
            if expired(now, deadline) {
                return false;
            }
            clock.wait(&self.gone.signal, deadline);
        }
    }
}

/// An engine whose end is told.
#[derive(Debug)]
struct Counted {
    /// `None` only while being dropped.
    engine: Option<Box<dyn Engine>>,
    gone: Arc<Gone>,
}

impl Counted {
    fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().expect("only drop takes it out, and nobody calls after that")
    }
}

impl Engine for Counted {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.engine().read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.engine().commit(commits)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.engine().scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.engine().sync()
    }

    fn room(&self) -> Result<(), StorageError> {
        self.engine().room()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        drop(self.engine.take());
        *self.gone.is.lock() = true;
        self.gone.signal.notify();
    }
}
