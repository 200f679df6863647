//! What can go wrong underneath an operation, and the errors of the operations that need nothing above.
//!
//! Each message says what was tried, on what, what went wrong and what to do.

mod count;
mod damage;
mod open;
mod storage;
mod store_damage;

pub(crate) use count::{bytes, counted};
pub use damage::Damage;
pub use open::OpenError;
pub use storage::StorageError;
pub(crate) use storage::is_full;
pub use store_damage::Remedy;
pub(crate) use store_damage::StoreDamage;

use crate::key::{Key, KeyError, KeyLabel};
use std::sync::Arc;
use std::time::Duration;

/// Why the store refuses writes until it is opened again: a sync failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "a sync failed earlier ({cause}); what it covered may be lost, so the store refuses writes and tells of \
     nothing that no finished sync covers. Mend the cause, close the store and open it again"
)]
pub struct Poisoned {
    pub(crate) cause: Arc<str>,
}

/// What went wrong underneath an operation.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The engine failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The record is damaged. It is left as it is, and its key is not granted, until a backup is restored, a repair puts the
    /// record aside, or [`Store::remove_by_force`](crate::Store::remove_by_force) deletes it, which forgets that its work may
    /// have been done, and does not help against a token above the ceiling. One of a newer version waits for a newer claimdb.
    #[error(
        "the record is damaged: {0}; its key is not granted until {until}",
        until = match .0 {
            Damage::UnknownVersion { .. } => "then",
            _ => "a backup is restored, or the store is closed and `claimdb repair` puts the record aside",
        }
    )]
    Damaged(#[from] Damage),
    /// A sync failed earlier.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// The write was made and its sync has not ended within the store's sync limit.
    #[error(
        "the write was made, and no sync covered it within {waited:?} ({}); it may become durable yet. Try again; \
         if syncs hang, look at the disk",
        match .running { Some(since) => format!("one has been running for {since:?}"), None => "none is running".to_owned() }
    )]
    SyncPending {
        /// How long was waited.
        waited: Duration,
        /// How long the running sync has been at it, if one is running.
        running: Option<Duration>,
    },
    /// The store is closed, and its engine is still in use: it goes, and gives the lock back, once that has ended.
    #[error(
        "the store is closed, and its engine is in use: {}; the lock goes once that has ended, and until then what \
         was written last may not be durable",
        if *.in_waker { "this is a waker that the store runs in the middle of a sync, which is to go on first".to_owned() }
        else { format!("a call of it has not ended within {waited:?}. If it hangs, look at the disk") }
    )]
    EngineInUse {
        /// How long was waited.
        waited: Duration,
        /// Whether the store was closed by a waker that it ran itself, and which therefore could not wait.
        in_waker: bool,
    },
    /// There is no room on the disk for new work. What was begun can be settled, and what is stored is told.
    #[error(
        "{0}; nothing new is begun until there is room: delete something else from this disk, or enlarge it. \
         What was begun can be settled, and what is stored is told"
    )]
    DiskFull(#[source] StorageError),
    /// The key's scope has as many live claims as it may.
    #[error(
        "its scope has {}, which is its bound; wait until some have settled, or raise `Scope::max_live`",
        counted(limit, "live claim", "live claims")
    )]
    ScopeFull {
        /// The bound.
        limit: usize,
    },
    /// The store was closed.
    #[error("the store is closed; open it again")]
    Closed,
    /// This process is a fork of the one that opened the store.
    #[error(
        "the store was opened by process {opened_by} and this is its fork {here}; a fork must not use it, open \
         a store of its own"
    )]
    Forked {
        /// The process that opened the store.
        opened_by: u32,
        /// This process.
        here: u32,
    },
}

impl Fault {
    /// Whether what is stored is damaged: the record itself, or what the engine keeps it in. Trying again does not help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Storage(error) => error.is_damage(),
            _ => false,
        }
    }
}

/// A claim could not be decided. No error ever grants or frees a key.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The key is none.
    #[error("claiming: {0}")]
    InvalidKey(#[from] KeyError),
    /// What was asked for makes no sense.
    #[error("claiming: {0}")]
    InvalidRequest(#[from] InvalidSetting),
    /// This thread is doing the work of this very key, in a [`Store::run`](crate::Store::run) further out, and
    /// would wait for itself. Nothing was changed.
    #[error(
        "claiming {key}: this thread is doing the work of this key inside Store::run, and would wait for itself; \
         use the claim that the work was given, claim another key, or claim this one after run has returned"
    )]
    Nested {
        /// Stands for the key.
        key: KeyLabel,
    },
    /// It went wrong underneath.
    #[error("claiming {key}: {fault}")]
    Failed {
        /// Stands for the key.
        key: KeyLabel,
        /// What went wrong.
        #[source]
        fault: Fault,
    },
}

/// Reading or changing the store from outside a claim failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The key is none.
    #[error("{doing}: {error}")]
    InvalidKey {
        /// What was tried.
        doing: &'static str,
        /// Why it is none.
        #[source]
        error: KeyError,
    },
    /// A live claim or an unsynced settle stands on the key.
    #[error("{doing} {key}: it is in flight; wait until it settles or its lease runs out")]
    InFlight {
        /// What was tried.
        doing: &'static str,
        /// Stands for the key.
        key: KeyLabel,
    },
    /// The encoded value is larger than the store's limit; nothing was changed.
    #[error(
        "{doing} {key}: the encoded value has {length} bytes, and the store takes {limit}; store less, or raise Builder::value_limit"
    )]
    TooLarge {
        /// What was tried.
        doing: &'static str,
        /// Stands for the key.
        key: KeyLabel,
        /// Its length.
        length: usize,
        /// The store's limit.
        limit: usize,
    },
    /// A [`Listing`](crate::Listing) came to a key of which it cannot tell; it goes on behind it.
    #[error("listing {key}: {fault}")]
    Listed {
        /// The key. Messages and `Debug` show its label alone.
        key: Key,
        /// What went wrong.
        #[source]
        fault: Fault,
    },
    /// A scope was not emptied of all its keys.
    #[error(
        "emptying a scope: {} removed for good; {} skipped as unreadable; {first}",
        counted(removed, "key was", "keys were"),
        counted(damaged, "record was", "records were")
    )]
    NotEmptied {
        /// How many were removed, durably.
        removed: u64,
        /// How many were skipped, since their records are damaged.
        damaged: u64,
        /// What ended it, or the first of what was skipped.
        #[source]
        first: Box<AdminError>,
    },
    /// The scope has live claims.
    #[error(
        "{doing}: it has {}; wait until they have settled, or fence them with `LiveClaims::Fence`",
        counted(live, "live claim", "live claims")
    )]
    ScopeInUse {
        /// What was tried.
        doing: &'static str,
        /// How many.
        live: usize,
    },
    /// It went wrong underneath.
    #[error("{doing} {on}: {fault}")]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// Stands for the key, or says "the store".
        on: String,
        /// What went wrong.
        #[source]
        fault: Fault,
    },
}

/// A setting out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {given}; it must be {allowed}")]
pub struct InvalidSetting {
    pub(crate) setting: &'static str,
    pub(crate) given: String,
    pub(crate) allowed: &'static str,
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}
