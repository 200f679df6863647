//! Taking a key: from its place in memory to the record that is swapped in and the claim that is granted.

use super::Inner;
use super::claim::{Step, interrupted, mismatched};
use super::engine::commit_one;
use super::guard::{Claim, Granted};
use super::index;
use super::marked::Marked;
use super::outcome::Outcome;
use super::request::Resolved;
use crate::backend::{self, Commit, Swap};
use crate::error::{Fault, StorageError};
use crate::key::Key;
use crate::lease::{Admitted, Place, Stamp, Waiting};
use crate::protocol::decide::{self, Verdict};
use crate::protocol::{Holder, Purpose};
use crate::record::{Durability, Record};
use crate::sync::{Break, Mutex};
use std::sync::Arc;

/// A record that a claimant with the key's place is about to swap in. Dropping it gives the place up.
pub(super) struct Write<'a> {
    place: Place,
    ended: Option<Holder>,
    seen: Option<Vec<u8>>,
    record: Record,
    bytes: Vec<u8>,
    /// The record's entry in the retention index.
    hint: Option<backend::Write>,
    /// The mark of an interruption, which others tell of as well (rule 5); `None` if this is a grant.
    interrupting: Option<Marked<'a>>,
}

/// What is to be told, once it is durable if it is stored. Dropping it gives the place up, and a record counts as never
/// granted.
pub(super) struct Ready {
    /// The place of the claim to be granted; `None` if the key became interrupted.
    place: Option<Place>,
    record: Record,
    /// As it is stored; `None` if the claim is kept in memory.
    stored: Option<Vec<u8>>,
}

