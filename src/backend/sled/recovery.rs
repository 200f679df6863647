//! What sled does first when it opens, done before it: reading the log from the newest snapshot on, and leaving a new
//! snapshot that knows all of it.
//!
//! An error of such a read looks to sled like the torn end that a crash leaves. It reads no further, fills the rest
//! with zeros and opens, with less and for good. Here an error is an error, and nothing was changed. What is left for
//! sled to read is the segment in which the log ends. That is kept ([`End`]), looked at once sled has opened, and put
//! back.
//!
//! The log is taken for what sled 0.34.7 takes it for (its `pagecache/snapshot.rs`; [`messages`](super::messages)), and
//! the snapshot is the one that it would make, to the byte; `tests/sleds_log.rs` compares them. Stricter are: a
//! log that ends before its snapshot does, which sled notices only after it has changed something, and one whose last
//! segment is gone.
//!
//! Two walks, as sled has them. The first finds where the log ends: it begins in the segment up to which all was synced
//! by what the headers say, wants each next one without a gap, and ends at the first message that is not whole. The
//! second takes all messages from the snapshot on to that end; what is not whole there ends its segment alone, since
//! segments are used again, their ends first. Positions count from the log's beginning.

use super::SEGMENT_SIZE;
use super::log::{self, Header};
use super::messages::{Kind, LONGEST_HEADER, Log, Reached, Refusal, Segments};
use super::snapshot::{self, Found, Page, Part, Snapshot};
use crate::backend::folder::Folder;
use crate::error::StoreDamage;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

const SEGMENT: u64 = SEGMENT_SIZE as u64;

/// What is to be left for sled. Nothing was changed for it.
pub(super) struct Plan {
    log: Log,
    /// How far the new snapshot reaches, and its bytes; `None` if the newest one knows all.
    snapshot: Option<(u64, Vec<u8>)>,
    /// Whether the newest one is what sled wrote.
    is_whole: bool,
    end: Option<End>,
}

/// Finds what the newest snapshot does not know.
pub(super) fn plan(folder: &Folder) -> Result<Plan, Refusal> {
    let newest = snapshot::newest(folder)?;
    let read = newest.as_ref().map(Found::read).transpose()?;
    let is_whole = !matches!(read, Some(None));
    let old = read.flatten().unwrap_or_default();
    // What a damaged one knew is known by its name.
    let reached = newest.as_ref().map_or(0, |found| found.reaches);
    let mut log = Log::open(folder)?;
    log.has_segments_of(&old)?;
    let before = old.reaches;
    let (segments, last) = log.survey(before.unwrap_or(0), None)?;
    if last.is_none() && (before.is_none() || old.active.is_some()) {
        return Err(Refusal::Damaged(StoreDamage::NoSegment));
    }
    let new = log.take(old, &segments, last)?;
    if new.reaches.unwrap_or(0) < reached {
        let damage = if is_whole { StoreDamage::LogEnds } else { StoreDamage::SnapshotAndLog };
        return Err(Refusal::Damaged(damage));
    }
    let end = log.end(&segments, new.reaches.unwrap_or(0))?;
    let snapshot = match new.reaches.filter(|_| new.reaches != before) {
        Some(reaches) => Some((reaches, encoded(&new)?)),
        None => None,
    };
    Ok(Plan { log, snapshot, is_whole, end })
}

