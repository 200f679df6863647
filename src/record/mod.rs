//! What is stored for a key, and its bytes.
//!
//! A [`Record`] carries everything that recovery needs, so that a crash is judged by what was asked then and not
//! by today's configuration. Bytes are written in the newest version and read in every version ever released.

mod frame;
mod v1;

use crate::clock::WallTime;
use crate::error::{Damage, bytes};
use crate::fingerprint::Fingerprint;
use crate::token::Token;
use std::fmt;
use std::time::Duration;

/// What is durable when, chosen for each claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// The claim is stored and synced before it is granted, and the result before anyone is told of it. A crash
    /// loses nothing that was told.
    #[default]
    Full,
    /// The claim is kept in memory; the result is stored and synced before anyone is told of it. A crash, a drop or a
    /// panic forgets that work had begun: the next attempt is told it is the first.
    Result,
    /// The claim is kept in memory; the result is stored and not synced. A crash, and a kill as well, may forget
    /// recent results: their work may run again.
    Relaxed,
}

/// What happens to a key whose holder ended without settling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnInterrupt {
    /// The next claimant is granted the key, and told which attempt it is.
    #[default]
    Rerun,
    /// The key answers *interrupted* until somebody resolves it. Needs [`Durability::Full`].
    Quarantine,
}

/// What a claim asked for, kept with its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How long the holder has, from the grant or the last renewal.
    pub lease: Duration,
    /// How long a settled key is remembered, from its settling.
    pub retention: Duration,
    /// What is durable when.
    pub durability: Durability,
    /// What happens when the holder ends without settling.
    pub on_interrupt: OnInterrupt,
    /// After how many attempts that ended without settling the key becomes interrupted; `None` for no such cap.
    pub max_attempts: Option<u32>,
}

/// How a holder ended without settling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndedBy {
    /// Its lease ran out.
    LeaseOver,
    /// Its claim was dropped, or its thread unwound.
    Dropped,
    /// The store was closed, or its process died.
    Reopened,
}

/// The attempt before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Previous {
    /// Its token. Work that it did outside carries this.
    pub token: Token,
    /// How it ended.
    pub ended_by: EndedBy,
}

/// The durable record of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The token of the claim that wrote it last.
    pub token: Token,
    /// Which attempt that claim is, from 1.
    pub attempt: u32,
    /// What was asked for the first time.
    pub fingerprint: Option<Fingerprint>,
    /// What that claim asked for.
    pub terms: Terms,
    /// When that claim was made.
    pub claimed_at: WallTime,
    /// Where the key stands.
    pub state: State,
}

/// Where a key stands. `Debug` shows how long checkpoints and values are, not what they are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Claimed and not settled.
    Pending {
        /// The attempt before, if there was one.
        previous: Option<Previous>,
        /// Progress saved by this attempt or an earlier one.
        checkpoint: Option<Vec<u8>>,
    },
    /// Its holder ended without settling, and nobody may run it unasked.
    Interrupted {
        /// How the holder ended.
        ended_by: EndedBy,
        /// Progress saved before.
        checkpoint: Option<Vec<u8>>,
    },
    /// Done.
    Settled {
        /// With what.
        result: Kept,
        /// When.
        at: WallTime,
        /// Whether a person or a rule settled it in the holder's stead.
        by_hand: bool,
    },
}

/// What is kept of a settled key. `Debug` shows how long values are, not what they are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Kept {
    /// A result, encoded.
    Completed(Vec<u8>),
    /// A final failure, encoded; replayed as such.
    Failed(Vec<u8>),
    /// Done, but the result is not kept.
    Omitted(Omission),
}

/// Why a result is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Omission {
    /// It was larger than the store's limit.
    TooLarge,
    /// It could not be encoded.
    NotEncodable,
    /// The holder chose so.
    OnPurpose,
}

