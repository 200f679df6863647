//! What group commit is at, and which sync is slow.

use super::{GroupCommit, State};
use std::time::Duration;

/// What group commit is at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitStats {
    pub(crate) running: Option<Duration>,
    /// How long the slowest took; the running one counts.
    pub(crate) slowest: Duration,
}

impl<M: Send + 'static> GroupCommit<M> {
    /// What it is at. A running sync that has become slow is told of here: whoever waits for it to end may wait long.
    pub(crate) fn stats(&self) -> CommitStats {
        let now = self.clock.now();
        let (running, slowest, is_slow) = {
            let mut state = self.state.lock();
            let running = state.running_since.map(|since| now.since(since));
            let is_slow = running.is_some_and(|running| state.becomes_slow(running, self.slow_from));
            (running, state.slowest, is_slow)
        };
        if let Some(running) = running.filter(|_| is_slow) {
            self.telemetry.slow_sync(running);
        }
        CommitStats { running, slowest: slowest.max(running.unwrap_or_default()) }
    }
}

impl<M> State<M> {
    /// Whether the sync is slow that has taken so long, and was not told of yet. It counts as told of from now on.
    pub(super) fn becomes_slow(&mut self, took: Duration, slow_from: Duration) -> bool {
        took >= slow_from && !std::mem::replace(&mut self.told_slow, true)
    }
}
