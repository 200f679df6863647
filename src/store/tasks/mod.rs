//! The same store for tasks, without a runtime: each operation that may wait, as a future.
//!
//! A future takes the steps that a thread takes, and awaits where a thread would wait: for the key, and for syncs.
//! Reads and writes of the engine run inline, in the poll: a read that is not in sled's cache blocks the executor's
//! thread for one disk read, a write for the time of copying it into sled's buffer. With
//! [`SyncBy::Caller`](crate::SyncBy::Caller) syncs run inline as well.
//!
//! Dropping a future at any point leaves nothing behind: its standing among the waiters passes on, a claim that
//! was stored for it counts as never granted, and a write that was swapped in is synced without it.

mod claims;
mod values;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An operation of the store under way. Owns what it needs, and may be sent to any thread.
///
/// It does nothing before its first poll. Dropping it at any point leaves nothing behind; a write that its poll has
/// swapped in stands all the same, and is synced without it.
#[must_use = "futures do nothing unless they are awaited"]
pub struct StoreFuture<T>(Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> StoreFuture<T> {
    fn of(steps: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Box::pin(steps))
    }
}

impl<T> Future for StoreFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFuture").finish_non_exhaustive()
    }
}
