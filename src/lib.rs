//! An embedded, persistent key-value store whose native verb is *claim*: of any number of callers with the same
//! key exactly one gets the work; the others are refused, wait, or get the stored result.
//!
//! ```
//! use claimdb::{Outcome, Settled, Store, backend::Mem};
//!
//! # fn charge(_token: claimdb::Token) -> String { "receipt".to_owned() }
//! let store = Store::builder(Mem::new()).open()?; // Store::open("claims")? keeps it on disk
//! let receipt: String = match store.claim("order-42")? {
//!     Outcome::Granted(claim) => {
//!         let receipt = charge(claim.token());
//!         claim.complete(&receipt)?;
//!         receipt
//!     }
//!     Outcome::Settled(Settled::Completed(stored)) => stored.decode()?,
//!     Outcome::Settled(_) => return Err("failed before, or not kept".into()),
//!     Outcome::InFlight(holder) => return Err(format!("busy, try again in {:?}", holder.remaining()).into()),
//!     Outcome::Mismatched(_) => return Err("this key was used for something else".into()),
//!     Outcome::Interrupted(case) => return Err(format!("look at attempt {}", case.token()).into()),
//! };
//! assert_eq!(receipt, "receipt");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features, of which each adds and none changes what is there: `sled` (default) and `redb`, the storage engines;
//! `tower`, `json` and `axum`, the layer for HTTP; `metrics` and `tracing`, what the store tells of itself beside
//! [`Store::stats`]; `cli` and `explore`, the command `claimdb`.
//!
//! Start with [`Store`]; [`Durability`] says what a crash may forget, [`protocol`] what is promised, and
//! [`backend`] where the bytes live.
#![forbid(unsafe_code)]

#[cfg(all(loom, shuttle))]
compile_error!("cfg(loom) and cfg(shuttle) exclude each other: run `cargo loom` or `cargo shuttle`");

#[cfg(feature = "admin")]
pub mod admin;
pub mod backend;
#[cfg(feature = "tower")]
pub mod http;
pub mod protocol;

mod clock;
mod commit;
#[cfg(doctest)]
mod documents;
mod error;
mod fingerprint;
mod key;
mod lease;
mod record;
mod store;
mod sync;
mod telemetry;
mod timer;
mod token;
mod value;

pub use clock::{Clock, ManualClock, Moment, SystemClock, WallTime, expired};
pub use commit::SyncBy;
pub use error::{AdminError, ClaimError, Damage, Fault, InvalidSetting, OpenError, Poisoned, StorageError};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use key::{Key, KeyError, KeyLabel, MAX_NAME, MAX_SCOPE};
pub use lease::LossCause;
pub use record::{Durability, EndedBy, Kept, Omission, OnInterrupt, Previous, Record, State, Terms};
#[cfg(any(feature = "sled", feature = "redb"))]
pub use store::Repaired;
pub use store::{
    About, AllClaimed, AlreadySettled, Builder, CheckpointError, Claim, Compared, Copied, CopyError, Ending,
    ExpiredLease, Flaw, InFlight, Inspection, Interrupted, IntoKey, KeyInterrupted, KeyState, Known, Kv,
    KvError, KvScan, Listing, LiveClaims, Lock, LossRaised, LossSignal, Lost, MAX_LEASE, MAX_RETENTION,
    MAX_WAIT, MAX_WRITES, MAX_WRITES_BYTES, Mismatched, Next, Omitted, Outcome, Part, Pending, Rebuilt,
    Refused, Request, Resolution, Retry, RetryCause, Run, RunError, Scope, ScopeCount, SettleError, Settled,
    Stats, Store, StoreFuture, Stored, Swept, ValueKey, Verified, Worked, Writes,
};
#[cfg(any(loom, shuttle))]
pub use sync::Break;
pub use sync::{Raised, Signal};
pub use token::Token;
pub use value::{DecodeError, EncodeError, MAX_VALUE_LIMIT};
