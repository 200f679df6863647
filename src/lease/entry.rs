//! What the table keeps for each key. All of it is guarded by the shard's lock.

use super::loss::Loss;
use super::waiters::Queue;
use crate::protocol::{Holder, KeyView};
use crate::sync::HashSeed;
use crate::token::Token;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) entries: HashMap<Arc<[u8]>, Entry, HashSeed>,
    /// Numbers places and marks, so that each is removed only by its own (rule 12).
    pub(super) next_id: u64,
    /// Set by `close`; nothing is admitted, renewed or marked any more.
    pub(super) closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) place: Option<Held>,
    pub(super) marks: Vec<(u64, Holder)>,
    pub(super) waiters: Queue,
    /// A pending record's token that was stored and never granted: it costs no attempt (rule 15).
    pub(super) never_granted: Option<Token>,
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: u64,
    pub(super) holder: Holder,
    /// Raised when the place ends; there from the grant on.
    pub(super) loss: Option<Arc<Loss>>,
    /// The expired claim whose place this is, until this one is granted the key or changes its record: if neither
    /// comes to pass, that claim has its place back, and may settle as before.
    pub(super) former: Option<Box<Held>>,
}

impl Held {
    /// Takes what there was before for good. Its loss is to be raised without the lock.
    pub(super) fn forget_former(&mut self) -> Option<Arc<Loss>> {
        self.former.take().and_then(|former| former.loss)
    }
}

impl Entry {
    pub(super) fn view(&self) -> KeyView<'_> {
        KeyView {
            place: self.place.as_ref().map(|held| &held.holder),
            unsynced: self.marks.first().map(|(_, holder)| holder),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.place.is_none()
            && self.marks.is_empty()
            && self.waiters.is_empty()
            && self.never_granted.is_none()
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

impl Shard {
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Removes the entry of `key` if nothing needs it any more.
    pub(super) fn tidy(&mut self, key: &[u8]) {
        if self.entries.get(key).is_some_and(Entry::is_idle) {
            self.entries.remove(key);
            // Memory goes back to its base, in steps large enough that each entry pays for its share once.
            let (length, capacity) = (self.entries.len(), self.entries.capacity());
            if capacity > 128 && length < capacity / 8 {
                self.entries.shrink_to(length * 2);
            }
        }
    }
}
