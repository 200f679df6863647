//! The store: where decisions, leases, group commit and a backend come together.
//!
//! `claim` asks, `take` takes, `guard` is what was taken, `settle` ends it, `outside` looks and changes from outside, `run` is
//! the whole dance in one call, `builder` opens. Plain values are in `kv`; what is written at once, effects of completions
//! included, in `writes`. Each claim goes the same way: look at memory, read the record, ask memory again (rule 2),
//! take the place, swap the record, sync, tell.

mod act;
mod batch;
#[cfg(feature = "tower")]
mod beside;
mod builder;
mod by_hand;
mod caller;
mod checkpoint;
mod claim;
mod claim_all;
#[cfg(feature = "admin")]
mod closing;
mod copy;
mod ending;
mod engine;
mod guard;
mod index;
mod inspect;
mod kv;
mod kv_error;
mod kv_scan;
mod list;
mod lock;
mod marked;
mod outcome;
mod outside;
mod own;
mod recording;
mod request;
mod retention;
mod run;
mod scope;
mod settle;
mod settle_error;
mod settle_many;
mod sweep;
mod take;
mod tasks;
mod tokens;
mod upkeep;
mod watch;
mod writes;

pub use builder::Builder;
pub use by_hand::Resolution;
pub use checkpoint::CheckpointError;
pub use claim_all::AllClaimed;
#[cfg(feature = "admin")]
pub(crate) use closing::WeakStore;
#[cfg(any(feature = "sled", feature = "redb"))]
pub use copy::Repaired;
pub use copy::{Copied, CopyError, Flaw, Part, Verified};
pub use ending::{Ending, Worked};
pub use guard::{Claim, ExpiredLease};
pub use index::Rebuilt;
pub use inspect::{Inspection, KeyState, Known, Next};
pub use kv::{Compared, Kv};
pub use kv_error::{KvError, ValueKey};
pub use kv_scan::KvScan;
pub use list::{Listing, Pending};
pub use lock::Lock;
pub use outcome::{About, InFlight, Interrupted, Mismatched, Omitted, Outcome, Settled, Stored};
pub use request::{IntoKey, MAX_LEASE, MAX_RETENTION, MAX_WAIT, Request};
pub use run::{Refused, Run, RunError};
pub use scope::{LiveClaims, Scope, ScopeCount};
pub use settle_error::{AlreadySettled, KeyInterrupted, Lost, Retry, RetryCause, SettleError};
pub use sweep::Swept;
pub use tasks::StoreFuture;
pub use upkeep::{LossRaised, LossSignal};
pub use watch::Stats;
pub use writes::{MAX_WRITES, MAX_WRITES_BYTES, Writes};

use crate::backend::Backend;
use crate::clock::Clock;
use crate::commit::{GroupCommit, Observer};
#[cfg(feature = "sled")]
use crate::error::OpenError;
use crate::error::{AdminError, ClaimError, Damage, Fault};
use crate::key::Key;
use crate::lease::{Mark, Table};
use crate::protocol::decide;
use crate::record::Record;
use crate::sync::{AtomicU64, Break};
use crate::telemetry::Telemetry;
use crate::timer::Timer;
use crate::token::Tokens;
use builder::Settings;
use engine::EngineCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use sweep::Sweeper;
use watch::Watch;

/// An open store. Cheap to clone; clones share it, and it stays open until the last clone and the last claim of it
/// are gone or it is [closed](Store::close). When the last goes it is closed as well, and nobody is told if that fails.
///
/// Operations block their thread: for storage, a durable one for a sync, at most [`Builder::sync_limit`] (30 s unless set), and
/// a claim that [waits](Request::wait) for that. Those for tasks end in `_async`.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    table: Arc<Table>,
    commit: Arc<GroupCommit<Mark>>,
    engine: Arc<EngineCell>,
    tokens: Arc<Tokens>,
    sweeper: Arc<Sweeper>,
    clock: Arc<dyn Clock>,
    timer: Timer,
    settings: Settings,
    telemetry: Arc<Telemetry>,
    watch: Arc<Watch>,
    /// Above zero once a plain value was written that no sync was asked for.
    relaxed_values: AtomicU64,
    #[cfg(feature = "admin")]
    closing: closing::Closing,
}

/// A record as it was read, and its bytes, which a swap expects.
#[derive(Debug)]
struct Seen {
    bytes: Option<Vec<u8>>,
    record: Option<Record>,
}

