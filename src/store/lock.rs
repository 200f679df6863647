//! Mutual exclusion with a fencing token, and nothing stored.

use super::caller::{Caller, on_this_thread};
use super::guard::ExpiredLease;
use super::request::{IntoKey, MAX_WAIT, check_lease};
use super::{Inner, Store};
use crate::clock::expired;
use crate::error::{ClaimError, Fault, InvalidSetting};
use crate::key::Key;
use crate::lease::{Admitted, Place, Waiting};
use crate::protocol::Purpose;
use crate::token::Token;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

impl Store {
    /// Takes the lock of this name, waiting for it for `wait` at most, up to [`MAX_WAIT`]; `None` if another still
    /// has it then. Locks are a space of their own: a lock and a claim of one name have nothing to do with each
    /// other. Waiters get it in the order in which they came; a newcomer may get in ahead of one that was just woken.
    ///
    /// A lock has a lease, the store's default, so that a holder that hangs does not keep it for ever: use its
    /// token with what it protects, or [renew](Lock::renew) it. Dropping it frees it. Nothing is stored: when the
    /// store is opened again all locks are free, under greater tokens.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// use std::time::Duration;
    /// let store = Store::builder(Mem::new()).open()?;
    /// let lock = store.lock("nightly-report", Duration::from_secs(1))?.expect("nobody else has it");
    /// assert!(store.lock("nightly-report", Duration::ZERO)?.is_none());
    /// drop(lock);
    /// assert!(store.lock("nightly-report", Duration::ZERO)?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ClaimError`]; no error takes the lock.
    pub fn lock(&self, key: impl IntoKey, wait: Duration) -> Result<Option<Lock>, ClaimError> {
        on_this_thread(self.0.lock(Caller::Thread, key.into_key()?, wait))
    }
}

impl Inner {
    pub(super) async fn lock(
        self: &Arc<Self>,
        caller: Caller,
        key: Key,
        wait: Duration,
    ) -> Result<Option<Lock>, ClaimError> {
        if wait > MAX_WAIT {
            let given = format!("{wait:?}");
            return Err(InvalidSetting { setting: "wait", given, allowed: "at most 24 h" }.into());
        }
        let locked = self.lock_within(caller, &key, wait).await;
        locked.map_err(|fault| ClaimError::Failed { key: key.label(), fault })
    }

    async fn lock_within(
        self: &Arc<Self>,
        caller: Caller,
        key: &Key,
        wait: Duration,
    ) -> Result<Option<Lock>, Fault> {
        self.check_process()?;
        let name = key.encoded_lock();
        let deadline = self.clock.now().after(wait);
        let waiting = (!wait.is_zero()).then(|| Waiting::new(&self.table, &name));
        loop {
            match self.table.admit(&name, Purpose::Work(None), waiting.as_ref(), None) {
                Admitted::Place { place, .. } => return self.locked(key, place).map(Some),
                Admitted::InFlight { look_again, .. } => match &waiting {
                    Some(waiting) if !expired(self.clock.now(), deadline) => {
                        let until = look_again.map_or(deadline, |at| at.min(deadline));
                        self.pause(caller, waiting.signal(), until).await?;
                    }
                    _ => return Ok(None),
                },
                // Locks have no fingerprint, so none differs.
                Admitted::Mismatched => return Ok(None),
                Admitted::Closed => return Err(Fault::Closed),
            }
        }
    }

    fn locked(self: &Arc<Self>, key: &Key, mut place: Place) -> Result<Lock, Fault> {
        let token = self.draw_token()?;
        place.grant(token, 1, false, self.settings.terms.lease)?;
        Ok(Lock { store: Arc::clone(self), key: key.clone(), token, place })
    }
}

/// A lock that is held. Dropping it frees it and wakes the next.
#[must_use = "a lock that is dropped is free"]
pub struct Lock {
    store: Arc<Inner>,
    key: Key,
    token: Token,
    place: Place,
}

impl Lock {
    /// The fencing token. Hand it to what the lock protects, and let that refuse older ones.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The rest of the lease; zero once it has run out or another has the lock.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let deadline = self.place.name().deadline();
        deadline.map_or(Duration::ZERO, |deadline| deadline.since(self.store.clock.now()))
    }

    /// Starts the lease anew: `lease` from now, from 1 ms to [`MAX_LEASE`](crate::MAX_LEASE).
    ///
    /// # Errors
    /// [`ExpiredLease`] once the lease has run out, or another has the lock.
    pub fn renew(&self, lease: Duration) -> Result<(), ExpiredLease> {
        let key = self.key.label();
        check_lease(lease).map_err(|source| ExpiredLease::Invalid { key, source })?;
        self.store.check_process().map_err(|fault| ExpiredLease::Failed { key, fault })?;
        self.place.name().renew(lease, None).map(drop).map_err(|refusal| ExpiredLease::refused(key, refusal))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("key", &self.key).field("token", &self.token).finish_non_exhaustive()
    }
}
