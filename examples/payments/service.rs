//! The service as a process of its own, which can be killed; the folder that it works in; the files that it may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A service that runs in a process of its own. Dropping it kills it.
pub struct Service(Child);

impl Service {
    /// Starts it with these options, and waits until it says where it listens.
    pub fn start(folder: &Path, options: &[String]) -> io::Result<(Self, SocketAddr)> {
        let child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--store")
            .arg(folder.join("store"))
            .arg("--ledger")
            .arg(folder.join("ledger"))
            .args(options)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut service = Self(child);
        let mut line = String::new();
        if let Some(output) = service.0.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        match address {
            Some(address) => Ok((service, address)),
            None => Err(io::Error::other(format!("the service did not start, it said: {line:?}"))),
        }
    }
}

impl Drop for Service {
    /// With SIGKILL, which it cannot see coming.
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("killing the service: {error}");
        }
    }
}

/// An empty folder: the one that was `asked` for, which must not be there, or `otherwise`, which is emptied.
pub fn fresh_folder(asked: Option<&Path>, otherwise: &str) -> io::Result<PathBuf> {
    let folder = asked.unwrap_or(Path::new(otherwise)).to_owned();
    if asked.is_none() && folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(folder.parent().unwrap_or(Path::new(".")))?;
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

/// Raises the number of files that this process and those it starts may open to the most it may set.
///
/// # Errors
/// If that is less than `needed`.
pub fn raise_open_files(needed: u64) -> io::Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    match most {
        Some(most) if most < needed => Err(io::Error::other(format!(
            "{needed} files have to be open at once, and {most} may be: raise the hard limit (`ulimit -Hn`), or ask for \
             fewer connections"
        ))),
        _ => Ok(()),
    }
}
