//! What is found and mended in a store's folder while it opens. Told within the span of the opening, which has the store's
//! name.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

#[cfg(feature = "tracing")]
use super::{TARGET, tell};
#[cfg(any(feature = "sled", feature = "redb"))]
use std::path::Path;

/// The last opening ended in a crash, a kill or a failed sync.
pub(crate) fn unclean_end() {
    #[cfg(feature = "tracing")]
    tell(|| {
        tracing::warn!(
            target: TARGET,
            "the last opening did not end cleanly: what was told is there, and all files are synced and read anew"
        );
    });
}

/// So many files are in a folder of the store's now.
#[cfg(any(feature = "sled", feature = "redb"))]
pub(crate) fn put_aside(folder: &Path, files: usize) {
    #[cfg(feature = "tracing")]
    tell(|| {
        tracing::warn!(
            target: TARGET, folder = ?folder.file_name().unwrap_or_default(), files,
            "put damaged files aside, for people to look at"
        );
    });
}

/// Something was put right.
pub(crate) fn mended(what: &'static str) {
    #[cfg(feature = "tracing")]
    tell(|| tracing::warn!(target: TARGET, "{what}"));
}
