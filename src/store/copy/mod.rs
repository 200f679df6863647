//! Copying what a store holds into a fresh place: one walk, on which compacting, backing up, moving to another
//! engine and repairing stand.
//!
//! A copy begins by putting a mark where the token ceiling will be, durably, and ends by swapping the ceiling in for it
//! once everything else is durable (rule 8): until then no opening takes the place for a store. The ceiling is the
//! source's, so a token granted from the copy is greater than every token granted before the copy was made (P2).
//!
//! Bytes are copied as they are. What is forgotten is left out, and the retention index is made anew from the records.
//! A record that cannot be read is copied as well: leaving it out would free its key (P9). Only a repair puts it aside.
//! Of what the engine itself cannot read there is nothing to copy, so there is no copy of such a store but a repair.

mod around;
mod backup;
mod error;
mod offline;
mod piece;
#[cfg(any(feature = "sled", feature = "redb"))]
mod repair;
mod staged;
mod verify;

pub use error::CopyError;
pub use piece::Part;
#[cfg(any(feature = "sled", feature = "redb"))]
pub use repair::Repaired;
pub use verify::{Flaw, Verified};

use super::engine::{commit_each, commit_one};
use super::own::ceiling_key;
use super::retention;
use crate::backend::{Commit, Engine, Swap, Write};
use crate::clock::WallTime;
use crate::error::{Damage, StorageError};
use crate::key::{IndexEntry, Space};
use crate::record;
use crate::token::Token;
use piece::{Judge, Piece};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How much is held in memory at a time: pairs, and bytes of values.
const PAGE: usize = 128;
const PAGE_BYTES: usize = 1 << 20;

type Pair = (Vec<u8>, Vec<u8>);

/// What a copy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Copied {
    /// Records of claims that could be read.
    pub records: u64,
    /// Plain values that could be read.
    pub values: u64,
    /// What is no sound record or value, and was copied as it is.
    pub unreadable: u64,
    /// Results that were left out, since their retention is over.
    pub forgotten: u64,
}

impl Copied {
    fn count(&mut self, piece: &Result<Piece, (Part, Damage)>, more: bool) {
        let count = match piece {
            Ok(Piece::Record { .. }) => &mut self.records,
            Ok(Piece::Value) => &mut self.values,
            Err(_) => &mut self.unreadable,
            Ok(Piece::Forgotten) if more => &mut self.forgotten,
            Ok(Piece::Forgotten | Piece::Entry | Piece::Own) => return,
        };
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
    }
}

