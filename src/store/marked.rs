//! The unsynced mark of a write that is under way.

use super::Inner;
use crate::backend::Write;
use crate::commit::Ticket;
use crate::error::Fault;
use crate::key::Key;
use crate::lease::{Closed, Mark, Place, Refusal};
use crate::protocol::Holder;
use crate::token::Token;

impl Inner {
    /// Puts an unsynced mark on `key` for a write of `holder`.
    pub(super) fn mark(
        &self,
        key: &Key,
        holder: Holder,
        place: Option<&Place>,
        only_with_place: bool,
    ) -> Result<Marked<'_>, MarkRefused> {
        match self.table.mark(key.encoded(), holder, place, only_with_place) {
            Ok(mark) => Ok(self.marked(mark)),
            Err(Refusal::Lost { by }) => Err(MarkRefused::Lost { by }),
            Err(Refusal::BeingTaken) => Err(MarkRefused::BeingTaken),
            Err(Refusal::Closed | Refusal::Expired) => Err(MarkRefused::Closed),
        }
    }

    /// The same for a write of who has no place on the key.
    pub(super) fn mark_without_place(&self, key: &Key, holder: Holder) -> Result<Marked<'_>, Closed> {
        self.table.mark_without_place(key.encoded(), holder).map(|mark| self.marked(mark))
    }

    fn marked(&self, mark: Mark) -> Marked<'_> {
        Marked { store: self, mark: Some(mark), also: Vec::new(), planned: false }
    }

    /// Puts unsynced marks on the keys of `writes`, plain values that one commit will write.
    pub(super) fn mark_writes(&self, writes: &[Write]) -> Result<Marked<'_>, Fault> {
        let also = Vec::with_capacity(writes.len());
        let mut marked = Marked { store: self, mark: None, also, planned: false };
        marked.also(self.upkeep(), writes)?;
        Ok(marked)
    }
}

/// Why no mark was put.
pub(super) enum MarkRefused {
    Lost { by: Option<Token> },
    BeingTaken,
    Closed,
}

/// An unsynced mark on a key, while its write is under way.
///
/// However the writer ends, an error or a panic included, the mark is handed to the sync that covers the write;
/// only a write that was refused, or never begun, clears it at once.
pub(super) struct Marked<'a> {
    store: &'a Inner,
    mark: Option<Mark>,
    /// The marks of the other keys that the same commit writes.
    also: Vec<Mark>,
    /// Whether the write may yet come to nothing before it begins.
    planned: bool,
}

impl Marked<'_> {
    /// Puts marks on the keys that the commit writes besides.
    pub(super) fn also(&mut self, holder: Holder, writes: &[Write]) -> Result<(), Closed> {
        for write in writes {
            self.also.push(self.store.table.mark_without_place(&write.key.as_slice().into(), holder)?);
        }
        Ok(())
    }

    /// The write is planned, and comes after others are decided: until it [begins](Self::begins) there is nothing to sync.
    pub(super) fn planned(mut self) -> Self {
        self.planned = true;
        self
    }

    /// A planned write begins.
    pub(super) fn begins(&mut self) {
        self.planned = false;
    }

    /// The write has returned: its mark stands until a sync that begins from now on has ended.
    pub(super) fn returned(mut self) -> Result<Ticket, Fault> {
        let marks = self.take();
        self.store.commit.ticket(marks)
    }

    /// The same for many writes of `store` at once, under one ticket, so that one sync covers them all.
    pub(super) fn all_returned(store: &Inner, marked: Vec<Marked<'_>>) -> Result<Ticket, Fault> {
        store.commit.ticket(marked.into_iter().flat_map(|mut marked| marked.take()))
    }

    /// All marks, the one on the record first: whoever is told of an effect finds its completion told.
    fn take(&mut self) -> impl Iterator<Item = Mark> + use<> {
        self.mark.take().into_iter().chain(std::mem::take(&mut self.also))
    }

    /// The write leaves the key free: the one who has waited longest gets it.
    pub(super) fn frees(&mut self) {
        if let Some(mark) = &mut self.mark {
            mark.frees();
        }
    }

    /// The write was refused, or is not to be synced.
    pub(super) fn clear(mut self) {
        self.unmark();
    }

    fn unmark(&mut self) {
        for mark in self.take() {
            self.store.table.unmark(&mark);
        }
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        if self.planned {
            return self.unmark();
        }
        if self.mark.is_some() || !self.also.is_empty() {
            let marks = self.take();
            // While poisoned or closed there is no such sync, and the marks stand for ever: nobody may tell.
            let _ = self.store.commit.ticket(marks);
            self.store.commit.pass_on();
        }
    }
}
