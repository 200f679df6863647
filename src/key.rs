//! Keys and how they become bytes.
//!
//! ```text
//! space (1) | length of scope (1) | scope (0..=255) | name (1..=1024)
//! ```
//!
//! The scope carries its length, so no two pairs of scope and name share an encoding. All keys of one scope lie
//! together, ordered by name. Claims, locks, plain values, the retention index and the store's own bookkeeping
//! are separate spaces: a claim and a lock of the same name never meet. The encoding is part of the store format
//! (`docs/format.md`).

use crate::clock::WallTime;
use crate::sync;
use crate::token::Token;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 1024;
/// The longest scope, in bytes: its length is one byte of the encoding.
pub const MAX_SCOPE: usize = 255;

/// The first byte of an encoded key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Space {
    /// What the store keeps about itself.
    Meta = 0,
    /// Records of claims.
    Claims = 1,
    /// Locks, which are never stored: their names live in the lease table alone.
    Locks = 2,
    /// Plain values. The place of the scope is the name of the values that the key is among.
    Values = 3,
    /// The retention index: which record to look at when.
    Index = 4,
}

/// A key: the name of a piece of work, in a scope.
///
/// Any bytes will do; nothing is folded, trimmed or normalised. `Debug` and `Display` show a label, not the name,
/// because keys often hold what must not reach a log: see [`Key::label`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// A key in the empty scope.
    ///
    /// # Errors
    /// [`KeyError`] if `name` is empty or longer than [`MAX_NAME`].
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        Self::scoped([], name)
    }

    /// A key in `scope`, which says who the key belongs to: a tenant, a route, a queue.
    ///
    /// # Errors
    /// [`KeyError`] if `name` is empty or longer than [`MAX_NAME`], or `scope` longer than [`MAX_SCOPE`].
    pub fn scoped(scope: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let (scope, name) = (scope.as_ref(), name.as_ref());
        check_name(name)?;
        Ok(Self(encode(Space::Claims, scope, name)?))
    }

    /// The key of a plain value, among the values called `values`. Never given to callers: it names no claim.
    pub(crate) fn of_value(values: &[u8], key: &[u8]) -> Result<Self, KeyError> {
        check_name(key)?;
        Ok(Self(encode_value(values, key)?))
    }

    /// The scope; empty if the key has none.
    #[must_use]
    pub fn scope(&self) -> &[u8] {
        &self.0[2..self.name_start()]
    }

    /// The name, as it was given.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.0[self.name_start()..]
    }

    /// What stands for this key in messages: a short hash with a seed of its own for each process, so that a log
    /// does not give keys away, and lines of one process about one key can be told to belong together.
    #[must_use]
    pub fn label(&self) -> KeyLabel {
        KeyLabel::of(&self.0)
    }

    /// The bytes with which all keys of this one's scope begin.
    pub(crate) fn encoded_scope(&self) -> &[u8] {
        &self.0[..self.name_start()]
    }

    /// The bytes under which the record is stored.
    pub(crate) fn encoded(&self) -> &Arc<[u8]> {
        &self.0
    }

    /// The bytes under which a lock of this name is held in memory, apart from the claim of the same name.
    pub(crate) fn encoded_lock(&self) -> Arc<[u8]> {
        let mut encoded = self.0.to_vec();
        encoded[0] = Space::Locks as u8;
        encoded.into()
    }

    /// The key behind stored bytes; `None` if they are no key of a claim.
    pub(crate) fn decode(stored: &[u8]) -> Option<Self> {
        let (&space, rest) = stored.split_first()?;
        let (&scope, rest) = rest.split_first()?;
        let name = rest.len().checked_sub(usize::from(scope))?;
        let valid = space == Space::Claims as u8 && (1..=MAX_NAME).contains(&name);
        valid.then(|| Self(stored.into()))
    }

    /// The key of a plain value behind stored bytes; `None` if they are none.
    pub(crate) fn decode_value(stored: &[u8]) -> Option<Self> {
        let values = usize::from(*stored.get(1)?);
        let name = stored.len().checked_sub(2 + values)?;
        let valid = stored[0] == Space::Values as u8 && (1..=MAX_NAME).contains(&name);
        valid.then(|| Self(stored.into()))
    }

    /// The bytes with which all keys of claims begin.
    pub(crate) fn all_claims() -> [u8; 1] {
        [Space::Claims as u8]
    }

    /// The bytes with which all keys of `scope` begin whose name begins with `prefix`.
    pub(crate) fn encoded_prefix(scope: &[u8], prefix: &[u8]) -> Result<Vec<u8>, KeyError> {
        check_prefix(prefix)?;
        encode(Space::Claims, scope, prefix).map(|encoded| encoded.to_vec())
    }

    /// The bytes with which all keys among the values called `values` begin whose key begins with `prefix`.
    pub(crate) fn value_prefix(values: &[u8], prefix: &[u8]) -> Result<Vec<u8>, KeyError> {
        check_prefix(prefix)?;
        encode_value(values, prefix).map(|encoded| encoded.to_vec())
    }

    fn name_start(&self) -> usize {
        2 + usize::from(self.0[1])
    }
}

