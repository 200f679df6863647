//! Scopes: who keys belong to, and on what terms they are claimed.

use super::caller::{Caller, on_this_thread};
use super::list::Listing;
use super::marked::Marked;
use super::request::Request;
use super::{Claim, Inner, Outcome, Run, RunError, Settled, Store};
use crate::error::{AdminError, ClaimError, Fault};
use crate::key::{Key, KeyError, MAX_NAME};
use crate::protocol::Purpose;
use crate::record::{Durability, OnInterrupt, Record, State};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

/// Keys that belong together: a tenant's, a route's, a queue's. Made by [`Store::scope`].
///
/// It gives its claims their terms; what is not set is the store's. Nothing about it is stored: a scope is there
/// while it has keys. Names of different scopes never meet, whatever bytes they are made of.
///
/// What it has no call for is the store's: [`Scope::request`] makes what [`Store::claim_many`] and [`Store::claim_all`]
/// take, and [`Key::scoped`] what [`Store::remove`], [`Store::resolve`], [`Store::inspect`] and the others take.
#[derive(Clone)]
pub struct Scope {
    pub(super) store: Store,
    name: Vec<u8>,
    template: Request,
}

/// What [`Scope::empty`] does with live claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveClaims {
    /// If there are any, nothing is removed.
    Refuse,
    /// Their keys are removed like the others, and their holders fenced.
    Fence,
}

/// How many keys a scope has in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ScopeCount {
    /// Claimed and not settled, of the stored claims.
    pub pending: u64,
    /// Interrupted.
    pub interrupted: u64,
    /// Settled and remembered.
    pub settled: u64,
    /// Records that cannot be read.
    pub damaged: u64,
    /// Claims whose lease has not run out, those that are kept in memory alone included. Locks are none.
    pub live: u64,
}

impl Store {
    /// The scope `name`, of at most 255 bytes, with the store's terms.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// use std::time::Duration;
    /// let store = Store::builder(Mem::new()).open()?;
    /// let payments = store.scope("tenant-7/payments")?.lease(Duration::from_secs(5)).max_live(100);
    /// let claim = payments.claim("order-42")?.granted().expect("nobody else is here");
    /// assert!(store.claim("order-42")?.granted().is_some(), "the same name in the empty scope is another key");
    /// claim.complete("receipt")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`KeyError`] if the name is too long.
    pub fn scope(&self, name: impl AsRef<[u8]>) -> Result<Scope, KeyError> {
        let name = name.as_ref().to_vec();
        Key::encoded_prefix(&name, b"")?;
        let template = Request::new(Key::new("template")?);
        Ok(Scope { store: self.clone(), name, template })
    }

    /// The names of all scopes that have stored keys, in the order of their encoding: by length, then bytewise. Keys
    /// that are being stored, settled or removed do not count until that is durable. Costs one look-up for each, and
    /// for each key that does not count or is forgotten and was not swept yet.
    ///
    /// # Errors
    /// [`AdminError`] if storage failed; after a failed sync, if it is not certain what is stored.
    pub fn scopes(&self) -> Result<Vec<Vec<u8>>, AdminError> {
        let whole =
            |fault| AdminError::Failed { doing: "listing scopes of", on: "the store".to_owned(), fault };
        self.0.scopes().map_err(whole)
    }
}

