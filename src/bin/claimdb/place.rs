//! Where commands may write.

use crate::failure::Failure;
use claimdb::backend::store_around;
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Refuses a path for what a command makes that lies in a store's folder: there it would be lost, moved and put back together
/// with the store. `doing` says what is to be done at it. `also` is the folder of a store of which that may not be seen yet.
pub(crate) fn is_outside_stores(doing: &str, path: &Path, also: Option<&Path>) -> Result<(), Failure> {
    // What is written through it would be made where it leads, of which the path says nothing.
    if path.is_symlink() && path.try_exists().is_ok_and(|there| !there) {
        return Err(Failure::Usage(format!(
            "{doing} {}: that is a link which leads to nothing; give the path that is meant, or delete the link",
            path.display()
        )));
    }
    let real = fs::canonicalize(path).ok();
    let above = real.as_ref().and_then(|real| real.parent()).map(Path::to_owned);
    // What is not there yet is made in the first folder above it that is. Where none can be looked at, using it tells why.
    let above = above.or_else(|| {
        path.ancestors().skip(1).find_map(|above| {
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            fs::canonicalize(above).ok()
        })
    });
    let Some(above) = above else { return Ok(()) };
    let also = also.and_then(|folder| fs::canonicalize(folder).ok());
    let also = also.as_deref().filter(|folder| above.starts_with(folder));
    match also.or_else(|| store_around(&above)) {
        None => Ok(()),
        Some(store) => Err(Failure::Usage(format!(
            "{doing} {}: that lies in the folder of the store {}, and would be lost, moved and put back together with it; give \
             a place outside of it",
            path.display(),
            store.display()
        ))),
    }
}

/// Refuses a path that nothing can be written to since there is no folder for it, or since it is one.
pub(crate) fn may_become_a_file(doing: &str, path: &Path) -> Result<(), Failure> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let why = if path.is_dir() {
        "that is a folder; give a file in it".to_owned()
    } else if above.is_dir() {
        return Ok(());
    } else if above.exists() {
        format!("{} is no folder; give another file", above.display())
    } else {
        format!("there is no folder {}; make it, or give another file", above.display())
    };
    Err(Failure::Usage(format!("{doing} {}: {why}", path.display())))
}

/// Writes a file that has its name once it is whole: until then, and if that fails, what was there before stays. A device or a
/// pipe is given the bytes as they are.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let there = fs::metadata(path);
    let real = match &there {
        // What takes its place is put where a link leads, and not in the place of the link.
        Ok(found) if found.is_file() => fs::canonicalize(path).ok(),
        Ok(_) => None,
        Err(_) => Some(path.to_owned()),
    };
    let Some(real) = real else { return fs::write(path, bytes) };
    let above = real.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".claimdb-").permissions(Permissions::from_mode(0o666));
    let mut file = builder.tempfile_in(above)?;
    file.write_all(bytes)?;
    if let Ok(found) = there {
        file.as_file().set_permissions(found.permissions())?;
    }
    // Some file systems find out only now that there is no room.
    file.as_file().sync_all()?;
    file.persist(real).map(drop).map_err(|failed| failed.error)
}
