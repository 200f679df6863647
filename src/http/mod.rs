//! Idempotent HTTP: a layer that runs a request with an `Idempotency-Key` once and replays its response.
//!
//! After the IETF draft *The Idempotency-Key HTTP Header Field*, revision 07, and what deployed APIs do. What each
//! request is told is in `docs/http.md`.
//!
//! The layer goes inside authentication, so that the [`Scope`] can tell who asks, and directly outside the handler:
//! what lies between the two runs once for each key, and what lies outside runs for each request.
//!
//! With the feature `axum`:
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```text")]
//! use axum::{Router, routing::post};
//! use claimdb::http::{ClaimHandle, Idempotency, Scope};
//! use claimdb::{Store, backend::Mem};
//!
//! async fn charge(claim: ClaimHandle) -> String {
//!     format!("charged under {}", claim.token()) // which the bank may compare
//! }
//!
//! let store = Store::builder(Mem::new()).open()?;
//! // Whom a key belongs to: here whoever the header names, which authentication would have to say.
//! let scope = Scope::by(|parts| parts.headers.get("authorization").map(|who| who.as_bytes().to_vec()));
//! let idempotency = Idempotency::tokio(&store, scope).required().build()?;
//! let app: Router = Router::new().route("/charges", post(charge)).route_layer(idempotency);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A request's way: `key` says what it is called, `fingerprint` what it asks for, the store's claim who runs it
//! (`answer`); `work` runs the handler and settles the claim, where `tasks` says; `replay` is what is stored; `problem`
//! is how a request is refused.

mod answer;
mod body;
mod builder;
mod client;
mod fingerprint;
mod grpc;
mod handle;
#[cfg(feature = "json")]
mod json;
mod key;
mod layer;
mod problem;
mod replay;
mod scope;
mod tasks;
mod webhook;
mod work;

#[cfg(feature = "axum")]
mod axum;

#[cfg(feature = "axum")]
pub use axum::Tokio;
pub use body::Body;
pub use builder::{BuildError, Builder};
pub use client::{KeyedRequests, RequestKeys};
pub use fingerprint::FingerprintBy;
pub use handle::{ClaimHandle, Disposition, HandleError};
pub use key::{KeySource, MAX_KEY, UnusableKey};
pub use layer::{Idempotency, Protect, ResponseFuture, Stats};
pub use problem::ProblemCode;
pub use scope::Scope;
pub use tasks::{BoxTask, Idle, Spawn};
