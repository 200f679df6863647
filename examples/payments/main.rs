//! A payments service on axum with its store inside, a driver that retries, kills it and counts what it did, and a load
//! of many connections at once: `cargo run --features axum --example payments -- drive`, or `load`.
//!
//! `serve` is the service. What it does to the world outside is a line in a ledger. `drive` starts it, lets many
//! clients ask for the same payments at once, kills it at random moments and starts it again, until each payment has
//! its answer. `load` kills nothing and asks as fast as it is answered. Both then compare what was answered with what
//! was done, and exit with 1 if a promise did not hold.
// A program of its own: its threads and its clock are not the library's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod client;
mod drive;
mod judge;
mod ledger;
mod load;
mod report;
mod serve;
mod service;

use clap::{Parser, Subcommand};

/// A payments service, a driver that kills it, and a load.
#[derive(Parser)]
struct Command {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Serve payments until interrupted (SIGINT).
    Serve(serve::Options),
    /// Drive a service of its own through retries and kills, and judge what it did.
    Drive(drive::Options),
    /// Open many connections to a service of its own that all ask at once, and judge what it did.
    Load(load::Options),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mode = Command::parse().mode;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match mode {
        Mode::Serve(options) => runtime.block_on(serve::serve(options)),
        Mode::Drive(options) => runtime.block_on(drive::drive(options)),
        Mode::Load(options) => runtime.block_on(load::load(options)),
    }
}
