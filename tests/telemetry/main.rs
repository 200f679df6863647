//! What a store tells of itself: each event counted once, in the statistics and to a recorder alike; what is logged; that
//! no key, value or fingerprint is; and that the documentation, the dashboard and the alerts name what there is.
#![cfg(not(any(loom, shuttle)))] // recorders and subscribers are not theirs
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a captured log, from outside
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

mod captured;
mod counts;
mod counts_of_syncs;
#[path = "../support/faults.rs"]
#[allow(dead_code)] // used in part
mod faults;
#[path = "../http/world.rs"]
#[allow(dead_code)] // used in part
mod http_world;
mod logs;
mod named;
mod panics;
mod plays;
mod plays_of_ends;
#[path = "../http/script.rs"]
#[allow(dead_code)] // used in part
mod script;
mod secrets;
mod service;
mod world;
