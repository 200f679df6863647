//! The guard of a granted claim. How it ends is in `settle`.

use super::Inner;
use super::request::{check_hold, check_lease};
use super::settle_error::current;
use super::upkeep::{LossSignal, Renewal};
use super::writes::Effects;
use crate::clock::{Moment, expired};
use crate::error::{Fault, InvalidSetting};
use crate::key::{Key, KeyLabel};
#[cfg(doc)]
use crate::lease::LossCause;
use crate::lease::{Place, Refusal};
use crate::protocol::{Holder, Purpose};
#[cfg(doc)]
use crate::record::Durability;
use crate::record::{Previous, Record, State};
use crate::sync::Mutex;
use crate::token::Token;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The exclusive right to do a key's work, until it is settled or its lease runs out.
///
/// Settle it with [`complete`](Claim::complete), [`fail`](Claim::fail), [`omit`](Claim::omit) or
/// [`release`](Claim::release). Dropping it, also by unwinding, ends it at once: the next claimant is granted the
/// key, as the next attempt if the claim was stored, else as the first. Dropping never blocks, does no I/O and does
/// not panic, unless it is the last that holds the store: that closes the store.
///
/// A claim whose lease has run out may still settle as long as nobody else was granted the key. After that it is
/// *lost*: everything it tries is refused and changes nothing. While another is only on its way to the key, a claim in
/// memory is told to [try again](super::RetryCause::BeingTaken), and of a stored one the first to change the record
/// has it.
#[must_use = "a claim that is dropped ends at once"]
pub struct Claim(pub(super) Box<Granted>); // so that what losers are told is small

/// What a claim is made of.
pub(super) struct Granted {
    pub(super) store: Arc<Inner>,
    pub(super) key: Key,
    /// The pending record, whether or not it was stored.
    pub(super) record: Record,
    pub(super) since: Moment,
    /// Its bytes in the store; `None` if the claim is kept in memory alone.
    pub(super) stored: Option<Vec<u8>>,
    /// `None` once a settling write of this claim has been swapped in.
    pub(super) place: Option<Place>,
    /// The effects of a completion that was tried, and may have landed.
    pub(super) tried: Option<Effects>,
    /// Whether the engine has failed in the middle of a settling write, which may have landed.
    pub(super) unclear: bool,
    pub(super) renewal: Mutex<Option<Arc<Renewal>>>,
}

impl Claim {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// Takes the place out, to end it. What renews it ends first.
    pub(super) fn take_place(&mut self) -> Option<Place> {
        let renewal = self.0.renewal.lock().take();
        drop(renewal);
        self.0.place.take()
    }

    /// What memory says of this claim while it settles. Without its place, which it gave up when it swapped before, it
    /// knows no more than others of what the key is for.
    pub(super) fn settling(&self) -> Holder {
        Holder {
            token: Some(self.0.record.token),
            attempt: self.0.record.attempt,
            stored: self.0.stored.is_some(),
            purpose: match self.0.place {
                Some(_) => Purpose::Work(self.0.record.fingerprint),
                None => Purpose::Upkeep,
            },
            since: self.0.since,
            deadline: None,
        }
    }

