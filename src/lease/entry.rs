//! What the table keeps for each key. All of it is guarded by the shard's lock.

use super::loss::Loss;
use super::recent::Recent;
use super::waiters::Queue;
use crate::clock::{Moment, expired};
use crate::protocol::{Holder, KeyView};
use crate::sync::{Break, HashSeed, Signal};
use crate::token::Token;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Shard {
    entries: HashTable<Entry>,
    seed: HashSeed,
    pub(super) recent: Recent,
    /// Numbers places and marks, so that each is removed only by its own (rule 12).
    pub(super) next_id: u64,
    /// Set by `close`; nothing is admitted, renewed or marked any more.
    pub(super) closed: bool,
}

/// A key and its hash, which finds its shard and its place in there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hashed<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
}

/// Small, since there is one for each live lease: a million of them is to stay in the caches for as long as it can.
#[derive(Debug)]
pub(super) struct Entry {
    key: Arc<[u8]>,
    pub(super) place: Option<Held>,
    /// What few keys have, and none for long.
    rest: Option<Box<Rest>>,
}

#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) marks: SmallVec<[(u64, Holder); 1]>,
    pub(super) waiters: Queue,
    pub(super) never_granted: NeverGranted,
}

/// Tokens of pending records that were stored and never granted: they cost no attempt (rule 15). Two, since of a write
/// whose fate is unknown it is not certain whether it has replaced such a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NeverGranted {
    /// Of the record that was there.
    pub(super) there: Option<Token>,
    /// Of the record that may have been written over it.
    pub(super) written: Option<Token>,
}

impl NeverGranted {
    pub(crate) fn has(self, token: Token) -> bool {
        [self.there, self.written].contains(&Some(token))
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: u64,
    pub(super) holder: Holder,
    /// Raised when the place ends; there from the grant on.
    pub(super) loss: Option<Arc<Loss>>,
    /// The claim whose place this is, expired or being removed by force, until this one is granted the key or changes its
    /// record: if neither comes to pass, that claim has its place back, and may go on as before.
    pub(super) former: Option<Box<Held>>,
}

impl Held {
    /// Takes what there was before for good, which is to be [told](super::table::Table::tell_ended) without the lock.
    pub(super) fn forget_former(&mut self) -> Option<Box<Held>> {
        self.former.take()
    }

    /// By how much its lease was over at `now`, if it was.
    pub(super) fn overrun(&self, now: Moment) -> Option<Duration> {
        self.holder.deadline.filter(|deadline| expired(now, *deadline)).map(|deadline| now.since(deadline))
    }
}

impl Entry {
    pub(super) fn key(&self) -> &Arc<[u8]> {
        &self.key
    }

    pub(super) fn view(&self) -> KeyView<'_> {
        KeyView {
            place: self.place.as_ref().map(|held| &held.holder),
            unsynced: self.marks().first().map(|(_, holder)| holder),
        }
    }

    pub(super) fn marks(&self) -> &[(u64, Holder)] {
        self.rest.as_deref().map_or(&[], |rest| &rest.marks)
    }

    pub(super) fn waiters(&self) -> Option<&Queue> {
        self.rest.as_deref().map(|rest| &rest.waiters)
    }

    /// The waiter that is responsible for the key.
    pub(super) fn front(&self) -> Option<Arc<Signal>> {
        self.waiters().and_then(Queue::front)
    }

    pub(super) fn never_granted(&self) -> NeverGranted {
        self.rest.as_deref().map_or(NeverGranted::default(), |rest| rest.never_granted)
    }

    pub(super) fn set_never_granted(&mut self, tokens: NeverGranted) {
        if self.never_granted() != tokens {
            self.rest().never_granted = tokens;
        }
    }

    /// What few keys have, to be changed.
    pub(super) fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    pub(super) fn has_place(&self, id: u64) -> bool {
        self.place.as_ref().is_some_and(|held| held.id == id)
    }

    /// The place with this id, also while another is on its way to the key and may yet give it back.
    pub(super) fn held(&self, id: u64) -> Option<&Held> {
        let held = self.place.as_ref()?;
        if held.id == id { Some(held) } else { held.former.as_deref().filter(|former| former.id == id) }
    }
}

impl Rest {
    fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.waiters.is_empty() && self.never_granted.is_none()
    }
}

impl Shard {
    pub(super) fn new(seed: HashSeed) -> Self {
        Self { entries: HashTable::new(), seed, recent: Recent::new(), next_id: 0, closed: false }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn get(&self, name: Hashed<'_>) -> Option<&Entry> {
        self.entries.find(name.hash, |entry| *entry.key == *name.key)
    }

    pub(super) fn get_mut(&mut self, name: Hashed<'_>) -> Option<&mut Entry> {
        self.entries.find_mut(name.hash, |entry| *entry.key == *name.key)
    }

    /// The entry of `key`, whose hash is `hash`: a new one if there is none, which [`tidy`](Self::tidy) removes if it
    /// stays empty. Whoever asks for it may be about to change the record, so what is kept of that is forgotten.
    pub(super) fn entry(&mut self, key: &Arc<[u8]>, hash: u64) -> &mut Entry {
        let Self { entries, seed, recent, .. } = self;
        if !Break::RecentKept.is() {
            recent.forget(Hashed { key, hash });
        }
        let found = entries.entry(hash, |entry| *entry.key == **key, |entry| seed.hash_one(&*entry.key));
        found.or_insert_with(|| Entry { key: Arc::clone(key), place: None, rest: None }).into_mut()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes all entries out, for good.
    pub(super) fn take(&mut self) -> HashTable<Entry> {
        self.recent.forget_all();
        std::mem::take(&mut self.entries)
    }

    /// Removes the entry of a key if nothing needs it any more.
    pub(super) fn tidy(&mut self, name: Hashed<'_>) {
        let Self { entries, seed, .. } = self;
        let Ok(mut found) = entries.find_entry(name.hash, |entry| *entry.key == *name.key) else { return };
        let entry = found.get_mut();
        entry.rest.take_if(|rest| rest.is_empty());
        if entry.place.is_some() || entry.rest.is_some() {
            return;
        }
        found.remove();
        // Memory goes back to its base, in steps large enough that each entry pays for its share once. A table of up to 128
        // slots, which hold 112 entries, is let be; the next holds 224.
        let (length, capacity) = (entries.len(), entries.capacity());
        if capacity >= 224 && length * 8 <= capacity {
            entries.shrink_to(length * 2, |entry| seed.hash_one(&*entry.key));
        }
    }
}
