//! redb 4: the careful engine.
//!
//! What it does by itself: transactions over several keys, checksums on every page, an fsync of its file with each
//! durable commit, and refusing everything once an I/O error has been seen. What is done about the rest here:
//!
//! - It has one writer at a time, and a transaction costs more than what most commits do in it. [`queue`] puts the
//!   commits of many callers into one.
//! - A commit need not be durable before the next sync, so it is not: a later durable commit makes the earlier ones
//!   durable as well, and a sync is such a commit. Pages that were durable come free with durable commits alone, so
//!   those that nobody syncs are made durable now and then.
//! - Durable commits are in two phases: the pages first, what points to them after a sync of them. In one phase a
//!   checksum that is not cryptographic decides after a crash whether all pages are there.
//! - A new file that a crash left without its head is refused for ever. It is therefore made under another name.
//! - It panics on some damage. At opening, in writing and in reading that is caught.
//! - After a write that failed it refuses everything, reads included. [`room`] keeps a full disk from failing one.
//! - It writes when it opens a file, and refuses a damaged one that was not closed. Whoever only looks opens it by [`look`],
//!   which writes nothing; and so does first whoever opens what was closed cleanly, so that a refusal changes nothing.
//! - Reading looks at no checksum. [`look`] has them all looked at when that is asked for.
//! - What its fsync does not cover, the names of files and folders, is synced with the first sync of an opening.

mod errors;
mod look;
mod overlay;
mod queue;
mod room;
mod scan;

use super::files::sync_folder;
use super::folder::Folder;
use super::format::{self, Files};
use super::replace::{self, InFolder};
use super::{Backend, Commit, Engine, Swap, Visit};
use crate::error::{OpenError, StorageError};
use crate::sync::Mutex;
use ::redb::backends::FileBackend;
use ::redb::{
    AccessGuard, Builder, Database, Durability, Error, ReadOnlyTable, ReadableDatabase as _,
    ReadableTable as _, Table, TableDefinition,
};
use errors::{guarded, has_something, opened};
use queue::{Job, Queue};
use room::{Room, Roomy};
use scan::{Pair, Pairs};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const FILES: Files = format::REDB;
const TABLE: TableDefinition<'_, Bytes, Bytes> = TableDefinition::new("claimdb");
/// redb's cache when not set otherwise. Its own default is 1 GiB, which is much for something embedded.
const DEFAULT_CACHE: usize = 128 << 20;
/// So many transactions at most are made without one that is durable, so that what nobody syncs does not keep pages
/// for ever, and a kill does not take all of it.
const MOST_UNSYNCED: u32 = 4096;

/// A folder with a redb store in it.
///
/// ```
/// use claimdb::{Store, backend::Redb};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("claims");
/// let store = Store::builder(Redb::new(path).cache_capacity(32 << 20)).open()?;
/// store.claim("order-42")?.granted().expect("it is free").complete("receipt 7")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Redb {
    path: PathBuf,
    cache: usize,
    must_exist: bool,
}

impl Redb {
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

    /// How many bytes of pages redb keeps in memory; 128 MiB if not set, at least 1 MiB.
    #[must_use]
    pub fn cache_capacity(self, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { cache: bytes.max(1 << 20), ..self }
    }

    /// The database in `folder`, with the one table that it has.
    fn database(&self, folder: &Folder, room: &Arc<Room>) -> Result<Database, Error> {
        let (file, new) = (folder.main(), folder.engine().join("db.new"));
        let mut builder = Builder::new();
        builder.set_cache_size(self.cache);
        if !file.try_exists()? {
            DirBuilder::new().recursive(true).mode(0o700).create(folder.engine())?;
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
            let database = builder.create_with_backend(FileBackend::new(made)?)?;
            let transaction = database.begin_write()?;
            transaction.open_table(TABLE)?;
            transaction.commit()?;
            database.close()?;
            fs::rename(&new, &file)?;
            sync_folder(&folder.engine())?;
        }
        let file = FileBackend::new(OpenOptions::new().read(true).write(true).open(&file)?)?;
        Ok(builder.create_with_backend(Roomy { file, room: Arc::clone(room) })?)
    }

