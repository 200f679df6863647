//! Version 1 of the payload: bincode 2 of the structs below, fixed-width little-endian integers.
//!
//! Frozen once released: never change a struct, add a version beside this one. The golden files under
//! `tests/golden/` hold it.

use super::{Durability, EndedBy, Kept, Omission, OnInterrupt, Previous, Record, State, Terms};
use crate::clock::WallTime;
use crate::error::{Damage, counted};
use crate::fingerprint::Fingerprint;
use crate::token::Token;
use crate::value::MAX_VALUE_LIMIT;
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub(super) const VERSION: u8 = 1;

/// The largest value and room for everything else: what decoding may ask for at most.
const LIMIT: usize = MAX_VALUE_LIMIT + 4096;

#[derive(Serialize, Deserialize)]
struct RecordV1<'a> {
    token: u64,
    attempt: u32,
    fingerprint: Option<[u8; 32]>,
    lease_millis: u64,
    retention_millis: u64,
    durability: DurabilityV1,
    on_interrupt: OnInterruptV1,
    max_attempts: Option<u32>,
    claimed_at_millis: u64,
    #[serde(borrow)]
    state: StateV1<'a>,
}

#[derive(Serialize, Deserialize)]
enum DurabilityV1 {
    Full,
    Result,
    Relaxed,
}

#[derive(Serialize, Deserialize)]
enum OnInterruptV1 {
    Rerun,
    Quarantine,
}

#[derive(Serialize, Deserialize)]
enum EndedByV1 {
    LeaseOver,
    Dropped,
    Reopened,
}

#[derive(Serialize, Deserialize)]
struct PreviousV1 {
    token: u64,
    ended_by: EndedByV1,
}

#[derive(Serialize, Deserialize)]
enum StateV1<'a> {
    Pending {
        previous: Option<PreviousV1>,
        #[serde(borrow, with = "serde_bytes")]
        checkpoint: Option<&'a [u8]>,
    },
    Interrupted {
        ended_by: EndedByV1,
        #[serde(borrow, with = "serde_bytes")]
        checkpoint: Option<&'a [u8]>,
    },
    Settled {
        #[serde(borrow)]
        result: KeptV1<'a>,
        at_millis: u64,
        by_hand: bool,
    },
}

