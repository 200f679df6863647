//! An engine that keeps everything in memory, and a file of all that was synced.
//!
//! ```text
//! journal: "JOURNAL1" | end (u64) | crc32 of it | entries up to end | what an unfinished sync has left
//! entry:   crc32 of the rest | length of the key (u32) | length of the value (u32; 2^32 - 1: deleted) | key | value
//! ```
//!
//! All numbers are little endian. A sync writes the entries first and syncs them, then the end and syncs that. So what
//! comes after the end is what no finished sync covers, and is not looked at; what comes before it must be whole, else the
//! file is damaged. That the end is written whole or not is the disk's: it lies in one sector.
//!
//! What an engine has to promise is listed in `claimdb::backend`; where this one does so is said below.

use claimdb::backend::{Backend, Commit, Engine, Swap, Visit, Write};
use claimdb::{OpenError, StorageError};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::ops::Bound;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const MAGIC: &[u8; 8] = b"JOURNAL1";
const HEAD: u64 = 20;
/// The length that says that a key was deleted.
const DELETED: u32 = u32::MAX;
/// How many pairs a scan takes at a time.
const PAGE: usize = 64;

/// A folder.
#[derive(Debug)]
pub struct Journal(PathBuf);

impl Journal {
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self(folder.as_ref().to_owned())
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> OpenError {
        let place = self.place();
        move |error| {
            let source = StorageError::new(doing, &place, error);
            OpenError::Storage { place: place.clone(), source }
        }
    }
}

impl Backend for Journal {
    fn place(&self) -> String {
        self.0.display().to_string()
    }

    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        fs::create_dir_all(&self.0).map_err(self.failed("creating"))?;
        // Promised: one engine of a place is open, in all processes. The lock goes with this file, also if the process is
        // killed.
        let lock = File::create(self.0.join("lock")).map_err(self.failed("locking"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { place: self.place(), holder: String::new() });
            }
            Err(TryLockError::Error(error)) => return Err(self.failed("locking")(error)),
        }
        let map = read(&self.0.join("journal")).map_err(self.failed("reading"))?;
        // What is alive is written anew, and takes the old file's place when it is on the disk: so the file stops growing,
        // and everything that this engine tells is durable from the start, even what only the page cache had (promised).
        let (file, end) = rewrite(&self.0, &map).map_err(self.failed("writing to"))?;
        let disk = Mutex::new(Disk { file, end, broken: false });
        Ok(Box::new(Open {
            place: self.place(),
            memory: Mutex::new(Memory { map, unsynced: Vec::new() }),
            disk,
            lock,
        }))
    }
}

/// What the journal holds; nothing if there is none yet.
fn read(path: &Path) -> io::Result<Map> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Map::new()),
        bytes => bytes?,
    };
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{what} is damaged"));
    let head = bytes.get(..HEAD as usize).ok_or_else(|| damaged("its head"))?;
    let (magic, end) = (&head[..8], &head[8..16]);
    if magic != MAGIC || crc32fast::hash(end).to_le_bytes() != head[16..] {
        return Err(damaged("its head"));
    }
    let end = u64::from_le_bytes(end.try_into().expect("eight bytes"));
    let end = usize::try_from(end).map_err(|_| damaged("its end"))?;
    let mut rest = bytes.get(HEAD as usize..end).ok_or_else(|| damaged("its end"))?;
    let mut map = Map::new();
    while !rest.is_empty() {
        let Entry { key, value } = next(&mut rest).ok_or_else(|| damaged("an entry"))?;
        match value {
            Some(value) => map.insert(key.to_vec(), value.to_vec()),
            None => map.remove(key),
        };
    }
    Ok(map)
}

struct Entry<'a> {
    key: &'a [u8],
    /// `None` if it was deleted.
    value: Option<&'a [u8]>,
}

/// Takes the first entry off `bytes`; `None` if it is damaged.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<Entry<'a>> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (sum, key, value) = (number(0)?, number(4)? as usize, number(8)?);
    let length = if value == DELETED { 0 } else { value as usize };
    let entry;
    (entry, *bytes) = bytes.split_at_checked(12_usize.checked_add(key)?.checked_add(length)?)?;
    if crc32fast::hash(&entry[4..]) != sum {
        return None;
    }
    let (key, kept) = entry[12..].split_at(key);
    Some(Entry { key, value: (value != DELETED).then_some(kept) })
}

