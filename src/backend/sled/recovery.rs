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
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

const SEGMENT: u64 = SEGMENT_SIZE as u64;

/// Brings the newest snapshot up to date with the log, and keeps what sled will read of that; `None` if that is nothing.
pub(super) fn advance(folder: &Folder) -> Result<Option<End>, Refusal> {
    let newest = snapshot::newest(folder)?;
    let read = newest.as_ref().map(Found::read).transpose()?;
    let is_whole = !matches!(read, Some(None));
    let old = read.flatten().unwrap_or_default();
    // What a damaged one knew is known by its name.
    let reached = newest.as_ref().map_or(0, |found| found.reaches);
    let mut log = Log::open(folder)?;
    let before = old.reaches;
    let (segments, last) = log.survey(before.unwrap_or(0))?;
    if last.is_none() && (before.is_none() || old.active.is_some()) {
        return Err(Refusal::Damaged(
            "the segment of sled's log that it would begin with is gone or damaged".to_owned(),
        ));
    }
    let new = log.take(old, &segments, last)?;
    if new.reaches.unwrap_or(0) < reached {
        let reason = match is_whole {
            true => "sled's log ends before its snapshot does",
            false => "its snapshot is damaged, and its log ends before that",
        };
        return Err(Refusal::Damaged(reason.to_owned()));
    }
    let end = log.end(&segments, new.reaches.unwrap_or(0))?;
    if let Some(reaches) = new.reaches.filter(|_| new.reaches != before) {
        let Some(bytes) = new.encode() else {
            return Err(Refusal::Damaged("sled's log speaks of pages that it does not hold".to_owned()));
        };
        log.file.sync_all()?;
        if !is_whole {
            snapshot::put_aside(folder)?;
        }
        snapshot::write(folder, reaches, &bytes)?;
    }
    Ok(end)
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
    /// The segments from the one that `from` lies in on, and the position of the log's last byte, if there is any.
    fn survey(&mut self, from: u64) -> Result<(Segments, Option<u64>), Refusal> {
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
                return Err(Refusal::Damaged("two segments of sled's log have one place in it".to_owned()));
            }
        }
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
            return Err(Refusal::Damaged("sled's log speaks of a page that cannot be".to_owned()));
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
    let page = usize::try_from(page).ok().filter(|page| *page < 1 << 37)?;
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
