//! Plain values that are written together, with a claim's completion or by themselves.

use super::act::Act;
use super::caller::{Caller, on_this_thread};
use super::guard::Claim;
use super::kv_error::KvError;
use super::settle_error::{RetryCause, SettleError};
use super::{Inner, Store};
use crate::backend::Write;
use crate::error::counted;
use crate::key::{Key, KeyError};
use crate::record::{self, Kept};
use crate::value::{self, EncodeError, MAX_VALUE_LIMIT};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The most values that are written at once.
pub const MAX_WRITES: usize = 1024;
/// The most bytes that are written at once, keys and values together: 64 MiB.
pub const MAX_WRITES_BYTES: usize = MAX_VALUE_LIMIT;

/// Puts and deletes of plain values, which land together or not at all: the effects of
/// [`Claim::complete_with`], or a [batch](Store::write) of their own.
///
/// At most [`MAX_WRITES`] and [`MAX_WRITES_BYTES`], each value at most the store's value limit. Of several writes of
/// one key the last counts, and it is as if the others had not been. They are unconditional: none asks what is there.
/// What is no key, cannot be encoded, is too large or too many is told by whoever is to write them.
///
/// `values` is the name given to [`Store::kv`]; writes of several names may go together.
#[derive(Clone, Default)]
pub struct Writes {
    writes: BTreeMap<Key, Result<Option<Vec<u8>>, EncodeError>>,
    /// The first that is no key.
    invalid: Option<KeyError>,
}

impl Writes {
    /// No writes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// And `value` under `key`.
    #[must_use]
    pub fn put(self, values: impl AsRef<[u8]>, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Self {
        self.and(values.as_ref(), key.as_ref(), Ok(Some(value.into())))
    }

    /// And `value` under `key`, encoded with bincode as [`Kv::put_value`](super::Kv::put_value) does.
    #[must_use]
    pub fn put_value<T: Serialize + ?Sized>(
        self,
        values: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
        value: &T,
    ) -> Self {
        self.and(values.as_ref(), key.as_ref(), value::encode(value).map(Some))
    }

    /// And nothing under `key`.
    #[must_use]
    pub fn delete(self, values: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.and(values.as_ref(), key.as_ref(), Ok(None))
    }

    /// How many there are, at most one for each key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn and(mut self, values: &[u8], key: &[u8], value: Result<Option<Vec<u8>>, EncodeError>) -> Self {
        match Key::of_value(values, key) {
            Ok(key) => drop(self.writes.insert(key, value)),
            Err(error) => drop(self.invalid.get_or_insert(error)),
        }
        self
    }

    /// The writes as an engine takes them, in the order of their keys, if each value has at most `limit` bytes.
    fn encode(self, limit: usize) -> Result<Effects, KvError> {
        const DOING: &str = "writing";
        if let Some(error) = self.invalid {
            return Err(KvError::InvalidKey { doing: DOING, error });
        }
        let (mut writes, mut bytes) = (Vec::with_capacity(self.writes.len()), 0);
        for (key, value) in self.writes {
            let value = value.map_err(|error| KvError::NotEncodable { doing: DOING, error })?;
            let length = value.as_ref().map_or(0, Vec::len);
            check_size(DOING, &key, length, limit)?;
            bytes += key.encoded().len() + length;
            writes.push((key, value));
        }
        if writes.len() > MAX_WRITES || bytes > MAX_WRITES_BYTES {
            return Err(KvError::TooMany { writes: writes.len(), bytes });
        }
        Ok(writes.iter().map(|(key, value)| encode(key, value.as_deref())).collect())
    }
}

/// One write as an engine takes it.
pub(super) fn encode(key: &Key, value: Option<&[u8]>) -> Write {
    Write { key: key.encoded().to_vec(), value: value.map(record::encode_value) }
}

