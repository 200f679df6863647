//! The unsynced mark of a write that is under way.

use super::Inner;
use crate::commit::Ticket;
use crate::error::Fault;
use crate::key::Key;
use crate::lease::{Mark, Place, Refusal};
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
            Ok(mark) => Ok(Marked { store: self, mark: Some(mark) }),
            Err(Refusal::Lost { by }) => Err(MarkRefused::Lost { by }),
            Err(Refusal::Closed | Refusal::Expired) => Err(MarkRefused::Closed),
        }
    }
}

/// Why no mark was put.
pub(super) enum MarkRefused {
    Lost { by: Option<Token> },
    Closed,
}

/// An unsynced mark on a key, while its write is under way.
///
/// However the writer ends, an error or a panic included, the mark is handed to the sync that covers the write;
/// only a write that was refused clears it at once.
#[derive(Debug)]
pub(super) struct Marked<'a> {
    store: &'a Inner,
    mark: Option<Mark>,
}

impl Marked<'_> {
    /// The write has returned: its mark stands until a sync that begins from now on has ended.
    pub(super) fn returned(mut self) -> Result<Ticket, Fault> {
        self.store.commit.ticket(self.mark.take())
    }

    /// The same for many writes of `store` at once, under one ticket, so that one sync covers them all.
    pub(super) fn all_returned(store: &Inner, marked: Vec<Marked<'_>>) -> Result<Ticket, Fault> {
        store.commit.ticket(marked.into_iter().filter_map(|mut marked| marked.mark.take()))
    }

    /// The write leaves the key free: the one who has waited longest gets it.
    pub(super) fn frees(&mut self) {
        if let Some(mark) = &mut self.mark {
            mark.frees();
        }
    }

    /// The write was refused, or is not to be synced.
    pub(super) fn clear(mut self) {
        if let Some(mark) = self.mark.take() {
            self.store.table.unmark(&mark);
        }
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            // While poisoned or closed there is no such sync, and the mark stands for ever: nobody may tell.
            let _ = self.store.commit.ticket(Some(mark));
        }
    }
}