fn append(entries: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    let length =
        |bytes: &[u8]| u32::try_from(bytes.len()).expect("claimdb's keys and values are far shorter");
    let start = entries.len();
    entries.extend([0; 4]);
    entries.extend(length(key).to_le_bytes());
    entries.extend(value.map_or(DELETED, length).to_le_bytes());
    entries.extend(key);
    entries.extend(value.unwrap_or_default());
    let sum = crc32fast::hash(&entries[start + 4..]);
    entries[start..start + 4].copy_from_slice(&sum.to_le_bytes());
}

fn head(end: u64) -> Vec<u8> {
    let end = end.to_le_bytes();
    [&MAGIC[..], &end, &crc32fast::hash(&end).to_le_bytes()].concat()
}

fn rewrite(folder: &Path, map: &Map) -> io::Result<(File, u64)> {
    let (new, path) = (folder.join("journal.new"), folder.join("journal"));
    let mut entries = Vec::new();
    for (key, value) in map {
        append(&mut entries, key, Some(value));
    }
    let end = HEAD + entries.len() as u64;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
    file.write_all(&[head(end), entries].concat())?;
    file.sync_all()?;
    fs::rename(new, path)?;
    File::open(folder)?.sync_all()?; // else the new name may be gone after a power cut
    Ok((file, end))
}

#[derive(Debug)]
struct Open {
    place: String,
    memory: Mutex<Memory>,
    /// Held by the one who syncs, who takes what is to be written from memory while it has this.
    disk: Mutex<Disk>,
    #[expect(dead_code, reason = "the place is this engine's until it is dropped")]
    lock: File,
}

struct Memory {
    map: Map,
    /// Entries of what no sync has taken yet, in the order in which it was committed.
    unsynced: Vec<u8>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("keys", &self.map.len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Disk {
    file: File,
    end: u64,
    /// Whether a sync has failed: nobody knows what is in the file then, so nothing is written any more.
    broken: bool,
}

impl Memory {
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        append(&mut self.unsynced, key, value);
        match value {
            Some(value) => self.map.insert(key.to_vec(), value.to_vec()),
            None => self.map.remove(key),
        };
    }

    fn write_all(&mut self, writes: &[Write]) {
        for Write { key, value } in writes {
            self.write(key, value.as_deref());
        }
    }
}

impl Engine for Open {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.memory.lock().unwrap_or_else(PoisonError::into_inner).map.get(key).cloned())
    }

    /// Promised: each commit is judged on its own, in order, and atomic among all callers, which one lock gives. Hints land
    /// whatever becomes of the swap, effects with it or not at all.
    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let judge = |commit: &Commit<'_>| {
            memory.write_all(commit.hints);
            let current = memory.map.get(commit.key);
            if current.map(Vec::as_slice) != commit.expected {
                return Ok(Swap::Refused { current: current.cloned() });
            }
            memory.write(commit.key, commit.new);
            memory.write_all(commit.effects);
            Ok(Swap::Done)
        };
        commits.iter().map(judge).collect()
    }

    /// Promised: `visit` may call the engine. So it is called without the lock, and each page is found anew.
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let mut from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.to_vec()),
            _ => Bound::Included(prefix.to_vec()),
        };
        loop {
            let page: Vec<_> = {
                let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
                let pairs = memory.map.range((from, Bound::Unbounded));
                let pairs = pairs.take_while(|(key, _)| key.starts_with(prefix));
                pairs.take(PAGE).map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            for (key, value) in &page {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            let Some((last, _)) = page.into_iter().next_back() else { return Ok(()) };
            from = Bound::Excluded(last);
        }
    }

    /// Promised: when it returns, everything is durable that returned before it began. All of it is in what is taken here,
    /// or was taken by a sync that had this lock before and has ended.
    fn sync(&self) -> Result<(), StorageError> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut memory.unsynced)
        };
        disk.write(&entries).map_err(|error| StorageError::new("syncing", &self.place, error))
    }
}

impl Disk {
    fn write(&mut self, entries: &[u8]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier sync has failed"));
        }
        self.broken = true;
        if !entries.is_empty() {
            self.file.write_all_at(entries, self.end)?;
            self.file.sync_data()?;
            self.end += entries.len() as u64;
            self.file.write_all_at(&head(self.end), 0)?;
            self.file.sync_data()?;
        }
        self.broken = false;
        Ok(())
    }
}

impl Drop for Open {
    /// What was committed survives close and open, though not a power cut before the next sync.
    fn drop(&mut self) {
        if let Err(error) = self.sync() {
            eprintln!("closing {}: {error}", self.place);
        }
    }
}
