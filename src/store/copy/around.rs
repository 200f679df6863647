//! Walking a store around what its engine cannot read.
//!
//! An engine that cannot read one of its pages fails for every key in it, and a scan ends there. Where the page ends
//! nobody tells. So the next key that can be read is looked for: at keys that are known from the retention index, and
//! at those that differ from the last one that was read in one byte and its end, in their order; then, by halves,
//! between the last that could not be read and the first that could.
//!
//! A stretch that can be read between two that cannot is missed if none of these lies in it. So what is told as lost is
//! a range that may hold more than what is damaged, and whoever writes the store anew keeps the old files.
//!
//! As long as all can be read it is one scan: to begin anew after each page would be to find the way there anew, which leads
//! elsewhere if it is the way that is damaged.
//!
//! Held in memory are a page of pairs and, once something cannot be read, [`KNOWN`] keys and those of one gap. The index
//! is read whenever keys behind those are asked for, so at most once for each [`KNOWN`] that it knows, and once more.

use super::{CopyError, PAGE, PAGE_BYTES, Pair, it_panicked};
use crate::backend::Engine;
use crate::error::StorageError;
use crate::key::{IndexEntry, Space};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Where a page begins is told no closer than by keys that are longer than their neighbours by so many bytes.
const CLOSER: usize = 16;
/// So many bytes at either end of a key are tried one by one for the next that can be read.
const ENDS: usize = 32;
/// So many keys that the retention index knows of are held at a time.
const KNOWN: usize = 16_384;

/// What pairs are shown to.
type Visit<'a> = dyn FnMut(Vec<Pair>) -> Result<(), CopyError> + 'a;
/// Tells from where on there is something to read again, if it cannot be read behind a key; `None` for nowhere.
type Around<'a> = dyn FnMut(&[u8], StorageError) -> Result<Option<Vec<u8>>, CopyError> + 'a;
/// Gives keys of records that lie behind one key and up to another, in order, the first of them at least; none if there
/// are none.
type Between<'a> = dyn FnMut(&[u8], &[u8]) -> Vec<Vec<u8>> + 'a;

/// A stretch that the engine could not read.
pub(super) struct Gap {
    /// The last key before it; empty if it begins with the store.
    pub(super) after: Vec<u8>,
    /// The first place behind it that can be read; `None` if there is none.
    pub(super) until: Option<Vec<u8>>,
    /// Keys of records in it, as far as the retention index knows of them.
    pub(super) records: Vec<Vec<u8>>,
    /// What the engine said.
    pub(super) reason: StorageError,
}

impl Gap {
    /// Whether `key` lies in it.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.after.as_slice() < key && self.ends_behind(key)
    }

    /// Whether a longer key that begins with `prefix` can lie in it.
    pub(super) fn may_hold(&self, prefix: &[u8]) -> bool {
        (self.after.as_slice() < prefix || self.after.starts_with(prefix)) && self.ends_behind(prefix)
    }

    /// Whether it begins behind the last record, so that no record lies in it.
    pub(super) fn is_behind_records(&self) -> bool {
        self.after.first().is_some_and(|space| *space > Space::Claims as u8)
    }

    /// Whether nothing lies in it but entries of the retention index, which is the last that a store holds.
    pub(super) fn is_of_index(&self) -> bool {
        self.after.starts_with(&IndexEntry::all())
    }

    fn ends_behind(&self, key: &[u8]) -> bool {
        self.until.as_deref().is_none_or(|until| key < until)
    }
}

/// Shows `visit` all pairs that can be read, a page at a time, and `lost` what lies between them.
///
/// # Errors
/// What `visit` and `lost` say, and what the engine said first, if it refuses everything from then on.
pub(super) fn walk_around(
    engine: &dyn Engine,
    visit: &mut Visit<'_>,
    lost: &mut dyn FnMut(Gap) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let mut known = Known { engine, keys: BTreeSet::new(), are_last: false };
    walk_from(engine, None, visit, &mut |after, reason| {
        let (until, records) = behind(engine, after, &mut |after, upto| known.between(after, upto));
        lost(Gap { after: after.to_vec(), until: until.clone(), records, reason })?;
        Ok(until)
    })
}

