//! How a claim is to end, with what.

use super::Inner;
use super::settle_error::RetryCause;
use super::writes::Effects;
use crate::record::Kept;
use crate::value;
use serde::Serialize;

/// How a claim is to end.
pub(super) enum Act {
    Settle(Kept),
    /// With plain values that land with it.
    SettleWith(Kept, Effects),
    Release,
}

impl Act {
    pub(super) fn effects(&self) -> Effects {
        match self {
            Self::SettleWith(_, effects) => effects.clone(),
            Self::Settle(_) | Self::Release => Effects::default(),
        }
    }

    /// For logs.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Settle(Kept::Completed(_)) | Self::SettleWith(Kept::Completed(_), _) => "complete",
            Self::Settle(Kept::Failed(_)) | Self::SettleWith(Kept::Failed(_), _) => "fail",
            Self::Settle(Kept::Omitted(_)) | Self::SettleWith(Kept::Omitted(_), _) => "omit",
            Self::Release => "release",
        }
    }

    pub(super) fn completes(&self) -> bool {
        matches!(self, Self::Settle(Kept::Completed(_)) | Self::SettleWith(Kept::Completed(_), _))
    }
}

impl Inner {
    /// What completes with `value`.
    pub(super) fn completion<T: Serialize + ?Sized>(&self, value: &T) -> Result<Act, RetryCause> {
        self.encode(value).map(|bytes| Act::Settle(Kept::Completed(bytes)))
    }

    /// What completes with `bytes` as they are.
    pub(super) fn completion_of(&self, bytes: Vec<u8>) -> Result<Act, RetryCause> {
        self.check_size(bytes.len()).map(|()| Act::Settle(Kept::Completed(bytes)))
    }

    /// What fails with `reason`.
    pub(super) fn failure<T: Serialize + ?Sized>(&self, reason: &T) -> Result<Act, RetryCause> {
        self.encode(reason).map(|bytes| Act::Settle(Kept::Failed(bytes)))
    }

    pub(super) fn encode<T: Serialize + ?Sized>(&self, value: &T) -> Result<Vec<u8>, RetryCause> {
        let bytes = value::encode(value).map_err(RetryCause::NotEncodable)?;
        self.check_size(bytes.len())?;
        Ok(bytes)
    }

    pub(super) fn check_size(&self, length: usize) -> Result<(), RetryCause> {
        let limit = self.settings.value_limit;
        if length > limit { Err(RetryCause::TooLarge { length, limit }) } else { Ok(()) }
    }
}
