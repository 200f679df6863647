//! What redb's errors and panics say, in words for people.

use super::scan::Pair;
use crate::backend::folder::Folder;
use crate::backend::readable::{panic_text, readable};
use crate::error::{OpenError, StorageError, StoreDamage};
use ::redb::Error;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What became of opening the database in `place`, with a panic told as an error.
pub(super) fn opened<T>(
    opened: Result<Result<T, Error>, Box<dyn Any + Send>>,
    place: &str,
) -> Result<T, OpenError> {
    match opened {
        Ok(database) => database.map_err(|error| open_error(place.to_owned(), error)),
        Err(panic) => Err(panicked(place, &*panic)),
    }
}

fn panicked(place: &str, panic: &(dyn Any + Send)) -> OpenError {
    let said = panic_text("redb", panic);
    OpenError::damaged(place, &StoreDamage::EngineSays { engine: "redb", said })
}

/// Refuses a database of which not even the first pairs could be `read`, or that holds nothing where there was something.
pub(super) fn has_something(
    read: Result<Result<(), Error>, Box<dyn Any + Send>>,
    page: &[Pair],
    folder: &Folder,
) -> Result<(), OpenError> {
    // The token ceiling at least has been there since before the folder was marked.
    match read {
        // Damage behind is told to whoever asks for it.
        _ if !page.is_empty() => Ok(()),
        Err(panic) => Err(panicked(&folder.name(), &*panic)),
        Ok(Err(error)) => Err(open_error(folder.name(), error)),
        Ok(Ok(())) if folder.existed() => {
            Err(OpenError::damaged(folder.name(), &StoreDamage::NothingFound { engine: "redb" }))
        }
        Ok(Ok(())) => Ok(()),
    }
}

/// Calls redb, and tells a panic as an error.
pub(super) fn guarded<T>(
    doing: &'static str,
    folder: &Folder,
    call: impl FnOnce() -> Result<T, Error>,
) -> Result<T, StorageError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|error| call_error(doing, folder.name(), error)),
        Err(panic) => Err(StorageError::of_damage(doing, folder.name(), panic_text("redb", &*panic))),
    }
}

fn open_error(place: String, error: Error) -> OpenError {
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
fn call_error(doing: &'static str, place: String, error: Error) -> StorageError {
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
fn cause(error: Error) -> Box<dyn std::error::Error + Send + Sync> {
    if let Some(damage) = damage(&error) {
        return damage.to_string().into();
    }
    match error {
        Error::Io(error) => error.into(),
        Error::PreviousIo => {
            "redb refuses everything since an error of its disk; look at that, then open the store anew"
                .into()
        }
        error => format!("redb: {}", readable(&error.to_string())).into(),
    }
}