impl Inner {
    fn scopes(&self) -> Result<Vec<Vec<u8>>, Fault> {
        let (mut scopes, mut after): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
        loop {
            let mut found = None;
            self.engine.get()?.scan(&Key::all_claims(), after.as_deref(), &mut |key, bytes| {
                // What is no key is in no scope, and the walk goes on behind it.
                let Some(key) = Key::decode(key) else { return ControlFlow::Continue(()) };
                // What cannot be read is there all the same.
                let record = Record::decode(bytes).ok();
                if record.as_ref().is_some_and(|record| self.is_forgotten(record)) {
                    return ControlFlow::Continue(());
                }
                found = Some((key, record));
                ControlFlow::Break(())
            })?;
            let Some((key, record)) = found else { break };
            let in_doubt = match &record {
                Some(record) => self.is_in_doubt(&key, record)?,
                None => self.is_unsynced(&key)?,
            };
            if in_doubt {
                after = Some(key.encoded().to_vec());
                continue;
            }
            // Past every name that the scope can have.
            let mut last = key.encoded_scope().to_vec();
            last.extend_from_slice(&[0xFF; MAX_NAME]);
            after = Some(last);
            scopes.push(key.scope().to_vec());
        }
        // The removal of what is not there any more would be told as well.
        if let Some(poisoned) = self.commit.poisoned()
            && !self.table.all_marked(&Key::all_claims(), None, None)?.is_empty()
        {
            return Err(poisoned.into());
        }
        Ok(scopes)
    }
}