pub(super) fn check_size(doing: &'static str, key: &Key, length: usize, limit: usize) -> Result<(), KvError> {
    if length > limit {
        return Err(KvError::TooLarge { doing, key: key.label(), length, limit });
    }
    Ok(())
}

impl fmt::Debug for Writes {
    /// Shows how many there are, not what: keys and values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writes")
            .field("writes", &self.writes.len())
            .field("invalid", &self.invalid)
            .finish_non_exhaustive()
    }
}

/// Writes as an engine takes them, kept by a claim whose completion they go with.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Effects(Option<Arc<[Write]>>);

impl Deref for Effects {
    type Target = [Write];

    fn deref(&self) -> &[Write] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl FromIterator<Write> for Effects {
    fn from_iter<I: IntoIterator<Item = Write>>(writes: I) -> Self {
        Self(Some(writes.into_iter().collect::<Arc<[Write]>>()).filter(|writes| !writes.is_empty()))
    }
}

impl Claim {
    /// Settles like [`complete`](Claim::complete), and writes `effects` in the same atomic step: they are there once
    /// the completion is, and not without it. They are as durable as the claim asked for, and nobody reads one before
    /// it is.
    ///
    /// For work whose effect is these writes, this is *exactly once*: however often the request is retried, and
    /// whatever crashes in between, they land once. That holds for as long as the key is remembered, and for what is
    /// in this store, and no further.
    ///
    /// Effects are unconditional. Work that writes what it has computed from a value that it read must keep others
    /// from changing that value meanwhile, by a [lock](crate::Store::lock) for example.
    ///
    /// Over sled effects go through its transactions, which are slow, and once one was used in a process, everything
    /// else in its sled is slower too.
    ///
    /// ```
    /// use claimdb::{Outcome, Store, Writes, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let Outcome::Granted(claim) = store.claim("credit-7")? else { unreachable!("nobody else is here") };
    /// claim.complete_with("credited", Writes::new().put_value("balances", "alice", &100_u64))?;
    /// assert_eq!(store.kv("balances").get_value("alice")?, Some(100_u64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`complete`](Claim::complete): if the claim was *lost*, no effect landed. *Retry* also if an effect is no
    /// key, too large or one too many. A retry goes with the same effects, or is refused as
    /// [`RetryCause::OtherEffects`]: the first try may have landed, with its own.
    #[cfg_attr(loom, track_caller)]
    pub fn complete_with<T: Serialize + ?Sized>(self, value: &T, effects: Writes) -> Result<(), SettleError> {
        let act = self.0.store.act_with(value, effects);
        self.settle_here(act)
    }
}

impl Store {
    /// Writes all of `writes` in one atomic step, as durable as the store's default says. Of two at once that share
    /// keys, one lands whole after the other.
    ///
    /// Over sled more than one write goes through its transactions, which are slow, and once one was used in a
    /// process, everything else in its sled is slower too.
    ///
    /// # Errors
    /// [`KvError`]; none was written if a write is no key, too large or one too many, else all may have been.
    pub fn write(&self, writes: Writes) -> Result<(), KvError> {
        on_this_thread(self.0.write_all(Caller::Thread, writes))
    }
}

impl Inner {
    pub(super) async fn write_all(&self, caller: Caller, writes: Writes) -> Result<(), KvError> {
        let writes = writes.encode(self.settings.value_limit)?;
        self.write_values(caller, &writes).await.map_err(|fault| KvError::Failed {
            doing: "writing",
            on: counted(writes.len(), "value", "values"),
            fault,
        })
    }

    /// What completes with `value` and writes `effects` with it.
    pub(super) fn act_with<T: Serialize + ?Sized>(
        &self,
        value: &T,
        effects: Writes,
    ) -> Result<Act, RetryCause> {
        let bytes = self.encode(value)?;
        let effects = effects.encode(self.settings.value_limit).map_err(RetryCause::Effects)?;
        Ok(Act::SettleWith(Kept::Completed(bytes), effects))
    }
}
