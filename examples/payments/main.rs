//! A payments service on axum with its store inside, and a driver that retries, kills it and counts what it did:
//! `cargo run --features axum --example payments -- drive`.
//!
//! `serve` is the service. What it does to the world outside is a line in a ledger. `drive` starts it, lets many
//! clients ask for the same payments at once, kills it at random moments and starts it again, until each payment has
//! its answer. It then compares what was answered with what was done, and exits with 1 if a promise did not hold.
// A program of its own: its threads and its clock are not the library's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod client;
mod drive;
mod ledger;
mod report;
mod serve;

use clap::{Parser, Subcommand};

/// A payments service, and a driver that kills it.
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
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mode = Command::parse().mode;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match mode {
        Mode::Serve(options) => runtime.block_on(serve::serve(options)),
        Mode::Drive(options) => runtime.block_on(drive::drive(options)),
    }
}
