//! Deleting what is forgotten, off the hot path and in bounded steps.
//!
//! A step walks the index from where the last one stopped, in the order in which entries came due, and asks for each
//! what memory knows of the key, then the record. Its cost follows what has come due, not what is stored. Why it may
//! do what it does is in [`index`].
//!
//! A deletion is not synced and puts no mark (rules 1 to 5): what it deletes reads as absent before and after, and
//! if a power cut brings it back it still does. It takes no place either: a claim that races with it finds its swap
//! refused and decides anew, and the late settle of a record that was swept is lost, like that of one removed.
//!
//! # Locking
//! One mutex around the place of the next step and what is told of the last; never held across I/O.

use super::engine::{EngineCell, commit_one};
use super::retention::{self, RetentionClock};
use super::{Inner, Store, index};
use crate::backend::{Commit, Engine, Swap};
use crate::clock::{Clock, Moment, WallTime, expired};
use crate::commit::GroupCommit;
use crate::error::{AdminError, Damage, Fault};
use crate::key::{IndexEntry, Key};
use crate::lease::{Found, Mark, Stamp, Table};
use crate::protocol::Purpose;
use crate::protocol::decide::{self, Sweeping};
use crate::record::Record;
use crate::sync::{Break, Mutex, Signal, spawn};
use crate::telemetry::Telemetry;
use crate::token::Tokens;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How many entries the sweeping thread looks at in one step.
const STEP: usize = 256;
/// When the thread first looks: soon, for the sake of stores that are open for a moment each day.
const FIRST: Duration = Duration::from_secs(1);
/// The high-water mark is written again once it is this old: losing as much of it does no harm.
const MARK_EVERY: Duration = Duration::from_secs(3600);

/// What a [sweep](Store::sweep) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Swept {
    /// Records deleted.
    pub deleted: usize,
    /// Entries that are to be looked at again, because their record is in flight, damaged, or ends later than was said,
    /// or because somebody came to a key of theirs while it was read.
    pub kept: usize,
    /// Entries of the index that stood for nothing, and are gone.
    pub dropped: usize,
    /// Whether more is due.
    pub more: bool,
}

impl Store {
    /// Deletes records whose retention is over, looking at `limit` entries of the retention index at most. Goes on
    /// where the last sweep stopped, so calling it until there is no `more` looks at everything that is due once. With a
    /// `limit` of 0 nothing is looked at, and `more` stays.
    ///
    /// The store does this by itself, see [`Builder::sweep_every`](super::Builder::sweep_every). It frees space;
    /// settled records that are forgotten read as absent whether or not they are still stored. A pending record is
    /// forgotten by being swept: the next claim of its key is told that it is the first attempt. Deletions are
    /// made durable by the next sync.
    ///
    /// # Errors
    /// [`AdminError`] if storage failed; what was deleted before that is. The next sweep goes on behind the entry at
    /// which it failed, and comes back to that later.
    pub fn sweep(&self, limit: usize) -> Result<Swept, AdminError> {
        let swept = self.0.sweeper.sweep(limit);
        swept.map_err(|fault| AdminError::Failed { doing: "sweeping", on: "the store".to_owned(), fault })
    }
}

/// Sweeps, by a thread of its own or when asked to.
pub(super) struct Sweeper {
    pub(super) table: Arc<Table>,
    pub(super) commit: Arc<GroupCommit<Mark>>,
    pub(super) engine: Arc<EngineCell>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) retention: RetentionClock,
    pub(super) state: Mutex<Progress>,
    /// Raised when the thread is to end.
    pub(super) ending: Arc<Signal>,
    pub(super) telemetry: Arc<Telemetry>,
}

/// How far the sweep is.
#[derive(Default)]
pub(super) struct Progress {
    /// The entry to go on behind; `None` to begin with the first.
    after: Option<Vec<u8>>,
    /// The high-water mark as it was written last by this opening's sweeps.
    marked: Option<WallTime>,
    last_success: Option<Moment>,
    backlog: Duration,
    ended: bool,
}

/// What is told of sweeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct SweepStats {
    pub(super) since_success: Option<Duration>,
    pub(super) backlog: Duration,
}

