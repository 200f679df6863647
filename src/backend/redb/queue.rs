//! Many callers' work in one write transaction.
//!
//! Whoever adds work while nobody writes *leads*: it does all the work that is there, its own included, gives the
//! others their answers, and hands the lead to the first of those who came meanwhile. So nobody leads twice, and work
//! is done in the order in which it came. A sync is work like any other, and makes the transaction durable in which
//! it is done; so it covers all that had returned before.
//!
//! # Locking
//! One mutex for the queue and one for each job's answer, held for bookkeeping alone, and never two at once.

use crate::backend::{Commit, Swap, Write};
use crate::error::StorageError;
use crate::sync::{Mutex, Signal};
use std::sync::Arc;

/// What became of a job's commits, in order.
type Answer = Result<Vec<Swap>, StorageError>;

#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Somebody leads, or was told to.
    led: bool,
    waiting: Vec<Arc<Job>>,
}

/// What one caller wants done. Copied, since another thread may do it.
pub(super) struct Job {
    commits: Vec<Owned>,
    sync: bool,
    answer: Mutex<Option<Answer>>,
    /// Raised when the answer is there, or when this job's caller is to lead.
    ready: Signal,
}

struct Owned {
    key: Vec<u8>,
    expected: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
    hints: Vec<Write>,
    effects: Vec<Write>,
}

impl Job {
    fn new(commits: Vec<Owned>, sync: bool) -> Self {
        Self { commits, sync, answer: Mutex::new(None), ready: Signal::new() }
    }

    pub(super) fn commits_of(commits: &[Commit<'_>]) -> Self {
        let own = |commit: &Commit<'_>| Owned {
            key: commit.key.to_vec(),
            expected: commit.expected.map(<[u8]>::to_vec),
            new: commit.new.map(<[u8]>::to_vec),
            hints: commit.hints.to_vec(),
            effects: commit.effects.to_vec(),
        };
        Self::new(commits.iter().map(own).collect(), false)
    }

    pub(super) fn sync() -> Self {
        Self::new(Vec::new(), true)
    }

    pub(super) fn commits(&self) -> impl Iterator<Item = Commit<'_>> {
        self.commits.iter().map(|own| Commit {
            key: &own.key,
            expected: own.expected.as_deref(),
            new: own.new.as_deref(),
            hints: &own.hints,
            effects: &own.effects,
        })
    }

    pub(super) fn wants_sync(&self) -> bool {
        self.sync
    }
}

impl Queue {
    /// Has `job` done, by this thread or by another. `write` does all that it is given, in order, and must not panic.
    pub(super) fn add(
        &self,
        job: Job,
        write: impl FnOnce(&[Arc<Job>]) -> Result<Vec<Vec<Swap>>, StorageError>,
    ) -> Answer {
        let job = Arc::new(job);
        let led = {
            let mut state = self.0.lock();
            state.waiting.push(Arc::clone(&job));
            std::mem::replace(&mut state.led, true)
        };
        if led {
            job.ready.wait();
            if let Some(answer) = job.answer.lock().take() {
                return answer;
            }
        }
        let jobs = std::mem::take(&mut self.0.lock().waiting);
        match write(&jobs) {
            Ok(answers) => {
                for (job, answer) in jobs.iter().zip(answers) {
                    *job.answer.lock() = Some(Ok(answer));
                }
            }
            Err(error) => {
                for job in &jobs {
                    *job.answer.lock() = Some(Err(error.clone()));
                }
            }
        }
        let next = {
            let mut state = self.0.lock();
            let next = state.waiting.first().cloned();
            state.led = next.is_some();
            next
        };
        // The next one first: it has work to do.
        for job in next.iter().chain(&jobs) {
            job.ready.notify();
        }
        job.answer.lock().take().expect("a leader's own job is among those that it did")
    }
}

impl std::fmt::Debug for Job {
    /// Shows how much it is, not what: keys and values do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("commits", &self.commits.len())
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}
