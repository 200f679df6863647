//! The same store for tasks, without a runtime.
//!
//! A future takes the steps that a thread takes, and awaits where a thread would wait: for the key, and for syncs.
//! Reads and writes of the engine run inline, in the poll: a read that is not in sled's cache blocks the executor's
//! thread for one disk read, a write for the time of copying it into sled's buffer. With [`SyncBy::Caller`] syncs run
//! inline as well.
//!
//! Dropping a future at any point leaves nothing behind: its standing among the waiters passes on, a claim that
//! was stored for it counts as never granted, and a settle that was swapped in is synced without it.

use super::claim::Next;
use super::guard::Claim;
use super::marked::Marked;
use super::settle::Act;
use super::settle_error::{RetryCause, SettleError};
use super::{Inner, Outcome, Request, Store, Writes};
use crate::clock::Moment;
#[cfg(doc)]
use crate::commit::SyncBy;
use crate::commit::Ticket;
use crate::error::{ClaimError, Fault};
use crate::record::{Kept, Omission};
use crate::sync::Signal;
use serde::Serialize;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

impl Store {
    /// [`claim`](Store::claim) for tasks, of any runtime. The future owns what it needs and may be sent to any thread.
    ///
    /// It awaits where a thread would wait: for the key, and for syncs. Reads and writes of the engine run inside
    /// `poll`: a read that is not in sled's cache blocks the executor's thread for a disk read, a write for copying
    /// it into sled's buffer. Once in half a million claims a poll also waits for one sync, to raise the ceiling of
    /// tokens. With [`SyncBy::Caller`] all syncs run in `poll`.
    ///
    /// Dropping the future at any point leaves nothing behind.
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
    pub fn claim_async(&self, request: impl Into<Request>) -> ClaimFuture {
        let (store, request) = (Arc::clone(&self.0), request.into());
        ClaimFuture(Box::pin(async move { store.claim_task(&request).await }))
    }
}

impl Claim {
    /// [`complete`](Claim::complete) for tasks. The result is swapped in at the first poll; from then on dropping
    /// the future does not take it back.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn complete_async<T: Serialize + ?Sized>(self, value: &T) -> SettleFuture {
        let act = self.store.encode(value).map(|bytes| Act::Settle(Kept::Completed(bytes)));
        SettleFuture(Box::pin(self.settle_task(act)))
    }

    /// [`complete_with`](Claim::complete_with) for tasks.
    ///
    /// # Errors
    /// As [`complete_with`](Claim::complete_with).
    pub fn complete_with_async<T: Serialize + ?Sized>(self, value: &T, effects: Writes) -> SettleFuture {
        let act = self.store.act_with(value, effects);
        SettleFuture(Box::pin(self.settle_task(act)))
    }

    /// [`complete_bytes`](Claim::complete_bytes) for tasks.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn complete_bytes_async(self, bytes: impl Into<Vec<u8>>) -> SettleFuture {
        let bytes = bytes.into();
        let act = self.store.check_size(bytes.len()).map(|()| Act::Settle(Kept::Completed(bytes)));
        SettleFuture(Box::pin(self.settle_task(act)))
    }

    /// [`fail`](Claim::fail) for tasks.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn fail_async<T: Serialize + ?Sized>(self, reason: &T) -> SettleFuture {
        let act = self.store.encode(reason).map(|bytes| Act::Settle(Kept::Failed(bytes)));
        SettleFuture(Box::pin(self.settle_task(act)))
    }

    /// [`omit`](Claim::omit) for tasks.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn omit_async(self, reason: Omission) -> SettleFuture {
        SettleFuture(Box::pin(self.settle_task(Ok(Act::Settle(Kept::Omitted(reason))))))
    }

    /// [`release`](Claim::release) for tasks.
    ///
    /// # Errors
    /// As [`complete`](Claim::complete).
    pub fn release_async(self) -> SettleFuture {
        SettleFuture(Box::pin(self.settle_task(Ok(Act::Release))))
    }

    async fn settle_task(mut self, act: Result<Act, RetryCause>) -> Result<(), SettleError> {
        let act = match act {
            Ok(act) => act,
            Err(cause) => return Err(SettleError::retry(self, cause)),
        };
        let store = Arc::clone(&self.store);
        let applied = store.apply(&mut self, &act);
        let ticket = applied.and_then(|marked| Ok(marked.map(Marked::returned).transpose()?));
        let synced = match ticket {
            Ok(Some(ticket)) => store.synced(ticket).await,
            Ok(None) => Ok(()),
            Err(failure) => return Err(self.failed(failure)),
        };
        synced.map_err(|fault| SettleError::retry(self, RetryCause::Fault(fault)))
    }
}

/// A claim under way. Needs nothing from whoever made it, and may be sent to any thread.
#[must_use = "futures do nothing unless they are awaited"]
pub struct ClaimFuture(Pin<Box<dyn Future<Output = Result<Outcome, ClaimError>> + Send>>);

impl Future for ClaimFuture {
    type Output = Result<Outcome, ClaimError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for ClaimFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimFuture").finish_non_exhaustive()
    }
}

/// A settle under way. Dropped before its first poll it is a claim that was dropped; after that the settle stands.
#[must_use = "futures do nothing unless they are awaited"]
pub struct SettleFuture(Pin<Box<dyn Future<Output = Result<(), SettleError>> + Send>>);

impl Future for SettleFuture {
    type Output = Result<(), SettleError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for SettleFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettleFuture").finish_non_exhaustive()
    }
}

impl Inner {
    async fn claim_task(self: &Arc<Self>, request: &Request) -> Result<Outcome, ClaimError> {
        let request = self.check(request)?;
        let failed = |fault| ClaimError::Failed { key: request.key.label(), fault };
        let deadline = self.clock.now().after(request.wait);
        let waiting = self.waiting(&request);
        loop {
            match self.next(&request, waiting.as_ref(), deadline).map_err(failed)? {
                Next::Tell(outcome) => return Ok(outcome),
                Next::Again => {}
                Next::WaitUntil(until) => {
                    if let Some(waiting) = &waiting {
                        self.raised(waiting.signal(), until).await.map_err(failed)?;
                    }
                }
                Next::Sync(ticket, swapped) => {
                    self.synced(ticket).await.map_err(failed)?;
                    return self.finish(&request, swapped).map_err(failed);
                }
            }
        }
    }

    /// Awaits a sync that covers `ticket`, within the sync limit.
    pub(super) async fn synced(&self, ticket: Ticket) -> Result<(), Fault> {
        let waiting = self.commit.waiting(ticket, self.limit());
        loop {
            if let Some(covered) = waiting.look() {
                return covered;
            }
            let (signal, deadline) = waiting.signal();
            self.raised(signal, deadline).await?;
        }
    }

    /// Awaits `signal`, until `deadline` at most.
    async fn raised(&self, signal: &Arc<Signal>, deadline: Moment) -> Result<(), Fault> {
        let late = Arc::clone(signal);
        let _alarm = self.timer.set(deadline, move || late.notify())?;
        signal.raised().await;
        Ok(())
    }
}
