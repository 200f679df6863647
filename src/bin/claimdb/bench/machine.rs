//! What was measured on. The benches look at the machine by this file as well, so it names nothing of the command's.

use claimdb::{Clock, SystemClock};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

/// The machine, as far as it tells; `None` for what it does not tell.
pub(super) struct Machine {
    pub(super) processor: Option<String>,
    pub(super) cores: usize,
    pub(super) memory: Option<u64>,
    pub(super) system: String,
    pub(super) file_system: Option<String>,
    /// How often in a second as many bytes as a result has can be appended to a file and synced.
    pub(super) syncs_per_second: f64,
}

/// Which engines, in the words of Cargo.toml; a test compares them.
const ENGINES: &str = if cfg!(feature = "redb") { "sled 0.34.7, redb 4.6.0" } else { "sled 0.34.7" };

impl Machine {
    /// Looks at the machine, and measures the disk of `folder` for a second, which may fail.
    pub(super) fn look(folder: &Path, bytes: u32) -> io::Result<Self> {
        let name = rustix::system::uname();
        let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Ok(Self {
            processor: field("/proc/cpuinfo", "model name"),
            cores: available_parallelism().map_or(1, usize::from),
            memory: field("/proc/meminfo", "MemTotal").and_then(|kib| kibibytes(&kib)),
            system: format!("{} {}", part(name.sysname()), part(name.release())),
            file_system: file_system(folder),
            syncs_per_second: syncs_per_second(folder, bytes)?,
        })
    }

    pub(super) fn versions() -> String {
        format!("claimdb {}, {ENGINES}", env!("CARGO_PKG_VERSION"))
    }

    pub(super) fn text(&self) -> String {
        let unknown = || "unknown".to_owned();
        let processor = self.processor.clone().unwrap_or_else(unknown);
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        format!(
            "{}\n{processor}, {} cores, {} of memory\n{}, file system {}, {:.0} syncs a second by itself",
            Self::versions(),
            self.cores,
            self.memory.map_or_else(unknown, gib),
            self.system,
            self.file_system.clone().unwrap_or_else(unknown),
            self.syncs_per_second,
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "versions": Self::versions(),
            "processor": self.processor,
            "cores": self.cores,
            "memory_bytes": self.memory,
            "system": self.system,
            "file_system": self.file_system,
            "disk_syncs_per_second": self.syncs_per_second,
        })
    }
}

/// Bytes of memory that this process has.
pub(super) fn resident() -> Option<u64> {
    kibibytes(&field("/proc/self/status", "VmRSS")?)
}

/// Bytes that this process has written to files. Not `write_bytes`: that counts whole folios of the page cache, which file
/// systems make up to 2 MiB large, for each byte that changes in one.
pub(super) fn written() -> Option<u64> {
    field("/proc/self/io", "wchar")?.parse().ok()
}

/// The first `name: value` in a file of `/proc`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn kibibytes(text: &str) -> Option<u64> {
    Some(text.strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The type of the file system that `folder` is on: of the mount with the longest path above it, and of those the last.
fn file_system(folder: &Path) -> Option<String> {
    let folder = fs::canonicalize(folder).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, device) = line.split_once(" - ")?;
        Some((unescaped(mount.split(' ').nth(4)?), device.split(' ').next()?))
    });
    let above = mounts.filter(|(point, _)| folder.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}

/// The kernel writes a space, and whatever else would end a field, as three octal digits behind a backslash.
fn unescaped(point: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .into_iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(point.to_owned(), |point, (written, meant)| point.replace(written, meant))
}

/// Where the file that is synced begins anew: it is to fit on a small disk.
const LONGEST: u64 = 8 << 20;

fn syncs_per_second(folder: &Path, bytes: u32) -> io::Result<f64> {
    let (path, record) = (folder.join("disk"), vec![0x5A; bytes.max(1) as usize]);
    let mut file = File::create_new(&path)?;
    let clock = SystemClock::new();
    let (start, mut syncs) = (clock.now(), 0_u32);
    let mut spent = Duration::ZERO;
    let mut length = 0;
    while spent < Duration::from_secs(1) {
        if length > LONGEST {
            file.set_len(0)?;
            file.rewind()?;
            length = 0;
        }
        file.write_all(&record)?;
        length += u64::from(bytes.max(1));
        file.sync_data()?;
        (syncs, spent) = (syncs + 1, clock.now().since(start));
    }
    fs::remove_file(path)?;
    Ok(f64::from(syncs) / spent.as_secs_f64())
}
