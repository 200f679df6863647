//! The whole dance in one call.

use super::caller::{Caller, on_this_thread};
use super::ending::{Ending, Worked};
use super::guard::Claim;
use super::outcome::{InFlight, Interrupted, Mismatched, Omitted, Outcome, Settled, Stored};
use super::settle_error::SettleError;
use super::{Request, Store};
use crate::error::ClaimError;
#[cfg(doc)]
use crate::record::Omission;
use crate::sync::Working;
use crate::value::DecodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

/// A result, and whether it is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run<T> {
    /// The work ran now.
    Fresh(T),
    /// The work had run before; this is what was stored.
    Replayed(T),
}

impl<T> Run<T> {
    /// The result, whether or not it is new.
    pub fn into_value(self) -> T {
        match self {
            Self::Fresh(value) | Self::Replayed(value) => value,
        }
    }

    /// Whether the result was stored before.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed(_))
    }
}

/// Why [`Store::run`] has no result, or none that is stored. `Debug` does not show what the work returned.
///
/// ```
/// use claimdb::{RunError, Store, backend::Mem};
/// let store = Store::builder(Mem::new()).open()?;
/// let receipt = match store.run("order-42", |_| Ok::<_, std::io::Error>("receipt 7".to_owned())) {
///     Ok(run) => run.into_value(),
///     // It was charged, and that is not stored: once more, if the claim came back.
///     Err(RunError::Unsettled { value, source }) => {
///         source.into_claim().ok_or("another was granted the key, and its result counts")?.complete(&value)?;
///         value
///     }
///     Err(error) => return Err(error.into()), // nothing was charged, or charging failed
/// };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(thiserror::Error)]
pub enum RunError<T, E> {
    /// Nothing ran. The message names the claim or record that stands in the way by its token, by which a log or
    /// `claimdb list` has it; the key itself only the caller knows.
    #[error("the work was not run: {0}")]
    Refused(Refused),
    /// The work ran and failed; the key was released, so that it can be tried again. If releasing failed as well, the
    /// claim was dropped, and the next one is the next attempt.
    #[error("the work ran and failed: {0}")]
    Work(E),
    /// The work ran, and its result could not be stored. The value is here; `source` says whether the claim was
    /// lost or can be settled again.
    #[error("the work ran and its result was not stored: {source}")]
    Unsettled {
        /// What the work returned.
        value: T,
        /// Why it is not stored.
        source: SettleError,
    },
    /// The work ran and did not return a result, and how it was to end by the rule of
    /// [`run_by`](Store::run_by) could not be stored. `source` says whether the claim was lost or can be settled again.
    #[error("the work ran and failed: {error}; that was not stored: {source}")]
    FailureUnsettled {
        /// What the work returned.
        error: E,
        /// Why it is not stored.
        source: SettleError,
    },
    /// The key could not be claimed; nothing ran.
    #[error(transparent)]
    Store(ClaimError),
}

impl<T, E: fmt::Debug> fmt::Debug for RunError<T, E> {
    /// Shows all but the value: values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
            Self::Work(error) => f.debug_tuple("Work").field(error).finish(),
            Self::Unsettled { source, .. } => {
                f.debug_struct("Unsettled").field("source", source).finish_non_exhaustive()
            }
            Self::FailureUnsettled { error, source } => {
                f.debug_struct("FailureUnsettled").field("error", error).field("source", source).finish()
            }
            Self::Store(error) => f.debug_tuple("Store").field(error).finish(),
        }
    }
}

/// Why nothing ran.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// Another claim has the key.
    #[error(
        "another claim has the key{}, for {:?} more at most",
        .0.token().map_or_else(String::new, |token| format!(", with token {token}")),
        .0.remaining()
    )]
    InFlight(InFlight),
    /// The key was used for something else.
    #[error("{} was used for something else", .0.key())]
    Mismatched(Mismatched),
    /// The work failed for good before.
    #[error("the work failed for good before, under token {}", .0.about().token())]
    Failed(Stored),
    /// The work was done before, and its result is not kept.
    #[error("the work was done before, under token {}, and its result is not kept", .0.about().token())]
    Omitted(Omitted),
    /// A holder ended without settling.
    #[error("an earlier attempt with token {} ended without settling; settle it with Store::resolve", .0.token())]
    Interrupted(Interrupted),
    /// The work was done before, and its result is of another type.
    #[error(transparent)]
    Undecodable(DecodeError),
}

