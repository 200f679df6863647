//! Asking for a key.

use super::Inner;
use super::engine::commit_one;
use super::guard::Claim;
use super::outcome::{InFlight, Interrupted, Mismatched, Outcome, Settled};
use super::request::{Request, Resolved};
use crate::backend::{Commit, Swap};
use crate::clock::{Moment, expired};
use crate::commit::Ticket;
use crate::error::{ClaimError, Fault};
use crate::key::Key;
use crate::lease::{Admitted, Place, Stamp, Waiting};
use crate::protocol::decide::{self, Admission, Ask, Verdict};
use crate::protocol::{Holder, Opening, Purpose};
use crate::record::{Durability, Record, State};
use crate::sync::{Break, Mutex};
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// How one attempt at a claim ended.
enum Step {
    Answer(Outcome),
    InFlight(Holder, Option<Moment>),
    /// Something changed in between: decide anew from the top.
    Again,
    /// Swapped: told once a sync covers it.
    Swapped(Ticket, Swapped),
}

/// What is told once it is durable. Dropping it gives the place up, and the record counts as never granted.
pub(super) struct Swapped {
    /// The place of the claim to be granted; `None` if the key became interrupted.
    place: Option<Place>,
    record: Record,
    bytes: Vec<u8>,
}

/// What a claimant does next.
pub(super) enum Next {
    Tell(Outcome),
    Again,
    /// Wait for the claimant's signal, until then at most.
    WaitUntil(Moment),
    /// Wait for the sync, then [`finish`](Inner::finish).
    Sync(Ticket, Swapped),
}

impl Inner {
    pub(super) fn claim(self: &Arc<Self>, request: &Request) -> Result<Outcome, ClaimError> {
        let request = request.resolve(&self.settings.terms)?;
        let failed = |fault| ClaimError::Failed { key: request.key.label(), fault };
        let deadline = self.clock.now().after(request.wait);
        let waiting = self.waiting(&request);
        loop {
            match self.next(&request, waiting.as_ref(), deadline).map_err(failed)? {
                Next::Tell(outcome) => return Ok(outcome),
                Next::Again => {}
                Next::WaitUntil(until) => {
                    if let Some(waiting) = &waiting {
                        self.clock.wait(waiting.signal(), until);
                    }
                }
                Next::Sync(ticket, swapped) => {
                    self.commit.wait(ticket, self.limit()).map_err(failed)?;
                    return self.finish(&request, swapped).map_err(failed);
                }
            }
        }
    }

    /// The standing of a claimant that waits; `None` for one that does not.
    pub(super) fn waiting<'a>(&'a self, request: &'a Resolved) -> Option<Waiting<'a>> {
        (!request.wait.is_zero()).then(|| Waiting::new(&self.table, request.key.encoded()))
    }

    /// Goes as far as it can without waiting. Threads and tasks take the same steps.
    pub(super) fn next(
        self: &Arc<Self>,
        request: &Resolved,
        waiting: Option<&Waiting<'_>>,
        deadline: Moment,
    ) -> Result<Next, Fault> {
        Ok(match self.attempt(request, waiting)? {
            Step::Answer(outcome) => Next::Tell(outcome),
            Step::Again => Next::Again,
            Step::Swapped(ticket, swapped) => Next::Sync(ticket, swapped),
            Step::InFlight(holder, look_again) => {
                let now = self.clock.now();
                if waiting.is_some() && !expired(now, deadline) {
                    Next::WaitUntil(look_again.map_or(deadline, |at| at.min(deadline)))
                } else {
                    self.counters.in_flight.add(1);
                    Next::Tell(Outcome::InFlight(in_flight(&holder, now)))
                }
            }
        })
    }

    /// Tells what a finished sync has made durable.
    pub(super) fn finish(self: &Arc<Self>, request: &Resolved, swapped: Swapped) -> Result<Outcome, Fault> {
        let Swapped { place, record, bytes } = swapped;
        match place {
            Some(place) => self.granted(request, place, record, Some(bytes)),
            None => self.interrupted(record).ok_or(Fault::Closed),
        }
    }

