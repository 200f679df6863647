//! Where lines go.
//!
//! A run that was killed, or met a full disk, may have left a part of a line at the end of a file. No key was recorded for
//! it, so its line comes again, whole: what is written begins behind the part, on a line of its own.

use super::input::Input;
use crate::failure::Failure;
use crate::out::{note, stands_in_for_a_closed_one};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const BUFFER: usize = 256 << 10;

/// Standard output, or the file for rejects.
pub(super) struct Output {
    file: File,
    buffer: Vec<u8>,
    name: String,
    /// Whether it is a regular file. What a pipe is given is its reader's.
    is_file: bool,
    /// A file must be made durable before its lines are recorded in the store, or a power cut could keep the record and
    /// lose the line.
    synced: bool,
    /// Whether something was written in this run, which always ends in a whole line.
    begun: bool,
}

/// How writing ended.
#[must_use]
pub(super) enum Written {
    Done,
    /// Nobody reads any more: the end of a pipe to `head`, and no mistake.
    Closed,
}

impl Output {
    /// Standard output without the standard library's buffer, which looks for ends of lines.
    pub(super) fn standard(input: &Input) -> Result<Self, Failure> {
        let name = "standard output".to_owned();
        let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        if file.as_ref().is_ok_and(stands_in_for_a_closed_one) {
            return Err(Failure::failed(
                format_args!("opening {name}"),
                "it is closed, so the lines would go nowhere and be recorded all the same",
                "give it something to write to; where they are meant to go nowhere, > /dev/null, which is not opened for reading",
            ));
        }
        Self::over(file, name, input, true)
    }

    /// The file for rejects. Not synced: they are not recorded in the store, so the same input gives them again.
    pub(super) fn rejects(path: &Path, input: &Input) -> Result<Self, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self::over(file, path.display().to_string(), input, false)
    }

    fn over(file: io::Result<File>, name: String, input: &Input, synced: bool) -> Result<Self, Failure> {
        let looked_at = file.and_then(|file| Ok((file.metadata()?, input.about()?, file)));
        let (about, read, file) = looked_at.map_err(|error| {
            Failure::failed(format_args!("opening {name}"), error, "give a file that can be written")
        })?;
        if about.is_file() && (about.dev(), about.ino()) == (read.dev(), read.ino()) {
            return Err(Failure::Usage(format!("{name} is also the input; give another file")));
        }
        let is_file = about.is_file();
        Ok(Self { file, buffer: Vec::new(), name, is_file, synced: synced && is_file, begun: false })
    }

    /// Writes lines, and does not return before they are out.
    pub(super) fn write<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>) -> Result<Written, Failure> {
        match self.write_all(lines) {
            Ok(()) => Ok(Written::Done),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Written::Closed),
            Err(error) => Err(Failure::failed(
                format_args!("writing to {}", self.name),
                error,
                "lines that may not have been written were not recorded: mend the cause and run again",
            )),
        }
    }

    fn write_all<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut any = false;
        for line in lines {
            if !any {
                any = true;
                self.begin_line()?;
            }
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
            if self.buffer.len() >= BUFFER {
                self.flush()?;
            }
        }
        self.flush()?;
        if any && self.synced { self.file.sync_data() } else { Ok(()) }
    }

    /// Ends the line that is open where writing begins, if there is one. Asked when the first line is written: by then this
    /// run has the store's lock, so no other run over that store writes there.
    fn begin_line(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) || !self.is_file {
            return Ok(());
        }
        let told = match self.is_in_a_line() {
            Ok(false) => return Ok(()),
            Ok(true) => {
                self.buffer.push(b'\n');
                format!(
                    "{} ended within a line, as a run that is killed can leave it; that line was ended",
                    self.name
                )
            }
            // A newline too many would be an empty line, which is data as well.
            Err(error) => format!(
                "whether {} ended within a line could not be seen ({error}); if it did, the first line stands right behind it",
                self.name
            ),
        };
        note(format_args!("warning: {told}"));
        Ok(())
    }

    /// Whether what stands before the place of the next write is no end of a line.
    fn is_in_a_line(&self) -> io::Result<bool> {
        let appends = rustix::fs::fcntl_getfl(&self.file)?.contains(OFlags::APPEND);
        let place = if appends { self.file.metadata()?.len() } else { (&self.file).stream_position()? };
        let Some(before) = place.checked_sub(1) else { return Ok(false) };
        let mut last = [0];
        // A shell opens it for writing alone, so it is opened once more.
        let read = File::open(format!("/dev/fd/{}", self.file.as_raw_fd()))?;
        match read.read_at(&mut last, before)? {
            0 => Ok(false), // it was cut meanwhile, or is written behind its end
            _ => Ok(last[0] != b'\n'),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        // A long line should not be paid for until the end.
        self.buffer.shrink_to(2 * BUFFER);
        Ok(())
    }
}
