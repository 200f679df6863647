//! Many claims at once: each for itself, or all or none.

use super::caller::{Caller, on_this_thread};
use super::claim::{Step, in_flight, mismatched};
use super::engine::{commit_each, commit_one};
use super::guard::Claim;
use super::marked::Marked;
use super::outcome::Outcome;
use super::request::{Request, Resolved};
use super::take::{Landed, Ready, Write};
use super::{Inner, Store};
use crate::backend::{Commit, Swap};
use crate::clock::expired;
use crate::error::{ClaimError, Fault, StorageError};
use crate::lease::{Busy, Queued, Waiting};
use crate::protocol::Purpose;
use crate::sync::Break;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What [`Store::claim_all`] answers.
#[derive(Debug)]
#[must_use = "granted claims that are dropped end at once"]
pub enum AllClaimed {
    /// All keys are the caller's, in the order of the requests; a key that was asked for twice is there once.
    Granted(Vec<Claim>),
    /// One could not be had, so none was taken.
    Refused {
        /// The number of that request, from 0.
        index: usize,
        /// What it was told.
        outcome: Outcome,
    },
}

impl Store {
    /// Claims many keys, each for itself: one answer for each, in order. The stored claims among them go to the
    /// engine in one call and under one sync. Nothing is waited for: a key that is in flight is told so, also if
    /// an earlier request of the same batch has it. All leases start when the batch is told.
    ///
    /// # Errors
    /// Each answer as that of [`claim`](Self::claim).
    pub fn claim_many<R: Into<Request>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Outcome, ClaimError>> {
        let requests = requests.into_iter().map(Into::into).collect();
        on_this_thread(self.0.claim_many(Caller::Thread, requests))
    }

    /// Claims all keys or none. The places are taken in the order of the keys, so that two callers who ask for the
    /// same keys never wait for each other; while one is waited for, as long as the longest
    /// [wait](Request::wait) of the requests, none is held. All leases start when all are granted.
    ///
    /// Claims that had been stored when one was refused are swapped back to exactly what was there.
    ///
    /// Two requests for one key are one claim, so they must say the same but for how long they wait. With another
    /// fingerprint the later one is told that it is mismatched, whatever is stored.
    ///
    /// # Errors
    /// [`ClaimError`] of the first key that failed; [`ClaimError::InvalidRequest`] if two requests ask for one key on
    /// different terms. No error grants a key.
    pub fn claim_all<R: Into<Request>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<AllClaimed, ClaimError> {
        let requests = requests.into_iter().map(Into::into).collect();
        on_this_thread(self.0.claim_all(Caller::Thread, requests))
    }
}

/// A request whose record is to be swapped in with the others.
struct Planned<'a> {
    index: usize,
    request: &'a Resolved<'a>,
    write: Write<'a>,
}

impl Inner {
    pub(super) async fn claim_many(
        self: &Arc<Self>,
        caller: Caller,
        requests: Vec<Request>,
    ) -> Vec<Result<Outcome, ClaimError>> {
        let span = self.telemetry.claims_span(requests.len());
        let told = span.around(self.claim_each(caller, requests)).await;
        for told in &told {
            self.count_told(told.as_ref(), &span);
        }
        span.count("granted", told.iter().filter(|told| matches!(told, Ok(Outcome::Granted(_)))).count());
        told
    }

