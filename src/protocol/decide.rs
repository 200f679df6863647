//! Given what was seen, the step to take.

use super::transition::{self, NewClaim};
use super::{Holder, KeyView, Opening, Purpose};
use crate::clock::{Moment, WallTime, expired};
use crate::error::Damage;
use crate::fingerprint::Fingerprint;
use crate::record::{Durability, EndedBy, Kept, OnInterrupt, Previous, Record, State, Terms};
use crate::sync::Break;
use crate::token::Token;

/// What memory alone says to a claimant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Admission<'a> {
    /// The key can be taken.
    Free {
        /// The claim whose place is taken with it, if one has that: its lease ran out, or it is to be removed by force.
        ended: Option<&'a Holder>,
    },
    /// A live claim, or a settle that is not durable yet, has the key.
    InFlight(&'a Holder),
    /// The key is in flight for something else.
    Mismatched,
}

/// Judges a claim by what memory knows. Mismatch comes before busy (rule 16), a mark before the place.
pub fn admit(view: KeyView<'_>, purpose: Purpose, now: Moment) -> Admission<'_> {
    let live = match (view.unsynced, view.place) {
        (Some(unsynced), _) => unsynced,
        (None, Some(place))
            if place.deadline.is_some_and(|deadline| expired(now, deadline) || Break::EarlyTakeover.is()) =>
        {
            return Admission::Free { ended: Some(place) };
        }
        (None, Some(place)) if Break::TakingExpires.is() && place.deadline.is_none() => {
            return Admission::Free { ended: None };
        }
        (None, Some(_)) if Break::RemovesLive.is() && purpose == Purpose::Upkeep => {
            return Admission::Free { ended: None };
        }
        // One that is only taking the key holds nothing yet, and is done in a moment.
        (None, Some(place)) if purpose == Purpose::Force && place.deadline.is_some() => {
            return Admission::Free { ended: Some(place) };
        }
        (None, Some(place)) => place,
        (None, None) => return Admission::Free { ended: None },
    };
    match (live.purpose, purpose) {
        (Purpose::Work(at), Purpose::Work(asked))
            if at != asked && !(Break::BusyBeforeMismatch.is() && live.deadline.is_none()) =>
        {
            Admission::Mismatched
        }
        _ => Admission::InFlight(live),
    }
}

/// What a claimant asks for, and what it knows besides the record.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// What the work is.
    pub fingerprint: Option<Fingerprint>,
    /// On what terms.
    pub terms: &'a Terms,
    /// The wall-clock time.
    pub wall: WallTime,
    /// The tokens of this opening.
    pub opening: Opening,
    /// The claim whose expired place this claimant has taken.
    pub ended: Option<Holder>,
    /// A pending record's token that was never granted, which therefore costs no attempt (rule 15).
    pub never_granted: Option<Token>,
}

/// What the record says to a claimant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The key can be granted: [`grant`] builds the record for it.
    Grant(Grant),
    /// The key is settled; tell what is stored, once that is durable.
    Settled,
    /// The key is interrupted.
    Interrupted,
    /// The key becomes interrupted: store [`interrupted`].
    Interrupt(EndedBy),
    /// The key was used for something else.
    Mismatched,
}

/// How a key is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Which attempt it will be.
    pub attempt: u32,
    /// The attempt before.
    pub previous: Option<Previous>,
    /// Whether the claim is stored before it is granted.
    pub durable: bool,
    /// Whether a pending record is taken over, as opposed to none being there.
    reclaim: bool,
    /// The token that the new one must exceed.
    above: Option<Token>,
}

/// Refuses a record whose token this store has not handed out (rule 8).
///
/// # Errors
/// [`Damage`] if its token is not below `ceiling`.
pub fn check_token(record: &Record, ceiling: Token) -> Result<(), Damage> {
    let token = record.token;
    if token < ceiling { Ok(()) } else { Err(Damage::TokenAboveCeiling { token, ceiling }) }
}

/// Judges a claim by the record. The claimant has, or is about to take, the key's place.
///
/// # Errors
/// [`Damage`] if the record has a token that was not handed out.
pub fn claim(record: Option<&Record>, ask: &Ask<'_>) -> Result<Verdict, Damage> {
    let Some(record) = record else { return Ok(first_attempt(None, ask)) };
    check_token(record, ask.opening.ceiling)?;
    if is_forgotten(record, ask.wall) {
        return Ok(first_attempt(Some(record.token), ask));
    }
    if record.fingerprint != ask.fingerprint && !Break::NoFingerprintCheck.is() {
        return Ok(Verdict::Mismatched);
    }
    Ok(match &record.state {
        State::Settled { .. } => Verdict::Settled,
        State::Interrupted { .. } => Verdict::Interrupted,
        State::Pending { previous, .. } => pending(record, *previous, ask),
    })
}

