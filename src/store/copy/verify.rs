//! Looking at everything that is stored, and telling what is wrong with it.

use super::around::{Gap, is_as_written, walk_around};
use super::piece::{Judge, Part, Piece};
use super::{CopyError, Pair};
use crate::clock::WallTime;
use crate::error::{Damage, counted};
use crate::key::{IndexEntry, KeyLabel};
use crate::record;
use crate::store::Builder;
use crate::store::own::{CEILING_END, ceiling_key};
use crate::sync::process_seed;
use crate::token::Token;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::num::NonZeroU64;

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
    /// A stretch that the engine could not read, such as a damaged page with all that is on it. What lies behind was
    /// looked at, unless it is the last. Keys in it are not granted: claims of them are errors.
    #[error("engine: {}: {reason}", stretch(keys, false, *to_end))]
    NotRead {
        /// Stand for the keys of records in it, as far as the retention index knows of them. It does not know
        /// interrupted records, nor plain values, nor what a part of it that cannot be read either would tell.
        keys: Vec<KeyLabel>,
        /// Whether nothing behind it could be read, so that it may reach to the end of the store. So it is if the engine
        /// refuses everything since an error of the disk.
        to_end: bool,
        /// What the engine said.
        reason: String,
    },
    /// A stretch of the retention index that the engine could not read. No record and no value lies in it. The sweep fails
    /// there; a repair makes the index anew.
    #[error(
        "engine: a stretch{} could not be read, which is of the retention index alone, and a repair makes that anew: {reason}",
        to_the_end(*to_end)
    )]
    IndexNotRead {
        /// As of [`NotRead`](Self::NotRead).
        to_end: bool,
        /// What the engine said.
        reason: String,
    },
    /// By its checksums the engine's file is not what was written. What could be read of it may be wrong: a key of which a bit
    /// has changed reads as free. Told by engines whose reads do not tell (redb), if there is no stretch of records that could
    /// not be read.
    #[error(
        "engine: what could be read is not all as it was written, so that keys may be missing that would be claimed anew; \
         a repair names the records that the retention index knows of and that are not there: {reason}"
    )]
    Altered {
        /// What the engine said.
        reason: String,
    },
    /// A stretch behind the last record could not be read: there are plain values in it at most.
    #[error("engine: {}: {reason}", stretch(&[], true, *to_end))]
    ValuesNotRead {
        /// As of [`NotRead`](Self::NotRead).
        to_end: bool,
        /// What the engine said.
        reason: String,
    },
}

fn to_the_end(to_end: bool) -> &'static str {
    if to_end { " up to the end of the store" } else { "" }
}

fn stretch(keys: &[KeyLabel], of_values: bool, to_end: bool) -> String {
    let to_end = to_the_end(to_end);
    if of_values {
        return format!(
            "a stretch{to_end} could not be read, which lies behind all records: it holds plain values at most"
        );
    }
    let mut text = format!("a stretch{to_end} could not be read, in which the retention index knows of ");
    if keys.is_empty() {
        text += "no record";
    } else {
        text += &counted(keys.len(), "record", "records");
    }
    for (at, key) in keys.iter().enumerate() {
        let _ = write!(text, "{} {key}", if at == 0 { ":" } else { "," }); // a String takes everything
    }
    text
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
    /// the lock file and the note of a clean close are written. Over redb it is the text of the lock file alone, whatever
    /// the verifying is cut off at. No token ceiling is raised.
    ///
    /// What the engine cannot read is walked around, and each stretch of it is one flaw. Entries of records in there are
    /// not counted as stale, and records whose entries may lie in there are not told as not indexed.
    ///
    /// Reads everything that is stored; holds a page of it in memory, and about 50 bytes for each record; once something
    /// cannot be read, also 16,384 keys, the labels of the keys in the stretch, and where each stretch begins and ends.
    ///
    /// ```
    /// use claimdb::{Store, backend::Mem};
    /// let mem = Mem::new();
    /// let store = Store::builder(mem.clone()).open()?;
    /// store.claim("order-42")?.granted().expect("it is free").complete("receipt 7")?;
    /// store.close()?;
    /// let verified = Store::builder(mem).verify(&mut |flaw| eprintln!("{flaw}"))?;
    /// assert!(verified.is_sound() && verified.records == 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CopyError`] if it cannot be opened. Once it is open, what cannot be read is a flaw.
    pub fn verify(&self, tell: &mut dyn FnMut(&Flaw)) -> Result<Verified, CopyError> {
        let engine = self.open_to_look()?;
        let verifying = RefCell::new(Verifying {
            judge: Judge { wall: WallTime::from_unix_millis(0), ceiling: None },
            verified: Verified::default(),
            has_ceiling: false,
            records: HashMap::new(),
            unreadable: HashSet::new(),
            gaps: Vec::new(),
            last: Vec::new(),
            tell,
        });
        // The ceiling lies before records, and they before entries: each is known to those that ask for it.
        let walked = walk_around(
            &*engine,
            &mut |pairs| {
                verifying.borrow_mut().look_at(pairs);
                Ok(())
            },
            &mut |gap| {
                verifying.borrow_mut().gap(gap);
                Ok(())
            },
        );
        let mut verifying = verifying.into_inner();
        match walked {
            Ok(()) => {}
            Err(CopyError::Storage(reason)) => {
                let after = std::mem::take(&mut verifying.last);
                verifying.gap(Gap { after, until: None, records: Vec::new(), reason });
            }
            Err(error) => return Err(error),
        }
        // A gap of the index alone does not say whether that is all that has changed.
        if verifying.gaps.iter().all(Gap::is_of_index)
            && let Err(reason) = is_as_written(&*engine)
        {
            verifying.flaw(&Flaw::Altered { reason: reason.without_advice() });
        }
        Ok(verifying.end())
    }
}

