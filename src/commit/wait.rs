//! Waiting for a sync.

use super::{GroupCommit, SyncBy, Ticket};
use crate::clock::{Moment, expired};
use crate::error::Fault;
use crate::sync::{Break, Signal};
use std::sync::Arc;
use std::time::Duration;

/// Somebody who waits for a sync.
pub(crate) struct SyncWait<'a, M: Send + 'static> {
    commit: &'a GroupCommit<M>,
    ticket: Ticket,
    start: Moment,
    deadline: Moment,
    signal: Arc<Signal>,
}

impl<M: Send + 'static> SyncWait<'_, M> {
    /// What to wait for, until the deadline at most, before looking again.
    pub(crate) fn signal(&self) -> (&Arc<Signal>, Moment) {
        (&self.signal, self.deadline)
    }

    /// Whether the wait is over, and how. With callers as syncers this may be the one who syncs.
    pub(crate) fn look(&self) -> Option<Result<(), Fault>> {
        loop {
            let now = self.commit.clock.now();
            let mut state = self.commit.state.lock();
            if state.synced >= self.ticket.0 {
                return Some(Ok(()));
            }
            if let Some(poisoned) = state.poisoned.as_ref().filter(|_| !Break::PoisonUnasked.is()) {
                return Some(Err(poisoned.clone().into()));
            }
            if state.closed {
                return Some(Err(Fault::Closed));
            }
            if self.commit.sync_by == SyncBy::Caller && state.running_since.is_none() {
                state.running_since = Some(now);
                drop(state);
                self.commit.sync_once();
                continue;
            }
            if expired(now, self.deadline) {
                let running = state.running_since.map(|since| now.since(since));
                return Some(Err(Fault::SyncPending { waited: now.since(self.start), running }));
            }
            if !state.waiting.iter().any(|(_, waiting)| Arc::ptr_eq(waiting, &self.signal)) {
                state.waiting.push_back((self.ticket.0, Arc::clone(&self.signal)));
            }
            return None;
        }
    }
}

impl<M: Send + 'static> Drop for SyncWait<'_, M> {
    fn drop(&mut self) {
        let abandoned = {
            let mut state = self.commit.state.lock();
            // Ordinarily the sync that covered it has taken it out.
            state.waiting.retain(|(_, waiting)| !Arc::ptr_eq(waiting, &self.signal));
            state.synced < self.ticket.0 && state.is_abandoned()
        };
        if abandoned {
            self.commit.tell_abandoned();
        }
    }
}

impl<M: Send + 'static> GroupCommit<M> {
    /// A wait for a sync that covers `ticket`, for a thread or a task to go through. Dropping it waits no more.
    pub(crate) fn waiting(&self, ticket: Ticket, limit: Duration) -> SyncWait<'_, M> {
        let start = self.clock.now();
        let (deadline, signal) = (start.after(limit), Arc::new(Signal::new()));
        SyncWait { commit: self, ticket, start, deadline, signal }
    }
}
