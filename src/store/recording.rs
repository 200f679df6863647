//! Watching the commits of a running store, so that a copy of it can be brought to one moment.
//!
//! While somebody watches, each commit that returns notes the keys that it may have changed. [`Recording::still`] makes
//! the next commits wait, for the time of a look: when it looks, every commit has landed whole and noted its keys, or
//! has not begun. Why that, and not a lock: `docs/decisions/backup-moment.md`.
//!
//! Keys are noted when a commit returns and not when it begins: what was noted at its beginning could be taken and
//! read before it lands.
//!
//! # Locking
//! One mutex around what was noted and who waits; never held across I/O. A commit that waits does so for [`PATIENCE`]
//! at most, and then goes on: whoever looked learns that it was disturbed.

use crate::backend::{Commit, Engine, Swap, Visit};
use crate::clock::{Clock, expired};
use crate::error::StorageError;
use crate::key::IndexEntry;
use crate::sync::{Mutex, Signal};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest that a commit waits for a look to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Keys that may have been changed.
pub(super) type Touched = HashSet<Vec<u8>>;

/// What was noted of a store's commits, and whether they may go on.
pub(super) struct Recording {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    /// Raised when the last commit under way has returned.
    idle: Arc<Signal>,
}

#[derive(Default)]
struct State {
    touched: Touched,
    under_way: usize,
    held: bool,
    /// Whether a commit went on while it was to wait.
    disturbed: bool,
    waiting: Vec<Arc<Signal>>,
}

impl Recording {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), clock, idle: Arc::new(Signal::new()) })
    }

    /// Gives the keys noted since the last time. Those of commits under way are noted later.
    pub(super) fn take(&self) -> Touched {
        std::mem::take(&mut self.state.lock().touched)
    }

    /// Holds new commits back, waits until those under way have returned, and then lets `look` see the keys noted
    /// since the last [`take`](Self::take), whose values stand still meanwhile. Gives what it saw, and whether that is
    /// of one moment: not if a commit would not wait any longer. `None` if commits did not return within `limit`.
    pub(super) fn still<T>(&self, limit: Duration, look: impl FnOnce(Touched) -> T) -> Option<(T, bool)> {
        {
            let mut state = self.state.lock();
            (state.held, state.disturbed) = (true, false);
        }
        // Whatever happens, a panic of the engine included, the others go on.
        let held = Held(self);
        if !self.until_idle(limit) {
            return None;
        }
        let seen = look(self.take());
        let of_one_moment = !self.state.lock().disturbed;
        drop(held);
        Some((seen, of_one_moment))
    }

    fn until_idle(&self, limit: Duration) -> bool {
        let deadline = self.clock.now().after(limit);
        loop {
            let now = self.clock.now();
            if self.state.lock().under_way == 0 {
                return true;
            }
            if expired(now, deadline) {
                return false;
            }
            self.clock.wait(&self.idle, deadline);
        }
    }

    /// Lets `commits` begin, once they may.
    fn begin<'a>(&'a self, commits: &'a [Commit<'a>]) -> UnderWay<'a> {
        let start = self.clock.now();
        let deadline = start.after(PATIENCE);
        loop {
            let now = self.clock.now();
            let signal = {
                let mut state = self.state.lock();
                let impatient = expired(now, deadline);
                if !state.held || impatient {
                    state.disturbed |= state.held;
                    state.under_way += 1;
                    return UnderWay { recording: self, commits };
                }
                let signal = Arc::new(Signal::new());
                state.waiting.push(Arc::clone(&signal));
                signal
            };
            self.clock.wait(&signal, deadline);
        }
    }
}

/// The keys that a commit may change, but for entries of the retention index, which a copy makes anew.
fn changed_by<'a>(commit: &'a Commit<'a>) -> impl Iterator<Item = &'a [u8]> {
    let beside = commit.hints.iter().chain(commit.effects).map(|write| write.key.as_slice());
    std::iter::once(commit.key).chain(beside).filter(|key| !key.starts_with(&IndexEntry::all()))
}

impl fmt::Debug for Recording {
    /// Shows how much was noted, not what: keys do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Recording")
            .field("touched", &state.touched.len())
            .field("under_way", &state.under_way)
            .field("held", &state.held)
            .finish_non_exhaustive()
    }
}

/// Commits are held back until this is dropped.
struct Held<'a>(&'a Recording);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.state.lock();
            state.held = false;
            std::mem::take(&mut state.waiting)
        };
        for signal in waiting {
            signal.notify();
        }
    }
}

/// A call that commits. Its end notes what it may have changed, however it ended.
struct UnderWay<'a> {
    recording: &'a Recording,
    commits: &'a [Commit<'a>],
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let keys: Vec<_> = self.commits.iter().flat_map(changed_by).map(<[u8]>::to_vec).collect();
        let idle = {
            let mut state = self.recording.state.lock();
            state.touched.extend(keys);
            state.under_way -= 1;
            state.under_way == 0 && state.held
        };
        if idle {
            self.recording.idle.notify();
        }
    }
}

/// An engine whose commits are watched: each begins once it may, and is noted when it has returned.
#[derive(Debug)]
pub(super) struct Recorder {
    engine: Arc<dyn Engine>,
    recording: Arc<Recording>,
}

impl Recorder {
    pub(super) fn over(engine: Arc<dyn Engine>, recording: Arc<Recording>) -> Arc<dyn Engine> {
        Arc::new(Self { engine, recording })
    }
}

impl Engine for Recorder {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.engine.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let _under_way = self.recording.begin(commits);
        self.engine.commit(commits)
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

    fn size(&self) -> Result<Option<u64>, StorageError> {
        self.engine.size()
    }

    fn is_as_written(&self) -> Result<(), StorageError> {
        self.engine.is_as_written()
    }
}
