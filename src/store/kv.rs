//! Plain values: bytes under keys, durable before told.
//!
//! A write puts its unsynced mark on each of its keys before the swap (rule 1). A reader reads first, and then waits
//! for the marks that stand (rule 2): once they are gone, what it read is durable, and it tells that, however often
//! the key was written meanwhile.

use super::caller::{Caller, on_this_thread};
use super::engine::commit_one;
use super::kv_error::KvError;
use super::kv_scan::KvScan;
use super::marked::Marked;
use super::writes::{self, check_size};
use super::{Inner, Store};
use crate::backend::{Commit, Swap, Write};
use crate::clock::expired;
use crate::error::{Damage, Fault};
use crate::key::{Key, KeyError};
use crate::lease::{Stamp, Waiting};
use crate::record::{self, Durability, Hidden};
use crate::sync::Ordering;
use crate::value::{self, DecodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;

impl Store {
    /// The plain values called `name`, of at most [`MAX_SCOPE`](crate::MAX_SCOPE) bytes. Names keep values apart:
    /// the same key under another name is another value, and no value has to do with claims or locks.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let colours = store.kv("colours");
    /// colours.put("sky", "blue")?;
    /// assert_eq!(colours.get("sky")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn kv(&self, name: impl AsRef<[u8]>) -> Kv {
        Kv { store: self.clone(), name: name.as_ref().into() }
    }
}

/// Plain values of one name in a store. Cheap to clone.
///
/// A key has 1 to [`MAX_NAME`](crate::MAX_NAME) bytes, a value from none up to the store's value limit. Values are
/// kept until they are deleted.
///
/// With the store's default durability [`Full`](Durability::Full) or [`Result`](Durability::Result) a write returns
/// once it is durable, and until then nobody is told of it: whoever reads the key waits for that, at most for the
/// store's sync limit. With [`Relaxed`](Durability::Relaxed) a write is not synced, and a crash may forget it. To
/// write several values at once: [`Store::write`], and with a claim's completion:
/// [`Claim::complete_with`](crate::Claim::complete_with).
///
/// Every operation blocks its thread for as long as storage takes.
///
/// # Errors
/// All give [`KvError`]: what is no key, too large or cannot be encoded changes nothing; after a fault of storage a
/// write may have landed, and doing it again is up to the caller.
#[derive(Clone)]
pub struct Kv {
    store: Store,
    name: Arc<[u8]>,
}

/// What became of a [compare-and-swap](Kv::compare_and_swap).
#[derive(Clone, PartialEq, Eq)]
#[must_use = "losing is not an error"]
pub enum Compared {
    /// It was as expected, and is swapped.
    Swapped,
    /// It was not, and nothing was changed.
    Differs {
        /// What was there.
        current: Option<Vec<u8>>,
    },
}

impl Compared {
    /// Whether it was swapped.
    #[must_use]
    pub fn is_swapped(&self) -> bool {
        matches!(self, Self::Swapped)
    }
}

impl fmt::Debug for Compared {
    /// Shows how long the value is, not what: values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Swapped => f.write_str("Swapped"),
            Self::Differs { current } => {
                f.debug_struct("Differs").field("current", &current.as_deref().map(Hidden)).finish()
            }
        }
    }
}