/// Whether the record's retention is over. It reads as absent then.
#[must_use]
pub fn is_forgotten(record: &Record, wall: WallTime) -> bool {
    record.forgotten_at().is_some_and(|end| expired(wall, end))
}

fn first_attempt(above: Option<Token>, ask: &Ask<'_>) -> Verdict {
    // A claim in memory whose lease ran out leaves no record; its place is what is known of it. One for other work
    // says nothing about this. One that was stored and has no record was released, removed or forgotten.
    let ended = ask.ended.filter(|holder| holder.purpose == Purpose::Work(ask.fingerprint) && !holder.stored);
    let ended = ended.and_then(|holder| holder.token.map(|token| (holder.attempt, token)));
    let previous = ended.map(|(_, token)| Previous { token, ended_by: EndedBy::LeaseOver });
    Verdict::Grant(Grant {
        attempt: ended.map_or(1, |(attempt, _)| attempt.saturating_add(1)),
        previous,
        durable: ask.terms.durability == Durability::Full,
        reclaim: false,
        above,
    })
}

fn pending(record: &Record, previous: Option<Previous>, ask: &Ask<'_>) -> Verdict {
    let grant = |attempt, previous| {
        Verdict::Grant(Grant { attempt, previous, durable: true, reclaim: true, above: Some(record.token) })
    };
    if ask.never_granted == Some(record.token) && !Break::NeverGrantedCounts.is() {
        return grant(record.attempt, previous);
    }
    let ended_by = if record.token < ask.opening.first {
        EndedBy::Reopened
    } else if ask.ended.is_some_and(|holder| holder.token == Some(record.token)) {
        EndedBy::LeaseOver
    } else {
        EndedBy::Dropped
    };
    // By the record's policy as well as the request's (rule 18).
    let by_record = is_last(record, &record.terms) && !Break::RecordsTermsIgnored.is();
    if by_record || is_last(record, ask.terms) {
        return Verdict::Interrupt(ended_by);
    }
    grant(record.attempt.saturating_add(1), Some(Previous { token: record.token, ended_by }))
}

/// Whether, by `terms`, nobody is granted the key after the attempt that `record` is pending for.
#[must_use]
pub fn is_last(record: &Record, terms: &Terms) -> bool {
    terms.on_interrupt == OnInterrupt::Quarantine
        || terms.max_attempts.is_some_and(|cap| record.attempt >= cap)
}

/// The record of a granted claim.
///
/// # Errors
/// [`Damage`] if `token` is not above the record's (rule 13): then the store's token counter is behind it.
pub fn grant(record: Option<&Record>, grant: Grant, token: Token, ask: &Ask<'_>) -> Result<Record, Damage> {
    if let Some(above) = grant.above
        && token <= above
    {
        return Err(Damage::TokenNotDrawn { token: above, drawn: token });
    }
    let new = NewClaim { token, fingerprint: ask.fingerprint, terms: ask.terms, wall: ask.wall };
    Ok(match record {
        Some(record) if grant.reclaim => transition::reclaim(record, new, grant.attempt, grant.previous),
        _ => transition::claim(new, grant.attempt, grant.previous),
    })
}

/// The record of a key whose holder ended and which nobody may rerun unasked.
#[must_use]
pub fn interrupted(record: &Record, ended_by: EndedBy) -> Record {
    transition::interrupt(record, ended_by)
}

/// Whether the release of a claim on these terms is told only after its sync (rule 5): else a crash would bring
/// the pending record back, and with it an interruption that never was.
#[must_use]
pub fn release_is_synced(terms: &Terms) -> bool {
    let kept = terms.on_interrupt == OnInterrupt::Quarantine || terms.max_attempts.is_some();
    kept && !Break::ReleaseUnsynced.is()
}

/// What the record says to a holder that settles.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Settling {
    /// Swap the record for this one; `None` for none.
    Swap(Option<Record>),
    /// It already stands as asked; make sure that it is durable and tell.
    Confirmed,
    /// The key is settled under this claim's token, and not as asked: by this claim, or by hand.
    SettledOtherwise {
        /// Whether somebody resolved it in the holder's stead.
        by_hand: bool,
    },
    /// The key became interrupted, and this is not for a pending one.
    Interrupted,
    /// The claim is no longer current: `by` is the token that is, or `None` if the record is gone.
    Lost {
        /// The current token.
        by: Option<Token>,
    },
}

