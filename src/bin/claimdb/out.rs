//! Data, which goes to standard output, and what a person is told beside it, on standard error.

use crate::failure::Failure;
use rustix::fs::OFlags;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;

/// A whole number with the noun for it, as in "1 record" and "2 records".
pub(crate) fn counted(count: impl Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

pub(crate) const RUN_AGAIN: &str = "look at where standard output goes, then run it again";

/// Writes to standard output what a command that changes nothing has to tell. A reader that is gone has had enough.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    out(bytes, RUN_AGAIN).map(drop)
}

/// Writes a line to standard output, as [`write`].
pub(crate) fn write_line(line: impl Display) -> Result<(), Failure> {
    write(format!("{line}\n").as_bytes())
}

/// Writes `told` to standard output as one line of JSON, as [`write`].
pub(crate) fn write_json(told: &impl Serialize) -> Result<(), Failure> {
    write_line(json_line(told)?)
}

/// Writes one line of many to standard output. Once its reader is gone, [`Failure::Unread`] says that no more are wanted.
pub(crate) fn write_one_of_many(line: impl Display) -> Result<(), Failure> {
    match out(format!("{line}\n").as_bytes(), RUN_AGAIN)? {
        Reader::There => Ok(()),
        Reader::Gone => Err(Failure::Unread),
    }
}

/// Writes a line on what a command has changed to standard output, as text or as JSON.
pub(crate) fn tell_done(
    as_json: bool,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    write_done(if as_json { json_line(&json())? } else { text() })
}

/// Writes a line on what a command has changed to standard output.
pub(crate) fn write_done(line: impl Display) -> Result<(), Failure> {
    let advice = "what was asked for is done all the same: look at where standard output goes";
    out(format!("{line}\n").as_bytes(), advice).map(drop)
}

/// Whether anybody reads standard output.
enum Reader {
    There,
    Gone,
}

fn out(bytes: &[u8], advice: &str) -> Result<Reader, Failure> {
    match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(not_written(&error, advice)),
    }
}

/// That standard output failed; `advice` says what to do.
pub(crate) fn not_written(error: &io::Error, advice: &str) -> Failure {
    Failure::failed("writing to standard output", error, advice)
}

pub(crate) fn json_line(told: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(told).map_err(|error| Failure::failed("writing JSON", error, "report this"))
}

/// Whether Rust has put `/dev/null` where it found standard input or output closed: it opens it for reading and writing,
/// which a shell does not.
pub(crate) fn stands_in_for_a_closed_one(file: &File) -> bool {
    let both = rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR));
    let about = |path| std::fs::metadata(path).map(|about| (about.dev(), about.ino()));
    let null = about("/dev/null").ok();
    both && null.is_some() && file.metadata().map(|about| (about.dev(), about.ino())).ok() == null
}

/// Tells a person something, in a line on standard error. With that gone there is nobody left to tell.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
