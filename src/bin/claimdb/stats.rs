//! `claimdb stats`: what a store has done, and what it holds.

use crate::ask::{Place, unexpected};
use crate::failure::Failure;
use crate::out::{write_json, write_line};
use claimdb::admin::{Answer, Command};
use serde_json::json;

/// Tell what a running service's store has done, and what is stored
///
/// Over a socket: what the store has done since it was opened, at no cost; with --count what is stored as well, which reads
/// all of it. Of a store that no process has open: what is stored.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,

    /// Count what is stored in a service's store
    #[arg(long)]
    count: bool,

    /// Give it as JSON, in one line
    ///
    /// {"opening":{"granted":7, ...},"stored":{"pending":1,"ended":1,"interrupted":0,"settled":6,"damaged":0}}; opening is
    /// null with --store, stored is null with --socket and no --count.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Whether claims are live, syncs are slow, or the disk is full:
    claimdb stats --socket /run/shop/claims.sock

  How many keys a stopped service has left pending:
    claimdb stats --store /var/lib/shop/claims --json | jq .stored.pending";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let command = Command::Stats { count: args.count || args.place.folder().is_some() };
    let last = args.place.ask_once(&command)?;
    let Answer::Stats { opening, stored } = last else { return Err(unexpected(&last)) };
    if args.json {
        return write_json(&json!({ "opening": opening, "stored": stored }));
    }
    for (name, value) in opening.iter().flatten() {
        let value = if value.is_null() { "-".to_owned() } else { value.to_string() };
        write_line(format_args!("{name:<20} {value:>9}"))?;
    }
    if let Some(stored) = stored {
        let lines = [
            ("stored, pending", stored.pending),
            ("  holder has ended", stored.ended),
            ("stored, interrupted", stored.interrupted),
            ("stored, settled", stored.settled),
            ("stored, damaged", stored.damaged),
        ];
        for (name, value) in lines {
            write_line(format_args!("{name:<20} {value:>9}"))?;
        }
    }
    Ok(())
}
