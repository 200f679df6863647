//! `claimdb release`: a key freed by hand.

use crate::ask::{KeyArgs, Place};
use crate::change::{self, Changing};
use crate::failure::Failure;
use claimdb::admin::Command;

/// Free a key whose work is not settled, so that it can run again
///
/// For a key that is pending or interrupted, whose work has certainly not happened: what is released is forgotten, and the
/// next claim is told that it is the first attempt. If the work may have happened, resolve the key. A settled key is left
/// alone. So is one that a live claim has, unless --force ends its lease first: its holder is told so if it asks, can
/// settle until another has the key, and may be at work all the same.
///
/// Asks first, and without a terminal wants --yes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,

    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    changing: Changing,
}

const EXAMPLES: &str = "\
Examples:
  Free a key that hangs, in a service that is running:
    claimdb release --socket /run/shop/claims.sock --force order-42

  In a script, only if it is still the claim that was looked at:
    claimdb release --store claims --yes --token 1856000000000000 order-42";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let will = "The key is freed: its work can run again, and is told that it is the first attempt.";
    change::run(&args.place, &args.key, &args.changing, ("releasing", will), |key, token| Command::Release {
        key,
        token,
        force: args.changing.force,
    })
}
