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
    /// redb 4, the careful engine
    #[cfg(feature = "redb")]
    Redb,
}

impl Engine {
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
