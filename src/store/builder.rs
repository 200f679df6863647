//! Opening a store: its settings, and what must be durable before the first answer.

use super::engine::{EngineCell, LookedAt, commit_one};
use super::own::{Own, ceiling_key};
use super::request::check_terms;
use super::retention::{self, RetentionClock};
use super::sweep::{Progress, Sweeper};
use super::watch::Watch;
use super::{Inner, Marks, Store};
use crate::backend::{Backend, Commit, Engine, Swap};
use crate::clock::{Clock, SystemClock, expired};
use crate::commit::{GroupCommit, SyncBy};
use crate::error::{InvalidSetting, OpenError, StorageError, StoreDamage};
use crate::lease::Table;
use crate::record::{self, Durability, OnInterrupt, Terms};
use crate::sync::{AtomicU64, Break, Mutex, Signal};
use crate::telemetry::{Span, Telemetry};
use crate::timer::{LastAlarm, Timer};
use crate::token::{self, Token, Tokens};
use crate::value::MAX_VALUE_LIMIT;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a store, and the way to open it. Bounds are looked at when it is opened.
///
/// ```
/// use claimdb::{Durability, Store, backend::Mem};
/// use std::time::Duration;
/// let store = Store::builder(Mem::new())
///     .lease(Duration::from_secs(60))
///     .retention(Duration::from_secs(7 * 86_400))
///     .durability(Durability::Result)
///     .open()?;
/// let claim = store.claim("order-42")?.granted().expect("it is free");
/// assert!(claim.remaining() > Duration::from_secs(30));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) clock: Arc<dyn Clock>,
    settings: Settings,
    lock_wait: Duration,
    token_floor: Token,
    sync_by: SyncBy,
    sweep_every: Duration,
    read_only: bool,
    name: Arc<str>,
    watch_every: Duration,
}

/// What an open store goes by.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) terms: Terms,
    pub(super) value_limit: usize,
    pub(super) sync_limit: Duration,
    slow_sync: Duration,
    /// Where the open store's files are, whatever becomes of the working folder.
    #[cfg_attr(
        not(any(feature = "sled", feature = "redb")),
        expect(dead_code, reason = "no engine has files")
    )]
    pub(super) folder: Option<PathBuf>,
}

impl Builder {
    /// A store over `backend`, with the default settings.
    pub(super) fn new(backend: impl Backend + 'static) -> Self {
        Self {
            backend: Arc::new(backend),
            clock: Arc::new(SystemClock::new()),
            settings: Settings {
                terms: Terms {
                    lease: Duration::from_secs(30),
                    retention: Duration::from_secs(86_400),
                    durability: Durability::Full,
                    on_interrupt: OnInterrupt::Rerun,
                    max_attempts: None,
                },
                value_limit: 1 << 20,
                sync_limit: Duration::from_secs(30),
                slow_sync: Duration::from_secs(1),
                folder: None,
            },
            lock_wait: Duration::from_secs(2),
            token_floor: Token::new(0),
            sync_by: SyncBy::Thread,
            sweep_every: Duration::from_secs(60),
            read_only: false,
            name: "default".into(),
            watch_every: Duration::from_secs(5),
        }
    }

