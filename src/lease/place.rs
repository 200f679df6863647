//! The guard of a key's place.

use super::entry::{Held, NeverGranted};
use super::loss::{Loss, LossCause};
use super::table::{Closed, Refusal, Table, raise};
use crate::clock::{Moment, expired};
use crate::key::KeyLabel;
use crate::protocol::{Holder, Purpose};
use crate::sync::{Break, Ordering};
use crate::token::Token;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The right to a key. Dropping it, also by unwinding, ends it and wakes the next; it does no I/O.
#[derive(Debug)]
pub(crate) struct Place {
    name: PlaceName,
    /// Given back to the entry when this place ends without a grant.
    never_granted: NeverGranted,
    /// From the grant on: tells why this ended, also once the table has forgotten it.
    loss: Option<Arc<Loss>>,
}

/// Names a place without keeping it: it may end at any time.
#[derive(Clone)]
pub(crate) struct PlaceName {
    table: Arc<Table>,
    key: Arc<[u8]>,
    id: u64,
}

impl fmt::Debug for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaceName")
            .field("key", &KeyLabel::of(&self.key))
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// The place that `table` has just given out under `id`.
    pub(super) fn new(table: &Arc<Table>, key: &Arc<[u8]>, id: u64, never_granted: NeverGranted) -> Self {
        let name = PlaceName { table: Arc::clone(table), key: Arc::clone(key), id };
        Self { name, never_granted, loss: None }
    }

    pub(super) fn id(&self) -> u64 {
        self.name.id
    }

    /// Its name, for those who look after it from elsewhere.
    pub(crate) fn name(&self) -> &PlaceName {
        &self.name
    }

    /// What is raised when this claim's place ends, whoever ends it.
    pub(crate) fn loss(&self) -> Arc<Loss> {
        self.loss.clone().unwrap_or_default() // nothing is told before the grant
    }

    /// What may be stored and was never granted: taking it over costs no attempt.
    pub(crate) fn never_granted(&self) -> NeverGranted {
        self.never_granted
    }

    /// Tells what is there: the record with this token, or none.
    pub(crate) fn found(&mut self, token: Option<Token>) {
        let there = token.filter(|token| self.never_granted.has(*token));
        self.never_granted = NeverGranted { there, written: None };
    }

    /// Tells that a record with this token is about to be written, which counts as never granted until it is.
    pub(crate) fn writing(&mut self, token: Token) {
        self.never_granted.written = Some(token);
    }

    /// Tells that it was not written, or was taken back: what was there is there.
    pub(crate) fn not_written(&mut self) {
        self.never_granted.written = None;
    }

    /// Makes this the place of the claim with `token`, whose lease starts now (rule 15), and gives the time. The
    /// clock is read for that and no more, so a pause before it costs nothing of the lease. `stored` says whether the
    /// claim is.
    pub(crate) fn grant(
        &mut self,
        token: Token,
        attempt: u32,
        stored: bool,
        lease: Duration,
    ) -> Result<Moment, Closed> {
        let (mut former, mut since) = (None, Moment::ORIGIN);
        let loss = Arc::new(Loss::default());
        let changed = self.name.change(|held, now| {
            held.loss = Some(Arc::clone(&loss));
            let start = if Break::LeaseFromTake.is() { held.holder.since } else { now };
            let (token, deadline) = (Some(token), Some(start.after(lease)));
            held.holder = Holder { token, attempt, stored, since: now, deadline, ..held.holder };
            former = held.forget_former();
            since = now;
            Ok(())
        });
        changed.map_err(|_| Closed)?; // nobody takes a place that is being taken

        if let Some(former) = former {
            self.name.table.tell_ended(&self.name.key, &former, LossCause::TakenOver, Some(since));
        }
        self.never_granted = NeverGranted::default();
        self.loss = Some(loss);
        Ok(since)
    }

    /// Tells that the record was changed, or that there is none: the claim that had the place before is fenced.
    pub(crate) fn fence_former(&self) {
        let mut lost = None;
        // Refused, there is none any more.
        let _ = self.name.change(|held, now| {
            lost = held.forget_former().map(|former| (former, now));
            Ok(())
        });
        if let Some((former, now)) = lost {
            self.name.table.tell_ended(&self.name.key, &former, LossCause::Removed, Some(now));
        }
    }
}