    /// The folder, locked, whole and fit to be read. A store that must be there is not made.
    fn locked(&self, must_exist: bool) -> Result<Folder, OpenError> {
        if must_exist {
            Folder::must_be_there(&self.path, FILES)?;
        }
        let folder = Folder::lock(&self.path, FILES)?;
        replace::mend(&folder)?;
        folder.has_main()?;
        folder.read_anew()?;
        Ok(folder)
    }

    fn open_engine(&self) -> Result<RedbEngine, OpenError> {
        let folder = self.locked(self.must_exist)?;
        folder.has_sound_note()?;
        let place = folder.name();
        let folder = Arc::new(folder);
        if let Some(damage) = other_length(&folder)? {
            return Err(self.with_remedy(damage, &folder));
        }
        if folder.was_closed_with()?.is_some() {
            self.opens(&folder)?;
        }
        folder.prepare()?;
        let room = Arc::new(Room::new(&folder));
        let database = catch_unwind(AssertUnwindSafe(|| self.database(&folder, &room)));
        let database = opened(database, &place).map_err(|refused| self.with_remedy(refused, &folder))?;
        room.take();
        let database = Some(database);
        let (queue, synced) = (Queue::default(), Mutex::new(Synced::default()));
        let engine = RedbEngine { database, queue, synced, room, folder };
        let mut page = Vec::new();
        let read = catch_unwind(AssertUnwindSafe(|| engine.read_page(b"", None, &mut page)));
        has_something(read, &page, &engine.folder)
            .map_err(|refused| self.with_remedy(refused, &engine.folder))?;
        Ok(engine)
    }
}

/// What tells that redb's file has another length than it was closed with. redb writes nothing to one that is closed.
fn other_length(folder: &Folder) -> Result<Option<OpenError>, OpenError> {
    let damage = folder.other_length().map_err(folder.failed("reading the file `clean` in"))?;
    Ok(damage.map(|damage| OpenError::damaged(folder.name(), &damage)))
}

/// Syncs what redb's own syncs leave out.
fn sync_names(folder: &Folder) -> io::Result<()> {
    File::open(folder.main())?.sync_all()?;
    sync_folder(&folder.engine())?;
    sync_folder(folder.path())
}

impl InFolder for Redb {
    fn open_in_folder(&self) -> Result<(Box<dyn Engine>, Arc<Folder>), OpenError> {
        let engine = self.look()?;
        let folder = Arc::clone(engine.folder());
        Ok((Box::new(engine), folder))
    }

    fn elsewhere(&self, path: PathBuf) -> Box<dyn Backend> {
        Box::new(Self { path, cache: self.cache, must_exist: false })
    }

    fn make_openable(&self) -> Result<Option<PathBuf>, OpenError> {
        let folder = Arc::new(self.locked(true)?);
        if folder.has_sound_note().is_err() {
            // If redb opens nothing, nothing is changed.
            self.look_into(Arc::clone(&folder))?;
            folder.without_damaged_note()?;
        }
        Ok(None)
    }
}

impl Backend for Redb {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        self.open_engine().map(|engine| Box::new(engine) as _)
    }

    fn open_to_look(&self) -> Result<Box<dyn Engine>, OpenError> {
        self.look().map(|engine| Box::new(engine) as _)
    }
}

struct RedbEngine {
    /// `None` only while being dropped.
    database: Option<Database>,
    queue: Queue,
    synced: Mutex<Synced>,
    room: Arc<Room>,
    // Dropped last: it holds the lock, unless somebody goes on holding it.
    folder: Arc<Folder>,
}

/// What is durable, and whether a sync failed.
#[derive(Debug, Default)]
struct Synced {
    /// The names of files and folders, once and for all.
    names: bool,
    /// Transactions since the last durable one.
    unsynced: u32,
    failed: bool,
}

impl RedbEngine {
    fn database(&self) -> &Database {
        self.database.as_ref().expect("only drop takes it out, and nobody calls after that")
    }

    fn table(&self) -> Result<ReadOnlyTable<Bytes, Bytes>, Error> {
        Ok(self.database().begin_read()?.open_table(TABLE)?)
    }

    fn read_page(&self, prefix: &[u8], after: Option<&[u8]>, page: &mut Vec<Pair>) -> Result<(), Error> {
        Pairs::behind(&self.table()?, prefix, after)?.read_page(prefix, page).map(drop)
    }

    /// Calls redb, and tells a panic as an error.
    fn guarded<T>(
        &self,
        doing: &'static str,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, StorageError> {
        guarded(doing, &self.folder, call)
    }

