//! The engines that keep a store in a folder, for tests that run over each.
#![allow(dead_code)] // each user reads a part

#[cfg(feature = "redb")]
use claimdb::backend::Redb;
use claimdb::backend::{Backend, Sled};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sled,
    #[cfg(feature = "redb")]
    Redb,
}

impl Engine {
    pub const ALL: &[Self] = &[
        Self::Sled,
        #[cfg(feature = "redb")]
        Self::Redb,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sled => "sled",
            #[cfg(feature = "redb")]
            Self::Redb => "redb",
        }
    }

    pub fn of(name: &str) -> Self {
        *Self::ALL.iter().find(|engine| engine.name() == name).expect("the name of an engine")
    }

    pub fn at(self, folder: &Path) -> Box<dyn Backend> {
        match self {
            Self::Sled => Box::new(Sled::new(folder)),
            #[cfg(feature = "redb")]
            Self::Redb => Box::new(Redb::new(folder)),
        }
    }

    pub fn existing(self, folder: &Path) -> Box<dyn Backend> {
        match self {
            Self::Sled => Box::new(Sled::existing(folder)),
            #[cfg(feature = "redb")]
            Self::Redb => Box::new(Redb::existing(folder)),
        }
    }

    /// What stands in the folder of a store that was closed.
    pub fn closed(self) -> &'static [&'static str] {
        match self {
            Self::Sled => &["clean", "format", "lock", "reserve", "sled", "tail"],
            #[cfg(feature = "redb")]
            Self::Redb => &["clean", "format", "lock", "redb", "reserve"],
        }
    }
}