/// The plan for a log that is damaged in what the newest snapshot knows: what is behind that is taken into a new one. If
/// the log ends in the damaged segment, the new one says that it ends with it. sled then reads nothing of that segment
/// when it opens, goes on in another, and finds the damage when it reads a page that lies there.
///
/// Refused is what would lose something untold: a log that goes on elsewhere than it breaks off. So is a log of which
/// sled cannot read the pages without which it does not open.
pub(super) fn plan_around(folder: &Folder) -> Result<Plan, Refusal> {
    let newest = snapshot::newest(folder)?;
    let read = newest.as_ref().map(Found::read).transpose()?;
    let old = read.flatten().ok_or(Refusal::Damaged(StoreDamage::SnapshotAndLog))?;
    let (Some(reaches), Some(active)) = (old.reaches, old.active) else {
        return Err(Refusal::Damaged(StoreDamage::NoSegment));
    };
    let mut log = Log::open(folder)?;
    log.has_segments_of(&old)?;
    for page in old.pages.iter().take(READ_AT_ONCE) {
        for part in page.iter().flat_map(Page::parts) {
            if !log.is_whole(part)? {
                return Err(Refusal::Damaged(StoreDamage::SledsByte { at: part.offset }));
            }
        }
    }
    log.begin_at(reaches);
    let (segments, last) = log.survey(reaches, Some(active))?;
    let mut new = log.take(old, &segments, last)?;
    let damaged = reaches / SEGMENT * SEGMENT;
    let ends_at = new.reaches.filter(|ends_at| *ends_at >= reaches);
    let ends_at = ends_at.ok_or(Refusal::Damaged(StoreDamage::LogEnds))?;
    if ends_at / SEGMENT * SEGMENT == damaged {
        let behind = damaged + SEGMENT;
        if segments.range(behind..).next().is_some() {
            return Err(Refusal::Damaged(StoreDamage::LogEnds));
        }
        (new.reaches, new.active) = (Some(behind), None);
    }
    let ends_at = new.reaches.unwrap_or(ends_at);
    let end = log.end(&segments, ends_at)?;
    Ok(Plan { snapshot: Some((ends_at, encoded(&new)?)), log, is_whole: true, end })
}

/// sled reads so many of its pages before it tells that it is open.
const READ_AT_ONCE: usize = 2;

fn encoded(snapshot: &Snapshot) -> Result<Vec<u8>, Refusal> {
    snapshot.encode().ok_or(Refusal::Damaged(StoreDamage::NoPages))
}

impl Plan {
    /// Brings the newest snapshot up to date with the log, and keeps what sled will read of that; `None` if that is
    /// nothing.
    pub(super) fn carry_out(self, folder: &Folder) -> io::Result<Option<End>> {
        if let Some((reaches, bytes)) = self.snapshot {
            self.log.file.sync_all()?;
            if !self.is_whole {
                snapshot::put_aside(folder)?;
            }
            snapshot::write(folder, reaches, &bytes)?;
        }
        Ok(self.end)
    }
}

/// The segment in which the log ends, as it was before sled opened it.
pub(super) struct End {
    offset: u64,
    /// How many bytes of it are the log's. What is behind them sled may write.
    length: usize,
    bytes: Arc<Vec<u8>>,
}

impl End {
    /// Whether it is still what it was. Where that cannot be read it is taken for changed.
    pub(super) fn is_as_it_was(&self, folder: &Folder) -> bool {
        let read = || -> io::Result<Vec<u8>> {
            let mut log = File::open(folder.main())?;
            log.seek(SeekFrom::Start(self.offset))?;
            let mut bytes = vec![0; self.length];
            log.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        read().is_ok_and(|bytes| bytes == self.bytes[..self.length])
    }

    /// Puts it back as it was.
    pub(super) fn put_back(&self, folder: &Folder) -> io::Result<()> {
        let mut log = OpenOptions::new().write(true).open(folder.main())?;
        log.seek(SeekFrom::Start(self.offset))?;
        log.write_all(&self.bytes)?;
        log.sync_all()
    }
}

impl Log {
    /// Refuses a file that was cut before a segment that `snapshot` speaks of: sled keeps count of the segments that there
    /// are, and panics over a page in another.
    fn has_segments_of(&self, snapshot: &Snapshot) -> Result<(), Refusal> {
        let length = self.file.metadata()?.len().next_multiple_of(SEGMENT);
        let parts = snapshot.pages.iter().flatten().flat_map(Page::parts);
        match parts.map(|part| part.offset).chain(snapshot.active).all(|offset| offset < length) {
            true => Ok(()),
            false => Err(Refusal::Damaged(StoreDamage::LogEnds)),
        }
    }

