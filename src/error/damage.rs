//! What is wrong with the bytes of one record.

use super::bytes;
use crate::token::Token;

/// Stored bytes that this build cannot take for a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Too short to be a record, or it does not begin like one.
    #[error("it has {} and is not framed as a record", bytes(length))]
    NotFramed {
        /// How many bytes there are.
        length: usize,
    },
    /// Written by a later version of claimdb.
    #[error(
        "it has record version {version}, and this build reads up to {newest}; open it with a newer claimdb"
    )]
    UnknownVersion {
        /// The version it has.
        version: u8,
        /// The newest version that this build reads.
        newest: u8,
    },
    /// It says one length and has another.
    #[error("it should have {} after its header and has {found}", bytes(expected))]
    WrongLength {
        /// What the header says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// The checksum does not match.
    #[error("its checksum is {found:08x} and should be {expected:08x}")]
    WrongChecksum {
        /// What the header says.
        expected: u32,
        /// What the bytes give.
        found: u32,
    },
    /// The frame is whole, and what it holds is not.
    #[error("its content cannot be read: {reason}")]
    Content {
        /// What was found.
        reason: String,
    },
    /// It stands under a key that this build does not write.
    #[error("its key of {} is none that this build knows", bytes(length))]
    UnknownKey {
        /// How many bytes the key has.
        length: usize,
    },
    /// Its token is one that this store has not handed out (rule 8).
    #[error("its token {token} is not below the durable ceiling {ceiling}")]
    TokenAboveCeiling {
        /// The record's token.
        token: Token,
        /// The store's ceiling.
        ceiling: Token,
    },
    /// Its token is below the store's ceiling, and not below one that was drawn after it (rule 13).
    #[error("its token {token} is not below {drawn}, which was drawn after it")]
    TokenNotDrawn {
        /// The record's token.
        token: Token,
        /// The token that was drawn.
        drawn: Token,
    },
}
