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
}

impl StorageError {
    /// `doing` is what was tried, such as "writing to"; `place` names the store's folder or the engine.
    pub fn new(
        doing: &'static str,
        place: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { doing, place: place.into(), source: source.into().into() }
    }

    /// Whether it says that the disk is full, or the user's share of it.
    pub(super) fn is_of_full_disk(&self) -> bool {
        let mut source: Option<&(dyn Error + 'static)> = Some(&*self.source);
        while let Some(error) = source {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
                return true;
            }
            source = error.source();
        }
        false
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} failed: {}", self.doing, self.place, self.source)
    }
}

impl Error for StorageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
