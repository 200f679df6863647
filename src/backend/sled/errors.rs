//! What sled's errors and panics say, in words for people.

use crate::backend::readable::{code_in, readable};
use crate::error::{OpenError, StorageError, StoreDamage};
use std::io;

pub(super) fn open_error(place: String, error: ::sled::Error) -> OpenError {
    // sled tells a held lock by the text of the system's error alone.
    if error.to_string().contains("WouldBlock") {
        return OpenError::Locked { place, holder: String::new() };
    }
    if let Some(damage) = damage(&error) {
        return OpenError::damaged(place, &damage);
    }
    let source = StorageError::new("opening sled in", place.clone(), cause(error));
    OpenError::Storage { place, source }
}

/// What a call is told that failed at `doing` to the open store in `place`.
pub(super) fn call_error(doing: &'static str, place: String, error: ::sled::Error) -> StorageError {
    match error {
        ::sled::Error::Corruption { .. } => StorageError::of_damage(doing, place, cause(error)),
        error => StorageError::new(doing, place, cause(error)),
    }
}

/// The damage that an error of sled's tells of; `None` if it tells of none.
fn damage(error: &::sled::Error) -> Option<StoreDamage> {
    use ::sled::Error;
    match error {
        Error::Corruption { at: Some(at), .. } => Some(StoreDamage::SledsByte { at: at.lid() }),
        Error::Corruption { at: None, .. } => Some(StoreDamage::SledsFiles),
        Error::ReportableBug(said) => Some(StoreDamage::EngineSays { engine: "sled", said: readable(said) }),
        _ => None,
    }
}

/// What an error of sled's says, in words for people. The system's own are told as such.
pub(super) fn cause(error: ::sled::Error) -> Box<dyn std::error::Error + Send + Sync> {
    use ::sled::Error;
    match error {
        // One that sled remembers has become a text.
        Error::Io(error) => match error.raw_os_error().or_else(|| code_in(&error.to_string())) {
            Some(code) => io::Error::from_raw_os_error(code).into(),
            None => readable(&error.to_string()).into(),
        },
        Error::Corruption { .. } => damage(&error).unwrap_or(StoreDamage::SledsFiles).to_string().into(),
        Error::ReportableBug(what) | Error::Unsupported(what) => format!("sled: {}", readable(&what)).into(),
        Error::CollectionNotFound(_) => "sled finds no tree of that name".into(),
    }
}
