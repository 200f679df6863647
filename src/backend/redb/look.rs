//! redb for those who only look: nothing on the disk changes, whatever they are cut off at.
//!
//! Opened is the file as ever, over an [`Overlay`]. Where redb refuses that for damage, it is opened as by a process that reads
//! beside one that writes: redb then looks neither at its map of free pages nor whether the file was closed, and reads what
//! the last durable commit has left. In two phases, as all of claimdb's are, that commit is whole on the disk. So a
//! repair gets past a map that is damaged, and past damage under a file that was open when its machine crashed.

use super::errors::{guarded, has_something, opened};
use super::overlay::Overlay;
use super::scan::{Pair, Pairs, Search};
use super::{Bytes, Redb, TABLE, other_length, scan};
use crate::backend::folder::Folder;
use crate::backend::{Commit, Engine, Swap, Visit};
use crate::error::{OpenError, Remedy, StorageError};
use ::redb::{
    Builder, ConcurrencyMode, Database, Error, ReadOnlyDatabase, ReadOnlyTable, ReadTransaction,
    ReadableDatabase as _, ReadableTable as _,
};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(super) struct LookEngine {
    /// `None` only while being dropped.
    database: Option<Opened>,
    // Dropped last: it holds the lock, unless somebody goes on holding it.
    folder: Arc<Folder>,
}

impl Redb {
    /// Opens what there is, to be read.
    pub(super) fn look(&self) -> Result<LookEngine, OpenError> {
        let folder = self.locked(true)?;
        folder.has_sound_note()?;
        self.look_into(Arc::new(folder))
    }

    /// The same in a folder whose lock is held, whatever the note of the last close is.
    pub(super) fn look_into(&self, folder: Arc<Folder>) -> Result<LookEngine, OpenError> {
        if !folder.main().exists() {
            return Err(OpenError::NoStore { place: folder.name() });
        }
        match self.open_whole(&folder).and_then(LookEngine::with_a_beginning_or_end) {
            // That it was cut tells more than what redb finds amiss.
            Err(refused @ OpenError::Damaged { .. }) => match self.open_beside(&folder) {
                Ok(beside) => Ok(beside),
                Err(_) => Err(other_length(&folder)?.unwrap_or(refused)),
            },
            opened => opened,
        }
    }

    /// Whether redb opens what is in `folder`. If it does not, tells whether a repair gets past that.
    pub(super) fn opens(&self, folder: &Arc<Folder>) -> Result<(), OpenError> {
        let opened = self.open_whole(folder).and_then(LookEngine::with_a_beginning);
        opened.map(drop).map_err(|refused| self.with_remedy(refused, folder))
    }

    /// What redb refused a file with, and whether a repair gets past that.
    pub(super) fn with_remedy(&self, refused: OpenError, folder: &Arc<Folder>) -> OpenError {
        refused.or_with(|| self.open_beside(folder).map_or(Remedy::Backup, |_| Remedy::Repair))
    }

    fn open_whole(&self, folder: &Arc<Folder>) -> Result<LookEngine, OpenError> {
        self.open_with(folder, overlay, |builder, overlay| {
            Ok(Opened::Whole(builder.create_with_backend(overlay)?))
        })
    }

    fn open_beside(&self, folder: &Arc<Folder>) -> Result<LookEngine, OpenError> {
        let open = |over: fn(&Folder) -> io::Result<Overlay>| {
            let opened = self.open_with(folder, over, |builder, overlay| {
                overlay.as_closed()?;
                builder.set_concurrency_mode(ConcurrencyMode::SingleWriter);
                Ok(Opened::Beside(builder.open_read_only_with_backend(overlay)?))
            });
            opened.and_then(LookEngine::with_a_beginning_or_end)
        };
        // The note of how long it was can be an earlier one, and the file whole.
        open(overlay).or_else(|refused| open(whole_overlay).map_err(|_| refused))
    }

    fn open_with(
        &self,
        folder: &Arc<Folder>,
        over: fn(&Folder) -> io::Result<Overlay>,
        open: impl FnOnce(&mut Builder, Overlay) -> Result<Opened, Error>,
    ) -> Result<LookEngine, OpenError> {
        let database = catch_unwind(AssertUnwindSafe(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(self.cache);
            open(&mut builder, over(folder)?)
        }));
        let database = Some(opened(database, &folder.name())?);
        Ok(LookEngine { database, folder: Arc::clone(folder) })
    }
}

enum Opened {
    Whole(Database),
    Beside(ReadOnlyDatabase),
}

impl Opened {
    fn begin_read(&self) -> Result<ReadTransaction, Error> {
        Ok(match self {
            Self::Whole(database) => database.begin_read()?,
            Self::Beside(database) => database.begin_read()?,
        })
    }
}

/// The file in `folder`, as it was closed.
fn overlay(folder: &Folder) -> io::Result<Overlay> {
    let file = File::open(folder.main())?;
    let there = file.metadata()?.len();
    // What somebody has written behind its end is none of redb's.
    let length = folder.clean_close()?.map_or(there, |closed_with| there.min(closed_with));
    Ok(Overlay::over(file, length))
}

