//! The systems that are measured.

mod claimed;
mod embedded;
mod fjall;
mod lmdb;
mod postgres;
mod redb;
mod redis;
mod sqlite;

use crate::job::{Result, System};
use std::path::{Path, PathBuf};

pub use postgres::version as postgres_version;
pub use redis::version as redis_version;

/// What is synced before it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The claim and the result: a power cut loses nothing that was told.
    Full,
    /// The result: a power cut may forget that work had begun.
    Result,
}

impl Level {
    /// How many syncs one operation needs at least when nobody else is there to share them.
    pub fn syncs(self) -> u64 {
        match self {
            Self::Full => 2,
            Self::Result => 1,
        }
    }
}

/// A server that `run.sh` started, or did not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Redis,
    Postgres,
}

impl Server {
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// Where its socket and its process id are, below the folder of the run.
    pub fn folder(self, run: &Path) -> PathBuf {
        run.join(match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        })
    }
}

/// A system at a level.
#[derive(Clone, Copy)]
pub struct Peer {
    pub name: &'static str,
    /// How it claims and how it stores.
    pub way: &'static str,
    pub level: Level,
    pub server: Option<Server>,
    /// Given its level and a folder: of its own, or of its server.
    pub open: fn(Level, &Path) -> Result<Box<dyn System>>,
}

const fn embedded(
    name: &'static str,
    way: &'static str,
    level: Level,
    open: fn(Level, &Path) -> Result<Box<dyn System>>,
) -> Peer {
    Peer { name, way, level, server: None, open }
}

/// In the order of the tables, claimdb's default first.
pub const PEERS: [Peer; 17] = [
    embedded("claimdb, sled", "claim, complete", Level::Full, claimed::sled),
    embedded("claimdb, redb", "claim, complete", Level::Full, claimed::redb),
    embedded("SQLite", "INSERT … ON CONFLICT DO NOTHING, UPDATE, each by itself", Level::Full, sqlite::plain),
    embedded("SQLite, queued", "the same, all that wait in one transaction", Level::Full, sqlite::queued),
    embedded(
        "LMDB, queued",
        "put unless there, put; all that wait in one transaction",
        Level::Full,
        lmdb::open,
    ),
    embedded(
        "redb, queued",
        "get and insert, insert; all that wait in one transaction",
        Level::Full,
        redb::open,
    ),
    embedded(
        "fjall, queued",
        "get and insert, insert; all that wait in one transaction",
        Level::Full,
        fjall::open,
    ),
    Peer {
        name: "Redis",
        way: "SET NX, SET; appendfsync always",
        level: Level::Full,
        server: Some(Server::Redis),
        open: redis::open,
    },
    Peer {
        name: "PostgreSQL",
        way: "INSERT … ON CONFLICT DO NOTHING, UPDATE, each by itself",
        level: Level::Full,
        server: Some(Server::Postgres),
        open: postgres::open,
    },
    embedded("claimdb, sled", "claim, complete", Level::Result, claimed::sled),
    embedded("claimdb, redb", "claim, complete", Level::Result, claimed::redb),
    embedded("SQLite", "a set of keys in memory and SELECT, INSERT by itself", Level::Result, sqlite::plain),
    embedded("SQLite, queued", "the same, all that wait in one transaction", Level::Result, sqlite::queued),
    embedded(
        "LMDB, queued",
        "a set of keys in memory and get, put; all that wait in one transaction",
        Level::Result,
        lmdb::open,
    ),
    embedded(
        "redb, queued",
        "a set of keys in memory and get, insert; all that wait in one transaction",
        Level::Result,
        redb::open,
    ),
    embedded(
        "fjall, queued",
        "a set of keys in memory and get, insert; all that wait in one transaction",
        Level::Result,
        fjall::open,
    ),
    Peer {
        name: "PostgreSQL",
        way: "the same two statements, synchronous_commit off for the first",
        level: Level::Result,
        server: Some(Server::Postgres),
        open: postgres::open,
    },
];

/// What is not measured although its name is asked for, and why.
pub const CANNOT: [(&str, Level, &str); 1] = [(
    "Redis",
    Level::Result,
    "appendfsync is one setting for the whole server: it cannot sync one command and not another",
)];

/// Says it syncs and does not, so that the count of syncs must find it.
pub const TWIN: Peer = embedded("SQLite, synchronous off", "", Level::Full, sqlite::unsynced);