impl Sweeper {
    /// Starts the thread that sweeps each time `every` has passed. It keeps the store's parts and not the store, so
    /// that the store closes when its last user goes.
    pub(super) fn start(self: &Arc<Self>, every: Duration) {
        let sweeper = Arc::clone(self);
        if let Err(error) = spawn("claimdb-sweep", move || sweeper.run(every)) {
            // The store works without it, and its statistics say that nothing is swept.
            self.telemetry.sweep_failed(&error);
        }
    }

    /// Ends the thread, and tells it not to begin another entry.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.ending.notify();
    }

    fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    fn run(&self, every: Duration) {
        let mut next = self.clock.now().after(FIRST.min(every));
        while !self.has_ended() {
            if expired(self.clock.now(), next) {
                self.round();
                next = self.clock.now().after(every);
            } else {
                self.clock.wait(&self.ending, next);
            }
        }
    }

    /// Sweeps in steps until nothing more is due. After a failure the rest is left for the next round, which goes on
    /// behind what failed.
    fn round(&self) {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.sweep(STEP))) {
                Ok(Ok(Swept { more: true, .. })) if !self.has_ended() => {}
                Ok(_) => return,
                Err(_) => return self.telemetry.sweep_failed(&"the engine panicked"),
            }
        }
    }

    pub(super) fn sweep(&self, limit: usize) -> Result<Swept, Fault> {
        let span = self.telemetry.sweep_span();
        match span.within(|| self.step(limit)) {
            Ok(swept) => {
                let now = self.clock.now();
                self.state.lock().last_success = Some(now);
                span.count("deleted", swept.deleted);
                span.count("kept", swept.kept);
                span.count("dropped", swept.dropped);
                Ok(swept)
            }
            Err(fault) => {
                span.error(&fault);
                if !matches!(fault, Fault::Closed) {
                    self.telemetry.sweep_failed(&fault);
                }
                Err(fault)
            }
        }
    }

    fn step(&self, limit: usize) -> Result<Swept, Fault> {
        if let Some(poisoned) = self.commit.poisoned() {
            return Err(poisoned.into());
        }
        let wall = self.retention.at(self.clock.now());
        self.mark_high_water(wall)?;
        let after = self.state.lock().after.clone();
        let mut due = Vec::new();
        let mut next = None;
        self.engine.get()?.scan(&IndexEntry::all(), after.as_deref(), &mut |key, value| {
            // What is no entry is taken for one that has come due: it stands for nothing.
            let end = IndexEntry::decode(key).map(|entry| entry.end);
            if end.is_some_and(|end| !expired(wall, end)) {
                return ControlFlow::Break(());
            }
            if due.len() == limit {
                next = Some(end.unwrap_or(wall));
                return ControlFlow::Break(());
            }
            due.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        let mut swept = Swept { more: next.is_some(), ..Swept::default() };
        for stored in &due {
            // Before it is looked at: whatever goes wrong with one keeps none of the others.
            self.state.lock().after = Some(stored.0.clone());
            self.look_at(stored, wall, &mut swept)?;
        }
        let millis = next.map_or(0, |end| wall.unix_millis().saturating_sub(end.unix_millis()));
        let backlog = Duration::from_millis(millis);
        {
            let mut state = self.state.lock();
            if next.is_none() {
                state.after = None;
            }
            state.backlog = backlog;
        }
        self.telemetry.sweep_left(backlog);
        if next.is_none()
            && let Ok(engine) = self.engine.get()
        {
            self.measure(&*engine);
        }
        Ok(swept)
    }

    /// Sweeps what one due entry points to.
    fn look_at(&self, stored: &(Vec<u8>, Vec<u8>), wall: WallTime, swept: &mut Swept) -> Result<(), Fault> {
        let Some(IndexEntry { token, key, .. }) = IndexEntry::decode(&stored.0) else {
            index::drop_entry(&*self.engine.get()?, stored, None)?;
            swept.dropped += 1;
            return Ok(());
        };
        // Memory first, then the record: see the module `index`.
        let looked = self.table.look(key.encoded(), Purpose::Upkeep, self.clock.now())?;
        let in_flight = match looked.found {
            Found::InFlight(busy) => Some(busy.deadline),
            Found::Free | Found::Mismatched => None,
        };
        if in_flight == Some(None) && self.table.may_be_written(key.encoded(), token)? {
            swept.kept += 1;
            return Ok(());
        }
        // A live claim is never swept, however long it has been renewed: look again when its lease is over.
        let busy_until = in_flight.map(|deadline| {
            let over = self.retention.at(deadline.unwrap_or_else(|| self.clock.now()));
            over.max(wall.after(Duration::from_millis(1)))
        });
        let bytes = self.engine.get()?.read(key.encoded())?;
        let record = match self.decode(bytes.as_deref()) {
            Ok(record) => record,
            // Damage is told to whoever asks for the key, and left as it is.
            Err(damage) => {
                self.telemetry.damaged(key.label(), &damage);
                self.telemetry.sweep_failures.add(1);
                swept.kept += 1;
                return Ok(());
            }
        };
        match decide::sweep(record.as_ref(), token, wall, busy_until) {
            // What was read may be swapped back to the entry's record, or have been.
            Sweeping::Stale if !self.is_undisturbed(&key, looked.stamp)? => swept.kept += 1,
            Sweeping::Stale => {
                index::drop_entry(&*self.engine.get()?, stored, None)?;
                swept.dropped += 1;
            }
            Sweeping::Later(end) => {
                index::drop_entry(&*self.engine.get()?, stored, Some(index::entry(end, token, &key)))?;
                swept.kept += 1;
            }
            Sweeping::Delete => {
                let bytes = if Break::SweepWithoutSwap.is() {
                    self.engine.get()?.read(key.encoded())?
                } else {
                    bytes
                };
                let swap = Commit::swap(key.encoded(), bytes.as_deref(), None);
                if let Swap::Refused { .. } = commit_one(&*self.engine.get()?, &swap)? {
                    // Somebody has just claimed or settled it. If that left this entry behind, it is dropped next time.
                    swept.kept += 1;
                    return Ok(());
                }
                self.telemetry.swept.add(1);
                swept.deleted += 1;
                index::drop_entry(&*self.engine.get()?, stored, None)?;
                self.table.forget_never_granted(key.encoded(), token);
            }
        }
        Ok(())
    }

    fn is_undisturbed(&self, key: &Key, stamp: Stamp) -> Result<bool, Fault> {
        let undisturbed = self.table.is_undisturbed(key.encoded(), stamp)?;
        Ok(undisturbed || Break::SweepUnasked.is())
    }

    fn decode(&self, bytes: Option<&[u8]>) -> Result<Option<Record>, Damage> {
        let record = bytes.map(Record::decode).transpose()?;
        if let Some(record) = &record {
            decide::check_token(record, self.tokens.ceiling())?;
        }
        Ok(record)
    }

    fn mark_high_water(&self, wall: WallTime) -> Result<(), Fault> {
        let marked = *self.state.lock().marked.get_or_insert(self.retention.start());
        if expired(wall, marked.after(MARK_EVERY)) {
            retention::store_high_water(&*self.engine.get()?, wall)?;
            self.state.lock().marked = Some(wall);
        }
        Ok(())
    }

    /// Looks how much room the store takes on its disk. Not knowing that is no failure.
    pub(super) fn measure(&self, engine: &dyn Engine) {
        if let Ok(Some(bytes)) = engine.size() {
            self.telemetry.measured(bytes);
        }
    }

    pub(super) fn stats(&self) -> SweepStats {
        let now = self.clock.now();
        let state = self.state.lock();
        SweepStats { since_success: state.last_success.map(|last| now.since(last)), backlog: state.backlog }
    }
}

impl Inner {
    /// The time by which records are stamped and forgotten.
    pub(super) fn wall(&self) -> WallTime {
        self.sweeper.retention.at(self.clock.now())
    }

    /// Has the high-water mark written down before the last sync, by the thread that syncs: the write may hang, and
    /// closing has a bound. The next opening manages without the mark: it believes a little less then.
    pub(super) fn mark_last_time(&self) {
        if self.check_writable().is_ok() {
            let wall = self.wall();
            self.commit.at_last(move |engine| {
                let _ = retention::store_high_water(engine, wall);
            });
        }
    }
}
