//! sled 0.34.7: the default engine.
//!
//! What it does not do by itself, and what is done about it here:
//!
//! - Its flush does not survive a power cut. [`barrier`] syncs the files themselves.
//! - It can open "successfully" with nothing in it when its file was cut short. The file `format`, written after
//!   the first sync, says that there was something.
//! - A half-written snapshot stops it from opening. Strays are removed first; they are never needed.
//! - It takes a read that fails for the end of its log, fills the rest with zeros and opens, with less. So [`recovery`]
//!   reads the log for it, and leaves it a [`snapshot`] that knows all. One that is damaged is put aside.
//! - It takes damage in the log for its end as well. [`log`] finds what can be found of that, [`mod@examine`] what helps.
//! - When it cannot make a file in `blobs/`, its next flush waits for ever. From then on syncs fail instead.
//! - A full disk leaves it unusable, and an opening needs room. [`room`] takes that ahead.
//! - It panics on some damage, when opening and when dropped after a failed sync. Both are caught.
//! - Its transactions are slow, and once one was used in a process, all else is slower too. They are used only
//!   for commits with effects.
//! - Above a leaf size it writes to files of its own (`blobs/`), whose handling at open is fragile. Segments of
//!   8 MiB put that size at 2 MiB: with leaves of at most 17 items, values below 100 KiB never get there, and larger
//!   ones rarely. The barrier covers them as well.
//! - With segments of 16 MiB, the largest it takes, it writes over its own buffer whenever that is filled to its last byte.
//! - Its background flusher is off: group commit syncs.

mod barrier;
mod errors;
mod examine;
mod lock;
mod log;
mod messages;
mod recovery;
mod room;
mod snapshot;

use super::folder::Folder;
use super::format::{self, Files};
use super::readable::panic_text;
use super::replace::{self, InFolder};
use super::{Backend, Commit, Engine, Swap, Visit, Write};
use crate::error::{OpenError, Remedy, StorageError, StoreDamage};
use crate::sync::Mutex;
use crate::telemetry::opening;
use barrier::Barrier;
use errors::{call_error, open_error};
use examine::{Examined, examine};
use lock::SledsLock;
use room::Room;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Fixed when a store is created.
const SEGMENT_SIZE: usize = 8 << 20;
/// sled counts the bytes in a buffer, which is as large as a segment, in 24 bits. One more, in a buffer of 16 MiB that is
/// filled to its last byte, reads as an empty buffer that somebody writes to for ever (`pagecache/header.rs`).
const _: () = assert!(SEGMENT_SIZE < 1 << 24, "sled would lose count of a full buffer");
const FILES: Files = format::SLED;
/// sled's cache when not set otherwise. Its own default is 1 GiB, which is much for something embedded.
const DEFAULT_CACHE: u64 = 128 << 20;

/// A folder with a sled store in it. [`Store::open`](crate::Store::open) is a store over one with the default settings.
///
/// ```
/// use claimdb::{Store, backend::Sled};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("claims");
/// let store = Store::builder(Sled::new(path).cache_capacity(32 << 20)).open()?;
/// store.claim("order-42")?.granted().expect("it is free").complete("receipt 7")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sled {
    path: PathBuf,
    cache: u64,
    must_exist: bool,
}

impl Sled {
    /// The store in the folder `path`, which is created if it is not there yet.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), cache: DEFAULT_CACHE, must_exist: false }
    }

    /// The store in the folder `path`, which must be one. Opening a path where there is none fails as
    /// [`OpenError::NoStore`], that of a file as [`OpenError::NotAFolder`], and nothing is created.
    #[must_use]
    pub fn existing(path: impl AsRef<Path>) -> Self {
        Self { must_exist: true, ..Self::new(path) }
    }

    /// How many bytes of pages sled keeps in memory; 128 MiB if not set, at least 1 MiB.
    #[must_use]
    pub fn cache_capacity(self, bytes: u64) -> Self {
        Self { cache: bytes.max(1 << 20), ..self }
    }
}

impl Backend for Sled {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        self.open_engine().map(|engine| Box::new(engine) as _)
    }
}

impl InFolder for Sled {
    fn open_in_folder(&self) -> Result<(Box<dyn Engine>, Arc<Folder>), OpenError> {
        let engine = self.open_engine()?;
        let folder = Arc::clone(&engine.folder);
        Ok((Box::new(engine), folder))
    }

    fn elsewhere(&self, path: PathBuf) -> Box<dyn Backend> {
        Box::new(Self { path, cache: self.cache, must_exist: false })
    }

    fn note_files(&self, folder: &Folder) -> io::Result<()> {
        log::write_tail(folder)
    }

    fn make_openable(&self) -> Result<Option<PathBuf>, OpenError> {
        let folder = self.locked()?;
        let tail_in = match examine(&folder)? {
            Examined::Sound(_) => None,
            Examined::Mendable { mend, .. } => mend.carry_out(&folder)?,
            Examined::Lost(lost) => {
                return Err(OpenError::damaged_with(folder.name(), &lost, Remedy::Backup));
            }
        };
        folder.without_damaged_note().map(|()| tail_in)
    }
}

