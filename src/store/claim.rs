//! Asking for a key.

use super::Inner;
use super::caller::{Caller, on_this_thread};
use super::guard::Claim;
use super::marked::Marked;
use super::outcome::{InFlight, Interrupted, Mismatched, Outcome, Settled};
use super::request::{Request, Resolved};
use super::take::{Landed, Ready, Write};
use crate::clock::{Moment, expired};
use crate::commit::Ticket;
use crate::error::{ClaimError, Damage, Fault};
use crate::key::Key;
use crate::lease::{Busy, Found, Stamp, Waiting, is_short};
use crate::protocol::decide::{self, Ask, Verdict};
use crate::protocol::{Holder, Opening, Purpose};
use crate::record::{Durability, EndedBy, Record, State};
use crate::sync::Working;
use crate::telemetry::{Reclaim, Span};
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// How one attempt at a claim ended.
pub(super) enum Step<'a> {
    Answer(Outcome),
    /// The place is taken, and nothing is to be written: [`finish`](Inner::finish) grants it.
    Ready(Box<Ready>),
    /// A claimant that waits looks again then, if nobody wakes it before.
    InFlight(Busy, Option<Moment>),
    /// Something changed in between: decide anew from the top.
    Again,
    /// The place is taken; this is to be swapped in.
    Write(Box<Write<'a>>),
}

/// A claimant that waits, and until when.
type Standing<'a> = (Waiting<'a>, Moment);

/// How a claimant goes on from a [`Step`].
enum GoOn {
    Tell(Outcome),
    Again,
    /// Wait for the claimant's signal, until then at most.
    WaitUntil(Moment),
    /// Wait for the sync, then [`finish`](Inner::finish).
    Sync(Ticket, Ready),
}

impl Inner {
    pub(super) async fn claim(
        self: &Arc<Self>,
        caller: Caller,
        request: &Request,
    ) -> Result<Outcome, ClaimError> {
        let span = self.telemetry.claim_span(|| request.label());
        let told = match self.check(request) {
            Ok(request) => {
                let waiting = self.waiting(&request);
                let told = match span.within(|| self.attempt(&request, waiting.as_ref())) {
                    Ok(step) => self.go_on(caller, &request, waiting, step, &span).await,
                    Err(fault) => Err(fault),
                };
                told.map_err(|fault| failed(&request, fault))
            }
            Err(error) => Err(error),
        };
        self.count_told(told.as_ref(), &span);
        told
    }

    /// The same for a thread. Most of those that lose, and all that are told what is stored, are told so by the first
    /// look: kept apart from the steps that may wait, it costs a fraction of them.
    #[cfg_attr(loom, track_caller)]
    pub(super) fn claim_here(self: &Arc<Self>, request: &Request) -> Result<Outcome, ClaimError> {
        let span = self.telemetry.claim_span(|| request.label());
        let told = match self.check(request) {
            Ok(request) => {
                let waiting = self.waiting(&request);
                match span.within(|| self.attempt(&request, waiting.as_ref())) {
                    Ok(Step::Answer(outcome)) => Ok(outcome),
                    Ok(Step::InFlight(busy, _)) if waiting.is_none() => Ok(in_flight(&busy)),
                    Ok(step) => on_this_thread(self.go_on(Caller::Thread, &request, waiting, step, &span))
                        .map_err(|fault| failed(&request, fault)),
                    Err(fault) => Err(failed(&request, fault)),
                }
            }
            Err(error) => Err(error),
        };
        self.count_told(told.as_ref(), &span);
        told
    }

    /// Goes on from a claim's first `step` to its end.
    async fn go_on(
        self: &Arc<Self>,
        caller: Caller,
        request: &Resolved<'_>,
        waiting: Option<Standing<'_>>,
        mut step: Step<'_>,
        span: &Span,
    ) -> Result<Outcome, Fault> {
        loop {
            match span.within(|| self.next(request, waiting.as_ref(), step))? {
                GoOn::Tell(outcome) => return Ok(outcome),
                GoOn::Again => {}
                GoOn::WaitUntil(until) => {
                    if let Some((waiting, _)) = &waiting {
                        span.around(self.pause(caller, waiting.signal(), until)).await?;
                    }
                }
                GoOn::Sync(ticket, ready) => {
                    span.around(self.synced(caller, ticket)).await?;
                    return self.finish(request, ready);
                }
            }
            step = span.within(|| self.attempt(request, waiting.as_ref()))?;
        }
    }

