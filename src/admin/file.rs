//! The file of an admin socket: made so that nobody else can use it, replaced only if its process has ended, and removed
//! only if it is still the one that was made.

use super::serve::ServeError;
use super::wire::MAX_PATH;
use crate::backend::store_around;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::net::SocketFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::geteuid;
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// How many may wait to be taken on.
const BACKLOG: i32 = 16;
const OWNER_ALONE: u32 = 0o600;

#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// What tells the file from another of its name.
    made: (u64, u64),
    made_by: u32,
}

impl SocketFile {
    /// Listens at `path`.
    pub(super) fn listen(path: &Path) -> Result<(UnixListener, Self), ServeError> {
        let given = path.display().to_string();
        let refused = |why: String| ServeError::Refused { path: given.clone(), why };
        let system = |doing| {
            let path = given.clone();
            move |error: io::Error| ServeError::System { path, doing, source: error.into() }
        };
        let Some(name) = path.file_name() else {
            return Err(refused(
                "it names no file; give the path of a file that is not there yet".to_owned(),
            ));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent =
            fs::canonicalize(parent.unwrap_or(Path::new("."))).map_err(system("finding the folder of"))?;
        let mode = fs::metadata(&parent).map_err(system("looking at the folder of"))?.mode();
        // In a folder like /tmp nobody can remove or rename what is another's.
        let (everybody_writes, sticky) = (mode & 0o002 != 0, mode & 0o1000 != 0);
        if everybody_writes && !sticky {
            let why = format!(
                "everybody may write to its folder (mode {:o}), and put a socket of theirs there",
                mode & 0o7777
            );
            return Err(refused(format!("{why}; take that back with chmod o-w, or choose another folder")));
        }
        let path = parent.join(name);
        if let Some(store) = store_around(&parent) {
            let why = format!(
                "it lies in the folder of the store {}, whose files are copied, moved and put back together; choose a path \
                 outside of it",
                store.display()
            );
            return Err(refused(why));
        }
        let address = SocketAddrUnix::new(&path).map_err(|_| {
            let (name, length) = (path.display(), path.as_os_str().len());
            refused(format!(
                "a socket's path has at most {MAX_PATH} bytes, and {name} has {length}; choose a folder nearer to the root"
            ))
        })?;
        let socket = match bound(&address) {
            Err(Errno::ADDRINUSE) => {
                // One at a time looks and replaces. Nothing of the file itself could be locked.
                let folder = File::open(&parent).map_err(system("opening the folder of"))?;
                match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => {
                        return Err(refused(
                            "another process is replacing a socket in its folder; try again".to_owned(),
                        ));
                    }
                    Err(error) => return Err(system("locking the folder of")(error.into())),
                }
                remove_left_behind(&path, &address).map_err(|why| match why {
                    Ok(why) => refused(why),
                    Err(error) => system("looking at")(error),
                })?;
                bound(&address)
            }
            bound => bound,
        };
        let socket = socket.map_err(|error| system("making the socket")(error.into()))?;
        let made = fs::symlink_metadata(&path).map_err(system("looking at"))?;
        let file = Self { path, made: identity(&made), made_by: std::process::id() };
        if made.mode() & 0o777 != OWNER_ALONE {
            fs::set_permissions(&file.path, Permissions::from_mode(OWNER_ALONE)).map_err(|error| {
                file.remove();
                system("setting the mode of")(error)
            })?;
        }
        // Nobody could connect before.
        rustix::net::listen(&socket, BACKLOG).map_err(|error| {
            file.remove();
            system("listening at")(error.into())
        })?;
        Ok((UnixListener::from(socket), file))
    }

    /// Whether this process made it; in a fork nothing is removed.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.made_by
    }

    /// Removes it, if it is there and nobody has put another in its place.
    pub(super) fn remove(&self) {
        let there = fs::symlink_metadata(&self.path);
        if self.is_ours() && there.is_ok_and(|there| identity(&there) == self.made) {
            // If that fails, it is a file that the next one to listen replaces.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket that does not block, and is no other program's.
#[cfg(target_os = "linux")]
fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

#[cfg(not(target_os = "linux"))]
fn socket() -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// A socket at `address`, which nobody can connect to before it listens.
fn bound(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    // On Linux the file gets the socket's own mode, from the first moment.
    let _ = rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::net::bind(&socket, address)?;
    Ok(socket)
}

/// Removes what a process that has ended has left at `path`; else why it stays, or what went wrong.
fn remove_left_behind(path: &Path, address: &SocketAddrUnix) -> Result<(), Result<String, io::Error>> {
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there.map_err(Err)?,
    };
    if !there.file_type().is_socket() {
        return Err(Ok(
            "something is there that is not a socket; move it away, or choose another path".to_owned()
        ));
    }
    if there.uid() != geteuid().as_raw() {
        let why = format!("a socket of the user with the id {} is there; choose another path", there.uid());
        return Err(Ok(why));
    }
    let asking = socket().map_err(|error| Err(error.into()))?;
    match rustix::net::connect(&asking, address) {
        Err(Errno::CONNREFUSED) => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Err(error)),
            _ => Ok(()),
        },
        Err(Errno::NOENT) => Ok(()),
        // Not even one that waits is taken on any more, by somebody who lives.
        Ok(()) | Err(Errno::AGAIN) => {
            Err(Ok("a process listens there already; close that one, or choose another path".to_owned()))
        }
        Err(error) => Err(Err(error.into())),
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
