//! Walking over what is stored, page by page, without stopping claims.
//!
//! One rule for all that is told of many keys: the page is read first, and memory asked afterwards (rule 2). While a
//! write of a key may be one that no finished sync covers, the key is *in doubt*. It is passed over then, whether its
//! record is there or gone. After a failed sync it is an error (rule 7), and so is a marked key that the page does not
//! show: its removal would be told.

use super::engine::page;
use super::outcome::{Interrupted, Settled};
use super::{Inner, Store};
use crate::clock::WallTime;
use crate::error::{AdminError, Fault};
use crate::key::Key;
use crate::lease::Storing;
use crate::record::{Record, State};
use crate::token::Token;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// What is told of a key by its record, which is `None` while the key is in doubt; `None` to pass it over.
type Tell<T> = fn(&Inner, &Key, Option<Record>) -> Option<T>;

impl Store {
    /// The settled keys of `scope` whose name begins with `prefix`, in the order of their names, each as of some
    /// time during the walk. Keys that are forgotten are passed over, and those that are being written until that is
    /// durable. Reads a page of [`Listing::PAGE`] records at a time, fewer if those have [`Listing::PAGE_BYTES`] bytes,
    /// and stops no claims.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// for order in ["order-1", "order-2", "refund-1"] {
    ///     store.claim(order)?.granted().expect("it is free").complete("done")?;
    /// }
    /// let orders: Vec<_> = store.scan("", "order-")?.collect::<Result<_, _>>()?;
    /// assert_eq!(orders.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AdminError`] if scope or prefix are too long; those of the iterator are told at [`Listing`].
    pub fn scan(
        &self,
        scope: impl AsRef<[u8]>,
        prefix: impl AsRef<[u8]>,
    ) -> Result<Listing<Settled>, AdminError> {
        let prefix = Key::encoded_prefix(scope.as_ref(), prefix.as_ref())
            .map_err(|error| AdminError::InvalidKey { doing: "scanning", error })?;
        Ok(Listing::new(self, prefix, |inner, _, record| {
            record.filter(|record| !inner.is_forgotten(record)).and_then(Settled::from_record)
        }))
    }

    /// The keys of all scopes whose claim is stored and not settled, live or not. Claims that are kept in memory
    /// alone are not among them: see [`inspect`](Self::inspect) and [`stats`](Self::stats). Nor are those that are
    /// being stored or settled, until that is durable.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let claim = store.claim("order-42")?.granted().expect("it is free");
    /// for found in store.pending() {
    ///     let (key, pending) = found?; // what cannot be read is an error here, and the walk goes on
    ///     println!("{key} is attempt {}, and has {:?} left", pending.attempt(), pending.remaining());
    ///     assert_eq!(pending.token(), claim.token());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pending(&self) -> Listing<Pending> {
        Listing::new(self, Key::all_claims().to_vec(), |inner, key, record| {
            let record = record.filter(|record| matches!(record.state, State::Pending { .. }))?;
            let holder = inner.table.holder(key.encoded());
            let now = inner.clock.now();
            let holder = holder.filter(|holder| holder.token == Some(record.token));
            Some(Pending {
                token: record.token,
                attempt: record.attempt,
                claimed_at: record.claimed_at,
                remaining: holder.and_then(|holder| holder.deadline).map(|deadline| deadline.since(now)),
            })
        })
    }

    /// The keys of all scopes that are interrupted, waiting for [`resolve`](Self::resolve).
    #[must_use]
    pub fn interrupted(&self) -> Listing<Interrupted> {
        Listing::new(self, Key::all_claims().to_vec(), |_, _, record| {
            record.and_then(Interrupted::from_record)
        })
    }
}

/// Stored keys, one by one, with what there is to tell of each.
///
/// A record that is damaged gives [`AdminError::Listed`], which names its key, and the walk goes on behind it. So does,
/// after a failed sync, each key of which it is not certain what is stored. If storage fails, the walk gives that error
/// and ends.
pub struct Listing<T> {
    store: Store,
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    tell: Tell<T>,
    /// What was read and not given yet.
    page: VecDeque<Result<(Key, T), AdminError>>,
    done: bool,
}