/// Shows `visit` what can be read behind `after`. Where that fails, `around` tells from where on it does not.
fn walk_from(
    engine: &dyn Engine,
    after: Option<Vec<u8>>,
    visit: &mut Visit<'_>,
    around: &mut Around<'_>,
) -> Result<(), CopyError> {
    let (mut after, mut said_first) = (after, None);
    loop {
        let before = after.clone();
        let rest = scan_on(engine, &mut after, visit)?;
        let goes_on = after != before;
        match rest {
            Ok(()) => return Ok(()),
            // Tried once more from there: it fails at once, if it still does.
            Err(reason) if goes_on => said_first = Some(reason),
            Err(reason) => {
                let reason = said_first.take().unwrap_or(reason);
                // An engine that refuses everything since an error has no page that can be read: no gap, but no store.
                if engine.sync().is_err() {
                    return Err(reason.into());
                }
                let Some(until) = around(after.as_deref().unwrap_or_default(), reason)? else {
                    return Ok(());
                };
                if let Some(value) = read(engine, &until).ok().flatten() {
                    visit(vec![(until.clone(), value)])?;
                }
                after = Some(until);
            }
        }
    }
}

/// Shows `visit` what one scan reads behind `after`, a page at a time, and leaves the last key of it there. Tells whether that
/// was the end.
fn scan_on(
    engine: &dyn Engine,
    after: &mut Option<Vec<u8>>,
    visit: &mut Visit<'_>,
) -> Result<Result<(), StorageError>, CopyError> {
    let (from, mut page, mut bytes, mut shown) = (after.clone(), Vec::new(), 0, Ok(()));
    let mut show = |page: &mut Vec<Pair>| {
        *after = page.last().map(|(key, _)| key.clone()).or(after.take());
        visit(std::mem::take(page))
    };
    // Whether it is the engine that is at work, of whose panics there is something to tell.
    let mut in_engine = true;
    let scanned = catch_unwind(AssertUnwindSafe(|| {
        engine.scan(&[], from.as_deref(), &mut |key, value| {
            bytes += value.len();
            page.push((key.to_vec(), value.to_vec()));
            if page.len() >= PAGE || bytes >= PAGE_BYTES {
                (bytes, in_engine) = (0, false);
                shown = show(&mut page);
                in_engine = true;
            }
            if shown.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }));
    let scanned = match scanned {
        Ok(scanned) => scanned,
        Err(panic) if !in_engine => resume_unwind(panic),
        Err(_) => Err(it_panicked()),
    };
    shown?;
    show(&mut page)?;
    Ok(scanned)
}

/// Keys of records that the retention index has entries for, as far as it can be read.
struct Known<'a> {
    engine: &'a dyn Engine,
    keys: BTreeSet<Vec<u8>>,
    /// Whether it has none behind these.
    are_last: bool,
}

impl Known<'_> {
    /// See [`Between`]. From one call to the next `after` does not go back, so what lay before it is let go.
    fn between(&mut self, after: &[u8], upto: &[u8]) -> Vec<Vec<u8>> {
        let bounds = (Excluded(after), Included(upto));
        let unknown = !self.are_last && self.keys.last().is_none_or(|last| last.as_slice() < upto);
        if unknown && self.keys.range::<[u8], _>(bounds).next().is_none() {
            self.read_on(after);
        }
        self.keys.range::<[u8], _>(bounds).take(PAGE).cloned().collect()
    }

    /// Reads the first [`KNOWN`] keys behind `after`. The index has them in another order, so all of it is read.
    fn read_on(&mut self, after: &[u8]) {
        let (keys, are_last) = (&mut self.keys, &mut self.are_last);
        keys.clear();
        *are_last = true;
        let mut add = |pairs: Vec<Pair>| {
            for entry in pairs.iter().filter_map(|(key, _)| IndexEntry::decode(key)) {
                let key = entry.key.encoded();
                if **key > *after {
                    keys.insert(key.to_vec());
                }
                if keys.len() > KNOWN {
                    keys.pop_last();
                    *are_last = false;
                }
            }
            Ok(())
        };
        let engine = self.engine;
        // Knowing fewer is no error.
        let _ = walk_from(engine, Some(IndexEntry::all().to_vec()), &mut add, &mut |after, _| {
            Ok(behind(engine, after, &mut |_, _| Vec::new()).0)
        });
    }
}

