//! Ending a claim: complete, fail, omit, release.

use super::claim::Claim;
use super::{Inner, Store};
use crate::backend::Swap;
use crate::commit::Ticket;
use crate::error::Fault;
use crate::key::{Key, KeyLabel};
use crate::lease::{Mark, Refusal};
use crate::protocol::Holder;
use crate::protocol::decide::{self, Settling};
use crate::record::{Durability, Kept, Omission, Record};
use crate::sync::Break;
use crate::token::Token;
use crate::value::{self, EncodeError};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

impl Claim {
    /// Settles the key as completed with `value`, encoded with bincode. When this returns, the result is as
    /// durable as the claim asked for, and everyone who asks gets it until the retention ends.
    ///
    /// # Errors
    /// [`SettleError`]: *lost* if another was granted the key, which then keeps its own result; *retry* with the
    /// claim if the result is too large or cannot be encoded ([`omit`](Claim::omit) it then), or if storage
    /// failed.
    pub fn complete<T: Serialize + ?Sized>(self, value: &T) -> Result<(), SettleError> {
        match self.store.encode(value) {
            Ok(bytes) => self.settle(&Act::Settle(Kept::Completed(bytes))),
            Err(cause) => Err(SettleError::retry(self, cause)),
        }
    }

    /// Settles like [`complete`](Claim::complete), with bytes as they are.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn complete_bytes(self, bytes: impl Into<Vec<u8>>) -> Result<(), SettleError> {
        let bytes = bytes.into();
        match self.store.check_size(bytes.len()) {
            Ok(()) => self.settle(&Act::Settle(Kept::Completed(bytes))),
            Err(cause) => Err(SettleError::retry(self, cause)),
        }
    }

    /// Settles the key as failed for good, with `reason`, encoded like a result: everyone who asks gets that, and
    /// nothing runs again until the retention ends. For a failure that a retry may mend, [`release`](Claim::release).
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn fail<T: Serialize + ?Sized>(self, reason: &T) -> Result<(), SettleError> {
        match self.store.encode(reason) {
            Ok(bytes) => self.settle(&Act::Settle(Kept::Failed(bytes))),
            Err(cause) => Err(SettleError::retry(self, cause)),
        }
    }

    /// Settles the key as done without keeping a result: everyone who asks learns that it was done.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn omit(self, reason: Omission) -> Result<(), SettleError> {
        self.settle(&Act::Settle(Kept::Omitted(reason)))
    }

    /// Gives the key back as if it had not been claimed: the next claimant is granted it as the first attempt.
    /// Releasing says that the work had no effect.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn release(self) -> Result<(), SettleError> {
        self.settle(&Act::Release)
    }

    fn settle(mut self, act: &Act) -> Result<(), SettleError> {
        let store = Arc::clone(&self.store);
        let settled = store.apply(&mut self, act).and_then(|ticket| match ticket {
            Some(ticket) => Ok(store.commit.wait(ticket, store.limit())?),
            None => Ok(()),
        });
        settled.map_err(|failure| self.failed(failure))
    }

    fn failed(self, failure: Failure) -> SettleError {
        let (key, token) = (self.key.label(), self.token());
        match failure {
            Failure::Fault(fault) => SettleError::retry(self, RetryCause::Fault(fault)),
            Failure::Lost { by } => {
                self.store.counters.refused_late.add(1);
                SettleError::Lost(Lost { key, token, by })
            }
            Failure::SettledOtherwise => SettleError::AlreadySettled(AlreadySettled { key, token }),
        }
    }
}

impl Store {
    /// Completes many claims, of this store, under one sync: what each would do alone, in one wait. Gives one
    /// answer for each, in order.
    ///
    /// # Errors
    /// Each answer as that of [`Claim::complete`].
    pub fn complete_many<T: Serialize>(
        &self,
        results: impl IntoIterator<Item = (Claim, T)>,
    ) -> Vec<Result<(), SettleError>> {
        let apply = |(mut claim, value): (Claim, T)| match claim.store.encode(&value) {
            Ok(bytes) => {
                let store = Arc::clone(&claim.store);
                match store.apply(&mut claim, &Act::Settle(Kept::Completed(bytes))) {
                    Ok(ticket) => Ok((claim, ticket)),
                    Err(failure) => Err(claim.failed(failure)),
                }
            }
            Err(cause) => Err(SettleError::retry(claim, cause)),
        };
        let applied: Vec<_> = results.into_iter().map(apply).collect();
        // Tickets are in the order of writes, so who waits for the last has waited for all.
        let last = applied.iter().flatten().filter_map(|(_, ticket)| *ticket).max();
        let synced = last.map_or(Ok(()), |ticket| self.0.commit.wait(ticket, self.0.limit()));
        let told = |(claim, ticket): (Claim, Option<Ticket>)| match (&synced, ticket) {
            (Err(fault), Some(_)) => Err(SettleError::retry(claim, RetryCause::Fault(fault.clone()))),
            _ => Ok(()),
        };
        applied.into_iter().map(|applied| applied.and_then(told)).collect()
    }
}