    /// The segments from the one that `from` lies in on, and the position of the log's last byte, if there is any. The
    /// first is at the offset `first`, whatever is left of its header, if that is given.
    fn survey(&mut self, from: u64, first: Option<u64>) -> Result<(Segments, Option<u64>), Refusal> {
        let from = from / SEGMENT * SEGMENT;
        let length = self.file.metadata()?.len();
        let (mut segments, mut synced) = (Segments::new(), from);
        for offset in (0..length).step_by(SEGMENT_SIZE) {
            let Some(Header { position, synced: then }) = log::header(&mut self.file, offset, length)? else {
                continue;
            };
            if position < from {
                continue;
            }
            synced = synced.max(then);
            if segments.insert(position, offset).is_some() {
                return Err(Refusal::Damaged(StoreDamage::TwoSegments));
            }
        }
        segments.extend(first.map(|first| (from, first)));
        let mut next = synced / SEGMENT * SEGMENT;
        let mut gap = None;
        let mut tail = Segments::new();
        for (&position, &offset) in segments.range(next..) {
            if position != next {
                gap = Some(next);
                break;
            }
            tail.insert(position, offset);
            next += SEGMENT;
        }
        let reached = self.walk(tail, gap, false, &mut |_, _, _| {})?;
        Ok((segments, reached.map(|reached| reached.position - 1)))
    }

    /// What `snapshot` is once it knows the log up to its last byte.
    fn take(
        &mut self,
        mut snapshot: Snapshot,
        segments: &Segments,
        last: Option<u64>,
    ) -> Result<Snapshot, Refusal> {
        let Some(last) = last else { return Ok(snapshot) };
        let from = snapshot.reaches.unwrap_or(0);
        let pages = &mut snapshot.pages;
        let mut unknown = false;
        let reached = self.walk(segments.clone(), Some(last), true, &mut |kind, page, part| {
            if part.position >= from {
                unknown |= apply(pages, kind, page, part).is_none();
            }
        })?;
        if unknown {
            return Err(Refusal::Damaged(StoreDamage::OddPage));
        }
        let Some(Reached { position, segment }) = reached else { return Ok(snapshot) };
        let within = position % SEGMENT;
        (snapshot.reaches, snapshot.active) = match within + LONGEST_HEADER >= SEGMENT {
            true => (Some(position - within + SEGMENT), None),
            false => (Some(position), segment),
        };
        Ok(snapshot)
    }

    /// The segment in which the log ends at `reaches`.
    fn end(&mut self, segments: &Segments, reaches: u64) -> io::Result<Option<End>> {
        let within = reaches % SEGMENT;
        let Some(&offset) = segments.get(&(reaches - within)) else { return Ok(None) };
        let bytes = self.segment(offset)?;
        let length = usize::try_from(within).unwrap_or(0).min(bytes.len());
        Ok(Some(End { offset, length, bytes }))
    }
}

/// Changes the pages as a message says; `None` if it speaks of one that cannot be.
fn apply(pages: &mut Vec<Option<Page>>, kind: Kind, page: u64, part: Part) -> Option<()> {
    let page = Some(page).filter(|page| *page < 1 << 37).and_then(|page| usize::try_from(page).ok())?;
    let is_new = pages.len() <= page;
    if is_new {
        pages.resize(page + 1, None);
    }
    match (kind, &mut pages[page]) {
        (Kind::Free, known) => *known = Some(Page::Free(Part { size: 0, ..part })),
        (Kind::Whole, known) => *known = Some(Page::Present(vec![part])),
        (Kind::Part, Some(Page::Present(parts))) => {
            if parts.last().is_none_or(|last| last.position < part.position) {
                parts.push(part);
            }
        }
        // Of a page that was moved since.
        (Kind::Part, _) => {
            if is_new {
                pages.pop();
            }
        }
    }
    Some(())
}