impl Sled {
    /// The folder, locked, whole and fit to be read.
    fn locked(&self) -> Result<Folder, OpenError> {
        if self.must_exist {
            Folder::must_be_there(&self.path, FILES)?;
        }
        let folder = Folder::lock(&self.path, FILES)?;
        replace::mend(&folder)?;
        folder.has_main().and_then(|()| folder.is_not_cut())?;
        folder.read_anew()?;
        Ok(folder)
    }

    fn open_engine(&self) -> Result<SledEngine, OpenError> {
        let folder = self.locked()?;
        folder.has_sound_note()?;
        let damaged = |damage, remedy| Err(OpenError::damaged_with(folder.name(), &damage, remedy));
        let plan = match examine(&folder)? {
            Examined::Sound(plan) => plan,
            Examined::Mendable { damage, .. } => return damaged(damage, Remedy::Repair),
            Examined::Lost(damage) => return damaged(damage, Remedy::Backup),
        };
        room::release(&folder).map_err(folder.failed("giving reserved room back in"))?;
        snapshot::clear_half_written(&folder).map_err(folder.failed("preparing the files in"))?;
        folder.prepare()?;
        make_private(&folder).map_err(folder.failed("making sled's folder in"))?;
        forget_damaged_conf(&folder).map_err(folder.failed("reading sled's `conf` in"))?;
        let end = plan.map(|plan| plan.carry_out(&folder)).transpose();
        let end = end.map_err(folder.failed("writing a snapshot for sled in"))?.flatten();
        let opened = self.open_sled(&folder);
        if let Some(end) = end.filter(|end| !end.is_as_it_was(&folder)) {
            // Dropping it syncs, and panics if that fails. It may hold its lock for a moment after that.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(opened)));
            if let Ok(barrier) = Barrier::new(&folder) {
                barrier.wait_for_sleds_lock();
            }
            end.put_back(&folder).map_err(folder.failed("putting back what sled cut off in"))?;
            opening::mended("sled had cut its log at a read that failed, and that is put back");
            let reason = "a part of its log that had just been read could not be read again; nothing was lost. Look at \
                          the disk";
            return Err(folder.failed("opening sled in")(io::Error::other(reason)));
        }
        let (db, config) = opened?;
        // The token ceiling at least has been there since before the folder was marked.
        if folder.existed() && (!db.was_recovered() || db.is_empty()) {
            return Err(OpenError::damaged(folder.name(), &StoreDamage::NothingFound { engine: "sled" }));
        }
        let (barrier, room) = (Barrier::new(&folder)?, Room::new(&folder)?);
        let lock = SledsLock::find(&folder.main());
        let stuck = Mutex::new(false);
        Ok(SledEngine { db: Some(db), config, stuck, lock, barrier, room, folder: Arc::new(folder) })
    }

    fn open_sled(&self, folder: &Folder) -> Result<(::sled::Db, ::sled::Config), OpenError> {
        let config = ::sled::Config::new()
            .path(folder.engine())
            .cache_capacity(self.cache)
            .segment_size(SEGMENT_SIZE)
            .flush_every_ms(None);
        match catch_unwind(AssertUnwindSafe(|| config.open())) {
            Ok(Ok(db)) => Ok((db, config)),
            Ok(Err(error)) => Err(open_error(folder.name(), error)),
            Err(panic) => {
                let damage = StoreDamage::EngineSays { engine: "sled", said: panic_text("sled", &*panic) };
                Err(OpenError::damaged(folder.name(), &damage))
            }
        }
    }
}

/// Makes sled's folders and the files that it would make as the umask says, before it does. sled takes an empty log and
/// an empty `conf` for none.
fn make_private(folder: &Folder) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder.blobs())?;
    for file in [folder.main(), folder.engine().join("conf")] {
        OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    }
    Ok(())
}

/// Empties a `conf` that is damaged, or that a first opening was writing when it was cut off; sled makes it anew, with the
/// settings that it is opened with. It writes it in two steps and looks at its checksum only to warn: without the second step it
/// reads the version as 0.3, and would never open the folder again.
fn forget_damaged_conf(folder: &Folder) -> io::Result<()> {
    let conf = folder.engine().join("conf");
    let written = fs::read(&conf)?;
    let is_whole =
        |(settings, checksum): (&[u8], &[u8; 4])| *checksum == crc32fast::hash(settings).to_le_bytes();
    if written.split_last_chunk().is_some_and(is_whole) {
        return Ok(());
    }
    if folder.existed() && !written.is_empty() {
        opening::mended("sled's file `conf` was damaged, and is made anew");
    }
    OpenOptions::new().write(true).truncate(true).open(conf).map(drop)
}

struct SledEngine {
    /// `None` only while being dropped.
    db: Option<::sled::Db>,
    config: ::sled::Config,
    /// Whether sled waits for ever for a write that has failed.
    stuck: Mutex<bool>,
    lock: SledsLock,
    barrier: Barrier,
    room: Room,
    // Dropped last: it holds the lock, unless somebody goes on holding it.
    folder: Arc<Folder>,
}

