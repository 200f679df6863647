//! What a claim answers.

use super::guard::Claim;
use crate::clock::WallTime;
use crate::key::KeyLabel;
use crate::record::{EndedBy, Hidden, Kept, Omission, Record, State};
use crate::token::Token;
use crate::value::{self, DecodeError};
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::Duration;

/// What a claim answers. Losing is not an error; the compiler asks for each case.
#[derive(Debug)]
#[must_use = "a granted claim that is dropped ends at once"]
pub enum Outcome {
    /// The key is the caller's: do the work, then settle the claim.
    Granted(Claim),
    /// The work is done: here is what was stored.
    Settled(Settled),
    /// Another claim has the key, or has just settled it and is not durable yet.
    InFlight(InFlight),
    /// The key was used for something else: another fingerprint, or one where there was none.
    Mismatched(Mismatched),
    /// A holder ended without settling, and nobody may run the work again unasked. See
    /// [`Store::resolve`](crate::Store::resolve).
    Interrupted(Interrupted),
}

impl Outcome {
    /// The claim, if it was granted.
    #[must_use]
    pub fn granted(self) -> Option<Claim> {
        match self {
            Self::Granted(claim) => Some(claim),
            _ => None,
        }
    }

    /// What was stored, if the key is settled.
    #[must_use]
    pub fn settled(self) -> Option<Settled> {
        match self {
            Self::Settled(settled) => Some(settled),
            _ => None,
        }
    }
}

/// A settled key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The work was done, with this result.
    Completed(Stored),
    /// The work failed for good, with this as the reason.
    Failed(Stored),
    /// The work was done, and its result is not kept.
    Omitted(Omitted),
}

impl Settled {
    /// The settled form of `record`; `None` if it is not settled.
    pub(super) fn from_record(record: Record) -> Option<Self> {
        let State::Settled { result, at, by_hand } = record.state else { return None };
        let about = About {
            token: record.token,
            attempt: record.attempt,
            at,
            forgotten_at: at.after(record.terms.retention),
            by_hand,
        };
        Some(match result {
            Kept::Completed(bytes) => Self::Completed(Stored { bytes, about }),
            Kept::Failed(bytes) => Self::Failed(Stored { bytes, about }),
            Kept::Omitted(reason) => Self::Omitted(Omitted { reason, about }),
        })
    }

    /// By which claim, when, and until when it is remembered.
    #[must_use]
    pub fn about(&self) -> &About {
        match self {
            Self::Completed(stored) | Self::Failed(stored) => &stored.about,
            Self::Omitted(omitted) => &omitted.about,
        }
    }

    /// The result, if the work was completed and its result kept.
    #[must_use]
    pub fn completed(self) -> Option<Stored> {
        match self {
            Self::Completed(stored) => Some(stored),
            _ => None,
        }
    }
}

/// How a key was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    token: Token,
    attempt: u32,
    at: WallTime,
    forgotten_at: WallTime,
    by_hand: bool,
}

impl About {
    /// The token of the claim that settled it.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Which attempt that was, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When, by the store's wall clock.
    #[must_use]
    pub fn settled_at(&self) -> WallTime {
        self.at
    }

    /// When its retention ends; from then on the key reads as absent.
    #[must_use]
    pub fn forgotten_at(&self) -> WallTime {
        self.forgotten_at
    }

    /// Whether a person or a rule settled it in the holder's stead.
    #[must_use]
    pub fn by_hand(&self) -> bool {
        self.by_hand
    }
}

/// A stored value.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    bytes: Vec<u8>,
    about: About,
}

impl Stored {
    /// Decodes the value, which was stored with [`Claim::complete`] or [`Claim::fail`].
    ///
    /// Values carry no types. One that was stored as another type is usually told from this one, and not always: an
    /// `i64` has the bytes of a `u64`. Store one type in a scope, or a version in the value.
    ///
    /// Do not ask for a list of items that take no bytes, such as `Vec<()>`: its length is all that there is of it, and
    /// the bytes of another type can say 2^64. Nor for a type that contains itself, unless it was stored as that: it is
    /// decoded as deep as the bytes say, on the stack.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no `T`. Nothing is run again because of that.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        value::decode(&self.bytes)
    }

    /// By which claim, when, and until when it is remembered.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The stored bytes, as given to [`Claim::complete_bytes`] or as encoded by [`Claim::complete`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The stored bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl fmt::Debug for Stored {
    /// Shows the length, not the content: values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("length", &self.bytes.len()).field("about", &self.about).finish()
    }
}

/// A settled key whose result is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omitted {
    reason: Omission,
    about: About,
}

impl Omitted {
    /// By which claim, when, and until when it is remembered.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Why not.
    #[must_use]
    pub fn reason(&self) -> Omission {
        self.reason
    }
}

/// The claim that has the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    pub(super) token: Option<Token>,
    pub(super) attempt: u32,
    pub(super) age: Duration,
    pub(super) remaining: Duration,
}

impl InFlight {
    /// Its token; `None` while it is only taking the key.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// Which attempt it is, from 1; 0 while it is only taking the key.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// For how long it has had the key, or been taking it.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.age
    }

    /// The rest of its lease, after which the key can be had: when to try again at the latest. Zero while it is
    /// only taking the key or is settling it, both of which are short.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.remaining
    }
}

/// The key was used for something else. What for is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatched {
    pub(super) key: KeyLabel,
}

impl Mismatched {
    /// Stands for the key.
    #[must_use]
    pub fn key(&self) -> KeyLabel {
        self.key
    }
}

/// A key whose holder ended without settling, and which nobody may run again unasked.
#[derive(Clone, PartialEq, Eq)]
pub struct Interrupted {
    token: Token,
    attempt: u32,
    ended_by: EndedBy,
    checkpoint: Option<Vec<u8>>,
}

impl Interrupted {
    /// The interrupted form of `record`; `None` if it is not interrupted.
    pub(super) fn from_record(record: Record) -> Option<Self> {
        let State::Interrupted { ended_by, checkpoint } = record.state else { return None };
        Some(Self { token: record.token, attempt: record.attempt, ended_by, checkpoint })
    }

    /// The token of the holder that ended; it names the case to [`Store::resolve`](crate::Store::resolve).
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Which attempt it was.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How it ended.
    #[must_use]
    pub fn ended_by(&self) -> EndedBy {
        self.ended_by
    }

    /// The last progress that was saved.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&[u8]> {
        self.checkpoint.as_deref()
    }
}

impl fmt::Debug for Interrupted {
    /// Shows the checkpoint's length, not the content: it does not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupted")
            .field("token", &self.token)
            .field("attempt", &self.attempt)
            .field("ended_by", &self.ended_by)
            .field("checkpoint", &self.checkpoint.as_deref().map(Hidden))
            .finish()
    }
}