/// Judges `held`'s wish to settle its key with `result`. `held` is the pending record of the claim, stored if the
/// claim is durable, and `place_is_mine` what the lease table said when the unsynced mark was put.
pub fn settle(
    record: Option<&Record>,
    held: &Record,
    durable: bool,
    place_is_mine: bool,
    result: &Kept,
    wall: WallTime,
) -> Settling {
    let settled = || Settling::Swap(Some(transition::settle(held.clone(), result.clone(), wall, false)));
    match record {
        Some(record) if record.token == held.token || Break::NoTokenCheck.is() => match &record.state {
            State::Pending { .. } | State::Interrupted { .. } => {
                Settling::Swap(Some(transition::settle(record.clone(), result.clone(), wall, false)))
            }
            State::Settled { .. } if Break::ReplacesSettled.is() => settled(),
            // What was stored by hand is not this claim's, though it be the same: its effects are not there.
            State::Settled { result: stored, by_hand: false, .. } if stored == result => Settling::Confirmed,
            State::Settled { by_hand, .. } => Settling::SettledOtherwise { by_hand: *by_hand },
        },
        // A claim in memory: nothing may have come in between but forgetting.
        None if !durable && place_is_mine => settled(),
        // It was granted over a settled record that was forgotten then; a clock set back brings none to life.
        Some(Record { token, state: State::Settled { .. }, .. })
            if !durable && place_is_mine && *token < held.token =>
        {
            settled()
        }
        other => Settling::Lost { by: other.map(|record| record.token) },
    }
}

/// Judges `token`'s wish to release its key.
pub fn release(record: Option<&Record>, token: Token) -> Settling {
    while_pending(record, token, |_| None)
}

/// Judges `token`'s wish to save progress in its pending record.
pub fn checkpoint(record: Option<&Record>, token: Token, progress: &[u8]) -> Settling {
    while_pending(record, token, |record| Some(transition::checkpoint(record, progress)))
}

/// Judges `token`'s wish to swap its record, while that is pending, for what `next` makes of it (rule 17).
fn while_pending(
    record: Option<&Record>,
    token: Token,
    next: impl FnOnce(&Record) -> Option<Record>,
) -> Settling {
    match record {
        Some(record) if record.token == token => match &record.state {
            State::Pending { .. } => Settling::Swap(next(record)),
            State::Interrupted { .. } => Settling::Interrupted,
            State::Settled { by_hand, .. } => Settling::SettledOtherwise { by_hand: *by_hand },
        },
        other => Settling::Lost { by: other.map(|record| record.token) },
    }
}

/// What the record says to somebody who wants it gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// Swap it for nothing.
    Swap,
    /// There is none, or it is forgotten, which reads the same whether or not a sweep has come by.
    Absent,
}

/// Judges a removal. The caller holds the key's place, so no live claim has it (rule 19).
pub fn remove(record: Option<&Record>, wall: WallTime) -> Removal {
    if record.is_some_and(|record| !is_forgotten(record, wall)) { Removal::Swap } else { Removal::Absent }
}

/// What becomes of an entry of the retention index that is due, and of the record that it points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sweeping {
    /// Delete the record by swap, then the entry.
    Delete,
    /// The record is to be looked at later: put an entry there, then delete this one.
    Later(WallTime),
    /// The entry stands for nothing: delete it, if no write of its token can be under way.
    Stale,
}

/// Judges the record that an entry with `token` points to. `busy_until` says until when a claim has the key, if one
/// does: what it may have been granted over is not swept under it.
pub fn sweep(
    record: Option<&Record>,
    token: Token,
    wall: WallTime,
    busy_until: Option<WallTime>,
) -> Sweeping {
    let record = record.filter(|record| record.token == token);
    let Some(end) = record.and_then(Record::kept_until) else { return Sweeping::Stale };
    if let Some(busy) = busy_until {
        return Sweeping::Later(end.max(busy));
    }
    // Whoever asks for it is to be told that it was interrupted, so it is not forgotten before somebody did.
    let untold =
        |record: &&Record| matches!(record.state, State::Pending { .. }) && is_last(record, &record.terms);
    match record.filter(untold) {
        _ if !expired(wall, end) => Sweeping::Later(end),
        Some(record) => Sweeping::Later(wall.after(record.terms.retention)),
        None => Sweeping::Delete,
    }
}

/// Judges a settling by hand of the case that `token` names (rule 19): `None` to leave the record as it is, else what to
/// swap it for. The caller holds the key's place, so that the holder of a pending record has ended.
#[must_use]
pub fn resolve(
    record: Option<&Record>,
    token: Token,
    resolution: Option<Kept>,
    wall: WallTime,
) -> Option<Option<Record>> {
    let named = record.filter(|record| record.token == token || Break::ResolvesAny.is());
    let record = named.filter(|record| !matches!(record.state, State::Settled { .. }))?;
    Some(resolution.map(|result| transition::settle(record.clone(), result, wall, true)))
}