/// How a claim is to end.
#[derive(Debug)]
enum Act {
    Settle(Kept),
    Release,
}

/// Why it could not.
enum Failure {
    Lost { by: Option<Token> },
    SettledOtherwise,
    Fault(Fault),
}

impl<F: Into<Fault>> From<F> for Failure {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

impl Inner {
    /// Does what `act` says and gives the ticket of the sync to wait for before telling, if there is one.
    fn apply(&self, claim: &mut Claim, act: &Act) -> Result<Option<Ticket>, Failure> {
        self.check_writable()?;
        let engine = self.engine.get()?;
        let durable = claim.stored.is_some();
        if !durable && claim.place.is_some() && matches!(act, Act::Release) {
            claim.place = None; // nothing was stored
            self.counters.released.add(1);
            return Ok(None);
        }
        let relaxed = claim.record.terms.durability == Durability::Relaxed;
        let synced = match act {
            Act::Settle(_) => !relaxed,
            Act::Release => decide::release_is_synced(&claim.record.terms),
        };
        // The mark goes on before the swap (rule 1), and in the same step a claim in memory learns whether its
        // place is still its own: while the mark stands, nobody takes it.
        let only_with_place = !durable && claim.place.is_some();
        let mark = || self.mark(&claim.key, claim.settling(), claim.place.as_ref(), only_with_place);
        let marked = if Break::MarkAfterSwap.is() { None } else { Some(mark()?) };
        // A claim without a place has swapped before and was not told: the record says how that went.
        let mut seen = match &claim.place {
            Some(_) => claim.stored.clone(),
            None => engine.read(claim.key.encoded())?,
        };
        loop {
            let record = seen.as_deref().map(Record::decode).transpose();
            let record = record.map_err(Fault::from)?;
            let step = match act {
                Act::Settle(result) => {
                    let mine = claim.place.is_some();
                    let wall = self.clock.wall();
                    decide::settle(record.as_ref(), &claim.record, durable, mine, result, wall)
                }
                Act::Release => decide::release(record.as_ref(), claim.record.token),
            };
            let new = match step {
                Settling::Swap(new) => new.map(|record| record.encode()),
                Settling::Confirmed => break,
                Settling::SettledOtherwise => return Err(refused(marked, Failure::SettledOtherwise)),
                Settling::Lost { by } => return Err(refused(marked, Failure::Lost { by })),
            };
            match self.swap(&*engine, &claim.key, seen.as_deref(), new.as_deref()) {
                Ok(Swap::Done) => break,
                Ok(Swap::Refused { current }) => seen = current,
                // Its fate is unknown: look (P9). Dropping the mark asks for a sync all the same.
                Err(error) => match engine.read(claim.key.encoded()) {
                    Ok(found) if found == new => break,
                    _ => return Err(error.into()),
                },
            }
        }
        // After the swap (rule 14); nobody gets in while the mark stands.
        claim.place = None;
        self.counters.ended(act);
        let mut marked = match marked {
            Some(marked) => marked,
            None => self.mark(&claim.key, claim.settling(), None, false)?,
        };
        if matches!(act, Act::Release) {
            marked.frees();
        }
        if synced {
            return Ok(Some(marked.returned()?));
        }
        marked.clear();
        Ok(None)
    }

    /// Puts an unsynced mark on `key` for a write of `holder`.
    pub(super) fn mark(
        &self,
        key: &Key,
        holder: Holder,
        place: Option<&crate::lease::Place>,
        only_with_place: bool,
    ) -> Result<Marked<'_>, MarkRefused> {
        match self.table.mark(key.encoded(), holder, place, only_with_place) {
            Ok(mark) => Ok(Marked { store: self, mark: Some(mark) }),
            Err(Refusal::Lost { by }) => Err(MarkRefused::Lost { by }),
            Err(Refusal::Closed | Refusal::Expired) => Err(MarkRefused::Closed),
        }
    }

