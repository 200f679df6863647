//! Unsynced marks: a writer puts one before it writes, and the sync that covers the write takes it away; readers ask for
//! them.

use super::entry::Entry;
use super::place::Place;
use super::table::{Closed, Refusal, Stamp, Table, raise};
use super::waiters::Waiting;
use crate::protocol::{Holder, Purpose};
use crate::sync::Break;
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

/// Names an unsynced mark. It belongs to the write, not to the place: nothing but [`Table::unmark`] ends it.
pub(crate) struct Mark {
    key: Arc<[u8]>,
    id: u64,
    frees: bool,
}

impl Mark {
    /// Tells that the write leaves nothing to be told, but the key free.
    pub(crate) fn frees(&mut self) {
        self.frees = true;
    }
}

impl Table {
    /// Puts an unsynced mark on the key, before the settling write (rule 1). With `only_with_place` it is refused
    /// unless the place is still `place`; else the record decides whose the key is, and until it has, the mark of one that
    /// has lost its place says nothing of what the key is for.
    pub(crate) fn mark(
        &self,
        key: &Arc<[u8]>,
        mut settling: Holder,
        place: Option<&Place>,
        only_with_place: bool,
    ) -> Result<Mark, Refusal> {
        let (name, mut shard) = self.shard(key);
        if shard.closed {
            return Err(Refusal::Closed);
        }
        let id = shard.id();
        let entry = shard.entry(key, name.hash);
        if only_with_place && !place.is_some_and(|place| entry.has_place(place.id())) {
            // A mark would come too late for the one on its way, which may have read the record.
            let refusal = match place.and_then(|place| entry.held(place.id())) {
                Some(_) => Refusal::BeingTaken,
                None => Refusal::Lost { by: entry.place.as_ref().and_then(|held| held.holder.token) },
            };
            shard.tidy(name);
            return Err(refusal);
        }
        if place.is_some_and(|place| !entry.has_place(place.id())) {
            settling.purpose = Purpose::Upkeep;
        }
        entry.rest().marks.push((id, settling));
        Ok(Mark { key: Arc::clone(key), id, frees: false })
    }

    /// The same for who has no place on the key.
    pub(crate) fn mark_without_place(&self, key: &Arc<[u8]>, settling: Holder) -> Result<Mark, Closed> {
        self.mark(key, settling, None, false).map_err(|_| Closed)
    }

    /// Takes a mark away and wakes everybody who waits for the key, since there is something to be told; only
    /// the front if the write has freed the key, so that it is granted in the order of the queue.
    pub(crate) fn unmark(&self, mark: &Mark) {
        let woken = {
            let (name, mut shard) = self.shard(&mark.key);
            let Some(entry) = shard.get_mut(name) else { return };
            let rest = entry.rest();
            rest.marks.retain(|(id, _)| *id != mark.id && !Break::RefusedClearsAll.is());
            let woken: Vec<_> = match mark.frees {
                true => rest.waiters.front().into_iter().collect(),
                false => rest.waiters.all().collect(),
            };
            shard.tidy(name);
            woken
        };
        raise(woken);
    }

    /// Whether a settling write stands on the key that no finished sync covers. Readers of a record ask this
    /// *after* they read it (rule 2).
    pub(crate) fn is_unsynced(&self, key: &[u8]) -> Result<bool, Closed> {
        let (name, shard) = self.shard(key);
        if shard.closed {
            return Err(Closed);
        }
        Ok(shard.get(name).is_some_and(|entry| !entry.marks().is_empty()))
    }

    /// For somebody who has read a value of `key` and would tell of it: whether a mark stands that was put before
    /// `stamp`, or before now if there is no stamp yet. Gives the stamp to ask with again; `None` once those marks
    /// are gone, and what had been read is durable. Whoever waits joins the queue in the same critical section, so
    /// that no wake-up falls between. Later marks keep nobody: else a key that is always written could not be read.
    pub(crate) fn marked(
        &self,
        key: &[u8],
        stamp: Option<Stamp>,
        waiting: Option<&Waiting<'_>>,
    ) -> Result<Option<Stamp>, Closed> {
        let (name, mut shard) = self.shard(key);
        if shard.closed {
            return Err(Closed);
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
    ) -> Result<Vec<Stamped>, Closed> {
        let within = |key: &[u8]| {
            key.starts_with(prefix)
                && after.is_none_or(|after| key > after)
                && last.is_none_or(|last| key <= last)
        };
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            if shard.closed {
                return Err(Closed);
            }
            let marked = shard.entries().filter(|entry| !entry.marks().is_empty());
            let here = marked.map(Entry::key).filter(|key| within(key));
            found.extend(here.map(|key| (Arc::clone(key), Stamp(shard.next_id))));
        }
        Ok(found)
    }

    /// Whether no place was taken and no mark put since the look that gave `stamp`: then no record of the shard was
    /// swapped in meanwhile by anybody who had not begun before, and none of those was swapped back.
    pub(crate) fn is_undisturbed(&self, key: &[u8], stamp: Stamp) -> Result<bool, Closed> {
        let (_, shard) = self.shard(key);
        if shard.closed { Err(Closed) } else { Ok(stamp == Stamp(shard.next_id)) }
    }

    /// Whether the pending record of `key` with `token`, which was read before, may be one that was not granted yet:
    /// a claim puts no mark for being stored.
    pub(crate) fn storing(&self, key: &[u8], token: Token) -> Result<Option<Storing>, Closed> {
        let (name, shard) = self.shard(key);
        if shard.closed {
            return Err(Closed);
        }
        let Some(entry) = shard.get(name) else { return Ok(None) };
        let taking = entry.place.as_ref().is_some_and(|held| held.holder.deadline.is_none());
        let never_granted = entry.never_granted().has(token);
        Ok(if taking { Some(Storing::Now) } else { never_granted.then_some(Storing::NeverGranted) })
    }

    /// Whether the record of `key` may be about to be written under `token`, or swapped back to what it was: while a
    /// place is being taken, and while a mark stands that has this token, or none because it is of a change by hand.
    pub(crate) fn may_be_written(&self, key: &[u8], token: Token) -> Result<bool, Closed> {
        let (name, shard) = self.shard(key);
        if shard.closed {
            return Err(Closed);
        }
        let Some(entry) = shard.get(name) else { return Ok(false) };
        let taking = entry.place.as_ref().is_some_and(|held| held.holder.deadline.is_none());
        let its_own = |(_, holder): &(_, Holder)| holder.token.is_none_or(|marked| marked == token);
        Ok(taking || entry.marks().iter().any(its_own))
    }
}
