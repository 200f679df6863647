//! A key from outside a claim: what is stored for it, and how that is changed or removed.

use super::caller::{Caller, on_this_thread};
use super::engine::commit_one;
use super::index;
use super::marked::Marked;
use super::outcome::Settled;
use super::request::IntoKey;
use super::{Inner, Seen, Store};
use crate::backend::{Commit, Swap};
use crate::error::{AdminError, Damage, Fault};
use crate::key::{Key, KeyError};
use crate::lease::{Admitted, Place};
use crate::protocol::Purpose;
use crate::protocol::decide::{self, Removal};
use crate::record::Record;
use std::sync::Arc;

impl Store {
    /// What is stored for a settled key; `None` while it is absent, pending, interrupted or not durable yet. Waits for
    /// nobody. [`inspect`](Self::inspect) tells of the others as well.
    ///
    /// ```
    /// use claimdb::{Settled, Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let claim = store.claim("order-42")?.granted().expect("it is free");
    /// assert!(store.get("order-42")?.is_none());
    /// claim.complete("receipt 7")?;
    /// let Some(Settled::Completed(stored)) = store.get("order-42")? else { unreachable!("it was completed") };
    /// assert_eq!(stored.decode::<String>()?, "receipt 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AdminError`] if the key is none or storage failed.
    pub fn get(&self, key: impl IntoKey) -> Result<Option<Settled>, AdminError> {
        const DOING: &str = "reading";
        let key = key.into_key().map_err(|error| AdminError::InvalidKey { doing: DOING, error })?;
        self.0.get(&key).map_err(failed(DOING, &key))
    }

    /// Removes a settled, interrupted or abandoned key, so that its work can run again. When this returns, the
    /// removal is durable. Tells whether there was one; one that is forgotten was not, and is left to the sweep.
    ///
    /// # Errors
    /// [`AdminError::InFlight`] if a live claim or an unsynced settle stands on the key; else as
    /// [`get`](Self::get).
    pub fn remove(&self, key: impl IntoKey) -> Result<bool, AdminError> {
        on_this_thread(self.0.remove(Caller::Thread, key.into_key()))
    }

    /// Removes a key like [`remove`](Self::remove), also from a live claim, which is fenced: its holder's loss
    /// signal is raised, and everything that it tries from then on is refused. Tells whether there was a record or
    /// a holder.
    ///
    /// A record that this build cannot decode is removed as well, by this call alone. What it said is lost: the result,
    /// that the work was done or begun, and for what. The work can run again, as a first attempt, and its token is above
    /// all that were granted before. Only a record whose token this store has not handed out stays. `claimdb repair` does
    /// the same to a store that nobody has open, and keeps the bytes aside.
    ///
    /// # Errors
    /// [`AdminError::InFlight`] if the claim is being settled at this moment; else as [`get`](Self::get). An error that
    /// comes before the record is gone leaves the holder as it was.
    pub fn remove_by_force(&self, key: impl IntoKey) -> Result<bool, AdminError> {
        on_this_thread(self.0.remove_by_force(Caller::Thread, key.into_key()))
    }

    /// Makes durable whatever was written before, [`Durability::Relaxed`](crate::Durability::Relaxed) results
    /// included.
    ///
    /// # Errors
    /// [`AdminError`] if the sync failed, which poisons the store, or did not end within the sync limit.
    pub fn sync(&self) -> Result<(), AdminError> {
        on_this_thread(self.0.sync_all(Caller::Thread))
    }
}

/// The record that is to be changed, if there is one.
type Found<'a> = Result<Option<&'a Record>, Damage>;
/// What it is swapped for, which may be none; `None` to leave it as it is.
type Change = Option<Option<Record>>;

pub(super) fn failed(doing: &'static str, key: &Key) -> impl FnOnce(Fault) -> AdminError + use<> {
    let on = key.label().to_string();
    move |fault| AdminError::Failed { doing, on, fault }
}

impl Inner {
    fn get(&self, key: &Key) -> Result<Option<Settled>, Fault> {
        let Some(Seen { record: Some(record), .. }) = self.read(key)? else { return Ok(None) };
        self.check_token(key, &record)?;
        if self.is_forgotten(&record) { Ok(None) } else { self.settled(record) }
    }

    pub(super) fn is_forgotten(&self, record: &Record) -> bool {
        decide::is_forgotten(record, self.wall())
    }

    /// What a removal makes of a record, for [`change`](Self::change): none.
    pub(super) fn removal(&self) -> impl Fn(Found<'_>) -> Result<Change, Damage> + use<> {
        let wall = self.wall();
        move |record| match decide::remove(record?, wall) {
            Removal::Swap => Ok(Some(None)),
            Removal::Absent => Ok(None),
        }
    }

    /// The same, and of what is no record. Its token was below the ceiling, and is below every one to come; but one above
    /// the ceiling stays, since the key would be granted below it (rule 8).
    fn forced_removal(&self) -> impl Fn(Found<'_>) -> Result<Change, Damage> + use<> {
        let removal = self.removal();
        move |record| match record {
            Ok(_) | Err(Damage::TokenAboveCeiling { .. }) => removal(record),
            Err(_) => Ok(Some(None)),
        }
    }

    pub(super) async fn remove(
        self: &Arc<Self>,
        caller: Caller,
        key: Result<Key, KeyError>,
    ) -> Result<bool, AdminError> {
        const DOING: &str = "removing";
        let key = key.map_err(|error| AdminError::InvalidKey { doing: DOING, error })?;
        let removed = self.change(DOING, &key, Purpose::Upkeep, self.removal());
        self.changed(caller, DOING, &key, removed?).await
    }