impl Store {
    /// Runs `work` if the key is free, and gives back its result; gives back the stored result if it had run
    /// before.
    ///
    /// `Ok` completes the key; a result that is too large or cannot be encoded is stored as
    /// [omitted](Omission), so that the work does not run again, and given back all the same. `Err` releases the
    /// key. A panic drops the claim, and goes on. Another rule: [`run_by`](Store::run_by).
    ///
    /// ```
    /// use claimdb::{Run, Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let charge = |claim: &claimdb::Claim| Ok::<_, std::io::Error>(format!("receipt {}", claim.attempt()));
    /// assert_eq!(store.run("order-42", charge)?, Run::Fresh("receipt 1".to_owned()));
    /// assert_eq!(store.run("order-42", charge)?, Run::Replayed("receipt 1".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// While `work` runs, claiming the same key of the same store on the same thread is refused at once with
    /// [`ClaimError::Nested`], however deep inside and through whichever clone, instead of waiting for what cannot
    /// come before `work` returns. That holds for every call that claims: [`claim`](Store::claim),
    /// [`claim_many`](Store::claim_many), [`claim_all`](Store::claim_all), `run`, and their forms for tasks if they are
    /// first polled there. It is not found when `work` blocks on another
    /// thread, or on a task elsewhere, that claims the key: that claim waits as every other, to the end of its own
    /// wait at most. A [`lock`](Store::lock) of the same name is another thing, and may be taken.
    ///
    /// # Errors
    /// [`RunError`] says whether the work ran.
    pub fn run<T, E>(
        &self,
        request: impl Into<Request>,
        work: impl FnOnce(&Claim) -> Result<T, E>,
    ) -> Result<Run<T>, RunError<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        self.run_by(request, |worked| worked.default_ending(), work)
    }

    /// [`run`](Store::run) by a rule of one's own: `rule` is asked how the claim is to end when the work has returned or
    /// panicked, before anything is stored. A panic of the rule drops the claim.
    ///
    /// ```
    /// use claimdb::{Ending, Refused, RunError, Store, Worked, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// // A card that was declined stays declined; whatever else went wrong may be tried again.
    /// let rule = |worked: Worked<'_, u64, String>| match worked {
    ///     Worked::Failed(error) if error == "declined" => Ending::fail(error).unwrap_or(Ending::Omit),
    ///     other => other.default_ending(),
    /// };
    /// let declined = store.run_by("order-42", rule, |_| Err("declined".to_owned()));
    /// assert!(matches!(declined, Err(RunError::Work(_))));
    /// let again = store.run_by("order-42", rule, |_| Ok(7));
    /// assert!(matches!(again, Err(RunError::Refused(Refused::Failed(_)))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Store::run). If the rule says how work that failed is to end, and that could not be stored,
    /// [`RunError::FailureUnsettled`]; a release that could not be stored is a claim that was dropped.
    pub fn run_by<T, E>(
        &self,
        request: impl Into<Request>,
        rule: impl FnOnce(Worked<'_, T, E>) -> Ending,
        work: impl FnOnce(&Claim) -> Result<T, E>,
    ) -> Result<Run<T>, RunError<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        on_this_thread(self.run_as(Caller::Thread, request.into(), rule, async |claim: &Claim| work(claim)))
    }

    pub(super) async fn run_as<T, E>(
        &self,
        caller: Caller,
        request: Request,
        rule: impl FnOnce(Worked<'_, T, E>) -> Ending,
        work: impl AsyncFnOnce(&Claim) -> Result<T, E>,
    ) -> Result<Run<T>, RunError<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        let refuse = |refused| Err(RunError::Refused(refused));
        let claim = match self.0.claim(caller, &request).await.map_err(RunError::Store)? {
            Outcome::Granted(claim) => claim,
            Outcome::Settled(Settled::Completed(stored)) => {
                return match stored.decode() {
                    Ok(value) => Ok(Run::Replayed(value)),
                    Err(error) => refuse(Refused::Undecodable(error)),
                };
            }
            Outcome::Settled(Settled::Failed(stored)) => return refuse(Refused::Failed(stored)),
            Outcome::Settled(Settled::Omitted(omitted)) => return refuse(Refused::Omitted(omitted)),
            Outcome::InFlight(holder) => return refuse(Refused::InFlight(holder)),
            Outcome::Mismatched(mismatched) => return refuse(Refused::Mismatched(mismatched)),
            Outcome::Interrupted(case) => return refuse(Refused::Interrupted(case)),
        };
        let ended = {
            let (store, key) = (self.0.identity(), claim.0.key.encoded());
            let mut work = pin!(work(&claim));
            // For each poll anew: a task may go on on another thread, and others run on this one in between.
            poll_fn(|context| {
                let polled = catch_unwind(AssertUnwindSafe(|| {
                    let _working = Working::on(store, key);
                    work.as_mut().poll(context)
                }));
                match polled {
                    Ok(polled) => polled.map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            })
            .await
        };
        let (ending, value) = match &ended {
            Ok(Ok(value)) => (rule(Worked::Returned(value)), Some(value)),
            Ok(Err(error)) => (rule(Worked::Failed(error)), None),
            Err(_) => (rule(Worked::Panicked), None),
        };
        // A release that fails drops the claim, which frees the key as well, as the next attempt.
        let may_fail = ending == Ending::Release;
        let settled = match self.0.act_of(ending, value) {
            Some(act) => claim.settle(caller, act).await,
            None => {
                drop(claim);
                Ok(())
            }
        };
        match (ended, settled) {
            (Ok(Ok(value)), Ok(())) => Ok(Run::Fresh(value)),
            (Ok(Ok(value)), Err(source)) => Err(RunError::Unsettled { value, source }),
            (Ok(Err(error)), Err(source)) if !may_fail => Err(RunError::FailureUnsettled { error, source }),
            (Ok(Err(error)), _) => Err(RunError::Work(error)),
            (Err(panic), _) => resume_unwind(panic),
        }
    }
}
