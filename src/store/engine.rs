//! The engine of an open store, how it is taken away from those who still use it, and how it is watched.

use super::recording::{Recorder, Recording};
use crate::backend::{Commit, Engine, Swap, Visit};
use crate::clock::{Clock, expired};
use crate::error::{Fault, StorageError};
use crate::sync::{Break, Mutex, Signal};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// One answer for each commit. One that the engine does not answer has failed (P9).
pub(super) fn commit_each(engine: &dyn Engine, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
    let mut answers = engine.commit(commits);
    answers.resize_with(commits.len(), || {
        Err(StorageError::new("writing to", "the engine", "it answered nothing for a commit"))
    });
    answers
}

/// One commit alone.
pub(super) fn commit_one(engine: &dyn Engine, commit: &Commit<'_>) -> Result<Swap, StorageError> {
    commit_each(engine, std::slice::from_ref(commit)).remove(0)
}

/// A key and its value, as an engine has them.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// The first pairs behind `after` whose keys begin with `prefix`, in order, and whether there may be more: a page is full with
/// so many pairs or bytes of values as `most` says.
pub(super) fn page(
    engine: &dyn Engine,
    prefix: &[u8],
    after: Option<&[u8]>,
    (most_pairs, most_bytes): (usize, usize),
) -> Result<(Vec<Pair>, bool), StorageError> {
    let (mut found, mut bytes, mut full) = (Vec::new(), 0, false);
    engine.scan(prefix, after, &mut |key, value| {
        bytes += value.len();
        found.push((key.to_vec(), value.to_vec()));
        full = found.len() >= most_pairs || bytes >= most_bytes;
        if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((found, full))
}

/// Hands the engine out until it is closed, in the process that opened it (rule 9). Whoever has it keeps it for one
/// call.
#[derive(Debug)]
pub(super) struct EngineCell {
    handed: Mutex<Option<Handed>>,
    opened_by: u32,
    gone: Arc<Gone>,
}

/// What is handed out now.
#[derive(Debug)]
struct Handed {
    /// A layer over the engine itself, whose end tells that nobody uses it any more.
    layer: Arc<dyn Engine>,
    ended: Arc<Gone>,
    engine: Arc<dyn Engine>,
    /// Who watches the commits, if anybody does.
    recording: Option<Arc<Recording>>,
}

impl Handed {
    fn new(engine: Arc<dyn Engine>, recording: Option<Arc<Recording>>) -> Self {
        let ended = Arc::new(Gone::default());
        let under = match &recording {
            Some(recording) => Recorder::over(Arc::clone(&engine), Arc::clone(recording)),
            None => Arc::clone(&engine),
        };
        let layer = Arc::new(EndTold { engine: Some(under), gone: Arc::clone(&ended) });
        Self { layer, ended, engine, recording }
    }
}

/// Tells that the last one who had something has dropped it, and how that went.
#[derive(Debug, Default)]
struct Gone {
    how: Mutex<Option<Result<(), StorageError>>>,
    signal: Arc<Signal>,
}

impl Gone {
    /// Waits until it is gone, for `limit` at most; tells how that went, if it is.
    fn wait(&self, clock: &dyn Clock, limit: Duration) -> Option<Result<(), StorageError>> {
        let deadline = clock.now().after(limit);
        loop {
            let now = clock.now();
            let how = self.how.lock().clone();
            if how.is_some() {
                // A signal wakes one, and there may be more who wait.
                self.signal.notify();
                return how;
            }
            if expired(now, deadline) {
                self.signal.notify(); // the same for those who may wait longer
                return None;
            }
            clock.wait(&self.signal, deadline);
        }
    }
}

impl EngineCell {
    pub(super) fn new(engine: Box<dyn Engine>) -> (Self, Arc<dyn Engine>) {
        let gone = Arc::new(Gone::default());
        let engine: Arc<dyn Engine> =
            Arc::new(EndTold { engine: Some(engine.into()), gone: Arc::clone(&gone) });
        let handed = Handed::new(Arc::clone(&engine), None);
        (Self { handed: Mutex::new(Some(handed)), opened_by: std::process::id(), gone }, engine)
    }

    /// Refuses a fork. Handing out the engine asks this; so must whatever changes memory alone.
    pub(super) fn check_process(&self) -> Result<(), Fault> {
        let here = std::process::id();
        if here == self.opened_by { Ok(()) } else { Err(Fault::Forked { opened_by: self.opened_by, here }) }
    }

    /// The engine, for one call.
    pub(super) fn get(&self) -> Result<Arc<dyn Engine>, Fault> {
        self.check_process()?;
        let handed = self.handed.lock();
        handed.as_ref().map(|handed| Arc::clone(&handed.layer)).ok_or(Fault::Closed)
    }

    /// Leaves the engine as it is, without dropping it: for a fork, in which it is another process's.
    pub(super) fn forget(&self) {
        std::mem::forget(self.handed.lock().take());
    }

    /// How it went when the engine was dropped; `None` while it is there.
    pub(super) fn gone(&self) -> Option<Result<(), StorageError>> {
        self.gone.how.lock().clone()
    }

    /// Hands the engine out no more, and waits until those who have it are done and it is dropped, for `limit` at
    /// most. Tells how that went, if it was.
    pub(super) fn close(&self, clock: &dyn Clock, limit: Duration) -> Option<Result<(), StorageError>> {
        let handed = self.handed.lock().take();
        drop(handed);
        if Break::CloseLeavesWrites.is() {
            return Some(Ok(()));
        }
        self.gone.wait(clock, limit)
    }

    /// From now on `recording` watches all commits. Returns once every call has ended that began before, so that
    /// none goes unwatched; `false` if that took longer than `limit`, or somebody else watches already.
    pub(super) fn watch(
        &self,
        recording: &Arc<Recording>,
        clock: &dyn Clock,
        limit: Duration,
    ) -> Result<bool, Fault> {
        self.check_process()?;
        let before = {
            let mut handed = self.handed.lock();
            let now = handed.as_ref().ok_or(Fault::Closed)?;
            if now.recording.is_some() {
                return Ok(false);
            }
            let watched = Handed::new(Arc::clone(&now.engine), Some(Arc::clone(recording)));
            handed.replace(watched)
        };
        let ended = before.map(|before| Arc::clone(&before.ended));
        Ok(ended.is_none_or(|ended| ended.wait(clock, limit).is_some()))
    }

    /// Ends what [`watch`](Self::watch) began, if it did begin.
    pub(super) fn unwatch(&self, recording: &Arc<Recording>) {
        let before = {
            let mut handed = self.handed.lock();
            match handed.as_ref() {
                Some(now) if now.recording.as_ref().is_some_and(|its| Arc::ptr_eq(its, recording)) => {
                    let plain = Handed::new(Arc::clone(&now.engine), None);
                    handed.replace(plain)
                }
                _ => None,
            }
        };
        drop(before);
    }
}

/// An engine whose end is told.
#[derive(Debug)]
struct EndTold {
    /// `None` only while being dropped.
    engine: Option<Arc<dyn Engine>>,
    gone: Arc<Gone>,
}

impl EndTold {
    fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().expect("only drop takes it out, and nobody calls after that")
    }
}

impl Engine for EndTold {
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

    fn size(&self) -> Result<Option<u64>, StorageError> {
        self.engine().size()
    }

    fn is_as_written(&self) -> Result<(), StorageError> {
        self.engine().is_as_written()
    }
}

impl Drop for EndTold {
    fn drop(&mut self) {
        // On whatever thread had it last, which may have nothing to do with the closing.
        let engine = self.engine.take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(engine)));
        let panicked = |_| StorageError::new("closing", "the engine", "it panicked when it was dropped");
        *self.gone.how.lock() = Some(dropped.map_err(panicked));
        self.gone.signal.notify();
    }
}

/// An engine that nothing is written to: that of an opening that only looks.
#[derive(Debug)]
pub(super) struct LookedAt(pub(super) Box<dyn Engine>);

impl LookedAt {
    fn refused() -> StorageError {
        let reason =
            "it was opened to be looked at, with Builder::read_only; open it without that to change it";
        StorageError::new("writing to", "the store", reason)
    }
}

impl Engine for LookedAt {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        commits.iter().map(|_| Err(Self::refused())).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
    }

    fn size(&self) -> Result<Option<u64>, StorageError> {
        self.0.size()
    }

    fn is_as_written(&self) -> Result<(), StorageError> {
        self.0.is_as_written()
    }
}
