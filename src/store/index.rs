//! The retention index: for each record that will be forgotten, when to look at it.
//!
//! An entry is (end, token, key), see [`IndexEntry`]; it is a hint, written before the record's swap and harmless
//! without it. What holds at all times: **a stored record that is pending or settled has an entry with its token**.
//! The entry's end need not be the record's. The sweeper asks the record, and moves an entry that came due too early.
//!
//! Who writes entries, all of them in the commit of the record's own swap:
//!
//! - A durable claim, and a reclaim: at the end of the pending record's retention.
//! - The settle of a claim in memory, whose token no record had before.
//! - A settle of an interrupted record, by its holder or by hand: the sweeper may have dropped the entry meanwhile.
//! - The settle of a pending record writes none: the claim's is there, with the same token, and comes due no later.
//!
//! When the sweeper may drop an entry, always after it looked at memory and found neither a mark of the entry's token
//! or of none, nor a place that is being taken, and read the record *after* that look:
//!
//! - The record under the entry's token is due, and nobody has the key: it is deleted by swap first. If the swap is
//!   refused, the entry stays.
//! - It ends later, or a claim has the key: another entry is put there first, with the same commit.
//! - There is none, or another's, whoever has the key, and since the look nobody took a place or put a mark in the
//!   key's shard: nobody will store one under this token. A claim's commit is under way, or may yet be swapped back,
//!   only while its place is being taken; a settle's is under way only while its mark stands, which has its token, or
//!   none if it is by hand. All had returned before the look, so the read saw them. A claim that came between look and
//!   read may have shown it a record that is swapped back; then the entry stays for the next sweep. A settle that begins
//!   after the look reads the clock after it, and so writes an entry that ends later than this one, which is due.
//! - It is interrupted: as before, for the settle that may come.
//!
//! So no record is left without an entry, and each entry goes away or moves on when its time has come, also while its
//! key goes from one claim to the next without a pause. A power cut loses a tail of what was written and not synced
//! (see [`backend`](crate::backend)), which keeps the order of entry and record on both sides.

use super::caller::{Caller, on_this_thread};
use super::engine::commit_one;
use super::{Inner, Store};
use crate::backend::{Commit, Engine, Swap, Write};
use crate::clock::WallTime;
use crate::error::{AdminError, Damage, Fault};
use crate::key::{IndexEntry, Key};
use crate::lease::Found;
use crate::protocol::Purpose;
use crate::protocol::decide::{self, Sweeping};
use crate::record::{Record, State};
use crate::token::Token;
use std::ops::ControlFlow;

/// The entry to write with the swap of `before` for `after`.
pub(super) fn hint(key: &Key, before: Option<&Record>, after: Option<&Record>) -> Option<Write> {
    let after = after?;
    let has_one = before
        .is_some_and(|before| before.token == after.token && matches!(before.state, State::Pending { .. }));
    if has_one { None } else { after.kept_until().map(|end| entry(end, after.token, key)) }
}

pub(super) fn entry(end: WallTime, token: Token, key: &Key) -> Write {
    let encoded = IndexEntry { end, token, key: key.clone() }.encode();
    Write { key: encoded, value: Some(Vec::new()) }
}

/// Deletes the entry `stored`, with the value it was seen with; `instead` is put before that, in the same commit.
pub(super) fn drop_entry(
    engine: &dyn Engine,
    stored: &(Vec<u8>, Vec<u8>),
    instead: Option<Write>,
) -> Result<bool, Fault> {
    let (key, value) = stored;
    let commit = Commit { hints: instead.as_slice(), ..Commit::swap(key, Some(value), None) };
    Ok(commit_one(engine, &commit)? == Swap::Done)
}

impl Store {
    /// Goes through all records and writes the entries of the retention index that are missing, then through all
    /// entries and deletes those that stand for nothing. When this returns, that is durable. Claims go on meanwhile.
    /// Reads everything that is stored; holds a page of keys in memory.
    ///
    /// The index keeps itself right. This is for stores whose index was lost, or that were put together by other
    /// means.
    ///
    /// # Errors
    /// [`AdminError`] if storage failed; what was written before that is harmless.
    pub fn rebuild_index(&self) -> Result<Rebuilt, AdminError> {
        self.0.rebuild_index()
    }
}

