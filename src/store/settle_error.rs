//! Why a claim could not be settled.

use super::guard::Claim;
use super::kv_error::KvError;
use crate::error::Fault;
use crate::key::KeyLabel;
use crate::token::Token;
use crate::value::EncodeError;
use std::fmt;

/// A claim could not be settled. The work has been done all the same, and what becomes of that is for the caller to decide:
///
/// | | then |
/// |---|---|
/// | `Retry` | settle the claim that comes back again, with the same value; [`omit`](Claim::omit) it if `cause` says that the value is too large or cannot be encoded. If the store has failed or is closed, tell nobody that it is done or has failed |
/// | `Lost` | another was granted the key, and its result counts: claim the key again to be told it |
/// | `AlreadySettled` | read what stands with [`Store::get`](crate::Store::get) |
/// | `Interrupted` | somebody [resolves](crate::Store::resolve) it |
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The claim is no longer current; nothing was changed, and what its work did must be judged by its token.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The key is settled under this claim's token, in another way or by hand, and that stands; nothing was changed,
    /// and no effect was written.
    #[error(transparent)]
    AlreadySettled(#[from] AlreadySettled),
    /// The key became interrupted, so it cannot be released: somebody must resolve it.
    #[error(transparent)]
    Interrupted(#[from] KeyInterrupted),
    /// It is not known to be settled; the claim comes back, to be tried again under the same token.
    #[error(transparent)]
    Retry(#[from] Box<Retry>),
}

impl SettleError {
    pub(super) fn retry(claim: Claim, cause: RetryCause) -> Self {
        Self::Retry(Box::new(Retry { claim, cause }))
    }

    /// The claim, if it comes back.
    #[must_use]
    pub fn into_claim(self) -> Option<Claim> {
        match self {
            Self::Retry(retry) => Some(retry.claim),
            _ => None,
        }
    }
}

/// A claim that is no longer current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("settling {key} with token {token}: the claim was lost ({}); nothing was changed", current(*by))]
pub struct Lost {
    pub(super) key: KeyLabel,
    pub(super) token: Token,
    pub(super) by: Option<Token>,
}

impl Lost {
    /// The token of the claim that was lost.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The token of the one that has the key now, or settled it; `None` if it has none or the record is gone.
    #[must_use]
    pub fn by(&self) -> Option<Token> {
        self.by
    }
}

/// For messages: by which token a claim was lost.
pub(super) fn current(token: Option<Token>) -> String {
    token.map_or_else(
        || "it ended, or the key was removed".to_owned(),
        |token| format!("token {token} is current"),
    )
}

/// The key is settled under this claim's token: by an earlier try of the claim, in another way, or by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "settling or saving progress of {key} with token {token}: {}, which stands; nothing was changed; read it with \
     Store::get",
    if *.by_hand { "it was resolved by hand after the lease had run out" }
    else { "this claim has already settled it in another way" }
)]
pub struct AlreadySettled {
    pub(super) key: KeyLabel,
    pub(super) token: Token,
    pub(super) by_hand: bool,
}

impl AlreadySettled {
    /// Whether it was [resolved](crate::Store::resolve) by hand, in the holder's stead: with another result or the
    /// same, nothing of this claim's is stored.
    #[must_use]
    pub fn by_hand(&self) -> bool {
        self.by_hand
    }
}

/// The key became interrupted while this claim's lease was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "releasing or saving progress of {key} with token {token}: it became interrupted after the lease had run out; \
     settle it with Store::resolve"
)]
pub struct KeyInterrupted {
    pub(super) key: KeyLabel,
    pub(super) token: Token,
}

/// A claim that is not known to be settled.
#[derive(thiserror::Error)]
#[error("settling {} with token {}: {cause}", claim.key().label(), claim.token())]
pub struct Retry {
    /// The claim. Settling it again confirms what is stored, or errs and says so.
    pub claim: Claim,
    /// Why.
    #[source]
    pub cause: RetryCause,
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("token", &self.claim.token()).field("cause", &self.cause).finish()
    }
}

/// Why a claim is not known to be settled.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RetryCause {
    /// The encoded value is larger than the store's limit; nothing was changed.
    #[error(
        "the encoded value has {length} bytes, and the store takes {limit}; store less, raise \
         Builder::value_limit, or settle with Claim::omit"
    )]
    TooLarge {
        /// Its length.
        length: usize,
        /// The store's limit.
        limit: usize,
    },
    /// The value could not be encoded; nothing was changed.
    #[error("{0}; settle with Claim::omit")]
    NotEncodable(#[source] EncodeError),
    /// The effects cannot be written as they are; nothing was changed.
    #[error("the effects: {0}")]
    Effects(#[source] KvError),
    /// An earlier try of this claim carried other effects and may have landed with them; nothing was changed.
    #[error(
        "an earlier try to complete it carried other effects, and may have landed; try again with the same ones"
    )]
    OtherEffects,
    /// The lease of this claim, which is kept in memory alone, had run out, and another is on its way to the key at
    /// this moment; or the key is being removed by force. Nothing was changed. Once that is done, this claim is lost; if it
    /// fails, this one settles as before.
    #[error(
        "its lease had run out, and another is on its way to the key and not there yet, or the key is being removed by \
         force; try again, which tells whether the claim is lost"
    )]
    BeingTaken,
    /// It went wrong underneath.
    #[error(transparent)]
    Fault(Fault),
}
