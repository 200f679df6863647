//! A service that charges a card once for each order, though its requests are retried, time out and crash.
//!
//! Its work is there twice: [`hasty`] has a mistake that no test finds which runs one request at a time, and
//! [`careful`] has it mended. `tests/model.rs` runs both in every interleaving.

pub mod card;
pub mod careful;
pub mod hasty;
mod sync;

use claimdb::{ClaimError, Fingerprint, Request};
use std::time::Duration;

/// How long a request may take before its retry may take over.
pub const LEASE: Duration = Duration::from_secs(30);

/// What a request is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The order is paid; every request of it gets this same receipt.
    Paid(String),
    /// Another request is at it: try again later.
    Busy,
    /// Another request has taken over; what it answers counts.
    TooLate,
    /// The order's number was used for another amount.
    OtherOrder,
    /// The store failed: nothing is known, so ask again.
    Failed(String),
}

fn request(order: &str, cents: u64) -> Request {
    Request::new(order).lease(LEASE).fingerprint(Fingerprint::of_parts([cents.to_be_bytes()]))
}

impl From<ClaimError> for Answer {
    fn from(error: ClaimError) -> Self {
        Self::Failed(error.to_string())
    }
}
