//! The messages in sled's log, taken for what sled 0.34.7 takes them for (its `pagecache/iterator.rs` and `logger.rs`).
//!
//! ```text
//! the log     segments of 8 MiB, in any order; a file in blobs/ for what is too large for one
//! a segment   checksum (4) | its position (8) | up to where the log was synced when it was begun (8) | messages
//! a message   checksum (4) | kind (1) | length, segment's number, page (varints) | bytes
//! kinds       1 canceled, 2 cap, 3 manifest of a batch, 4 page freed, 5 counter, 6 and 7 metadata, 8 and 9 a whole node,
//!             10 and 11 a change of one; the odd of each pair with its bytes in a file of blobs/
//! ```

use super::SEGMENT_SIZE;
use super::log;
use super::snapshot::{Part, fixed, varint};
use crate::backend::folder::Folder;
use crate::error::StoreDamage;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

const SEGMENT: u64 = SEGMENT_SIZE as u64;
/// As far from a segment's end no message begins.
pub(super) const LONGEST_HEADER: u64 = 32;
/// So much of a message sled reads at first.
const LOOK: usize = 128;

/// Why a log cannot be opened. Nothing was changed.
pub(super) enum Refusal {
    Failed(io::Error),
    Damaged(StoreDamage),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Segments by their position: their offsets in the file.
pub(super) type Segments = BTreeMap<u64, u64>;

/// What a message is.
enum Message {
    /// Says where the newest state of a page is, or a part of that.
    Page { kind: Kind, page: u64, blob: Option<u64>, size: u64 },
    /// Nothing that counts.
    Nothing { size: u64 },
    /// The messages behind it up to `last` count all or none.
    Batch { last: u64, size: u64 },
    /// Nothing more comes in this segment.
    Last,
    /// It is not whole.
    Torn,
    /// It is not whole, and sled reads nothing behind it.
    Stop,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Free,
    Whole,
    Part,
}

/// Where a walk came to: the position, and the offset of the segment if that is not over.
pub(super) struct Reached {
    pub(super) position: u64,
    pub(super) segment: Option<u64>,
}

pub(super) struct Log {
    pub(super) file: File,
    blobs: PathBuf,
    /// The segment that was read last.
    last: Option<(u64, Arc<Vec<u8>>)>,
    /// Where a walk begins in the segment that it lies in; in all others it does behind the header.
    begin: Option<u64>,
}

impl Log {
    pub(super) fn open(folder: &Folder) -> io::Result<Self> {
        Ok(Self { file: File::open(folder.main())?, blobs: folder.blobs(), last: None, begin: None })
    }

    /// Has walks begin at `position`, where a message does, and not with what is before it in its segment.
    pub(super) fn begin_at(&mut self, position: u64) {
        self.begin = Some(position);
    }

    /// Whether the message of `part` is whole.
    pub(super) fn is_whole(&mut self, part: &Part) -> Result<bool, Refusal> {
        let segment = self.segment(part.offset / SEGMENT * SEGMENT)?;
        Ok(matches!(self.message(&segment, part.position)?, Message::Page { .. }))
    }

    pub(super) fn segment(&mut self, offset: u64) -> io::Result<Arc<Vec<u8>>> {
        if let Some((_, bytes)) = self.last.as_ref().filter(|(last, _)| *last == offset) {
            return Ok(Arc::clone(bytes));
        }
        self.last = None;
        let length = self.file.metadata()?.len().saturating_sub(offset).min(SEGMENT);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(&mut bytes)?;
        let bytes = Arc::new(bytes);
        self.last = Some((offset, Arc::clone(&bytes)));
        Ok(bytes)
    }