/// Shows that there are bytes, and how many: values and checkpoints do not belong in logs.
pub(crate) struct Hidden<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bytes(self.0.len()))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { previous, checkpoint } => f
                .debug_struct("Pending")
                .field("previous", previous)
                .field("checkpoint", &checkpoint.as_deref().map(Hidden))
                .finish(),
            Self::Interrupted { ended_by, checkpoint } => f
                .debug_struct("Interrupted")
                .field("ended_by", ended_by)
                .field("checkpoint", &checkpoint.as_deref().map(Hidden))
                .finish(),
            Self::Settled { result, at, by_hand } => f
                .debug_struct("Settled")
                .field("result", result)
                .field("at", at)
                .field("by_hand", by_hand)
                .finish(),
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(value) => f.debug_tuple("Completed").field(&Hidden(value)).finish(),
            Self::Failed(value) => f.debug_tuple("Failed").field(&Hidden(value)).finish(),
            Self::Omitted(reason) => f.debug_tuple("Omitted").field(reason).finish(),
        }
    }
}

impl Record {
    /// When a settled record's retention ends; `None` if it is not settled.
    #[must_use]
    pub fn forgotten_at(&self) -> Option<WallTime> {
        match self.state {
            State::Settled { at, .. } => Some(at.after(self.terms.retention)),
            State::Pending { .. } | State::Interrupted { .. } => None,
        }
    }

    /// When the record may be swept: at the end of its retention, which for one that is pending counts from its
    /// claim; `None` if it is interrupted, since somebody is to look at it.
    #[must_use]
    pub fn kept_until(&self) -> Option<WallTime> {
        match self.state {
            State::Pending { .. } => Some(self.claimed_at.after(self.terms.retention)),
            State::Settled { .. } => self.forgotten_at(),
            State::Interrupted { .. } => None,
        }
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        frame::wrap(v1::VERSION, v1::record_room(self), |payload| v1::encode_record(self, payload))
    }

    /// The record behind stored bytes, of any version ever released.
    ///
    /// # Errors
    /// [`Damage`] tells what is wrong with them. Never panics, and allocates at most 64 MiB and a little, whatever they say.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        match frame::unwrap(bytes)? {
            (v1::VERSION, payload) => v1::decode_record(payload),
            (version, _) => Err(Damage::UnknownVersion { version, newest: v1::VERSION }),
        }
    }
}

/// The bytes that hold the durable token ceiling.
pub(crate) fn encode_ceiling(ceiling: Token) -> Vec<u8> {
    frame::wrap(v1::VERSION, 8, |payload| v1::encode_ceiling(ceiling, payload))
}

pub(crate) fn decode_ceiling(bytes: &[u8]) -> Result<Token, Damage> {
    match frame::unwrap(bytes)? {
        (v1::VERSION, payload) => v1::decode_ceiling(payload),
        (version, _) => Err(Damage::UnknownVersion { version, newest: v1::VERSION }),
    }
}

/// Stands in the token ceiling's place while a copy is being written: no payload, which no ceiling is.
pub(crate) fn unfinished_copy() -> Vec<u8> {
    frame::wrap(v1::VERSION, 0, |_| {})
}

/// The version of a stored plain value, whose payload is the value's bytes.
const VALUE_VERSION: u8 = 1;

/// The bytes to store for a plain value.
pub(crate) fn encode_value(value: &[u8]) -> Vec<u8> {
    frame::wrap(VALUE_VERSION, value.len(), |payload| payload.extend_from_slice(value))
}

/// The plain value behind stored bytes.
pub(crate) fn decode_value(bytes: &[u8]) -> Result<Vec<u8>, Damage> {
    match frame::unwrap(bytes)? {
        (VALUE_VERSION, value) => Ok(value.to_vec()),
        (version, _) => Err(Damage::UnknownVersion { version, newest: VALUE_VERSION }),
    }
}

/// The bytes that hold the high-water mark of the retention clock.
pub(crate) fn encode_high_water(time: WallTime) -> Vec<u8> {
    frame::wrap(v1::VERSION, 8, |payload| v1::encode_high_water(time, payload))
}

pub(crate) fn decode_high_water(bytes: &[u8]) -> Result<WallTime, Damage> {
    match frame::unwrap(bytes)? {
        (v1::VERSION, payload) => v1::decode_high_water(payload),
        (version, _) => Err(Damage::UnknownVersion { version, newest: v1::VERSION }),
    }
}
