//! The store's folder: who may use it, what stands in it, and how it is made fit for its engine.
//!
//! ```text
//! lock     held by flock(2) for the time of an opening; its text is the process id, for people
//! format   "claimdb 1 sled": written after the first sync; where it is, the engine must find records
//! clean    there between a clean close and the next opening, see `closed.rs`
//! tail     the checksum of the end of sled's log at a clean close, see `sled/log.rs`
//! reserve  room on the disk, see `reserve.rs`
//! sled/    the engine's own files, in a folder that is named for it
//! aside-…  files that were damaged, for people
//! ```
//!
//! While a store is compacted or repaired there are three more, see `replace.rs`.

use super::closed;
use super::files::{files_in, is_file_or_gone, is_folder_or_gone, sync_above, sync_folder, write_synced};
use super::format::{FORMAT_PREFIX, FORMAT_VERSION, Files, REDB, SLED, read_format};
use super::owner::may_be_used;
use super::replace;
use crate::clock::{Clock as _, SystemClock};
use crate::error::{InvalidSetting, OpenError, StorageError, StoreDamage};
use crate::sync::Mutex;
use crate::telemetry::opening;
use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A store's folder, locked.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    files: Files,
    /// Whether `format` was there when the folder was opened.
    existed: bool,
    /// Whether `format` is there now.
    marked: Mutex<bool>,
    /// Its lock goes when this is dropped. The file itself is never deleted, so all openings lock one inode.
    lock: File,
}

