//! Asking a store in another process.

use super::PROTOCOL;
use super::answer::Answer;
use super::command::Command;
use super::wire::{MAX_PATH, Request, peer, push_line};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::geteuid;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for being taken on.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait for anything of an answer. Another's change can be before it, which may wait as long for its sync.
const ANSWERS_WITHIN: Duration = Duration::from_secs(90);
/// What to do about a service of another user.
const AS_ITS_USER: &str = "ask as the user of its service, or as root (runuser -u NAME -- claimdb ...)";
/// The longest line of an answer.
const MAX_LINE: u64 = 1 << 20;

/// A connection to a service's admin socket, for one command.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: String,
}

/// Why a service could not be asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody is there.
    #[error("connecting to {path}: {source}; {}", how_to_connect(source))]
    Connecting {
        /// The socket.
        path: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Another user's process is there.
    #[error(
        "connecting to {path}: it is served by the user with the id {uid}, who is neither root nor you, and nothing was asked; {AS_ITS_USER}"
    )]
    NotOurs {
        /// The socket.
        path: String,
        /// Whose it is.
        uid: u32,
    },
    /// The connection ended, or brought what is no answer.
    #[error(
        "asking the service at {path}: {why}. What was asked for may have been done; look before asking again"
    )]
    Asking {
        /// The socket.
        path: String,
        /// What went wrong.
        why: String,
    },
    /// Something else is there.
    #[error(
        "connecting to {path}: it is {what} and not a socket; give the path at which the service serves its admin socket, or \
         with --store the folder of a store that no process has open"
    )]
    NotASocket {
        /// The path.
        path: String,
        /// What is there.
        what: &'static str,
    },
    /// The system takes no socket's path of this length.
    #[error(
        "connecting to {path}: a socket's path has at most {MAX_PATH} bytes, and this one has {length}; go into its folder, and \
         give its name alone"
    )]
    PathTooLong {
        /// The path.
        path: String,
        /// How many bytes it has.
        length: usize,
    },
}

impl Client {
    /// Connects to the socket at `path`. Whoever serves it must be the user of this process, or root; root asks everybody.
    ///
    /// # Errors
    /// [`ClientError`] if nobody is there, or somebody else is.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        let (path, name) = (path.as_ref(), path.as_ref().display().to_string());
        let connecting = |error: Errno| ClientError::Connecting {
            path: name.clone(),
            source: Arc::new(io::Error::from(error)),
        };
        let length = path.as_os_str().len();
        let address = SocketAddrUnix::new(path).map_err(|error| match error {
            Errno::NAMETOOLONG => ClientError::PathTooLong { path: name.clone(), length },
            error => connecting(error),
        })?;
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
        let socket = socket.map_err(connecting)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(connecting)?;
        set_socket_timeout(&socket, Timeout::Send, Some(CONNECTS_WITHIN)).map_err(connecting)?;
        rustix::net::connect(&socket, &address).map_err(|error| match not_a_socket(path) {
            Some(what) => ClientError::NotASocket { path: name.clone(), what },
            None => connecting(error),
        })?;
        let stream = UnixStream::from(socket);
        let us = geteuid().as_raw();
        match peer(&stream) {
            Some(peer) if peer.uid != us && peer.uid != 0 && us != 0 => {
                Err(ClientError::NotOurs { path: name, uid: peer.uid })
            }
            _ => Ok(Self { stream, path: name }),
        }
    }

    /// Asks, and gives the answers as they come; the last one [ends](Answer::is_last) them.
    ///
    /// # Errors
    /// [`ClientError`] if it cannot be asked. Those of the iterator end it.
    pub fn ask(
        mut self,
        command: &Command,
    ) -> Result<impl Iterator<Item = Result<Answer, ClientError>>, ClientError> {
        let asking = |why: String| ClientError::Asking { path: self.path.clone(), why };
        let ask = serde_json::value::to_raw_value(command).map_err(|error| asking(error.to_string()))?;
        let mut line = Vec::new();
        push_line(&mut line, &Request { claimdb_admin: PROTOCOL, ask: Some(&ask) });
        // A backup takes as long as it takes.
        let limit = Some(ANSWERS_WITHIN).filter(|_| !matches!(command, Command::Backup { .. }));
        self.stream.set_read_timeout(limit).map_err(|error| asking(error.to_string()))?;
        let sent = self.stream.write_all(&line);
        let mut answers = BufReader::new(self.stream);
        let path = self.path;
        let mut ended = false;
        let mut sent = Some(sent);
        Ok(std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let answer = match (next_answer(&mut answers), sent.take()) {
                // It may have been refused before all of it was sent.
                (Err(_), Some(Err(error))) => Err(error.to_string()),
                (answer, _) => answer,
            };
            ended = answer.as_ref().map_or(true, Answer::is_last);
            Some(answer.map_err(|why| ClientError::Asking { path: path.clone(), why }))
        }))
    }
}

fn how_to_connect(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => AS_ITS_USER,
        _ => {
            "see that its service runs and serves this socket; if it is stopped, its store can be looked at with --store"
        }
    }
}

/// What is at `path`, if it is certain that it is no socket.
fn not_a_socket(path: &Path) -> Option<&'static str> {
    match fs::metadata(path).ok()?.file_type() {
        kind if kind.is_socket() => None,
        kind if kind.is_dir() => Some("a folder"),
        _ => Some("a file"),
    }
}

fn next_answer(answers: &mut impl BufRead) -> Result<Answer, String> {
    let mut line = Vec::new();
    let read = answers.take(MAX_LINE).read_until(b'\n', &mut line);
    match read {
        Ok(_) if line.ends_with(b"\n") => serde_json::from_slice(&line).map_err(|error| {
            format!("it brought what this claimdb does not understand ({error}); use that of the service")
        }),
        Ok(_) if line.is_empty() => Err("it closed the connection before it had answered".to_owned()),
        Ok(_) => Err("its answer was cut off, or has no end".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(format!(
            "it did not answer within {ANSWERS_WITHIN:?}; it may be making a backup, or its disk hangs"
        )),
        Err(error) => Err(error.to_string()),
    }
}