/// What [`Store::rebuild_index`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Rebuilt {
    /// Entries that were missing and have been written.
    pub written: u64,
    /// Entries that stood for nothing and have been deleted.
    pub deleted: u64,
    /// Records that could not be read, and have no entry.
    pub damaged: u64,
}

/// How much is held in memory at a time.
const PAGE: usize = 128;

impl Inner {
    pub(super) fn rebuild_index(&self) -> Result<Rebuilt, AdminError> {
        let failed = |fault| AdminError::Failed {
            doing: "rebuilding the retention index of",
            on: "the store".to_owned(),
            fault,
        };
        let rebuild = || {
            self.check_writable()?;
            let mut rebuilt = Rebuilt::default();
            self.write_entries(&mut rebuilt)?;
            self.delete_stale_entries(&mut rebuilt)?;
            on_this_thread(self.next_sync(Caller::Thread))?;
            Ok(rebuilt)
        };
        rebuild().map_err(failed)
    }

    /// Writes an entry for each record that has none at its end.
    fn write_entries(&self, rebuilt: &mut Rebuilt) -> Result<(), Fault> {
        let ceiling = self.tokens.ceiling();
        let mut after: Option<Vec<u8>> = None;
        loop {
            // Only what the entry says is kept of each record: values may be large.
            let mut page = Vec::with_capacity(PAGE);
            self.engine.get()?.scan(&Key::all_claims(), after.as_deref(), &mut |key, bytes| {
                page.push((key.to_vec(), entry_of(key, bytes, ceiling)));
                if page.len() < PAGE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let last = page.len() < PAGE;
            for (key, entry) in page {
                after = Some(key);
                match entry {
                    Ok(Some(entry)) => {
                        let engine = self.engine.get()?;
                        let commit = Commit::swap(&entry, None, Some(&[]));
                        // If the record has moved on meanwhile, the sweeper drops it when it comes due.
                        rebuilt.written += u64::from(commit_one(&*engine, &commit)? == Swap::Done);
                    }
                    Ok(None) => {}
                    Err(_) => rebuilt.damaged += 1,
                }
            }
            if last {
                return Ok(());
            }
        }
    }

    /// Deletes the entries whose record is not that of their token, whether or not they are due.
    fn delete_stale_entries(&self, rebuilt: &mut Rebuilt) -> Result<(), Fault> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let mut page = Vec::with_capacity(PAGE);
            self.engine.get()?.scan(&IndexEntry::all(), after.as_deref(), &mut |key, value| {
                page.push((key.to_vec(), value.to_vec()));
                if page.len() < PAGE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let last = page.len() < PAGE;
            for stored in page {
                if self.is_stale(&stored.0)? {
                    let dropped = drop_entry(&*self.engine.get()?, &stored, None)?;
                    rebuilt.deleted += u64::from(dropped);
                }
                after = Some(stored.0);
            }
            if last {
                return Ok(());
            }
        }
    }

    fn is_stale(&self, stored: &[u8]) -> Result<bool, Fault> {
        let Some(IndexEntry { token, key, .. }) = IndexEntry::decode(stored) else { return Ok(true) };
        let looked = self.table.look(key.encoded(), Purpose::Upkeep, self.clock.now())?;
        if matches!(looked.found, Found::InFlight(_)) {
            return Ok(false);
        }
        let bytes = self.engine.get()?.read(key.encoded())?;
        let Ok(record) = bytes.as_deref().map(Record::decode).transpose() else { return Ok(false) };
        // An entry that is not due may be that of a settle to come, if the record is still its token's.
        let moved_on = record.as_ref().is_none_or(|record| record.token != token);
        // In this order: what was read may be swapped back to the entry's record, or have been.
        let undisturbed = self.table.is_undisturbed(key.encoded(), looked.stamp)?;
        let stale = decide::sweep(record.as_ref(), token, self.wall(), None) == Sweeping::Stale;
        Ok(moved_on && undisturbed && stale)
    }
}

/// The entry that belongs to the record `bytes` under `key`; `None` for one that has none.
fn entry_of(key: &[u8], bytes: &[u8], ceiling: Token) -> Result<Option<Vec<u8>>, Damage> {
    let key = Key::decode(key).ok_or(Damage::UnknownKey { length: key.len() })?;
    let record = Record::decode(bytes)?;
    decide::check_token(&record, ceiling)?;
    Ok(record.kept_until().map(|end| entry(end, record.token, &key).key))
}