    /// What the store is called in metrics and logs, where it tells stores of one process apart, from 1 to 64 bytes;
    /// `default` if not set. Two stores that are open at a time want two names: of one name, their gauges overwrite each
    /// other. Not the path, and nothing secret.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().into();
        self
    }

    /// With the feature `metrics`, how often the recorder is told how many claims are live, how many callers wait and the
    /// like; with the feature `tracing`, how soon a sync that hangs is logged. From 1 ms to one day; 5 s if not set. It is done
    /// by the timer's thread, and never with [`SyncBy::Caller`]. Zero leaves it to [`Store::stats`], which does the same
    /// each time. Without either feature there is nothing to do.
    #[must_use]
    pub fn watch_every(mut self, period: Duration) -> Self {
        self.watch_every = period;
        self
    }

    /// How long a holder has unless its request says otherwise, from 1 ms to 366 days; 30 s if not set.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.terms.lease = lease;
        self
    }

    /// How long a settled key is remembered unless its request says otherwise, from 1 ms to 100 years; 24 h if
    /// not set.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.terms.retention = retention;
        self
    }

    /// What is durable when, unless a request says otherwise; [`Durability::Full`] if not set.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.terms.durability = durability;
        self
    }

    /// The most bytes a result may have, as encoded, from 1 byte to 64 MiB; 1 MiB if not set.
    #[must_use]
    pub fn value_limit(mut self, bytes: usize) -> Self {
        self.settings.value_limit = bytes;
        self
    }

    /// How long a caller waits for the sync that covers its write, from 1 ms to one day; 30 s if not set. It then
    /// gets an error that says so; the sync goes on.
    #[must_use]
    pub fn sync_limit(mut self, limit: Duration) -> Self {
        self.settings.sync_limit = limit;
        self
    }

    /// From when on [`Stats::slow_syncs`](crate::Stats) counts a sync, the running one included, from 1 ms to one
    /// day; 1 s if not set.
    #[must_use]
    pub fn slow_sync(mut self, from: Duration) -> Self {
        self.settings.slow_sync = from;
        self
    }

    /// How long to wait for another opening to end, at most one day; 2 s if not set. Zero tries once.
    #[must_use]
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// All tokens that are handed out are above this; it lies below 2^62. Needed after an old copy of a store was restored on
    /// a machine whose clock is behind the time at which the copied store stopped: give the greatest token that is known.
    #[must_use]
    pub fn token_floor(mut self, floor: Token) -> Self {
        self.token_floor = floor;
        self
    }

    /// Who runs the syncs; a thread of the store's own if not set.
    #[must_use]
    pub fn sync_by(mut self, sync_by: SyncBy) -> Self {
        self.sync_by = sync_by;
        self
    }

    /// How often the store looks for records whose retention is over and deletes them, from 1 ms to one day; 60 s
    /// if not set. It begins one second after the opening, on a thread of its own, and never with
    /// [`SyncBy::Caller`]. Zero leaves it to [`Store::sweep`].
    #[must_use]
    pub fn sweep_every(mut self, period: Duration) -> Self {
        self.sweep_every = period;
        self
    }

    /// Opens a store that is there, to be looked at: nothing is written to it, as for [`verify`](Self::verify). No token ceiling is raised, the retention clock does not move, nothing is swept, and
    /// whatever would change or claim something is refused as an error of storage. It takes the lock as any opening does,
    /// so every claim that is stored as pending is one whose holder has ended. Where there is no store none is made.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Where time comes from; the machine's clock if not set.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens the store. When this returns, all that the store will tell of is durable.
    ///
    /// # Errors
    /// [`OpenError`]; nothing that was stored is changed then.
    #[cfg_attr(loom, track_caller)]
    pub fn open(self) -> Result<Store, OpenError> {
        self.check()?;
        let span = Span::opening(&self.name);
        span.within(|| self.open_checked()).inspect_err(|error| span.error(error))
    }

    fn open_checked(self) -> Result<Store, OpenError> {
        let mut engine = if self.read_only { self.open_to_look() } else { self.open_backend() }?;
        let (tokens, retention) = if self.read_only {
            engine = Box::new(LookedAt(engine));
            self.look(&*engine)?
        } else {
            self.seal_opening(&*engine).map_err(OpenError::or_disk_full)?
        };
        let folder = self.backend.folder().and_then(|folder| fs::canonicalize(folder).ok());
        let telemetry = Arc::new(Telemetry::new(&self.name));
        let (cell, engine) = EngineCell::new(engine);
        let (cell, tokens) = (Arc::new(cell), Arc::new(tokens));
        let table = Arc::new(Table::new(Arc::clone(&self.clock), Arc::clone(&telemetry)));
        let marks = Box::new(Marks(Arc::clone(&table)));
        let commit = Arc::new(GroupCommit::new(
            Arc::clone(&engine),
            Arc::clone(&self.clock),
            marks,
            self.sync_by,
            self.settings.slow_sync,
            Arc::clone(&telemetry),
        ));
        let sweeper = Arc::new(Sweeper {
            table: Arc::clone(&table),
            commit: Arc::clone(&commit),
            engine: Arc::clone(&cell),
            tokens: Arc::clone(&tokens),
            clock: Arc::clone(&self.clock),
            retention,
            state: Mutex::new(Progress::default()),
            ending: Arc::new(Signal::new()),
            telemetry: Arc::clone(&telemetry),
        });
        sweeper.measure(&*engine);
        drop(engine);
        // Models have few threads, and sweep when they mean to.
        let sweeps = !self.sweep_every.is_zero() && !self.read_only;
        if self.sync_by == SyncBy::Thread && sweeps && !cfg!(any(loom, shuttle)) {
            sweeper.start(self.sweep_every);
        }
        let timer = Timer::new(Arc::clone(&self.clock));
        let watch = Arc::new(Watch {
            table: Arc::clone(&table),
            commit: Arc::clone(&commit),
            engine: Arc::clone(&cell),
            sweeper: Arc::clone(&sweeper),
            timer: timer.clone(),
            clock: Arc::clone(&self.clock),
            telemetry: Arc::clone(&telemetry),
            alarm: LastAlarm::default(),
        });
        if self.sync_by == SyncBy::Thread && !self.watch_every.is_zero() {
            watch.start(self.watch_every);
        }
        telemetry.opened(tokens.first());
        Ok(Store(Arc::new(Inner {
            table,
            commit,
            sweeper,
            engine: cell,
            tokens,
            timer,
            telemetry,
            watch,
            clock: self.clock,
            settings: Settings { folder, ..self.settings },
            relaxed_values: AtomicU64::new(0),
            #[cfg(feature = "admin")]
            closing: super::closing::Closing::default(),
        })))
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        check_terms(&self.settings.terms)?;
        let day = Duration::from_secs(86_400);
        let check = |setting, given: String, fits: bool, allowed| {
            if fits { Ok(()) } else { Err(InvalidSetting { setting, given, allowed }) }
        };
        let &Settings { value_limit, sync_limit, slow_sync, .. } = &self.settings;
        let fits = (1..=MAX_VALUE_LIMIT).contains(&value_limit);
        check("value_limit", format!("{value_limit} bytes"), fits, "from 1 byte to 64 MiB")?;
        let fits = (Duration::from_millis(1)..=day).contains(&sync_limit);
        check("sync_limit", format!("{sync_limit:?}"), fits, "from 1 ms to 24 h")?;
        let fits = (Duration::from_millis(1)..=day).contains(&slow_sync);
        check("slow_sync", format!("{slow_sync:?}"), fits, "from 1 ms to 24 h")?;
        for (setting, period) in [("sweep_every", self.sweep_every), ("watch_every", self.watch_every)] {
            let fits = period.is_zero() || (Duration::from_millis(1)..=day).contains(&period);
            check(setting, format!("{period:?}"), fits, "zero, or from 1 ms to 24 h")?;
        }
        let bytes = self.name.len();
        check("name", format!("of {bytes} bytes"), (1..=64).contains(&bytes), "from 1 to 64 bytes")?;
        check("lock_wait", format!("{:?}", self.lock_wait), self.lock_wait <= day, "at most 24 h")?;
        let fits = self.token_floor.get() < 1 << 62;
        check("token_floor", self.token_floor.to_string(), fits, "below 2^62")
    }

    /// Opens the backend, waiting a bounded time for another opening to end.
    fn open_backend(&self) -> Result<Box<dyn Engine>, OpenError> {
        self.waiting_for_lock(|| self.backend.open())
    }

    /// The same for those who only read.
    pub(super) fn open_to_look(&self) -> Result<Box<dyn Engine>, OpenError> {
        self.waiting_for_lock(|| self.backend.open_to_look())
    }

    fn waiting_for_lock(
        &self,
        open: impl Fn() -> Result<Box<dyn Engine>, OpenError>,
    ) -> Result<Box<dyn Engine>, OpenError> {
        const LOOK_AGAIN: Duration = Duration::from_millis(20);
        let deadline = self.clock.now().after(self.lock_wait);
        loop {
            match open() {
                Err(OpenError::Locked { .. }) if !expired(self.clock.now(), deadline) => {
                    // A lock of the operating system wakes nobody, so it is looked at now and then.
                    let pause = self.clock.now().after(LOOK_AGAIN).min(deadline);
                    self.clock.wait(&Arc::new(Signal::new()), pause);
                }
                opened => return opened.map_err(OpenError::or_disk_full),
            }
        }
    }

    /// Raises the token ceiling for this opening and starts its retention clock, and makes that and all else durable
    /// (rules 6, 8 and 23).
    fn seal_opening(&self, engine: &dyn Engine) -> Result<(Tokens, RetentionClock), OpenError> {
        let place = self.backend.place();
        let storage = |source| OpenError::storage(place.clone(), source);
        let own = Own::read(engine, &place)?;
        let retention = own.retention(&*self.clock);
        let ceiling = own.ceiling.filter(|_| !Break::CeilingIgnored.is()).unwrap_or(Token::new(0));
        let first = token::first_of_opening(ceiling, self.token_floor, self.clock.wall());
        let tokens = Tokens::starting_at(first);
        let raised = record::encode_ceiling(tokens.ceiling());
        let hints = [retention::high_water(retention.start())];
        let key = ceiling_key();
        let swap = Commit { hints: &hints, ..Commit::swap(&key, own.stored.as_deref(), Some(&raised)) };
        match commit_one(engine, &swap) {
            Ok(Swap::Done) => {}
            Err(error) => return Err(storage(error)),
            Ok(Swap::Refused { .. }) => return Err(OpenError::damaged(place, &StoreDamage::CeilingChanged)),
        }
        if !Break::NoBarrier.is() {
            self.barrier(engine)?;
        }
        Ok((tokens, retention))
    }

    /// What an opening needs that only looks. Its answers are durable as well (rule 6).
    fn look(&self, engine: &dyn Engine) -> Result<(Tokens, RetentionClock), OpenError> {
        let place = self.backend.place();
        let own = Own::read(engine, &place)?;
        let Some(ceiling) = own.ceiling else { return Err(OpenError::NoStore { place }) };
        self.barrier(engine)?;
        Ok((Tokens::none_above(ceiling), own.retention(&*self.clock)))
    }

    /// Makes all that the store holds durable.
    fn barrier(&self, engine: &dyn Engine) -> Result<(), OpenError> {
        let synced = catch_unwind(AssertUnwindSafe(|| engine.sync()))
            .unwrap_or_else(|_| Err(StorageError::new("syncing", "the store", "the engine panicked")));
        synced.map_err(|source| OpenError::storage(self.backend.place(), source))
    }
}
