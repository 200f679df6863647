//! The table itself: shards and entries.

use super::entry::{Entry, Hashed, Held, NeverGranted, Shard};
use super::look::Busy;
use super::loss::LossCause;
use super::place::Place;
use super::waiters::{Queue, Waiting};
use crate::clock::{Clock, Moment, expired};
use crate::error::Fault;
use crate::protocol::decide::{self, Admission};
use crate::protocol::{Holder, Purpose};
use crate::record::Record;
use crate::sync::{AtomicU64, Break, Guard, HashSeed, Mutex, Ordering, Signal, hash_seed};
use crate::telemetry::Telemetry;
use crate::token::Token;
use crossbeam_utils::CachePadded;
use std::hash::BuildHasher;
use std::sync::Arc;

/// How many shards there are. Models look at each lock separately, so they get by with few.
const SHARDS: usize = if cfg!(loom) {
    1
} else if cfg!(shuttle) {
    2
} else {
    64
};

/// The places, marks and waiters of all keys that have any.
pub(crate) struct Table {
    pub(super) shards: Box<[CachePadded<Mutex<Shard>>]>,
    seed: HashSeed,
    pub(super) clock: Arc<dyn Clock>,
    /// How many leases were ended by hand. Raised under the lock of the lease's shard.
    pub(super) ended_by_hand: AtomicU64,
    telemetry: Arc<Telemetry>,
}

/// How a shard stood: the last number that it has drawn, for a place, a mark, or a claimant who may be refused. An equal one
/// proves that nothing happened since, a different one nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(pub(super) u64);

/// What the table says to a claimant.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// The key's place is the claimant's; `ended` is the claim that had it, expired or to be fenced by force. If it was
    /// `undisturbed` since the look, no place was taken and no mark put, so no record of the shard has been settled: what
    /// was read in between still stands.
    Place { place: Place, ended: Option<Holder>, undisturbed: bool },
    /// In flight; a claimant that waits is in the queue now, and looks again when signalled or at `look_again`.
    InFlight { busy: Busy, look_again: Option<Moment> },
    /// In flight for something else.
    Mismatched,
    /// The store was closed.
    Closed,
}

/// Whether there is something to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queued {
    /// Nothing; the key can be looked at.
    Free,
    /// The claim that has the key; look again when signalled, or then.
    Waits { look_again: Option<Moment> },
}

/// Why a claim can no longer do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its lease ran out and may not be renewed (rule 11).
    Expired,
    /// Another has its place or it was removed; `by` is the token of the one that has the place now, if one has.
    Lost { by: Option<Token> },
    /// Its lease ran out, or its key is being removed by force, and whoever is on the way to the key is not there yet.
    BeingTaken,
    /// The store was closed.
    Closed,
}

/// The store was closed, which is all that can refuse those who have no place to lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

impl From<Closed> for Fault {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl Table {
    pub(crate) fn new(clock: Arc<dyn Clock>, telemetry: Arc<Telemetry>) -> Self {
        let seed = hash_seed();
        let shard = || CachePadded::new(Mutex::new(Shard::new(seed.clone())));
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Self { shards, seed, clock, ended_by_hand: AtomicU64::new(0), telemetry }
    }

    /// The time, for statistics alone; models need not see that the clock is looked at.
    pub(super) fn now_to_count(&self) -> Option<Moment> {
        (!cfg!(any(loom, shuttle))).then(|| self.clock.now())
    }

    /// Tells a claim's holder that its place has ended, and whoever counts overruns: once each, without the lock.
    pub(super) fn tell_ended(&self, key: &[u8], held: &Held, cause: LossCause, now: Option<Moment>) {
        if let Some(loss) = &held.loss {
            loss.raise(cause);
        }
        if let Some(by) = now.and_then(|now| held.overrun(now)) {
            self.telemetry.lease_overrun(key, held.holder.token, held.holder.attempt, by);
        }
    }

