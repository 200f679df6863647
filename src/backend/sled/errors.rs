//! What sled's errors and panics say, in words for people.

use crate::backend::readable::{code_in, readable};
use crate::error::{OpenError, StorageError};
use std::io;

pub(super) fn open_error(place: String, error: ::sled::Error) -> OpenError {
    // sled tells a held lock by the text of the system's error alone.
    if error.to_string().contains("WouldBlock") {
        return OpenError::Locked { place, holder: String::new() };
    }
    let is_damage = matches!(error, ::sled::Error::Corruption { .. } | ::sled::Error::ReportableBug(_));
    let cause = cause(error);
    if is_damage {
        return OpenError::Damaged { place, reason: cause.to_string() };
    }
    let source = StorageError::new("opening sled in", place.clone(), cause);
    OpenError::Storage { place, source }
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
        Error::Corruption { at: Some(at), .. } => {
            let at = at.lid();
            format!("sled's log does not hold what was written at byte {at} of `sled/db`").into()
        }
        Error::Corruption { at: None, .. } => "sled's files do not hold what was written".into(),
        Error::ReportableBug(what) | Error::Unsupported(what) => format!("sled: {}", readable(&what)).into(),
        Error::CollectionNotFound(_) => "sled finds no tree of that name".into(),
    }
}
