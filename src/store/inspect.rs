//! Everything there is to tell of a key.

use super::list::Listing;
use super::outside::failed;
use super::request::IntoKey;
use super::{Inner, Seen, Store};
use crate::clock::{WallTime, expired};
use crate::error::{AdminError, Fault};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::lease::Storing;
use crate::protocol::decide;
use crate::record::{EndedBy, Kept, Omission, Record, State, Terms};
use crate::token::Token;
use std::time::Duration;

impl Store {
    /// Everything about one key: its record, and what memory knows.
    ///
    /// # Errors
    /// [`AdminError`] if the key is none or storage failed.
    pub fn inspect(&self, key: impl IntoKey) -> Result<Inspection, AdminError> {
        const DOING: &str = "inspecting";
        let key = key.into_key().map_err(|error| AdminError::InvalidKey { doing: DOING, error })?;
        self.0.inspect(&key).map_err(failed(DOING, &key))
    }

    /// The stored keys of `scope`, or of all scopes, with everything about each, in the order of their encoding: scopes by
    /// length, then bytewise. What is forgotten is passed over, and so are keys that are being stored, settled or removed,
    /// until that is durable. Claims that are kept in memory alone are not among them: see
    /// [`live_keys`](Self::live_keys).
    ///
    /// # Errors
    /// [`AdminError`] if the scope is too long; those of the iterator are told at [`Listing`].
    pub fn keys(&self, scope: Option<&[u8]>) -> Result<Listing<Inspection>, AdminError> {
        let prefix = prefix("listing", scope)?;
        Ok(Listing::new(self, prefix, |inner, key, record| {
            let record = record.filter(|record| !inner.is_forgotten(record))?;
            Some(inner.inspection(key, Some(&record), KeyState::Absent))
        }))
    }

    /// Fails if what is stored is not as it was written, so that a listing can lack keys without a sign of it: for engines
    /// whose reads do not tell, in a store that was opened to be looked at. May read everything.
    #[cfg(feature = "admin")]
    pub(crate) fn is_as_written(&self) -> Result<(), AdminError> {
        let checked = self.0.engine.get().and_then(|engine| Ok(engine.is_as_written()?));
        checked.map_err(|fault| AdminError::Failed { doing: "listing", on: "the store".to_owned(), fault })
    }

    /// The keys of `scope`, or of all scopes, that a live claim has now, whether it is stored or kept in memory alone, in
    /// no order. Locks are none. Costs a look at every key that memory knows anything of.
    ///
    /// # Errors
    /// [`AdminError`] if the scope is too long.
    pub fn live_keys(&self, scope: Option<&[u8]>) -> Result<Vec<Key>, AdminError> {
        let prefix = prefix("listing", scope)?;
        Ok(self.0.table.live_keys(&prefix).iter().filter_map(|key| Key::decode(key)).collect())
    }
}

fn prefix(doing: &'static str, scope: Option<&[u8]>) -> Result<Vec<u8>, AdminError> {
    let Some(scope) = scope else { return Ok(Key::all_claims().to_vec()) };
    Key::encoded_prefix(scope, b"").map_err(|error| AdminError::InvalidKey { doing, error })
}

impl Inner {
    fn inspect(&self, key: &Key) -> Result<Inspection, Fault> {
        // The record first, memory afterwards (rule 2).
        let seen = self.read(key)?;
        let Some(Seen { record, .. }) = seen else {
            return Ok(self.inspection(key, None, KeyState::Settling));
        };
        let Some(record) = record.filter(|record| !self.is_forgotten(record)) else {
            return Ok(self.inspection(key, None, KeyState::Absent));
        };
        self.check_token(key, &record)?;
        if self.is_in_doubt(key, &record)? {
            return Ok(self.inspection(key, None, KeyState::Settling));
        }
        Ok(self.inspection(key, Some(&record), KeyState::Absent))
    }

