//! The file `format` in a store's folder: which version and whose the store is.

use super::folder::open_failed;
use crate::error::{OpenError, StoreDamage};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

pub(super) const FORMAT_VERSION: u32 = 1;
pub(super) const FORMAT_PREFIX: &str = "claimdb ";
/// Whose the stores are that name no engine.
const FIRST_ENGINE: &str = "sled";

/// What a folder's engine is called, and its one large file. The one is in a folder named for the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    pub(super) engine: &'static str,
    pub(super) main: &'static str,
}

pub(super) const SLED: Files = Files { engine: "sled", main: "db" };
pub(super) const REDB: Files = Files { engine: "redb", main: "db" };

/// Whether there is a format file; it must be of a version that this build reads, and of `engine`.
pub(super) fn read_format(path: &Path, place: &str, engine: &'static str) -> Result<bool, OpenError> {
    let place = place.to_owned();
    let text = match fs::read(path.join("format")) {
        Ok(text) => text,
        // A store of another engine that has lost the file is not to get a new one beside it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match engine_of_files(path).filter(|found| *found != engine) {
                Some(found) => Err(OpenError::OtherEngine { place, found: found.to_owned(), asked: engine }),
                None => Ok(false),
            };
        }
        Err(error) => return Err(open_failed("reading the format file in", place)(error)),
    };
    let text = String::from_utf8_lossy(&text);
    let (version, made_with) = version_and_engine(&text);
    let is_name = !made_with.is_empty() && made_with.bytes().all(|b| b.is_ascii_lowercase());
    let shown = |text: &str| text.chars().take(40).collect::<String>();
    let line = |engine| format!("{FORMAT_PREFIX}{FORMAT_VERSION} {engine}");
    let files = engine_of_files(path);
    let damage = match (version.parse::<u32>(), files) {
        (Ok(FORMAT_VERSION), Some(files)) if is_name && files != made_with => {
            StoreDamage::OtherFiles { says: shown(made_with), engine: files, line: line(files) }
        }
        (Ok(FORMAT_VERSION), _) if made_with == engine => return Ok(true),
        (Ok(FORMAT_VERSION), _) if is_name => {
            return Err(OpenError::OtherEngine { place, found: shown(made_with), asked: engine });
        }
        (Ok(newer), _) if newer > FORMAT_VERSION => {
            return Err(OpenError::UnknownFormat { place, found: newer.to_string(), newest: FORMAT_VERSION });
        }
        (_, Some(engine)) => StoreDamage::FormatOf { found: shown(&text), engine, line: line(engine) },
        (_, None) => StoreDamage::Format { found: shown(&text) },
    };
    Err(OpenError::damaged(place, &damage))
}

/// Whose files stand in `path`, whatever `format` says; `None` if nobody's, or more than one engine's. What cannot be looked
/// at may be there.
fn engine_of_files(path: &Path) -> Option<&'static str> {
    let is_there = |Files { engine, main }: &Files| match fs::metadata(path.join(engine).join(main)) {
        Ok(found) => found.len() > 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    };
    match (is_there(&SLED), is_there(&REDB)) {
        (true, false) => Some(SLED.engine),
        (false, true) => Some(REDB.engine),
        _ => None,
    }
}

/// Whether the folder `path` says that it is a store's, of whatever version. One whose `format` this process may not read
/// may be one.
fn is_store(path: &Path) -> bool {
    let format = path.join("format");
    // Opening a pipe would wait for ever, and anybody may have a large file of this name.
    if !format.is_file() {
        return false;
    }
    let mut head = [0; FORMAT_PREFIX.len()];
    match File::open(format).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) => head == FORMAT_PREFIX.as_bytes(),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// The store in whose folder the folder `path` lies, or which it is. Goes by the names in `path`, so links in it are to be
/// followed first ([`canonicalize`](std::fs::canonicalize)). What is written there would be lost, moved and put back
/// together with the store. A store counts from its first sync on.
#[must_use]
pub fn store_around(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| is_store(folder))
}

fn version_and_engine(format: &str) -> (&str, &str) {
    let found = format.trim_end().strip_prefix(FORMAT_PREFIX).unwrap_or_default();
    found.split_once(' ').unwrap_or((found, FIRST_ENGINE))
}

/// Whether the store in `path` says that `engine` made it. Where that cannot be read, opening it tells what is wrong.
#[cfg(all(feature = "sled", feature = "redb"))]
pub(super) fn is_made_with(path: &Path, engine: &str) -> bool {
    let format = path.join("format");
    let text = if format.is_file() { fs::read(format).unwrap_or_default() } else { Vec::new() };
    match engine_of_files(path) {
        Some(found) if text.is_empty() => found == engine,
        _ => version_and_engine(&String::from_utf8_lossy(&text)).1 == engine,
    }
}