impl Kv {
    /// The value of `key`, as of some time during the call; `None` if it has none.
    ///
    /// # Errors
    /// [`KvError`]; after a failed sync for what that sync was to cover, and if any value was written
    /// [`Relaxed`](Durability::Relaxed) in this opening, for all.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, KvError> {
        on_this_thread(self.read(Caller::Thread, key.as_ref()))
    }

    /// The value of `key`, decoded; it was written with [`put_value`](Self::put_value).
    ///
    /// # Errors
    /// [`KvError`] as [`get`](Self::get), and if the value is of another type.
    pub fn get_value<T: DeserializeOwned>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>, KvError> {
        on_this_thread(self.read_value(Caller::Thread, key.as_ref()))
    }

    /// Puts `value` under `key`, whatever is there.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), KvError> {
        on_this_thread(self.write(Caller::Thread, PUTTING, key.as_ref(), Some(value.as_ref())))
    }

    /// Puts `value` under `key`, encoded with bincode.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn put_value<T: Serialize + ?Sized>(&self, key: impl AsRef<[u8]>, value: &T) -> Result<(), KvError> {
        let bytes = encode_value(value)?;
        on_this_thread(self.write(Caller::Thread, PUTTING, key.as_ref(), Some(&bytes)))
    }

    /// Deletes what is under `key`, if anything is.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), KvError> {
        on_this_thread(self.write(Caller::Thread, DELETING, key.as_ref(), None))
    }

    /// Puts `new` under `key` if `expected` is there, in one atomic step; `None` stands for no value. What is there
    /// instead is told once it is durable.
    ///
    /// # Errors
    /// [`KvError`]. After a fault of storage it is not known whether it was swapped: read the value, and write values
    /// that tell who wrote them if that matters.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Compared, KvError> {
        on_this_thread(self.swap(Caller::Thread, key.as_ref(), expected, new))
    }

    /// The values whose key begins with `prefix`, in the order of keys, each as of some time during the walk. Reads a
    /// page at a time, of [`KvScan::PAGE`] values or [`KvScan::PAGE_BYTES`], and stops no writers.
    ///
    /// # Errors
    /// [`KvError`] if the prefix is too long; those of the iterator are told at [`KvScan`].
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<KvScan, KvError> {
        let invalid = |error| KvError::InvalidKey { doing: "scanning", error };
        let prefix = Key::value_prefix(&self.name, prefix.as_ref()).map_err(invalid)?;
        Ok(KvScan::new(self.store.clone(), prefix))
    }

    pub(super) async fn read(&self, caller: Caller, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        const DOING: &str = "reading";
        let key = self.key(DOING, key)?;
        let bytes = self.store.0.read_value(caller, &key).await.map_err(failed(DOING, &key))?;
        bytes.as_deref().map(record::decode_value).transpose().map_err(damaged(DOING, &key))
    }

    pub(super) async fn read_value<T: DeserializeOwned>(
        &self,
        caller: Caller,
        key: &[u8],
    ) -> Result<Option<T>, KvError> {
        let Some(bytes) = self.read(caller, key).await? else { return Ok(None) };
        let key = self.key("reading", key)?.label();
        let undecodable =
            |error: DecodeError| KvError::Undecodable { key, error: error.of_bytes_from("Kv::get") };
        value::decode(&bytes).map(Some).map_err(undecodable)
    }

    pub(super) async fn swap(
        &self,
        caller: Caller,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Compared, KvError> {
        const DOING: &str = "comparing and swapping";
        let key = self.key(DOING, key)?;
        let store = &self.store.0;
        check_size(DOING, &key, new.map_or(0, <[u8]>::len), store.settings.value_limit)?;
        let fail = || failed(DOING, &key);
        let new = writes::encode(&key, new);
        let mut seen = store.read_to_write(&key).map_err(fail())?;
        loop {
            // By the values, not by their bytes: those of a later version may frame the same value in another way.
            let current = seen.as_deref().map(record::decode_value).transpose();
            let current = current.map_err(damaged(DOING, &key))?;
            if current.as_deref() != expected {
                store.durable(caller, &key).await.map_err(fail())?;
                return Ok(Compared::Differs { current });
            }
            match store.swap_value(caller, &new, seen.as_deref()).await.map_err(fail())? {
                Swap::Done => return Ok(Compared::Swapped),
                Swap::Refused { current } => seen = current,
            }
        }
    }

    pub(super) async fn write(
        &self,
        caller: Caller,
        doing: &'static str,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), KvError> {
        let key = self.key(doing, key)?;
        let store = &self.store.0;
        check_size(doing, &key, value.map_or(0, <[u8]>::len), store.settings.value_limit)?;
        let writes = [writes::encode(&key, value)];
        store.write_values(caller, &writes).await.map_err(failed(doing, &key))
    }

    fn key(&self, doing: &'static str, key: &[u8]) -> Result<Key, KvError> {
        Key::of_value(&self.name, key).map_err(|error: KeyError| KvError::InvalidKey { doing, error })
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What was tried, in errors.
pub(super) const PUTTING: &str = "putting";
pub(super) const DELETING: &str = "deleting";

pub(super) fn encode_value<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, KvError> {
    value::encode(value).map_err(|error| KvError::NotEncodable { doing: PUTTING, error })
}

pub(super) fn failed(doing: &'static str, key: &Key) -> impl FnOnce(Fault) -> KvError + use<> {
    let on = key.label().to_string();
    move |fault| KvError::Failed { doing, on, fault }
}

pub(super) fn damaged(doing: &'static str, key: &Key) -> impl FnOnce(Damage) -> KvError + use<> {
    let key = key.label();
    move |damage| KvError::Damaged { doing, key, damage }
}

impl Inner {
    /// The stored bytes of a value, told once they are durable.
    async fn read_value(&self, caller: Caller, key: &Key) -> Result<Option<Vec<u8>>, Fault> {
        let bytes = self.engine.get()?.read(key.encoded())?;
        self.durable(caller, key).await?;
        Ok(bytes)
    }

    /// The stored bytes of a value that is to be swapped, told to nobody.
    fn read_to_write(&self, key: &Key) -> Result<Option<Vec<u8>>, Fault> {
        self.check_new_work()?;
        Ok(self.engine.get()?.read(key.encoded())?)
    }

    /// Writes values whatever is there, all in one commit, and returns once that may be told.
    pub(super) async fn write_values(&self, caller: Caller, writes: &[Write]) -> Result<(), Fault> {
        match self.swap_values_in(writes)? {
            Some(marked) => self.tell_written(caller, marked).await,
            None => Ok(()),
        }
    }

    fn swap_values_in(&self, writes: &[Write]) -> Result<Option<Marked<'_>>, Fault> {
        let Some((first, effects)) = writes.split_first() else { return Ok(None) };
        self.check_new_work()?;
        let engine = self.engine.get()?;
        let mut seen = engine.read(&first.key)?;
        let marked = self.mark_values(writes)?;
        loop {
            let swap = Commit::swap(&first.key, seen.as_deref(), first.value.as_deref());
            match commit_one(&*engine, &Commit { effects, ..swap }) {
                Ok(Swap::Done) => return Ok(Some(marked)),
                Ok(Swap::Refused { current }) => seen = current,
                // Its fate is unknown, and reading back would not tell it from another's write. Dropping the mark
                // asks for a sync all the same.
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Swaps a value, once, and returns once that may be told. A refusal tells nothing that may be told yet.
    async fn swap_value(&self, caller: Caller, new: &Write, seen: Option<&[u8]>) -> Result<Swap, Fault> {
        let marked = self.mark_values(std::slice::from_ref(new))?;
        let swap = commit_one(&*self.engine.get()?, &Commit::swap(&new.key, seen, new.value.as_deref()))?;
        match &swap {
            Swap::Done => self.tell_written(caller, marked).await?,
            Swap::Refused { .. } => marked.clear(),
        }
        Ok(swap)
    }

    /// Puts the marks of a write on its keys, before its swap (rule 1).
    fn mark_values(&self, writes: &[Write]) -> Result<Marked<'_>, Fault> {
        if self.is_relaxed() {
            self.relaxed_values.fetch_max(1, Ordering::Release);
        }
        self.mark_writes(writes)
    }

    async fn tell_written(&self, caller: Caller, marked: Marked<'_>) -> Result<(), Fault> {
        if self.is_relaxed() {
            marked.clear();
            return Ok(());
        }
        let ticket = marked.returned()?;
        self.synced(caller, ticket).await
    }

    fn is_relaxed(&self) -> bool {
        self.settings.terms.durability == Durability::Relaxed
    }

    /// Returns once what was read under `key` before this call is durable.
    async fn durable(&self, caller: Caller, key: &Key) -> Result<(), Fault> {
        if let Some(stamp) = self.table.marked(key.encoded(), None, None)? {
            self.until_synced(caller, key.encoded(), stamp).await?;
        }
        self.check_relaxed_values()
    }

    /// Refuses to tell of any value while poisoned if some were written without a sync: nothing says which.
    pub(super) fn check_relaxed_values(&self) -> Result<(), Fault> {
        if self.relaxed_values.load(Ordering::Acquire) > 0
            && let Some(poisoned) = self.commit.poisoned()
        {
            return Err(poisoned.into());
        }
        Ok(())
    }

    /// Waits until the marks are gone that stood on `key` at `stamp`, for the sync limit at most.
    pub(super) async fn until_synced(
        &self,
        caller: Caller,
        key: &Arc<[u8]>,
        stamp: Stamp,
    ) -> Result<(), Fault> {
        let (start, limit) = (self.clock.now(), self.limit());
        let deadline = start.after(limit);
        let waiting = Waiting::new(&self.table, key);
        if let Some(ticket) = self.commit.help()? {
            self.synced(caller, ticket).await?;
        }
        loop {
            let marked = self.table.marked(key, Some(stamp), Some(&waiting))?;
            if marked.is_none() {
                return Ok(());
            }
            // After joining the queue: a sync that fails, or a write that is abandoned, wakes it from here on.
            if let Some(poisoned) = self.commit.poisoned() {
                return Err(poisoned.into());
            }
            if let Some(ticket) = self.commit.abandoned() {
                self.synced(caller, ticket).await?;
                continue;
            }
            let now = self.clock.now();
            if expired(now, deadline) {
                let running = self.commit.stats().running;
                return Err(Fault::SyncPending { waited: now.since(start), running });
            }
            self.pause(caller, waiting.signal(), deadline).await?;
        }
    }
}
