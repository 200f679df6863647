//! What a stored pair is.

use crate::backend::Write;
use crate::clock::WallTime;
use crate::error::Damage;
use crate::key::{IndexEntry, Key, Space};
use crate::protocol::decide;
use crate::record::{self, Record};
use crate::store::index;
use crate::store::own::ceiling_key;
use crate::store::retention::high_water_key;
use crate::token::Token;
use std::fmt;

/// What a stored pair is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The record of a claim.
    Record,
    /// A plain value.
    Value,
    /// An entry of the retention index.
    Entry,
    /// What the store keeps about itself.
    Own,
    /// Nothing that this build knows.
    Unknown,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Record => "record",
            Self::Value => "value",
            Self::Entry => "entry",
            Self::Own => "own",
            Self::Unknown => "unknown",
        })
    }
}

/// A stored pair that can be read.
pub(super) enum Piece {
    /// A record that is remembered, and its entry in the retention index, if it has one.
    Record { token: Token, entry: Option<Write> },
    /// A record whose retention is over.
    Forgotten,
    /// A plain value.
    Value,
    /// An entry of the retention index.
    Entry,
    /// The token ceiling or the high-water mark.
    Own,
}

/// Tells what a stored pair is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judge {
    /// When it is.
    pub(super) wall: WallTime,
    /// Below this all tokens are; `None` if nobody knows.
    pub(super) ceiling: Option<Token>,
}

impl Judge {
    pub(super) fn piece(&self, key: &[u8], bytes: &[u8]) -> Result<Piece, (Part, Damage)> {
        let part = match key.first() {
            Some(&space) if space == Space::Claims as u8 => Part::Record,
            Some(&space) if space == Space::Values as u8 => Part::Value,
            Some(&space) if space == Space::Index as u8 => Part::Entry,
            Some(&space) if space == Space::Meta as u8 => Part::Own,
            _ => Part::Unknown,
        };
        let unknown = || Damage::UnknownKey { length: key.len() };
        let piece = match part {
            Part::Record => Key::decode(key).ok_or_else(unknown).and_then(|key| self.record(&key, bytes)),
            Part::Value => match Key::decode_value(key) {
                Some(_) => record::decode_value(bytes).map(|_| Piece::Value),
                None => Err(unknown()),
            },
            Part::Entry => IndexEntry::decode(key).map(|_| Piece::Entry).ok_or_else(unknown),
            Part::Own if key == ceiling_key() => record::decode_ceiling(bytes).map(|_| Piece::Own),
            Part::Own if key == high_water_key() => record::decode_high_water(bytes).map(|_| Piece::Own),
            Part::Own | Part::Unknown => Err(unknown()),
        };
        piece.map_err(|damage| (part, damage))
    }

    fn record(&self, key: &Key, bytes: &[u8]) -> Result<Piece, Damage> {
        let record = Record::decode(bytes)?;
        if let Some(ceiling) = self.ceiling {
            decide::check_token(&record, ceiling)?;
        }
        // What reads as absent to everybody. A pending record is left to the sweep, which knows who has its key.
        if decide::is_forgotten(&record, self.wall) {
            return Ok(Piece::Forgotten);
        }
        let token = record.token;
        let entry = record.kept_until().map(|end| index::entry(end, token, key));
        Ok(Piece::Record { token, entry })
    }
}
