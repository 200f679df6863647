//! The command `claimdb`.
#![forbid(unsafe_code)]

mod ask;
mod backup;
mod bench;
mod built;
mod change;
mod compact;
mod confirm;
mod counts;
mod dedup;
mod engine;
#[cfg(feature = "explore")]
mod explore;
mod failure;
mod inspect;
mod list;
mod migrate;
mod out;
mod pages;
mod panics;
mod place;
mod purge;
mod release;
mod repair;
mod resolve;
mod span;
mod stats;
mod told;
mod verify;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

/// A store of claims: do each piece of work once.
#[derive(Debug, Parser)]
#[command(name = "claimdb", version, long_version = built::LONG_VERSION, arg_required_else_help = true, max_term_width = 100, after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Backup(backup::Args),
    Bench(bench::Args),
    Compact(compact::Args),
    Completions(pages::Completions),
    Dedup(dedup::Args),
    #[cfg(feature = "explore")]
    Explore(explore::Args),
    #[cfg(not(feature = "explore"))]
    Explore(built::Explore),
    Inspect(inspect::Args),
    List(list::Args),
    Man(pages::Man),
    Migrate(migrate::Args),
    Purge(purge::Args),
    Release(release::Args),
    Repair(repair::Args),
    Resolve(resolve::Args),
    Stats(stats::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return told_by_clap(&told),
    };
    match panics::told(|| run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints help that was asked for, or what is wrong with how the command is used.
fn told_by_clap(told: &clap::Error) -> ExitCode {
    // It passes over a standard output that fails.
    let printed = told.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(error) if !told.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            out::not_written(&error, out::RUN_AGAIN).report()
        }
        _ => ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(1)),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Backup(args) => backup::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Completions(args) => pages::complete(&args),
        Command::Dedup(args) => dedup::run(&args),
        #[cfg(feature = "explore")]
        Command::Explore(args) => explore::run(&args),
        #[cfg(not(feature = "explore"))]
        Command::Explore(args) => built::explore(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::List(args) => list::run(&args),
        Command::Man(args) => pages::man(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Purge(args) => purge::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Resolve(args) => resolve::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Verify(args) => verify::run(&args),
    }
}