/// The first place behind `after` that can be read, and which of the known keys before it cannot.
fn behind(engine: &dyn Engine, after: &[u8], known: &mut Between<'_>) -> (Option<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut unread, mut last) = (Vec::new(), after.to_vec());
    for likely in likely_behind(after) {
        loop {
            let between = known(&last, &likely);
            if between.is_empty() {
                break;
            }
            for key in between {
                if goes_on_from(engine, &key) {
                    return (Some(by_halves(engine, last, key)), unread);
                }
                if read(engine, &key).is_err() {
                    unread.push(key.clone());
                }
                last = key;
            }
        }
        if last == likely {
            continue;
        }
        if goes_on_from(engine, &likely) {
            return (Some(by_halves(engine, last, likely)), unread);
        }
        last = likely;
    }
    (None, unread)
}

/// Keys behind `after` that differ from it in one byte, or are longer by one, in order. Of the middle of a long key it is the
/// last of them for each byte: what cannot be read costs a panic of the engine for each that is tried, and keys that a damaged
/// page makes up are long.
fn likely_behind(after: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..=after.len()).rev().flat_map(move |length| {
        let (same, least) = (&after[..length], after.get(length));
        let middle = (ENDS..after.len().saturating_sub(ENDS)).contains(&length);
        let bytes = if middle { u8::MAX..=u8::MAX } else { 0..=u8::MAX };
        let bytes = bytes.filter(move |byte| least.is_none_or(|least| byte > least));
        bytes.map(move |byte| [same, &[byte]].concat())
    })
}

/// Where reading goes on between a key that cannot be read and one that can.
fn by_halves(engine: &dyn Engine, mut unreadable: Vec<u8>, mut readable: Vec<u8>) -> Vec<u8> {
    let longest = unreadable.len().max(readable.len()) + CLOSER;
    while let Some(middle) = middle(&unreadable, &readable, longest) {
        if goes_on_from(engine, &middle) {
            readable = middle;
        } else {
            unreadable = middle;
        }
    }
    readable
}

/// A key halfway between two, as if they were fractions; `None` if there is none of that length.
fn middle(low: &[u8], high: &[u8], longest: usize) -> Option<Vec<u8>> {
    let length = low.len().max(high.len()) + 1;
    let digit = |key: &[u8], at: usize| key.get(at).copied().unwrap_or(0);
    // Half their sum, from the last byte on, with a bit in `carry` for the one before.
    let (mut half, mut carry) = (vec![0; length], false);
    for at in (0..length).rev() {
        let (sum, over) = digit(low, at).overflowing_add(digit(high, at));
        let (sum, over_again) = sum.overflowing_add(u8::from(carry));
        carry = over || over_again;
        if let Some(next) = half.get_mut(at + 1) {
            *next |= sum << 7;
        }
        half[at] = sum >> 1;
    }
    half[0] |= u8::from(carry) << 7;
    while half.last() == Some(&0) {
        half.pop();
    }
    (half.len() <= longest && half.as_slice() > low && half.as_slice() < high).then_some(half)
}

/// Whether there is something at `place`, or behind it, that can be read. Of a place between the last key of a sound page
/// and the next page, which is damaged, reading says that nothing is there: the scan tells.
fn goes_on_from(engine: &dyn Engine, place: &[u8]) -> bool {
    let next = || {
        let scanned = engine.scan(&[], Some(place), &mut |_, _| ControlFlow::Break(()));
        scanned.is_ok()
    };
    match read(engine, place) {
        Ok(Some(_)) => true,
        Ok(None) => catch_unwind(AssertUnwindSafe(next)).unwrap_or(false),
        Err(()) => false,
    }
}

/// What the engine says of the whole of what it keeps.
pub(super) fn is_as_written(engine: &dyn Engine) -> Result<(), StorageError> {
    catch_unwind(AssertUnwindSafe(|| engine.is_as_written())).unwrap_or_else(|_| Err(it_panicked()))
}

/// What is stored for `key`. A panic of the engine is one of its ways to say that it cannot tell.
pub(super) fn read(engine: &dyn Engine, key: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    catch_unwind(AssertUnwindSafe(|| engine.read(key))).map_err(drop)?.map_err(drop)
}