/// What became of a write.
#[allow(clippy::large_enum_variant)] // it is taken apart at once; a box would be an allocation a claim
pub(super) enum Landed<'a> {
    /// It landed; told once a sync covers it, to which its mark goes.
    Swapped(Ready, Option<Marked<'a>>),
    /// Another record was there; this is what follows from that.
    Refused(Step<'a>),
}

impl<'a> Write<'a> {
    /// The swap of it, in the store's engine.
    pub(super) fn commit<'b>(&'b mut self, key: &'b Key) -> Commit<'b> {
        match &mut self.interrupting {
            Some(marked) => marked.begins(),
            // From here to the grant an error or a panic can leave a record that nobody was granted (rule 15).
            None => self.place.writing(self.record.token),
        }
        let swap = Commit::swap(key.encoded(), self.seen.as_deref(), Some(&self.bytes));
        Commit { hints: self.hint.as_slice(), ..swap }
    }

    /// What was there before, and what is there once this has landed.
    pub(super) fn undo(&self) -> (Option<Vec<u8>>, Vec<u8>) {
        (self.seen.clone(), self.bytes.clone())
    }

    /// Whether the key becomes interrupted by it, and is not granted.
    pub(super) fn is_interruption(&self) -> bool {
        self.interrupting.is_some()
    }
}

impl Ready {
    /// Whether it is stored, and so to be told once it is durable.
    pub(super) fn is_stored(&self) -> bool {
        self.stored.is_some()
    }

    /// Tells that the record was swapped back: what was there before is there again.
    pub(super) fn taken_back(&mut self) {
        if let Some(place) = &mut self.place {
            place.not_written();
        }
    }
}

impl Inner {
    /// Takes the key's place, or the claimant's place among those who wait for it.
    pub(super) fn enter<'a>(
        self: &'a Arc<Self>,
        request: &Resolved<'_>,
        waiting: Option<&Waiting<'_>>,
        seen: Option<(Option<Vec<u8>>, Stamp)>,
    ) -> Result<Step<'a>, Fault> {
        let key = &request.key;
        let looked = seen.as_ref().map(|(_, stamp)| *stamp);
        match self.table.admit(key.encoded(), Purpose::Work(request.fingerprint()), waiting, looked) {
            Admitted::Place { place, ended, undisturbed } => {
                // A swap finds out by itself whether what was seen still stands. A claim that is kept in memory
                // makes none, so it looks again unless nothing can have happened. So does one that has to tell whether
                // the record is that of a claim which was never granted: what was seen may be from before that.
                let swaps = request.terms.durability == Durability::Full && place.never_granted().is_none();
                let stands = undisturbed || swaps || Break::StaleLook.is();
                let seen = seen.map(|(bytes, _)| bytes).filter(|_| stands);
                self.check_new_work()?;
                self.check_room(request)?;
                let seen = match seen {
                    Some(seen) => seen,
                    None => self.engine.get()?.read(key.encoded())?,
                };
                self.decide(request, place, ended, seen)
            }
            Admitted::InFlight { busy, look_again } => {
                // While poisoned an unsynced key is unknown, and nobody who waits will be granted anything. What was
                // abandoned before it joined the queue is synced here; what is from then on wakes it.
                self.is_unsynced(key)?;
                if waiting.is_some() {
                    self.check_writable()?;
                }
                Ok(Step::InFlight(busy, look_again))
            }
            Admitted::Mismatched => Ok(Step::Answer(mismatched(key))),
            Admitted::Closed => Err(Fault::Closed),
        }
    }

    /// Refuses a claim over its scope's bound. Its own place is taken already and counts, so two that come at
    /// once can both be refused for the last room, and are never both let in.
    fn check_room(&self, request: &Resolved<'_>) -> Result<(), Fault> {
        let Some(limit) = request.max_live() else { return Ok(()) };
        let live = self.table.live_keys(request.key.encoded_scope()).len();
        if live > limit { Err(Fault::ScopeFull { limit }) } else { Ok(()) }
    }

    /// Decides with the place in hand. Whatever goes wrong, dropping the place leaves nothing behind (rule 10).
    fn decide<'a>(
        self: &'a Arc<Self>,
        request: &Resolved<'_>,
        mut place: Place,
        ended: Option<Holder>,
        seen: Option<Vec<u8>>,
    ) -> Result<Step<'a>, Fault> {
        let key = &request.key;
        if self.is_unsynced(key)? {
            return Ok(Step::Again);
        }
        let record = self.decode(key, seen.as_deref())?;
        let token = record.as_ref().map(|record| record.token);
        place.found(token);
        let never_granted = token.filter(|token| place.never_granted().has(*token));
        let ask = self.ask(request, ended, never_granted);
        let (new, interrupting) = match self.verdict(key, record.as_ref(), &ask)? {
            Verdict::Grant(grant) => {
                let token = self.draw_token()?;
                if Break::PlaceGivenUp.is() {
                    drop(place);
                    let purpose = Purpose::Work(request.fingerprint());
                    match self.table.admit(key.encoded(), purpose, None, None) {
                        Admitted::Place { place: again, .. } => place = again,
                        _ => return Ok(Step::Again),
                    }
                }
                let new = decide::grant(record.as_ref(), grant, token, &ask)?;
                if !grant.durable {
                    return Ok(Step::Ready(Box::new(Ready {
                        place: Some(place),
                        record: new,
                        stored: None,
                    })));
                }
                (new, None)
            }
            Verdict::Interrupt(ended_by) => {
                let Some(record) = &record else { return Ok(Step::Again) };
                let holder = Holder { purpose: Purpose::Work(request.fingerprint()), ..self.upkeep() };
                let marked = self.mark_without_place(key, holder)?;
                (decide::interrupted(record, ended_by), Some(marked.planned()))
            }
            verdict => {
                drop(place);
                return self.tell(key, verdict, record);
            }
        };
        let hint = index::hint(key, record.as_ref(), Some(&new));
        let bytes = new.encode();
        let write = Write { place, ended, seen, record: new, bytes, hint, interrupting };
        Ok(Step::Write(Box::new(write)))
    }

    /// Swaps the record in.
    pub(super) fn write<'a>(
        self: &'a Arc<Self>,
        request: &Resolved<'_>,
        mut write: Write<'a>,
    ) -> Result<Landed<'a>, Fault> {
        let engine = self.engine.get()?;
        let swap = commit_one(&*engine, &write.commit(request.key));
        drop(engine);
        self.landed(request, write, swap)
    }

    /// Goes by what became of the swap.
    pub(super) fn landed<'a>(
        self: &'a Arc<Self>,
        request: &Resolved<'_>,
        mut write: Write<'a>,
        swap: Result<Swap, StorageError>,
    ) -> Result<Landed<'a>, Fault> {
        match swap {
            Ok(Swap::Done) => {}
            Ok(Swap::Refused { current }) => {
                write.place.not_written();
                if let Some(marked) = write.interrupting {
                    marked.clear();
                }
                let step = self.decide(request, write.place, write.ended, current)?;
                return Ok(Landed::Refused(step));
            }
            // Its fate is unknown: look (P9). If it did not land, the error is told and nothing is held.
            Err(error) => {
                let found = self.engine.get().and_then(|engine| Ok(engine.read(request.key.encoded())?));
                match found {
                    Ok(found) if found.as_ref() == Some(&write.bytes) || Break::ErrorGrants.is() => {}
                    Ok(_) => {
                        write.place.not_written();
                        return Err(error.into());
                    }
                    Err(_) => return Err(error.into()),
                }
            }
        }
        let Write { place, record, bytes, interrupting, .. } = write;
        let place = interrupting.is_none().then_some(place);
        Ok(Landed::Swapped(Ready { place, record, stored: Some(bytes) }, interrupting))
    }

    /// Tells what is ready; what is stored, after the sync that has made it durable.
    pub(super) fn finish(self: &Arc<Self>, request: &Resolved<'_>, ready: Ready) -> Result<Outcome, Fault> {
        let Ready { place, record, stored } = ready;
        match place {
            Some(place) => self.granted(request, place, record, stored),
            None => Ok(interrupted(record).expect("only an interruption is ready without a place")),
        }
    }

    /// The lease starts now, when the grant is told (rule 15).
    fn granted(
        self: &Arc<Self>,
        request: &Resolved<'_>,
        mut place: Place,
        record: Record,
        stored: Option<Vec<u8>>,
    ) -> Result<Outcome, Fault> {
        let (token, attempt, lease) = (record.token, record.attempt, request.terms.lease);
        let since = place.grant(token, attempt, stored.is_some(), lease)?;
        Ok(Outcome::Granted(Claim(Box::new(Granted {
            store: Arc::clone(self),
            key: request.key.clone(),
            record,
            since,
            stored,
            place: Some(place),
            tried: None,
            unclear: false,
            renewal: Mutex::default(),
        }))))
    }

    /// What memory says of a write that is no claim's own.
    pub(super) fn upkeep(&self) -> Holder {
        let since = self.clock.now();
        Holder { token: None, attempt: 0, stored: false, purpose: Purpose::Upkeep, since, deadline: None }
    }
}
