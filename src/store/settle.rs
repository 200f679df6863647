//! Ending a claim: complete, fail, omit, release.

use super::Inner;
use super::act::Act;
use super::caller::{Caller, on_this_thread};
use super::engine::commit_one;
use super::guard::Claim;
use super::index;
use super::marked::{MarkRefused, Marked};
use super::settle_error::{AlreadySettled, KeyInterrupted, Lost, RetryCause, SettleError};
use crate::backend::{Commit, Engine, Swap};
use crate::commit::Ticket;
use crate::error::Fault;
use crate::lease::{Place, Refusal};
use crate::protocol::decide::{self, Settling};
use crate::record::{Durability, Kept, Omission};
use crate::sync::{Break, Ordering, note};
use crate::token::Token;
use serde::Serialize;
use std::sync::Arc;

impl Claim {
    /// Settles the key as completed with `value`, encoded with bincode. When this returns, the result is as
    /// durable as the claim asked for, and everyone who asks gets it until the retention ends.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let claim = store.claim("order-42")?.granted().expect("it is free");
    /// if let Err(error) = claim.complete("receipt 7") {
    ///     match error.into_claim() {
    ///         Some(claim) => claim.complete("receipt 7")?, // once more, under the same token
    ///         None => return Err("another was granted the key, and its result counts".into()),
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SettleError`]: *lost* if another was granted the key, which then keeps its own result; *already settled* if
    /// the key was [resolved](crate::Store::resolve) by hand, whatever with; *retry* with the claim if the result is too
    /// large or cannot be encoded ([`omit`](Claim::omit) it then), or if storage failed.
    #[cfg_attr(loom, track_caller)]
    pub fn complete<T: Serialize + ?Sized>(self, value: &T) -> Result<(), SettleError> {
        let act = self.0.store.completion(value);
        self.settle_here(act)
    }

    /// Settles like [`complete`](Claim::complete), with bytes as they are, which
    /// [`Stored::bytes`](crate::Stored::bytes) gives back.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    #[cfg_attr(loom, track_caller)]
    pub fn complete_bytes(self, bytes: impl Into<Vec<u8>>) -> Result<(), SettleError> {
        let act = self.0.store.completion_of(bytes.into());
        self.settle_here(act)
    }

    /// Settles the key as failed for good, with `reason`, encoded like a result: everyone who asks gets that, and
    /// nothing runs again until the retention ends. For a failure that a retry may mend, [`release`](Claim::release).
    ///
    /// ```
    /// use claimdb::{Settled, Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// store.claim("order-42")?.granted().expect("it is free").fail("card declined")?;
    /// let Some(Settled::Failed(reason)) = store.claim("order-42")?.settled() else { unreachable!("it failed") };
    /// assert_eq!(reason.decode::<String>()?, "card declined");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    #[cfg_attr(loom, track_caller)]
    pub fn fail<T: Serialize + ?Sized>(self, reason: &T) -> Result<(), SettleError> {
        let act = self.0.store.failure(reason);
        self.settle_here(act)
    }

    /// Settles the key as done without keeping a result: everyone who asks learns that it was done.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    #[cfg_attr(loom, track_caller)]
    pub fn omit(self, reason: Omission) -> Result<(), SettleError> {
        self.settle_here(Ok(Act::Settle(Kept::Omitted(reason))))
    }

    /// Gives the key back as if it had not been claimed: the next claimant is granted it as the first attempt.
    /// Releasing says that the work had no effect; after work that may have had one, drop the claim, and the next attempt
    /// is told of this one.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete); and [`SettleError::Interrupted`] if the lease had run out and the key was
    /// quarantined.
    #[cfg_attr(loom, track_caller)]
    pub fn release(self) -> Result<(), SettleError> {
        self.settle_here(Ok(Act::Release))
    }

    #[cfg_attr(loom, track_caller)]
    pub(super) fn settle_here(self, act: Result<Act, RetryCause>) -> Result<(), SettleError> {
        note("settles", act.as_ref().map_or("settle", Act::name));
        on_this_thread(self.settle(Caller::Thread, act))
    }

    pub(super) async fn settle(
        mut self,
        caller: Caller,
        act: Result<Act, RetryCause>,
    ) -> Result<(), SettleError> {
        let store = Arc::clone(&self.0.store);
        let doing = act.as_ref().map_or("settle", Act::name);
        let span = store.telemetry.settle_span(|| self.0.key.label(), self.token(), self.attempt(), doing);
        let retry = |claim, fault| Err(SettleError::retry(claim, RetryCause::Fault(fault)));
        let settled = match act {
            Ok(act) => match span.within(|| store.apply(&mut self, &act).and_then(ticket)) {
                Ok(Some(ticket)) => match span.around(store.synced(caller, ticket)).await {
                    Ok(()) => Ok(()),
                    Err(fault) => retry(self, fault),
                },
                Ok(None) => Ok(()),
                Err(failure @ Failure::ByRecord(_)) => match span.around(store.next_sync(caller)).await {
                    Ok(()) => Err(self.failed(failure)),
                    Err(fault) => retry(self, fault),
                },
                Err(failure) => Err(self.failed(failure)),
            },
            Err(cause) => Err(SettleError::retry(self, cause)),
        };
        span.state(told(&settled), None);
        if let Err(error) = &settled {
            span.error(error);
        }
        settled
    }

