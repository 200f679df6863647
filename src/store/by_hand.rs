//! Ending and settling a claim in its holder's stead.

use super::caller::{Caller, on_this_thread};
use super::outside::failed;
use super::request::IntoKey;
use super::{Inner, Store};
use crate::error::AdminError;
use crate::key::{Key, KeyError};
use crate::protocol::{Purpose, decide};
use crate::record::{Kept, Omission};
use crate::token::Token;
use crate::value;
use serde::Serialize;
use std::sync::Arc;

impl Store {
    /// Settles a key by hand whose holder has ended without settling: one that is interrupted, or pending and claimed by
    /// nobody who lives. `token` names the case that was looked at: if the key has moved on since, nothing is changed. When
    /// this returns, it is durable. Tells whether the case was there.
    ///
    /// ```
    /// use claimdb::{OnInterrupt, Outcome, Request, Resolution, Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let request = Request::new("order-42").on_interrupt(OnInterrupt::Quarantine);
    /// drop(store.claim(&request)?); // its holder has ended
    /// let Outcome::Interrupted(case) = store.claim(&request)? else { unreachable!("nobody may run it unseen") };
    /// // Somebody has looked: the work had been done.
    /// assert!(store.resolve("order-42", case.token(), Resolution::completed("receipt 7")?)?);
    /// assert!(store.claim(&request)?.settled().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`remove`](Self::remove): a live claim is in the way, unless [`end_lease`](Self::end_lease) ends it before.
    pub fn resolve(
        &self,
        key: impl IntoKey,
        token: Token,
        resolution: Resolution,
    ) -> Result<bool, AdminError> {
        on_this_thread(self.0.resolve(Caller::Thread, key.into_key(), token, resolution))
    }

    /// Ends the lease of the live claim `token` now, as if its time had come: for a claim whose holder hangs. Tells whether
    /// that claim had the key and its lease was running. Nothing stored is changed.
    ///
    /// The next claimant gets the key, or is told that it is interrupted; those who wait are woken for it. The holder is
    /// told by [`Claim::lost`](super::Claim::lost) and cannot renew. Until somebody else is granted the key it may still
    /// settle, as ever after a lease. A claim that is being settled at this moment is let be.
    ///
    /// # Errors
    /// [`AdminError`] if the key is none, the store is closed or this process is a fork.
    pub fn end_lease(&self, key: impl IntoKey, token: Token) -> Result<bool, AdminError> {
        const DOING: &str = "ending the lease of";
        let key = key.into_key().map_err(|error| AdminError::InvalidKey { doing: DOING, error })?;
        let ended = self.0.check_process().and_then(|()| Ok(self.0.table.end_lease(key.encoded(), token)?));
        ended.map_err(failed(DOING, &key))
    }
}

/// How a key is settled by hand.
#[derive(Debug, Clone)]
pub struct Resolution(Option<Kept>);

impl Resolution {
    /// As completed, with `value`.
    ///
    /// # Errors
    /// [`EncodeError`](value::EncodeError) if it cannot be encoded.
    pub fn completed<T: Serialize + ?Sized>(value: &T) -> Result<Self, value::EncodeError> {
        value::encode(value).map(Self::completed_bytes)
    }

    /// As completed, with these bytes as the value: see [`Claim::complete_bytes`](super::Claim::complete_bytes).
    #[must_use]
    pub fn completed_bytes(value: Vec<u8>) -> Self {
        Self(Some(Kept::Completed(value)))
    }

    /// As failed for good, with `reason`.
    ///
    /// # Errors
    /// [`EncodeError`](value::EncodeError) if it cannot be encoded.
    pub fn failed<T: Serialize + ?Sized>(reason: &T) -> Result<Self, value::EncodeError> {
        value::encode(reason).map(Self::failed_bytes)
    }

    /// As failed for good, with these bytes as the reason.
    #[must_use]
    pub fn failed_bytes(reason: Vec<u8>) -> Self {
        Self(Some(Kept::Failed(reason)))
    }

    /// As done, with no result kept.
    #[must_use]
    pub fn omitted() -> Self {
        Self(Some(Kept::Omitted(Omission::OnPurpose)))
    }

    /// As never claimed: the work may run again.
    #[must_use]
    pub fn released() -> Self {
        Self(None)
    }

    fn length(&self) -> usize {
        match &self.0 {
            Some(Kept::Completed(bytes) | Kept::Failed(bytes)) => bytes.len(),
            Some(Kept::Omitted(_)) | None => 0,
        }
    }
}

impl Inner {
    pub(super) async fn resolve(
        self: &Arc<Self>,
        caller: Caller,
        key: Result<Key, KeyError>,
        token: Token,
        resolution: Resolution,
    ) -> Result<bool, AdminError> {
        const DOING: &str = "resolving";
        let key = key.map_err(|error| AdminError::InvalidKey { doing: DOING, error })?;
        let (length, limit) = (resolution.length(), self.settings.value_limit);
        if length > limit {
            return Err(AdminError::TooLarge { doing: DOING, key: key.label(), length, limit });
        }
        let wall = self.wall();
        let resolved = self.change(DOING, &key, Purpose::Upkeep, |record| {
            Ok(decide::resolve(record?, token, resolution.0.clone(), wall))
        });
        self.changed(caller, DOING, &key, resolved?).await
    }
}
