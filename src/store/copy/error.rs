//! Why a store could not be copied, verified or repaired.

use crate::error::{Fault, OpenError, StorageError, is_full};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A store could not be copied, compacted, backed up, verified or repaired. The store itself is as it was, and what
/// was written of the copy is not taken for a store by any opening.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The store, or the place for the copy, could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The place for the copy holds something.
    #[error(
        "copying a store into {place}: something is there already; give a place that is empty or not there yet"
    )]
    NotEmpty {
        /// The place.
        place: String,
    },
    /// The folder for the copy would lie in a store's folder: this one's, or another's.
    #[error(
        "copying a store into {place}: that lies in the folder of the store {store}, and would be lost, moved and put back \
         together with it; give a place outside of it"
    )]
    InStore {
        /// The place.
        place: String,
        /// The folder of the store that it lies in.
        store: String,
    },
    /// What an earlier copy to this place left behind when it was cut off, or what one that still runs is writing.
    #[error(
        "copying a store into a folder: {place} is there, in which the copy would be made; an earlier copy was cut off \
         and left it, or one is still being made, or it is something else: look into it, and delete it if it is what is \
         left of a copy; else give the copy another name"
    )]
    Leftover {
        /// The folder in which it was made.
        place: String,
    },
    /// The engine failed.
    #[error(
        "copying a store: {0}{then}",
        then = if .0.is_damage() { ". The store is as it was, and no copy was made" }
            else if .0.is_of_full_disk() { "; the store is as it was. Its disk is full: make room on it, then try again" }
            else { "; the store is as it was: mend the cause and try again" }
    )]
    Storage(#[from] StorageError),
    /// Writing a store anew failed on the way.
    #[error(
        "{doing} the store {place}: {source}. What is stored stands as it was; the next opening clears up what was begun{then}",
        then = if source.is_damage() { "" }
            else if source.is_of_full_disk() { ". Its disk is full: make room on it, then try again" }
            else { ". Mend the cause (after an I/O error, look at the disk), then try again" }
    )]
    Replacing {
        /// What was tried.
        doing: &'static str,
        /// The store's folder.
        place: String,
        /// What failed.
        source: StorageError,
    },
    /// A repair failed after it had put the checksum of the last close aside.
    #[error(
        "{source}. By then the store's file `tail` had been put aside as {}, and an opening does without it{}", tail_in.display(),
        if source.is_damage() { "" } else { ": repair the store before it is used" }
    )]
    #[non_exhaustive]
    HalfRepaired {
        /// Why it failed.
        source: Box<CopyError>,
        /// Where that file is.
        tail_in: PathBuf,
    },
    /// The open store could not go on.
    #[error("backing up a store: {0}")]
    Fault(#[from] Fault),
    /// Writes did not stand still for the backup in time, or another backup of this opening is being made.
    #[error(
        "backing up a store: writes did not stand still for it within {waited:?}, or another backup is being made; try again"
    )]
    Busy {
        /// How long was waited at most.
        waited: Duration,
    },
    /// The file system refused.
    #[error(
        "{doing} {path}: {source}; the store is as it was{}",
        if is_full(source) { ". That disk is full: make room on it, then try again" } else { ": mend the cause and try again" }
    )]
    File {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: String,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// The copy could not be begun in its folder, or there was no room for all of it. No copy is there.
    #[error(
        "copying a store into {place}: {source}; {}, and make the copy again. The store is as it was",
        if source.is_of_full_disk() { "its disk is full: make room on it, or give a folder on another one" }
            else { "mend the cause" }
    )]
    Target {
        /// The folder for the copy.
        place: String,
        /// What failed.
        source: StorageError,
    },
}

impl CopyError {
    /// Whether what is stored is damaged, or is a copy that was not finished. Trying again does not help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Open(error) => {
                matches!(error, OpenError::Damaged { .. } | OpenError::UnfinishedCopy { .. })
            }
            Self::Storage(source) | Self::Replacing { source, .. } | Self::Target { source, .. } => {
                source.is_damage()
            }
            Self::HalfRepaired { source, .. } => source.is_damage(),
            Self::Fault(fault) => fault.is_damage(),
            _ => false,
        }
    }

    /// Names what storage failed at: `doing` to the store in `place`.
    #[cfg(any(feature = "sled", feature = "redb"))]
    pub(super) fn replacing(self, doing: &'static str, place: &str) -> Self {
        match self {
            Self::Storage(source)
            | Self::Open(OpenError::Storage { source, .. } | OpenError::DiskFull { source, .. }) => {
                Self::Replacing { doing, place: place.to_owned(), source }
            }
            error => error,
        }
    }

    /// Names what filling a fresh folder failed at by the copy that it was to become, in `place`. That of a folder which was
    /// made a moment ago is nobody's wish to open.
    pub(super) fn target(self, place: &Path) -> Self {
        match self {
            Self::Open(OpenError::Storage { source, .. } | OpenError::DiskFull { source, .. }) => {
                Self::Target { place: place.display().to_string(), source }
            }
            Self::Storage(source) if source.is_of_full_disk() => {
                Self::Target { place: place.display().to_string(), source }
            }
            error => error,
        }
    }

    pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.display().to_string();
        move |error| Self::File { doing, path, source: Arc::new(error) }
    }
}
