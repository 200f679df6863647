//! sled's snapshots: for each page of its tree, where in the log its parts are. Read and written as sled 0.34.7 does.
//!
//! ```text
//! snap.P      P is how far into the log it reaches, in 16 hexadecimal digits
//!
//! how far it reaches, and one (8) | the offset of the segment in which that is, and one, or 0 (varint) | pages |
//! length of what stands before (8) | CRC-32 of what stands before that (4)
//!
//! a page      0 | part without its size          a page that is free
//!             number of parts (1) | parts        the oldest first
//! a part      position in the log (8) | 0, offset in the file (varint) | size (varint)
//!             the same with 1, offset, number of the file in blobs/ (8) for one that is in a file of its own
//! ```
//!
//! Numbers are little endian. A position counts the bytes of all segments that were ever begun; an offset is where the
//! segment is in the file now.

use crate::backend::files::{files_in, sync_folder, write_synced};
use crate::backend::folder::Folder;
use crate::telemetry::opening;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Deletes what sled had not finished: its own reading of the folder would stumble over it.
pub(super) fn clear_half_written(folder: &Folder) -> io::Result<()> {
    for file in files_in(&folder.engine())? {
        if file.to_string_lossy().ends_with(".generating") {
            fs::remove_file(&file)?;
            opening::mended("a half-written snapshot was deleted");
        }
    }
    Ok(())
}

/// What a snapshot says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// How far into the log it reaches; `None` if the log is empty.
    pub(super) reaches: Option<u64>,
    /// The offset of the segment in which that is, if more is to be written to it.
    pub(super) active: Option<u64>,
    /// `None` for a page that is not known yet.
    pub(super) pages: Vec<Option<Page>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Page {
    Free(Part),
    /// The oldest first; there is one at least.
    Present(Vec<Part>),
}

impl Page {
    pub(super) fn parts(&self) -> &[Part] {
        match self {
            Self::Free(part) => std::slice::from_ref(part),
            Self::Present(parts) => parts,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) position: u64,
    pub(super) offset: u64,
    pub(super) blob: Option<u64>,
    pub(super) size: u64,
}

/// A snapshot's file.
pub(super) struct Found {
    path: PathBuf,
    /// How far into the log it reaches, by its name.
    pub(super) reaches: u64,
}

/// All there are, the newest last.
pub(super) fn all(folder: &Folder) -> io::Result<Vec<Found>> {
    let found = |path: PathBuf| {
        let reaches = path.file_name()?.to_str()?.strip_prefix("snap.")?;
        let reaches = u64::from_str_radix(reaches, 16).ok()?;
        Some(Found { path, reaches })
    };
    let mut all: Vec<_> = files_in(&folder.engine())?.into_iter().filter_map(found).collect();
    all.sort_by_key(|snapshot| snapshot.reaches);
    Ok(all)
}

pub(super) fn newest(folder: &Folder) -> io::Result<Option<Found>> {
    Ok(all(folder)?.pop())
}

impl Found {
    /// What it says; `None` if it is not what sled wrote.
    pub(super) fn read(&self) -> io::Result<Option<Snapshot>> {
        Ok(decode(&fs::read(&self.path)?))
    }
}

impl Snapshot {
    /// Its bytes; `None` if it cannot be expressed, since a page is not known or has too many parts.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut to = Vec::new();
        to.extend(self.reaches.map_or(0, |reaches| reaches + 1).to_le_bytes());
        put_varint(&mut to, self.active.map_or(0, |active| active + 1));
        for page in &self.pages {
            match page.as_ref()? {
                Page::Free(part) => {
                    to.push(0);
                    put_place(&mut to, part);
                }
                Page::Present(parts) => {
                    to.push(u8::try_from(parts.len()).ok()?);
                    for part in parts {
                        put_place(&mut to, part);
                        put_varint(&mut to, part.size);
                    }
                }
            }
        }
        let (length, checksum) = (u64::try_from(to.len()).ok()?, crc32fast::hash(&to));
        to.extend(length.to_le_bytes());
        to.extend(checksum.to_le_bytes());
        Some(to)
    }
}