impl SledEngine {
    fn db(&self) -> &::sled::Db {
        self.db.as_ref().expect("only drop takes it out, and nobody calls after that")
    }

    fn error(&self, doing: &'static str, error: ::sled::Error) -> StorageError {
        call_error(doing, self.folder.name(), error)
    }

    /// What a failed write leaves behind. An error of the log is one that sled remembers, and every later call fails.
    /// If it could not make or write a file in `blobs/`, it forgets the error and not the write: the next flush would
    /// wait for that for ever.
    fn write_failed(&self, error: ::sled::Error) -> StorageError {
        if matches!(error, ::sled::Error::Io(_)) && self.config.global_error().is_ok() {
            *self.stuck.lock() = true;
        }
        self.error("writing to", error)
    }

    fn swap(&self, commit: &Commit<'_>) -> Result<Swap, ::sled::Error> {
        for Write { key, value } in commit.hints {
            match value {
                Some(value) => self.db().insert(key, value.as_slice())?,
                None => self.db().remove(key)?,
            };
        }
        if !commit.effects.is_empty() {
            return self.transaction(commit);
        }
        match self.db().compare_and_swap(commit.key, commit.expected, commit.new)? {
            Ok(()) => Ok(Swap::Done),
            Err(refused) => Ok(Swap::Refused { current: refused.current.map(|value| value.to_vec()) }),
        }
    }

    fn transaction(&self, commit: &Commit<'_>) -> Result<Swap, ::sled::Error> {
        use ::sled::transaction::{ConflictableTransactionError, TransactionError};
        let outcome = self.db().transaction(|tree| {
            let current = tree.get(commit.key)?;
            if current.as_deref() != commit.expected {
                let current = current.map(|value| value.to_vec());
                return Err(ConflictableTransactionError::Abort(current));
            }
            let record = std::iter::once((commit.key, commit.new));
            let effects = commit.effects.iter().map(|w| (w.key.as_slice(), w.value.as_deref()));
            for (key, value) in record.chain(effects) {
                match value {
                    Some(value) => tree.insert(key, value)?,
                    None => tree.remove(key)?,
                };
            }
            Ok(())
        });
        match outcome {
            Ok(()) => Ok(Swap::Done),
            Err(TransactionError::Abort(current)) => Ok(Swap::Refused { current }),
            Err(TransactionError::Storage(error)) => Err(error),
        }
    }
}

impl fmt::Debug for SledEngine {
    /// Shows where it is. sled would show all keys and values, which do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledEngine").field("folder", &self.folder.path()).finish_non_exhaustive()
    }
}

impl Engine for SledEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.db().get(key).map_err(|error| self.error("reading from", error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let swap = |commit| self.swap(commit).map_err(|error| self.write_failed(error));
        commits.iter().map(swap).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        for pair in self.db().range::<&[u8], _>((from, Bound::Unbounded)) {
            let (key, value) = pair.map_err(|error| self.error("scanning", error))?;
            if !key.starts_with(prefix) || visit(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn room(&self) -> Result<(), StorageError> {
        self.room.check()
    }

    fn size(&self) -> Result<Option<u64>, StorageError> {
        self.folder.size().map(Some)
    }

    fn sync(&self) -> Result<(), StorageError> {
        let (stuck, known) = (*self.stuck.lock(), self.barrier.known());
        let synced = if stuck {
            let source = "sled could not write a file in `blobs/` earlier, and its flush would wait for that for ever; look \
                          at the disk, then close the store and open it again";
            Err(StorageError::new("flushing", self.folder.name(), source))
        } else {
            match catch_unwind(AssertUnwindSafe(|| self.db().flush())) {
                Ok(Ok(_)) => self.barrier.sync(known),
                Ok(Err(error)) => Err(self.error("flushing", error)),
                Err(panic) => {
                    Err(StorageError::new("flushing", self.folder.name(), panic_text("sled", &*panic)))
                }
            }
        };
        let noted = synced.and_then(|()| self.folder.is_there()).and_then(|()| {
            self.room.take();
            self.folder.exists_now()
        });
        // Whatever failed of it, the next opening is to read everything anew (rule 7).
        noted.inspect_err(|_| self.barrier.failed())
    }
}

impl Drop for SledEngine {
    fn drop(&mut self) {
        let db = self.db.take();
        if *self.stuck.lock() {
            // Dropping it flushes. It stays as it is, with nobody left to call it, until the process ends.
            std::mem::forget(db);
            self.lock.give_back();
            return;
        }
        // sled unwraps a last sync of its own here.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(db))).is_ok();
        match self.lock.sled_has_it() {
            Some(_) => self.barrier.wait_until(|| self.lock.sled_has_it() != Some(true)),
            None => self.barrier.wait_for_sleds_lock(),
        }
        self.lock.give_back();
        // Without its tail's checksum a store does not count as closed cleanly.
        if dropped && self.barrier.close().is_ok() && log::write_tail(&self.folder).is_ok() {
            self.folder.closed_cleanly();
        }
    }
}
