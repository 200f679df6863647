//! The table of legal transitions, as functions from a record to the next one.
//!
//! | from | event | to |
//! |---|---|---|
//! | absent, forgotten | claim | pending, attempt 1 |
//! | pending | reclaim | pending, new token, attempt + 1, checkpoint kept |
//! | pending | checkpoint | pending, same token |
//! | pending | interrupt | interrupted, same token |
//! | pending, interrupted | complete, fail, omit | settled |
//! | interrupted, pending of no live claim | resolve | settled by hand, absent |
//! | pending | release | absent |
//! | settled, interrupted, pending of no live claim | remove | absent |
//! | the same, its retention over | sweep | absent |
//!
//! Everything else is refused, by [`decide`](super::decide), which alone calls these.

use crate::clock::WallTime;
use crate::fingerprint::Fingerprint;
use crate::record::{EndedBy, Kept, Previous, Record, State, Terms};
use crate::token::Token;

/// What a new claim brings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewClaim<'a> {
    pub(crate) token: Token,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) terms: &'a Terms,
    pub(crate) wall: WallTime,
}

/// absent or forgotten → pending.
pub(crate) fn claim(new: NewClaim<'_>, attempt: u32, previous: Option<Previous>) -> Record {
    Record {
        token: new.token,
        attempt,
        fingerprint: new.fingerprint,
        terms: *new.terms,
        claimed_at: new.wall,
        state: State::Pending { previous, checkpoint: None },
    }
}

/// pending → pending under a new token. The fingerprint is the record's: it was set by the first claim.
pub(crate) fn reclaim(
    record: &Record,
    new: NewClaim<'_>,
    attempt: u32,
    previous: Option<Previous>,
) -> Record {
    let checkpoint = match &record.state {
        State::Pending { checkpoint, .. } | State::Interrupted { checkpoint, .. } => checkpoint.clone(),
        State::Settled { .. } => None,
    };
    Record {
        token: new.token,
        attempt,
        fingerprint: record.fingerprint,
        terms: *new.terms,
        claimed_at: new.wall,
        state: State::Pending { previous, checkpoint },
    }
}

/// pending → pending with newer progress.
pub(crate) fn checkpoint(record: &Record, progress: &[u8]) -> Record {
    let previous = match record.state {
        State::Pending { previous, .. } => previous,
        State::Interrupted { .. } | State::Settled { .. } => None,
    };
    Record { state: State::Pending { previous, checkpoint: Some(progress.to_vec()) }, ..record.clone() }
}

/// pending → interrupted. The token stays: its holder may still settle.
pub(crate) fn interrupt(record: &Record, ended_by: EndedBy) -> Record {
    let checkpoint = match &record.state {
        State::Pending { checkpoint, .. } | State::Interrupted { checkpoint, .. } => checkpoint.clone(),
        State::Settled { .. } => None,
    };
    Record { state: State::Interrupted { ended_by, checkpoint }, ..record.clone() }
}

/// pending or interrupted → settled.
pub(crate) fn settle(record: Record, result: Kept, at: WallTime, by_hand: bool) -> Record {
    Record { state: State::Settled { result, at, by_hand }, ..record }
}
