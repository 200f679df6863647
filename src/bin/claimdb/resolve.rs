//! `claimdb resolve`: a key settled by hand.

use crate::ask::{KeyArgs, Place};
use crate::change::{self, Changing};
use crate::failure::Failure;
use claimdb::MAX_VALUE_LIMIT;
use claimdb::admin::{Command, Settle, Value};
use clap::ValueEnum;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

/// Settle a key by hand, in its holder's stead
///
/// For a key that is interrupted, or pending and its holder has ended, once somebody has found out what became of its
/// work. It answers from then on as if its holder had settled it. If the work has not happened, release the key.
///
/// Values are given as the service's code expects them: --text for what it reads as a String, --bytes FILE for bytes as
/// Claim::complete_bytes takes them. If in doubt, settle it as omitted: done, and the result is not kept.
///
/// Asks first, and without a terminal wants --yes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,

    #[command(flatten)]
    place: Place,

    /// How to settle it
    #[arg(long = "as", value_enum, value_name = "HOW")]
    how: How,

    /// The result, or the reason of a failure, as text
    #[arg(long, value_name = "TEXT", conflicts_with = "bytes")]
    text: Option<String>,

    /// A file with the bytes of the result, or of the reason of a failure
    #[arg(long, value_name = "FILE")]
    bytes: Option<PathBuf>,

    #[command(flatten)]
    changing: Changing,
}

/// How a key is settled by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    /// Its work is done, with the result that is given
    Completed,
    /// Its work has failed for good, for the reason that is given
    Failed,
    /// Its work is done, and no result is kept
    Omitted,
}

const EXAMPLES: &str = "\
Examples:
  The card was charged; clients are told that it is done:
    claimdb resolve --store claims --as omitted order-42

  With the receipt, which the service reads as a String:
    claimdb resolve --socket /run/shop/claims.sock --as completed --text 'receipt 7' order-42";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let settle = settle(args)?;
    let how = match args.how {
        How::Completed => "completed, with the result that is given",
        How::Failed => "failed for good, for the reason that is given",
        How::Omitted => "done, with no result kept",
    };
    let will =
        format!("The key is settled as {how}: whoever asks is told that, and its work does not run again.");
    change::run(&args.place, &args.key, &args.changing, ("resolving", &will), |key, token| Command::Resolve {
        key,
        token,
        settle: settle.clone(),
        force: args.changing.force,
    })
}

fn settle(args: &Args) -> Result<Settle, Failure> {
    let value = match (&args.text, &args.bytes) {
        (Some(text), _) => Some(Value::Text(text.clone())),
        (None, Some(file)) => {
            // The file may be one without an end.
            let bytes = |file: File| {
                let (limit, mut bytes) = (MAX_VALUE_LIMIT as u64 + 1, Vec::new());
                file.take(limit).read_to_end(&mut bytes).map(|_| bytes)
            };
            let read = File::open(file).and_then(bytes).map_err(|error| {
                let advice = "give --bytes a file that can be read";
                Failure::failed(format_args!("reading {}", file.display()), error, advice)
            });
            let bytes = read?;
            if bytes.len() > MAX_VALUE_LIMIT {
                return Err(Failure::Usage(format!(
                    "resolving a key: {} has more than {MAX_VALUE_LIMIT} bytes, which no store takes; settle it --as omitted",
                    file.display()
                )));
            }
            Some(Value::bytes(&bytes))
        }
        (None, None) => None,
    };
    let usage = |why: &str| Failure::Usage(format!("resolving a key: {why}"));
    match (args.how, value) {
        (How::Omitted, None) => Ok(Settle::Omitted),
        (How::Omitted, Some(_)) => Err(usage("--as omitted keeps no result; leave --text and --bytes out")),
        (How::Completed, Some(value)) => Ok(Settle::Completed(value)),
        (How::Failed, Some(value)) => Ok(Settle::Failed(value)),
        (How::Completed | How::Failed, None) => {
            Err(usage("give the value with --text or --bytes; to keep none, settle it --as omitted"))
        }
    }
}