    async fn claim_each(
        self: &Arc<Self>,
        caller: Caller,
        requests: Vec<Request>,
    ) -> Vec<Result<Outcome, ClaimError>> {
        let resolved: Vec<_> = requests.iter().map(|request| self.check(request)).collect();
        let mut answers: Vec<Option<Result<Outcome, Fault>>> = resolved.iter().map(|_| None).collect();
        let (mut ready, mut marks) = (Vec::new(), Vec::new());
        let undecided = resolved.iter().enumerate();
        let mut undecided: Vec<(usize, &Resolved, Step<'_>)> = undecided
            .filter_map(|(index, request)| Some((index, request.as_ref().ok()?, Step::Again)))
            .collect();
        // Once, unless another gets in between: what follows from that is decided and written in a further round.
        while !undecided.is_empty() {
            let mut planned = Vec::new();
            for (index, request, step) in std::mem::take(&mut undecided) {
                let answer = match self.plan(request, step) {
                    Ok(Step::Write(write)) => {
                        planned.push(Planned { index, request, write: *write });
                        continue;
                    }
                    Ok(Step::Ready(done)) => {
                        ready.push((index, request, *done));
                        continue;
                    }
                    Ok(Step::Answer(outcome)) => Ok(outcome),
                    Ok(Step::InFlight(busy, _)) => Ok(in_flight(&busy)),
                    Ok(Step::Again) => {
                        undecided.push((index, request, Step::Again));
                        continue;
                    }
                    Err(fault) => Err(fault),
                };
                answers[index] = Some(answer);
            }
            let swaps = self.commit_all(&mut planned);
            for (Planned { index, request, write }, swap) in planned.into_iter().zip(swaps) {
                match swap.and_then(|swap| self.landed(request, write, swap)) {
                    Ok(Landed::Swapped(done, marked)) => {
                        marks.extend(marked);
                        ready.push((index, request, done));
                    }
                    Ok(Landed::Refused(step)) => undecided.push((index, request, step)),
                    Err(fault) => answers[index] = Some(Err(fault)),
                }
            }
        }
        let synced = match ready.iter().any(|(_, _, done)| done.is_stored()) {
            false => Ok(()),
            true => match Marked::all_returned(self, marks) {
                Ok(ticket) => self.synced(caller, ticket).await,
                Err(fault) => Err(fault),
            },
        };
        // All at the end: every lease starts when the batch is told (rule 15).
        for (index, request, done) in ready {
            let may = if done.is_stored() { synced.clone() } else { self.check_writable() };
            answers[index] = Some(may.and_then(|()| self.finish(request, done)));
        }
        let told = answers.into_iter().zip(&resolved).map(|(answer, request)| {
            let request = request.as_ref().map_err(ClaimError::clone)?;
            let failed = |fault| ClaimError::Failed { key: request.key.label(), fault };
            answer.unwrap_or(Err(Fault::Closed)).map_err(failed)
        });
        told.collect()
    }

    /// Goes on from `step` as far as it can without writing; a record that moved under the look is looked at again.
    fn plan<'a>(self: &'a Arc<Self>, request: &Resolved<'_>, mut step: Step<'a>) -> Result<Step<'a>, Fault> {
        while let Step::Again = step {
            step = self.attempt(request, None)?;
        }
        Ok(step)
    }

    /// Swaps in what was planned, in one call to the engine.
    fn commit_all(&self, planned: &mut [Planned<'_>]) -> Vec<Result<Result<Swap, StorageError>, Fault>> {
        if planned.is_empty() {
            return Vec::new();
        }
        let engine = match self.engine.get() {
            Ok(engine) => engine,
            Err(fault) => return planned.iter().map(|_| Err(fault.clone())).collect(),
        };
        let commits: Vec<Commit<'_>> =
            planned.iter_mut().map(|planned| planned.write.commit(planned.request.key)).collect();
        commit_each(&*engine, &commits).into_iter().map(Ok).collect()
    }

    pub(super) async fn claim_all(
        self: &Arc<Self>,
        caller: Caller,
        requests: Vec<Request>,
    ) -> Result<AllClaimed, ClaimError> {
        let span = self.telemetry.claims_span(requests.len());
        let told = span.around(self.claim_together(caller, requests)).await;
        match &told {
            Ok(AllClaimed::Granted(claims)) => {
                span.count("granted", claims.len());
                claims.iter().for_each(|claim| self.count_granted(claim));
            }
            // Of all the requests this one was told something.
            Ok(AllClaimed::Refused { outcome, .. }) => self.count_told(Ok(outcome), &span),
            Err(error) => self.count_told(Err(error), &span),
        }
        told
    }

    async fn claim_together(
        self: &Arc<Self>,
        caller: Caller,
        requests: Vec<Request>,
    ) -> Result<AllClaimed, ClaimError> {
        let resolved: Vec<Resolved> =
            requests.iter().map(|request| self.check(request)).collect::<Result<_, _>>()?;
        let mut first = BTreeMap::new();
        for (index, request) in resolved.iter().enumerate() {
            let earlier = *first.entry(request.key.encoded()).or_insert(index);
            if earlier == index {
                continue;
            }
            let earlier: &Resolved = &resolved[earlier];
            if request.fingerprint() != earlier.fingerprint() {
                return Ok(AllClaimed::Refused { index, outcome: mismatched(request.key) });
            }
            request.check_same(earlier)?;
        }
        let order: Vec<usize> = first.into_values().collect();
        let wait = resolved.iter().map(|request| request.wait()).max().unwrap_or_default();
        let deadline = self.clock.now().after(wait);
        loop {
            let (index, refused) = match self.all_once(caller, &resolved, &order).await {
                Ok(mut claims) => {
                    claims.sort_by_key(|(index, _)| *index);
                    return Ok(AllClaimed::Granted(claims.into_iter().map(|(_, claim)| claim).collect()));
                }
                Err(refused) => refused,
            };
            let request = &resolved[index];
            match refused {
                Refused::Told(outcome) => return Ok(AllClaimed::Refused { index, outcome: *outcome }),
                Refused::Again => {}
                Refused::InFlight(busy) => {
                    if expired(self.clock.now(), deadline) {
                        return Ok(AllClaimed::Refused { index, outcome: in_flight(&busy) });
                    }
                    // Holding nothing, wait for that one key; what is told then is not taken, but looked at anew.
                    let left = deadline.since(self.clock.now());
                    self.wait_for(caller, request, left)
                        .await
                        .map_err(|fault| ClaimError::Failed { key: request.key.label(), fault })?;
                }
                Refused::Failed(fault) => {
                    return Err(ClaimError::Failed { key: request.key.label(), fault });
                }
            }
        }
    }

    /// Waits until the key is not in flight, for `limit` at most, without taking it.
    async fn wait_for(
        self: &Arc<Self>,
        caller: Caller,
        request: &Resolved<'_>,
        limit: Duration,
    ) -> Result<(), Fault> {
        let deadline = self.clock.now().after(limit);
        let waiting = Waiting::new(&self.table, request.key.encoded());
        loop {
            let purpose = Purpose::Work(request.fingerprint());
            let look_again = match self.table.queue(purpose, &waiting).map_err(|_| Fault::Closed)? {
                Queued::Free => return Ok(()),
                Queued::Waits { look_again } => look_again,
            };
            self.check_writable()?;
            if self.sync_abandoned(request.key)? {
                continue;
            }
            if expired(self.clock.now(), deadline) {
                return Ok(());
            }
            let until = look_again.map_or(deadline, |at| at.min(deadline));
            self.pause(caller, waiting.signal(), until).await?;
        }
    }

    /// Takes all places in order and, if none was refused, swaps all records in and grants all keys. On any failure
    /// what was swapped in is swapped back to exactly what was there, before its place is given up (rule 24).
    async fn all_once(
        self: &Arc<Self>,
        caller: Caller,
        resolved: &[Resolved<'_>],
        order: &[usize],
    ) -> Result<Vec<(usize, Claim)>, (usize, Refused)> {
        let (mut planned, mut ready) = (Vec::new(), Vec::new());
        for &index in order {
            let request = &resolved[index];
            let refused = match self.plan(request, Step::Again) {
                Ok(Step::Write(write)) => {
                    planned.push(Planned { index, request, write: *write });
                    continue;
                }
                Ok(Step::Ready(done)) => {
                    ready.push((index, *done));
                    continue;
                }
                Ok(Step::Answer(outcome)) => Refused::Told(Box::new(outcome)),
                Ok(Step::InFlight(busy, _)) => Refused::InFlight(busy),
                Ok(Step::Again) => Refused::Again,
                Err(fault) => Refused::Failed(fault),
            };
            return Err((index, refused));
        }
        // One that becomes interrupted is refused, so it is written alone, and the others are not.
        if let Some(at) = planned.iter().position(|planned| planned.write.is_interruption()) {
            let Planned { index, request, write } = planned.swap_remove(at);
            drop((planned, ready));
            let told = self.interrupt(caller, request, write).await;
            return Err((index, told.unwrap_or_else(Refused::Failed)));
        }
        ready.extend(self.swap_all(caller, planned).await?);
        // All at the end: every lease starts when they are told (rule 15).
        let mut granted = Vec::with_capacity(ready.len());
        for (index, done) in ready {
            match self.finish(&resolved[index], done) {
                Ok(Outcome::Granted(claim)) => granted.push((index, claim)),
                Ok(outcome) => return Err((index, Refused::Told(Box::new(outcome)))),
                Err(fault) => return Err((index, Refused::Failed(fault))),
            }
        }
        Ok(granted)
    }

    /// Makes a key interrupted, and tells that once it is durable.
    async fn interrupt<'a>(
        self: &'a Arc<Self>,
        caller: Caller,
        request: &Resolved<'_>,
        write: Write<'a>,
    ) -> Result<Refused, Fault> {
        let (ready, marked) = match self.write(request, write)? {
            Landed::Swapped(ready, marked) => (ready, marked),
            Landed::Refused(_) => return Ok(Refused::Again),
        };
        let ticket = Marked::all_returned(self, marked.into_iter().collect())?;
        self.synced(caller, ticket).await?;
        Ok(Refused::Told(Box::new(self.finish(request, ready)?)))
    }

    /// Swaps all records in and makes them durable, or swaps those back that had landed.
    async fn swap_all(
        self: &Arc<Self>,
        caller: Caller,
        mut planned: Vec<Planned<'_>>,
    ) -> Result<Vec<(usize, Ready)>, (usize, Refused)> {
        let Some(first) = planned.first().map(|planned| planned.index) else { return Ok(Vec::new()) };
        let swaps = self.commit_all(&mut planned);
        let (mut done, mut refused) = (Vec::new(), None);
        for (Planned { index, request, write }, swap) in planned.into_iter().zip(swaps) {
            let undo = write.undo();
            match swap.and_then(|swap| self.landed(request, write, swap)) {
                Ok(Landed::Swapped(ready, _)) => done.push((index, request, undo, ready)),
                // The first is told.
                Ok(Landed::Refused(_)) => {
                    refused.get_or_insert((index, Refused::Again));
                }
                Err(fault) => {
                    refused.get_or_insert((index, Refused::Failed(fault)));
                }
            }
        }
        let synced = match &refused {
            Some(_) => Ok(()),
            None => self.next_sync(caller).await,
        };
        if let Err(fault) = synced {
            refused = Some((first, Refused::Failed(fault)));
        }
        let Some(refused) = refused else {
            return Ok(done.into_iter().map(|(index, _, _, ready)| (index, ready)).collect());
        };
        for (_, request, undo, mut ready) in done {
            if Break::NotSwappedBack.is() {
                continue;
            }
            // A record that cannot be taken back, or has moved on, stays; memory knows that it was never granted.
            let (before, after) = undo;
            let back = Commit::swap(request.key.encoded(), Some(&after), before.as_deref());
            if let Ok(engine) = self.engine.get()
                && let Ok(Swap::Done) = commit_one(&*engine, &back)
            {
                ready.taken_back();
            }
        }
        Err(refused)
    }
}

/// Why not all keys could be had.
enum Refused {
    Told(Box<Outcome>),
    InFlight(Busy),
    /// Something moved; decide anew.
    Again,
    Failed(Fault),
}