/// Leaves a snapshot for sled in the place of all others. What it speaks of is durable.
pub(super) fn write(folder: &Folder, reaches: u64, bytes: &[u8]) -> io::Result<()> {
    let path = folder.engine().join(format!("snap.{reaches:016X}"));
    let half = folder.engine().join(format!("snap.{reaches:016X}.generating"));
    write_synced(&half, bytes)?;
    fs::rename(&half, &path)?;
    sync_folder(&folder.engine())?;
    // sled goes by the newest, whatever else is there.
    for older in all(folder)?.into_iter().filter(|found| found.path != path) {
        let _ = fs::remove_file(older.path);
    }
    Ok(())
}

fn decode(bytes: &[u8]) -> Option<Snapshot> {
    let (content, end) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
    if content.is_empty() || end[8..] != crc32fast::hash(content).to_le_bytes() {
        return None;
    }
    let mut from = content;
    let reaches = fixed(&mut from)?.checked_sub(1);
    let active = varint(&mut from)?.checked_sub(1);
    let mut pages = Vec::new();
    while let Some((&count, rest)) = from.split_first() {
        from = rest;
        pages.push(Some(if count == 0 {
            Page::Free(place(&mut from)?)
        } else {
            let parts = (0..count).map(|_| {
                let part = place(&mut from)?;
                Some(Part { size: varint(&mut from)?, ..part })
            });
            Page::Present(parts.collect::<Option<_>>()?)
        }));
    }
    Some(Snapshot { reaches, active, pages })
}

fn put_place(to: &mut Vec<u8>, part: &Part) {
    to.extend(part.position.to_le_bytes());
    to.push(u8::from(part.blob.is_some()));
    put_varint(to, part.offset);
    to.extend(part.blob.iter().flat_map(|number| number.to_le_bytes()));
}

fn place(from: &mut &[u8]) -> Option<Part> {
    let position = fixed(from)?;
    let (&in_blob, rest) = from.split_first()?;
    *from = rest;
    let offset = varint(from)?;
    let blob = match in_blob {
        0 => None,
        1 => Some(fixed(from)?),
        _ => return None,
    };
    Some(Part { position, offset, blob, size: 0 })
}

pub(super) fn fixed(from: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*bytes))
}

/// A number as sled writes it: small ones in one byte, others in as many as they need.
pub(super) fn varint(from: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = from.split_first()?;
    let (number, rest) = match first {
        0..=240 => (u64::from(first), rest),
        241..=248 => {
            let (&second, rest) = rest.split_first()?;
            (240 + 256 * (u64::from(first) - 241) + u64::from(second), rest)
        }
        249 => {
            let (bytes, rest) = rest.split_first_chunk::<2>()?;
            (2288 + u64::from(u16::from_be_bytes(*bytes)), rest)
        }
        250.. => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first) - 247)?;
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            (u64::from_le_bytes(whole), rest)
        }
    };
    *from = rest;
    Some(number)
}

fn put_varint(to: &mut Vec<u8>, number: u64) {
    let bytes = |number: u64| number.to_le_bytes();
    match number {
        0..=240 => to.push(bytes(number)[0]),
        241..=2287 => to.extend([bytes(number - 240)[1] + 241, bytes(number - 240)[0]]),
        2288..=67823 => to.extend([249, bytes(number - 2288)[1], bytes(number - 2288)[0]]),
        _ => {
            // From 3 bytes (250) to 8 (255).
            let length = (3..8).find(|length| number >> (8 * length) == 0).unwrap_or(8);
            to.push([250, 251, 252, 253, 254, 255][length - 3]);
            to.extend(&bytes(number)[..length]);
        }
    }
}

/// Puts all snapshots aside, for people: the newest is not what sled wrote.
pub(super) fn put_aside(folder: &Folder) -> io::Result<()> {
    let paths: Vec<_> = all(folder)?.into_iter().map(|found| found.path).collect();
    folder.put_aside(&paths)?;
    sync_folder(&folder.engine())
}
