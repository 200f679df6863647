//! What was told of settled keys lately, so that the next retry is answered without a read of the store (rule 22).
//!
//! Whoever may change a record takes the key's place or puts a mark on it before, and both forget what is kept of the
//! key, under the shard's lock. What was read before somebody did so is not kept: see [`Table::keep`](super::Table::keep).
//! The sweeper alone does neither: what it deletes is forgotten, and that is judged at each hit.

use super::entry::Hashed;
use crate::record::{Kept, Record, State};
use std::sync::Arc;

/// How many settled records each shard keeps: 4,096 in all, a few seconds of a busy service, in which retries come.
const SLOTS: usize = if cfg!(any(loom, shuttle)) { 4 } else { 64 };
/// A longer value is not kept: reading it costs little beside copying it. With all slots full of values like this, a
/// table of 64 shards takes 5 MiB.
const LONGEST: usize = 1024;
/// A key's hash names a set of so many slots, of which the one that was filled first is filled next. With one slot a key,
/// a fifth of 1,000 keys would push each other out of 4,096.
const WAYS: usize = 4;

/// The slots of one shard, guarded by its lock.
#[derive(Debug)]
pub(super) struct Recent(Box<[Option<Told>]>);

#[derive(Debug)]
struct Told {
    hash: u64,
    key: Arc<[u8]>,
    record: Arc<Record>,
}

impl Told {
    fn is(&self, name: Hashed<'_>) -> bool {
        self.hash == name.hash && *self.key == *name.key
    }
}

impl Recent {
    pub(super) fn new() -> Self {
        Self((0..SLOTS).map(|_| None).collect())
    }

    pub(super) fn get(&self, name: Hashed<'_>) -> Option<&Arc<Record>> {
        self.0[set(name)].iter().flatten().find(|told| told.is(name)).map(|told| &told.record)
    }

    /// The caller knows that nobody has changed the record since it was read.
    pub(super) fn keep(&mut self, key: &Arc<[u8]>, hash: u64, record: Arc<Record>) {
        self.forget(Hashed { key, hash });
        let slots = &mut self.0[set(Hashed { key, hash })];
        slots.rotate_right(1);
        slots[0] = Some(Told { hash, key: Arc::clone(key), record });
    }

    pub(super) fn forget(&mut self, name: Hashed<'_>) {
        for slot in &mut self.0[set(name)] {
            slot.take_if(|told| told.is(name));
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.0.fill_with(|| None);
    }
}

/// The slots that the hash names, by bits that neither the choice of the shard nor the table in it goes by.
fn set(name: Hashed<'_>) -> std::ops::Range<usize> {
    let set = usize::try_from((name.hash >> 16) & 0xFFFF).unwrap_or(0) % (SLOTS / WAYS);
    set * WAYS..(set + 1) * WAYS
}

/// Whether a record is worth keeping.
pub(crate) fn is_short(record: &Record) -> bool {
    match &record.state {
        State::Settled { result: Kept::Completed(value) | Kept::Failed(value), .. } => value.len() <= LONGEST,
        State::Settled { result: Kept::Omitted(_), .. } => true,
        State::Pending { .. } | State::Interrupted { .. } => false,
    }
}
