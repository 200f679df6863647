//! `claimdb list`: the keys there are.

use crate::ask::{Place, bytes_of, refused, unexpected};
use crate::failure::Failure;
use crate::out::{counted, json_line, note, write_json, write_one_of_many};
use crate::{span, told};
use claimdb::admin::{Answer, Command, Wanted};
use clap::ValueEnum;
use serde_json::json;
use std::ffi::OsString;
use std::time::Duration;

/// List keys by their state, scope and age
///
/// Changes nothing, and reads everything that is stored, unless nobody reads on (| head). Keys that are being settled at this
/// moment are left out. Records that cannot be read are listed in whatever states were asked for, within --limit, and end it
/// with exit code 4.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,

    /// Only keys in this state; can be given more than once
    #[arg(long, value_enum, value_name = "STATE")]
    state: Vec<State>,

    /// Only keys of this scope
    #[arg(long, value_name = "SCOPE")]
    scope: Option<OsString>,

    /// SCOPE is given in hex: two digits for each byte
    #[arg(long, requires = "scope")]
    hex: bool,

    /// Only keys that were claimed, or settled, this long ago or longer: a number and s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    older_than: Option<Duration>,

    /// So many keys at most
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Show the keys themselves, as they are given on a command line, instead of a hash that stands for each
    #[arg(long)]
    show_keys: bool,

    /// Give a line of JSON for each key, and one with the counts
    ///
    /// For each key what claimdb inspect --json gives; at the end {"keys":3,"damaged":0,"more":false};
    /// more is true if --limit, or something that cannot be read, ended it before the last key.
    #[arg(long)]
    json: bool,
}

/// States that can be asked for.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    /// Claimed and not settled; in a service also what is claimed in memory alone
    Pending,
    /// Its holder ended without settling, and somebody has to look at it
    Interrupted,
    /// Done, or failed for good
    Settled,
}

const EXAMPLES: &str = "\
Examples:
  What has been claimed for more than ten minutes and is not done:
    claimdb list --socket /run/shop/claims.sock --state pending --older-than 10m --show-keys

  What waits for a decision:
    claimdb list --store /var/lib/shop/claims --state interrupted

  How many keys a tenant has:
    claimdb list --store claims --scope tenant-7 --json | tail -n 1 | jq .keys";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let scope = args.scope.as_ref().map(|scope| bytes_of(scope, args.hex, "--scope")).transpose()?;
    let wanted = |state: &State| match state {
        State::Pending => Wanted::Pending,
        State::Interrupted => Wanted::Interrupted,
        State::Settled => Wanted::Settled,
    };
    let command = Command::list(
        scope.as_deref(),
        args.state.iter().map(wanted).collect(),
        args.older_than,
        args.limit,
        args.show_keys,
    );
    let (mut told_of, mut unsound) = (0, 0);
    let last = args.place.ask(&command, &mut |answer| {
        let Answer::Key(told) = answer else { return Ok(()) };
        told_of += 1;
        unsound += u64::from(told.error.is_some());
        if args.json {
            return write_one_of_many(json_line(&told)?);
        }
        if told_of == 1 {
            write_one_of_many(told::HEAD)?;
        }
        write_one_of_many(told::row(&told))
    })?;
    let (keys, damaged, more, cut_off) = match last {
        Answer::Listed { keys, damaged, more } => (keys, damaged, more, None),
        // What it did not come to is not told as absent.
        Answer::Refused { code, message } => (told_of, unsound, true, Some(refused(code, message))),
        other => return Err(unexpected(&other)),
    };
    if args.json {
        write_json(&json!({ "keys": keys, "damaged": damaged, "more": more }))?;
    } else {
        let more = match (&cut_off, more) {
            (Some(_), _) => ", and then it was cut off",
            (None, true) => ", and there are more (--limit)",
            (None, false) => "",
        };
        note(format_args!("{}{more}", counted(keys, "key", "keys")));
    }
    if let Some(failure) = cut_off {
        return Err(failure);
    }
    if damaged > 0 {
        return Err(Failure::Damaged(format!(
            "listing keys: {damaged} of them cannot be read, and are not granted; claimdb verify tells what is wrong"
        )));
    }
    Ok(())
}
