//! Looking at a key without changing anything.

use super::table::{Closed, Stamp, Table};
use super::waiters::Queue;
use crate::clock::{Moment, expired};
use crate::protocol::decide::{self, Admission};
use crate::protocol::{Holder, Purpose};
use crate::record::Record;
use crate::token::Token;
use std::sync::Arc;

/// What a look at a key found.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) found: Found,
    /// Whether a settling write stands on the key that no finished sync covers.
    pub(crate) unsynced: bool,
    /// How the shard stood; [`Table::admit`] tells whether it still does.
    pub(crate) stamp: Stamp,
    /// The settled record that was told of it lately, if the key is free and that still stands.
    pub(crate) recent: Option<Arc<Record>>,
}

/// What memory says to whoever looks.
#[derive(Debug)]
pub(crate) enum Found {
    Free,
    InFlight(Busy),
    Mismatched,
}

/// What is told of the claim that has a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Busy {
    pub(crate) token: Option<Token>,
    pub(crate) attempt: u32,
    pub(crate) since: Moment,
    pub(crate) deadline: Option<Moment>,
    /// When it was looked at.
    pub(crate) now: Moment,
}

impl Busy {
    pub(super) fn new(holder: &Holder, now: Moment) -> Self {
        let Holder { token, attempt, since, deadline, .. } = *holder;
        Self { token, attempt, since, deadline, now }
    }
}

impl Table {
    /// Judges a claimant by what memory knows at `now`, and changes nothing. This is all that a losing claim costs.
    pub(crate) fn look(&self, key: &[u8], purpose: Purpose, now: Moment) -> Result<Looked, Closed> {
        let (name, shard) = self.shard(key);
        if shard.closed {
            return Err(Closed);
        }
        let entry = shard.get(name);
        let found = match entry.map(|entry| decide::admit(entry.view(), purpose, now)) {
            None | Some(Admission::Free { .. }) => Found::Free,
            Some(Admission::InFlight(holder)) => Found::InFlight(Busy::new(holder, now)),
            Some(Admission::Mismatched) => Found::Mismatched,
        };
        let unsynced = entry.is_some_and(|entry| !entry.marks().is_empty());
        let recent = if entry.is_none() { shard.recent.get(name).cloned() } else { None };
        Ok(Looked { found, unsynced, stamp: Stamp(shard.next_id), recent })
    }

    /// How many places, marks and waiters there are.
    pub(crate) fn occupancy(&self) -> Occupancy {
        let now = self.clock.now();
        let mut sum = Occupancy::default();
        for shard in &self.shards {
            let shard = shard.lock();
            sum.entries += shard.len();
            for entry in shard.entries() {
                sum.waiters += entry.waiters().map_or(0, Queue::len);
                sum.unsynced += entry.marks().len();
                let deadline = entry.place.as_ref().and_then(|held| held.holder.deadline);
                sum.live += usize::from(deadline.is_some_and(|deadline| !expired(now, deadline)));
                sum.overdue += usize::from(deadline.is_some_and(|deadline| expired(now, deadline)));
            }
        }
        sum
    }
}

/// What the table holds, counted from the entries themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Occupancy {
    pub(crate) entries: usize,
    pub(crate) live: usize,
    /// Granted places whose lease is over, and which nobody has taken.
    pub(crate) overdue: usize,
    pub(crate) unsynced: usize,
    pub(crate) waiters: usize,
}