/// The pairs behind `after`, in order, and whether those are the last.
fn page(engine: &dyn Engine, after: Option<&[u8]>) -> Result<(Vec<Pair>, bool), StorageError> {
    let (mut found, mut bytes, mut full) = (Vec::new(), 0, false);
    let scanned = catch_unwind(AssertUnwindSafe(|| {
        engine.scan(&[], after, &mut |key, value| {
            bytes += value.len();
            found.push((key.to_vec(), value.to_vec()));
            full = found.len() >= PAGE || bytes >= PAGE_BYTES;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }));
    scanned.unwrap_or_else(|_| Err(it_panicked()))?;
    Ok((found, !full))
}

fn it_panicked() -> StorageError {
    StorageError::of_damage("scanning", "the engine", "it panicked; what it was reading is damaged")
}

/// Shows `visit` all pairs, a page at a time, as `turn_page` reads them.
fn walk(
    mut turn_page: impl FnMut(Option<&[u8]>) -> Result<(Vec<Pair>, bool), CopyError>,
    mut visit: impl FnMut(Vec<Pair>) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let mut after = None;
    loop {
        let (pairs, last) = turn_page(after.as_deref())?;
        after = pairs.last().map(|(key, _)| key.clone()).or(after);
        visit(pairs)?;
        if last {
            return Ok(());
        }
    }
}

/// A place that is being filled.
struct Target<'a> {
    engine: &'a dyn Engine,
    place: String,
    copied: Copied,
}

impl<'a> Target<'a> {
    /// Begins a copy in a place that holds nothing.
    fn begin(engine: &'a dyn Engine, place: String) -> Result<Self, CopyError> {
        let mut empty = true;
        engine.scan(&[], None, &mut |_, _| {
            empty = false;
            ControlFlow::Break(())
        })?;
        let mark = record::unfinished_copy();
        if !empty || commit_one(engine, &Commit::swap(&ceiling_key(), None, Some(&mark)))? != Swap::Done {
            return Err(CopyError::NotEmpty { place });
        }
        engine.sync()?;
        Ok(Self { engine, place, copied: Copied::default() })
    }

    /// Adds pairs whose keys were not there yet.
    fn add(&mut self, pairs: &[Pair], judge: &Judge) -> Result<(), CopyError> {
        let mut keys = Vec::with_capacity(pairs.len());
        for (key, bytes) in pairs.iter().filter(|(key, _)| !key.starts_with(&IndexEntry::all())) {
            let piece = judge.piece(key, bytes);
            self.copied.count(&piece, true);
            match piece {
                Ok(Piece::Record { entry, .. }) => keys.push((key, bytes, entry)),
                Ok(Piece::Value) | Err(_) => keys.push((key, bytes, None)),
                Ok(Piece::Forgotten | Piece::Entry | Piece::Own) => {}
            }
        }
        let commits: Vec<_> = keys
            .iter()
            .map(|(key, bytes, entry)| Commit {
                hints: entry.as_slice(),
                ..Commit::swap(key, None, Some(bytes))
            })
            .collect();
        for swap in commit_each(self.engine, &commits) {
            self.landed(&swap?)?;
        }
        Ok(())
    }

    /// Makes the copy say of `key` what the source says now.
    fn change(&mut self, key: &[u8], now: Option<Vec<u8>>, judge: &Judge) -> Result<(), CopyError> {
        // What the store keeps about itself is written at the end.
        if key.first() == Some(&(Space::Meta as u8)) {
            return Ok(());
        }
        let copied = self.engine.read(key)?;
        let (mut new, mut hints) = (None, Vec::new());
        if let Some(bytes) = &copied {
            let piece = judge.piece(key, bytes);
            self.copied.count(&piece, false);
            if let Ok(Piece::Record { entry: Some(entry), .. }) = piece {
                hints.push(Write { value: None, ..entry });
            }
        }
        if let Some(bytes) = now {
            let piece = judge.piece(key, &bytes);
            self.copied.count(&piece, true);
            match piece {
                Ok(Piece::Record { entry, .. }) => {
                    hints.extend(entry);
                    new = Some(bytes);
                }
                Ok(Piece::Value) | Err(_) => new = Some(bytes),
                Ok(Piece::Forgotten | Piece::Entry | Piece::Own) => {}
            }
        }
        if new == copied {
            return Ok(());
        }
        let swap = Commit::swap(key, copied.as_deref(), new.as_deref());
        let swap = commit_one(self.engine, &Commit { hints: &hints, ..swap })?;
        self.landed(&swap)
    }

    /// Ends the copy: the ceiling last, when all else is durable.
    fn finish(self, ceiling: Token, high_water: WallTime) -> Result<Copied, CopyError> {
        self.engine.sync()?;
        let (key, mark) = (ceiling_key(), record::unfinished_copy());
        let (ceiling, hints) = (record::encode_ceiling(ceiling), [retention::high_water(high_water)]);
        let swap = Commit { hints: &hints, ..Commit::swap(&key, Some(&mark), Some(&ceiling)) };
        self.landed(&commit_one(self.engine, &swap)?)?;
        self.engine.sync()?;
        Ok(self.copied)
    }

    /// Nobody else writes to a place that is being filled: it was empty, and this opening has it alone.
    fn landed(&self, swap: &Swap) -> Result<(), CopyError> {
        match swap {
            Swap::Done => Ok(()),
            Swap::Refused { .. } => Err(CopyError::NotEmpty { place: self.place.clone() }),
        }
    }
}
