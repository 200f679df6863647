//! Room on the disk, taken before it is needed.
//!
//! A write that finds the disk full leaves sled unusable until it is opened again, and an opening writes too: sled
//! fills up the log's last segment with zeros and writes a snapshot. So the blocks of the log's next segment are
//! allocated ahead of its end, and a file `reserve` stands for what an opening needs; it is deleted before sled
//! opens and made again once it is open. While either cannot be had, new work is refused, and what was begun is
//! settled in the room that is left: between one and two segments (8 to 16 MiB). If settles use that up as well,
//! they fail, the store is poisoned, and everything that was told is there once it is opened again.
//!
//! Blocks ahead of a file's end belong to it: they go when the file does, and `ls` does not show them.

use super::SEGMENT_SIZE;
use crate::backend::folder::Folder;
use crate::backend::reserve::{Reserve, is_full, no_room};
use crate::error::{OpenError, StorageError};
use crate::sync::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;

const SEGMENT: u64 = SEGMENT_SIZE as u64;

#[derive(Debug)]
pub(super) struct Room {
    place: String,
    reserve: Reserve,
    log: File,
    state: Mutex<State>,
}

/// Copied out before the system is asked and put back after it, so no lock is held across I/O; two at once do each
/// other's work again.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// How long the log was when it was last looked at. sled cuts it now and then, and the blocks ahead go with that.
    length: u64,
    /// Up to where its blocks are allocated.
    taken: u64,
    /// How large `reserve` is.
    reserved: u64,
    full: bool,
}

/// Gives the room back that an opening needs. Before sled is opened.
pub(super) fn release(folder: &Folder) -> io::Result<()> {
    if !folder.existed() {
        return Ok(());
    }
    Reserve::of(folder).release()
}

impl Room {
    /// Takes what room there is.
    pub(super) fn new(folder: &Folder) -> Result<Self, OpenError> {
        let place = folder.name();
        let log = OpenOptions::new().write(true).open(folder.main());
        let log = log.map_err(folder.failed("opening sled's log in"))?;
        let room = Self { place, reserve: Reserve::of(folder), log, state: Mutex::new(State::default()) };
        room.take();
        Ok(room)
    }

    /// Takes room ahead of the log as it is now. Whether there is enough, [`check`](Self::check) tells.
    pub(super) fn take(&self) {
        let mut state = *self.state.lock();
        let taken = self.try_take(&mut state);
        state.full = taken.is_err_and(is_full);
        *self.state.lock() = state;
    }

    fn try_take(&self, state: &mut State) -> Result<(), Errno> {
        let length = u64::try_from(rustix::fs::fstat(&self.log)?.st_size).unwrap_or(0);
        if length < state.length {
            state.taken = length;
        }
        state.length = length;
        // Both grow a segment at a time, not with each sync: that would be one more change for the file system to journal.
        let segments = length.next_multiple_of(SEGMENT);
        let wanted = segments + SEGMENT;
        if wanted > state.taken {
            fallocate(&self.log, FallocateFlags::KEEP_SIZE, state.taken, wanted - state.taken)?;
            state.taken = wanted;
        }
        // A snapshot is far smaller than the log; see `tests/full_disk.rs`.
        let reserved = (1 << 20) + segments / 32;
        if reserved > state.reserved {
            self.reserve.take(reserved)?;
            state.reserved = reserved;
        }
        Ok(())
    }

    /// Whether there is room for new work. Looks again if there was none.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        if self.state.lock().full {
            self.take();
        }
        if self.state.lock().full { Err(no_room(&self.place)) } else { Ok(()) }
    }
}