    /// What `record`, which may be told of, and memory say of `key`. Without a record the key is `bare`, or claimed in
    /// memory.
    fn inspection(&self, key: &Key, record: Option<&Record>, bare: KeyState) -> Inspection {
        let (holder, waiters) = self.table.standing(key.encoded());
        let now = self.clock.now();
        let live = holder.filter(|holder| holder.deadline.is_none_or(|deadline| !expired(now, deadline)));
        let state = match bare {
            KeyState::Absent if holder.is_some() => KeyState::InMemory,
            bare => bare,
        };
        let mut told = Inspection {
            state,
            token: holder.and_then(|holder| holder.token),
            attempt: holder.map_or(0, |holder| holder.attempt),
            fingerprint: None,
            claimed_at: None,
            settled_at: None,
            forgotten_at: None,
            age: holder.map(|holder| now.since(holder.since)),
            remaining: holder.and_then(|holder| holder.deadline).map(|deadline| deadline.since(now)),
            waiters,
            terms: None,
            since: None,
            ended_by: None,
            checkpoint: None,
            result: None,
            by_hand: false,
            next: if live.is_some() || state == KeyState::Settling { Next::InFlight } else { Next::Granted },
        };
        let Some(record) = record else { return told };
        told.token = Some(record.token);
        told.attempt = record.attempt;
        told.fingerprint = record.fingerprint;
        told.claimed_at = Some(record.claimed_at);
        told.forgotten_at = record.forgotten_at();
        told.terms = Some(record.terms);
        let mut since = record.claimed_at;
        match &record.state {
            State::Pending { checkpoint, .. } => {
                told.state = KeyState::Pending;
                told.checkpoint = checkpoint.as_ref().map(Vec::len);
                // Taking over what nobody was granted is no attempt (rule 15).
                let never_granted = matches!(
                    self.table.storing(key.encoded(), record.token),
                    Ok(Some(Storing::NeverGranted))
                );
                if live.is_none() && !never_granted && decide::is_last(record, &record.terms) {
                    told.next = Next::Interrupted;
                }
            }
            State::Interrupted { ended_by, checkpoint } => {
                told.state = KeyState::Interrupted;
                told.ended_by = Some(*ended_by);
                told.checkpoint = checkpoint.as_ref().map(Vec::len);
                told.next = Next::Interrupted;
            }
            State::Settled { result, at, by_hand } => {
                told.state = KeyState::Settled;
                told.settled_at = Some(*at);
                told.by_hand = *by_hand;
                told.result = Some(match result {
                    Kept::Completed(bytes) => Known::Completed { length: bytes.len() },
                    Kept::Failed(bytes) => Known::Failed { length: bytes.len() },
                    Kept::Omitted(reason) => Known::Omitted(*reason),
                });
                told.next = Next::Settled;
                since = *at;
            }
        }
        let wall = self.wall().unix_millis();
        told.since = Some(Duration::from_millis(wall.saturating_sub(since.unix_millis())));
        told
    }
}

/// Where a key stands, as [`Store::inspect`] tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// Nobody has claimed it, or what was stored is forgotten.
    Absent,
    /// Claimed, and the claim is kept in memory alone.
    InMemory,
    /// Claimed, and the claim is stored; its holder may have ended.
    Pending,
    /// Being stored, settled or changed, and not durable yet.
    Settling,
    /// Interrupted.
    Interrupted,
    /// Settled.
    Settled,
}

/// What a claim of a key for the same work would be told now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It would be granted the key.
    Granted,
    /// That it is in flight.
    InFlight,
    /// That it is interrupted. Of a pending record: by the terms of the claim that wrote it.
    Interrupted,
    /// What is stored.
    Settled,
}

/// What is kept of a settled key, without the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// A result.
    Completed {
        /// How many bytes it has.
        length: usize,
    },
    /// A final failure.
    Failed {
        /// How many bytes its reason has.
        length: usize,
    },
    /// Done, but the result is not kept.
    Omitted(Omission),
}

/// Everything about one key. Times that do not apply are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Where it stands.
    pub state: KeyState,
    /// The token of the claim that has it, had it last, or settled it.
    pub token: Option<Token>,
    /// Which attempt that is; 0 if there is none.
    pub attempt: u32,
    /// What it is for, if it is stored and the claim said so.
    pub fingerprint: Option<Fingerprint>,
    /// When the stored claim was made.
    pub claimed_at: Option<WallTime>,
    /// When it was settled.
    pub settled_at: Option<WallTime>,
    /// When its retention ends.
    pub forgotten_at: Option<WallTime>,
    /// For how long its holder has had it.
    pub age: Option<Duration>,
    /// The rest of the holder's lease; zero once it has run out, `None` if the holder has ended.
    pub remaining: Option<Duration>,
    /// How many callers wait for it.
    pub waiters: usize,
    /// What the claim asked for, if it is stored.
    pub terms: Option<Terms>,
    /// How long ago it was settled or, if it is not, its stored claim was made.
    pub since: Option<Duration>,
    /// How the holder of an interrupted key ended.
    pub ended_by: Option<EndedBy>,
    /// How many bytes the last checkpoint has, of a key that is not settled.
    pub checkpoint: Option<usize>,
    /// What is kept, of a settled key.
    pub result: Option<Known>,
    /// Whether it was settled by hand.
    pub by_hand: bool,
    /// What a claim for the same work would be told now.
    pub next: Next,
}