    fn attempt(self: &Arc<Self>, request: &Resolved, waiting: Option<&Waiting<'_>>) -> Result<Step, Fault> {
        let key = &request.key;
        // Memory alone refuses most losers.
        let looked = self.table.look(key.encoded(), Purpose::Work(request.fingerprint));
        let (admission, stamp) = looked.map_err(|_| Fault::Closed)?;
        match admission {
            Admission::Free { .. } => {}
            Admission::Mismatched => return Ok(self.mismatched(key)),
            Admission::InFlight(holder) if waiting.is_none() => {
                self.is_unsynced(key)?;
                return Ok(Step::InFlight(holder, None));
            }
            Admission::InFlight(_) => return self.enter(request, waiting, None),
        }
        let Some(seen) = self.read(key)? else { return Ok(Step::Again) };
        match decide::claim(seen.record.as_ref(), &self.ask(request, None, None))? {
            Verdict::Grant(_) | Verdict::Interrupt(_) => {
                self.enter(request, waiting, Some((seen.bytes, stamp)))
            }
            verdict => self.tell(key, verdict, seen.record),
        }
    }

    /// Takes the key's place, or the claimant's place among those who wait for it.
    fn enter(
        self: &Arc<Self>,
        request: &Resolved,
        waiting: Option<&Waiting<'_>>,
        seen: Option<(Option<Vec<u8>>, Stamp)>,
    ) -> Result<Step, Fault> {
        let key = &request.key;
        let looked = seen.as_ref().map(|(_, stamp)| *stamp);
        match self.table.admit(key.encoded(), Purpose::Work(request.fingerprint), waiting, looked) {
            Admitted::Place { place, ended, undisturbed } => {
                // A swap finds out by itself whether what was seen still stands. A claim that is kept in memory
                // makes none, so it looks again unless nothing can have happened.
                let stands =
                    undisturbed || request.terms.durability == Durability::Full || Break::StaleLook.is();
                let seen = seen.map(|(bytes, _)| bytes).filter(|_| stands);
                self.take(request, place, ended, seen)
            }
            Admitted::InFlight { holder, look_again } => {
                // While poisoned an unsynced key is unknown, and nobody who waits will be granted anything.
                self.is_unsynced(key)?;
                if waiting.is_some() {
                    self.check_writable()?;
                }
                Ok(Step::InFlight(holder, look_again))
            }
            Admitted::Mismatched => Ok(self.mismatched(key)),
            Admitted::Closed => Err(Fault::Closed),
        }
    }

    /// Decides with the place in hand. Whatever goes wrong, dropping the place leaves nothing behind (rule 10).
    fn take(
        self: &Arc<Self>,
        request: &Resolved,
        mut place: Place,
        ended: Option<Holder>,
        seen: Option<Option<Vec<u8>>>,
    ) -> Result<Step, Fault> {
        self.check_writable()?;
        let key = &request.key;
        let engine = self.engine.get()?;
        let mut seen = match seen {
            Some(seen) => seen,
            None => engine.read(key.encoded())?,
        };
        loop {
            if self.is_unsynced(key)? {
                return Ok(Step::Again);
            }
            let record = seen.as_deref().map(Record::decode).transpose()?;
            if record.as_ref().map(|record| record.token) != place.never_granted() {
                place.set_never_granted(None);
            }
            let ask = self.ask(request, ended, place.never_granted());
            let (new, grant) = match decide::claim(record.as_ref(), &ask)? {
                Verdict::Grant(grant) => {
                    let token = self.draw_token()?;
                    let new = decide::grant(record.as_ref(), grant, token, &ask)?;
                    if !grant.durable {
                        return self.granted(request, place, new, None).map(Step::Answer);
                    }
                    (new, true)
                }
                Verdict::Interrupt(ended_by) => {
                    let Some(record) = &record else { return Ok(Step::Again) };
                    (decide::interrupted(record, ended_by), false)
                }
                verdict => {
                    drop(place);
                    return self.tell(key, verdict, record);
                }
            };
            let bytes = new.encode();
            let before = place.never_granted();
            // An interruption is told after its sync, by whoever tells of it (rule 5).
            let interrupting = if grant {
                // From here to the grant an error or a panic can leave a record that nobody was granted (rule 15).
                place.set_never_granted(Some(new.token));
                None
            } else {
                let holder = Holder { purpose: Purpose::Work(request.fingerprint), ..self.upkeep() };
                Some(self.mark(key, holder, None, false).map_err(|_| Fault::Closed)?)
            };
            match commit_one(&*engine, &Commit::swap(key.encoded(), seen.as_deref(), Some(&bytes))) {
                Ok(Swap::Done) => {}
                Ok(Swap::Refused { current }) => {
                    place.set_never_granted(before);
                    if let Some(marked) = interrupting {
                        marked.clear();
                    }
                    seen = current;
                    continue;
                }
                // Its fate is unknown: look (P9). If it did not land, the error is told and nothing is held.
                Err(error) => {
                    if engine.read(key.encoded())?.as_deref() != Some(&bytes[..]) {
                        place.set_never_granted(before);
                        return Err(error.into());
                    }
                }
            }
            let (ticket, place) = match interrupting {
                Some(marked) => {
                    drop(place);
                    (marked.returned()?, None)
                }
                None => (self.commit.ticket(None)?, Some(place)),
            };
            return Ok(Step::Swapped(ticket, Swapped { place, record: new, bytes }));
        }
    }

