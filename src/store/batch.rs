//! Many claims at once, each for itself.

use super::caller::{Caller, on_this_thread};
use super::claim::{Step, in_flight};
use super::engine::commit_each;
use super::marked::Marked;
use super::outcome::Outcome;
use super::request::{Request, Resolved};
use super::take::{Landed, Write};
use super::{Inner, Store};
use crate::backend::{Commit, Swap};
use crate::error::{ClaimError, Fault, StorageError};
use std::sync::Arc;

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
}

/// A request whose record is to be swapped in with the others.
pub(super) struct Planned<'a> {
    pub(super) index: usize,
    pub(super) request: &'a Resolved<'a>,
    pub(super) write: Write<'a>,
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
    pub(super) fn plan<'a>(
        self: &'a Arc<Self>,
        request: &Resolved<'_>,
        mut step: Step<'a>,
    ) -> Result<Step<'a>, Fault> {
        while let Step::Again = step {
            step = self.attempt(request, None)?;
        }
        Ok(step)
    }

    /// Swaps in what was planned, in one call to the engine.
    pub(super) fn commit_all(
        &self,
        planned: &mut [Planned<'_>],
    ) -> Vec<Result<Result<Swap, StorageError>, Fault>> {
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
}
