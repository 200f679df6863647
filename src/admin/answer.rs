//! What is answered: the shapes that scripts read.
//!
//! Fields may be added; those there are keep their names and meanings. Tokens are text, so that no reader rounds them.

use super::command::to_hex;
use crate::clock::WallTime;
use crate::error::Fault;
use crate::key::Key;
use crate::record::{EndedBy, Omission, OnInterrupt};
use crate::store::{Copied, Inspection, KeyState, Known, Next};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// One line of an answer. A [`Key`](Self::Key) has others behind it; each of the rest is the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// One of the keys of a listing.
    Key(Box<KeyTold>),
    /// The end of a listing.
    Listed {
        /// How many keys were told.
        keys: u64,
        /// How many of them cannot be read.
        damaged: u64,
        /// Whether there are more, beyond the limit.
        more: bool,
    },
    /// Everything about one key.
    Inspected(Box<KeyTold>),
    /// What a store has done and holds.
    Stats {
        /// Since it was opened, by name; `None` of one that was opened for this.
        opening: Option<Map<String, Value>>,
        /// What is stored, if it was counted.
        stored: Option<Stored>,
    },
    /// A key was changed, durably.
    Changed {
        /// How.
        did: Did,
        /// As it was before.
        before: Box<KeyTold>,
    },
    /// The store was copied.
    BackedUp {
        /// Records of claims.
        records: u64,
        /// Plain values.
        values: u64,
        /// Results left out, since their retention is over.
        forgotten: u64,
        /// What could not be read, and was copied as it is.
        unreadable: u64,
    },
    /// It was not done.
    Refused {
        /// Why, for programs.
        code: Code,
        /// Why, and what to do, for people.
        message: String,
    },
}

impl Answer {
    pub(super) fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into() }
    }

    pub(super) fn backed_up(copied: &Copied) -> Self {
        let Copied { records, values, forgotten, unreadable } = *copied;
        Self::BackedUp { records, values, forgotten, unreadable }
    }

    /// Whether nothing comes behind it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Key(_))
    }
}

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// What was asked makes no sense.
    Invalid,
    /// There is no such key.
    NoSuchKey,
    /// The key's state does not allow it.
    State,
    /// What is stored is damaged.
    Damaged,
    /// The store failed.
    Failed,
    /// The request has a version that is not spoken here.
    Version,
    /// Too many ask at once.
    Busy,
}

impl Code {
    pub(super) fn of(fault: &Fault) -> Self {
        if fault.is_damage() { Self::Damaged } else { Self::Failed }
    }
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Did {
    /// It is free: its work can run again, as a first attempt.
    Released,
    /// Its lease was ended, and another has taken the key over, as the next attempt.
    TakenOver,
    /// It is settled as completed.
    Completed,
    /// It is settled as failed.
    Failed,
    /// It is settled, with no result kept.
    Omitted,
}

impl Did {
    /// In a word or two.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::TakenOver => "lease ended, taken over by another",
            Self::Completed => "completed by hand",
            Self::Failed => "failed by hand",
            Self::Omitted => "omitted by hand",
        }
    }
}

/// How many records are stored in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stored {
    /// Claimed and not settled.
    pub pending: u64,
    /// Of these, claims whose holder has ended.
    pub ended: u64,
    /// Interrupted.
    pub interrupted: u64,
    /// Settled and remembered.
    pub settled: u64,
    /// Unreadable.
    pub damaged: u64,
}

/// What is told of a key. What does not apply is null.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyTold {
    /// Stands for the key, in this process.
    pub key: String,
    /// The scope, if keys are shown and it is printable text.
    pub scope: Option<String>,
    /// The name, if keys are shown and it is printable text.
    pub name: Option<String>,
    /// The scope in hex, if keys are shown.
    pub scope_hex: Option<String>,
    /// The name in hex, if keys are shown.
    pub name_hex: Option<String>,
    /// `absent`, `in_memory`, `pending`, `settling`, `interrupted`, `settled`, `damaged`, or `unknown` after a failed sync.
    pub state: String,
    /// Of a claim that is not settled: `live`, `overdue` (its lease has run out) or `ended` (with its opening, or dropped).
    pub holder: Option<String>,
    /// The token of the claim that has the key, had it last, or settled it.
    pub token: Option<String>,
    /// Which attempt that is.
    pub attempt: u32,
    /// For how long the key has been in its state.
    pub for_ms: Option<u64>,
    /// The rest of the holder's lease; 0 once it has run out.
    pub lease_left_ms: Option<u64>,
    /// How many callers wait for it.
    pub waiters: u64,
    /// When the stored claim was made, in UTC.
    pub claimed_at: Option<String>,
    /// When it was settled.
    pub settled_at: Option<String>,
    /// When it is forgotten.
    pub forgotten_at: Option<String>,
    /// What is kept: `completed`, `failed` or `omitted`.
    pub result: Option<String>,
    /// How many bytes of that.
    pub result_bytes: Option<u64>,
    /// Why it is not kept: `too_large`, `not_encodable` or `on_purpose`.
    pub omitted: Option<String>,
    /// Whether it was settled by hand.
    pub by_hand: bool,
    /// How the holder of an interrupted key ended: `lease_over`, `dropped` or `reopened`.
    pub ended_by: Option<String>,
    /// How many bytes the last checkpoint has.
    pub checkpoint_bytes: Option<u64>,
    /// What becomes of it if its holder ends without settling: `rerun` or `quarantine`.
    pub on_interrupt: Option<String>,
    /// After how many attempts it becomes interrupted.
    pub max_attempts: Option<u32>,
    /// What a claim for the same work would be told now: `granted`, `in_flight`, `interrupted`, `settled` or `error`.
    pub next_claim: String,
    /// What is wrong with a damaged record.
    pub error: Option<String>,
}

