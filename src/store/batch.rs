//! Many claims at once: each for itself, or all or none.

use super::caller::{Caller, on_this_thread};
use super::claim::{Next, Step};
use super::engine::commit_one;
use super::guard::Claim;
use super::marked::Marked;
use super::outcome::Outcome;
use super::request::{Request, Resolved};
use super::take::{Landed, Write};
use super::{Inner, Store};
use crate::backend::{Commit, Swap};
use crate::clock::expired;
use crate::error::{ClaimError, Fault};
use crate::lease::{Queued, Waiting};
use crate::protocol::{Holder, Purpose};
use std::collections::BTreeSet;
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
    /// an earlier request of the same batch has it.
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
    /// [wait](Request::wait) of the requests, none is held.
    ///
    /// Claims that had been stored when one was refused are swapped back to exactly what was there.
    ///
    /// # Errors
    /// [`ClaimError`] of the first key that failed. No error grants a key.
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
    write: Write<'a>,
}

impl Inner {
    pub(super) async fn claim_many(
        self: &Arc<Self>,
        caller: Caller,
        requests: Vec<Request>,
    ) -> Vec<Result<Outcome, ClaimError>> {
        let resolved: Vec<_> =
            requests.iter().map(|request| self.check(&request.clone().wait(Duration::ZERO))).collect();
        let mut answers: Vec<Option<Result<Outcome, Fault>>> = Vec::with_capacity(resolved.len());
        let mut planned = Vec::new();
        for (index, request) in resolved.iter().enumerate() {
            answers.push(match request {
                Err(_) => None,
                Ok(request) => match self.plan(request) {
                    Ok(Step::Write(write)) => {
                        planned.push(Planned { index, write: *write });
                        None
                    }
                    Ok(Step::Answer(outcome)) => Some(Ok(outcome)),
                    Ok(Step::InFlight(holder, _)) => Some(Ok(self.told_in_flight(&holder))),
                    Ok(Step::Again) => Some(self.alone(caller, request).await),
                    Err(fault) => Some(Err(fault)),
                },
            });
        }
        for (index, answer) in self.land(caller, &resolved, planned).await {
            answers[index] = Some(answer);
        }
        let told = answers.into_iter().zip(resolved).map(|(answer, request)| {
            let request = request?;
            let failed = |fault| ClaimError::Failed { key: request.key.label(), fault };
            answer.unwrap_or(Err(Fault::Closed)).map_err(failed)
        });
        told.collect()
    }

