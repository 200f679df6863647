//! What `claimdb dedup` can be told.

use super::pointer::Pointer;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;
use std::time::Duration;

/// A batch costs one sync of the store, and one of the output if that is a file; at this size they no longer show
/// in the rate, while what a kill can repeat stays small.
const DEFAULT_BATCH: &str = "8192";

/// Write each line the first time its key is seen, and never again
///
/// Reads lines, claims each line's key in the store, and writes those that are new to standard output, in the
/// order of the input. The key is the whole line, or what --key points at. Keys are remembered across runs, and
/// recorded only after their lines were written: a run that is killed and started again loses no line, and can
/// repeat at most one batch. If standard output is a file, it is synced first, so that a power cut loses none
/// either; a part of a line that such a run has left at its end is ended before more is written. Lines that a pipe's
/// reader did not take count as written.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store's folder; made if it is not there or empty, which standard error tells, but no folder above it
    #[arg(long, value_name = "DIR")]
    pub(super) store: PathBuf,

    /// The input; standard input if it is `-` or not given
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,

    /// Take what this JSON pointer (RFC 6901) finds in each line as its key, instead of the whole line
    ///
    /// A key is a string, a number or a boolean. Types differ ("1" is not 1), and numbers are compared as written
    /// (1 is not 1.0), so that large ones stay apart. If an object has a name twice, the last one counts. Lines
    /// without such a key (not JSON, nothing there, null, an object, an array) are rejected. Keys of different
    /// pointers, and whole lines, do not meet in one store.
    #[arg(long, value_name = "POINTER")]
    pub(super) key: Option<Pointer>,

    /// How long a key is remembered: a number and a unit, s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = crate::span::parse)]
    pub(super) retain: Duration,

    /// Append lines without a key to this file; without it, the first one ends the run with exit code 1
    ///
    /// It is not to lie in a store's folder. They are written as they came, so that they can be mended and fed in again;
    /// standard error tells the number of each and what is wrong with it. They are not recorded in the store: the same
    /// input gives them again.
    #[arg(long, value_name = "FILE")]
    pub(super) rejects: Option<PathBuf>,

    /// How many threads to use [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub(super) threads: Option<usize>,

    /// How many lines are in flight at most: written and not yet recorded
    ///
    /// This many can be written again after a run was killed. A batch is closed early at 64 MiB, and when the
    /// input pauses.
    #[arg(
        long,
        value_name = "N",
        default_value = DEFAULT_BATCH,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000)
    )]
    pub(super) batch: usize,

    /// Give the summary as JSON, in one line on standard error
    ///
    /// {"lines":9,"first_seen":5,"duplicates":3,"rejected":1,"seconds":0.5,"lines_per_second":18.0,"batch":8192}:
    /// the lines that were read and dealt with are first_seen + duplicates + rejected; batch is the most that can
    /// be in flight. It is the only line there that begins with a brace.
    #[arg(long)]
    pub(super) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Drop repeated lines, today and whenever this runs again:
    claimdb dedup --store seen events.log >> new.log

  Follow a stream of JSON, keyed by its delivery id, remembered for a week:
    tail -F hooks.jsonl | claimdb dedup --store seen --key /delivery/id --retain 7d

  Keep going over lines that have no id, and look at them later:
    claimdb dedup --store seen --key /id --rejects bad.jsonl orders.jsonl >> new.jsonl";