    /// The fencing token. Hand it to what the work changes, and let that refuse older ones.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.record.token
    }

    /// Which attempt at this key's work it is, from 1. Exact for claims with [`Durability::Full`], else at least
    /// this many.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.record.attempt
    }

    /// The attempt before, which ended without settling and may have acted.
    #[must_use]
    pub fn previous(&self) -> Option<Previous> {
        match self.0.record.state {
            State::Pending { previous, .. } => previous,
            State::Interrupted { .. } | State::Settled { .. } => None,
        }
    }

    /// The rest of the lease; zero once it has run out or the claim was lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let deadline = self.0.place.as_ref().and_then(|place| place.name().deadline());
        deadline.map_or(Duration::ZERO, |deadline| deadline.since(self.0.store.clock.now()))
    }

    /// Starts the lease anew: `lease` from now, which may also be sooner than it would have ended; from 1 ms to
    /// [`MAX_LEASE`](crate::MAX_LEASE). Writes nothing: a lease is in memory alone.
    ///
    /// # Errors
    /// [`ExpiredLease`] once the lease has run out or the claim was lost; nothing is changed then. A lease out of
    /// bounds is refused as well.
    pub fn renew(&self, lease: Duration) -> Result<(), ExpiredLease> {
        let key = || self.0.key.label();
        check_lease(lease).map_err(|source| ExpiredLease::Invalid { key: key(), source })?;
        self.0.store.check_process().map_err(|fault| ExpiredLease::Failed { key: key(), fault })?;
        let Some(place) = &self.0.place else { return Err(ExpiredLease::Lost { key: key(), by: None }) };
        place.name().renew(lease, None).map(drop).map_err(|refusal| ExpiredLease::refused(key(), refusal))
    }

    /// Renews the lease by itself, at half of it each time, until the claim has been held for `max_hold`, counted from when
    /// it was granted; the lease then runs out. Settling and dropping the claim end that; a claim that a settle
    /// [gives back](super::SettleError::Retry) is renewed as before, unless it was settled and only the sync is missing.
    /// Asking again replaces the former bound. Each renewal is for the lease that was claimed, also after a
    /// [`renew`](Self::renew) for longer.
    ///
    /// Renewals run on a thread of the store's own, so that busy work cannot starve them. They prove that the
    /// process lives, not that the work gets on: that is what `max_hold` is for.
    ///
    /// # Errors
    /// [`ExpiredLease`] as [`renew`](Self::renew); `max_hold` has the bounds of a lease.
    pub fn keep_alive(&self, max_hold: Duration) -> Result<(), ExpiredLease> {
        let key = || self.0.key.label();
        check_hold(max_hold).map_err(|source| ExpiredLease::Invalid { key: key(), source })?;
        self.0.store.check_process().map_err(|fault| ExpiredLease::Failed { key: key(), fault })?;
        let Some(place) = &self.0.place else { return Err(ExpiredLease::Lost { key: key(), by: None }) };
        let until = self.0.since.after(max_hold);
        if expired(self.0.store.clock.now(), until) {
            return Err(ExpiredLease::Expired { key: key() });
        }
        let renewal = Renewal::start(&self.0.store.timer, place.name(), self.0.record.terms.lease, until)
            .map_err(|refusal| ExpiredLease::refused(key(), refusal))?;
        let former = self.0.renewal.lock().replace(renewal);
        drop(former);
        Ok(())
    }

    /// Tells when this claim stops being its holder's: its lease runs out, another is given the key, the key is
    /// removed or resolved, the holder settles or drops the claim, the store is closed. [`LossCause`] tells which.
    ///
    /// Asking is cheap, as often as it is done, and leaves nothing behind; so is cloning. Tasks can await it.
    ///
    /// ```
    /// use claimdb::{LossCause, Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let claim = store.claim("order-42")?.granted().expect("it is free");
    /// let lost = claim.lost();
    /// assert!(!lost.is_raised());
    /// store.remove_by_force("order-42")?; // a person has taken it away
    /// assert_eq!(lost.cause(), Some(LossCause::Removed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lost(&self) -> LossSignal {
        LossSignal::of(&self.0.store, self.0.place.as_ref())
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("key", &self.0.key)
            .field("token", &self.token())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

/// A lease could not be renewed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExpiredLease {
    /// It ran out. The claim may still settle, unless another is granted the key first.
    #[error("renewing the lease of {key}: it has run out, which is final; settle now or stop")]
    Expired {
        /// Stands for the key.
        key: KeyLabel,
    },
    /// Another was granted the key, or it was removed, or this claim has settled it already.
    #[error("renewing the lease of {key}: the claim was lost ({}); stop the work", current(*by))]
    Lost {
        /// Stands for the key.
        key: KeyLabel,
        /// The token of the claim that has the key now, if one has.
        by: Option<Token>,
    },
    /// The store was closed, which ends all its claims.
    #[error("renewing the lease of {key}: the store is closed, which ended the claim; stop the work")]
    Closed {
        /// Stands for the key.
        key: KeyLabel,
    },
    /// This process may not: it is a fork of the one that opened the store.
    #[error("renewing the lease of {key}: {fault}")]
    Failed {
        /// Stands for the key.
        key: KeyLabel,
        /// Why.
        #[source]
        fault: Fault,
    },
    /// The lease asked for is out of bounds.
    #[error("renewing the lease of {key}: {source}")]
    Invalid {
        /// Stands for the key.
        key: KeyLabel,
        /// What is wrong with it.
        source: InvalidSetting,
    },
}

impl ExpiredLease {
    pub(super) fn refused(key: KeyLabel, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Expired | Refusal::BeingTaken => Self::Expired { key },
            Refusal::Lost { by } => Self::Lost { key, by },
            Refusal::Closed => Self::Closed { key },
        }
    }
}
