//! The command `claimdb`.
#![forbid(unsafe_code)]

mod bench;
mod compact;
mod counts;
mod dedup;
mod engine;
#[cfg(feature = "explore")]
mod explore;
mod failure;
mod migrate;
mod repair;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A store of claims: do each piece of work once.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100, after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Args),
    Compact(compact::Args),
    Dedup(dedup::Args),
    #[cfg(feature = "explore")]
    Explore(explore::Args),
    Migrate(migrate::Args),
    Repair(repair::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Dedup(args) => dedup::run(&args),
        #[cfg(feature = "explore")]
        Command::Explore(args) => explore::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Verify(args) => verify::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
