//! Folders that have their name only once they are whole.

use super::CopyError;
use crate::backend::{self, Backend};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

/// Makes the folder `path` by filling another one beside it, which gets its name when `fill` is done. Until then
/// nothing is there, or the empty folder that was. It is not made in a store's folder: there it would go wherever the store
/// goes.
pub(super) fn staged<T>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<T, CopyError>,
) -> Result<T, CopyError> {
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let place = || path.display().to_string();
    let real = real_folder(above).map_err(CopyError::file("making a copy in", above))?;
    if !is_free(path).map_err(CopyError::file("looking at the place for a copy,", path))? {
        return Err(CopyError::NotEmpty { place: place() });
    }
    if let Some(store) = backend::store_around(&real) {
        return Err(CopyError::InStore { place: place(), store: store.display().to_string() });
    }
    let Some(name) = path.file_name() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "this names no folder");
        return Err(CopyError::file("making a copy at", path)(error));
    };
    let mut partial = name.to_owned();
    partial.push(".partial");
    let partial = path.with_file_name(partial);
    let mut create = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut create, 0o700);
    match create.create(&partial) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(CopyError::Leftover { place: partial.display().to_string() });
        }
        created => created.map_err(CopyError::file("creating the folder", &partial))?,
    }
    let filled = fill(&partial).map_err(|error| error.target(path)).and_then(|told| {
        fs::rename(&partial, path).map_err(CopyError::file("giving its name to", path))?;
        let synced = File::open(above).and_then(|above| above.sync_all());
        if synced.is_err() {
            // It is told as not made, so it is not to stand there when the next try comes.
            let _ = fs::rename(path, &partial);
        }
        synced.map_err(CopyError::file("syncing the folder", above))?;
        Ok(told)
    });
    if filled.is_err() {
        // It was made here, a moment ago, and is no store.
        let _ = fs::remove_dir_all(&partial);
    }
    filled
}

/// Refuses a place in a store's folder, as far as it says where it is. One that is a store itself is not refused for that.
pub(super) fn is_outside(target: &dyn Backend) -> Result<(), CopyError> {
    let Some(folder) = target.folder() else { return Ok(()) };
    let here =
        |path: &Path| if path.as_os_str().is_empty() { Path::new(".").to_owned() } else { path.to_owned() };
    let there =
        folder.ancestors().find_map(|above| Some((above == folder, fs::canonicalize(here(above)).ok()?)));
    let around = there.as_ref().and_then(|(is_it, real)| if *is_it { real.parent() } else { Some(real) });
    match around.and_then(backend::store_around) {
        Some(store) => {
            let place = folder.display().to_string();
            Err(CopyError::InStore { place, store: store.display().to_string() })
        }
        None => Ok(()),
    }
}

/// By the path that has no links in it.
fn real_folder(path: &Path) -> io::Result<PathBuf> {
    let real = fs::canonicalize(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), "there is no such folder; if the path is right, make it with mkdir")
        }
        _ => error,
    })?;
    if real.is_dir() {
        Ok(real)
    } else {
        Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"))
    }
}

/// Whether a folder can be given this name: nothing has it, or an empty folder does.
fn is_free(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(fs::read_dir(path)?.next().is_none()),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}