impl Store {
    /// Opens the store in the folder `path` with the default settings, and creates it if nothing is there, for its user
    /// alone. While another opening has it, in whatever process, it is waited for: 2 s, unless [`Builder::lock_wait`] says
    /// otherwise.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("claims");
    /// let store = claimdb::Store::open(&path)?;
    /// store.claim("order-42")?.granted().expect("it is free").complete("receipt 7")?;
    /// store.close()?;
    /// let store = claimdb::Store::open(&path)?; // by the next process, say
    /// assert!(store.get("order-42")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`OpenError`]; nothing that was stored is changed then.
    #[cfg(feature = "sled")]
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self, OpenError> {
        Self::builder(crate::backend::Sled::new(path)).open()
    }

    /// Settings for a store over `backend`.
    #[must_use]
    pub fn builder(backend: impl Backend + 'static) -> Builder {
        Builder::new(backend)
    }

    /// Asks for the exclusive right to do a key's work.
    ///
    /// Of any number of callers with the same key exactly one is granted it. The others are told that it is in
    /// flight (after [waiting](Request::wait), if they asked for that), or get what was stored.
    ///
    /// Waiters are granted in the order in which they came; a newcomer may get in ahead of one that was just
    /// woken, which then keeps its place.
    ///
    /// ```
    /// use claimdb::{Outcome, Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let Outcome::Granted(claim) = store.claim("order-42")? else { unreachable!("nobody else is here") };
    /// claim.complete("receipt 7")?;
    /// let settled = store.claim("order-42")?.settled().expect("it was completed");
    /// let receipt: String = settled.completed().expect("it was completed").decode()?;
    /// assert_eq!(receipt, "receipt 7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Whoever claims a key while holding its claim waits for the claim's own lease, or to the end of the wait.
    /// Inside [`run`](Self::run) that is found at once.
    ///
    /// # Errors
    /// [`ClaimError`]. No error grants the key, and none frees it.
    #[cfg_attr(loom, track_caller)]
    pub fn claim(&self, request: impl Into<Request>) -> Result<Outcome, ClaimError> {
        self.0.claim_here(&request.into())
    }

    /// Ends this opening: refuses new claims, wakes those who wait, fences every claim, makes durable what was
    /// written, and gives the lock back, even while claims and clones are alive. Closing again does nothing.
    ///
    /// It takes [`Builder::sync_limit`] at most. Work that still runs is not waited for: what it settles afterwards is an
    /// error, and the next opening's claimant is the next attempt. So let it end first.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let store = Store::builder(Mem::new()).open()?;
    /// let late = store.claim("order-42")?.granted().expect("it is free");
    /// store.close()?;
    /// assert!(late.complete("receipt 7").is_err() && store.claim("order-43").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AdminError`] if the last sync failed or did not end within the sync limit, or if something else keeps the
    /// engine: a call that hangs, or the waker that this is called from while the store syncs. The store is closed all
    /// the same, and the lock is given back once that has ended. An engine that panics when it is dropped is an error
    /// as well, each time.
    ///
    /// In a fork nothing is closed, which is an error: the store is the process's that opened it.
    pub fn close(&self) -> Result<(), AdminError> {
        self.0.close().map_err(|fault| AdminError::Failed {
            doing: "closing",
            on: "the store".to_owned(),
            fault,
        })
    }
}

impl Inner {
    fn close(&self) -> Result<(), Fault> {
        self.check_process()?;
        #[cfg(feature = "admin")]
        self.closing.tell();
        self.table.close();
        self.timer.end();
        self.sweeper.end();
        if self.engine.get().is_err() {
            return self.engine.gone().unwrap_or(Ok(())).map_err(Fault::from);
        }
        let closed = self.close_engine();
        self.watch.ended(closed.as_ref().err());
        closed
    }

    fn close_engine(&self) -> Result<(), Fault> {
        self.mark_last_time();
        // One bound for all of it, and none to wait for where this thread is the one that syncs.
        let in_waker = self.commit.is_this_thread();
        let (start, limit) = (self.clock.now(), if in_waker { Duration::ZERO } else { self.limit() });
        let left = || limit.saturating_sub(self.clock.now().since(start));
        let synced = match self.commit.ticket([]) {
            Ok(_) if in_waker => Ok(()),
            Ok(ticket) => self.commit.wait(ticket, limit),
            Err(Fault::Closed) => Ok(()),
            Err(fault) => Err(fault),
        };
        let stopped = self.commit.stop(left());
        // No ticket is given any more; where callers sync, some were since that sync began.
        let synced = match self.commit.uncovered() {
            Some(ticket) if !in_waker => synced.and_then(|()| self.commit.wait(ticket, left())),
            _ => synced,
        };
        if !(in_waker && self.commit.ends_by_itself()) {
            self.commit.let_go();
        }
        let gone = self.engine.close(&*self.clock, left());
        match (synced, gone) {
            (Err(fault), _) if !matches!(fault, Fault::SyncPending { .. }) => Err(fault),
            (_, Some(how)) if stopped => match self.commit.poisoned() {
                Some(poisoned) => Err(poisoned.into()),
                None => Ok(how?),
            },
            _ => {
                let waited = self.clock.now().since(start);
                let running = self.commit.stats().running.filter(|_| !in_waker);
                Err(match running {
                    Some(_) => Fault::SyncPending { waited, running },
                    None => Fault::EngineInUse { waited, in_waker },
                })
            }
        }
    }

