//! What claimdb knows of sled's log and of the snapshots beside it: enough to tell damage that sled itself takes
//! for the log's end.
//!
//! sled opens by its newest snapshot and reads the log from there on. A byte that went bad in that part looks to it
//! like the torn tail of a crash: it cuts there and opens, and what came later is absent. So a clean close leaves
//! the checksum of that part in the file `tail`, and the next opening compares before sled may look. After an
//! unclean end a torn tail is to be expected, and nothing tells one from the other. A byte that cannot be read looks
//! the same to it, so all that it is about to read is read once before.
//!
//! Bytes before the newest snapshot are another matter: the snapshot says what must be there, and sled fails when
//! it reads them. For the same reason an intact snapshot is never put aside when sled refuses to open: without it
//! sled would open, with less. Only a snapshot that fails its own checksum is, and then the log must reach at least
//! as far as that snapshot did.

use super::SEGMENT_SIZE;
use crate::backend::folder::{Folder, files_in, sync_folder, write_synced};
use crate::clock::{Clock, SystemClock};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

const SEGMENT: u64 = SEGMENT_SIZE as u64;
const HEADER: usize = 20;
const TAIL_PREFIX: &str = "claimdb-tail 1 ";

/// sled's newest snapshot.
struct Snapshot {
    path: PathBuf,
    /// How far into the log it reaches, by sled's count.
    reaches: u64,
}

fn snapshots(folder: &Folder) -> io::Result<Vec<Snapshot>> {
    let snapshot = |path: PathBuf| {
        let reaches = path.file_name()?.to_str()?.strip_prefix("snap.")?;
        let reaches = u64::from_str_radix(reaches, 16).ok()?;
        Some(Snapshot { path, reaches })
    };
    let mut found: Vec<_> = files_in(&folder.engine())?.into_iter().filter_map(snapshot).collect();
    found.sort_by_key(|snapshot| snapshot.reaches);
    Ok(found)
}

fn newest(folder: &Folder) -> io::Result<Option<Snapshot>> {
    Ok(snapshots(folder)?.pop())
}

/// Whether a snapshot is what sled wrote: content, its length (8 bytes), its checksum (4 bytes).
fn is_whole(path: &Path) -> io::Result<bool> {
    let bytes = fs::read(path)?;
    let Some((content, checksum)) = bytes.len().checked_sub(12).map(|length| bytes.split_at(length)) else {
        return Ok(false);
    };
    Ok(checksum[8..] == crc32fast::hash(content).to_le_bytes() && !content.is_empty())
}

/// The checksum of what an opening reads which goes by a snapshot that reaches so far: segments of the log, and files
/// in `blobs/`.
fn checksum_from(folder: &Folder, reaches: u64) -> io::Result<u32> {
    let mut log = File::open(folder.engine().join("db"))?;
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
    let mut buffer = vec![0; 1 << 20];
    loop {
        match bytes.read(&mut buffer)? {
            0 => return Ok(()),
            read => checksum.update(&buffer[..read]),
        }
    }
}

/// Reads what sled is about to read. Where reading fails, sled takes the log to have ended, cuts it there, and opens.
/// What could be read is in the page cache now.
pub(super) fn read_through(folder: &Folder) -> io::Result<()> {
    if !folder.engine().join("db").exists() {
        return Ok(());
    }
    checksum_from(folder, newest(folder)?.map_or(0, |snapshot| snapshot.reaches)).map(drop)
}

/// Whether the segment at `at` is one that sled reads which starts at `first`. One whose header is not whole counts,
/// since it should have been.
fn is_read_from(log: &mut File, at: u64, length: u64, first: u64) -> io::Result<bool> {
    Ok(position(log, at, length)?.is_none_or(|position| position >= first))
}

/// Where the segment at `at` belongs in the log, by its header; `None` if that is not whole.
fn position(log: &mut File, at: u64, length: u64) -> io::Result<Option<u64>> {
    if at + HEADER as u64 > length {
        return Ok(None);
    }
    let mut header = [0; HEADER];
    log.seek(SeekFrom::Start(at))?;
    log.read_exact(&mut header)?;
    let (checksum, rest) = header.split_at(4);
    let is_whole = checksum == (crc32fast::hash(rest) ^ u32::MAX).to_le_bytes();
    let position = rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes) ^ (i64::MAX as u64));
    Ok(position.filter(|_| is_whole))
}

/// A segment of the log as it was before sled opened it.
pub(super) struct Kept {
    at: u64,
    bytes: Vec<u8>,
}