    /// Shows `visit` the messages about pages in `segments`, in order and up to the position `last`, and tells where it
    /// came to; `None` if no segment could be begun. What is torn ends the walk, or its segment alone if `over_tears`.
    pub(super) fn walk(
        &mut self,
        mut segments: Segments,
        last: Option<u64>,
        over_tears: bool,
        visit: &mut dyn FnMut(Kind, u64, Part),
    ) -> Result<Option<Reached>, Refusal> {
        let is_behind = |position: u64| last.is_some_and(|last| position > last);
        let mut at: Option<u64> = None;
        let mut segment: Option<(u64, Arc<Vec<u8>>)> = None;
        loop {
            let within = at.map_or(0, |at| at % SEGMENT);
            if !(log::HEADER as u64..=SEGMENT - LONGEST_HEADER).contains(&within) {
                segment = None;
            }
            let (offset, bytes) = match &segment {
                Some((offset, bytes)) => (*offset, Arc::clone(bytes)),
                None => match segments.pop_first() {
                    Some((position, offset)) if !is_behind(position) => {
                        let begin = self.begin.filter(|begin| begin / SEGMENT * SEGMENT == position);
                        at = Some(begin.unwrap_or(position + log::HEADER as u64));
                        let bytes = self.segment(offset)?;
                        segment = Some((offset, Arc::clone(&bytes)));
                        (offset, bytes)
                    }
                    _ => break,
                },
            };
            let Some(position) = at.filter(|at| !is_behind(*at)) else { break };
            let size = match self.message(&bytes, position)? {
                Message::Page { kind, page, blob, size } => {
                    visit(kind, page, Part { position, offset: offset + position % SEGMENT, blob, size });
                    size
                }
                Message::Batch { last, .. } if is_behind(last) => break,
                Message::Nothing { size } | Message::Batch { size, .. } => size,
                Message::Torn if !over_tears => break,
                Message::Torn | Message::Last => {
                    segment = None;
                    continue;
                }
                Message::Stop => break,
            };
            at = Some(position + size);
        }
        Ok(at.map(|position| Reached { position, segment: segment.map(|(offset, _)| offset) }))
    }

    /// The message at `position`, which `segment` holds.
    fn message(&self, segment: &[u8], position: u64) -> Result<Message, Refusal> {
        let within = usize::try_from(position % SEGMENT).unwrap_or(usize::MAX);
        let Some(rest) = segment.get(within..) else { return Ok(Message::Stop) };
        let mut look = [0; LOOK];
        let seen = rest.len().min(LOOK);
        look[..seen].copy_from_slice(&rest[..seen]);
        let (mut from, kind) = (&look[5..], look[4]);
        let mut number = || varint(&mut from).unwrap_or(0);
        let (length, segment_number, page) = (number(), number(), number());
        let start = LOOK - from.len();
        let room = SEGMENT_SIZE - within - start;
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= room) else {
            return Ok(Message::Torn);
        };
        if !(1..=11).contains(&kind) {
            return Ok(Message::Torn);
        }
        let body = match length <= from.len() {
            true => &from[..length],
            false => match rest.get(start..start + length) {
                Some(body) => body,
                None => return Ok(Message::Stop),
            },
        };
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(body);
        checksum.update(&look[4..start]);
        let is_whole = look[..4] == (checksum.finalize() ^ u32::MAX).to_le_bytes();
        if !is_whole || segment_number != position / SEGMENT {
            return Ok(Message::Torn);
        }
        let size = u64::try_from(start + length).unwrap_or(u64::MAX);
        let number_in_body = || {
            let number = fixed(&mut &body[..]).filter(|_| body.len() == 8);
            number.ok_or(Refusal::Damaged(StoreDamage::OddMessage { position }))
        };
        let about = |kind, blob| Message::Page { kind, page, blob, size };
        Ok(match kind {
            1 => Message::Nothing { size },
            2 => Message::Last,
            3 => Message::Batch { last: number_in_body()?, size },
            4 => about(Kind::Free, None),
            5 | 6 | 8 => about(Kind::Whole, None),
            10 => about(Kind::Part, None),
            _ => {
                let number = number_in_body()?;
                match self.blob(number, kind)? {
                    Blob::Whole if kind == 11 => about(Kind::Part, Some(number)),
                    Blob::Whole => about(Kind::Whole, Some(number)),
                    Blob::Gone => Message::Nothing { size },
                    Blob::Torn => Message::Stop,
                }
            }
        })
    }

    /// Looks at a file in `blobs/`: checksum (4), kind (1), bytes.
    fn blob(&self, number: u64, kind: u8) -> Result<Blob, Refusal> {
        let bytes = match fs::read(self.blobs.join(number.to_string())) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Blob::Gone),
            Err(error) => return Err(error.into()),
        };
        match bytes.split_at_checked(4).filter(|(_, rest)| !rest.is_empty()) {
            Some((checksum, rest)) if checksum == crc32fast::hash(rest).to_le_bytes() => {
                if rest[0] == kind {
                    return Ok(Blob::Whole);
                }
                Err(Refusal::Damaged(StoreDamage::OddBlob { number }))
            }
            _ => Ok(Blob::Torn),
        }
    }
}

enum Blob {
    Whole,
    Gone,
    Torn,
}
