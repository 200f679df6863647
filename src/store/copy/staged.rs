//! Folders that have their name only once they are whole.

use super::CopyError;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

/// Makes the folder `path` by filling another one beside it, which gets its name when `fill` is done. Until then
/// nothing is there, or the empty folder that was.
pub(super) fn staged<T>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<T, CopyError>,
) -> Result<T, CopyError> {
    let is_free = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let name = path.file_name().filter(|_| is_free);
    let Some(name) = name else { return Err(CopyError::NotEmpty { place: path.display().to_string() }) };
    let mut partial = name.to_owned();
    partial.push(".partial");
    let partial = path.with_file_name(partial);
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut create = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut create, 0o700);
    match create.create(&partial) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(CopyError::Leftover { place: partial.display().to_string() });
        }
        created => created.map_err(CopyError::file("creating the folder", &partial))?,
    }
    let filled = fill(&partial).and_then(|told| {
        fs::rename(&partial, path).map_err(CopyError::file("giving its name to", path))?;
        let synced = File::open(&above).and_then(|above| above.sync_all());
        synced.map_err(CopyError::file("syncing the folder", &above))?;
        Ok(told)
    });
    if filled.is_err() {
        // It was made here, a moment ago, and is no store.
        let _ = fs::remove_dir_all(&partial);
    }
    filled
}