    /// The key with its hash, and its shard, locked.
    pub(super) fn shard<'a>(&self, key: &'a [u8]) -> (Hashed<'a>, Guard<'_, Shard>) {
        let hash = self.seed.hash_one(key);
        // The bits between: the table inside goes by the lowest ones, and by the highest seven.
        let index = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        (Hashed { key, hash }, self.shards[index].lock())
    }

    /// Judges a claimant and, if the key is free, gives it the place in the same critical section, which ends an
    /// expired one (rule 11). Else a claimant that waits joins the queue, also in the same critical section, so
    /// that no wake-up falls between.
    pub(crate) fn admit(
        self: &Arc<Self>,
        key: &Arc<[u8]>,
        purpose: Purpose,
        waiting: Option<&Waiting<'_>>,
        looked: Option<Stamp>,
    ) -> Admitted {
        let now = self.clock.now();
        let (name, mut shard) = self.shard(key);
        if shard.closed {
            return Admitted::Closed;
        }
        let undisturbed = looked == Some(Stamp(shard.next_id));
        let id = shard.id();
        // One look-up for both outcomes: what is in flight has an entry, and what is free gets one.
        let entry = shard.entry(key, name.hash);
        let admission = if Break::CheckThenAct.is() {
            Admission::Free { ended: None } // the look of a moment ago is taken for granted
        } else {
            decide::admit(entry.view(), purpose, now)
        };
        match admission {
            Admission::Free { ended } => {
                let ended = ended.copied();
                let holder =
                    Holder { token: None, attempt: 0, stored: false, purpose, since: now, deadline: None };
                // One that can be taken was granted, so it has no former of its own.
                let former = entry.place.take().map(Box::new);
                entry.place = Some(Held { id, holder, loss: None, former });
                let never_granted = entry.never_granted();
                entry.set_never_granted(NeverGranted::default());
                let place = Place::new(self, key, id, never_granted);
                Admitted::Place { place, ended, undisturbed }
            }
            Admission::InFlight(holder) => {
                let busy = Busy::new(holder, now);
                let front = waiting.is_some_and(|waiting| entry.rest().waiters.join(&waiting.signal));
                Admitted::InFlight { busy, look_again: busy.deadline.filter(|_| front) }
            }
            Admission::Mismatched => Admitted::Mismatched,
        }
    }

    /// Keeps a settled record that was read after a look that found its key free, to be told again (rule 22). Nothing is
    /// kept if a place or a mark was given out in the shard since: the record may have been changed.
    pub(crate) fn keep(&self, key: &Arc<[u8]>, looked: Stamp, record: Record) {
        let (name, mut shard) = self.shard(key);
        let stands = looked == Stamp(shard.next_id) && shard.get(name).is_none();
        if !shard.closed && (stands || Break::RecentFilledLate.is()) {
            shard.recent.keep(key, name.hash, Arc::new(record));
        }
    }

    /// Puts a waiter in the queue if the key is in flight, and takes nothing if it is not.
    pub(crate) fn queue(&self, purpose: Purpose, waiting: &Waiting<'_>) -> Result<Queued, Closed> {
        let now = self.clock.now();
        let (name, mut shard) = self.shard(waiting.key);
        if shard.closed {
            return Err(Closed);
        }
        let Some(entry) = shard.get_mut(name) else { return Ok(Queued::Free) };
        match decide::admit(entry.view(), purpose, now) {
            Admission::Free { .. } | Admission::Mismatched => Ok(Queued::Free),
            Admission::InFlight(holder) => {
                let deadline = holder.deadline;
                let front = entry.rest().waiters.join(&waiting.signal);
                Ok(Queued::Waits { look_again: deadline.filter(|_| front) })
            }
        }
    }

    /// Forgets what was stored and never granted, now that the record with `token` is gone, if that is of it.
    pub(crate) fn forget_never_granted(&self, key: &[u8], token: Token) {
        let (name, mut shard) = self.shard(key);
        if let Some(entry) = shard.get_mut(name) {
            if entry.never_granted().has(token) {
                entry.set_never_granted(NeverGranted::default());
            }
            shard.tidy(name);
        }
    }

