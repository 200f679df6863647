//! The storage engines by their names on the command line.

#[cfg(feature = "redb")]
use claimdb::backend::Redb;
use claimdb::backend::{Backend, Sled};
use clap::ValueEnum;
use std::panic;
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

/// An engine's panic over a page that it cannot read is caught, once for each try, and is no news. All others are told.
pub(crate) fn hush() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let of_engine = |file: &str| file.contains("/sled-0.") || file.contains("/redb-4.");
        if !panic.location().is_some_and(|at| of_engine(at.file())) {
            tell(panic);
        }
    }));
}
