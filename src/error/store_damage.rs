//! What is wrong with a store that cannot be opened, and what helps.
//!
//! All of it stands here, in one list: docs/operations.md has a row for each, and a test compares the two.

use super::{Damage, OpenError, StorageError, bytes, quoted};
use crate::token::Token;

/// What gets a damaged store open again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// A backup, and nothing else: [`Store::repair`](crate::Store::repair) changes nothing and fails in the same way.
    Backup,
    /// A backup, or [`Store::repair`](crate::Store::repair), which keeps what it can read and tells what it cannot.
    Repair,
    /// Something that is to be put right by hand: the reason says what.
    AsTold,
}

impl Remedy {
    /// What to do with the store in `place`, behind the reason.
    pub(super) fn text(self, place: &str) -> String {
        match self {
            Self::Backup => {
                "; no repair gets past that, and only a backup has what is gone: put one in the store's place"
                    .to_owned()
            }
            Self::Repair => format!(
                "; put a backup in its place, or if none is recent enough, `claimdb repair {}` keeps what it can read \
                 and tells what it cannot",
                quoted(place)
            ),
            Self::AsTold => String::new(),
        }
    }
}

/// Damage that keeps a store closed.
#[cfg_attr(not(all(feature = "sled", feature = "redb")), allow(dead_code))] // some is an engine's own
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreDamage {
    #[error(
        "`{name}` in it is not a file; move it away, and put the file of a backup there if it is `format` or the engine's \
         own: without the others a store opens as after a crash"
    )]
    NotAFile { name: String },
    #[error(
        "`{name}` in it is not a folder; move it away, and put that folder of a backup there, or the one that was there before"
    )]
    NotAFolder { name: String },
    #[error(
        "its file `{file}` has {} and was closed with {closed_with}; something cut it since",
        bytes(length)
    )]
    Cut { file: String, length: u64, closed_with: u64 },
    #[error(
        "its file `{file}` has {} and was closed with {closed_with}; something was written behind its end since",
        bytes(length)
    )]
    Longer { file: String, length: u64, closed_with: u64 },
    #[error("it held records, and its file `{file}` is gone or empty")]
    Gone { file: String },
    #[error(
        "its file `{file}` is gone or empty, and the folder `{found}` in it has such a file: if that is this store's, move the \
         folder back"
    )]
    Moved { file: String, found: String },
    #[error("its file `format` reads {found:?}, and nothing tells whose files they are")]
    Format { found: String },
    #[error(
        "its file `format` reads {found:?}, and its files are {engine}'s: if all else is sound, a line `{line}` in its \
         place mends it"
    )]
    FormatOf { found: String, engine: &'static str, line: String },
    #[error(
        "its file `format` says that it was made with {says}, and its files are {engine}'s: if they are this store's, a \
         line `{line}` in that file mends it; if not, put a backup in the store's place"
    )]
    OtherFiles { says: String, engine: &'static str, line: String },
    #[error("its file `tail` is not what claimdb wrote")]
    Tail,
    #[error("its file `clean` is not what claimdb wrote")]
    Clean,
    #[error(
        "its log `sled/db` has checksum {found:08x} and by its file `tail` was closed with {left:08x}; something changed \
         one of the two since"
    )]
    OtherChecksum { found: u32, left: u32 },
    #[error("the segment that sled's log would go on from is gone or damaged")]
    NoSegment,
    #[error("sled's log ends before its snapshot does")]
    LogEnds,
    #[error("its snapshot is damaged, and its log ends before that")]
    SnapshotAndLog,
    #[error("sled's log speaks of pages that it does not hold")]
    NoPages,
    #[error("sled's log speaks of a page that cannot be")]
    OddPage,
    #[error("two segments of sled's log have one place in it")]
    TwoSegments,
    #[error("a message of sled's log at {position} is none")]
    OddMessage { position: u64 },
    #[error("its file `sled/blobs/{number}` is of another kind than its log says")]
    OddBlob { number: u64 },
    #[error("sled's log does not hold what was written at byte {at} of `sled/db`")]
    SledsByte { at: u64 },
    #[error("sled's files do not hold what was written")]
    SledsFiles,
    #[error("`redb/db` does not hold what was written: redb: {said}")]
    RedbsFile { said: String },
    #[error(
        "`redb/db` is of redb's file format {version}, which this redb does not read; open it with the claimdb that made it"
    )]
    RedbsFormat { version: u8 },
    #[error("`redb/db` does not have claimdb's table")]
    NoTable,
    #[error("{engine} does not open its files, and says: {said}")]
    EngineSays { engine: &'static str, said: String },
    #[error("it held records, and {engine} finds none")]
    NothingFound { engine: &'static str },
    #[error("its own entries cannot be read: {said}")]
    OwnEntries { said: String },
    #[error("its token ceiling: {0}")]
    Ceiling(Damage),
    #[error("its token ceiling {ceiling} is not below 2^63")]
    OddCeiling { ceiling: Token },
    #[error("it holds entries and no token ceiling")]
    NoCeiling,
    #[error("its high-water mark: {0}")]
    HighWater(Damage),
    #[error(
        "its token ceiling changed while it was being opened; something else writes to it: find out what does, and end it"
    )]
    CeilingChanged,
}

