//! A disk whose power can be cut: an ext4 image on a loop device, for crash tests on Linux as root.
//!
//! A cut drops what the file system had not handed to the device: dirty pages, and every change
//! of names, sizes and block maps that no sync had made part of the journal. It does not drop what
//! a real drive may still hold in its own write cache, and it never tears a sector, so surviving
//! here is necessary for durability, not sufficient.

#![allow(clippy::disallowed_methods)] // a harness: its waiting is not the library's

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::ioctl;

/// `EXT4_IOC_SHUTDOWN`, which is `_IOR('X', 125, __u32)`.
const EXT4_IOC_SHUTDOWN: ioctl::Opcode = ioctl::opcode::read::<u32>(b'X', 125);
/// Stop at once, leaving uncommitted transactions out of the journal.
const NO_LOG_FLUSH: u32 = 2;

/// ext4 gets no journal below a few MiB, and without one a cut is no test of anything.
const MIN_SIZE_MIB: u64 = 16;

const BUSY_RETRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A mounted disk image; dropping it unmounts and deletes it.
#[derive(Debug)]
pub struct Disk {
    /// Holds the image and the mount point, and is named for this process and this disk alone.
    folder: PathBuf,
    mount_point: PathBuf,
    /// The loop device, once it is attached.
    device: Option<String>,
}

impl Disk {
    /// Makes and mounts an empty disk of `size_mib` MiB (at least 16), with no reserve for root,
    /// so that a full disk is full for root as well.
    pub fn new(name: &str, size_mib: u64) -> Result<Disk, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if size_mib < MIN_SIZE_MIB {
            return Err(format!("a disk of {size_mib} MiB is too small for a journal"));
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("{name}.{}.{number}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| format!("create {}: {e}", folder.display()))?;

        // From here on, an early return drops `disk`, and that cleans up whatever was made.
        let mut disk = Disk { mount_point: folder.join("mnt"), folder, device: None };
        let image = disk.image();
        fs::create_dir(&disk.mount_point).map_err(|e| format!("create the mount point: {e}"))?;
        File::create(&image)
            .and_then(|file| file.set_len(size_mib << 20))
            .map_err(|e| format!("create the disk image: {e}"))?;
        // Initialised eagerly, or a kernel thread goes on doing it while the test runs.
        let eagerly = "lazy_itable_init=0,lazy_journal_init=0";
        let format = ["-q", "-m", "0", "-E", eagerly, "-F"];
        run("mkfs.ext4", format.map(OsStr::new).into_iter().chain([image.as_os_str()]))?;
        let device = run("losetup", ["--find".as_ref(), "--show".as_ref(), image.as_os_str()])?;
        disk.device = Some(device.trim().to_owned());
        disk.mount()?;
        Ok(disk)
    }

    /// Whether such disks work on this machine; the error says what is in the way.
    ///
    /// Makes one and cuts it, since no smaller check tells whether a cut really loses anything.
    pub fn available() -> Result<(), String> {
        // Everything below would fail without root too, but with less telling messages.
        let uid = fs::metadata("/proc/self").map_err(|e| format!("read /proc/self: {e}"))?.uid();
        if uid != 0 {
            return Err("not root".to_owned());
        }
        let disk = Disk::new("disk-probe", MIN_SIZE_MIB)?;
        let (synced, unsynced) = (disk.path().join("synced"), disk.path().join("unsynced"));
        File::create(&synced)
            .and_then(|file| file.sync_all())
            .and_then(|()| File::create(&unsynced))
            .map_err(|e| format!("write to the probe disk: {e}"))?;
        disk.cut()?;
        disk.restore()?;
        match (synced.exists(), unsynced.exists()) {
            (true, false) => Ok(()),
            (true, true) => Err("a cut keeps unsynced files on this kernel".to_owned()),
            (false, _) => Err("a cut loses synced files on this kernel".to_owned()),
        }
    }

    /// The mount point: the root folder of the disk.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Cuts the power: what was not synced is lost, and every later write and sync fails.
    ///
    /// Processes that use the disk live on. Kill and reap them before [`Disk::restore`].
    pub fn cut(&self) -> Result<(), String> {
        let root = File::open(&self.mount_point).map_err(|e| format!("open mount point: {e}"))?;
        // SAFETY: the opcode encodes a read of one u32 by the kernel (ext4 takes its flags with
        // get_user, despite the `_IOR`), `Setter` passes a pointer to just that, and it outlives
        // the call. Nothing in this process is written. `root` lies on an ext4 that we mounted.
        #[allow(unsafe_code)] // the library has none; the kernel offers this in no other way
        let shut_down =
            unsafe { ioctl::ioctl(&root, ioctl::Setter::<EXT4_IOC_SHUTDOWN, u32>::new(NO_LOG_FLUSH)) };
        shut_down.map_err(|e| format!("shut down ext4: {e}"))
    }

    /// Makes all that is on the disk durable, as the test's own doing.
    pub fn sync(&self) -> Result<(), String> {
        let root = File::open(&self.mount_point).map_err(|e| format!("open mount point: {e}"))?;
        rustix::fs::syncfs(&root).map_err(|e| format!("sync the disk: {e}"))
    }

    /// Brings the power back: mounts the disk anew, with what survived.
    ///
    /// Fails if some process still has a file or its working directory there.
    pub fn restore(&self) -> Result<(), String> {
        self.unmount()?;
        self.mount()
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    fn mount(&self) -> Result<(), String> {
        let device = self.device.as_deref().ok_or("no loop device")?;
        let mount_point = self.mount_point.as_os_str();
        run("mount", ["-t", "ext4", device].map(OsStr::new).into_iter().chain([mount_point])).map(drop)
    }

    /// The last close of a killed process, or a scanner such as udev, can hold the disk for a
    /// moment, and there is nothing to wait on for that.
    fn unmount(&self) -> Result<(), String> {
        let mut result = run("umount", [&self.mount_point]);
        for _ in 0..BUSY_RETRIES {
            match &result {
                Err(message) if message.contains("busy") => std::thread::sleep(BUSY_PAUSE),
                _ => break,
            }
            result = run("umount", [&self.mount_point]);
        }
        result.map(drop)
    }
}

impl Drop for Disk {
    /// Cleans up as far as it can; a test that is already failing must not panic again here.
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            // In that order: a device in use is only marked, and goes when the mount goes.
            if run("umount", [&self.mount_point]).is_err() {
                let _ = run("umount", ["--lazy".as_ref(), self.mount_point.as_os_str()]);
            }
            let _ = run("losetup", ["--detach", device]);
        }
        let _ = fs::remove_file(self.image());
        // Not remove_dir_all: were it still mounted, that would delete through the mount.
        let _ = fs::remove_dir(&self.mount_point);
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Runs a command, for a minute at most, and returns what it printed, or the reason of its failure in English.
fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<String, String> {
    let output = Command::new("timeout").args(["60", program]).args(arguments).env("LC_ALL", "C").output();
    let output = output.map_err(|e| match e.kind() {
        ErrorKind::NotFound => "timeout is not installed".to_owned(),
        _ => format!("run {program}: {e}"),
    })?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(124) => Err(format!("{program} did not end for a minute")),
        Some(127) => Err(format!("{program} is not installed")),
        _ => {
            let reason = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} failed ({}): {}", output.status, reason.trim()))
        }
    }
}
