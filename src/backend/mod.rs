//! Where the bytes live: the contract that every storage engine keeps.
//!
//! A [`Backend`] is a place; opening it gives an [`Engine`], and takes the exclusive right to the place until the
//! engine is dropped. Keys and values are plain bytes, ordered bytewise; engines know nothing of records.
//!
//! What claimdb relies on. `examples/backend/contract.rs` has checks of it for any engine, and beside it is an engine of its
//! own that keeps it.
//!
//! - A commit's compare-and-swap is atomic among all callers. Its *effects* land with the swap or not at all; its
//!   *hints* are harmless alone: they may land without the swap, and land before it.
//! - A commit that returned an error has either landed or not by the time it returns; it does not land later.
//! - What a finished [`sync`](Engine::sync) covers survives a power cut: everything that returned before the sync
//!   began. The first sync of an opening covers all that the place holds, so that nothing is told that only the
//!   page cache remembers (rule 6).
//! - After a power cut the swap of one commit is there whole or not at all. Of the commits that no finished sync
//!   covers any part may be there; the promises hold for each. The retention index asks for more: that it be a
//!   beginning of them, in the order in which they returned. Over an engine that keeps a later one and loses an
//!   earlier, records can be left that no sweep finds before [`Store::rebuild_index`](crate::Store::rebuild_index).
//! - At most one engine of a place is open, in all processes.

#[cfg(any(feature = "sled", feature = "redb"))]
mod closed;
#[cfg(any(feature = "sled", feature = "redb"))]
mod files;
#[cfg(any(feature = "sled", feature = "redb"))]
mod folder;
#[cfg(any(feature = "sled", feature = "redb"))]
mod format;
#[cfg(any(feature = "sled", feature = "redb"))]
mod in_folder;
mod mem;
#[cfg(any(feature = "sled", feature = "redb"))]
mod owner;
#[cfg(any(feature = "sled", feature = "redb"))]
mod readable;
#[cfg(feature = "redb")]
mod redb;
#[cfg(any(feature = "sled", feature = "redb"))]
mod replace;
#[cfg(any(feature = "sled", feature = "redb"))]
mod reserve;
#[cfg(feature = "sled")]
mod sled;

#[cfg(any(feature = "sled", feature = "redb"))]
pub use format::store_around;
#[cfg(any(feature = "sled", feature = "redb"))]
pub(crate) use in_folder::{Old, make_openable, replace};
#[cfg(any(feature = "sled", feature = "redb"))]
pub use in_folder::{existing, same_engine};
pub use mem::Mem;
#[cfg(feature = "redb")]
pub use redb::Redb;
#[cfg(feature = "sled")]
pub use sled::Sled;

use crate::error::{OpenError, StorageError};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

/// A place where a store's bytes live.
pub trait Backend: Send + Sync + fmt::Debug {
    /// What to call the place in messages: the folder's path, or the like.
    fn place(&self) -> String {
        format!("{self:?}")
    }

    /// The folder that the place is, if it is one: a copy is not made in the folder of a store. `None` if not said.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Takes the exclusive right to the place and opens it. Does not wait for another opening to end.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while another engine of the place is open, else what went wrong; the place is then
    /// as it was.
    fn open(&self) -> Result<Box<dyn Engine>, OpenError>;

    /// Opens it like [`open`](Self::open) for those who only read: verifying, read-only stores, and the source of a copy. No
    /// place is made. An engine that changes its files by opening them does well to do that elsewhere, and refuses commits
    /// then: what cuts a look off must not make damage worse. If not said, it is opened as ever.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_to_look(&self) -> Result<Box<dyn Engine>, OpenError> {
        self.open()
    }
}

impl<B: Backend + ?Sized> Backend for Box<B> {
    fn place(&self) -> String {
        (**self).place()
    }

    fn folder(&self) -> Option<&Path> {
        (**self).folder()
    }

    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        (**self).open()
    }

    fn open_to_look(&self) -> Result<Box<dyn Engine>, OpenError> {
        (**self).open_to_look()
    }
}

/// An open place. Dropping it closes it and gives the right to it back.
pub trait Engine: Send + Sync + fmt::Debug {
    /// The value of `key`, as of the last commit that returned.
    ///
    /// # Errors
    /// [`StorageError`] if the engine failed.
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// Judges each commit on its own and returns what became of each, in order: as many answers as there are commits. Nothing
    /// is durable before the next sync.
    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>>;

    /// Shows `visit` each pair whose key begins with `prefix` and is greater than `after`, in the order of keys,
    /// until it breaks. Each pair is one that was there at some time during the call.
    ///
    /// # Errors
    /// [`StorageError`] if the engine failed; what was shown before it is valid.
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError>;

    /// Makes everything durable that returned before this call began.
    ///
    /// # Errors
    /// [`StorageError`] if that is not certain. The store then refuses writes until it is opened again: asking
    /// a second time would prove nothing.
    fn sync(&self) -> Result<(), StorageError>;

    /// Whether there is room for new work. Asked before a claim or a plain value is written, not before a settle: an
    /// engine that says no while it has some left lets what was begun be settled. Must be quick.
    ///
    /// # Errors
    /// [`StorageError`] if there is too little room. An engine that cannot tell says that there is some.
    fn room(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// How many bytes the place takes on its disk; `None` if the engine cannot tell. Asked when the store opens and when
    /// it has swept; may look at files.
    ///
    /// # Errors
    /// [`StorageError`] if it could not be found out.
    fn size(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Whether all that is stored is as it was written, for an engine whose reads do not tell; asked of one that was
    /// [opened to look](Backend::open_to_look), before a copy is made of it or once it was verified. May read everything.
    ///
    /// # Errors
    /// [`StorageError::of_damage`] if it is not. An engine that cannot tell says that it is.
    fn is_as_written(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

/// What a scan shows its pairs to.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One compare-and-swap, and what goes with it.
#[derive(Debug, Clone)]
pub struct Commit<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value that must be there; `None` for none.
    pub expected: Option<&'a [u8]>,
    /// The value to put there; `None` to delete.
    pub new: Option<&'a [u8]>,
    /// Written before the swap, whatever becomes of it.
    pub hints: &'a [Write],
    /// Written with the swap, or not at all.
    pub effects: &'a [Write],
}

impl<'a> Commit<'a> {
    /// A compare-and-swap that nothing goes with.
    #[must_use]
    pub fn swap(key: &'a [u8], expected: Option<&'a [u8]>, new: Option<&'a [u8]>) -> Self {
        Self { key, expected, new, hints: &[], effects: &[] }
    }
}

/// An unconditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Vec<u8>,
    /// The value to put there; `None` to delete.
    pub value: Option<Vec<u8>>,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// It landed.
    Done,
    /// Another value was there; nothing but hints was written.
    Refused {
        /// The value that was there.
        current: Option<Vec<u8>>,
    },
}

/// No engine of this build has a folder, so no folder is a store's.
#[cfg(not(any(feature = "sled", feature = "redb")))]
pub(crate) fn store_around(_: &Path) -> Option<&Path> {
    None
}
