//! How `run` ends a claim: the rule, and what it can say.

use super::Inner;
use super::act::Act;
use super::settle_error::RetryCause;
use crate::record::{Kept, Omission};
use crate::value::{self, EncodeError};
use serde::Serialize;
use std::fmt;

/// What has become of work, as a rule of [`Store::run_by`](super::Store::run_by) sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worked<'a, T, E> {
    /// It returned `Ok`.
    Returned(&'a T),
    /// It returned `Err`.
    Failed(&'a E),
    /// It panicked. The panic goes on once the claim has ended.
    Panicked,
}

impl<T, E> Worked<'_, T, E> {
    /// The rule of [`Store::run`](super::Store::run): `Ok` completes, `Err` releases, a panic drops the claim.
    #[must_use]
    pub fn default_ending(&self) -> Ending {
        match self {
            Self::Returned(_) => Ending::Complete,
            Self::Failed(_) => Ending::Release,
            Self::Panicked => Ending::Drop,
        }
    }
}

/// How the claim of work that has ended is to end.
#[derive(Clone, PartialEq, Eq)]
pub enum Ending {
    /// Completed with what the work returned; without a value as [omitted](Omission::OnPurpose).
    Complete,
    /// Failed for good, with these bytes as the reason: see [`Ending::fail`].
    Fail(Vec<u8>),
    /// Done, without a result that is kept.
    Omit,
    /// Given back: the next claim is the first attempt.
    Release,
    /// Ended without settling: the next claim is the next attempt, or the key is interrupted, as the claim asked for.
    Drop,
}

impl Ending {
    /// Failed for good, with `reason`, encoded with bincode as by [`Claim::fail`](super::Claim::fail).
    ///
    /// # Errors
    /// [`EncodeError`] if it cannot be encoded.
    pub fn fail<T: Serialize + ?Sized>(reason: &T) -> Result<Self, EncodeError> {
        value::encode(reason).map(Self::Fail)
    }
}

impl fmt::Debug for Ending {
    /// Shows how, not with what: values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete => "Complete",
            Self::Fail(_) => "Fail(..)",
            Self::Omit => "Omit",
            Self::Release => "Release",
            Self::Drop => "Drop",
        })
    }
}

impl Inner {
    /// What `ending` says of work that returned `value`, if it did; `None` to drop the claim. A result that is too
    /// large or cannot be encoded is omitted, so that finished work does not run again.
    pub(super) fn act_of<T: Serialize>(
        &self,
        ending: Ending,
        value: Option<&T>,
    ) -> Option<Result<Act, RetryCause>> {
        let omit = |reason| Ok(Act::Settle(Kept::Omitted(reason)));
        Some(match (ending, value) {
            (Ending::Complete, Some(value)) => match self.completion(value) {
                Err(RetryCause::TooLarge { .. }) => omit(Omission::TooLarge),
                Err(RetryCause::NotEncodable(_)) => omit(Omission::NotEncodable),
                act => act,
            },
            (Ending::Complete, None) | (Ending::Omit, _) => omit(Omission::OnPurpose),
            (Ending::Fail(reason), _) => {
                self.check_size(reason.len()).map(|()| Act::Settle(Kept::Failed(reason)))
            }
            (Ending::Release, _) => Ok(Act::Release),
            (Ending::Drop, _) => return None,
        })
    }
}