/// Keeps the segment in which the newest snapshot ends. sled reads it from its start; if it finds damage before that
/// end, it fills the rest of the segment with zeros, and then refuses to open.
pub(super) fn keep_segment(folder: &Folder) -> io::Result<Option<Kept>> {
    let Some(snapshot) = newest(folder)? else { return Ok(None) };
    let mut log = File::open(folder.engine().join("db"))?;
    let (length, first) = (log.metadata()?.len(), snapshot.reaches / SEGMENT * SEGMENT);
    for at in (0..length).step_by(SEGMENT_SIZE) {
        if position(&mut log, at, length)? == Some(first) {
            let mut bytes = Vec::new();
            log.seek(SeekFrom::Start(at))?;
            log.take(SEGMENT).read_to_end(&mut bytes)?;
            return Ok(Some(Kept { at, bytes }));
        }
    }
    Ok(None)
}

impl Kept {
    /// Puts it back as it was.
    pub(super) fn put_back(self, folder: &Folder) -> io::Result<()> {
        let mut log = OpenOptions::new().write(true).open(folder.engine().join("db"))?;
        log.seek(SeekFrom::Start(self.at))?;
        log.write_all(&self.bytes)?;
        log.sync_all()
    }
}

/// Leaves the checksum for the next opening. Called when sled is gone and everything is synced.
pub(super) fn write_tail(folder: &Folder) -> io::Result<()> {
    let reaches = newest(folder)?.map_or(0, |snapshot| snapshot.reaches);
    let checksum = checksum_from(folder, reaches)?;
    write_synced(&tail(folder), format!("{TAIL_PREFIX}{reaches} {checksum}\n").as_bytes())
}

/// What is wrong with the part of the log that sled is about to read, after a clean close; `None` if it is whole or
/// no checksum was left.
pub(super) fn damage_in_tail(folder: &Folder) -> io::Result<Option<String>> {
    let text = match fs::read_to_string(tail(folder)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let numbers = text.trim_end().strip_prefix(TAIL_PREFIX).and_then(|numbers| numbers.split_once(' '));
    let numbers = numbers.and_then(|(reaches, sum)| Some((reaches.parse().ok()?, sum.parse::<u32>().ok()?)));
    let Some((reaches, left)) = numbers else { return Ok(Some("its file `tail` cannot be read".to_owned())) };
    let found = checksum_from(folder, reaches)?;
    Ok((found != left).then(|| {
        format!("its log `sled/db` has checksum {found:08x} and was closed with {left:08x}; something changed it since")
    }))
}

fn tail(folder: &Folder) -> PathBuf {
    folder.path().join("tail")
}

/// Snapshots that were put aside, so that sled builds a new one from the log, and a copy of the log as it was.
pub(super) struct Aside {
    folder: PathBuf,
    engine: PathBuf,
    names: Vec<PathBuf>,
    /// How far the newest of them reached, by its name.
    reached: u64,
}

/// Puts the snapshots aside if the newest is not what sled wrote; `None` if it is, or there is none.
pub(super) fn put_bad_snapshots_aside(folder: &Folder) -> io::Result<Option<Aside>> {
    let found = snapshots(folder)?;
    let Some(newest) = found.last() else { return Ok(None) };
    if is_whole(&newest.path)? {
        return Ok(None);
    }
    let mut aside = Aside {
        folder: folder.path().join(format!("aside-{}", SystemClock::new().wall().utc())),
        engine: folder.engine(),
        names: Vec::new(),
        reached: newest.reaches,
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&aside.folder)?;
    // sled changes the log when it builds a snapshot from it.
    let copy = aside.folder.join("db");
    let copied = fs::copy(aside.engine.join("db"), &copy).and_then(|_| File::open(&copy)?.sync_all());
    if copied.is_err() {
        // There may be no room for it. Nothing was moved yet.
        let _ = fs::remove_file(&copy).and_then(|()| fs::remove_dir(&aside.folder));
    }
    copied?;
    for snapshot in found {
        let Some(name) = snapshot.path.file_name() else { continue };
        fs::rename(&snapshot.path, aside.folder.join(name))?;
        aside.names.push(name.into());
    }
    sync_folder(&aside.folder)?;
    sync_folder(folder.path())?;
    sync_folder(&aside.engine)?;
    Ok(Some(aside))
}

impl Aside {
    /// Whether the log that sled has now read reaches at least as far as it did before.
    pub(super) fn is_reached(&self, folder: &Folder) -> io::Result<bool> {
        Ok(newest(folder)?.is_some_and(|snapshot| snapshot.reaches >= self.reached))
    }

    /// The log that sled has built upon is whole: keeps the snapshots, and not the copy of the log.
    pub(super) fn keep(self) -> io::Result<()> {
        fs::remove_file(self.folder.join("db"))?;
        sync_folder(&self.folder)
    }

    /// Puts everything back as it was.
    pub(super) fn put_back(self, folder: &Folder) -> io::Result<()> {
        for built in snapshots(folder)? {
            fs::remove_file(built.path)?;
        }
        for name in self.names.iter().map(PathBuf::as_path).chain([Path::new("db")]) {
            fs::rename(self.folder.join(name), self.engine.join(name))?;
        }
        sync_folder(&self.engine)?;
        fs::remove_dir(&self.folder)
    }
}