    /// Takes a waiter out of the queue and tells the next one that it is responsible now.
    pub(super) fn leave(&self, key: &[u8], signal: &Arc<Signal>) {
        let next = {
            let (name, mut shard) = self.shard(key);
            let entry = shard.get_mut(name).filter(|entry| entry.waiters().is_some());
            let next = entry.and_then(|entry| entry.rest().waiters.leave(signal));
            shard.tidy(name);
            next
        };
        if let Some(next) = next.filter(|_| !Break::WakeNotPassed.is()) {
            next.notify();
        }
    }

    /// Wakes everybody who waits for anything: to be told that a sync failed, or to sync what nobody else does.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            let woken: Vec<_> = {
                let shard = shard.lock();
                shard.entries().filter_map(Entry::waiters).flat_map(Queue::all).collect()
            };
            raise(woken);
        }
    }

    /// Ends every claim and refuses everything from now on. Whoever waits is woken and finds the table closed.
    pub(crate) fn close(&self) {
        if Break::CloseFencesNothing.is() {
            return;
        }
        let now = self.now_to_count();
        for shard in &self.shards {
            let entries = {
                let mut shard = shard.lock();
                shard.closed = true;
                shard.take()
            };
            for mut entry in entries {
                if let Some(mut held) = entry.place.take() {
                    let former = held.forget_former();
                    for held in [former.as_deref(), Some(&held)].into_iter().flatten() {
                        self.tell_ended(entry.key(), held, LossCause::Closed, now);
                    }
                }
                raise(entry.waiters().into_iter().flat_map(Queue::all));
            }
        }
    }

    /// Ends the lease of the claim `token` now, as if its time had come. Tells whether it had the key and its lease ran; a
    /// claim that is being settled is let be.
    pub(crate) fn end_lease(&self, key: &[u8], token: Token) -> Result<bool, Closed> {
        let now = self.clock.now();
        let (loss, front) = {
            let (name, mut shard) = self.shard(key);
            if shard.closed {
                return Err(Closed);
            }
            let entry = shard.get_mut(name).filter(|entry| entry.marks().is_empty());
            let Some(entry) = entry else { return Ok(false) };
            let held = entry.place.as_mut().filter(|held| held.holder.token == Some(token));
            let Some(held) = held else { return Ok(false) };
            if held.holder.deadline.is_none_or(|deadline| expired(now, deadline)) {
                return Ok(false);
            }
            held.holder.deadline = Some(now);
            // A renewal that has read the clock before this, and comes after it, is to read it again.
            self.ended_by_hand.fetch_add(1, Ordering::Release);
            (held.loss.clone(), entry.front())
        };
        if let Some(loss) = loss {
            loss.moved();
        }
        // The front waits for the deadline, which has come.
        raise(front);
        Ok(true)
    }

    /// The claim that has the key's place, if one has.
    pub(crate) fn holder(&self, key: &[u8]) -> Option<Holder> {
        self.standing(key).0
    }

    /// The claim that has the key's place, and how many wait for the key.
    pub(crate) fn standing(&self, key: &[u8]) -> (Option<Holder>, usize) {
        let (name, shard) = self.shard(key);
        let entry = shard.get(name);
        let holder = entry.and_then(|entry| entry.place.as_ref()).map(|held| held.holder);
        (holder, entry.and_then(Entry::waiters).map_or(0, Queue::len))
    }

    /// The keys that begin with `prefix` and whose place is taken by a claim that is live or on its way to be:
    /// counted from the entries themselves, so the cost is that of all live claims.
    pub(crate) fn live_keys(&self, prefix: &[u8]) -> Vec<Arc<[u8]>> {
        let now = self.clock.now();
        let mut live = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for entry in shard.entries() {
                let over = |held: &Held| held.holder.deadline.is_some_and(|deadline| expired(now, deadline));
                if entry.key().starts_with(prefix) && entry.place.as_ref().is_some_and(|held| !over(held)) {
                    live.push(Arc::clone(entry.key()));
                }
            }
        }
        live
    }
}

pub(super) fn raise(signals: impl IntoIterator<Item = Arc<Signal>>) {
    for signal in signals {
        signal.notify();
    }
}