impl Folder {
    /// Refuses a path where there is certainly no store, for those who would not make one. What cannot be looked at may be
    /// one.
    pub(super) fn must_be_there(path: &Path, files: Files) -> Result<(), OpenError> {
        leads_somewhere(path)?;
        let place = path.display().to_string();
        if fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
            return Err(OpenError::NotAFolder { place });
        }
        let certainly_not = |path: PathBuf| match path.try_exists() {
            Ok(there) => !there,
            Err(error) => error.kind() == io::ErrorKind::NotADirectory,
        };
        let main = path.join(files.engine).join(files.main);
        if certainly_not(path.join("format")) && certainly_not(main) && !has_been_store(path, files) {
            return Err(OpenError::NoStore { place });
        }
        Ok(())
    }

    /// Creates the folder if it is not there, and takes its lock.
    pub(super) fn lock(path: &Path, files: Files) -> Result<Self, OpenError> {
        let place = path.display().to_string();
        if cfg!(any(loom, shuttle)) {
            let why =
                "a model sees nothing of the threads and files of this engine; use backend::Mem in models";
            return Err(OpenError::Storage { source: StorageError::new("using", place.clone(), why), place });
        }
        leads_somewhere(path)?;
        let failed = |doing| open_failed(doing, place.clone());
        let mut made = 0;
        match fs::metadata(path) {
            Ok(found) if !found.is_dir() => return Err(OpenError::NotAFolder { place }),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let named = path.ancestors().filter(|above| !above.as_os_str().is_empty());
                made = named.take_while(|above| !above.exists()).count();
                let create = DirBuilder::new().recursive(true).mode(0o700).create(path);
                create.map_err(failed("creating the folder"))?;
            }
            Err(error) => return Err(failed("looking at")(error)),
        }
        let path = fs::canonicalize(path).map_err(failed("finding the real path of"))?;
        let place = path.display().to_string();
        let mode = fs::metadata(&path).map_err(failed("looking at"))?.permissions().mode();
        if mode & 0o002 != 0 {
            return Err(OpenError::Exposed { place, mode: mode & 0o7777 });
        }
        may_be_used(&path, files)?;

        let lock_path = path.join("lock");
        is_file_or_gone(&path, "lock", &place)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = match options.open(&lock_path) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                return Err(OpenError::ReadOnly { place });
            }
            opened => opened.map_err(failed("opening the lock file in"))?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = fs::read_to_string(&lock_path).unwrap_or_default();
                let holder = holder.trim();
                let holder = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
                return Err(OpenError::Locked { place, holder });
            }
            Err(error) => return Err(failed("locking")(error.into())),
        }
        // Information for people alone, so a failure to write it is none.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));

        for name in ["format", "clean", "tail", "reserve", replace::MARK] {
            is_file_or_gone(&path, name, &place)?;
        }
        for name in [files.engine.to_owned(), format!("{}/blobs", files.engine)] {
            is_folder_or_gone(&path, &name, &place)?;
        }
        for name in [files.main, "conf"] {
            is_file_or_gone(&path, &format!("{}/{name}", files.engine), &place)?;
        }
        let existed = read_format(&path, &place, files.engine)?;
        if !existed {
            sync_above(&path, made).map_err(failed("syncing the folder above"))?;
        }
        Ok(Self { path, files, existed, marked: Mutex::new(existed), lock })
    }

    /// Whether the engine's main file is there. To be asked before the engine opens, which makes a new file where it finds none,
    /// and before anything else is looked at or moved.
    pub(super) fn has_main(&self) -> Result<(), OpenError> {
        let Files { engine, main } = self.files;
        let is_left = || self.existed || has_been_store(&self.path, self.files);
        if self.main_length()? > 0 || !is_left() {
            return Ok(());
        }
        let places = replace::FOLDERS.map(|folder| format!("{folder}/{engine}"));
        let moved = places.into_iter().find(|place| self.path.join(place).join(main).exists());
        let file = match self.existed {
            true => format!("{engine}/{main}"),
            // Nothing tells any more whose it was.
            false => [SLED, REDB].map(|files| format!("{}/{}", files.engine, files.main)).join("` or `"),
        };
        Err(OpenError::damaged(
            self.name(),
            &match moved {
                Some(found) => StoreDamage::Moved { file, found },
                None => StoreDamage::Gone { file },
            },
        ))
    }

    /// Unless the last close was clean, syncs every file and drops it from the page cache, which after a failed sync can
    /// hold what never reached the disk (rule 7). Before anything of the engine's is read.
    pub(super) fn read_anew(&self) -> Result<(), OpenError> {
        if self.was_closed_with()?.is_some() || !self.existed {
            return Ok(());
        }
        opening::unclean_end();
        let read_anew = || -> io::Result<()> {
            for file in self.all_files()? {
                let file = File::open(file)?;
                file.sync_all()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
            Ok(())
        };
        read_anew().map_err(self.failed("preparing the files in"))
    }

    /// Takes the note of a clean close away from its engine, which is about to write.
    pub(super) fn prepare(&self) -> Result<(), OpenError> {
        let noted = self.was_closed_with()?.is_some();
        let done = if noted { self.not_closed_cleanly() } else { Ok(()) };
        done.map_err(self.failed("preparing the files in"))
    }

    /// Whether the folder's path still leads to this folder. If it was deleted or moved away, what is synced is in
    /// files that nobody will find again, and another opening may have the path.
    pub(super) fn is_there(&self) -> Result<(), StorageError> {
        let ours = rustix::fs::fstat(&self.lock).map_err(io::Error::from);
        let there = rustix::fs::stat(self.path.join("lock")).map_err(io::Error::from);
        let same = ours.and_then(|ours| Ok((ours, there?)));
        let gone = match same {
            Ok((ours, there)) if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) => return Ok(()),
            Ok(_) => io::Error::other("another folder has taken its place, or its file `lock` was deleted"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                io::Error::other("the folder is gone, or its file `lock` was deleted")
            }
            Err(error) => error,
        };
        Err(StorageError::new("finding the folder again at", self.name(), gone))
    }

    /// Tells that the store has had a finished sync: from now on an empty engine is damage.
    pub(super) fn exists_now(&self) -> Result<(), StorageError> {
        if *self.marked.lock() {
            return Ok(());
        }
        let write = || -> io::Result<()> {
            let text = format!("{FORMAT_PREFIX}{FORMAT_VERSION} {}\n", self.files.engine);
            write_synced(&self.path.join("format.new"), text.as_bytes())?;
            fs::rename(self.path.join("format.new"), self.path.join("format"))?;
            sync_folder(&self.path)
        };
        write().map_err(|error| StorageError::new("writing the format file in", self.name(), error))?;
        *self.marked.lock() = true;
        Ok(())
    }

    /// Tells that the store was closed with everything synced. If that cannot be written, the next opening takes
    /// longer and is as safe.
    pub(super) fn closed_cleanly(&self) {
        if self.is_there().is_err() {
            return;
        }
        let Ok(length @ 1..) = self.main_length() else { return };
        let _ = closed::write(&self.path, length);
    }

    /// Moves files into a folder `aside-` and the date, for people; tells where that is.
    pub(super) fn put_aside(&self, files: &[PathBuf]) -> io::Result<PathBuf> {
        let aside = self.path.join(format!("aside-{}", SystemClock::new().wall().utc()));
        DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
        for file in files {
            if let Some(name) = file.file_name() {
                let to = aside.join(name);
                if to.try_exists()? {
                    let reason = format!("`{}` is there already; try again in a second", to.display());
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
                }
                fs::rename(file, to)?;
            }
        }
        sync_folder(&aside)?;
        sync_folder(&self.path)?;
        opening::put_aside(&aside, files.len());
        Ok(aside)
    }

    /// None where there is none.
    fn main_length(&self) -> Result<u64, OpenError> {
        match fs::metadata(self.main()) {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(self.failed("looking at the engine's file in")(error)),
        }
    }

    /// Whether the store had been synced before this opening.
    pub(super) fn existed(&self) -> bool {
        self.existed
    }

    /// What an opening is told that failed at `doing` to the folder.
    pub(super) fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> OpenError + use<> {
        open_failed(doing, self.name())
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn engine_name(&self) -> &'static str {
        self.files.engine
    }

    /// Where the engine's files are.
    pub(super) fn engine(&self) -> PathBuf {
        self.path.join(self.files.engine)
    }

    /// The engine's one large file.
    pub(super) fn main(&self) -> PathBuf {
        self.engine().join(self.files.main)
    }

    /// Where sled puts what is too large for its log.
    pub(super) fn blobs(&self) -> PathBuf {
        self.engine().join("blobs")
    }

    /// How many bytes the files in it take on the disk, blocks that are allocated ahead included.
    pub(super) fn size(&self) -> Result<u64, StorageError> {
        let sum = || -> io::Result<u64> {
            let mut bytes = 0;
            for file in files_in(&self.path)?.into_iter().chain(self.all_files()?) {
                match fs::metadata(file) {
                    Ok(found) => bytes += found.blocks() * 512,
                    // The engine deletes files now and then.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(bytes)
        };
        sum().map_err(|error| StorageError::new("measuring the files in", self.name(), error))
    }

    /// All of the engine's files.
    pub(super) fn all_files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = files_in(&self.engine())?;
        files.extend(files_in(&self.blobs())?);
        Ok(files)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Not left to the closing of the file: a process that is just being started from this one, by whomever,
        // has a copy of the descriptor until it runs its own program, and the lock would stay until then.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Whether something stands in the folder that only a store leaves there which had its engine's file before: each of these
/// comes after a sync but `reserve`, beside which a first opening that was cut off leaves an empty file of the engine's.
/// `lock` comes first, and says nothing.
fn has_been_store(path: &Path, files: Files) -> bool {
    let is_there = |name: &str| path.join(name).exists();
    let had_syncs = ["clean", "tail", replace::MARK].into_iter().any(is_there);
    had_syncs || is_there("reserve") && !path.join(files.engine).join(files.main).exists()
}

/// Refuses an empty path, which would be taken for the working folder, and one behind a link that leads nowhere, perhaps to
/// a disk that is not mounted.
fn leads_somewhere(path: &Path) -> Result<(), OpenError> {
    if path.as_os_str().is_empty() {
        let allowed = "that of a store's folder";
        return Err(InvalidSetting { setting: "the path", given: "empty".to_owned(), allowed }.into());
    }
    let dangles = |path: &&Path| path.is_symlink() && path.try_exists().is_ok_and(|there| !there);
    match path.ancestors().find(dangles) {
        Some(link) => Err(OpenError::DanglingLink {
            place: path.display().to_string(),
            link: link.display().to_string(),
        }),
        None => Ok(()),
    }
}

/// What an opening of the store in `place` is told that failed at `doing` to it.
pub(super) fn open_failed(doing: &'static str, place: String) -> impl FnOnce(io::Error) -> OpenError {
    move |error| {
        let source = StorageError::new(doing, place.clone(), error);
        OpenError::Storage { place, source }
    }
}
