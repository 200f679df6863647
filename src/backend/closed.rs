//! The file `clean` in a store's folder: the note that the last opening ended well, and how long the engine's file was then.

use super::files::{sync_folder, write_synced};
use super::folder::Folder;
use crate::error::{OpenError, StoreDamage};
use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::Path;

const NOTE: &str = "clean";
const PREFIX: &str = "claimdb-clean 1 ";
const NEW: &str = "clean.new";

/// What is there of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// The last opening did not end well, or none was there.
    None,
    /// It ended well, with so long a file.
    With(u64),
    /// Something is there that claimdb did not write. The opening ended well, since else there would be nothing.
    Damaged,
}

/// What it says of a file of that length.
fn text(length: u64) -> String {
    let checksum = crc32fast::hash(length.to_string().as_bytes());
    format!("{PREFIX}{length} {checksum}\n")
}

fn read(folder: &Path) -> io::Result<Note> {
    let bytes = match fs::read(folder.join(NOTE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Note::None),
        Err(error) => return Err(error),
    };
    let found = String::from_utf8_lossy(&bytes);
    let length = found.strip_prefix(PREFIX).unwrap_or(&found).split([' ', '\n']).next();
    let length = length.and_then(|length| length.parse().ok());
    // The first ones had the number alone.
    let is_whole = |length: &u64| found == text(*length) || found == format!("{length}\n");
    Ok(length.filter(is_whole).map_or(Note::Damaged, Note::With))
}

/// By a rename: half of it would be damage.
pub(super) fn write(folder: &Path, length: u64) -> io::Result<()> {
    let new = folder.join(NEW);
    let written = write_synced(&new, text(length).as_bytes());
    written.and_then(|()| fs::rename(&new, folder.join(NOTE))).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })?;
    sync_folder(folder)
}

impl Folder {
    /// Whether the note of the last close is one, if there is any.
    pub(super) fn has_sound_note(&self) -> Result<(), OpenError> {
        match self.note().map_err(self.failed("reading the file `clean` in"))? {
            Note::Damaged => Err(OpenError::damaged(self.name(), &StoreDamage::Clean)),
            Note::None | Note::With(_) => Ok(()),
        }
    }

    /// Refuses an engine's main file that is shorter than it was at the last close.
    #[cfg(feature = "sled")]
    pub(super) fn is_not_cut(&self) -> Result<(), OpenError> {
        match self.other_length().map_err(self.failed("reading the file `clean` in"))? {
            Some(damage @ StoreDamage::Cut { .. }) => Err(OpenError::damaged(self.name(), &damage)),
            _ => Ok(()),
        }
    }

    /// What tells that it is shorter, or longer, for an engine that writes nothing behind its end while it is closed.
    pub(super) fn other_length(&self) -> io::Result<Option<StoreDamage>> {
        let Some(closed_with) = self.clean_close()? else { return Ok(None) };
        let length = fs::metadata(self.main())?.len();
        let main = self.main();
        let file = main.strip_prefix(self.path()).unwrap_or(&main).display().to_string();
        Ok(match length.cmp(&closed_with) {
            Ordering::Less => Some(StoreDamage::Cut { file, length, closed_with }),
            Ordering::Equal => None,
            Ordering::Greater => Some(StoreDamage::Longer { file, length, closed_with }),
        })
    }

    /// The same as [`clean_close`](Self::clean_close), told to an opening.
    pub(super) fn was_closed_with(&self) -> Result<Option<u64>, OpenError> {
        self.clean_close().map_err(self.failed("reading the file `clean` in"))
    }

    /// Forgets that the last opening ended well, since that is about to change.
    pub(super) fn not_closed_cleanly(&self) -> io::Result<()> {
        match fs::remove_file(self.path().join(NOTE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => sync_folder(self.path()),
        }
    }

    /// What is there of the note of the last close. One that cannot be read is not taken for none: what is looked for after a
    /// clean close alone would go unseen.
    pub(super) fn note(&self) -> io::Result<Note> {
        read(self.path())
    }

    /// With how long a main file the store was closed; `None` if the last opening did not end well, or nothing tells.
    pub(super) fn clean_close(&self) -> io::Result<Option<u64>> {
        Ok(match self.note()? {
            Note::With(length) => Some(length),
            Note::None | Note::Damaged => None,
        })
    }

    /// Does without a note of the last close that is none: it is put aside.
    pub(super) fn without_damaged_note(&self) -> Result<(), OpenError> {
        let note = self.note().map_err(self.failed("reading the file `clean` in"))?;
        let done =
            if note == Note::Damaged { self.put_aside(&[self.path().join(NOTE)]).map(drop) } else { Ok(()) };
        done.map_err(self.failed("putting the file `clean` aside in"))
    }
}
