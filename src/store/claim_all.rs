//! Many claims at once, all or none (rule 24).

use super::batch::Planned;
use super::caller::{Caller, on_this_thread};
use super::claim::{Step, in_flight, mismatched};
use super::engine::commit_one;
use super::guard::Claim;
use super::marked::Marked;
use super::outcome::Outcome;
use super::request::{Request, Resolved};
use super::take::{Landed, Ready, Write};
use super::{Inner, Store};
use crate::backend::{Commit, Swap};
use crate::clock::expired;
use crate::error::{ClaimError, Fault};
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

impl Inner {
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
                Missed::Told(outcome) => return Ok(AllClaimed::Refused { index, outcome: *outcome }),
                Missed::Again => {}
                Missed::InFlight(busy) => {
                    if expired(self.clock.now(), deadline) {
                        return Ok(AllClaimed::Refused { index, outcome: in_flight(&busy) });
                    }
                    // Holding nothing, wait for that one key; what is told then is not taken, but looked at anew.
                    let left = deadline.since(self.clock.now());
                    self.wait_for(caller, request, left)
                        .await
                        .map_err(|fault| ClaimError::Failed { key: request.key.label(), fault })?;
                }
                Missed::Failed(fault) => {
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
            let look_again = match self.table.queue(purpose, &waiting)? {
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
    ) -> Result<Vec<(usize, Claim)>, (usize, Missed)> {
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
                Ok(Step::Answer(outcome)) => Missed::Told(Box::new(outcome)),
                Ok(Step::InFlight(busy, _)) => Missed::InFlight(busy),
                Ok(Step::Again) => Missed::Again,
                Err(fault) => Missed::Failed(fault),
            };
            return Err((index, refused));
        }
        // One that becomes interrupted is refused, so it is written alone, and the others are not.
        if let Some(at) = planned.iter().position(|planned| planned.write.is_interruption()) {
            let Planned { index, request, write } = planned.swap_remove(at);
            drop((planned, ready));
            let told = self.interrupt(caller, request, write).await;
            return Err((index, told.unwrap_or_else(Missed::Failed)));
        }
        ready.extend(self.swap_all(caller, planned).await?);
        // All at the end: every lease starts when they are told (rule 15).
        let mut granted = Vec::with_capacity(ready.len());
        for (index, done) in ready {
            match self.finish(&resolved[index], done) {
                Ok(Outcome::Granted(claim)) => granted.push((index, claim)),
                Ok(outcome) => return Err((index, Missed::Told(Box::new(outcome)))),
                Err(fault) => return Err((index, Missed::Failed(fault))),
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
    ) -> Result<Missed, Fault> {
        let (ready, marked) = match self.write(request, write)? {
            Landed::Swapped(ready, marked) => (ready, marked),
            Landed::Refused(_) => return Ok(Missed::Again),
        };
        let ticket = Marked::all_returned(self, marked.into_iter().collect())?;
        self.synced(caller, ticket).await?;
        Ok(Missed::Told(Box::new(self.finish(request, ready)?)))
    }

    /// Swaps all records in and makes them durable, or swaps those back that had landed.
    async fn swap_all(
        self: &Arc<Self>,
        caller: Caller,
        mut planned: Vec<Planned<'_>>,
    ) -> Result<Vec<(usize, Ready)>, (usize, Missed)> {
        let Some(first) = planned.first().map(|planned| planned.index) else { return Ok(Vec::new()) };
        let swaps = self.commit_all(&mut planned);
        let (mut done, mut refused) = (Vec::new(), None);
        for (Planned { index, request, write }, swap) in planned.into_iter().zip(swaps) {
            let undo = write.undo();
            match swap.and_then(|swap| self.landed(request, write, swap)) {
                Ok(Landed::Swapped(ready, _)) => done.push((index, request, undo, ready)),
                // The first is told.
                Ok(Landed::Refused(_)) => {
                    refused.get_or_insert((index, Missed::Again));
                }
                Err(fault) => {
                    refused.get_or_insert((index, Missed::Failed(fault)));
                }
            }
        }
        let synced = match &refused {
            Some(_) => Ok(()),
            None => self.next_sync(caller).await,
        };
        if let Err(fault) = synced {
            refused = Some((first, Missed::Failed(fault)));
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

/// Why a key could not be had, and with it none of the others.
enum Missed {
    Told(Box<Outcome>),
    InFlight(Busy),
    /// Something moved; decide anew.
    Again,
    Failed(Fault),
}