    /// What is told of `failure`: what the record says, after a sync.
    pub(super) fn failed(self, failure: Failure) -> SettleError {
        let (key, token) = (self.0.key.label(), self.token());
        match failure {
            Failure::Fault(fault) => SettleError::retry(self, RetryCause::Fault(fault)),
            Failure::OtherEffects => SettleError::retry(self, RetryCause::OtherEffects),
            Failure::BeingTaken => SettleError::retry(self, RetryCause::BeingTaken),
            Failure::LostPlace { by } | Failure::ByRecord(NotCurrent::Lost { by }) => {
                self.0.store.telemetry.settle_refused_late(key, token, by);
                SettleError::Lost(Lost { key, token, by })
            }
            Failure::ByRecord(NotCurrent::SettledOtherwise { by_hand }) => {
                SettleError::AlreadySettled(AlreadySettled { key, token, by_hand })
            }
            Failure::ByRecord(NotCurrent::Interrupted) => {
                SettleError::Interrupted(KeyInterrupted { key, token })
            }
        }
    }
}

/// Why it could not.
pub(super) enum Failure {
    /// By what the record says. That may have been written a moment ago, by this claim or another, so it is told once a
    /// sync covers it (P4).
    ByRecord(NotCurrent),
    /// By what memory says, which no power cut undoes: its place went to another that was granted it, or was removed.
    LostPlace {
        by: Option<Token>,
    },
    OtherEffects,
    BeingTaken,
    Fault(Fault),
}

/// What a record says to a holder that may not do what it asks.
pub(super) enum NotCurrent {
    Lost { by: Option<Token> },
    SettledOtherwise { by_hand: bool },
    Interrupted,
}

impl<F: Into<Fault>> From<F> for Failure {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

impl Inner {
    /// Does what `act` says, and gives back the mark of the write if it is told only after its sync.
    pub(super) fn apply(&self, claim: &mut Claim, act: &Act) -> Result<Option<Marked<'_>>, Failure> {
        self.check_writable()?;
        let engine = self.engine.get()?;
        let durable = claim.0.stored.is_some();
        if !durable && matches!(act, Act::Release) && claim.0.place.is_some() {
            return self.release_in_memory(claim, &*engine);
        }
        let relaxed = claim.0.record.terms.durability == Durability::Relaxed;
        let synced = match act {
            Act::Settle(_) | Act::SettleWith(..) => !relaxed,
            Act::Release => decide::release_is_synced(&claim.0.record.terms),
        };
        // The mark goes on before the swap (rule 1), and in the same step a claim in memory learns whether its
        // place is still its own: while the mark stands, nobody takes it.
        let only_with_place = !durable && claim.0.place.is_some();
        let mark = || self.mark(&claim.0.key, claim.settling(), claim.0.place.as_ref(), only_with_place);
        let mut marked = if Break::MarkAfterSwap.is() { None } else { Some(mark()?) };
        if Break::FreedBeforeSwap.is() && matches!(act, Act::Release) {
            if let Some(marked) = marked.take() {
                marked.clear();
            }
            drop(claim.0.place.take());
        }
        let effects = act.effects();
        if let Some(marked) = &mut marked
            && !Break::EffectsUnmarked.is()
        {
            marked.also(claim.settling(), &effects)?;
        }
        if act.completes() && *claim.0.tried.get_or_insert_with(|| effects.clone()) != effects {
            // The record tells whether a completion stands, and not with which effects.
            return Err(refused(marked, Failure::OtherEffects));
        }
        if relaxed && !effects.is_empty() {
            self.relaxed_values.fetch_max(1, Ordering::Release);
        }
        // A claim without a place has swapped before and was not told: the record says how that went.
        let mut seen = match &claim.0.place {
            Some(_) => claim.0.stored.clone(),
            None => engine.read(claim.0.key.encoded())?,
        };
        loop {
            let record = self.decode(&claim.0.key, seen.as_deref()).map_err(Fault::from)?;
            let step = match act {
                Act::Settle(result) | Act::SettleWith(result, _) => {
                    let mine = claim.0.place.is_some();
                    let wall = self.wall();
                    decide::settle(record.as_ref(), &claim.0.record, durable, mine, result, wall)
                }
                Act::Release => decide::release(record.as_ref(), claim.0.record.token),
            };
            let (new, hint) = match step {
                Settling::Swap(new) => {
                    let hint = index::hint(&claim.0.key, record.as_ref(), new.as_ref());
                    (new.map(|record| record.encode()), hint)
                }
                Settling::Confirmed => break,
                Settling::Interrupted => return Err(refused(marked, NotCurrent::Interrupted.into())),
                Settling::SettledOtherwise { by_hand } => {
                    return Err(refused(marked, NotCurrent::SettledOtherwise { by_hand }.into()));
                }
                Settling::Lost { by } => return Err(refused(marked, NotCurrent::Lost { by }.into())),
            };
            let swap = Commit::swap(claim.0.key.encoded(), seen.as_deref(), new.as_deref());
            match commit_one(&*engine, &Commit { hints: hint.as_slice(), effects: &effects, ..swap }) {
                Ok(Swap::Done) => break,
                Ok(Swap::Refused { current }) => seen = current,
                // Its fate is unknown: look (P9). Dropping the mark asks for a sync all the same.
                Err(error) => {
                    claim.0.unclear = true;
                    // That there is no record says that it was released unless somebody else may have removed it. The mark
                    // keeps out all who have not the key's place by now.
                    let mine = new.is_some() || claim.0.place.as_ref().is_some_and(Place::is_current);
                    match engine.read(claim.0.key.encoded()) {
                        Ok(found) if found == new && mine => break,
                        _ => return Err(error.into()),
                    }
                }
            }
        }
        // After the swap (rule 14); nobody gets in while the mark stands. A claim without a place has been counted.
        if claim.take_place().is_some() {
            self.count_settled(act);
        }
        let mut marked = match marked {
            Some(marked) => marked,
            None => self.mark(&claim.0.key, claim.settling(), None, false)?,
        };
        if matches!(act, Act::Release) {
            marked.frees();
        }
        if synced {
            return Ok(Some(marked));
        }
        marked.clear();
        Ok(None)
    }

