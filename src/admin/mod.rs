//! Looking into a store and mending it by hand: while its service runs, over a Unix socket, or while nobody has it open.
//!
//! A [`Command`] asked of a [`Store`] gives [`Answers`]; [`ask`] asks a store of this process, [`Client`] one in another that
//! [serves](Store::serve_admin) a socket. Both give the same answers. The command `claimdb` is a user of this.
//!
//! ```
//! use claimdb::admin::{self, Answer, Command, KeyName};
//! use claimdb::{Store, backend::Mem};
//! let store = Store::builder(Mem::new()).open()?;
//! drop(store.claim("order-42")?); // its holder ended without settling
//! let key = KeyName::new(b"", b"order-42");
//! let release = Command::Release { key, token: None, force: false };
//! let told = admin::ask(&store, release).flatten().last();
//! assert!(matches!(told, Some(Answer::Changed { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The socket
//! One thread serves it, without any runtime. It takes one request for each connection, a line of JSON, and answers in
//! lines of JSON: `docs/admin-socket.md` has the protocol. The file has mode 0600, so that its owner and root alone may
//! connect; who asked is known from the kernel, not from the request, and each change can be [recorded](Server::audit).

mod answer;
mod change;
mod client;
mod command;
mod connection;
mod file;
mod perform;
mod serve;
mod stats;
mod wire;

pub use answer::{Answer, Code, Did, KeyTold, Stored};
pub use change::{NO_SUCH_KEY, would_refuse};
pub use client::{Client, ClientError};
pub use command::{Command, KeyName, Settle, Value, Wanted, from_hex};
pub use perform::{Answers, ask};
pub use serve::{Audit, Peer, ServeError, Server, Serving};

use crate::store::Store;
use std::path::Path;

/// The version of the protocol. A request of another is refused, in words.
pub const PROTOCOL: u64 = 1;

impl Store {
    /// Opens an admin socket at `path` with the default settings, for as long as what this gives is kept and the store is
    /// open. See [`Server`] for more.
    ///
    /// # Errors
    /// [`ServeError`] if there is something at `path` that is not the socket of a process that has ended, if others could
    /// put something of theirs there, if it lies in the folder of a store, if its real path has more bytes than the system
    /// takes for a socket (108 on Linux), or if the system refuses.
    pub fn serve_admin(&self, path: impl AsRef<Path>) -> Result<Serving, ServeError> {
        Server::new().serve(self, path)
    }
}