impl PlaceName {
    /// Gives the claim a new deadline, `lease` from now and at most `until`, unless the old one has passed.
    pub(crate) fn renew(&self, lease: Duration, until: Option<Moment>) -> Result<Moment, Refusal> {
        loop {
            let ended_by_hand = self.table.ended_by_hand.load(Ordering::Acquire);
            let (mut renewed, mut loss) = (None, None);
            self.change(|held, now| {
                let former = held.holder.deadline;
                if former.is_some_and(|former| expired(now, former)) {
                    return Err(Refusal::Expired);
                }
                // The time is from before the lock: a lease that was ended since may look as if it still ran.
                if self.table.ended_by_hand.load(Ordering::Acquire) != ended_by_hand {
                    return Ok(());
                }
                let deadline = now.after(lease);
                let deadline = until.map_or(deadline, |until| until.min(deadline));
                held.holder.deadline = Some(deadline);
                renewed = Some(deadline);
                // Of a later end they hear when they look at the former.
                loss = held.loss.clone().filter(|_| former.is_none_or(|former| deadline < former));
                Ok(())
            })?;
            if let Some(loss) = loss {
                loss.moved();
            }
            if let Some(deadline) = renewed {
                return Ok(deadline);
            }
        }
    }

    /// When the lease ends or has ended, while nobody else was granted the key.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let (name, shard) = self.table.shard(&self.key);
        shard.get(name)?.held(self.id)?.holder.deadline
    }

    fn change(&self, change: impl FnOnce(&mut Held, Moment) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let now = self.table.clock.now();
        let front = {
            let (name, mut shard) = self.table.shard(&self.key);
            if shard.closed {
                return Err(Refusal::Closed);
            }
            let Some(entry) = shard.get_mut(name) else { return Err(Refusal::Lost { by: None }) };
            match &mut entry.place {
                Some(held) if held.id == self.id => change(held, now)?,
                Some(Held { former: Some(former), .. })
                    if Break::RenewsFormer.is() && former.id == self.id =>
                {
                    former.holder.deadline = None;
                    change(former, now)?;
                }
                // Until its record is gone, a claim that is being removed by force is as live as before.
                Some(Held { holder, former: Some(former), .. })
                    if holder.purpose == Purpose::Force && former.id == self.id =>
                {
                    change(former, now)?;
                }
                // Another is on its way to the key, and not there yet.
                Some(held) if held.former.as_ref().is_some_and(|former| former.id == self.id) => {
                    return Err(Refusal::Expired);
                }
                other => {
                    let by = other.as_ref().and_then(|held| held.holder.token);
                    return Err(Refusal::Lost { by });
                }
            }
            entry.front()
        };
        // The front waits for the deadline, which has changed.
        raise(front);
        Ok(())
    }
}

impl Place {
    /// Whether nobody else has the key's place, or is on the way to it.
    pub(crate) fn is_current(&self) -> bool {
        let PlaceName { table, key, id } = &self.name;
        let (name, shard) = table.shard(key);
        shard.get(name).is_some_and(|entry| entry.has_place(*id))
    }

    /// Ends it, or tells why it was not its holder's any more.
    pub(crate) fn end(self) -> Result<(), Refusal> {
        self.leave()
        // Dropping it finds nothing left to end.
    }

    fn leave(&self) -> Result<(), Refusal> {
        let PlaceName { table, key, id } = &self.name;
        let now = table.now_to_count();
        let (held, front, ended) = {
            let (name, mut shard) = table.shard(key);
            if shard.closed {
                return Err(Refusal::Closed);
            }
            let Some(entry) = shard.get_mut(name) else { return Err(Refusal::Lost { by: None }) };
            let Some(current) = &mut entry.place else { return Err(Refusal::Lost { by: None }) };
            let (held, front, ended) = if current.id == *id || Break::EndsAnothers.is() {
                let mut held = entry.place.take();
                entry.place = held.as_mut().and_then(|held| held.former.take()).map(|former| *former);
                entry.set_never_granted(self.never_granted);
                (held, entry.front(), Ok(()))
            } else {
                // Another is on its way to the key, and was to give the place back. If it is a claim, it goes by this
                // one as the attempt before (rule 11).
                let lost = Refusal::Lost { by: current.holder.token };
                let claimed = matches!(current.holder.purpose, Purpose::Work(_));
                let former = current.former.take_if(|former| former.id == *id).map(|former| *former);
                (Some(former.ok_or(lost)?), None, if claimed { Err(lost) } else { Ok(()) })
            };
            shard.tidy(name);
            (held, front, ended)
        };
        raise(front.filter(|_| !Break::EndWakesNobody.is()));
        if let Some(held) = held {
            table.tell_ended(key, &held, LossCause::Ended, now);
        }
        ended
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if Break::PlaceLeft.is() && self.loss.is_none() {
            return;
        }
        // Whoever drops it has no use for the answer.
        let _ = self.leave();
    }
}