impl StoreDamage {
    /// What helps as a rule. Of what is wrong with sled's log it has to be found out.
    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            Self::NotAFile { .. }
            | Self::NotAFolder { .. }
            | Self::FormatOf { .. }
            | Self::OtherFiles { .. }
            | Self::RedbsFormat { .. }
            | Self::CeilingChanged
            | Self::Moved { .. }
            | Self::Ceiling(Damage::UnknownVersion { .. })
            | Self::HighWater(Damage::UnknownVersion { .. }) => Remedy::AsTold,
            // A repair does without what cannot be read of these.
            Self::OwnEntries { .. }
            | Self::Longer { .. }
            | Self::Clean
            | Self::Ceiling(_)
            | Self::OddCeiling { .. }
            | Self::NoCeiling
            | Self::HighWater(_) => Remedy::Repair,
            Self::Cut { .. }
            | Self::Gone { .. }
            | Self::Format { .. }
            | Self::Tail
            | Self::OtherChecksum { .. }
            | Self::NoSegment
            | Self::LogEnds
            | Self::SnapshotAndLog
            | Self::NoPages
            | Self::OddPage
            | Self::TwoSegments
            | Self::OddMessage { .. }
            | Self::OddBlob { .. }
            | Self::SledsByte { .. }
            | Self::SledsFiles
            | Self::RedbsFile { .. }
            | Self::NoTable
            | Self::EngineSays { .. }
            | Self::NothingFound { .. } => Remedy::Backup,
        }
    }
}

impl OpenError {
    /// The store in `place` has that damage.
    pub(crate) fn damaged(place: impl Into<String>, damage: &StoreDamage) -> Self {
        Self::damaged_with(place, damage, damage.remedy())
    }

    /// The same refusal; if it says that only a backup helps, with what was found out to help.
    #[cfg(feature = "redb")]
    pub(crate) fn or_with(self, found: impl FnOnce() -> Remedy) -> Self {
        match self {
            Self::Damaged { place, reason, remedy: Remedy::Backup } => {
                Self::Damaged { place, reason, remedy: found() }
            }
            error => error,
        }
    }

    /// The same, where it has been found out what helps.
    pub(crate) fn damaged_with(place: impl Into<String>, damage: &StoreDamage, remedy: Remedy) -> Self {
        Self::Damaged { place: place.into(), reason: damage.to_string(), remedy }
    }

    /// Its own entries in the store in `place` could not be read or written while it was being opened.
    pub(crate) fn storage(place: impl Into<String>, source: StorageError) -> Self {
        let place = place.into();
        match source.is_damage() {
            true => Self::damaged(place, &StoreDamage::OwnEntries { said: source.reason() }),
            false => Self::Storage { place, source },
        }
    }

    /// What gets the store open again, if it is damaged.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Damaged { remedy, .. } => Some(*remedy),
            _ => None,
        }
    }
}
