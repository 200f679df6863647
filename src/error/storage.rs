//! What an engine says of a call that failed.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// An engine failed at one call.
#[derive(Debug, Clone)]
pub struct StorageError {
    doing: &'static str,
    place: String,
    source: Arc<dyn Error + Send + Sync>,
    is_damage: bool,
}

impl StorageError {
    /// `doing` is what was tried, such as "writing to"; `place` names the store's folder or the engine.
    pub fn new(
        doing: &'static str,
        place: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { doing, place: place.into(), source: source.into().into(), is_damage: false }
    }

    /// The same, if it failed because what is stored is damaged where this call needed it: trying again does not help, and
    /// other calls may go through.
    pub fn of_damage(
        doing: &'static str,
        place: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { is_damage: true, ..Self::new(doing, place, source) }
    }

    /// Whether it failed because what is stored is damaged.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.is_damage
    }

    /// What went wrong, without what was tried and what to do.
    pub(super) fn reason(&self) -> String {
        self.source.to_string()
    }

    /// Without what to do, where that is told of the whole.
    pub(crate) fn without_advice(&self) -> String {
        format!("{} {} failed: {}", self.doing, self.place, self.source)
    }

    /// Whether it says that the disk is full, or the user's share of it.
    pub(crate) fn is_of_full_disk(&self) -> bool {
        let mut source: Option<&(dyn Error + 'static)> = Some(&*self.source);
        while let Some(error) = source {
            if error.downcast_ref::<io::Error>().is_some_and(is_full) {
                return true;
            }
            source = error.source();
        }
        false
    }
}

/// The same of the system's own.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = if self.is_damage {
            "; restore a backup, or repair the store while nobody has it open"
        } else {
            ""
        };
        write!(f, "{}{advice}", self.without_advice())
    }
}

impl Error for StorageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