    fn encode<T: Serialize + ?Sized>(&self, value: &T) -> Result<Vec<u8>, RetryCause> {
        let bytes = value::encode(value).map_err(RetryCause::NotEncodable)?;
        self.check_size(bytes.len())?;
        Ok(bytes)
    }

    fn check_size(&self, length: usize) -> Result<(), RetryCause> {
        let limit = self.settings.value_limit;
        if length > limit { Err(RetryCause::TooLarge { length, limit }) } else { Ok(()) }
    }
}

impl super::Counters {
    fn ended(&self, act: &Act) {
        match act {
            Act::Settle(_) => self.completed.add(1),
            Act::Release => self.released.add(1),
        }
    }
}

/// The write was refused, so its mark has nothing to guard.
fn refused(marked: Option<Marked<'_>>, failure: Failure) -> Failure {
    if let Some(marked) = marked {
        marked.clear();
    }
    failure
}

/// Why no mark was put.
pub(super) enum MarkRefused {
    Lost { by: Option<Token> },
    Closed,
}

impl From<MarkRefused> for Failure {
    fn from(refused: MarkRefused) -> Self {
        match refused {
            MarkRefused::Lost { by } => Self::Lost { by },
            MarkRefused::Closed => Self::Fault(Fault::Closed),
        }
    }
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

/// A claim could not be settled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The claim is no longer current; nothing was changed, and what its work did must be judged by its token.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// This claim has already settled its key in another way, which stands.
    #[error(transparent)]
    AlreadySettled(#[from] AlreadySettled),
    /// It is not known to be settled; the claim comes back, to be tried again under the same token.
    #[error(transparent)]
    Retry(#[from] Box<Retry>),
}

impl SettleError {
    fn retry(claim: Claim, cause: RetryCause) -> Self {
        Self::Retry(Box::new(Retry { claim, cause }))
    }

    /// The claim, if it comes back.
    #[must_use]
    pub fn into_claim(self) -> Option<Claim> {
        match self {
            Self::Retry(retry) => Some(retry.claim),
            _ => None,
        }
    }
}

/// A claim that is no longer current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("settling {key} with token {token}: the claim was lost ({}); nothing was changed", current(*by))]
pub struct Lost {
    key: KeyLabel,
    token: Token,
    by: Option<Token>,
}

impl Lost {
    /// The token of the claim that was lost.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The token of the one that has the key now, or settled it; `None` if it has none or the record is gone.
    #[must_use]
    pub fn by(&self) -> Option<Token> {
        self.by
    }
}

/// For messages: by which token a claim was lost.
pub(super) fn current(token: Option<Token>) -> String {
    token.map_or_else(|| "it ended or was removed".to_owned(), |token| format!("token {token} is current"))
}

/// This claim has settled its key before, in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "settling {key} with token {token}: this claim has already settled it in another way, which stands; read it \
     with Store::get"
)]
pub struct AlreadySettled {
    key: KeyLabel,
    token: Token,
}

/// A claim that is not known to be settled.
#[derive(thiserror::Error)]
#[error("settling {} with token {}: {cause}", claim.key().label(), claim.token())]
pub struct Retry {
    /// The claim. Settling it again confirms what is stored, or errs and says so.
    pub claim: Claim,
    /// Why.
    #[source]
    pub cause: RetryCause,
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("token", &self.claim.token()).field("cause", &self.cause).finish()
    }
}

/// Why a claim is not known to be settled.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RetryCause {
    /// The encoded value is larger than the store's limit; nothing was changed.
    #[error(
        "the encoded value has {length} bytes, and the store takes {limit}; store less, raise \
         Builder::value_limit, or settle with Claim::omit"
    )]
    TooLarge {
        /// Its length.
        length: usize,
        /// The store's limit.
        limit: usize,
    },
    /// The value could not be encoded; nothing was changed.
    #[error("{0}; settle with Claim::omit")]
    NotEncodable(#[source] EncodeError),
    /// It went wrong underneath.
    #[error(transparent)]
    Fault(Fault),
}
