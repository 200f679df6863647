//! The sync that sled does not do: a barrier over every file that changed.
//!
//! The first barrier of an opening syncs all files and folders. Later ones sync the log, and what is new in
//! `blobs/` if that folder changed. Whether it changed is told by its modification time, which is only believed
//! once it is older than two seconds: file systems stamp by a coarse tick, and two changes within one look alike.
//!
//! A file in `blobs/` can be found while sled is still writing it: its place in the log is taken before it is made, and the
//! flush before waits for those places alone that were taken when it began. The next flush waits for this one, so what is
//! found first is synced once more after that, and counts as durable from then on.
//!
//! A process that has no descriptors left must not lose its store over that. So `blobs/` is held open, and one
//! descriptor is kept to spare for a new file in it. Should another thread have snatched that one, the whole file
//! system is synced, which takes as long as it takes.

use crate::backend::files::{files_in, sync_folder};
use crate::backend::folder::Folder;
use crate::clock::{Clock, SystemClock, expired};
use crate::error::{OpenError, StorageError};
use crate::sync::{Mutex, Signal};
use rustix::fs::{Dir, FlockOperation, flock};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Barrier {
    root: PathBuf,
    engine: PathBuf,
    blobs: PathBuf,
    log: File,
    /// `blobs/`, held open.
    folder: File,
    /// The same, for listing it. Whoever lists takes it out, and puts it back.
    listing: Mutex<Option<Dir>>,
    /// To be closed when a descriptor is needed and none is left.
    spare: Mutex<Option<File>>,
    clock: SystemClock,
    known: Mutex<Known>,
}

/// What earlier barriers made durable. Copied out before a barrier's I/O and put back after it, so no lock is
/// held across I/O; two barriers at once do each other's work again.
#[derive(Debug, Default, Clone)]
pub(super) struct Known {
    everything: bool,
    /// Files in `blobs/` that are durable.
    blobs: HashSet<PathBuf>,
    /// Those that were found first by the last barrier, and may not have been whole yet when it synced them.
    found: HashSet<PathBuf>,
    /// The modification time of `blobs/` at the last listing, if it can be believed.
    stamp: Option<Stamp>,
    failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    seconds: i64,
    nanos: i64,
}

impl Barrier {
    pub(super) fn new(folder: &Folder) -> Result<Self, OpenError> {
        let failed = || folder.failed("opening sled's files in");
        let open = |path: PathBuf| File::open(path).map_err(failed());
        let log = open(folder.main())?;
        let (held, spare) = (open(folder.blobs())?, open(folder.blobs())?);
        let listing = Dir::read_from(&held).map_err(io::Error::from).map_err(failed())?;
        Ok(Self {
            root: folder.path().to_owned(),
            engine: folder.engine(),
            blobs: folder.blobs(),
            log,
            folder: held,
            listing: Mutex::new(Some(listing)),
            spare: Mutex::new(Some(spare)),
            clock: SystemClock::new(),
            known: Mutex::new(Known::default()),
        })
    }

    /// What is known before a flush: all that it speaks of is whole after it.
    pub(super) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Makes durable what sled has flushed since `before`.
    pub(super) fn sync(&self, before: Known) -> Result<(), StorageError> {
        let synced = match self.run(before) {
            Err(error) if no_descriptor_is_left(&error) => self.sync_file_system(error),
            synced => synced,
        };
        synced.map_err(|error| StorageError::new("syncing", self.root.display().to_string(), error))
    }

    fn run(&self, mut known: Known) -> io::Result<()> {
        let stamp = self.stamp()?;
        let whole = std::mem::take(&mut known.found);
        for blob in &whole {
            self.sync_blob(blob)?;
        }
        known.blobs.extend(whole);
        if !known.everything || known.stamp.is_none() || known.stamp != stamp {
            let blobs = self.list()?;
            known.found = blobs.difference(&known.blobs).cloned().collect();
            for blob in &known.found {
                self.sync_blob(blob)?;
            }
            if blobs != known.blobs || !known.everything {
                self.folder.sync_all()?;
            }
            known.blobs.retain(|blob| blobs.contains(blob));
            known.stamp = stamp;
        }
        if known.everything {
            self.log.sync_data()?;
        } else {
            self.log.sync_all()?;
            for file in files_in(&self.engine)? {
                File::open(file)?.sync_all()?;
            }
            sync_folder(&self.engine)?;
            sync_folder(&self.root)?;
            known.everything = true;
        }
        let mut shared = self.known.lock();
        *shared = Known { failed: shared.failed, ..known };
        Ok(())
    }

