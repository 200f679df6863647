//! Completing many claims under one sync.

use super::act::Act;
use super::caller::{Caller, on_this_thread};
use super::guard::Claim;
use super::marked::Marked;
use super::settle::Failure;
use super::settle_error::{RetryCause, SettleError};
use super::{Inner, Store};
use serde::Serialize;
use std::sync::Arc;

impl Store {
    /// Completes many claims, of this store, under one sync: what each would do alone, in one wait. Gives one
    /// answer for each, in order.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let told = store.claim_many(["line 1", "line 2", "line 1"]);
    /// let granted: Vec<_> = told.into_iter().flatten().filter_map(|outcome| outcome.granted()).collect();
    /// assert_eq!(granted.len(), 2); // the third is in flight: the first has its key
    /// let settled = store.complete_many(granted.into_iter().map(|claim| (claim, "seen")));
    /// assert!(settled.iter().all(|told| told.is_ok()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// All values are encoded before the first claim is settled. If one panics while it is, nothing was settled, and all
    /// the claims are dropped.
    ///
    /// # Errors
    /// Each answer as that of [`Claim::complete`].
    pub fn complete_many<T: Serialize>(
        &self,
        results: impl IntoIterator<Item = (Claim, T)>,
    ) -> Vec<Result<(), SettleError>> {
        on_this_thread(self.0.complete_many(Caller::Thread, completions(results)))
    }
}

/// A claim and the completion that it is to have.
pub(super) type Completion = (Claim, Result<Act, RetryCause>);

/// The completions of many claims, each encoded and judged by its own store.
pub(super) fn completions<T: Serialize>(results: impl IntoIterator<Item = (Claim, T)>) -> Vec<Completion> {
    let completion = |(claim, value): (Claim, T)| {
        let act = claim.0.store.completion(&value);
        (claim, act)
    };
    results.into_iter().map(completion).collect()
}

impl Inner {
    pub(super) async fn complete_many(
        self: &Arc<Self>,
        caller: Caller,
        completions: Vec<Completion>,
    ) -> Vec<Result<(), SettleError>> {
        let span = self.telemetry.settles_span(completions.len());
        let told = span.around(self.complete_each(caller, completions)).await;
        span.count("settled", told.iter().filter(|told| told.is_ok()).count());
        told
    }

    async fn complete_each(
        self: &Arc<Self>,
        caller: Caller,
        completions: Vec<Completion>,
    ) -> Vec<Result<(), SettleError>> {
        let (mut applied, mut marks, mut elsewhere) =
            (Vec::with_capacity(completions.len()), Vec::new(), Vec::new());
        for (mut claim, act) in completions {
            // `Some` is told after the sync, as settled or as refused; `None` is settled.
            applied.push(match act {
                Err(cause) => Err(SettleError::retry(claim, cause)),
                Ok(act) if !Arc::ptr_eq(&claim.0.store, self) => {
                    elsewhere.push((applied.len(), claim, act));
                    Ok(None)
                }
                Ok(act) => match self.apply(&mut claim, &act) {
                    Ok(marked) => Ok(marked.map(|marked| {
                        marks.push(marked);
                        (claim, None)
                    })),
                    Err(failure @ Failure::ByRecord(_)) => Ok(Some((claim, Some(failure)))),
                    Err(failure) => Err(claim.failed(failure)),
                },
            });
        }
        let synced = match applied.iter().any(|applied| matches!(applied, Ok(Some(_)))) {
            false => Ok(()),
            true => match Marked::all_returned(self, marks) {
                Ok(ticket) => self.synced(caller, ticket).await,
                Err(fault) => Err(fault),
            },
        };
        let told = |waited: Option<(Claim, Option<Failure>)>| match (waited, &synced) {
            (Some((claim, _)), Err(fault)) => {
                Err(SettleError::retry(claim, RetryCause::Fault(fault.clone())))
            }
            (Some((claim, Some(failure))), Ok(())) => Err(claim.failed(failure)),
            (Some((_, None)) | None, _) => Ok(()),
        };
        let mut answers: Vec<_> = applied.into_iter().map(|applied| applied.and_then(told)).collect();
        // A claim of another store is settled there, by itself.
        for (index, claim, act) in elsewhere {
            answers[index] = claim.settle(caller, Ok(act)).await;
        }
        answers
    }
}
