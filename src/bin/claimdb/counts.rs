//! What a copy holds, for people and for scripts.

use crate::failure::Failure;
use claimdb::Copied;
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn text(done: &str, copied: &Copied) -> String {
    format!(
        "{done}: {} and {}; {} left out",
        counted(copied.records, "record", "records"),
        counted(copied.values, "value", "values"),
        counted(copied.forgotten, "forgotten record", "forgotten records")
    )
}

/// A whole number with the noun for it, as in "1 record" and "2 records".
pub(crate) fn counted(count: impl Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

pub(crate) fn json(copied: &Copied) -> Value {
    json!({
        "records": copied.records,
        "values": copied.values,
        "forgotten": copied.forgotten,
        "unreadable": copied.unreadable,
    })
}

/// Writes one line to standard output, as text or as JSON.
pub(crate) fn tell(
    as_json: bool,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    write_line(if as_json { json().to_string() } else { text() })
}

/// Writes a line to standard output. A reader that is gone has had enough.
pub(crate) fn write_line(line: impl Display) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let advice = "what was to be done is done; look at where it goes";
            Err(Failure::failed("writing to standard output", error, advice))
        }
        _ => Ok(()),
    }
}

pub(crate) fn warn_of_unreadable(copied: &Copied, store: &Path) {
    if copied.unreadable > 0 {
        // With standard error gone there is nobody left to tell.
        let _ = writeln!(
            io::stderr(),
            "warning: {}; claimdb verify {} tells which",
            counted(
                copied.unreadable,
                "stored item cannot be read, and was copied as it is",
                "stored items cannot be read, and were copied as they are"
            ),
            store.display()
        );
    }
}

/// How many bytes the files in and below `folder` have; what cannot be looked at counts as none.
pub(crate) fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
