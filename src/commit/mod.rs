//! Group commit: one thread syncs, and everyone whose write returned before that sync began is released by it.
//!
//! A write takes a *ticket* after it has returned; a sync reads the ticket counter before it begins, and covers
//! every ticket up to it (rule 4). A settling write hands its unsynced mark over with its ticket: the mark is
//! cleared by the sync that covers it, whether or not anybody still waits, so no mark stays for ever (rule 3).
//! Marks are cleared before the waiters are released, so whoever was told of a settle finds the key settled.
//!
//! The first failed sync *poisons*: no ticket is given out any more, nobody is released, no mark is cleared, and
//! everyone who waits is told (rule 7). A sync that panics has failed. A sync that hangs keeps nobody: each waiter
//! goes at its own deadline and learns how long the sync has been running.
//!
//! # Locking
//! Two mutexes, never held at once: the state's, for bookkeeping alone, and the engine's, for a copy of its pointer. Neither
//! is held across a sync, a cleared mark or a raised signal.

mod end;
mod look;
mod wait;

use crate::backend::Engine;
use crate::clock::{Clock, Moment};
use crate::error::{Fault, Poisoned, StorageError};
use crate::sync::{Break, Mutex, Signal, ThreadId, current_thread, spawn};
use crate::telemetry::Telemetry;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Who runs the syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncBy {
    /// A thread of the store's own, started when first needed. A sync that hangs keeps no caller.
    #[default]
    Thread,
    /// The first caller who waits; the others wait for it, and one of them takes over if it is gone. No thread is
    /// started, and a sync that hangs keeps that caller. For models, whose threads are few, and for single-threaded programs.
    Caller,
}

/// A write's place in the order of syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// What group commit tells the rest of the store. Called without any of its locks.
pub(crate) trait Observer<M>: Send + Sync {
    /// A sync has ended that covers the writes of these marks.
    fn synced(&self, marks: Vec<M>);
    /// A sync has failed; the store is poisoned from now on.
    fn poisoned(&self);
    /// Where callers sync: writes have landed that nobody waits for any more. Whoever waits for their keys has to look
    /// again, and to sync them.
    fn abandoned(&self);
}

pub(crate) struct GroupCommit<M> {
    state: Mutex<State<M>>,
    /// `None` once the store is closed.
    engine: Mutex<Option<Arc<dyn Engine>>>,
    clock: Arc<dyn Clock>,
    observer: Box<dyn Observer<M>>,
    sync_by: SyncBy,
    /// Raised when the syncing thread has something to do or is to end.
    work: Signal,
    ended: Arc<Signal>,
    telemetry: Arc<Telemetry>,
    /// From when on a sync is told of as slow.
    slow_from: Duration,
}

struct State<M> {
    /// The last ticket that was given.
    issued: u64,
    /// Up to which ticket a finished sync covers.
    synced: u64,
    /// By ticket, rising.
    marks: VecDeque<(u64, M)>,
    /// Each with the ticket that it waits for.
    waiting: VecDeque<(u64, Arc<Signal>)>,
    /// Set while somebody syncs.
    running_since: Option<Moment>,
    /// Whether the running sync has been told of as slow.
    told_slow: bool,
    /// Of the syncs that have ended, well or not.
    slowest: Duration,
    poisoned: Option<Poisoned>,
    /// Set when the engine was let go; what is not covered by then never will be.
    closed: bool,
    thread: Thread,
    /// Which thread is in the middle of a sync, or of waking those whom that released.
    syncing: Option<ThreadId>,
    /// What is written before the last sync.
    last: Option<LastWrite>,
}

type LastWrite = Box<dyn FnOnce(&dyn Engine) + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thread {
    NotStarted,
    Running,
    Stopping,
    Ended,
}