    /// What memory says of a write that is no claim's own.
    pub(super) fn upkeep(&self) -> Holder {
        let since = self.clock.now();
        Holder { token: None, attempt: 0, purpose: Purpose::Upkeep, since, deadline: None }
    }

    /// Waits for a sync that covers the write that has just returned.
    pub(super) fn wait_for_sync(&self) -> Result<(), Fault> {
        let ticket = self.commit.ticket(None)?;
        self.commit.wait(ticket, self.limit())
    }

    /// The lease starts now, when the grant is told (rule 15).
    fn granted(
        self: &Arc<Self>,
        request: &Resolved,
        mut place: Place,
        record: Record,
        stored: Option<Vec<u8>>,
    ) -> Result<Outcome, Fault> {
        let now = self.clock.now();
        let holder = Holder {
            token: Some(record.token),
            attempt: record.attempt,
            purpose: Purpose::Work(request.fingerprint),
            since: now,
            deadline: Some(now.after(request.terms.lease)),
        };
        place.grant(holder).map_err(|_| Fault::Closed)?;
        self.counters.granted.add(1);
        if matches!(record.state, State::Pending { previous: Some(_), .. }) {
            self.counters.reclaimed.add(1);
        }
        Ok(Outcome::Granted(Claim {
            store: Arc::clone(self),
            key: request.key.clone(),
            record: Box::new(record),
            since: now,
            stored,
            place: Some(place),
            renewal: Mutex::default(),
        }))
    }

    /// Tells what the record says. It was read before memory was asked whether it may be told of.
    fn tell(&self, key: &Key, verdict: Verdict, record: Option<Record>) -> Result<Step, Fault> {
        match verdict {
            Verdict::Mismatched => return Ok(self.mismatched(key)),
            Verdict::Settled => {
                if let Some(record) = record
                    && let Some(settled) = self.settled(record)?
                {
                    self.counters.settled.add(1);
                    return Ok(Step::Answer(Outcome::Settled(settled)));
                }
            }
            Verdict::Interrupted => {
                if let Some(outcome) = record.and_then(|record| self.interrupted(record)) {
                    return Ok(Step::Answer(outcome));
                }
            }
            Verdict::Grant(_) | Verdict::Interrupt(_) => {}
        }
        Ok(Step::Again)
    }

    /// What is told of a settled record. While poisoned, not what was stored without a sync by this opening.
    pub(super) fn settled(&self, record: Record) -> Result<Option<Settled>, Fault> {
        let unsynced = record.terms.durability == Durability::Relaxed && record.token >= self.tokens.first();
        if unsynced && let Some(poisoned) = self.commit.poisoned() {
            return Err(poisoned.into());
        }
        Ok(Settled::from_record(record))
    }

    fn interrupted(&self, record: Record) -> Option<Outcome> {
        let interrupted = Interrupted::from_record(record)?;
        self.counters.interrupted.add(1);
        Some(Outcome::Interrupted(interrupted))
    }

    fn mismatched(&self, key: &Key) -> Step {
        self.counters.mismatched.add(1);
        Step::Answer(Outcome::Mismatched(Mismatched { key: key.label() }))
    }

    fn ask<'a>(&self, request: &'a Resolved, ended: Option<Holder>, never_granted: Option<Token>) -> Ask<'a> {
        Ask {
            fingerprint: request.fingerprint,
            terms: &request.terms,
            wall: self.clock.wall(),
            opening: Opening { first: self.tokens.first(), ceiling: self.tokens.ceiling() },
            ended,
            never_granted,
        }
    }
}

fn in_flight(holder: &Holder, now: Moment) -> InFlight {
    InFlight {
        token: holder.token,
        attempt: holder.attempt,
        age: now.since(holder.since),
        remaining: holder.deadline.map_or(Duration::ZERO, |deadline| deadline.since(now)),
    }
}
