//! What a handler has to do with its claim.

use crate::lease::LossCause;
use crate::record::Previous;
use crate::store::{CheckpointError, Claim, LossSignal};
use crate::sync::{Mutex, Signal};
use crate::token::Token;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// What becomes of a response: put into its extensions by a handler that knows better than the layer's rules.
///
/// ```
/// use claimdb::http::Disposition;
/// let mut response = http::Response::new("the bank has declined it for good");
/// *response.status_mut() = http::StatusCode::BAD_GATEWAY;
/// response.extensions_mut().insert(Disposition::Fail); // a 502 would free the key
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// It is stored and replayed, whatever its status.
    Store,
    /// It is not stored, and the key is free: the next request with it is a first attempt. Says that nothing was
    /// done.
    Release,
    /// It is stored and replayed as a final failure, and shown as failed by the store.
    Fail,
}

/// The claim under which a request runs, in the extensions of the request.
///
/// Cheap to clone. Once the handler has answered, it tells as before and saves no more.
#[derive(Clone)]
pub struct ClaimHandle {
    held: Arc<Held>,
    about: Arc<About>,
}

struct About {
    token: Token,
    attempt: u32,
    previous: Option<Previous>,
    checkpoint: Option<Vec<u8>>,
    lost: LossSignal,
}

/// Progress could not be saved.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The request was answered before.
    #[error("saving progress of a request: it has been answered; save before the handler returns")]
    Answered,
    /// It is being saved by another thread at this moment.
    #[error("saving progress of a request: another thread is saving some at this moment; try again")]
    Busy,
    /// The store refused.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl ClaimHandle {
    fn new(claim: &Claim, held: &Arc<Held>) -> Self {
        let about = About {
            token: claim.token(),
            attempt: claim.attempt(),
            previous: claim.previous(),
            checkpoint: claim.last_checkpoint().map(<[u8]>::to_vec),
            lost: claim.lost(),
        };
        Self { held: Arc::clone(held), about: Arc::new(about) }
    }

    /// The fencing token. Hand it to what the work changes, and let that refuse older ones.
    #[must_use]
    pub fn token(&self) -> Token {
        self.about.token
    }

    /// Which attempt at this request it is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// The attempt before, which ended without an outcome and may have acted.
    #[must_use]
    pub fn previous(&self) -> Option<Previous> {
        self.about.previous
    }

    /// What the attempts before this one saved last.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&[u8]> {
        self.about.checkpoint.as_deref()
    }

    /// Saves `progress` for the next attempt, should this one not be stored: from then on a 5xx frees the key as a next
    /// attempt, and no more as a first one. Durable when this returns. At most as many bytes as a result,
    /// [`value_limit`](crate::Builder::value_limit).
    ///
    /// It waits for a sync, and so blocks the thread; [`checkpoint_async`](Self::checkpoint_async) does not.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn checkpoint(&self, progress: impl AsRef<[u8]>) -> Result<(), HandleError> {
        Ok(self.held.borrow()?.claim().checkpoint(progress)?)
    }

    /// [`checkpoint`](Self::checkpoint) for tasks. Await it to its end or drop it: the answer waits for one that has begun,
    /// until the claim is lost.
    ///
    /// # Errors
    /// [`HandleError`].
    pub async fn checkpoint_async(&self, progress: impl AsRef<[u8]>) -> Result<(), HandleError> {
        Ok(self.held.borrow()?.claim().checkpoint_async(progress).await?)
    }

    /// Tells when the claim stops being this request's: its lease runs out, another attempt takes over, the store
    /// is closed.
    #[must_use]
    pub fn lost(&self) -> LossSignal {
        self.about.lost.clone()
    }

    /// Why the claim is no longer this request's; `None` while it is.
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        self.about.lost.cause()
    }
}

impl fmt::Debug for ClaimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimHandle")
            .field("token", &self.about.token)
            .field("attempt", &self.about.attempt)
            .finish_non_exhaustive()
    }
}

/// Where a claim is while its handler runs.
///
/// # Locking
/// One mutex around the slot, held to take the claim out or to put it back.
struct Held {
    slot: Mutex<Slot>,
    back: Arc<Signal>,
}

enum Slot {
    Here(Claim),
    Lent,
    Gone,
}

impl Held {
    fn borrow(self: &Arc<Self>) -> Result<Loan, HandleError> {
        let mut slot = self.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Lent) {
            Slot::Here(claim) => Ok(Loan { held: Arc::clone(self), claim: Some(claim) }),
            Slot::Lent => Err(HandleError::Busy),
            Slot::Gone => {
                *slot = Slot::Gone;
                Err(HandleError::Answered)
            }
        }
    }
}

/// A claim that is out of its slot; dropping this puts it back.
struct Loan {
    held: Arc<Held>,
    claim: Option<Claim>,
}

impl Loan {
    fn claim(&mut self) -> &mut Claim {
        self.claim.as_mut().expect("a loan has its claim until it is dropped")
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut claim = self.claim.take();
        {
            let mut slot = self.held.slot.lock();
            if matches!(*slot, Slot::Lent)
                && let Some(claim) = claim.take()
            {
                *slot = Slot::Here(claim);
            }
        }
        // Dropped after the lock, if the owner has gone meanwhile: that ends the claim.
        drop(claim);
        self.held.back.notify();
    }
}

/// The owner of a claim whose handler runs. Dropping it, also by unwinding, drops the claim, whoever has handles.
pub(super) struct Owned {
    held: Arc<Held>,
    lost: LossSignal,
}

impl Owned {
    pub(super) fn new(claim: Claim) -> (Self, ClaimHandle) {
        let held = Arc::new(Held { slot: Mutex::new(Slot::Gone), back: Arc::new(Signal::new()) });
        let handle = ClaimHandle::new(&claim, &held);
        let lost = handle.lost();
        *held.slot.lock() = Slot::Here(claim);
        (Self { held, lost }, handle)
    }

    /// The claim, once no handle saves progress with it. No handle does from then on. `None` if the claim is lost before
    /// that: one who saves may be a task that is never polled again.
    pub(super) async fn take(self) -> Option<Claim> {
        let mut lost = pin!(self.lost.raised());
        loop {
            if let Some(gone) = self.end() {
                return gone;
            }
            let mut back = pin!(self.held.back.raised());
            let came_back = poll_fn(|context| match back.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => lost.as_mut().poll(context).map(|_| false),
            });
            if !came_back.await {
                return self.end().flatten();
            }
        }
    }

    /// Takes the claim away from the handles; `None` while one has it.
    fn end(&self) -> Option<Option<Claim>> {
        let mut slot = self.held.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Gone) {
            Slot::Here(claim) => Some(Some(claim)),
            Slot::Gone => Some(None),
            Slot::Lent => {
                *slot = Slot::Lent;
                None
            }
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let former = std::mem::replace(&mut *self.held.slot.lock(), Slot::Gone);
        drop(former);
    }
}
