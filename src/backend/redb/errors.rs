//! What redb's errors and panics say, in words for people.

use crate::backend::readable::readable;
use crate::error::{OpenError, StorageError, StoreDamage};
use ::redb::Error;
use std::io;

pub(super) fn open_error(place: String, error: Error) -> OpenError {
    let not_a_database = matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::InvalidData);
    match error {
        Error::DatabaseAlreadyOpen => OpenError::Locked { place, holder: String::new() },
        _ if not_a_database => {
            let said = cause(error).to_string();
            OpenError::damaged(place, &StoreDamage::EngineSays { engine: "redb", said })
        }
        error => match damage(&error) {
            Some(damage) => OpenError::damaged(place, &damage),
            None => {
                let source = StorageError::new("opening redb in", place.clone(), cause(error));
                OpenError::Storage { place, source }
            }
        },
    }
}

/// What a call is told that failed at `doing` to the open store in `place`.
pub(super) fn call_error(doing: &'static str, place: String, error: Error) -> StorageError {
    match damage(&error) {
        Some(_) => StorageError::of_damage(doing, place, cause(error)),
        None => StorageError::new(doing, place, cause(error)),
    }
}

/// The damage that an error of redb's tells of; `None` if it tells of none.
fn damage(error: &Error) -> Option<StoreDamage> {
    match error {
        Error::Corrupted(said) => Some(StoreDamage::RedbsFile { said: readable(said) }),
        Error::UpgradeRequired(version) => Some(StoreDamage::RedbsFormat { version: *version }),
        Error::TableDoesNotExist(_) => Some(StoreDamage::NoTable),
        _ => None,
    }
}

/// What an error of redb's says, in words for people. The system's own are told as such: redb names no source.
pub(super) fn cause(error: Error) -> Box<dyn std::error::Error + Send + Sync> {
    if let Some(damage) = damage(&error) {
        return damage.to_string().into();
    }
    match error {
        Error::Io(error) => error.into(),
        Error::PreviousIo => {
            "redb refuses everything since an error of its disk; look at that, then close the store and open it again".into()
        }
        error => format!("redb: {}", readable(&error.to_string())).into(),
    }
}
