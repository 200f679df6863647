//! `claimdb compact`: the store written anew, without what it no longer needs.

use crate::counts::{self, Counts};
use crate::failure::Failure;
use crate::out::{counted, tell_done};
use claimdb::Store;
use serde_json::json;
use std::path::PathBuf;

/// Write a store anew, and give back the space that it no longer needs
///
/// sled never gives space back by itself, and redb little. This copies what is remembered into fresh files, and puts
/// those in the place of the old ones; results whose retention is over are left out. Nothing that is told changes. No
/// process may have the store open. What is no sound record stays as it is, and ends it with exit code 4. Until it is done
/// both are on the disk. Killed at any point, the store is as it was or compacted, and the next opening clears up.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store's folder
    #[arg(value_name = "DIR")]
    store: PathBuf,

    /// Give the counts as JSON, in one line
    ///
    /// {"records":5,"values":3,"forgotten":9,"unreadable":0,"bytes_before":9699625,"bytes_after":1311376}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Each night, while the service is stopped:
    claimdb compact /var/lib/shop/claims

  For a script, how many bytes were given back:
    claimdb compact --json claims | jq '.bytes_before - .bytes_after'";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let before = counts::size(&args.store);
    let copied = Counts::from(Store::compact(&args.store).map_err(|error| Failure::copying(&error))?);
    let after = counts::size(&args.store);
    let text = || {
        let before = counted(before, "byte", "bytes");
        format!("{}; {before} before, {after} after", copied.text("compacted"))
    };
    let json = || {
        let mut json = copied.json();
        json["bytes_before"] = json!(before);
        json["bytes_after"] = json!(after);
        json
    };
    tell_done(args.json, text, json)?;
    copied.nothing_unreadable("compacting", &args.store, "keep the backups from before")
}
