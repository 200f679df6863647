//! Looking at everything that is stored, and telling what is wrong with it.

use super::piece::{Judge, Part, Piece};
use super::{CopyError, Pair, page, walk};
use crate::backend::Engine;
use crate::clock::WallTime;
use crate::error::Damage;
use crate::key::{IndexEntry, KeyLabel};
use crate::record;
use crate::store::Builder;
use crate::store::own::{CEILING_END, ceiling_key};
use crate::sync::process_seed;
use crate::token::Token;
use std::collections::HashMap;
use std::hash::BuildHasher as _;

/// Something that is wrong with a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// It cannot be read. Its key is not granted.
    #[error("{part} {key}: {damage}")]
    Unreadable {
        /// What it is part of.
        part: Part,
        /// Stands for its key.
        key: KeyLabel,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A record that the retention index does not know. It is told like any other, and never swept.
    #[error("record {key}: it has no entry in the retention index, so it would never be swept")]
    NotIndexed {
        /// Stands for the key.
        key: KeyLabel,
    },
    /// There is no token ceiling. The store cannot be opened.
    #[error("own: there is no token ceiling, so the store cannot be opened")]
    NoCeiling,
    /// It is a copy that was cut off. It cannot be opened.
    #[error("own: this is a copy that was not finished; delete it and make it again")]
    UnfinishedCopy,
    /// The engine could not read on. What lies behind was not looked at.
    #[error("engine: reading on failed, so what lies behind was not looked at: {reason}")]
    NotRead {
        /// What the engine said.
        reason: String,
    },
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Records of claims that can be read, forgotten ones included.
    pub records: u64,
    /// Plain values that can be read.
    pub values: u64,
    /// Entries of the retention index that can be read.
    pub entries: u64,
    /// Of these, entries that stand for no record. Claims that were released or removed leave some behind, and the
    /// sweep deletes them when they come due: no flaw.
    pub stale_entries: u64,
    /// Flaws.
    pub flaws: u64,
}

impl Verified {
    /// Whether there is no flaw.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.flaws == 0
    }
}

impl Builder {
    /// Looks at every record, plain value and index entry of the store, which nobody may have open, and shows `tell`
    /// each flaw. Nothing is written to it, but for what every opening of its engine does: sled recovers its log, and
    /// the lock file and the note of a clean close are written. No token ceiling is raised.
    ///
    /// Reads everything that is stored; holds a page of it in memory, and about 50 bytes for each record.
    ///
    /// # Errors
    /// [`CopyError`] if it cannot be opened. Once it is open, what cannot be read is a flaw.
    pub fn verify(&self, tell: &mut dyn FnMut(&Flaw)) -> Result<Verified, CopyError> {
        let engine = self.open_backend()?;
        let mut verifying = Verifying {
            judge: Judge { wall: WallTime::from_unix_millis(0), ceiling: None },
            verified: Verified::default(),
            records: HashMap::new(),
            tell,
        };
        // Records lie before entries, so each entry finds its record known.
        let walked = verifying.ceiling(&*engine).and_then(|()| {
            walk(
                |after| Ok(page(&*engine, after)?),
                |pairs| {
                    pairs.iter().for_each(|pair| verifying.look_at(pair));
                    Ok(())
                },
            )
        });
        match walked {
            Ok(()) => Ok(verifying.end()),
            Err(CopyError::Storage(error)) => {
                // Which records want for an entry is not known: entries come last.
                verifying.flaw(&Flaw::NotRead { reason: error.to_string() });
                Ok(verifying.verified)
            }
            Err(error) => Err(error),
        }
    }
}

struct Verifying<'a> {
    /// At the beginning of time, when nothing is forgotten.
    judge: Judge,
    verified: Verified,
    /// For each record, by a hash of its token and key, what stands for the key, and whether it wants for an entry.
    records: HashMap<u64, (KeyLabel, bool)>,
    tell: &'a mut dyn FnMut(&Flaw),
}

impl Verifying<'_> {
    fn flaw(&mut self, flaw: &Flaw) {
        self.verified.flaws += 1;
        (self.tell)(flaw);
    }

    fn ceiling(&mut self, engine: &dyn Engine) -> Result<(), CopyError> {
        let key = ceiling_key();
        match engine.read(&key)? {
            None => self.flaw(&Flaw::NoCeiling),
            Some(bytes) if bytes == record::unfinished_copy() => self.flaw(&Flaw::UnfinishedCopy),
            // One that cannot be read is met on the walk.
            Some(bytes) => self.judge.ceiling = record::decode_ceiling(&bytes).ok(),
        }
        if let Some(token) = self.judge.ceiling.filter(|ceiling| *ceiling >= CEILING_END) {
            let damage = Damage::TokenAboveCeiling { token, ceiling: CEILING_END };
            self.flaw(&Flaw::Unreadable { part: Part::Own, key: KeyLabel::of(&key), damage });
        }
        Ok(())
    }

    fn look_at(&mut self, (key, bytes): &Pair) {
        match self.judge.piece(key, bytes) {
            Ok(Piece::Record { token, entry }) => {
                self.verified.records += 1;
                self.records.insert(name(token, key), (KeyLabel::of(key), entry.is_some()));
            }
            Ok(Piece::Value) => self.verified.values += 1,
            Ok(Piece::Entry) => {
                self.verified.entries += 1;
                let entry = IndexEntry::decode(key);
                let record =
                    entry.and_then(|entry| self.records.get_mut(&name(entry.token, entry.key.encoded())));
                match record {
                    Some((_, wants)) => *wants = false,
                    None => self.verified.stale_entries += 1,
                }
            }
            Ok(Piece::Own | Piece::Forgotten) => {}
            Err(_) if *key == ceiling_key() && *bytes == record::unfinished_copy() => {}
            Err((part, damage)) => {
                self.flaw(&Flaw::Unreadable { part, key: KeyLabel::of(key), damage });
            }
        }
    }

    fn end(mut self) -> Verified {
        let mut wanting: Vec<_> =
            self.records.values().filter(|(_, wants)| *wants).map(|(key, _)| *key).collect();
        wanting.sort_unstable_by_key(ToString::to_string);
        for key in wanting {
            self.flaw(&Flaw::NotIndexed { key });
        }
        self.verified
    }
}

/// Stands for a record. That two share one is as good as impossible, and would at worst hide a missing entry.
fn name(token: Token, key: &[u8]) -> u64 {
    process_seed().hash_one((token, key))
}