impl KeyTold {
    fn named(key: &Key, show: bool) -> Self {
        let shown = |bytes: &[u8]| show.then(|| to_hex(bytes));
        Self {
            key: key.label().to_string(),
            scope: printable(key.scope()).filter(|_| show),
            name: printable(key.name()).filter(|_| show),
            scope_hex: shown(key.scope()),
            name_hex: shown(key.name()),
            ..Self::default()
        }
    }

    pub(super) fn is(&self, wanted: KeyState) -> bool {
        self.state == state(wanted)
    }

    /// Whether a claim has it whose lease runs, or it is on its way to one.
    pub(super) fn is_live(&self) -> bool {
        self.next_claim == next_claim(Next::InFlight)
    }

    /// A key of which nothing but `fault` can be told.
    pub(super) fn unreadable(key: &Key, fault: &Fault, show: bool) -> Box<Self> {
        let state = if matches!(fault, Fault::Damaged(_)) { "damaged" } else { "unknown" };
        Box::new(Self {
            state: state.to_owned(),
            next_claim: "error".to_owned(),
            error: Some(fault.to_string()),
            ..Self::named(key, show)
        })
    }

    pub(super) fn of(key: &Key, told: &Inspection, show: bool) -> Box<Self> {
        let holder = match told.state {
            KeyState::InMemory | KeyState::Pending => Some(match told.remaining {
                None if told.next == Next::InFlight => "live", // it is on its way to the key
                None => "ended",
                Some(Duration::ZERO) => "overdue",
                Some(_) => "live",
            }),
            _ => None,
        };
        let (result, bytes, omitted) = match told.result {
            Some(Known::Completed { length }) => (Some("completed"), Some(length as u64), None),
            Some(Known::Failed { length }) => (Some("failed"), Some(length as u64), None),
            Some(Known::Omitted(reason)) => (Some("omitted"), None, Some(omission(reason))),
            None => (None, None, None),
        };
        let text = |text: &str| text.to_owned();
        Box::new(Self {
            state: text(state(told.state)),
            holder: holder.map(text),
            token: told.token.map(|token| token.to_string()),
            attempt: told.attempt,
            for_ms: told.since.or(told.age).map(millis),
            lease_left_ms: told.remaining.map(millis),
            waiters: told.waiters as u64,
            claimed_at: told.claimed_at.map(time),
            settled_at: told.settled_at.map(time),
            forgotten_at: told.forgotten_at.map(time),
            result: result.map(text),
            result_bytes: bytes,
            omitted: omitted.map(text),
            by_hand: told.by_hand,
            ended_by: told.ended_by.map(|by| text(ended_by(by))),
            checkpoint_bytes: told.checkpoint.map(|bytes| bytes as u64),
            on_interrupt: told.terms.map(|terms| text(on_interrupt(terms.on_interrupt))),
            max_attempts: told.terms.and_then(|terms| terms.max_attempts),
            next_claim: text(next_claim(told.next)),
            error: None,
            ..Self::named(key, show)
        })
    }
}

/// `bytes` as text that a terminal can be shown.
fn printable(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().all(plain).then(|| text.to_owned())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// As in 2026-03-01T00:00:00Z.
fn time(wall: WallTime) -> String {
    let utc = wall.utc();
    match utc.split_once('T') {
        Some((date, time)) => format!("{date}T{}", time.replace('-', ":")),
        None => utc,
    }
}

fn state(state: KeyState) -> &'static str {
    match state {
        KeyState::Absent => "absent",
        KeyState::InMemory => "in_memory",
        KeyState::Pending => "pending",
        KeyState::Settling => "settling",
        KeyState::Interrupted => "interrupted",
        KeyState::Settled => "settled",
    }
}

fn next_claim(next: Next) -> &'static str {
    match next {
        Next::Granted => "granted",
        Next::InFlight => "in_flight",
        Next::Interrupted => "interrupted",
        Next::Settled => "settled",
    }
}

fn omission(reason: Omission) -> &'static str {
    match reason {
        Omission::TooLarge => "too_large",
        Omission::NotEncodable => "not_encodable",
        Omission::OnPurpose => "on_purpose",
    }
}

fn ended_by(by: EndedBy) -> &'static str {
    match by {
        EndedBy::LeaseOver => "lease_over",
        EndedBy::Dropped => "dropped",
        EndedBy::Reopened => "reopened",
    }
}

fn on_interrupt(then: OnInterrupt) -> &'static str {
    match then {
        OnInterrupt::Rerun => "rerun",
        OnInterrupt::Quarantine => "quarantine",
    }
}
