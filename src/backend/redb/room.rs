//! Room on the disk for redb, taken before it is needed.
//!
//! A write that fails leaves redb unusable until it is opened again, reads included. So no write is told that the disk
//! is full while the file `reserve` has anything: a part of that is given back, and the write is made again. From
//! then on new work is refused, and what was begun is settled in the room that is left; closing and opening write
//! within it too. Each refused claim tries to take the reserve anew, so the store goes on once there is room. If
//! settles use all of it up, the write fails, the store is poisoned, and what was told is there once it is opened again.
//!
//! What is given back anybody on the disk may take, so a write asks for the next part until there is none.

use crate::backend::folder::Folder;
use crate::backend::reserve::{Reserve, errno, is_full, no_room};
use crate::error::StorageError;
use crate::sync::Mutex;
use ::redb::backends::FileBackend;
use ::redb::{BackendError, StorageBackend};
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// What settles have on a full disk.
const RESERVE: u64 = 16 << 20;
/// So much of it is given back at a time. A write is a page: 4 KiB, or what a value needs.
const PART: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Room {
    place: String,
    reserve: Reserve,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    full: bool,
    /// How many writes are asking for what they could not have. Whoever took the reserve anew meanwhile would take it
    /// from them.
    asking: u32,
}

impl Room {
    pub(super) fn new(folder: &Folder) -> Self {
        Self { place: folder.name(), reserve: Reserve::of(folder), state: Mutex::default() }
    }

    /// Takes what room there is. Whether that is enough, [`check`](Self::check) tells.
    pub(super) fn take(&self) {
        if self.state.lock().asking > 0 {
            return;
        }
        let full = self.reserve.take(RESERVE).is_err_and(is_full);
        let mut state = self.state.lock();
        // A write that has asked meanwhile knows better.
        if state.asking == 0 {
            state.full = full;
        }
    }

    /// Whether there is room for new work. Looks again if there was none.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        if self.state.lock().full {
            self.take();
        }
        if self.state.lock().full { Err(no_room(&self.place)) } else { Ok(()) }
    }

    /// Writes what a full disk has refused, in room that is given back for it.
    fn write_again(&self, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            state.full = true;
            state.asking += 1;
        }
        let written = loop {
            let left = self.reserve.give_back(PART);
            match write() {
                Err(error) if left && is_full(errno(&error)) => {}
                written => break written,
            }
        };
        self.state.lock().asking -= 1;
        written
    }
}

/// redb's file, whose writes have the reserve.
#[derive(Debug)]
pub(super) struct Roomy {
    pub(super) file: FileBackend,
    pub(super) room: Arc<Room>,
}

impl Roomy {
    fn with_room(&self, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        match write() {
            Err(error) if is_full(errno(&error)) => self.room.write_again(write),
            written => written,
        }
    }
}

impl StorageBackend for Roomy {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.file.read(offset, out) {
            // A damaged page points there. Of an error redb would remember that nothing can be read; of zeros it says
            // that they are no page.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                out.fill(0);
                Ok(())
            }
            read => read,
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_room(|| self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with_room(|| self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
