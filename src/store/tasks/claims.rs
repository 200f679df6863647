//! Claims, locks and what is done to keys from outside.

use super::StoreFuture;
use crate::error::{AdminError, ClaimError};
use crate::record::{Kept, Omission};
use crate::store::act::Act;
use crate::store::caller::Caller;
use crate::store::settle_error::RetryCause;
use crate::store::settle_many::completions;
use crate::store::{
    AllClaimed, CheckpointError, Claim, Ending, IntoKey, LiveClaims, Lock, Outcome, Request, Resolution, Run,
    RunError, Scope, SettleError, Store, Worked, Writes,
};
use crate::token::Token;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

impl Store {
    /// [`claim`](Store::claim) for tasks, of any runtime. The future owns what it needs and may be sent to any thread.
    ///
    /// It awaits where a thread would wait: for the key, and for syncs. Reads and writes of the engine run inside
    /// `poll`: a read that is not in sled's cache blocks the executor's thread for a disk read, a write for copying
    /// it into sled's buffer. Once in half a million claims a poll also waits for one sync, to raise the ceiling of
    /// tokens. With [`SyncBy::Caller`](crate::SyncBy::Caller) all syncs run in `poll`.
    ///
    /// Dropping the future at any point leaves nothing behind. Keeping it without polling it does: once it stands first
    /// among the waiters, those behind it wait for its poll, until their own deadlines at most.
    ///
    /// The request's [wait](Request::wait) begins at the first poll.
    ///
    /// That it is nested in [`run`](Store::run) is found at its first poll, if the thread that polls it is doing the
    /// work of that key then. Whoever polls it first elsewhere, and blocks the work on it, waits for it in vain, until
    /// the end of the request's [wait](Request::wait).
    ///
    /// It is woken on the thread that frees the key or rings its deadline, which can be the one that syncs: a waker may
    /// use the store, and must not wait there for a sync or a key.
    ///
    /// # Errors
    /// As [`claim`](Store::claim).
    pub fn claim_async(&self, request: impl Into<Request>) -> StoreFuture<Result<Outcome, ClaimError>> {
        let (store, request) = (Arc::clone(&self.0), request.into());
        StoreFuture::of(async move { store.claim(Caller::Task, &request).await })
    }

    /// [`claim_many`](Store::claim_many) for tasks; as [`claim_async`](Store::claim_async).
    ///
    /// # Errors
    /// As [`claim_many`](Store::claim_many).
    pub fn claim_many_async<R: Into<Request>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> StoreFuture<Vec<Result<Outcome, ClaimError>>> {
        let (store, requests) = (Arc::clone(&self.0), requests.into_iter().map(Into::into).collect());
        StoreFuture::of(async move { store.claim_many(Caller::Task, requests).await })
    }

    /// [`claim_all`](Store::claim_all) for tasks; as [`claim_async`](Store::claim_async). Dropping the future once it
    /// has stored claims leaves those records; they count as never granted.
    ///
    /// # Errors
    /// As [`claim_all`](Store::claim_all).
    pub fn claim_all_async<R: Into<Request>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> StoreFuture<Result<AllClaimed, ClaimError>> {
        let (store, requests) = (Arc::clone(&self.0), requests.into_iter().map(Into::into).collect());
        StoreFuture::of(async move { store.claim_all(Caller::Task, requests).await })
    }

    /// [`complete_many`](Store::complete_many) for tasks. What is not swapped in yet when the future is dropped are
    /// claims that were dropped.
    ///
    /// # Errors
    /// As [`complete_many`](Store::complete_many).
    pub fn complete_many_async<T: Serialize>(
        &self,
        results: impl IntoIterator<Item = (Claim, T)>,
    ) -> StoreFuture<Vec<Result<(), SettleError>>> {
        let (store, completions) = (Arc::clone(&self.0), completions(results));
        StoreFuture::of(async move { store.complete_many(Caller::Task, completions).await })
    }