/// The file in `folder`, as long as it is.
fn whole_overlay(folder: &Folder) -> io::Result<Overlay> {
    let file = File::open(folder.main())?;
    let length = file.metadata()?.len();
    Ok(Overlay::over(file, length))
}

/// Closing writes, if only in memory, and can find damage as anything else.
fn close<T>(database: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
}

impl LookEngine {
    /// Refuses what an opening for use refuses.
    fn with_a_beginning(self) -> Result<Self, OpenError> {
        let mut page = Vec::new();
        let read = catch_unwind(AssertUnwindSafe(|| {
            Pairs::behind(&self.table()?, b"", None)?.read_page(b"", &mut page).map(drop)
        }));
        has_something(read, &page, &self.folder)?;
        Ok(self)
    }

    /// The same, unless there is something at the other end: a walk leads around what is damaged at the beginning.
    fn with_a_beginning_or_end(self) -> Result<Self, OpenError> {
        let has_last = catch_unwind(AssertUnwindSafe(|| Ok::<_, Error>(self.table()?.last()?.is_some())));
        if matches!(has_last, Ok(Ok(true))) { Ok(self) } else { self.with_a_beginning() }
    }

    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    fn database(&self) -> &Opened {
        self.database.as_ref().expect("only drop takes it out, and nobody calls after that")
    }

    fn table(&self) -> Result<ReadOnlyTable<Bytes, Bytes>, Error> {
        Ok(self.database().begin_read()?.open_table(TABLE)?)
    }

    /// Calls redb, and tells a panic as an error.
    fn guarded<T>(
        &self,
        doing: &'static str,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, StorageError> {
        guarded(doing, &self.folder, call)
    }
}

impl Engine for LookEngine {
    /// Not of a key that has another one's place or its double beside it: a bit that changes can make two keys one, and nobody
    /// can tell then whose value it is. Nor is a key told as absent where another page lies in the place of its own.
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let table = self.guarded("reading from", || self.table())?;
        let found =
            self.guarded("reading from", || Ok(table.get(key)?.map(|value| value.value().to_vec())))?;
        // What is beside it may lie on a page that cannot be read, which says nothing of this key.
        let is_so = self.guarded("reading from", || match found {
            Some(_) => scan::is_alone(&table, key),
            None => scan::is_absent(&table, key),
        });
        if !is_so.unwrap_or(true) {
            return self.guarded("reading from", scan::out_of_order);
        }
        Ok(found)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let refused = || {
            let why = "it was opened to be looked at";
            Err(StorageError::new("writing to", self.folder.name(), why))
        };
        commits.iter().map(|_| refused()).collect()
    }

    /// In one go, since nothing changes meanwhile: each search for where to go on follows the keys of pages above, and if it
    /// is those that are damaged it would pass over what can be read. So would the walk alone where it is a page that lies in another's
    /// place.
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let table = self.guarded("scanning", || self.table())?;
        let mut pairs = self.guarded("scanning", || Pairs::behind(&table, prefix, after))?;
        let mut search = Search::beside(table, prefix, after);
        loop {
            let mut page: Vec<Pair> = Vec::new();
            let read = self.guarded("scanning", || pairs.read_page(prefix, &mut page));
            let agree = search.agrees(&mut page, pairs.next_key());
            for (key, value) in &page {
                if visit(key, value) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
            if !agree {
                return self.guarded("scanning", scan::out_of_order);
            }
            if read? {
                return Ok(());
            }
        }
    }

    /// What is told is made durable (rule 6). Nothing is written, but after an error of the disk redb would refuse to.
    fn sync(&self) -> Result<(), StorageError> {
        self.guarded("syncing", || match self.database() {
            Opened::Whole(database) => Ok(database.begin_write()?.abort()?),
            Opened::Beside(database) => Ok(database.begin_read().map(drop)?),
        })?;
        let synced = super::sync_names(&self.folder);
        synced.map_err(|error| StorageError::new("syncing", self.folder.name(), error))
    }

    fn size(&self) -> Result<Option<u64>, StorageError> {
        self.folder.size().map(Some)
    }

    /// By the checksums of all its pages: reading looks at none.
    fn is_as_written(&self) -> Result<(), StorageError> {
        const DOING: &str = "checking the file of";
        let other_length = self.folder.other_length();
        let other_length =
            other_length.map_err(|error| StorageError::new(DOING, self.folder.name(), error))?;
        if let Some(damage) = other_length {
            return Err(StorageError::of_damage(DOING, self.folder.name(), damage.to_string()));
        }
        let checked = self.guarded(DOING, || {
            let mut builder = Builder::new();
            builder.set_cache_size(super::DEFAULT_CACHE).set_check_integrity_on_open(true);
            Ok(builder.create_with_backend(overlay(&self.folder)?)?)
        });
        checked.map(close)
    }
}

impl Drop for LookEngine {
    fn drop(&mut self) {
        close(self.database.take());
    }
}

impl fmt::Debug for LookEngine {
    /// Shows where it is, not what is in it: keys and values do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookEngine").field("folder", &self.folder.path()).finish_non_exhaustive()
    }
}
