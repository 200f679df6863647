//! Plain values.

use super::StoreFuture;
use crate::store::caller::Caller;
use crate::store::engine::Pair;
use crate::store::kv::{DELETING, PUTTING, encode_value};
use crate::store::{Compared, Kv, KvError, KvScan, Store, Writes};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

impl Kv {
    /// [`get`](Kv::get) for tasks. The value is read at the first poll; the rest awaits that it may be told.
    ///
    /// # Errors
    /// As [`get`](Kv::get).
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> StoreFuture<Result<Option<Vec<u8>>, KvError>> {
        let (kv, key) = (self.clone(), key.as_ref().to_vec());
        StoreFuture::of(async move { kv.read(Caller::Task, &key).await })
    }

    /// [`get_value`](Kv::get_value) for tasks.
    ///
    /// # Errors
    /// As [`get_value`](Kv::get_value).
    pub fn get_value_async<T: DeserializeOwned + 'static>(
        &self,
        key: impl AsRef<[u8]>,
    ) -> StoreFuture<Result<Option<T>, KvError>> {
        let (kv, key) = (self.clone(), key.as_ref().to_vec());
        StoreFuture::of(async move { kv.read_value(Caller::Task, &key).await })
    }

    /// [`put`](Kv::put) for tasks. The value is swapped in at the first poll; from then on dropping the future does
    /// not take it back.
    ///
    /// # Errors
    /// As [`put`](Kv::put).
    pub fn put_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>>,
    ) -> StoreFuture<Result<(), KvError>> {
        let (kv, key, value) = (self.clone(), key.as_ref().to_vec(), value.into());
        StoreFuture::of(async move { kv.write(Caller::Task, PUTTING, &key, Some(&value)).await })
    }

    /// [`put_value`](Kv::put_value) for tasks, as [`put_async`](Kv::put_async).
    ///
    /// # Errors
    /// As [`put_value`](Kv::put_value).
    pub fn put_value_async<T: Serialize + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        value: &T,
    ) -> StoreFuture<Result<(), KvError>> {
        let (kv, key, value) = (self.clone(), key.as_ref().to_vec(), encode_value(value));
        StoreFuture::of(async move { kv.write(Caller::Task, PUTTING, &key, Some(&value?)).await })
    }

    /// [`delete`](Kv::delete) for tasks, as [`put_async`](Kv::put_async).
    ///
    /// # Errors
    /// As [`delete`](Kv::delete).
    pub fn delete_async(&self, key: impl AsRef<[u8]>) -> StoreFuture<Result<(), KvError>> {
        let (kv, key) = (self.clone(), key.as_ref().to_vec());
        StoreFuture::of(async move { kv.write(Caller::Task, DELETING, &key, None).await })
    }

    /// [`compare_and_swap`](Kv::compare_and_swap) for tasks. Once a poll has swapped the value in, dropping the future
    /// does not take it back.
    ///
    /// # Errors
    /// As [`compare_and_swap`](Kv::compare_and_swap).
    pub fn compare_and_swap_async(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<Vec<u8>>,
        new: Option<Vec<u8>>,
    ) -> StoreFuture<Result<Compared, KvError>> {
        let (kv, key) = (self.clone(), key.as_ref().to_vec());
        StoreFuture::of(async move { kv.swap(Caller::Task, &key, expected.as_deref(), new.as_deref()).await })
    }
}

impl KvScan {
    /// [`next`](Iterator::next) for tasks. Dropping the future turns no page: the next one gives what it would have.
    ///
    /// # Errors
    /// As [`KvScan`] tells.
    pub async fn next_async(&mut self) -> Option<Result<Pair, KvError>> {
        self.give(Caller::Task).await
    }
}

impl Store {
    /// [`write`](Store::write) for tasks, as [`Kv::put_async`].
    ///
    /// # Errors
    /// As [`write`](Store::write).
    pub fn write_async(&self, writes: Writes) -> StoreFuture<Result<(), KvError>> {
        let store = Arc::clone(&self.0);
        StoreFuture::of(async move { store.write_all(Caller::Task, writes).await })
    }
}