    pub(super) async fn remove_by_force(
        self: &Arc<Self>,
        caller: Caller,
        key: Result<Key, KeyError>,
    ) -> Result<bool, AdminError> {
        const DOING: &str = "removing by force";
        let key = key.map_err(|error| AdminError::InvalidKey { doing: DOING, error })?;
        let mut fenced = false;
        let removed = self.change_fencing(DOING, &key, Purpose::Force, self.forced_removal(), &mut fenced);
        if self.changed(caller, DOING, &key, removed?).await? {
            return Ok(true);
        }
        if fenced {
            // Its record may have been swept a moment ago, and is gone for certain once a sync covers that.
            self.next_sync(caller).await.map_err(failed(DOING, &key))?;
        }
        Ok(fenced)
    }

    pub(super) async fn sync_all(&self, caller: Caller) -> Result<(), AdminError> {
        let synced = match self.check_process().and_then(|()| self.check_writable()) {
            Ok(()) => self.next_sync(caller).await,
            Err(fault) => Err(fault),
        };
        synced.map_err(|fault| AdminError::Failed { doing: "syncing", on: "the store".to_owned(), fault })
    }

    /// Tells whether there was a change, once it is durable.
    pub(super) async fn changed(
        &self,
        caller: Caller,
        doing: &'static str,
        key: &Key,
        marked: Option<Marked<'_>>,
    ) -> Result<bool, AdminError> {
        let Some(marked) = marked else { return Ok(false) };
        let synced = match marked.returned() {
            Ok(ticket) => self.synced(caller, ticket).await,
            Err(fault) => Err(fault),
        };
        synced.map(|()| true).map_err(failed(doing, key))
    }

    /// Swaps a record that no live claim has for what `next` says. Gives the mark, to be told once a sync covers it.
    pub(super) fn change<'a>(
        self: &'a Arc<Self>,
        doing: &'static str,
        key: &Key,
        purpose: Purpose,
        next: impl Fn(Found<'_>) -> Result<Change, Damage>,
    ) -> Result<Option<Marked<'a>>, AdminError> {
        self.change_fencing(doing, key, purpose, next, &mut false)
    }

    /// The same, and tells in `fenced` whether it has ended a claim that had the key.
    fn change_fencing<'a>(
        self: &'a Arc<Self>,
        doing: &'static str,
        key: &Key,
        purpose: Purpose,
        next: impl Fn(Found<'_>) -> Result<Change, Damage>,
        fenced: &mut bool,
    ) -> Result<Option<Marked<'a>>, AdminError> {
        let fail = || failed(doing, key);
        // Before a place is taken, which changes memory.
        self.check_process().map_err(fail())?;
        let place = match self.table.admit(key.encoded(), purpose, None, None) {
            Admitted::Place { place, ended, .. } => {
                *fenced |= ended.is_some();
                place
            }
            Admitted::InFlight { .. } | Admitted::Mismatched => {
                if self.sync_abandoned(key).map_err(fail())? {
                    return self.change_fencing(doing, key, purpose, next, fenced);
                }
                self.is_unsynced(key).map_err(fail())?;
                return Err(AdminError::InFlight { doing, key: key.label() });
            }
            Admitted::Closed => return Err(fail()(Fault::Closed)),
        };
        match self.change_held(key, purpose, place, &next).map_err(fail())? {
            // That there is nothing tells of the record too, which a late holder may have just written (rule 2).
            None if self.is_unsynced(key).map_err(fail())? => {
                self.change_fencing(doing, key, purpose, next, fenced)
            }
            marked => Ok(marked),
        }
    }

    fn change_held(
        &self,
        key: &Key,
        purpose: Purpose,
        mut place: Place,
        next: &impl Fn(Found<'_>) -> Result<Change, Damage>,
    ) -> Result<Option<Marked<'_>>, Fault> {
        self.check_writable()?;
        let engine = self.engine.get()?;
        let mut seen = engine.read(key.encoded())?;
        let marked = loop {
            let record = self.decode(key, seen.as_deref());
            let record = record.and_then(|record| match record {
                Some(record) => self.check_token(key, &record).map(|()| Some(record)),
                None => Ok(None),
            });
            let found = record.as_ref().map(Option::as_ref).map_err(Damage::clone);
            let Some(new) = next(found)? else {
                // There is nothing to take away from a live claim but the key.
                if purpose == Purpose::Force {
                    place.fence_former();
                }
                return Ok(None);
            };
            let hint = index::hint(key, record.ok().flatten().as_ref(), new.as_ref());
            let new = new.map(|record| record.encode());
            // The mark goes on before the swap (rule 1), and not before it is certain that there will be one.
            let mut marked = self.mark_without_place(key, self.upkeep())?;
            if new.is_none() {
                marked.frees();
            }
            let swap = Commit::swap(key.encoded(), seen.as_deref(), new.as_deref());
            match commit_one(&*engine, &Commit { hints: hint.as_slice(), ..swap }) {
                Ok(Swap::Done) => break marked,
                Ok(Swap::Refused { current }) => {
                    marked.clear();
                    seen = current;
                }
                Err(error) => match engine.read(key.encoded()) {
                    Ok(found) if found == new => break marked,
                    _ => return Err(error.into()),
                },
            }
        };
        place.found(None); // the record that it spoke of is gone
        place.fence_former();
        drop(place);
        Ok(Some(marked))
    }
}
