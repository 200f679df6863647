//! The command `claimdb`.
#![forbid(unsafe_code)]

mod dedup;
mod failure;

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
    Dedup(dedup::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Dedup(args) => dedup::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
