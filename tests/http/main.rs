//! The HTTP layer: what each request is told, over tower and over a real listener.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // an executor of its own, from outside
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

#[path = "../support/faults.rs"]
#[allow(dead_code)] // used in part
mod faults;
mod grpc;
mod handover;
mod hostile;
mod layer;
mod listener;
mod requests;
mod runs;
mod runtimes;
mod script;
mod stored;
mod vectors;
mod world;
