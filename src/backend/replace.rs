//! Putting new files in the place of an engine's: how a store is compacted and repaired, whatever its engine.
//!
//! ```text
//! compacting  there from before the first change until all is cleared up: what follows is claimdb's own. Empty, or the
//!             name under which the old files are to be kept
//! fresh/      a store of its own while it is being filled; then its sled/ or redb/ is moved out
//! replaced/   the sled/ or redb/ that was there before
//! ```
//!
//! Folders of these names without the mark are somebody else's, and are not touched.
//!
//! The store's lock is held from before the first read until all is in place. What a cut leaves behind, and what the
//! next opening does ([`mend`]):
//!
//! | cut | it finds | and |
//! |---|---|---|
//! | while `fresh/` is filled or closed | the old files, `fresh/` | deletes `fresh/` |
//! | between the two renames | `replaced/`, `fresh/` | puts `replaced/` back, deletes `fresh/` |
//! | after them | the new files, `replaced/` | deletes `replaced/`, or gives it the name it is kept under |
//!
//! Each step is synced before the next: the new files are whole and durable before the first rename, and the first
//! rename is before the second. `clean` is away while the main file changes, since it tells its length.

use super::files::{sync_folder, write_synced};
use super::folder::Folder;
use super::{Backend, Engine, Old};
use crate::error::OpenError;
use crate::telemetry::opening;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const MARK: &str = "compacting";
const FRESH: &str = "fresh";
const REPLACED: &str = "replaced";
/// Where files of the engine's can be.
pub(super) const FOLDERS: [&str; 2] = [FRESH, REPLACED];

/// A store in a folder.
pub(super) trait InFolder: Backend {
    /// Opens it to look. Dropping the engine closes that and leaves the lock with whoever has the folder.
    fn open_in_folder(&self) -> Result<(Box<dyn Engine>, Arc<Folder>), OpenError>;

    /// Such a store in another folder, which is made.
    fn elsewhere(&self, path: PathBuf) -> Box<dyn Backend>;

    /// Notes what a clean close leaves beside the main file's length, once other files have come into the folder.
    fn note_files(&self, _folder: &Folder) -> io::Result<()> {
        Ok(())
    }

    /// Makes a store openable that is refused for what a repair gets past. If that cannot be, nothing is changed. Tells
    /// where the checksum of the last close is, if the files do not match it and it was put aside.
    fn make_openable(&self) -> Result<Option<PathBuf>, OpenError>;
}

/// Shows `fill` the store and a fresh one. If it is content, the fresh one's files take the place of the store's; else
/// the store is as it was.
pub(super) fn replace<T, E: From<OpenError>>(
    store: &dyn InFolder,
    fill: impl FnOnce(&dyn Engine, &dyn Engine) -> Result<(T, Old), E>,
) -> Result<T, E> {
    let (old, folder) = store.open_in_folder()?;
    begin(&folder).map_err(folder.failed("beginning to make new files in"))?;
    let filled = match store.elsewhere(folder.path().join(FRESH)).open() {
        Ok(new) => fill(&*old, &*new),
        Err(error) => Err(error.into()),
    };
    // Both are closed here, and synced; the lock stays with `folder`.
    drop(old);
    let (told, old) = match filled {
        Ok(filled) => filled,
        Err(error) => {
            clear(&folder, b"");
            return Err(error);
        }
    };
    let kept = match &old {
        Old::Kept(name) => name.as_bytes(),
        Old::Deleted => b"",
    };
    put_in_place(store, &folder, kept).map_err(folder.failed("putting the new files in place in"))?;
    clear(&folder, kept);
    Ok(told)
}

fn begin(folder: &Folder) -> io::Result<()> {
    // They would come into this folder, and leave the old ones where the link leads.
    for path in [folder.engine(), folder.main(), folder.blobs()] {
        if path.is_symlink() {
            let name = path.strip_prefix(folder.path()).unwrap_or(&path).display();
            let reason = format!(
                "`{name}` is a symbolic link, which new files would take the place of: put what it leads to in its place, or \
                 move the whole folder of the store to where that is"
            );
            return Err(io::Error::other(reason));
        }
    }
    for name in [FRESH, REPLACED] {
        if folder.path().join(name).try_exists()? {
            let reason = format!("`{name}` stands there and is not claimdb's; move it away");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
    }
    write_synced(&folder.path().join(MARK), b"")?;
    sync_folder(folder.path())
}

fn put_in_place(store: &dyn InFolder, folder: &Folder, kept: &[u8]) -> io::Result<()> {
    folder.is_there().map_err(io::Error::other)?;
    let (fresh, replaced) = (folder.path().join(FRESH), folder.path().join(REPLACED));
    // Its last sync went well, or it would not say so.
    if !fresh.join("clean").is_file() {
        return Err(io::Error::other(
            "the new files were not closed cleanly: a sync failed, or the disk is full; the store is as it was. Look at the \
                                    disk, and try again",
        ));
    }
    if !kept.is_empty() {
        write_synced(&folder.path().join(MARK), kept)?;
    }
    folder.not_closed_cleanly()?;
    fs::rename(folder.engine(), &replaced)?;
    sync_folder(folder.path())?;
    fs::rename(fresh.join(folder.engine_name()), folder.engine())?;
    sync_folder(&fresh)?;
    sync_folder(folder.path())?;
    store.note_files(folder)?;
    folder.closed_cleanly();
    Ok(())
}

/// Deletes what is left beside the files, or puts it under the name that the mark says it is kept under. What does not go
/// now is found again by the next opening.
fn clear(folder: &Folder, kept: &[u8]) {
    let path = |name: &str| folder.path().join(name);
    let replaced = match Path::new(OsStr::from_bytes(kept)).file_name() {
        Some(name) => fs::rename(path(REPLACED), folder.path().join(name)),
        None => fs::remove_dir_all(path(REPLACED)),
    };
    let gone = |done: io::Result<()>| match done {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(()) => true,
    };
    // The mark goes last, and not while something is left.
    if gone(replaced) && gone(fs::remove_dir_all(path(FRESH))) && sync_folder(folder.path()).is_ok() {
        let _ = fs::remove_file(path(MARK));
    }
}

/// Makes the folder whole again after a replacement that was cut off. If its mark cannot be read, nothing tells whether the
/// old files are to be kept, so they are not touched.
pub(super) fn mend(folder: &Folder) -> Result<(), OpenError> {
    let kept = match fs::read(folder.path().join(MARK)) {
        Ok(kept) => kept,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(folder.failed("reading the file `compacting` in")(error)),
    };
    opening::mended("a compaction or a repair was cut off; clearing its files up");
    let replaced = folder.path().join(REPLACED);
    if !folder.engine().exists() && replaced.exists() {
        let put_back = fs::rename(&replaced, folder.engine()).and_then(|()| sync_folder(folder.path()));
        put_back.map_err(folder.failed("putting the files back in place in"))?;
    }
    // No cut leaves a folder without the one and the other. Whatever took them, what is left may be all there is.
    if folder.engine().exists() {
        clear(folder, &kept);
    }
    Ok(())
}