    /// What is in `blobs/`.
    fn list(&self) -> io::Result<HashSet<PathBuf>> {
        let held = self.listing.lock().take();
        let mut listing = match held {
            Some(listing) => listing,
            None => Dir::read_from(&self.folder)?,
        };
        listing.rewind();
        let mut found = HashSet::new();
        while let Some(entry) = listing.read() {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                found.insert(self.blobs.join(name));
            }
        }
        *self.listing.lock() = Some(listing);
        Ok(found)
    }

    /// sled deletes blobs that nothing refers to any more.
    fn sync_blob(&self, path: &Path) -> io::Result<()> {
        match self.sync_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let opened = match File::open(path) {
            Err(error) if no_descriptor_is_left(&error) => {
                let spare = self.spare.lock().take();
                drop(spare);
                File::open(path)
            }
            opened => opened,
        };
        let file = opened?;
        // sled makes it as the umask says.
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.sync_all()?;
        if self.spare.lock().is_none() {
            let spare = File::open(&self.blobs).ok();
            *self.spare.lock() = spare;
        }
        Ok(())
    }

    /// Makes everything durable that any of the file system's files holds, without opening one. What is known stays
    /// as it is, so that the next barrier looks again.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn sync_file_system(&self, _: io::Error) -> io::Result<()> {
        // Asked for by itself as well: before Linux 5.8 a sync of the whole tells of no error.
        self.log.sync_data()?;
        Ok(rustix::fs::syncfs(&self.folder)?)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn sync_file_system(&self, error: io::Error) -> io::Result<()> {
        Err(error)
    }

    /// The modification time of `blobs/`; `None` if it is too fresh to be told from the next one.
    fn stamp(&self) -> io::Result<Option<Stamp>> {
        let found = fs::metadata(&self.blobs)?;
        let stamp = Stamp { seconds: found.mtime(), nanos: found.mtime_nsec() };
        let now = i64::try_from(self.clock.wall().unix_seconds()).unwrap_or(i64::MAX);
        Ok((now > stamp.seconds.saturating_add(2)).then_some(stamp))
    }

    /// Waits until sled has let go of its own lock on the log. Its threads can hold the file for a moment after the
    /// last handle was dropped, and the next opening would be refused.
    pub(super) fn wait_for_sleds_lock(&self) {
        self.wait_until(|| flock(&self.log, FlockOperation::NonBlockingLockExclusive).is_ok());
        // The lock goes with the file; should that fail, the next opening is refused and says so.
        let _ = flock(&self.log, FlockOperation::Unlock);
    }

    /// Waits until sled is done, for a second at most: the next opening waits as well, and says so.
    pub(super) fn wait_until(&self, done: impl Fn() -> bool) {
        const LOOK_AGAIN: Duration = Duration::from_millis(1);
        let deadline = self.clock.now().after(Duration::from_secs(1));
        while !done() {
            let now = self.clock.now();
            if expired(now, deadline) {
                return;
            }
            self.clock.wait(&Arc::new(Signal::new()), now.after(LOOK_AGAIN));
        }
    }

    /// Tells that a sync failed, so that this opening never counts as closed cleanly.
    pub(super) fn failed(&self) {
        self.known.lock().failed = true;
    }

    /// The last barrier, after sled is gone.
    pub(super) fn close(&self) -> io::Result<()> {
        {
            let mut known = self.known.lock();
            if known.failed {
                return Err(io::Error::other("a sync failed earlier"));
            }
            known.everything = false;
        }
        self.run(self.known())
    }
}

fn no_descriptor_is_left(error: &io::Error) -> bool {
    let number = rustix::io::Errno::from_io_error(error);
    matches!(number, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}
