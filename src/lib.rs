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
//!     Outcome::Interrupted(case) => return Err(format!("look at the attempt with token {}", case.token()).into()),
//! };
//! assert_eq!(receipt, "receipt");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Store::run`] does this in one call, and frees the key when the work fails; work that may have acted before it failed wants
//! [`run_by`](Store::run_by) and [`Ending::Drop`], so that the next attempt is told. [`protocol`] says what is promised, [`backend`] where the bytes live.
//!
//! # What a caller is told
//!
//! | [`Outcome`] | means | then |
//! |---|---|---|
//! | `Granted` | the key is the caller's, for a [lease](Request::lease) of 30 s unless set | do the work, then settle the [`Claim`]; if it has a [`previous`](Claim::previous), find out first what that did |
//! | `Settled` | the work is done: completed, failed for good, or done and not kept | give that back |
//! | `InFlight` | another has the key | try again after [`remaining`](InFlight::remaining), or ask with a [`wait`](Request::wait) |
//! | `Mismatched` | the key was used for something else, by its [`Fingerprint`] | refuse; a retry changes nothing |
//! | `Interrupted` | a holder ended without settling, and asked for [quarantine](OnInterrupt::Quarantine) | a person, or a rule, [resolves](Store::resolve) it |
//!
//! # Ending a claim
//!
//! | [`Claim`] | the key is then |
//! |---|---|
//! | [`complete`](Claim::complete) | settled: everyone is given the result until its [retention](Request::retention) ends, 24 h unless set |
//! | [`fail`](Claim::fail) | settled: everyone is given the reason, and nothing runs again |
//! | [`omit`](Claim::omit) | settled, without a result |
//! | [`release`](Claim::release) | free, as if it had not been claimed |
//! | dropped, also by a panic | free: the next claimant is granted it as the next attempt, or as the first if the claim was kept in memory alone; or interrupted, if that was asked for |
//!
//! When a settle returns `Ok` it is durable, as far as the claim's [`Durability`] asks for that.
//!
//! # Work that takes long
//!
//! Renew the lease, stop when the claim is lost, and save what was done:
//!
//! ```
//! use claimdb::{Store, backend::Mem};
//! use std::time::Duration;
//! # let store = Store::builder(Mem::new()).open()?;
//! let mut claim = store.claim("import-7")?.granted().ok_or("somebody else is at it")?;
//! claim.keep_alive(Duration::from_secs(600))?; // renewed by itself, for ten minutes at most
//! let begin = claim.last_checkpoint().map_or(0, |saved| saved[0]); // where the attempt before stopped
//! for part in begin..3 {
//!     if claim.lost().is_raised() {
//!         return Err("somebody else was granted the key".into());
//!     }
//!     // ... the work of this part ...
//!     claim.checkpoint([part + 1])?;
//! }
//! claim.complete("3 parts")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Many keys, scopes, plain values
//!
//! [`claim_all`](Store::claim_all) takes all keys or none, [`claim_many`](Store::claim_many) each for itself under one sync.
//! A [`Scope`] says whose keys they are, and has terms of its own. [`kv`](Store::kv) keeps plain values, and
//! [`complete_with`](Claim::complete_with) writes them in one step with a completion.
//!
//! ```
//! use claimdb::{AllClaimed, Store, Writes, backend::Mem};
//! # let store = Store::builder(Mem::new()).open()?;
//! let AllClaimed::Granted(seats) = store.claim_all(["seat-1A", "seat-1B"])? else {
//!     return Err("one of them is taken".into());
//! };
//! for seat in seats {
//!     seat.complete_with("sold", Writes::new().put("sales", "last", "row 1"))?;
//! }
//! assert_eq!(store.kv("sales").get("last")?.as_deref(), Some(&b"row 1"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tasks
//!
//! What may wait has a form for tasks, whose name ends in `_async`: [`claim_async`](Store::claim_async),
//! [`run_async`](Store::run_async), [`complete_async`](Claim::complete_async). They need no runtime, and any will do. The others
//! block their thread.
//!
//! # Testing code over it
//!
//! [`Mem`](backend::Mem) is a store in memory, and [`ManualClock`] a clock that moves when it is told to:
//!
//! ```
//! use claimdb::{ManualClock, Store, backend::Mem};
//! use std::time::Duration;
//! let clock = ManualClock::new();
//! let store = Store::builder(Mem::new()).clock(clock.clone()).open()?;
//! let slow = store.claim("order-42")?.granted().expect("nobody else is here");
//! clock.advance(Duration::from_secs(31)); // its lease has run out
//! let next = store.claim("order-42")?.granted().expect("the key can be had");
//! assert_eq!(next.attempt(), 2);
//! assert!(next.token() > slow.token());
//! assert!(slow.complete("too late").is_err()); // fenced
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Mem::crash`](backend::Mem::crash) plays a power cut. Under `--cfg loom` all of it runs in models of your own
//! (`docs/model-checking.md`).
//!
//! # Features
//!
//! Each adds, and none changes what is there.
//!
//! | feature | adds |
//! |---|---|
//! | `sled` (default) | the engine [sled](https://docs.rs/sled/0.34.7), `Store::open` |
//! | `redb` | the engine [redb](https://docs.rs/redb) |
//! | `tower`, `json`, `axum` | the layer for HTTP: any tower service; fingerprints of JSON; axum 0.8 and tokio |
//! | `metrics`, `tracing` | what the store tells of itself beside [`Store::stats`] |
//! | `admin` | looking into a store and mending it by hand, in a running service over a Unix socket |
//! | `cli`, `explore` | the command `claimdb` |
//!
//! # Platforms
//!
//! Linux on 64 bits. Engines that have files do not compile elsewhere; over [`Mem`](backend::Mem), or an engine of your own,
//! other Unix systems should do. A store is for one process on one machine.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

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
pub use error::{
    AdminError, ClaimError, Damage, Fault, InvalidSetting, OpenError, Poisoned, Remedy, StorageError,
};
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
#[cfg(loom)]
pub use sync::Steps;
pub use sync::{Raised, Signal};
pub use token::Token;
pub use value::{DecodeError, EncodeError, MAX_VALUE_LIMIT};
