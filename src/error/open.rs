//! Why a store could not be opened.

use super::{InvalidSetting, Remedy, StorageError, quoted};

/// A store could not be opened. Nothing that was stored is changed then.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting of the builder makes no sense.
    #[error("opening a store: {0}")]
    InvalidSetting(#[from] InvalidSetting),
    /// Another opening has it.
    #[error(
        "opening the store {place}: another opening holds its lock{holder}; close that one, or wait longer with \
         Builder::lock_wait"
    )]
    Locked {
        /// The store's folder or engine.
        place: String,
        /// Who holds it, where that can be known: " (process 123)", else empty.
        holder: String,
    },
    /// The path is there and is no folder.
    #[error("opening the store {place}: this is not a folder; give the path of a store's folder")]
    NotAFolder {
        /// The path.
        place: String,
    },
    /// The path, or a folder above it, is a symbolic link to something that is not there.
    #[error(
        "opening the store {place}: {link} is a symbolic link to what is not there; mount or make what it leads to, or give \
         another path"
    )]
    DanglingLink {
        /// The path.
        place: String,
        /// The link.
        link: String,
    },
    /// Everybody on the machine may write to the folder, and so decide what the store tells.
    #[error(
        "opening the store {place}: everybody may write to this folder (its mode is {mode:o}); take that back with \
         `chmod o-w {quoted}` and open it again", quoted = quoted(place)
    )]
    Exposed {
        /// The store's folder.
        place: String,
        /// Its mode.
        mode: u32,
    },
    /// The store is another user's, and this process is root's. What root makes in it, if only to look, that user could not
    /// use; and root would follow what that user has linked there.
    #[error(
        "opening the store {place}: it is user {owner}'s, and this process is root's, which leaves files in it that its user \
         may not use. Run this as that user: `{run} COMMAND`; or, if the store is to be root's, give it to root: \
         `chown -R root {quoted}`", quoted = quoted(place)
    )]
    #[non_exhaustive]
    OfAnotherUser {
        /// The store's folder.
        place: String,
        /// Whose it is: the user's name, or else the number.
        owner: String,
        /// What runs a command as that user.
        run: String,
    },
    /// This process may not read and write what it must in the store's folder.
    #[error(
        "opening the store {place}: {what} is user {owner}'s and has mode {mode:o}, and user {user}, whose process this is, may \
         not read and write it; {then}",
        then = if user == owner { format!("allow it: `chmod -R u+rwX {}`", quoted(place)) } else {
            format!(
                "run this as user {owner}, or, if the store is to be user {user}'s, give it to that user, as root: `chown -R {user} {}`",
                quoted(place)
            )
        }
    )]
    #[non_exhaustive]
    NotAllowed {
        /// The store's folder.
        place: String,
        /// What in it.
        what: String,
        /// Whose that is: the user's name, or else the number.
        owner: String,
        /// Its mode.
        mode: u32,
        /// This process's user: the name, or else the number.
        user: String,
    },
    /// The folder is on a file system that is mounted read-only. Whatever reads a store opens it, and that writes: the
    /// lock, and what the engine does to recover its files.
    #[error(
        "opening the store {place}: its file system is mounted read-only, and every opening writes, to verify as well; \
         mount it for writing, or copy the folder and use the copy: `cp -a {quoted} FOLDER`", quoted = quoted(place)
    )]
    ReadOnly {
        /// The store's folder.
        place: String,
    },
    /// The engine or the file system refused.
    #[error("opening the store {place}: {source}; mend the cause, then open it again")]
    Storage {
        /// The store's folder or engine.
        place: String,
        /// What failed.
        source: StorageError,
    },
    /// There is no room on the disk for what an opening writes. What was told is there, and is told once it is open.
    #[error(
        "opening the store {place}: {source}; its disk is full: delete something else from it, or enlarge it, then \
         open the store again. Nothing that was told is lost"
    )]
    DiskFull {
        /// The store's folder or engine.
        place: String,
        /// What failed.
        source: StorageError,
    },
    /// The store was written by a later version of claimdb.
    #[error(
        "opening the store {place}: it has format version {found}, and this build reads up to {newest}; open it \
         with a newer claimdb"
    )]
    UnknownFormat {
        /// The store's folder.
        place: String,
        /// The version it has.
        found: String,
        /// The newest version that this build reads.
        newest: u32,
    },
    /// The store was made with another engine; nothing was changed.
    #[error(
        "opening the store {place} with {asked}: it was made with {found}; open it with {found}, or copy it into \
         another folder with `claimdb migrate` and open that one with {asked}"
    )]
    OtherEngine {
        /// The store's folder.
        place: String,
        /// The engine it was made with.
        found: String,
        /// The engine it was to be opened with.
        asked: &'static str,
    },
    /// It is a copy whose writing was cut off. It holds a part of what was to be copied.
    #[error(
        "opening the store {place}: it is a copy that was not finished, and holds a part of its store; delete it \
         and make the copy again"
    )]
    UnfinishedCopy {
        /// The store's folder or engine.
        place: String,
    },
    /// There is no store, and none was to be made.
    #[error("opening the store {place}: there is none; give the folder of a store")]
    NoStore {
        /// The path.
        place: String,
    },
    /// What is stored is damaged; nothing was changed.
    #[error(
        "opening the store {place}: it is damaged: {reason}{then}. Nothing that is stored was deleted. Before trying anything on it, \
         copy it: `cp -a {quoted} {copy}`", then = remedy.text(place), quoted = quoted(place),
        copy = quoted(&format!("{place}.damaged"))
    )]
    Damaged {
        /// The store's folder or engine.
        place: String,
        /// What was found.
        reason: String,
        /// What gets the store open again.
        remedy: Remedy,
    },
}

impl OpenError {
    /// A storage error that is one of a full disk, as that.
    pub(crate) fn or_disk_full(self) -> Self {
        match self {
            Self::Storage { place, source } if source.is_of_full_disk() => Self::DiskFull { place, source },
            error => error,
        }
    }
}