    /// Tells this opening of a store from all others that are open, whichever clone is asked.
    fn identity(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Refuses in a fork what changes memory alone, or syncs; the engine refuses one by itself.
    fn check_process(&self) -> Result<(), Fault> {
        self.engine.check_process()
    }

    /// Refuses writes while poisoned. A store that is closed by now is told as that.
    fn check_writable(&self) -> Result<(), Fault> {
        let Some(poisoned) = self.commit.poisoned() else { return Ok(()) };
        self.engine.get()?;
        Err(poisoned.into())
    }

    /// Refuses what begins something new while poisoned, in a fork, or without room for it.
    fn check_new_work(&self) -> Result<(), Fault> {
        self.check_writable()?;
        self.engine.get()?.room().map_err(Fault::DiskFull)
    }

    /// Reads a record for somebody who may tell of it: `None` if nobody may, because a settling write stands on
    /// the key that no finished sync covers. Memory is asked *after* the record was read (rule 2).
    fn read(&self, key: &Key) -> Result<Option<Seen>, Fault> {
        let checked_early = Break::CheckBeforeRead.is() && !self.is_unsynced(key)?;
        let bytes = self.engine.get()?.read(key.encoded())?;
        let record = self.decode(key, bytes.as_deref())?;
        if !checked_early && self.is_unsynced(key)? {
            return Ok(None);
        }
        Ok(Some(Seen { bytes, record }))
    }

    /// The record behind stored bytes, if there are any. Damage is told of.
    fn decode(&self, key: &Key, bytes: Option<&[u8]>) -> Result<Option<Record>, Damage> {
        let record = bytes.map(Record::decode).transpose();
        record.inspect_err(|damage| self.telemetry.damaged(key.label(), damage))
    }

    /// The same of a record that is none of this store's.
    fn check_token(&self, key: &Key, record: &Record) -> Result<(), Damage> {
        let checked = decide::check_token(record, self.tokens.ceiling());
        checked.inspect_err(|damage| self.telemetry.damaged(key.label(), damage))
    }

    /// Syncs a write on the key that nobody else will sync: where callers sync, its writer may be gone. Tells whether
    /// there was one.
    fn sync_abandoned(&self, key: &Key) -> Result<bool, Fault> {
        let Some(ticket) = self.commit.abandoned() else { return Ok(false) };
        if !self.table.is_unsynced(key.encoded())? {
            return Ok(false);
        }
        self.commit.wait(ticket, self.limit()).map(|()| true)
    }

    /// Whether a settling write stands on the key that no finished sync covers; an error if none ever will.
    fn is_unsynced(&self, key: &Key) -> Result<bool, Fault> {
        self.sync_abandoned(key)?;
        let unsynced = self.table.is_unsynced(key.encoded())?;
        if unsynced {
            self.check_told_unsynced()?;
        }
        Ok(unsynced)
    }

    /// Refuses to tell of a key with an unsynced mark if no sync ever will cover that.
    fn check_told_unsynced(&self) -> Result<(), Fault> {
        if Break::PoisonUntold.is() { Ok(()) } else { self.check_writable() }
    }

    fn limit(&self) -> Duration {
        self.settings.sync_limit
    }
}

impl fmt::Debug for Inner {
    /// Shows nothing of what it holds: keys and values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("poisoned", &self.commit.poisoned()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // The folder and its lock are those of the process that opened it.
            self.commit.forget_engine();
            self.engine.forget();
            return;
        }
        // Nobody is left to be told; what was told is durable already.
        let _ = self.close();
    }
}

/// Connects group commit, which knows no leases, with the lease table, which knows no syncs.
struct Marks(Arc<Table>);

impl Observer<Mark> for Marks {
    fn synced(&self, marks: Vec<Mark>) {
        for mark in &marks {
            self.0.unmark(mark);
        }
    }

    fn poisoned(&self) {
        if !Break::PoisonWakesNobody.is() {
            self.0.wake_all();
        }
    }

    fn abandoned(&self) {
        self.0.wake_all();
    }
}
