//! Stores by their folders: which engine made them, and what is done to an engine's files as a whole.

#[cfg(feature = "redb")]
use super::Redb;
#[cfg(feature = "sled")]
use super::Sled;
#[cfg(all(feature = "sled", feature = "redb"))]
use super::format;
use super::replace::{self as replacing, InFolder};
use super::{Backend, Engine};
use crate::error::OpenError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The store in the folder `path`, which must be one, with the engine that made it. Nothing is created: opening a path
/// where there is none fails as [`OpenError::NoStore`].
#[must_use]
pub fn existing(path: impl AsRef<Path>) -> Box<dyn Backend> {
    in_folder(path.as_ref())
}

/// A place in `folder`, which may be there or not, for the engine that made the store in the folder `path`.
#[must_use]
pub fn same_engine(path: impl AsRef<Path>, folder: impl AsRef<Path>) -> Box<dyn Backend> {
    #[cfg(all(feature = "sled", feature = "redb"))]
    if format::is_made_with(path.as_ref(), format::REDB.engine) {
        return Box::new(Redb::new(folder));
    }
    let _ = path.as_ref(); // with one engine alone there is nothing to look at
    #[cfg(feature = "sled")]
    let place = Sled::new(folder);
    #[cfg(not(feature = "sled"))]
    let place = Redb::new(folder);
    Box::new(place)
}

fn in_folder(path: &Path) -> Box<dyn InFolder> {
    #[cfg(all(feature = "sled", feature = "redb"))]
    if format::is_made_with(path, format::REDB.engine) {
        return Box::new(Redb::existing(path));
    }
    #[cfg(feature = "sled")]
    let store = Sled::existing(path);
    #[cfg(not(feature = "sled"))]
    let store = Redb::existing(path);
    Box::new(store)
}

/// Makes the store in `path` openable if a repair can, and else changes nothing; tells where what the last close noted of
/// it was put, if its files do not match that.
pub(crate) fn make_openable(path: &Path) -> Result<Option<PathBuf>, OpenError> {
    in_folder(path).make_openable()
}

/// What becomes of an engine's old files when new ones have taken their place.
#[derive(Debug)]
pub(crate) enum Old {
    Deleted,
    /// Kept in the store's folder, under a name that nothing there has.
    Kept(OsString),
}

/// Shows `fill` the store in the folder `path` and a fresh one of its engine. If it is content, the fresh one takes the
/// store's place; else, and wherever it is cut off, the store is as it was.
pub(crate) fn replace<T, E: From<OpenError>>(
    path: &Path,
    fill: impl FnOnce(&dyn Engine, &dyn Engine) -> Result<(T, Old), E>,
) -> Result<T, E> {
    replacing::replace(&*in_folder(path), fill)
}
