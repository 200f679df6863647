//! sled's own lock, which it takes on its log and gives back only by closing it.
//!
//! A lock of flock's kind belongs to the open file, and a process that was forked off has that too: the lock stays
//! until that one has ended, though the store was closed long ago. So does that of a sled which cannot be closed
//! because it waits for ever. Unlocking gives it back at once, and needs a descriptor of that very open file. sled
//! keeps its own to itself; the system gives another one. Where it does not (before Linux 5.6, on other systems, or
//! where a sandbox forbids it), the next opening waits for the lock as it would for anybody's.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use std::path::{Path, PathBuf};

/// Another descriptor of the file that sled has locked; `None` where there is no way to it.
#[derive(Debug)]
pub(super) struct SledsLock(Option<Found>);

#[derive(Debug)]
struct Found {
    /// sled's own descriptor, by its entry in `/proc/self/fd`.
    theirs: PathBuf,
    ours: OwnedFd,
    log: PathBuf,
}

impl SledsLock {
    /// Looks for it among this process's open files. `log` is the real path of the log that sled has open.
    pub(super) fn find(log: &Path) -> Self {
        Self(find(log))
    }

    /// Whether sled still has the file open, and so may still use it; `None` where nothing tells. The lock itself says
    /// nothing: this descriptor holds it as well.
    pub(super) fn sled_has_it(&self) -> Option<bool> {
        let found = self.0.as_ref()?;
        Some(std::fs::read_link(&found.theirs).is_ok_and(|path| path == found.log))
    }

    /// Gives the lock back, whoever else has the file open. sled must be done with it.
    pub(super) fn give_back(&self) {
        if let Some(Found { ours, .. }) = &self.0 {
            // Should that fail, the next opening is refused and says so.
            let _ = flock(ours, FlockOperation::Unlock);
        }
    }
}

#[cfg(target_os = "linux")]
fn find(log: &Path) -> Option<Found> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let is_locked = |number: &str| {
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
        about.is_ok_and(|about| about.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK")))
    };
    let number = std::fs::read_dir("/proc/self/fd").ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let leads_to_log = std::fs::read_link(entry.path()).is_ok_and(|path| path == log);
        (leads_to_log && is_locked(&name)).then(|| name.parse().ok()).flatten()
    })?;
    let process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    let ours = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()?;
    let theirs = PathBuf::from(format!("/proc/self/fd/{number}"));
    Some(Found { theirs, ours, log: log.to_owned() })
}

#[cfg(not(target_os = "linux"))]
fn find(_: &Path) -> Option<Found> {
    None
}