impl<M: Send + 'static> GroupCommit<M> {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        observer: Box<dyn Observer<M>>,
        sync_by: SyncBy,
        slow_from: Duration,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                issued: 0,
                synced: 0,
                marks: VecDeque::new(),
                waiting: VecDeque::new(),
                running_since: None,
                told_slow: false,
                slowest: Duration::ZERO,
                poisoned: None,
                closed: false,
                thread: Thread::NotStarted,
                syncing: None,
                last: None,
            }),
            engine: Mutex::new(Some(engine)),
            clock,
            observer,
            sync_by,
            work: Signal::new(),
            ended: Arc::new(Signal::new()),
            telemetry,
            slow_from,
        }
    }

    /// Why writes are refused, if they are.
    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        self.state.lock().poisoned.clone()
    }

    /// Whether a ticket was given that no sync has covered yet.
    pub(crate) fn owes_a_sync(&self) -> bool {
        let state = self.state.lock();
        state.issued > state.synced
    }

    /// Gives one ticket to writes that have returned, with the marks that they put, and asks for the sync that
    /// will cover them.
    pub(crate) fn ticket(self: &Arc<Self>, marks: impl IntoIterator<Item = M>) -> Result<Ticket, Fault> {
        let (ticket, start) = {
            let mut state = self.state.lock();
            if let Some(poisoned) = &state.poisoned {
                return Err(poisoned.clone().into());
            }
            if matches!(state.thread, Thread::Stopping | Thread::Ended) {
                return Err(Fault::Closed);
            }
            state.issued += 1;
            let ticket = state.issued;
            state.marks.extend(marks.into_iter().map(|mark| (ticket, mark)));
            let start = self.sync_by == SyncBy::Thread && state.thread == Thread::NotStarted;
            if start {
                state.thread = Thread::Running;
            }
            (ticket, start)
        };
        if start {
            self.start()?;
        }
        if self.sync_by == SyncBy::Thread {
            self.work.notify();
        }
        Ok(Ticket(ticket))
    }

    fn start(self: &Arc<Self>) -> Result<(), Fault> {
        let commit = Arc::clone(self);
        spawn("claimdb-sync", move || commit.run_thread()).map_err(|error| {
            self.not_started();
            StorageError::new("starting the syncing thread of", "the store", error).into()
        })
    }

    /// The thread could not be started: the next ticket tries again, unless somebody has begun to wait for its end.
    fn not_started(&self) {
        let ended = {
            let mut state = self.state.lock();
            let ended = state.thread == Thread::Stopping;
            state.thread = if ended { Thread::Ended } else { Thread::NotStarted };
            ended
        };
        if ended {
            self.ended.notify();
        }
    }

    fn run_thread(&self) {
        loop {
            self.work.wait();
            let (todo, stopping) = {
                let state = self.state.lock();
                let todo = state.issued > state.synced && state.poisoned.is_none();
                (todo, state.thread == Thread::Stopping)
            };
            if todo {
                self.sync_once();
                // Whoever wrote meanwhile has raised the signal, and is covered by the next round.
            }
            if stopping {
                break;
            }
        }
        // Whoever closes may not have waited for this.
        self.let_go();
        self.state.lock().thread = Thread::Ended;
        self.ended.notify();
    }

    /// Where callers sync, a ticket that covers writes for which nobody waits any more: whoever finds one of their
    /// marks has to sync them, or the marks would stand for ever (rule 3). A thread needs no help.
    pub(crate) fn abandoned(&self) -> Option<Ticket> {
        if self.sync_by == SyncBy::Thread || Break::NobodySyncs.is() {
            return None;
        }
        let state = self.state.lock();
        state.is_abandoned().then_some(Ticket(state.issued))
    }

    /// Somebody who would have synced a write is gone. Those who wait for its key already are told, and one of them
    /// syncs it: each looks for [`abandoned`](Self::abandoned) writes once it is in the key's queue, so either it finds
    /// this one or it is woken.
    pub(crate) fn pass_on(&self) {
        if self.abandoned().is_some() {
            self.tell_abandoned();
        }
    }

    fn tell_abandoned(&self) {
        if self.sync_by == SyncBy::Caller && !Break::AbandonedUntold.is() {
            self.observer.abandoned();
        }
    }

    /// Waits until a sync has covered `ticket`, for `limit` at most.
    pub(crate) fn wait(&self, ticket: Ticket, limit: Duration) -> Result<(), Fault> {
        let waiting = self.waiting(ticket, limit);
        loop {
            if let Some(covered) = waiting.look() {
                return covered;
            }
            let (signal, deadline) = waiting.signal();
            self.clock.wait(signal, deadline);
        }
    }

    /// Where callers sync, a ticket to wait for, so that what was written by those who do not wait is synced; a
    /// thread needs no help.
    pub(crate) fn help(self: &Arc<Self>) -> Result<Option<Ticket>, Fault> {
        match self.sync_by {
            SyncBy::Thread => Ok(None),
            SyncBy::Caller => self.ticket(None).map(Some),
        }
    }

    /// Syncs once and releases whom that covers. One at a time.
    fn sync_once(&self) {
        let last = {
            let mut state = self.state.lock();
            state.syncing = Some(current_thread());
            state.last.take()
        };
        let engine = self.engine.lock().clone();
        let Some(engine) = engine else {
            // It was let go meanwhile: those who wait are told that the store is closed.
            let mut state = self.state.lock();
            (state.running_since, state.syncing) = (None, None);
            return;
        };
        if let Some(last) = last {
            // It need not land, so a panic is no more than an error.
            let _ = catch_unwind(AssertUnwindSafe(|| last(&*engine)));
        }
        let now = self.clock.now();
        let (covered, writes) = {
            let mut state = self.state.lock();
            (state.running_since, state.told_slow) = (Some(now), false);
            (state.issued, state.issued - state.synced)
        };
        let result = self.sync_told(&*engine, writes);
        let took = self.clock.now().since(now);
        let covered = if Break::CoversTooMuch.is() { self.state.lock().issued } else { covered };
        match result {
            Some(Ok(())) => self.succeeded(covered, took, writes),
            Some(Err(_)) if Break::FailedSyncIgnored.is() => self.succeeded(covered, took, writes),
            Some(Err(error)) => self.failed(&error.to_string(), took),
            None if Break::PanicIsSuccess.is() => self.succeeded(covered, took, writes),
            None => self.failed("the engine panicked while syncing", took),
        }
        self.state.lock().syncing = None;
    }

    /// Syncs within a span; `None` if the engine panicked. A panic of whoever is told of the span changes nothing: neither
    /// that there is a sync, nor how it ended.
    fn sync_told(&self, engine: &dyn Engine, writes: u64) -> Option<Result<(), StorageError>> {
        let sync = || catch_unwind(AssertUnwindSafe(|| engine.sync())).ok();
        let mut ended = None;
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let span = self.telemetry.sync_span(writes);
            span.within(|| ended = Some(sync()));
            if let Some(Some(Err(error))) = &ended {
                span.error(error);
            }
        }));
        ended.unwrap_or_else(sync)
    }

    fn succeeded(&self, covered: u64, took: Duration, writes: u64) {
        let (marks, is_slow) = {
            let mut state = self.state.lock();
            let count = state.marks.partition_point(|(ticket, _)| *ticket <= covered);
            let marks = state.marks.drain(..count).map(|(_, mark)| mark).collect::<Vec<_>>();
            (marks, state.becomes_slow(took, self.slow_from))
        };
        // Before anybody is released: whoever was told of a sync finds it counted.
        self.telemetry.synced(took, writes);
        if is_slow {
            self.telemetry.slow_sync(took);
        }
        self.observer.synced(marks);
        let (released, abandoned) = {
            let mut state = self.state.lock();
            state.synced = covered;
            state.sync_ended(took);
            let is_covered = |(ticket, _): &(u64, Arc<Signal>)| *ticket <= covered;
            let (mut released, left): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut state.waiting).into_iter().partition(is_covered);
            if self.sync_by == SyncBy::Thread {
                state.waiting = left;
                (released, false)
            } else {
                // One of those left must take over: all look again. If none is, a write may be left all the same.
                let abandoned = left.is_empty() && state.is_abandoned();
                released.extend(left);
                (released, abandoned)
            }
        };
        release(released);
        if abandoned {
            self.tell_abandoned();
        }
    }

    fn failed(&self, reason: &str, took: Duration) {
        if Break::FailedSyncClears.is() {
            let marks = std::mem::take(&mut self.state.lock().marks);
            self.observer.synced(marks.into_iter().map(|(_, mark)| mark).collect());
        }
        let poisoned = Poisoned { cause: reason.into() };
        let (released, is_slow) = {
            let mut state = self.state.lock();
            state.poisoned = Some(poisoned.clone());
            let is_slow = state.becomes_slow(took, self.slow_from);
            state.sync_ended(took);
            (std::mem::take(&mut state.waiting), is_slow)
        };
        // Who is told here may take as long as it likes: the store refuses writes already. Nobody was released yet.
        self.telemetry.is_poisoned(&poisoned);
        if is_slow {
            self.telemetry.slow_sync(took);
        }
        self.observer.poisoned();
        release(released);
    }
}

impl<M> State<M> {
    /// Whether marks stand on what was written, and nobody syncs it or waits for a sync. What a sync covers has its marks
    /// taken out first, so where one stands there is more to sync.
    fn is_abandoned(&self) -> bool {
        let nobody = self.running_since.is_none() && self.waiting.is_empty();
        !self.marks.is_empty() && nobody && self.poisoned.is_none() && !self.closed
    }

    fn sync_ended(&mut self, took: Duration) {
        self.running_since = None;
        self.slowest = self.slowest.max(took);
    }
}

fn release(released: VecDeque<(u64, Arc<Signal>)>) {
    for (_, signal) in released {
        signal.notify();
    }
}