/// The key of one of the store's own entries.
pub(crate) fn meta(name: &str) -> Vec<u8> {
    let mut key = vec![Space::Meta as u8];
    key.extend_from_slice(name.as_bytes());
    key
}

fn check_name(name: &[u8]) -> Result<(), KeyError> {
    match name.len() {
        0 => Err(KeyError::Empty),
        1..=MAX_NAME => Ok(()),
        length => Err(KeyError::NameTooLong { length }),
    }
}

fn check_prefix(prefix: &[u8]) -> Result<(), KeyError> {
    match prefix.len() {
        0..=MAX_NAME => Ok(()),
        length => Err(KeyError::PrefixTooLong { length }),
    }
}

fn encode_value(values: &[u8], key: &[u8]) -> Result<Arc<[u8]>, KeyError> {
    encode(Space::Values, values, key).map_err(|_| KeyError::ValuesTooLong { length: values.len() })
}

/// An entry of the retention index: at `end` the record of `key` is to be looked at, if it still is that of `token`.
///
/// ```text
/// space (1) | end in milliseconds since 1970-01-01 UTC, big endian (8) | token, big endian (8) | the record's key
/// ```
///
/// So entries lie in the order in which they come due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) end: WallTime,
    pub(crate) token: Token,
    pub(crate) key: Key,
}

impl IndexEntry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(17 + self.key.0.len());
        encoded.push(Space::Index as u8);
        encoded.extend_from_slice(&self.end.unix_millis().to_be_bytes());
        encoded.extend_from_slice(&self.token.get().to_be_bytes());
        encoded.extend_from_slice(&self.key.0);
        encoded
    }

    /// The entry behind a stored key; `None` if it is none.
    pub(crate) fn decode(stored: &[u8]) -> Option<Self> {
        let rest = stored.strip_prefix(&Self::all())?;
        let (end, rest) = rest.split_first_chunk()?;
        let (token, key) = rest.split_first_chunk()?;
        let end = WallTime::from_unix_millis(u64::from_be_bytes(*end));
        Some(Self { end, token: Token::new(u64::from_be_bytes(*token)), key: Key::decode(key)? })
    }

    /// The bytes with which all entries begin.
    pub(crate) fn all() -> [u8; 1] {
        [Space::Index as u8]
    }
}

fn encode(space: Space, scope: &[u8], name: &[u8]) -> Result<Arc<[u8]>, KeyError> {
    let scope_length =
        u8::try_from(scope.len()).map_err(|_| KeyError::ScopeTooLong { length: scope.len() })?;
    let write = |encoded: &mut [u8]| {
        encoded[0] = space as u8;
        encoded[1] = scope_length;
        encoded[2..2 + scope.len()].copy_from_slice(scope);
        encoded[2 + scope.len()..].copy_from_slice(name);
    };
    // Most keys fit on the stack, and then making one allocates once.
    let (length, mut short) = (2 + scope.len() + name.len(), [0; 128]);
    Ok(match short.get_mut(..length) {
        Some(encoded) => {
            write(encoded);
            Arc::from(&*encoded)
        }
        None => {
            let mut encoded = vec![0; length];
            write(&mut encoded);
            encoded.into()
        }
    })
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.label(), f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.label(), f)
    }
}

/// Stands for a key in messages without giving it away. See [`Key::label`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyLabel(u64);

impl KeyLabel {
    /// What stands for whatever is stored under `stored`, a key or not.
    pub(crate) fn of(stored: &[u8]) -> Self {
        Self(sync::process_seed().hash_one(stored) >> 16)
    }
}

impl fmt::Display for KeyLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key#{:012x}", self.0)
    }
}

/// Why bytes are no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The name has no bytes.
    #[error("the key is empty; a key has 1 to {MAX_NAME} bytes")]
    Empty,
    /// The name is longer than [`MAX_NAME`].
    #[error("the key has {length} bytes; a key has 1 to {MAX_NAME} bytes: hash what is longer")]
    NameTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The prefix is longer than [`MAX_NAME`], and no key begins with it.
    #[error(
        "the prefix has {length} bytes; a prefix has at most {MAX_NAME} bytes, as no key has more: shorten it"
    )]
    PrefixTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The scope is longer than [`MAX_SCOPE`].
    #[error("the scope has {length} bytes; a scope has at most {MAX_SCOPE} bytes: hash what is longer")]
    ScopeTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The name given to [`Store::kv`](crate::Store::kv) is longer than [`MAX_SCOPE`].
    #[error(
        "the name of the values has {length} bytes; such a name has at most {MAX_SCOPE} bytes: hash what is longer"
    )]
    ValuesTooLong {
        /// Its length in bytes.
        length: usize,
    },
}