    /// [`run`](Store::run) for tasks. The future borrows the store and what `work` borrows; it may be sent to another
    /// thread if `work` and its future may. Dropping it while `work` runs drops the claim.
    ///
    /// That a claim is nested in it is found as in [`run`](Store::run): while `work` is polled, on the thread that
    /// polls it.
    ///
    /// ```
    /// use claimdb::{Claim, Run, Store, backend::Mem};
    /// # fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(context) { return output }
    /// #         std::thread::yield_now();
    /// #     }
    /// # }
    /// let store = Store::builder(Mem::new()).open()?;
    /// let charge = async |claim: &Claim| Ok::<_, std::io::Error>(format!("receipt {}", claim.attempt()));
    /// assert_eq!(block_on(store.run_async("order-42", charge))?, Run::Fresh("receipt 1".to_owned()));
    /// assert_eq!(block_on(store.run_async("order-42", charge))?, Run::Replayed("receipt 1".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Store::run).
    pub async fn run_async<T, E>(
        &self,
        request: impl Into<Request>,
        work: impl AsyncFnOnce(&Claim) -> Result<T, E>,
    ) -> Result<Run<T>, RunError<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        self.run_by_async(request, |worked| worked.default_ending(), work).await
    }

    /// [`run_by`](Store::run_by) for tasks, as [`run_async`](Store::run_async).
    ///
    /// # Errors
    /// As [`run_by`](Store::run_by).
    pub async fn run_by_async<T, E>(
        &self,
        request: impl Into<Request>,
        rule: impl FnOnce(Worked<'_, T, E>) -> Ending,
        work: impl AsyncFnOnce(&Claim) -> Result<T, E>,
    ) -> Result<Run<T>, RunError<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        self.run_as(Caller::Task, request.into(), rule, work).await
    }

    /// [`lock`](Store::lock) for tasks; as [`claim_async`](Store::claim_async).
    ///
    /// # Errors
    /// As [`lock`](Store::lock).
    pub fn lock_async(
        &self,
        key: impl IntoKey,
        wait: Duration,
    ) -> StoreFuture<Result<Option<Lock>, ClaimError>> {
        let (store, key) = (Arc::clone(&self.0), key.into_key());
        StoreFuture::of(async move { store.lock(Caller::Task, key?, wait).await })
    }

    /// [`remove`](Store::remove) for tasks.
    ///
    /// # Errors
    /// As [`remove`](Store::remove).
    pub fn remove_async(&self, key: impl IntoKey) -> StoreFuture<Result<bool, AdminError>> {
        let (store, key) = (Arc::clone(&self.0), key.into_key());
        StoreFuture::of(async move { store.remove(Caller::Task, key).await })
    }

    /// [`remove_by_force`](Store::remove_by_force) for tasks.
    ///
    /// # Errors
    /// As [`remove_by_force`](Store::remove_by_force).
    pub fn remove_by_force_async(&self, key: impl IntoKey) -> StoreFuture<Result<bool, AdminError>> {
        let (store, key) = (Arc::clone(&self.0), key.into_key());
        StoreFuture::of(async move { store.remove_by_force(Caller::Task, key).await })
    }

    /// [`resolve`](Store::resolve) for tasks.
    ///
    /// # Errors
    /// As [`resolve`](Store::resolve).
    pub fn resolve_async(
        &self,
        key: impl IntoKey,
        token: Token,
        resolution: Resolution,
    ) -> StoreFuture<Result<bool, AdminError>> {
        let (store, key) = (Arc::clone(&self.0), key.into_key());
        StoreFuture::of(async move { store.resolve(Caller::Task, key, token, resolution).await })
    }

    /// [`sync`](Store::sync) for tasks.
    ///
    /// # Errors
    /// As [`sync`](Store::sync).
    pub fn sync_async(&self) -> StoreFuture<Result<(), AdminError>> {
        let store = Arc::clone(&self.0);
        StoreFuture::of(async move { store.sync_all(Caller::Task).await })
    }
}

