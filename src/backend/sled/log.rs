//! sled's log after a clean close: the checksum by which the next opening knows it again.
//!
//! sled opens by its newest snapshot and reads the log from there on. A byte that went bad in that part looks to it
//! like the torn tail of a crash: it cuts there and opens, and what came later is absent. So a clean close leaves
//! the checksum of that part in the file `tail`, and the next opening compares before anything is read by sled or for
//! it ([`recovery`](super::recovery)). After an unclean end a torn tail is to be expected, and nothing tells one from
//! the other.
//!
//! Bytes before the newest snapshot are another matter: the snapshot says what must be there, and sled fails when
//! it reads them, or does not open if they are in the segment that it would go on in ([`examine`](mod@super::examine)).
//! For the same reason an intact snapshot is never put aside when sled refuses to open: without it sled would open,
//! with less. Only a snapshot that fails its own checksum is, and then the log must reach at least
//! as far as that snapshot did.

use super::{SEGMENT_SIZE, snapshot};
use crate::backend::closed::Note;
use crate::backend::files::{files_in, write_synced};
use crate::backend::folder::Folder;
use crate::error::StoreDamage;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

const SEGMENT: u64 = SEGMENT_SIZE as u64;
/// The bytes of a segment's header.
pub(super) const HEADER: usize = 20;
const TAIL: &str = "tail";
const TAIL_PREFIX: &str = "claimdb-tail 1 ";

/// The checksum of what an opening reads which goes by a snapshot that reaches so far: segments of the log, and files
/// in `blobs/`.
fn checksum_from(folder: &Folder, reaches: u64) -> io::Result<u32> {
    let mut log = File::open(folder.main())?;
    let (length, first) = (log.metadata()?.len(), reaches / SEGMENT * SEGMENT);
    let mut checksum = crc32fast::Hasher::new();
    for at in (0..length).step_by(SEGMENT_SIZE) {
        if is_read_from(&mut log, at, length, first)? {
            log.seek(SeekFrom::Start(at))?;
            add(&mut checksum, at, (&log).take(SEGMENT))?;
        }
    }
    // They are named for their place in the log.
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u64>().ok();
    let blobs = files_in(&folder.blobs())?.into_iter().filter_map(|path| Some((number(&path)?, path)));
    for (number, path) in blobs.filter(|(number, _)| *number >= first).collect::<BTreeMap<_, _>>() {
        add(&mut checksum, number, File::open(path)?)?;
    }
    Ok(checksum.finalize())
}

fn add(checksum: &mut crc32fast::Hasher, name: u64, mut bytes: impl io::Read) -> io::Result<()> {
    checksum.update(&name.to_le_bytes());
    let mut buffer = vec![0; SEGMENT_SIZE];
    loop {
        match bytes.read(&mut buffer)? {
            0 => return Ok(()),
            read => checksum.update(&buffer[..read]),
        }
    }
}

/// Whether the segment at `at` is one that sled reads which starts at `first`. One whose header is not whole counts,
/// since it should have been.
fn is_read_from(log: &mut File, at: u64, length: u64, first: u64) -> io::Result<bool> {
    Ok(header(log, at, length)?.is_none_or(|header| header.position >= first))
}

/// What a segment's header says.
pub(super) struct Header {
    /// Where it belongs in the log.
    pub(super) position: u64,
    /// Up to where the log was synced when the segment was begun.
    pub(super) synced: u64,
}

/// The header of the segment at `at`; `None` if it is not whole.
pub(super) fn header(log: &mut File, at: u64, length: u64) -> io::Result<Option<Header>> {
    if at + HEADER as u64 > length {
        return Ok(None);
    }
    let mut bytes = [0; HEADER];
    log.seek(SeekFrom::Start(at))?;
    log.read_exact(&mut bytes)?;
    let (checksum, mut rest) = bytes.split_at(4);
    let is_whole = checksum == (crc32fast::hash(rest) ^ u32::MAX).to_le_bytes();
    let mut position = || snapshot::fixed(&mut rest).map(|bytes| bytes ^ (i64::MAX as u64));
    let header = position().zip(position()).filter(|_| is_whole);
    // Before anything was synced it is one below zero.
    let synced = |synced: u64| i64::try_from(synced).map_or(0, i64::cast_unsigned);
    Ok(header.map(|(position, then)| Header { position, synced: synced(then) }))
}

/// Leaves the checksum for the next opening. Called when sled is gone and everything is synced.
pub(super) fn write_tail(folder: &Folder) -> io::Result<()> {
    let reaches = snapshot::newest(folder)?.map_or(0, |snapshot| snapshot.reaches);
    let checksum = checksum_from(folder, reaches)?;
    write_synced(&tail(folder), format!("{TAIL_PREFIX}{reaches} {checksum}\n").as_bytes())
}

/// What is wrong with the part of the log that sled is about to read, after a clean close; `None` if it is whole or
/// no checksum was left.
pub(super) fn damage_in_tail(folder: &Folder) -> io::Result<Option<StoreDamage>> {
    if folder.note()? == Note::None {
        return Ok(None);
    }
    let text = match fs::read(tail(folder)) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let numbers = text.trim_end().strip_prefix(TAIL_PREFIX).and_then(|numbers| numbers.split_once(' '));
    let numbers = numbers.and_then(|(reaches, sum)| Some((reaches.parse().ok()?, sum.parse::<u32>().ok()?)));
    let Some((reaches, left)) = numbers else { return Ok(Some(StoreDamage::Tail)) };
    let found = checksum_from(folder, reaches)?;
    Ok((found != left).then_some(StoreDamage::OtherChecksum { found, left }))
}

/// Puts the file with the checksum aside; tells where it is.
pub(super) fn put_tail_aside(folder: &Folder) -> io::Result<PathBuf> {
    Ok(folder.put_aside(&[tail(folder)])?.join(TAIL))
}

fn tail(folder: &Folder) -> PathBuf {
    folder.path().join(TAIL)
}
