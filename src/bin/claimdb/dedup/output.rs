//! Where lines go.

use super::input::Input;
use crate::failure::Failure;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const BUFFER: usize = 256 << 10;

/// Standard output, or the file for rejects.
pub(super) struct Output {
    file: File,
    buffer: Vec<u8>,
    name: String,
    /// A regular file must be made durable before its lines are recorded in the store, or a power cut could keep
    /// the record and lose the line. What a pipe is given is its reader's.
    synced: bool,
}

/// How writing ended.
#[must_use]
pub(super) enum Written {
    Done,
    /// Nobody reads any more: the end of a pipe to `head`, and no mistake.
    Closed,
}

/// Whether Rust has put `/dev/null` where it found standard output closed: it opens it for reading as well, which
/// nobody does who sends output there.
fn stands_in_for_a_closed_one(file: &File) -> bool {
    let reads = rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR));
    let about = |path| std::fs::metadata(path).map(|about| (about.dev(), about.ino()));
    let null = about("/dev/null").ok();
    reads && null.is_some() && file.metadata().map(|about| (about.dev(), about.ino())).ok() == null
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
                "give it something to write to; /dev/null will do if that is meant",
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
        Ok(Self { file, buffer: Vec::new(), name, synced: synced && about.is_file() })
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
            any = true;
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
            if self.buffer.len() >= BUFFER {
                self.flush()?;
            }
        }
        self.flush()?;
        if any && self.synced { self.file.sync_data() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        // A long line should not be paid for until the end.
        self.buffer.shrink_to(2 * BUFFER);
        Ok(())
    }
}
