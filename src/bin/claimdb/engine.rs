//! The storage engines by their names on the command line.

#[cfg(feature = "redb")]
use claimdb::backend::Redb;
use claimdb::backend::{Backend, Sled};
use clap::ValueEnum;
use std::path::Path;

/// A storage engine that keeps a store in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// sled 0.34.7, the default engine
    Sled,
    /// redb 4, built with the feature `redb`
    #[cfg(feature = "redb")]
    Redb,
}

impl Engine {
    /// The engine that the store in `folder` was made with, as its file `format` says. Where that says nothing, opening
    /// it tells what is wrong.
    pub(crate) fn of(folder: &Path) -> Self {
        let format = std::fs::read_to_string(folder.join("format")).unwrap_or_default();
        match format.split_whitespace().nth(2) {
            #[cfg(feature = "redb")]
            Some("redb") => Self::Redb,
            _ => Self::Sled,
        }
    }

    /// A place for a store in `folder`, which may be there or not.
    pub(crate) fn at(self, folder: &Path) -> Box<dyn Backend> {
        match self {
            Self::Sled => Box::new(Sled::new(folder)),
            #[cfg(feature = "redb")]
            Self::Redb => Box::new(Redb::new(folder)),
        }
    }

    /// The store in `folder`, which must be one.
    pub(crate) fn existing(self, folder: &Path) -> Box<dyn Backend> {
        match self {
            Self::Sled => Box::new(Sled::existing(folder)),
            #[cfg(feature = "redb")]
            Self::Redb => Box::new(Redb::existing(folder)),
        }
    }
}
