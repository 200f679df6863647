//! The thread that serves an admin socket.
//!
//! One loop takes connections on, reads what is asked, and answers a step at a time, so that nobody waits for another who
//! is slow: each has so long for its request, for taking an answer, and for all of it. A change, a backup and the like are
//! done by this thread; meanwhile the others wait, and that is added to their time.

use super::answer::Answer;
use super::command::Command;
use super::connection::{Connection, Turn};
use super::file::SocketFile;
use super::perform::Backups;
use crate::backend::Backend;
use crate::clock::{Clock, Moment, expired};
use crate::store::{Store, WeakStore};
use crate::sync::spawn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How many are served at a time; one more takes the place of the one that has been longest about its request.
const CONNECTIONS: usize = 16;
/// How long at most the thread sleeps while somebody is connected: clocks that are moved by hand wake nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// From when on the others are given back what one of them took. The steps of a listing take less.
const LONG: Duration = Duration::from_millis(100);
/// How long nobody is taken on after the system refused to: it has no room, and would refuse at once again.
const PAUSE: Duration = Duration::from_secs(1);

/// Told of each change.
pub(super) type Recorder = dyn Fn(&Audit<'_>) + Send + Sync;

/// Settings of an admin socket, and the way to open it.
///
/// ```no_run
/// use claimdb::{Store, admin};
/// let store = Store::open("claims")?;
/// let serving = admin::Server::new().audit(|change| eprintln!("{change}")).serve(&store, "/run/shop/claims.sock")?;
/// # drop(serving);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Server {
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) backups: Option<Arc<Backups>>,
}

impl Server {
    /// The default settings: changes are told to the feature `tracing` alone, and backups are made with the store's own
    /// engine, or with the default one if it has no files.
    #[must_use]
    pub fn new() -> Self {
        Self { recorder: None, backups: None }
    }

    /// Shows `record`, beside the feature `tracing`, each change that was asked for, once it is done or refused, on the
    /// socket's thread: it must not wait. A change's `Display` is a line for a log, which shows no keys. If `record` panics,
    /// the change stands all the same.
    #[must_use]
    pub fn audit(mut self, record: impl Fn(&Audit<'_>) + Send + Sync + 'static) -> Self {
        self.recorder = Some(Arc::new(record));
        self
    }

    /// Makes backups with the engine that `backend` gives for a folder, as [`Store::backup_into`].
    #[must_use]
    pub fn backups(mut self, backend: impl Fn(&Path) -> Box<dyn Backend> + Send + Sync + 'static) -> Self {
        self.backups = Some(Arc::new(backend));
        self
    }

    /// Serves `store` at `path`, for as long as what this gives is kept and the store is open. It does not keep the store
    /// open.
    ///
    /// What a process that has ended left there is replaced. The file is of mode 0600; besides, each who connects is asked
    /// for by the kernel, and must be this process's user or root. On systems other than Linux the file's mode alone keeps
    /// others out.
    ///
    /// # Errors
    /// As [`Store::serve_admin`].
    pub fn serve(self, store: &Store, path: impl AsRef<Path>) -> Result<Serving, ServeError> {
        let path = path.as_ref();
        let system = |doing| {
            let path = path.display().to_string();
            move |error: io::Error| ServeError::System { path, doing, source: error.into() }
        };
        if store.is_over() {
            let why = "the store is closed, or was opened by another process; open it first".to_owned();
            return Err(ServeError::Refused { path: path.display().to_string(), why });
        }
        let (woken, wake) = UnixStream::pair().map_err(system("making a pair of sockets for"))?;
        wake.set_nonblocking(true).map_err(system("setting up"))?;
        let (listener, file) = SocketFile::listen(path)?;
        let ending = Arc::new(Ending { file, wake });
        let serving = Serving {
            act: {
                let ending = Arc::clone(&ending);
                Arc::new(move || ending.end())
            },
        };
        store.when_closing(&serving.act);
        let served = Loop {
            store: store.downgrade(),
            clock: store.clock(),
            listener,
            woken,
            server: self,
            connections: Vec::new(),
            pause: Moment::ORIGIN,
            ending,
        };
        spawn("claimdb-admin", move || served.run()).map_err(system("starting a thread for"))?;
        if store.is_over() {
            (serving.act)(); // it was closed before it knew of this
        }
        Ok(serving)
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// An admin socket that is open. Dropping this removes its file and ends its thread, once that is done with the step that
/// it is at.
#[must_use = "an admin socket that is dropped is closed"]
pub struct Serving {
    act: Arc<dyn Fn() + Send + Sync>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        (self.act)();
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

/// Why no admin socket was opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// What is there, or could be put there, forbids it.
    #[error("opening an admin socket at {path}: {why}")]
    Refused {
        /// Where.
        path: String,
        /// Why, and what to do.
        why: String,
    },
    /// The system refused.
    #[error("opening an admin socket at {path}: {doing} it: {source}; mend the cause and try again")]
    System {
        /// Where.
        path: String,
        /// At what.
        doing: &'static str,
        /// What it said.
        source: Arc<io::Error>,
    },
}

/// Who asked, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process, when it connected.
    pub pid: i32,
}

/// A change that was asked for over a socket, and what became of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Audit<'a> {
    /// Who asked; `None` where the system does not tell.
    pub peer: Option<Peer>,
    /// What for.
    pub command: &'a Command,
    /// What was answered.
    pub answer: &'a Answer,
}

impl fmt::Display for Audit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(Peer { uid, pid, .. }) => write!(f, "admin: uid {uid}, process {pid}: ")?,
            None => write!(f, "admin: ")?,
        }
        write!(f, "{}", self.command.name())?;
        if let Some(key) = self.command.key() {
            write!(f, " {key:?}")?;
        }
        match (self.command, self.answer) {
            (Command::Backup { folder }, Answer::BackedUp { records, values, .. }) => {
                write!(f, " into {folder:?}: {records} records, {values} values")
            }
            (_, Answer::Changed { did, before }) => {
                let token = before.token.as_deref().unwrap_or("none");
                write!(f, " (was {}, token {token}): {}", before.state, did.text())
            }
            (_, Answer::Refused { message, .. }) => write!(f, ": refused: {message}"),
            (_, other) => write!(f, ": {other:?}"),
        }
    }
}

