//! The file `reserve` in a store's folder: room on the disk that is taken while there is some, and given back when it
//! is needed. What that is for, and how much, each engine says.

use super::folder::Folder;
use crate::error::StorageError;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct Reserve(PathBuf);

impl Reserve {
    pub(super) fn of(folder: &Folder) -> Self {
        Self(folder.path().join("reserve"))
    }

    /// Takes so many bytes, if they are not taken yet. On a disk that is too full it takes what there is, and fails.
    pub(super) fn take(&self, bytes: u64) -> Result<(), Errno> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.0).map_err(|error| errno(&error))?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)
    }

    /// Gives so many bytes back; `false` if there are none left to give.
    #[cfg(feature = "redb")]
    pub(super) fn give_back(&self, bytes: u64) -> bool {
        let give = || -> io::Result<bool> {
            let file = OpenOptions::new().write(true).open(&self.0)?;
            let length = file.metadata()?.len();
            file.set_len(length.saturating_sub(bytes))?;
            Ok(length > 0)
        };
        give().unwrap_or(false)
    }

    /// Gives everything back.
    #[cfg(feature = "sled")]
    pub(super) fn release(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether it says that a disk is full, or somebody's share of it. Whatever else is wrong, such as a file system that
/// takes no room ahead, says nothing of the room there is.
pub(super) fn is_full(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::DQUOT)
}

/// What new work is refused with.
pub(super) fn no_room(place: &str) -> StorageError {
    StorageError::new("taking room for new work in", place, io::Error::from(Errno::NOSPC))
}

pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
