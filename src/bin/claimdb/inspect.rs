//! `claimdb inspect`: everything about one key.

use crate::ask::{KeyArgs, Place, unexpected};
use crate::failure::Failure;
use crate::out::{write_json, write_line};
use crate::told;
use claimdb::admin::{Answer, Command};

/// Look at one key: who has it, since when, what became of it
///
/// Changes nothing. A store that no process has open is looked at without being opened for use: claims that are pending in
/// it are those of processes that have ended. Exit code 6 says that there is no such key.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,

    #[command(flatten)]
    place: Place,

    /// Show the key itself, instead of a hash that stands for it
    #[arg(long)]
    show_keys: bool,

    /// Give it as JSON, in one line
    ///
    /// {"key":"key#0123456789ab","state":"pending","holder":"ended","token":"1856000000000000","attempt":1, ...}; what does
    /// not apply is null, tokens are text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Who has the key, in a service that is running:
    claimdb inspect --socket /run/shop/claims.sock order-42

  In a store that no process has open, a key of a scope:
    claimdb inspect --store /var/lib/shop/claims --scope payments order-42

  A key that is no text:
    claimdb inspect --store claims --hex 00ff17

  For a script, what the next claim is told:
    claimdb inspect --store claims --json order-42 | jq -r .next_claim";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let command = Command::Inspect { key: args.key.name()?, show_keys: args.show_keys };
    let told = match args.place.ask_once(&command)? {
        Answer::Inspected(told) => told,
        other => return Err(unexpected(&other)),
    };
    if args.json { write_json(&told) } else { write_line(told::whole(&told)) }?;
    if told.state == "absent" {
        return Err(Failure::no_such_key(format_args!("inspecting {}", told.key)));
    }
    Ok(())
}
