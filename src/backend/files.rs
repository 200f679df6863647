//! What is done to files and folders of a store's, whichever engine they are of.

use crate::error::{OpenError, StoreDamage};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The regular files in `folder`; none if it is not there.
pub(super) fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Makes the entry of a new store's folder durable in the folder above, and those of the folders that were made for it: else
/// a power cut could take the store with all that it told. `path` is the real one; of its folders the last `made` are new.
pub(super) fn sync_above(path: &Path, made: usize) -> io::Result<()> {
    for above in path.ancestors().skip(1).take(made.max(1)) {
        match sync_folder(above) {
            // The folder was there before, and who made it may have been cut off; or another user has made it, who alone may
            // look above.
            Err(error) if made == 0 && error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    Ok(())
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Refuses what is not a file: opening a pipe would wait for ever.
pub(super) fn is_file_or_gone(folder: &Path, name: &str, place: &str) -> Result<(), OpenError> {
    match fs::metadata(folder.join(name)) {
        Ok(found) if !found.is_file() => {
            Err(OpenError::damaged(place, &StoreDamage::NotAFile { name: name.to_owned() }))
        }
        _ => Ok(()),
    }
}

/// Refuses what is not a folder, in which no engine finds its files.
pub(super) fn is_folder_or_gone(folder: &Path, name: &str, place: &str) -> Result<(), OpenError> {
    match fs::metadata(folder.join(name)) {
        Ok(found) if !found.is_dir() => {
            Err(OpenError::damaged(place, &StoreDamage::NotAFolder { name: name.to_owned() }))
        }
        _ => Ok(()),
    }
}
