//! Why a plain value could not be read or written.

use crate::error::{Damage, Fault, counted};
use crate::key::{Key, KeyError, KeyLabel};
use crate::value::{DecodeError, EncodeError};
use std::fmt;

/// The key of a plain value, in an error. Messages and `Debug` show its label alone.
#[derive(Clone, PartialEq, Eq)]
pub struct ValueKey(Key);

impl ValueKey {
    pub(super) fn new(key: &Key) -> Self {
        Self(key.clone())
    }

    /// The key as it was given, for [`Kv::get`](crate::Kv::get) and the others.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.name()
    }
}

impl fmt::Debug for ValueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ValueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Reading or writing plain values failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The key, the prefix or the name of the values is none.
    #[error("{doing}: {error}")]
    InvalidKey {
        /// What was tried.
        doing: &'static str,
        /// Why it is none.
        #[source]
        error: KeyError,
    },
    /// The value is larger than the store's limit; nothing was changed.
    #[error(
        "{doing} {key}: the value has {length} bytes, and the store takes {limit}; store less, or raise \
         Builder::value_limit"
    )]
    TooLarge {
        /// What was tried.
        doing: &'static str,
        /// Stands for the key.
        key: KeyLabel,
        /// The value's length.
        length: usize,
        /// The store's limit.
        limit: usize,
    },
    /// More is to be written at once than [`MAX_WRITES`](crate::MAX_WRITES) or
    /// [`MAX_WRITES_BYTES`](crate::MAX_WRITES_BYTES); nothing was changed.
    #[error(
        "writing {} at once, of {bytes} bytes with their keys: {most} values and {most_bytes} bytes are the most; write \
         less at once",
        counted(writes, "value", "values"),
        most = super::writes::MAX_WRITES,
        most_bytes = super::writes::MAX_WRITES_BYTES
    )]
    TooMany {
        /// How many.
        writes: usize,
        /// The bytes of their keys and values.
        bytes: usize,
    },
    /// The value could not be encoded; nothing was changed.
    #[error("{doing}: {error}")]
    NotEncodable {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        error: EncodeError,
    },
    /// The value is of another type than was asked for.
    #[error("reading {key}: {error}")]
    Undecodable {
        /// Stands for the key.
        key: KeyLabel,
        /// Why not.
        #[source]
        error: DecodeError,
    },
    /// The stored value is damaged. It is left as it is.
    #[error("{doing} {key}: the stored value is damaged: {damage}. Kv::put and Kv::delete replace it unread")]
    Damaged {
        /// What was tried.
        doing: &'static str,
        /// Stands for the key.
        key: KeyLabel,
        /// What is wrong with it.
        #[source]
        damage: Damage,
    },
    /// The stored value that a [`KvScan`](crate::KvScan) came to is damaged. It is left as it is, and the scan goes on
    /// behind it.
    #[error(
        "scanning {key}: the stored value is damaged: {damage}. Kv::put and Kv::delete replace it unread"
    )]
    Scanned {
        /// The key.
        key: ValueKey,
        /// What is wrong with it.
        #[source]
        damage: Damage,
    },
    /// It went wrong underneath. A write may have landed all the same: a plain write has no token by which it could
    /// be told from another's.
    #[error("{doing} {on}: {fault}")]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// Stands for the key, or says what else.
        on: String,
        /// What went wrong.
        #[source]
        fault: Fault,
    },
}
