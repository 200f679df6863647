//! Reading lines in batches.
//!
//! One buffer holds the batch and what was read behind it. A batch ends when it is full, at the end of the input,
//! and when the input pauses: whoever follows a slow stream gets its lines soon, and a fast one fills its batches.

use crate::failure::Failure;
use crate::out::stands_in_for_a_closed_one;
use claimdb::{Clock, Moment, SystemClock, expired};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// A batch with this much in it is closed, however few its lines are: long lines must not fill the memory.
const BATCH_BYTES: usize = 64 << 20;
/// How much is asked for at once.
const CHUNK: usize = 256 << 10;
/// How long after its first line a batch waits for more.
const LINGER: Duration = Duration::from_millis(50);

pub(super) struct Input {
    source: File,
    name: String,
    /// Its length, if it is a file.
    length: Option<u64>,
    batch: usize,
    buffer: Vec<u8>,
    /// The buffer has input up to here,
    filled: usize,
    /// no end of a line that is not in `lines` up to here,
    searched: usize,
    /// and what was not yet given out from here.
    start: usize,
    lines: Vec<Range<usize>>,
    /// The number of the next line, from 1.
    number: u64,
    ended: bool,
    /// Told once the lines read before it are dealt with.
    error: Option<io::Error>,
    clock: SystemClock,
}

/// Lines that are dealt with together.
#[derive(Clone, Copy)]
pub(super) struct Batch<'a> {
    buffer: &'a [u8],
    lines: &'a [Range<usize>],
    /// The number of its first line.
    pub(super) number: u64,
    /// How many bytes of the input it covers.
    pub(super) length: u64,
}

impl<'a> Batch<'a> {
    pub(super) fn len(self) -> usize {
        self.lines.len()
    }

    /// A line, without its end.
    pub(super) fn line(self, index: usize) -> &'a [u8] {
        &self.buffer[self.lines[index].clone()]
    }
}

impl Input {
    /// Opens `file`, or standard input if it is `-` or none.
    pub(super) fn open(file: Option<&Path>, batch: usize) -> Result<Self, Failure> {
        let file = file.filter(|file| file.as_os_str() != "-");
        let (source, name) = match file {
            Some(path) => (File::open(path), path.display().to_string()),
            None => (standard_input(), "standard input".to_owned()),
        };
        let check = |source: File| source.metadata().map(|about| (source, about));
        let (source, about) = source.and_then(check).map_err(|error| {
            Failure::failed(
                format_args!("opening the input {name}"),
                error,
                "give the path of a readable file",
            )
        })?;
        Ok(Self {
            source,
            name,
            length: about.is_file().then_some(about.len()),
            batch,
            buffer: vec![0; 2 * CHUNK],
            filled: 0,
            searched: 0,
            start: 0,
            lines: Vec::new(),
            number: 1,
            ended: false,
            error: None,
            clock: SystemClock::new(),
        })
    }

    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    pub(super) fn about(&self) -> io::Result<Metadata> {
        self.source.metadata()
    }

    /// The next lines, at least one; `None` at the end.
    pub(super) fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Failure> {
        self.number += self.lines.len() as u64;
        self.lines.clear();
        self.make_room();
        let first = self.start;
        let mut deadline = None;
        loop {
            self.split(first);
            let full = self.lines.len() >= self.batch || self.start - first >= BATCH_BYTES;
            if full || self.ended {
                break;
            }
            if !self.lines.is_empty() {
                let deadline = *deadline.get_or_insert_with(|| self.clock.now().after(LINGER));
                if !self.has_more(deadline) {
                    break;
                }
            }
            self.read();
        }
        if self.lines.is_empty() {
            return match self.error.take() {
                Some(error) => Err(Failure::failed(
                    format_args!("reading {} after line {}", self.name, self.number - 1),
                    error,
                    "the lines before are dealt with; run again once it can be read",
                )),
                None => Ok(None),
            };
        }
        let length = (self.start - first) as u64;
        Ok(Some(Batch { buffer: &self.buffer, lines: &self.lines, number: self.number, length }))
    }

    /// Takes the lines that were read into the batch, as long as they fit.
    fn split(&mut self, first: usize) {
        while self.lines.len() < self.batch && self.start - first < BATCH_BYTES {
            let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..self.filled]) else {
                self.searched = self.filled;
                // A last line without an end is a line all the same; behind an error it may be half of one.
                if self.ended && self.error.is_none() && self.start < self.filled {
                    self.lines.push(self.start..self.filled);
                    self.start = self.filled;
                }
                break;
            };
            let end = self.searched + end;
            self.lines.push(self.start..end);
            (self.start, self.searched) = (end + 1, end + 1);
        }
    }

    /// Moves what was not given out to the front, if that frees half of the buffer: so each byte moves once.
    fn make_room(&mut self) {
        if self.start > self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.searched -= self.start;
            self.start = 0;
        }
    }

    fn read(&mut self) {
        if self.buffer.len() - self.filled < CHUNK {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        let end = self.filled + CHUNK;
        match self.source.read(&mut self.buffer[self.filled..end]) {
            Ok(0) => self.ended = true,
            Ok(length) => self.filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => (self.ended, self.error) = (true, Some(error)),
        }
    }

    /// Waits until `deadline` for the input to have more, or to have ended.
    fn has_more(&self, deadline: Moment) -> bool {
        if self.length.is_some() {
            return true;
        }
        loop {
            let now = self.clock.now();
            let rest = deadline.since(now);
            let limit = Timespec { tv_sec: 0, tv_nsec: rest.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.source, PollFlags::IN)], Some(&limit)) {
                Ok(0) => return false,
                Err(rustix::io::Errno::INTR) if !expired(now, deadline) => {}
                // Whatever else it is, reading will tell.
                _ => return true,
            }
        }
    }
}

/// Standard input without the standard library's buffer, whose content polling would not see.
fn standard_input() -> io::Result<File> {
    let input = io::stdin();
    if input.is_terminal() {
        let _ = writeln!(io::stderr(), "reading lines from the terminal; end them with Ctrl-D");
    }
    let input = input.as_fd().try_clone_to_owned().map(File::from)?;
    if stands_in_for_a_closed_one(&input) {
        return Err(io::Error::other("it is closed (for no lines at all, < /dev/null)"));
    }
    Ok(input)
}
