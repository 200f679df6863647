//! The keys of lines.
//!
//! A whole line's key is the hash of its bytes. A JSON key is its type and what is written there, so that `"1"`,
//! `1` and `true` stay apart; what is too long for a key is hashed, and marked as that.

use super::input::Batch;
use super::parallel;
use super::pointer::{Pointer, Scalar};
use crate::failure::Failure;
use claimdb::{Key, KeyError, MAX_NAME, MAX_SCOPE};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How a line becomes a key.
pub(super) struct Keys {
    pointer: Option<Pointer>,
    /// Keeps the keys of whole lines and of each pointer apart in one store.
    scope: Vec<u8>,
}

/// What was found in one line.
pub(super) type Found = Result<Keyed, String>;

/// A key, and the part of the batch that it falls into.
pub(super) struct Keyed {
    pub(super) key: Key,
    pub(super) part: usize,
}

impl Keys {
    pub(super) fn new(pointer: Option<&Pointer>) -> Self {
        let scope = match pointer {
            None => b"dedup:line".to_vec(),
            Some(pointer) => {
                let scope = [b"dedup:json:", pointer.as_str().as_bytes()].concat();
                let hashed = || {
                    [b"dedup:json#", blake3::hash(pointer.as_str().as_bytes()).to_hex().as_bytes()].concat()
                };
                if scope.len() <= MAX_SCOPE { scope } else { hashed() }
            }
        };
        Self { pointer: pointer.cloned(), scope }
    }

    /// Finds the keys of a batch, on as many threads as there are `parts`, and tells for each into which part it
    /// falls: equal keys fall into one.
    pub(super) fn find(&self, batch: Batch<'_>, parts: usize) -> Result<Vec<Found>, Failure> {
        let share = batch.len().div_ceil(parts);
        let ranges = (0..batch.len()).step_by(share).map(|start| start..batch.len().min(start + share));
        let found = parallel::each(ranges, |range| {
            range.map(|index| self.find_one(batch.line(index), parts)).collect::<Vec<_>>()
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    fn find_one(&self, line: &[u8], parts: usize) -> Found {
        let key = match &self.pointer {
            None => Key::scoped(&self.scope, blake3::hash(line).as_bytes()),
            Some(pointer) => self.scalar(&pointer.find(line)?),
        };
        // Names are cut to length and the scope was; if a key is refused all the same, so is its line.
        let key = key.map_err(|error| error.to_string())?;
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let part = usize::try_from(hasher.finish() % parts as u64).unwrap_or(0);
        Ok(Keyed { key, part })
    }

    fn scalar(&self, scalar: &Scalar<'_>) -> Result<Key, KeyError> {
        let (kind, hashed, text) = match scalar {
            Scalar::String(text) => (b's', b'S', text.as_str()),
            Scalar::Number(text) => (b'n', b'N', *text),
            Scalar::Boolean(true) => (b'b', b'B', "true"),
            Scalar::Boolean(false) => (b'b', b'B', "false"),
        };
        let name = if text.len() < MAX_NAME {
            [&[kind], text.as_bytes()].concat()
        } else {
            [&[hashed][..], blake3::hash(text.as_bytes()).as_bytes()].concat()
        };
        Key::scoped(&self.scope, name)
    }
}