impl<T> Listing<T> {
    /// How many records are read at a time.
    pub const PAGE: usize = 128;
    /// After how many bytes of records a page ends before that.
    pub const PAGE_BYTES: usize = 1 << 20;

    pub(super) fn new(store: &Store, prefix: Vec<u8>, tell: Tell<T>) -> Self {
        let store = store.clone();
        Self { store, prefix, after: None, tell, page: VecDeque::new(), done: false }
    }

    /// Reads the next page. Each record is read first, and memory asked afterwards whether it may be told of.
    fn turn_page(&mut self) -> Result<(), Fault> {
        let inner = &self.store.0;
        let most = (Self::PAGE, Self::PAGE_BYTES);
        let (pairs, full) = page(&*inner.engine.get()?, &self.prefix, self.after.as_deref(), most)?;
        self.done = !full;
        let last = pairs.last().map(|(key, _)| key.clone()).filter(|_| full);
        let mut found: BTreeMap<_, _> = pairs.into_iter().map(|(key, bytes)| (key, Some(bytes))).collect();
        if inner.commit.poisoned().is_some() {
            let marked = inner.table.all_marked(&self.prefix, self.after.as_deref(), last.as_deref())?;
            for (key, _) in marked {
                found.entry(key.to_vec()).or_insert(None);
            }
        }
        self.after = last;
        for (encoded, bytes) in found {
            let Some(key) = Key::decode(&encoded) else { continue };
            match inner.listed(&key, bytes.as_deref(), self.tell) {
                Ok(Some(told)) => self.page.push_back(Ok((key, told))),
                Ok(None) => {}
                Err(fault) => {
                    let goes_on = matches!(fault, Fault::Damaged(_) | Fault::Poisoned(_));
                    self.page.push_back(Err(AdminError::Listed { key, fault }));
                    if !goes_on {
                        self.done = true;
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    fn listed<T>(&self, key: &Key, bytes: Option<&[u8]>, tell: Tell<T>) -> Result<Option<T>, Fault> {
        let Some(bytes) = bytes else {
            self.is_unsynced(key)?;
            return Ok(None);
        };
        let Some(record) = self.decode(key, Some(bytes))? else { return Ok(None) };
        self.check_token(key, &record)?;
        let in_doubt = self.is_in_doubt(key, &record)?;
        Ok(tell(self, key, Some(record).filter(|_| !in_doubt)))
    }

    /// Whether `record`, which was read before, may be one that no finished sync covers; an error if none ever will.
    pub(super) fn is_in_doubt(&self, key: &Key, record: &Record) -> Result<bool, Fault> {
        if self.is_unsynced(key)? {
            return Ok(true);
        }
        let storing = match record.state {
            State::Pending { .. } => self.table.storing(key.encoded(), record.token)?,
            State::Interrupted { .. } | State::Settled { .. } => None,
        };
        let relaxed = self.was_settled_relaxed(record) && !self.is_forgotten(record);
        if (storing.is_some() || relaxed)
            && let Some(poisoned) = self.commit.poisoned()
        {
            return Err(poisoned.into());
        }
        Ok(match storing {
            None => false,
            Some(Storing::Now) => true,
            Some(Storing::NeverGranted) => self.commit.owes_a_sync(),
        })
    }
}

impl<T> fmt::Debug for Listing<T> {
    /// Shows how far it is, not where: keys do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("ready", &self.page.len())
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl<T> Iterator for Listing<T> {
    type Item = Result<(Key, T), AdminError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.page.is_empty() && !self.done {
            if let Err(fault) = self.turn_page() {
                self.done = true;
                let on = "the store".to_owned();
                return Some(Err(AdminError::Failed { doing: "listing", on, fault }));
            }
        }
        self.page.pop_front()
    }
}

/// A stored claim that is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    token: Token,
    attempt: u32,
    claimed_at: WallTime,
    remaining: Option<Duration>,
}

impl Pending {
    /// Its token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Which attempt it is.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When it was made.
    #[must_use]
    pub fn claimed_at(&self) -> WallTime {
        self.claimed_at
    }

    /// The rest of its lease; zero if that has run out, `None` if its holder has ended and the next claimant gets
    /// the key.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }
}