impl Scope {
    /// [`Store::claim_async`] in this scope.
    ///
    /// # Errors
    /// As [`Store::claim`].
    pub fn claim_async(&self, name: impl AsRef<[u8]>) -> StoreFuture<Result<Outcome, ClaimError>> {
        self.store.claim_async(self.request(name))
    }

    /// [`Store::run_async`] in this scope.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub async fn run_async<T, E>(
        &self,
        name: impl AsRef<[u8]>,
        work: impl AsyncFnOnce(&Claim) -> Result<T, E>,
    ) -> Result<Run<T>, RunError<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        self.store.run_async(self.request(name), work).await
    }

    /// [`empty`](Scope::empty) for tasks. Keys are removed in the polls, a thousand or so between two waits; once the
    /// future is dropped no more are.
    ///
    /// # Errors
    /// As [`empty`](Scope::empty).
    pub fn empty_async(&self, live: LiveClaims) -> StoreFuture<Result<u64, AdminError>> {
        let scope = self.clone();
        StoreFuture::of(async move { scope.empty_as(Caller::Task, live).await })
    }
}

impl Claim {
    /// [`complete`](Claim::complete) for tasks. The result is swapped in at the first poll: dropped before that, it is
    /// a claim that was dropped; from then on dropping the future does not take it back.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn complete_async<T: Serialize + ?Sized>(self, value: &T) -> StoreFuture<Result<(), SettleError>> {
        let act = self.0.store.completion(value);
        self.settle_task(act)
    }

    /// [`complete_with`](Claim::complete_with) for tasks, as [`complete_async`](Claim::complete_async).
    ///
    /// # Errors
    /// As [`complete_with`](Claim::complete_with).
    pub fn complete_with_async<T: Serialize + ?Sized>(
        self,
        value: &T,
        effects: Writes,
    ) -> StoreFuture<Result<(), SettleError>> {
        let act = self.0.store.act_with(value, effects);
        self.settle_task(act)
    }

    /// [`complete_bytes`](Claim::complete_bytes) for tasks, as [`complete_async`](Claim::complete_async).
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn complete_bytes_async(self, bytes: impl Into<Vec<u8>>) -> StoreFuture<Result<(), SettleError>> {
        let act = self.0.store.completion_of(bytes.into());
        self.settle_task(act)
    }

    /// [`fail`](Claim::fail) for tasks, as [`complete_async`](Claim::complete_async).
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn fail_async<T: Serialize + ?Sized>(self, reason: &T) -> StoreFuture<Result<(), SettleError>> {
        let act = self.0.store.failure(reason);
        self.settle_task(act)
    }

    /// [`omit`](Claim::omit) for tasks, as [`complete_async`](Claim::complete_async).
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn omit_async(self, reason: Omission) -> StoreFuture<Result<(), SettleError>> {
        self.settle_task(Ok(Act::Settle(Kept::Omitted(reason))))
    }

    /// [`release`](Claim::release) for tasks, as [`complete_async`](Claim::complete_async).
    ///
    /// # Errors
    /// As [`release`](Claim::release).
    pub fn release_async(self) -> StoreFuture<Result<(), SettleError>> {
        self.settle_task(Ok(Act::Release))
    }

    /// [`checkpoint`](Claim::checkpoint) for tasks. The progress is swapped in at the first poll.
    ///
    /// # Errors
    /// As [`checkpoint`](Claim::checkpoint).
    pub async fn checkpoint_async(&mut self, progress: impl AsRef<[u8]>) -> Result<(), CheckpointError> {
        self.save(Caller::Task, progress.as_ref()).await
    }

    fn settle_task(self, act: Result<Act, RetryCause>) -> StoreFuture<Result<(), SettleError>> {
        StoreFuture::of(self.settle(Caller::Task, act))
    }
}
