//! What a copy holds, for people and for scripts.

use crate::failure::Failure;
use crate::out::counted;
use claimdb::Copied;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// How much was copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    pub(crate) values: u64,
    pub(crate) forgotten: u64,
    pub(crate) unreadable: u64,
}

impl From<Copied> for Counts {
    fn from(copied: Copied) -> Self {
        let Copied { records, values, forgotten, unreadable, .. } = copied;
        Self { records, values, forgotten, unreadable }
    }
}

impl Counts {
    pub(crate) fn text(&self, done: &str) -> String {
        format!(
            "{done}: {} and {}; {} left out",
            counted(self.records, "record", "records"),
            counted(self.values, "value", "values"),
            counted(self.forgotten, "forgotten record", "forgotten records")
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "records": self.records,
            "values": self.values,
            "forgotten": self.forgotten,
            "unreadable": self.unreadable,
        })
    }

    /// A copy of damage is none that others may be deleted for. `doing` says what was done, `then` what is to be kept.
    pub(crate) fn nothing_unreadable(&self, doing: &str, copy: &Path, then: &str) -> Result<(), Failure> {
        if self.unreadable == 0 {
            return Ok(());
        }
        let items = counted(
            self.unreadable,
            "stored item cannot be read, and was copied as it is",
            "stored items cannot be read, and were copied as they are",
        );
        Err(Failure::Damaged(format!(
            "{doing}: done, and the store is damaged: {items}; claimdb verify {} tells which; {then}",
            copy.display()
        )))
    }
}

/// How many bytes the files of the store in `folder` have, which lie at most two folders deep: `folder` may be none of a
/// store's, and hold a whole disk. What cannot be looked at counts as none.
pub(crate) fn size(folder: &Path) -> u64 {
    size_within(folder, 2)
}

fn size_within(folder: &Path, deeper: u32) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => {
            deeper.checked_sub(1).map_or(0, |deeper| size_within(&entry.path(), deeper))
        }
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