#[derive(Serialize, Deserialize)]
enum KeptV1<'a> {
    Completed(#[serde(borrow, with = "serde_bytes")] &'a [u8]),
    Failed(#[serde(borrow, with = "serde_bytes")] &'a [u8]),
    Omitted(OmissionV1),
}

#[derive(Serialize, Deserialize)]
enum OmissionV1 {
    TooLarge,
    NotEncodable,
    OnPurpose,
}

#[derive(Serialize, Deserialize)]
struct CeilingV1 {
    ceiling: u64,
}

#[derive(Serialize, Deserialize)]
struct HighWaterV1 {
    time_millis: u64,
}

/// Maps two enums with the same variants onto each other, both ways.
macro_rules! same_variants {
    ($model:ident, $wire:ident, $($variant:ident),+) => {
        impl From<$model> for $wire {
            fn from(model: $model) -> Self {
                match model { $($model::$variant => Self::$variant),+ }
            }
        }
        impl From<$wire> for $model {
            fn from(wire: $wire) -> Self {
                match wire { $($wire::$variant => Self::$variant),+ }
            }
        }
    };
}
same_variants!(Durability, DurabilityV1, Full, Result, Relaxed);
same_variants!(OnInterrupt, OnInterruptV1, Rerun, Quarantine);
same_variants!(EndedBy, EndedByV1, LeaseOver, Dropped, Reopened);
same_variants!(Omission, OmissionV1, TooLarge, NotEncodable, OnPurpose);

/// At least as many bytes as `record` takes.
pub(super) fn record_room(record: &Record) -> usize {
    let kept = match &record.state {
        State::Pending { checkpoint, .. } | State::Interrupted { checkpoint, .. } => {
            checkpoint.as_ref().map_or(0, Vec::len)
        }
        State::Settled { result: Kept::Completed(value) | Kept::Failed(value), .. } => value.len(),
        State::Settled { result: Kept::Omitted(_), .. } => 0,
    };
    // With integers of fixed width all that is not the value takes 108 bytes at most.
    108 + kept
}

pub(super) fn encode_record(record: &Record, payload: &mut Vec<u8>) {
    let state = match &record.state {
        State::Pending { previous, checkpoint } => StateV1::Pending {
            previous: previous.map(|Previous { token, ended_by }| PreviousV1 {
                token: token.get(),
                ended_by: ended_by.into(),
            }),
            checkpoint: checkpoint.as_deref(),
        },
        State::Interrupted { ended_by, checkpoint } => {
            StateV1::Interrupted { ended_by: (*ended_by).into(), checkpoint: checkpoint.as_deref() }
        }
        State::Settled { result, at, by_hand } => StateV1::Settled {
            result: match result {
                Kept::Completed(value) => KeptV1::Completed(value),
                Kept::Failed(value) => KeptV1::Failed(value),
                Kept::Omitted(omission) => KeptV1::Omitted((*omission).into()),
            },
            at_millis: at.unix_millis(),
            by_hand: *by_hand,
        },
    };
    let wire = RecordV1 {
        token: record.token.get(),
        attempt: record.attempt,
        fingerprint: record.fingerprint.map(|fingerprint| *fingerprint.as_bytes()),
        lease_millis: millis(record.terms.lease),
        retention_millis: millis(record.terms.retention),
        durability: record.terms.durability.into(),
        on_interrupt: record.terms.on_interrupt.into(),
        max_attempts: record.terms.max_attempts,
        claimed_at_millis: record.claimed_at.unix_millis(),
        state,
    };
    encode(&wire, payload);
}

pub(super) fn decode_record(payload: &[u8]) -> Result<Record, Damage> {
    let wire: RecordV1 = decode(payload)?;
    let state = match wire.state {
        StateV1::Pending { previous, checkpoint } => State::Pending {
            previous: previous.map(|PreviousV1 { token, ended_by }| Previous {
                token: Token::new(token),
                ended_by: ended_by.into(),
            }),
            checkpoint: checkpoint.map(<[u8]>::to_vec),
        },
        StateV1::Interrupted { ended_by, checkpoint } => {
            State::Interrupted { ended_by: ended_by.into(), checkpoint: checkpoint.map(<[u8]>::to_vec) }
        }
        StateV1::Settled { result, at_millis, by_hand } => State::Settled {
            result: match result {
                KeptV1::Completed(value) => Kept::Completed(value.to_vec()),
                KeptV1::Failed(value) => Kept::Failed(value.to_vec()),
                KeptV1::Omitted(omission) => Kept::Omitted(omission.into()),
            },
            at: WallTime::from_unix_millis(at_millis),
            by_hand,
        },
    };
    Ok(Record {
        token: Token::new(wire.token),
        attempt: wire.attempt,
        fingerprint: wire.fingerprint.map(Fingerprint::new),
        terms: Terms {
            lease: Duration::from_millis(wire.lease_millis),
            retention: Duration::from_millis(wire.retention_millis),
            durability: wire.durability.into(),
            on_interrupt: wire.on_interrupt.into(),
            max_attempts: wire.max_attempts,
        },
        claimed_at: WallTime::from_unix_millis(wire.claimed_at_millis),
        state,
    })
}

pub(super) fn encode_ceiling(ceiling: Token, payload: &mut Vec<u8>) {
    encode(&CeilingV1 { ceiling: ceiling.get() }, payload);
}

pub(super) fn decode_ceiling(payload: &[u8]) -> Result<Token, Damage> {
    decode(payload).map(|CeilingV1 { ceiling }| Token::new(ceiling))
}

pub(super) fn encode_high_water(time: WallTime, payload: &mut Vec<u8>) {
    encode(&HighWaterV1 { time_millis: time.unix_millis() }, payload);
}

pub(super) fn decode_high_water(payload: &[u8]) -> Result<WallTime, Damage> {
    decode(payload).map(|HighWaterV1 { time_millis }| WallTime::from_unix_millis(time_millis))
}

const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<LIMIT>,
> = bincode::config::standard().with_fixed_int_encoding().with_limit();

fn encode<T: Serialize>(wire: &T, payload: &mut Vec<u8>) {
    bincode::serde::encode_into_std_write(wire, payload, CONFIG)
        .expect("the wire structs hold only integers, options, enums and byte vectors, which always encode");
}

/// Byte strings are borrowed: to own one, bincode reserves the length that the bytes name before it looks for them.
fn decode<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, Damage> {
    let (wire, used) = bincode::serde::borrow_decode_from_slice(payload, CONFIG)
        .map_err(|error| Damage::Content { reason: error.to_string() })?;
    // bincode accepts trailing bytes; a record has none.
    if used != payload.len() {
        return Err(Damage::Content {
            reason: format!("{} it", counted(payload.len() - used, "byte follows", "bytes follow")),
        });
    }
    Ok(wire)
}

/// Durations are validated to fit when they are asked for.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