    /// The checked request, unless it is for a key whose work this thread is doing.
    #[inline]
    pub(super) fn check<'a>(&self, request: &'a Request) -> Result<Resolved<'a>, ClaimError> {
        let request = request.resolve(&self.settings.terms)?;
        if Working::is_on(self.identity(), request.key.encoded()) {
            return Err(ClaimError::Nested { key: request.key.label() });
        }
        Ok(request)
    }

    /// The standing of a claimant that waits, and until when it does; `None` for one that does not.
    fn waiting<'a>(&'a self, request: &'a Resolved) -> Option<Standing<'a>> {
        let standing = || Waiting::new(&self.table, request.key.encoded());
        (!request.wait().is_zero()).then(|| (standing(), self.clock.now().after(request.wait())))
    }

    /// Goes from `step` as far as it can without waiting.
    fn next<'a>(
        self: &'a Arc<Self>,
        request: &Resolved<'_>,
        waiting: Option<&Standing<'_>>,
        mut step: Step<'a>,
    ) -> Result<GoOn, Fault> {
        while let Step::Write(write) = step {
            step = match self.write(request, *write)? {
                Landed::Swapped(ready, marked) => {
                    let marks = marked.into_iter().collect();
                    return Ok(GoOn::Sync(Marked::all_returned(self, marks)?, ready));
                }
                Landed::Refused(step) => step,
            };
        }
        Ok(match step {
            Step::Answer(outcome) => GoOn::Tell(outcome),
            Step::Ready(ready) => GoOn::Tell(self.finish(request, *ready)?),
            Step::Again | Step::Write(_) => GoOn::Again,
            Step::InFlight(busy, look_again) => match waiting {
                Some((_, deadline)) if !expired(busy.now, *deadline) => {
                    GoOn::WaitUntil(look_again.map_or(*deadline, |at| at.min(*deadline)))
                }
                _ => GoOn::Tell(in_flight(&busy)),
            },
        })
    }

    /// Counts what a claimant is told, once and for all: nothing that is found out on the way to that counts.
    pub(super) fn count_told(&self, told: Result<&Outcome, &ClaimError>, span: &Span) {
        let counts = &*self.telemetry;
        let (count, state, attempt) = match told {
            Ok(Outcome::Granted(claim)) => {
                self.count_granted(claim);
                return span.state("granted", Some(claim.attempt()));
            }
            Ok(Outcome::Settled(settled)) => {
                let state = match settled {
                    Settled::Completed(_) => "completed",
                    Settled::Failed(_) => "failed",
                    Settled::Omitted(_) => "omitted",
                };
                (&counts.told_settled, state, Some(settled.about().attempt()))
            }
            Ok(Outcome::InFlight(holder)) => (&counts.told_in_flight, "in flight", Some(holder.attempt())),
            Ok(Outcome::Mismatched(_)) => (&counts.told_mismatched, "mismatched", None),
            Ok(Outcome::Interrupted(case)) => (&counts.told_interrupted, "interrupted", Some(case.attempt())),
            Err(error) => {
                span.error(error);
                (&counts.claims_failed, "error", None)
            }
        };
        count.add(1);
        span.state(state, attempt);
    }

    pub(super) fn count_granted(&self, claim: &Claim) {
        self.telemetry.granted.add(1);
        let Some(previous) = claim.previous() else { return };
        let cause = match previous.ended_by {
            EndedBy::LeaseOver => Reclaim::LeaseOver,
            EndedBy::Dropped => Reclaim::Dropped,
            EndedBy::Reopened => Reclaim::Reopened,
        };
        self.telemetry.reclaimed(cause, claim.key().label(), claim.token(), claim.attempt());
    }

    /// Goes as far as it can without writing.
    #[inline]
    pub(super) fn attempt<'a>(
        self: &'a Arc<Self>,
        request: &Resolved<'_>,
        waiting: Option<&Standing<'_>>,
    ) -> Result<Step<'a>, Fault> {
        let key = request.key;
        let queued = waiting.map(|(waiting, _)| waiting);
        // Memory alone refuses most losers.
        let now = self.clock.now();
        let looked = self.table.look(key.encoded(), Purpose::Work(request.fingerprint()), now)?;
        match looked.found {
            Found::Free => {}
            // What was abandoned may have come to nothing, and then it is for nothing.
            Found::Mismatched | Found::InFlight(_) if self.sync_abandoned(key)? => {
                return Ok(Step::Again);
            }
            Found::Mismatched => return Ok(Step::Answer(mismatched(key))),
            Found::InFlight(busy) if waiting.is_none() => {
                if looked.unsynced {
                    self.check_told_unsynced()?;
                }
                return Ok(Step::InFlight(busy, None));
            }
            Found::InFlight(_) => return self.enter(request, queued, None),
        }
        if let Some(record) = looked.recent {
            // A fork must not be told what its parent may have changed since.
            self.check_process()?;
            match self.verdict(key, Some(&record), &self.ask(request, None, None))? {
                Verdict::Grant(_) | Verdict::Interrupt(_) => {} // it is forgotten
                verdict => return self.tell(key, verdict, Some(Record::clone(&record))),
            }
        }
        let Some(seen) = self.read(key)? else { return Ok(Step::Again) };
        match self.verdict(key, seen.record.as_ref(), &self.ask(request, None, None))? {
            Verdict::Grant(_) | Verdict::Interrupt(_) => {
                self.enter(request, queued, Some((seen.bytes, looked.stamp)))
            }
            verdict => {
                self.keep(key, looked.stamp, seen.record.as_ref());
                self.tell(key, verdict, seen.record)
            }
        }
    }

    /// Keeps a settled record in memory, if a sync covers it: of what this opening settled without one that is not known.
    fn keep(&self, key: &Key, looked: Stamp, record: Option<&Record>) {
        if let Some(record) = record.filter(|record| is_short(record) && !self.was_settled_relaxed(record)) {
            self.table.keep(key.encoded(), looked, record.clone());
        }
    }

    /// Tells what the record says. It was read before memory was asked whether it may be told of.
    pub(super) fn tell(
        &self,
        key: &Key,
        verdict: Verdict,
        record: Option<Record>,
    ) -> Result<Step<'static>, Fault> {
        match verdict {
            Verdict::Mismatched => return Ok(Step::Answer(mismatched(key))),
            Verdict::Settled => {
                if let Some(record) = record
                    && let Some(settled) = self.settled(record)?
                {
                    return Ok(Step::Answer(Outcome::Settled(settled)));
                }
            }
            Verdict::Interrupted => {
                if let Some(outcome) = record.and_then(interrupted) {
                    return Ok(Step::Answer(outcome));
                }
            }
            Verdict::Grant(_) | Verdict::Interrupt(_) => {}
        }
        Ok(Step::Again)
    }

    /// What is told of a settled record. While poisoned, not what was stored without a sync by this opening.
    pub(super) fn settled(&self, record: Record) -> Result<Option<Settled>, Fault> {
        if self.was_settled_relaxed(&record)
            && let Some(poisoned) = self.commit.poisoned()
        {
            return Err(poisoned.into());
        }
        Ok(Settled::from_record(record))
    }

    /// Whether the record was settled by this opening without a sync of its own.
    pub(super) fn was_settled_relaxed(&self, record: &Record) -> bool {
        matches!(record.state, State::Settled { .. })
            && record.terms.durability == Durability::Relaxed
            && record.token >= self.tokens.first()
    }

    /// What the record says to a claimant. Damage is told of.
    pub(super) fn verdict(
        &self,
        key: &Key,
        record: Option<&Record>,
        ask: &Ask<'_>,
    ) -> Result<Verdict, Damage> {
        decide::claim(record, ask).inspect_err(|damage| self.telemetry.damaged(key.label(), damage))
    }

    pub(super) fn ask<'a>(
        &self,
        request: &'a Resolved,
        ended: Option<Holder>,
        never_granted: Option<Token>,
    ) -> Ask<'a> {
        Ask {
            fingerprint: request.fingerprint(),
            terms: &request.terms,
            wall: self.wall(),
            opening: Opening { first: self.tokens.first(), ceiling: self.tokens.ceiling() },
            ended,
            never_granted,
        }
    }
}

fn failed(request: &Resolved<'_>, fault: Fault) -> ClaimError {
    ClaimError::Failed { key: request.key.label(), fault }
}

pub(super) fn interrupted(record: Record) -> Option<Outcome> {
    Interrupted::from_record(record).map(Outcome::Interrupted)
}

pub(super) fn mismatched(key: &Key) -> Outcome {
    Outcome::Mismatched(Mismatched { key: key.label() })
}

#[inline]
pub(super) fn in_flight(busy: &Busy) -> Outcome {
    Outcome::InFlight(InFlight {
        token: busy.token,
        attempt: busy.attempt,
        age: busy.now.since(busy.since),
        remaining: busy.deadline.map_or(Duration::ZERO, |deadline| deadline.since(busy.now)),
    })
}
