//! redb's file for those who only look: read from the disk, and written in memory alone.
//!
//! redb writes when it opens a file (that it is open), when it recovers one, and when it closes it. A file that is damaged
//! somewhere and was marked as open is refused by the next opening, which then checks all of it; so a look that was cut off
//! would leave behind what no repair gets past. Through this nothing of a look reaches the disk.
//!
//! # Memory
//! Held are the pages of 4 KiB that redb writes in a look, in which nobody commits anything: its head, and when it recovers or
//! closes the file its map of free pages, which takes some bits for each page of the file.
//!
//! # Locking
//! One mutex for the pages, not held while the file is read.

use crate::sync::Mutex;
use ::redb::{BackendError, StorageBackend};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Bound, Range};
use std::os::unix::fs::FileExt as _;

const PAGE: u64 = 4096;
/// Where redb's file format 3 keeps its flags, behind its magic number, and the one that says that the file is open.
const FLAGS_AT: u64 = 9;
const OPEN: u8 = 2;

#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    state: Mutex<State>,
}

struct State {
    length: u64,
    /// So many bytes of the file are what they were; what lies behind is zeros, or was written.
    of_file: u64,
    /// What was written, by the page's number.
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl std::fmt::Debug for State {
    /// Shows how much it is, not what: keys and values do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("length", &self.length).field("pages", &self.pages.len()).finish()
    }
}

impl Overlay {
    /// Over the first `length` bytes of `file`, which nobody writes to meanwhile.
    pub(super) fn over(file: File, length: u64) -> Self {
        Self { file, state: Mutex::new(State { length, of_file: length, pages: BTreeMap::new() }) }
    }

    /// From now on the file reads as one that was closed, whether or not it was: redb's head says by one bit that it is open.
    pub(super) fn as_closed(&self) -> io::Result<()> {
        let mut flags = [0];
        StorageBackend::read(self, FLAGS_AT, &mut flags)?;
        StorageBackend::write(self, FLAGS_AT, &[flags[0] & !OPEN])
    }

    /// What the file holds from `offset` on; zeros behind the first `of_file` bytes of it.
    fn read_file(&self, of_file: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(of_file.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let (there, behind) = out.split_at_mut(there);
        behind.fill(0);
        self.file.read_exact_at(there, offset)
    }
}

/// The numbers of the pages that so many bytes at `offset` touch.
fn pages_of(offset: u64, length: usize) -> Range<u64> {
    let end = offset.saturating_add(length as u64);
    offset / PAGE..end.div_ceil(PAGE)
}

/// Which bytes of so many at `offset` lie in a page, and from where on in it.
fn within(page: u64, offset: u64, length: usize) -> (Range<usize>, usize) {
    let (start, end) = (page * PAGE, page * PAGE + PAGE);
    let (from, to) = (start.max(offset), end.min(offset + length as u64));
    // All of these are smaller than what is in memory.
    ((from - offset) as usize..(to - offset) as usize, (from - start) as usize)
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let of_file = self.state.lock().of_file;
        // Behind the end, where only a damaged page can point, are zeros: see `Roomy`.
        self.read_file(of_file, offset, out)?;
        let state = self.state.lock();
        for (page, written) in state.pages.range(pages_of(offset, out.len())) {
            let (part, at) = within(*page, offset, out.len());
            let length = part.len();
            out[part].copy_from_slice(&written[at..at + length]);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.length = length;
        state.of_file = state.of_file.min(length);
        state.pages.retain(|page, _| page * PAGE < length);
        // What is cut off reads as zeros if it comes back.
        let cut = usize::try_from(length % PAGE).unwrap_or_default();
        if let Some(last) = state.pages.get_mut(&(length / PAGE)) {
            last[cut..].fill(0);
        }
        Ok(())
    }

    /// What is told is what the file holds, and after a kill that may be in the page cache alone (rule 6).
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        for page in pages_of(offset, data.len()) {
            let (part, at) = within(page, offset, data.len());
            let of_file = self.state.lock().of_file;
            let mut before = vec![0; PAGE as usize];
            if part.len() < before.len() {
                self.read_file(of_file, page * PAGE, &mut before)?;
            }
            let mut state = self.state.lock();
            let written = state.pages.entry(page).or_insert_with(|| before.into());
            written[at..at + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }

    // The store's lock is held, and nobody else opens its files.

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(false)
    }
}