    /// Does all jobs in one transaction. Whoever leads the queue is here alone.
    fn write(&self, jobs: &[Arc<Job>]) -> Result<Vec<Vec<Swap>>, StorageError> {
        self.guarded("writing to", || self.transact(jobs))
    }

    fn transact(&self, jobs: &[Arc<Job>]) -> Result<Vec<Vec<Swap>>, Error> {
        let unsynced = self.synced.lock().unsynced + 1;
        let durable = unsynced >= MOST_UNSYNCED || jobs.iter().any(|job| job.wants_sync());
        let mut transaction = self.database().begin_write()?;
        if durable {
            transaction.set_two_phase_commit(true);
        } else {
            transaction.set_durability(Durability::None)?;
        }
        let swaps = {
            let mut table = transaction.open_table(TABLE)?;
            let mut swap_all =
                |job: &Arc<Job>| job.commits().map(|commit| swap(&mut table, &commit)).collect();
            jobs.iter().map(&mut swap_all).collect::<Result<_, _>>()?
        };
        transaction.commit()?;
        self.synced.lock().unsynced = if durable { 0 } else { unsynced };
        Ok(swaps)
    }

    fn try_sync(&self) -> Result<(), StorageError> {
        self.queue.add(Job::sync(), |jobs| self.write(jobs))?;
        if !self.synced.lock().names {
            let synced = sync_names(&self.folder);
            synced.map_err(|error| StorageError::new("syncing", self.folder.name(), error))?;
            self.synced.lock().names = true;
        }
        self.folder.is_there()?;
        self.folder.exists_now()
    }

    /// Closes redb, and tells whether all is durable.
    fn close(&mut self) -> bool {
        let Some(database) = self.database.take() else { return false };
        // It makes a last commit, which can find damage as any other.
        let closed = catch_unwind(AssertUnwindSafe(|| database.close()));
        matches!(closed, Ok(Ok(()))) && !self.synced.lock().failed && sync_names(&self.folder).is_ok()
    }
}

type Bytes = &'static [u8];

fn swap(table: &mut Table<'_, Bytes, Bytes>, commit: &Commit<'_>) -> Result<Swap, ::redb::StorageError> {
    for hint in commit.hints {
        put(table, &hint.key, hint.value.as_deref())?;
    }
    let current = table.get(commit.key)?;
    if current.as_ref().map(AccessGuard::value) != commit.expected {
        return Ok(Swap::Refused { current: current.map(|value| value.value().to_vec()) });
    }
    drop(current);
    put(table, commit.key, commit.new)?;
    for effect in commit.effects {
        put(table, &effect.key, effect.value.as_deref())?;
    }
    Ok(Swap::Done)
}

fn put(
    table: &mut Table<'_, Bytes, Bytes>,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(), ::redb::StorageError> {
    match value {
        Some(value) => table.insert(key, value).map(drop),
        None => table.remove(key).map(drop),
    }
}

impl fmt::Debug for RedbEngine {
    /// Shows where it is, not what is in it: keys and values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbEngine").field("folder", &self.folder.path()).finish_non_exhaustive()
    }
}

impl Engine for RedbEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.guarded("reading from", || Ok(self.table()?.get(key)?.map(|value| value.value().to_vec())))
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        if commits.is_empty() {
            return Vec::new();
        }
        match self.queue.add(Job::commits_of(commits), |jobs| self.write(jobs)) {
            Ok(swaps) => swaps.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); commits.len()],
        }
    }

    /// A page at a time, with no read transaction meanwhile: one that is held keeps every page that is replaced since.
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let mut after = after.map(<[u8]>::to_vec);
        loop {
            let mut page = Vec::new();
            let read = self.guarded("scanning", || self.read_page(prefix, after.as_deref(), &mut page));
            for (key, value) in &page {
                if visit(key, value) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
            read?;
            let Some((last, _)) = page.into_iter().next_back() else { return Ok(()) };
            after = Some(last);
        }
    }

    fn room(&self) -> Result<(), StorageError> {
        self.room.check()
    }

    fn size(&self) -> Result<Option<u64>, StorageError> {
        self.folder.size().map(Some)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.try_sync().inspect_err(|_| self.synced.lock().failed = true)
    }
}

impl Drop for RedbEngine {
    fn drop(&mut self) {
        if self.close() {
            self.folder.closed_cleanly();
        }
    }
}