    /// Goes as far as it can without writing; a record that moved under the look is looked at again.
    fn plan<'a>(self: &'a Arc<Self>, request: &Resolved) -> Result<Step<'a>, Fault> {
        loop {
            match self.attempt(request, None)? {
                Step::Again => {}
                step => return Ok(step),
            }
        }
    }

    /// A claim by itself, which does not wait.
    async fn alone(self: &Arc<Self>, caller: Caller, request: &Resolved) -> Result<Outcome, Fault> {
        loop {
            match self.next(request, None, self.clock.now())? {
                Next::Tell(outcome) => return Ok(outcome),
                Next::Again | Next::WaitUntil(_) => {}
                Next::Sync(ticket, swapped) => {
                    self.synced(caller, ticket).await?;
                    return self.finish(request, swapped);
                }
            }
        }
    }

    /// Swaps in what was planned, in one call to the engine, and tells it under one sync.
    async fn land<'a>(
        self: &'a Arc<Self>,
        caller: Caller,
        resolved: &[Result<Resolved, ClaimError>],
        planned: Vec<Planned<'a>>,
    ) -> Vec<(usize, Result<Outcome, Fault>)> {
        let mut planned: Vec<_> = planned
            .into_iter()
            .filter_map(|planned| Some((resolved[planned.index].as_ref().ok()?, planned)))
            .collect();
        if planned.is_empty() {
            return Vec::new();
        }
        let engine = match self.engine.get() {
            Ok(engine) => engine,
            Err(fault) => {
                return planned.iter().map(|(_, planned)| (planned.index, Err(fault.clone()))).collect();
            }
        };
        let commits: Vec<Commit<'_>> =
            planned.iter_mut().map(|(request, planned)| planned.write.commit(&request.key)).collect();
        let swaps = engine.commit(&commits);
        drop((commits, engine));
        let (mut answers, mut marks, mut swapped) = (Vec::new(), Vec::new(), Vec::new());
        for ((request, Planned { index, write }), swap) in planned.into_iter().zip(swaps) {
            match self.landed(request, write, swap) {
                Ok(Landed::Swapped(done, marked)) => {
                    marks.extend(marked);
                    swapped.push((index, request, done));
                }
                // Another got in between; the place went with the step, so it is decided anew.
                Ok(Landed::Refused(step)) => {
                    drop(step);
                    answers.push((index, self.alone(caller, request).await));
                }
                Err(fault) => answers.push((index, Err(fault))),
            }
        }
        if swapped.is_empty() {
            return answers;
        }
        let synced = match Marked::all_returned(self, marks) {
            Ok(ticket) => self.synced(caller, ticket).await,
            Err(fault) => Err(fault),
        };
        for (index, request, done) in swapped {
            let answer = synced.clone().and_then(|()| self.finish(request, done));
            answers.push((index, answer));
        }
        answers
    }

    pub(super) async fn claim_all(
        self: &Arc<Self>,
        caller: Caller,
        requests: Vec<Request>,
    ) -> Result<AllClaimed, ClaimError> {
        let resolved: Vec<Resolved> =
            requests.iter().map(|request| self.check(request)).collect::<Result<_, _>>()?;
        let mut seen = BTreeSet::new();
        let mut order: Vec<usize> =
            (0..resolved.len()).filter(|index| seen.insert(resolved[*index].key.encoded())).collect();
        order.sort_by_key(|index| resolved[*index].key.encoded());
        let wait = resolved.iter().map(|request| request.wait).max().unwrap_or_default();
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
                Refused::InFlight(holder) => {
                    if expired(self.clock.now(), deadline) {
                        return Ok(AllClaimed::Refused { index, outcome: self.told_in_flight(&holder) });
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
        request: &Resolved,
        limit: Duration,
    ) -> Result<(), Fault> {
        let deadline = self.clock.now().after(limit);
        let waiting = Waiting::new(&self.table, request.key.encoded());
        loop {
            let purpose = Purpose::Work(request.fingerprint);
            let look_again = match self.table.queue(purpose, &waiting).map_err(|_| Fault::Closed)? {
                Queued::Free => return Ok(()),
                Queued::Waits { look_again } => look_again,
            };
            self.check_writable()?;
            if self.sync_abandoned(&request.key)? {
                continue;
            }
            if expired(self.clock.now(), deadline) {
                return Ok(());
            }
            let until = look_again.map_or(deadline, |at| at.min(deadline));
            self.pause(caller, waiting.signal(), until).await?;
        }
    }

    /// Takes all places in order and, if none was refused, swaps all records in. On any failure what was swapped
    /// in is swapped back to exactly what was there, before its place is given up (rule 24).
    async fn all_once(
        self: &Arc<Self>,
        caller: Caller,
        resolved: &[Resolved],
        order: &[usize],
    ) -> Result<Vec<(usize, Claim)>, (usize, Refused)> {
        let mut writes: Vec<(usize, Write<'_>)> = Vec::new();
        let mut granted = Vec::new();
        for &index in order {
            let refused = match self.plan(&resolved[index]) {
                Ok(Step::Write(write)) => {
                    writes.push((index, *write));
                    continue;
                }
                // In memory, nothing was written: dropping it would cost nothing but an attempt that never was.
                Ok(Step::Answer(Outcome::Granted(claim))) => {
                    granted.push((index, claim));
                    continue;
                }
                Ok(Step::Answer(outcome)) => Refused::Told(Box::new(outcome)),
                Ok(Step::InFlight(holder, _)) => Refused::InFlight(holder),
                Ok(Step::Again) => Refused::Again,
                Err(fault) => Refused::Failed(fault),
            };
            return Err((index, refused));
        }
        // One that becomes interrupted is refused, so it is written alone, and the others are not.
        if let Some(at) = writes.iter().position(|(_, write)| write.is_interruption()) {
            let (index, write) = writes.swap_remove(at);
            drop((writes, granted));
            let told = self.interrupt(caller, &resolved[index], write).await;
            return Err((index, told.unwrap_or_else(Refused::Failed)));
        }
        granted.extend(self.swap_all(caller, resolved, writes).await?);
        Ok(granted)
    }

    /// Makes a key interrupted, and tells that once it is durable.
    async fn interrupt<'a>(
        self: &'a Arc<Self>,
        caller: Caller,
        request: &Resolved,
        write: Write<'a>,
    ) -> Result<Refused, Fault> {
        let (swapped, marked) = match self.write(request, write)? {
            Landed::Swapped(swapped, marked) => (swapped, marked),
            Landed::Refused(_) => return Ok(Refused::Again),
        };
        let ticket = Marked::all_returned(self, marked.into_iter().collect())?;
        self.synced(caller, ticket).await?;
        Ok(Refused::Told(Box::new(self.finish(request, swapped)?)))
    }

    /// Swaps all records in and grants them, or swaps those back that had landed.
    async fn swap_all<'a>(
        self: &'a Arc<Self>,
        caller: Caller,
        resolved: &[Resolved],
        mut writes: Vec<(usize, Write<'a>)>,
    ) -> Result<Vec<(usize, Claim)>, (usize, Refused)> {
        let Some(first) = writes.first().map(|(index, _)| *index) else { return Ok(Vec::new()) };
        let engine = self.engine.get().map_err(|fault| (first, Refused::Failed(fault)))?;
        let commits: Vec<Commit<'_>> =
            writes.iter_mut().map(|(index, write)| write.commit(&resolved[*index].key)).collect();
        let swaps = engine.commit(&commits);
        drop((commits, engine));
        let (mut done, mut refused) = (Vec::new(), None);
        for ((index, write), swap) in writes.into_iter().zip(swaps) {
            let undo = write.undo();
            match self.landed(&resolved[index], write, swap) {
                Ok(Landed::Swapped(swapped, _)) => done.push((index, undo, swapped)),
                Ok(Landed::Refused(_)) => refused = Some((index, Refused::Again)),
                Err(fault) => refused = Some((index, Refused::Failed(fault))),
            }
        }
        let synced = match &refused {
            Some(_) => Ok(()),
            None => self.next_sync(caller).await,
        };
        if let Err(fault) = synced {
            refused = Some((first, Refused::Failed(fault)));
        }
        if let Some(refused) = refused {
            for (index, undo, mut swapped) in done {
                // A record that cannot be taken back, or has moved on, stays; memory knows that it was never granted.
                let (before, after) = undo;
                let back = Commit::swap(resolved[index].key.encoded(), Some(&after), before.as_deref());
                if let Ok(engine) = self.engine.get()
                    && let Ok(Swap::Done) = commit_one(&*engine, &back)
                {
                    swapped.taken_back();
                }
            }
            return Err(refused);
        }
        let mut granted = Vec::with_capacity(done.len());
        for (index, _, swapped) in done {
            match self.finish(&resolved[index], swapped) {
                Ok(Outcome::Granted(claim)) => granted.push((index, claim)),
                Ok(outcome) => return Err((index, Refused::Told(Box::new(outcome)))),
                Err(fault) => return Err((index, Refused::Failed(fault))),
            }
        }
        Ok(granted)
    }
}

/// Why not all keys could be had.
enum Refused {
    Told(Box<Outcome>),
    InFlight(Holder),
    /// Something moved; decide anew.
    Again,
    Failed(Fault),
}