struct Verifying<'a> {
    /// At the beginning of time, when nothing is forgotten.
    judge: Judge,
    verified: Verified,
    has_ceiling: bool,
    /// By a hash of its token and key.
    records: HashMap<u64, Found>,
    /// Records that are no flaw of the index, but of their own.
    unreadable: HashSet<KeyLabel>,
    /// What the engine could not read, without the keys.
    gaps: Vec<Gap>,
    /// The last key that was looked at.
    last: Vec<u8>,
    tell: &'a mut dyn FnMut(&Flaw),
}

/// A record that can be read. There is one of these for each, so it is small.
struct Found {
    key: KeyLabel,
    /// When the entry that it still wants for comes due, in milliseconds.
    wants: Option<NonZeroU64>,
}

impl Verifying<'_> {
    fn flaw(&mut self, flaw: &Flaw) {
        self.verified.flaws += 1;
        (self.tell)(flaw);
    }

    fn gap(&mut self, mut gap: Gap) {
        let keys = std::mem::take(&mut gap.records).iter().map(|key| KeyLabel::of(key)).collect();
        let (to_end, reason) = (gap.until.is_none(), gap.reason.without_advice());
        self.flaw(&match gap.is_of_index() {
            true => Flaw::IndexNotRead { to_end, reason },
            false if gap.is_behind_records() => Flaw::ValuesNotRead { to_end, reason },
            false => Flaw::NotRead { keys, to_end, reason },
        });
        self.gaps.push(gap);
    }

    fn look_at(&mut self, pairs: Vec<Pair>) {
        pairs.iter().for_each(|pair| self.look_at_one(pair));
        if let Some((key, _)) = pairs.into_iter().next_back() {
            self.last = key;
        }
    }

    fn look_at_one(&mut self, (key, bytes): &Pair) {
        match self.judge.piece(key, bytes) {
            Ok(Piece::Own) | Err((Part::Own, _)) if *key == ceiling_key() => self.ceiling(bytes),
            Ok(Piece::Record { token, entry }) => {
                self.verified.records += 1;
                let entry = entry.and_then(|entry| IndexEntry::decode(&entry.key));
                let wants = entry.and_then(|entry| NonZeroU64::new(entry.end.unix_millis().max(1)));
                self.records.insert(name(token, key), Found { key: KeyLabel::of(key), wants });
            }
            Ok(Piece::Value) => self.verified.values += 1,
            Ok(Piece::Entry) => {
                self.verified.entries += 1;
                let Some(entry) = IndexEntry::decode(key) else { return };
                let record = entry.key.encoded();
                if let Some(found) = self.records.get_mut(&name(entry.token, record)) {
                    found.wants = None;
                } else if !self.may_be_there(record) {
                    self.verified.stale_entries += 1;
                }
            }
            Ok(Piece::Own | Piece::Forgotten) => {}
            Err((part, damage)) => {
                let key = KeyLabel::of(key);
                if part == Part::Record {
                    self.unreadable.insert(key);
                }
                self.flaw(&Flaw::Unreadable { part, key, damage });
            }
        }
    }

    fn ceiling(&mut self, bytes: &[u8]) {
        self.has_ceiling = true;
        let decoded = record::decode_ceiling(bytes);
        self.judge.ceiling = decoded.as_ref().ok().copied();
        let flaw = |damage| Flaw::Unreadable { part: Part::Own, key: KeyLabel::of(&ceiling_key()), damage };
        match decoded {
            _ if bytes == record::unfinished_copy() => self.flaw(&Flaw::UnfinishedCopy),
            Ok(token) if token >= CEILING_END => {
                self.flaw(&flaw(Damage::TokenAboveCeiling { token, ceiling: CEILING_END }));
            }
            Ok(_) => {}
            Err(damage) => self.flaw(&flaw(damage)),
        }
    }

    /// Whether there may be a record of that key, though none was read.
    fn may_be_there(&self, key: &[u8]) -> bool {
        self.unreadable.contains(&KeyLabel::of(key)) || self.gaps.iter().any(|gap| gap.holds(key))
    }

    /// Whether an entry that comes due then may be there, though none was read. Its token is not asked for, which would
    /// have to be kept for each record: of those that come due in the millisecond at which a gap begins or ends, none is
    /// told.
    fn may_be_indexed(&self, due: NonZeroU64) -> bool {
        let begin = [&IndexEntry::all()[..], &due.get().to_be_bytes()].concat();
        self.gaps.iter().any(|gap| gap.may_hold(&begin))
    }

    fn end(mut self) -> Verified {
        let ceiling = ceiling_key();
        if !self.has_ceiling && !self.gaps.iter().any(|gap| gap.holds(&ceiling)) {
            self.flaw(&Flaw::NoCeiling);
        }
        let wanting =
            self.records.values().filter(|found| found.wants.is_some_and(|due| !self.may_be_indexed(due)));
        let mut wanting: Vec<_> = wanting.map(|found| found.key).collect();
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
