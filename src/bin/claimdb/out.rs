//! Data, which goes to standard output, and what a person is told beside it, on standard error.

use crate::failure::Failure;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, Write as _};

/// A whole number with the noun for it, as in "1 record" and "2 records".
pub(crate) fn counted(count: impl Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

/// Writes to standard output. A reader that is gone has had enough.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let advice = "what the command changes is changed; look at where standard output goes";
            Err(Failure::failed("writing to standard output", error, advice))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard output.
pub(crate) fn write_line(line: impl Display) -> Result<(), Failure> {
    write(format!("{line}\n").as_bytes())
}

/// Writes `told` to standard output as one line of JSON.
pub(crate) fn write_json(told: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(told);
    write_line(line.map_err(|error| Failure::failed("writing JSON", error, "report this"))?)
}

/// Writes a line to standard output, as text or as JSON.
pub(crate) fn tell(
    as_json: bool,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    if as_json { write_json(&json()) } else { write_line(text()) }
}

/// Tells a person something, in a line on standard error. With that gone there is nobody left to tell.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
