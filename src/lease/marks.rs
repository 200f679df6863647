//! Asking for unsynced marks: what readers of plain values and the sweeper do.

use super::entry::Entry;
use super::table::{Refusal, Stamp, Table};
use super::waiters::Waiting;
use crate::protocol::Holder;
use crate::token::Token;
use std::sync::Arc;

/// A key that has marks, and the stamp to wait for them with.
type Stamped = (Arc<[u8]>, Stamp);

/// How a pending record stands that nobody may have been granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storing {
    /// Somebody is taking the key's place.
    Now,
    /// Whoever stored it was not granted the key.
    NeverGranted,
}

impl Table {
    /// For somebody who has read a value of `key` and would tell of it: whether a mark stands that was put before
    /// `stamp`, or before now if there is no stamp yet. Gives the stamp to ask with again; `None` once those marks
    /// are gone, and what had been read is durable. Whoever waits joins the queue in the same critical section, so
    /// that no wake-up falls between. Later marks keep nobody: else a key that is always written could not be read.
    pub(crate) fn marked(
        &self,
        key: &[u8],
        stamp: Option<Stamp>,
        waiting: Option<&Waiting<'_>>,
    ) -> Result<Option<Stamp>, Refusal> {
        let (name, mut shard) = self.shard(key);
        if shard.closed {
            return Err(Refusal::Closed);
        }
        let stamp = stamp.unwrap_or(Stamp(shard.next_id));
        let Some(entry) = shard.get_mut(name) else { return Ok(None) };
        if !entry.marks().iter().any(|(id, _)| *id <= stamp.0) {
            return Ok(None);
        }
        if let Some(waiting) = waiting {
            entry.rest().waiters.join(&waiting.signal);
        }
        Ok(Some(stamp))
    }

    /// The keys that begin with `prefix`, lie behind `after` and up to `last`, and have marks now; and the stamps to ask
    /// [`marked`](Self::marked) with.
    pub(crate) fn all_marked(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        last: Option<&[u8]>,
    ) -> Result<Vec<Stamped>, Refusal> {
        let within = |key: &[u8]| {
            key.starts_with(prefix)
                && after.is_none_or(|after| key > after)
                && last.is_none_or(|last| key <= last)
        };
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            if shard.closed {
                return Err(Refusal::Closed);
            }
            let marked = shard.entries().filter(|entry| !entry.marks().is_empty());
            let here = marked.map(Entry::key).filter(|key| within(key));
            found.extend(here.map(|key| (Arc::clone(key), Stamp(shard.next_id))));
        }
        Ok(found)
    }

    /// Whether no place was taken and no mark put since the look that gave `stamp`: then no record of the shard was
    /// swapped in meanwhile by anybody who had not begun before, and none of those was swapped back.
    pub(crate) fn is_undisturbed(&self, key: &[u8], stamp: Stamp) -> Result<bool, Refusal> {
        let (_, shard) = self.shard(key);
        if shard.closed { Err(Refusal::Closed) } else { Ok(stamp == Stamp(shard.next_id)) }
    }

    /// Whether the pending record of `key` with `token`, which was read before, may be one that was not granted yet:
    /// a claim puts no mark for being stored.
    pub(crate) fn storing(&self, key: &[u8], token: Token) -> Result<Option<Storing>, Refusal> {
        let (name, shard) = self.shard(key);
        if shard.closed {
            return Err(Refusal::Closed);
        }
        let Some(entry) = shard.get(name) else { return Ok(None) };
        let taking = entry.place.as_ref().is_some_and(|held| held.holder.deadline.is_none());
        let never_granted = entry.never_granted().has(token);
        Ok(if taking { Some(Storing::Now) } else { never_granted.then_some(Storing::NeverGranted) })
    }

    /// Whether the record of `key` may be about to be written under `token`, or swapped back to what it was: while a
    /// place is being taken, and while a mark stands that has this token, or none because it is of a change by hand.
    pub(crate) fn may_be_written(&self, key: &[u8], token: Token) -> Result<bool, Refusal> {
        let (name, shard) = self.shard(key);
        if shard.closed {
            return Err(Refusal::Closed);
        }
        let Some(entry) = shard.get(name) else { return Ok(false) };
        let taking = entry.place.as_ref().is_some_and(|held| held.holder.deadline.is_none());
        let its_own = |(_, holder): &(_, Holder)| holder.token.is_none_or(|marked| marked == token);
        Ok(taking || entry.marks().iter().any(its_own))
    }
}
