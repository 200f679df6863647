//! The queue of those who wait for a key.

use super::table::Table;
use crate::sync::Signal;
use std::collections::VecDeque;
use std::sync::Arc;

/// The waiters of one key, oldest first. Guarded by the shard's lock.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Arc<Signal>>);

impl Queue {
    /// Puts `signal` at the end unless it is already there. Tells whether it is at the front.
    pub(super) fn join(&mut self, signal: &Arc<Signal>) -> bool {
        match self.0.iter().position(|waiting| Arc::ptr_eq(waiting, signal)) {
            Some(position) => position == 0,
            None => {
                self.0.push_back(Arc::clone(signal));
                self.0.len() == 1
            }
        }
    }

    /// Takes `signal` out. Returns the new front if `signal` was the front: it is responsible now.
    pub(super) fn leave(&mut self, signal: &Arc<Signal>) -> Option<Arc<Signal>> {
        let position = self.0.iter().position(|waiting| Arc::ptr_eq(waiting, signal))?;
        self.0.remove(position);
        if position == 0 { self.front() } else { None }
    }

    /// The one responsible for the key.
    pub(super) fn front(&self) -> Option<Arc<Signal>> {
        self.0.front().cloned()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Arc<Signal>> + '_ {
        self.0.iter().cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A claimant's standing in a key's queue. Dropping it leaves the queue and passes responsibility on.
pub(crate) struct Waiting<'a> {
    pub(super) table: &'a Table,
    pub(super) key: &'a Arc<[u8]>,
    pub(super) signal: Arc<Signal>,
}

impl<'a> Waiting<'a> {
    /// A claimant that is in no queue yet: [`Table::admit`] puts it there when it finds the key in flight.
    pub(crate) fn new(table: &'a Table, key: &'a Arc<[u8]>) -> Self {
        Self { table, key, signal: Arc::new(Signal::new()) }
    }

    /// What to wait for.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.table.leave(self.key, &self.signal);
    }
}