    /// Releases a claim that was never stored: its place is all there is to release, unless an earlier try to settle
    /// it has landed and was not told.
    fn release_in_memory(
        &self,
        claim: &mut Claim,
        engine: &dyn Engine,
    ) -> Result<Option<Marked<'_>>, Failure> {
        if claim.0.unclear {
            let found = engine.read(claim.0.key.encoded())?;
            let record = self.decode(&claim.0.key, found.as_deref()).map_err(Fault::from)?;
            if let Settling::SettledOtherwise { by_hand } =
                decide::release(record.as_ref(), claim.0.record.token)
            {
                return Err(NotCurrent::SettledOtherwise { by_hand }.into());
            }
        }
        let ended = claim.take_place().map_or(Err(Refusal::Lost { by: None }), Place::end);
        ended.map_err(|refusal| match refusal {
            Refusal::Lost { by } => Failure::LostPlace { by },
            Refusal::Closed | Refusal::Expired | Refusal::BeingTaken => Failure::Fault(Fault::Closed),
        })?;
        self.count_settled(&Act::Release);
        Ok(None)
    }

    fn count_settled(&self, act: &Act) {
        let counts = &*self.telemetry;
        let count = match act {
            Act::Settle(Kept::Completed(_)) | Act::SettleWith(Kept::Completed(_), _) => &counts.completed,
            Act::Settle(Kept::Failed(_)) | Act::SettleWith(Kept::Failed(_), _) => &counts.failed,
            Act::Settle(Kept::Omitted(_)) | Act::SettleWith(Kept::Omitted(_), _) => &counts.omitted,
            Act::Release => &counts.released,
        };
        count.add(1);
    }
}

/// What is to be waited for before a write with this mark is told, if it has one.
fn ticket(marked: Option<Marked<'_>>) -> Result<Option<Ticket>, Failure> {
    Ok(marked.map(Marked::returned).transpose()?)
}

/// What a settle was told, for logs.
fn told(settled: &Result<(), SettleError>) -> &'static str {
    match settled {
        Ok(()) => "settled",
        Err(SettleError::Lost(_)) => "lost",
        Err(SettleError::AlreadySettled(_)) => "already settled",
        Err(SettleError::Interrupted(_)) => "interrupted",
        Err(SettleError::Retry(_)) => "retry",
    }
}

/// The write was refused, so its mark has nothing to guard.
fn refused(marked: Option<Marked<'_>>, failure: Failure) -> Failure {
    if let Some(marked) = marked {
        marked.clear();
    }
    failure
}

impl From<NotCurrent> for Failure {
    fn from(refused: NotCurrent) -> Self {
        Self::ByRecord(refused)
    }
}

impl From<MarkRefused> for Failure {
    fn from(refused: MarkRefused) -> Self {
        match refused {
            MarkRefused::Lost { by } => Self::LostPlace { by },
            MarkRefused::BeingTaken => Self::BeingTaken,
            MarkRefused::Closed => Self::Fault(Fault::Closed),
        }
    }
}
