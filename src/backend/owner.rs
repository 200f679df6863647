//! Whose a store is. Looked at before anything in its folder is touched; `docs/decisions/root.md` says why so.

use super::files::files_in;
use super::format::Files;
use super::replace;
use crate::error::OpenError;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Refuses root in another user's store, and whoever may not read and write all that is in it: a file that is met only
/// midway leaves something half done, and says nothing of its name.
pub(super) fn may_be_used(path: &Path, files: Files) -> Result<(), OpenError> {
    let place = path.display().to_string();
    if geteuid().is_root() {
        // Of a folder that is shared by a group, `lock` tells who has used it first.
        let first = [path.to_owned(), path.join("lock")];
        let mut found = first.iter().filter_map(|file| fs::symlink_metadata(file).ok());
        return match found.find(|found| found.uid() != 0) {
            Some(found) => {
                let (owner, run) = (name(found.uid()), run_as(found.uid(), found.gid()));
                Err(OpenError::OfAnotherUser { place, owner, run })
            }
            None => Ok(()),
        };
    }
    let (read_write, folder) = (Access::READ_OK | Access::WRITE_OK, "its folder");
    let usable = |file: &Path, what: &str, access| {
        let found =
            accessat(CWD, file, access, AtFlags::EACCESS).err().filter(|error| *error == Errno::ACCESS);
        // Where it cannot even be looked at, what is above it has been told.
        let Some(found) = found.and_then(|_| fs::metadata(file).ok()) else { return Ok(()) };
        let what = match file.strip_prefix(path) {
            Ok(inside) if inside.as_os_str().is_empty() => "its folder".to_owned(),
            inside => format!("{what} `{}`", inside.unwrap_or(file).display()),
        };
        let (place, user) = (place.clone(), name(geteuid().as_raw()));
        let (owner, mode) = (name(found.uid()), found.mode() & 0o7777);
        Err(OpenError::NotAllowed { place, what, owner, mode, user })
    };
    let engine = path.join(files.engine);
    for inside in [path, &engine, &engine.join("blobs")] {
        usable(inside, folder, read_write | Access::EXEC_OK)?;
    }
    let own = ["lock", "format", "clean", "tail", "reserve", replace::MARK].map(|name| path.join(name));
    let engines = [files_in(&engine), files_in(&engine.join("blobs"))];
    for file in own.into_iter().chain(engines.into_iter().flatten().flatten()) {
        usable(&file, "its file", read_write)?;
    }
    Ok(())
}

/// The user's name, as far as the system's own list has it; else the number.
fn name(user: u32) -> String {
    let number = user.to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut named = users.lines().filter_map(|line| {
        let mut parts = line.split(':');
        let (name, number) = (parts.next()?, parts.nth(1)?);
        Some((name.to_owned(), number))
    });
    named.find(|(_, its)| *its == number).map_or_else(|| number.clone(), |(name, _)| name)
}

/// What runs a command as that user.
fn run_as(user: u32, group: u32) -> String {
    let name = name(user);
    if name == user.to_string() {
        format!("setpriv --reuid {user} --regid {group} --clear-groups")
    } else {
        format!("runuser -u {name} --")
    }
}
