//! What redb's errors and panics say, in words for people.

use crate::backend::readable::readable;
use crate::error::{OpenError, StorageError};
use ::redb::Error;
use std::io;

pub(super) fn open_error(place: String, error: Error) -> OpenError {
    let not_a_database = matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::InvalidData);
    match error {
        Error::DatabaseAlreadyOpen => OpenError::Locked { place, holder: String::new() },
        Error::Corrupted(_) | Error::UpgradeRequired(_) | Error::TableDoesNotExist(_) => {
            OpenError::Damaged { place, reason: cause(error).to_string() }
        }
        _ if not_a_database => OpenError::Damaged { place, reason: cause(error).to_string() },
        error => {
            let source = StorageError::new("opening redb in", place.clone(), cause(error));
            OpenError::Storage { place, source }
        }
    }
}

/// What an error of redb's says, in words for people. The system's own are told as such: redb names no source.
pub(super) fn cause(error: Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        Error::Io(error) => error.into(),
        Error::Corrupted(what) => format!("`redb/db` does not hold what was written: redb: {}", readable(&what)).into(),
        Error::UpgradeRequired(version) => {
            format!("`redb/db` is of redb's file format {version}, which this redb does not read").into()
        }
        Error::TableDoesNotExist(_) => "`redb/db` does not have claimdb's table".into(),
        Error::PreviousIo => {
            "redb refuses everything since an error of its disk; look at that, then close the store and open it again".into()
        }
        error => format!("redb: {}", readable(&error.to_string())).into(),
    }
}