/// What ends a socket, from whatever thread.
#[derive(Debug)]
struct Ending {
    file: SocketFile,
    wake: UnixStream,
}

impl Ending {
    fn end(&self) {
        // In a fork both are another process's.
        if self.file.is_ours() {
            self.file.remove();
            // One that is full has been woken.
            let _ = (&self.wake).write(&[0]);
        }
    }
}

struct Loop {
    store: WeakStore,
    clock: Arc<dyn Clock>,
    listener: UnixListener,
    woken: UnixStream,
    server: Server,
    connections: Vec<Connection>,
    /// Nobody is taken on before this.
    pause: Moment,
    ending: Arc<Ending>,
}

impl Loop {
    fn run(mut self) {
        while self.wait().is_ok_and(|ended| !ended) {
            self.turn();
            self.take_on();
        }
        self.ending.end(); // also if the loop was left for another reason
    }

    /// Waits until there is something to do; whether that is to end.
    fn wait(&self) -> io::Result<bool> {
        let now = self.clock.now();
        let paused = !expired(now, self.pause);
        let mut polled = vec![PollFd::new(&self.woken, PollFlags::IN)];
        for connection in &self.connections {
            polled.push(PollFd::new(connection.stream(), connection.waits_for()));
        }
        if !paused {
            polled.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let busy = self.connections.iter().any(Connection::has_work);
        let limit = match () {
            () if busy => Some(Duration::ZERO),
            () if paused || !self.connections.is_empty() => Some(LOOK_AGAIN),
            () => None,
        };
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!polled[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes on with each who is connected. What one takes for a change or a backup is no time of the others.
    fn turn(&mut self) {
        let (mut lost, mut given) = (Duration::ZERO, Vec::with_capacity(CONNECTIONS));
        self.connections.retain_mut(|connection| {
            connection.put_off(lost);
            let (before, began) = (lost, self.clock.now());
            // A panic of the engine, or of who records changes, is the end of that connection alone.
            let turn = catch_unwind(AssertUnwindSafe(|| connection.turn(&self.server, &self.store, began)));
            let took = self.clock.now().since(began);
            if took >= LONG {
                lost += took;
            }
            let goes_on = matches!(turn, Ok(Turn::GoesOn));
            if goes_on {
                given.push(before);
            }
            goes_on
        });
        for (connection, given) in self.connections.iter_mut().zip(given) {
            connection.put_off(lost.saturating_sub(given));
        }
    }

    /// Takes on who has come.
    fn take_on(&mut self) {
        let now = self.clock.now();
        for _ in 0..CONNECTIONS {
            if !expired(now, self.pause) {
                return;
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let Some(mut connection) = Connection::new(stream, now) else { continue };
                    if self.connections.len() >= CONNECTIONS {
                        match self.connections.iter().position(Connection::is_asking) {
                            Some(oldest) => drop(self.connections.remove(oldest)),
                            None => connection.refuse_busy(),
                        }
                    }
                    self.connections.push(connection);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.pause = now.after(PAUSE),
            }
        }
    }
}
