//! The guard of a key's place.

use super::table::{Refusal, Table, raise};
use crate::clock::{Moment, expired};
use crate::protocol::Holder;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// The right to a key. Dropping it, also by unwinding, ends it and wakes the next; it does no I/O.
#[derive(Debug)]
pub(crate) struct Place {
    table: Arc<Table>,
    key: Arc<[u8]>,
    id: u64,
    /// Given back to the entry when this place ends without a grant.
    never_granted: Option<Token>,
}

impl Place {
    /// The place that `table` has just given out under `id`.
    pub(super) fn new(table: &Arc<Table>, key: &Arc<[u8]>, id: u64, never_granted: Option<Token>) -> Self {
        Self { table: Arc::clone(table), key: Arc::clone(key), id, never_granted }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The token of a pending record that was stored and never granted: taking it over costs no attempt.
    pub(crate) fn never_granted(&self) -> Option<Token> {
        self.never_granted
    }

    /// Tells that `token`, though stored, will not be granted by this place; `None` that there is no such token
    /// any more.
    pub(crate) fn set_never_granted(&mut self, token: Option<Token>) {
        self.never_granted = token;
    }

    /// Makes this the place of a granted claim, whose lease starts now (rule 15).
    pub(crate) fn grant(&mut self, granted: Holder) -> Result<(), Refusal> {
        self.change(|holder, _| {
            *holder = granted;
            Ok(())
        })?;
        self.never_granted = None;
        Ok(())
    }

    /// Gives the claim a new deadline, `lease` from now, unless the old one has passed.
    pub(crate) fn renew(&self, lease: Duration) -> Result<(), Refusal> {
        self.change(|holder, now| {
            if holder.deadline.is_some_and(|deadline| expired(now, deadline)) {
                return Err(Refusal::Expired);
            }
            holder.deadline = Some(now.after(lease));
            Ok(())
        })
    }

    /// When the lease ends, or why it has.
    pub(crate) fn deadline(&self) -> Result<Option<Moment>, Refusal> {
        let shard = self.table.shard(&self.key).lock();
        if shard.closed {
            return Err(Refusal::Closed);
        }
        match shard.entries.get(&self.key).and_then(|entry| entry.place.as_ref()) {
            Some((id, holder)) if *id == self.id => Ok(holder.deadline),
            other => Err(Refusal::Lost { by: other.and_then(|(_, holder)| holder.token) }),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Holder, Moment) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let now = self.table.clock.now();
        let front = {
            let mut shard = self.table.shard(&self.key).lock();
            if shard.closed {
                return Err(Refusal::Closed);
            }
            let entry = shard.entries.get_mut(&self.key);
            let Some(entry) = entry else { return Err(Refusal::Lost { by: None }) };
            match &mut entry.place {
                Some((id, holder)) if *id == self.id => change(holder, now)?,
                other => {
                    let by = other.as_ref().and_then(|(_, holder)| holder.token);
                    return Err(Refusal::Lost { by });
                }
            }
            entry.waiters.front()
        };
        // The front waits for the deadline, which has changed.
        raise(front);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let front = {
            let mut shard = self.table.shard(&self.key).lock();
            let Some(entry) = shard.entries.get_mut(&self.key) else { return };
            if !entry.has_place(self.id) {
                return;
            }
            entry.place = None;
            entry.never_granted = self.never_granted;
            let front = entry.waiters.front();
            shard.tidy(&self.key);
            front
        };
        raise(front);
    }
}
