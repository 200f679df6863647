//! Putting another log in the place of the one that is there: how a store is compacted and repaired.
//!
//! ```text
//! compacting  there from before the first change until all is cleared up: what follows is claimdb's own
//! fresh/      a store of its own while it is being filled; then its sled/ is moved out
//! replaced/   the sled/ that was there before
//! ```
//!
//! Folders of these names without the mark are somebody else's, and are not touched.
//!
//! The store's lock is held from before the first read until all is in place. What a cut leaves behind, and what the
//! next opening does ([`mend`]):
//!
//! | cut | it finds | and |
//! |---|---|---|
//! | while `fresh/` is filled or closed | `sled/`, `fresh/` | deletes `fresh/` |
//! | between the two renames | `replaced/`, `fresh/` | puts `replaced/` back as `sled/`, deletes `fresh/` |
//! | after them | `sled/` (the new one), `replaced/` | deletes `replaced/` |
//!
//! Each step is synced before the next: the new log is whole and durable before the first rename, and the first rename
//! is before the second. `clean` is away while the log changes, since it tells its length.

use super::{Sled, log};
use crate::backend::folder::{Folder, sync_folder, write_synced};
use crate::backend::{Backend, Engine};
use crate::error::{OpenError, StorageError};
use std::fs;
use std::io;
use std::sync::Arc;

const MARK: &str = "compacting";
const FRESH: &str = "fresh";
const REPLACED: &str = "replaced";

impl Sled {
    /// Shows `fill` the store and a fresh one. If it is content, the fresh one takes the store's place; else the store
    /// is as it was.
    pub(crate) fn replace<T, E: From<OpenError>>(
        &self,
        fill: impl FnOnce(&dyn Engine, &dyn Engine) -> Result<T, E>,
    ) -> Result<T, E> {
        let old = self.open_engine()?;
        let folder = Arc::clone(&old.folder);
        begin(&folder).map_err(|error| {
            let place = folder.name();
            let source = StorageError::new("beginning to make a new log in", place.clone(), error);
            OpenError::Storage { place, source }
        })?;
        let fresh = Self { path: folder.path().join(FRESH), cache: self.cache, must_exist: false };
        let filled = match fresh.open() {
            Ok(new) => fill(&old, &*new),
            Err(error) => Err(error.into()),
        };
        // Both are closed here, and synced; the lock stays with `folder`.
        drop(old);
        let told = match filled {
            Ok(told) => told,
            Err(error) => {
                clear(&folder);
                return Err(error);
            }
        };
        put_in_place(&folder).map_err(|error| {
            let place = folder.name();
            let source = StorageError::new("putting the new log in place in", place.clone(), error);
            OpenError::Storage { place, source }
        })?;
        clear(&folder);
        Ok(told)
    }
}

fn begin(folder: &Folder) -> io::Result<()> {
    for name in [FRESH, REPLACED] {
        if folder.path().join(name).try_exists()? {
            let reason = format!("`{name}` stands there and is not claimdb's; move it away");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
    }
    write_synced(&folder.path().join(MARK), b"")?;
    sync_folder(folder.path())
}

fn put_in_place(folder: &Folder) -> io::Result<()> {
    folder.is_there().map_err(io::Error::other)?;
    let (fresh, replaced) = (folder.path().join(FRESH), folder.path().join(REPLACED));
    // Its last sync went well, or it would not say so.
    if !fresh.join("clean").is_file() {
        return Err(io::Error::other("its last sync failed"));
    }
    folder.not_closed_cleanly()?;
    fs::rename(folder.engine(), &replaced)?;
    sync_folder(folder.path())?;
    fs::rename(fresh.join("sled"), folder.engine())?;
    sync_folder(&fresh)?;
    sync_folder(folder.path())?;
    log::write_tail(folder)?;
    folder.closed_cleanly();
    Ok(())
}

/// Deletes what is left beside the log. What cannot be deleted now is found again by the next opening.
fn clear(folder: &Folder) {
    let gone = |left: &str| match fs::remove_dir_all(folder.path().join(left)) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(()) => true,
    };
    // The mark goes last, and not while something is left.
    if [FRESH, REPLACED].map(gone) == [true; 2] {
        let _ = fs::remove_file(folder.path().join(MARK));
    }
}

/// Makes the folder whole again after a replacement that was cut off.
pub(super) fn mend(folder: &Folder) -> Result<(), OpenError> {
    if !folder.path().join(MARK).exists() {
        return Ok(());
    }
    let replaced = folder.path().join(REPLACED);
    if !folder.engine().exists() && replaced.exists() {
        let put_back = fs::rename(&replaced, folder.engine()).and_then(|()| sync_folder(folder.path()));
        put_back.map_err(|error| {
            let place = folder.name();
            let source = StorageError::new("putting the log back in place in", place.clone(), error);
            OpenError::Storage { place, source }
        })?;
    }
    clear(folder);
    Ok(())
}