impl Scope {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// As [`Request::lease`], for all its claims.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { template: self.template.lease(lease), ..self }
    }

    /// As [`Request::retention`], for all its claims.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        Self { template: self.template.retention(retention), ..self }
    }

    /// As [`Request::wait`], for all its claims.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { template: self.template.wait(wait), ..self }
    }

    /// As [`Request::durability`], for all its claims.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { template: self.template.durability(durability), ..self }
    }

    /// As [`Request::on_interrupt`], for all its claims.
    #[must_use]
    pub fn on_interrupt(self, on_interrupt: OnInterrupt) -> Self {
        Self { template: self.template.on_interrupt(on_interrupt), ..self }
    }

    /// As [`Request::max_attempts`], for all its claims.
    #[must_use]
    pub fn max_attempts(self, attempts: u32) -> Self {
        Self { template: self.template.max_attempts(attempts), ..self }
    }

    /// How many of its keys may be claimed at a time; one more is refused with
    /// [`Fault::ScopeFull`](crate::Fault::ScopeFull), whether or not it waits. Settled keys are told as ever.
    ///
    /// No bound if not set. Never exceeded; two claims that come at once for the last room can both be refused. The live
    /// claims are counted anew for each grant, which costs a look at every live claim of the store.
    #[must_use]
    pub fn max_live(self, claims: usize) -> Self {
        Self { template: self.template.max_live(claims), ..self }
    }

    /// A claim of the key `name` on this scope's terms, to be changed before it is made.
    pub fn request(&self, name: impl AsRef<[u8]>) -> Request {
        self.template.for_key(Key::scoped(&self.name, name))
    }

    /// [`Store::claim`] in this scope.
    ///
    /// # Errors
    /// As [`Store::claim`].
    pub fn claim(&self, name: impl AsRef<[u8]>) -> Result<Outcome, ClaimError> {
        self.store.claim(self.request(name))
    }

    /// [`Store::run`] in this scope.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub fn run<T, E>(
        &self,
        name: impl AsRef<[u8]>,
        work: impl FnOnce(&Claim) -> Result<T, E>,
    ) -> Result<Run<T>, RunError<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        self.store.run(self.request(name), work)
    }

    /// [`Store::get`] in this scope.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get(&self, name: impl AsRef<[u8]>) -> Result<Option<Settled>, AdminError> {
        let key = Key::scoped(&self.name, name);
        self.store.get(key.map_err(|error| AdminError::InvalidKey { doing: "reading", error })?)
    }

    /// [`Store::scan`] of this scope, by the name of what it gives: keys in other states are told by [`Store::keys`].
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn settled(&self, prefix: impl AsRef<[u8]>) -> Result<Listing<Settled>, AdminError> {
        self.store.scan(&self.name, prefix)
    }

    /// How many keys it has in each state. Walks over all of them. A key that is being stored, settled or removed is
    /// not counted as stored until that is durable.
    ///
    /// # Errors
    /// [`AdminError`] if storage failed; after a failed sync, if it is not certain what is stored.
    pub fn count(&self) -> Result<ScopeCount, AdminError> {
        let prefix = self.prefix("counting")?;
        let live = self.store.0.table.live_keys(&prefix).len() as u64;
        let mut count = ScopeCount { live, ..ScopeCount::default() };
        let records = Listing::new(&self.store, prefix, |inner, _, record| {
            record.filter(|record| !inner.is_forgotten(record)).map(|record| record.state)
        });
        for listed in records {
            match listed {
                Ok((_, State::Pending { .. })) => count.pending += 1,
                Ok((_, State::Interrupted { .. })) => count.interrupted += 1,
                Ok((_, State::Settled { .. })) => count.settled += 1,
                Err(AdminError::Listed { fault: Fault::Damaged(_), .. }) => count.damaged += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Removes all keys that are stored when it comes to them, and gives their number; what is forgotten is left to the
    /// sweep. When this returns, that is durable. A key that is claimed while this runs may be removed or not; with
    /// [`LiveClaims::Refuse`] such a claim is never fenced, and ends this with an error.
    ///
    /// # Errors
    /// [`AdminError::ScopeInUse`] if there were live claims that may not be fenced; nothing was removed then.
    /// [`AdminError::NotEmptied`] if a key was claimed or settled meanwhile, which ends this, and if there are damaged
    /// records, once all others are removed; those go by [`Store::remove_by_force`] alone. What was removed stays so.
    pub fn empty(&self, live: LiveClaims) -> Result<u64, AdminError> {
        on_this_thread(self.empty_as(Caller::Thread, live))
    }

    pub(super) async fn empty_as(&self, caller: Caller, live: LiveClaims) -> Result<u64, AdminError> {
        const DOING: &str = "emptying a scope";
        let (inner, prefix) = (&self.store.0, self.prefix(DOING)?);
        let purpose = match live {
            LiveClaims::Refuse => Purpose::Upkeep,
            LiveClaims::Fence => Purpose::Force,
        };
        let in_memory = inner.table.live_keys(&prefix);
        if live == LiveClaims::Refuse && !in_memory.is_empty() {
            return Err(AdminError::ScopeInUse { doing: DOING, live: in_memory.len() });
        }
        let stored = Listing::new(&self.store, prefix, |_, _, _| Some(()));
        let keys = in_memory.iter().filter_map(|key| Key::decode(key)).map(Ok);
        let keys = keys.chain(stored.map(|listed| listed.map(|(key, ())| key)));
        // A sync for so many at a time, so that a large scope does not fill memory with marks.
        const AT_A_TIME: usize = 1024;
        let sync = async |marks: Vec<Marked<'_>>| {
            if marks.is_empty() {
                return Ok(());
            }
            let synced = match Marked::all_returned(inner, marks) {
                Ok(ticket) => inner.synced(caller, ticket).await,
                Err(fault) => Err(fault),
            };
            synced.map_err(|fault| AdminError::Failed { doing: DOING, on: "the store".to_owned(), fault })
        };
        let (mut removed, mut damaged, mut marks, mut first) = (0, 0, Vec::new(), None);
        for key in keys {
            match key.and_then(|key| inner.change(DOING, &key, purpose, inner.removal())) {
                Ok(marked) => {
                    removed += u64::from(marked.is_some());
                    marks.extend(marked);
                    if marks.len() == AT_A_TIME {
                        sync(std::mem::take(&mut marks)).await?;
                    }
                }
                Err(error @ AdminError::Listed { fault: Fault::Damaged(_), .. }) => {
                    damaged += 1;
                    first.get_or_insert(error);
                }
                Err(error) => {
                    first = Some(error);
                    break;
                }
            }
        }
        sync(marks).await?;
        match first.map(Box::new) {
            Some(first) => Err(AdminError::NotEmptied { removed, damaged, first }),
            None => Ok(removed),
        }
    }

    fn prefix(&self, doing: &'static str) -> Result<Vec<u8>, AdminError> {
        Key::encoded_prefix(&self.name, b"").map_err(|error| AdminError::InvalidKey { doing, error })
    }
}

impl fmt::Debug for Scope {
    /// Shows its terms, not its name, which may be a tenant's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("template", &self.template).finish_non_exhaustive()
    }
}
