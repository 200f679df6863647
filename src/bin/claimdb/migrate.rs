//! `claimdb migrate`: a store copied into a folder of another engine, or of the same.

use crate::built::EngineNames;
use crate::counts::Counts;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::out::tell_done;
use claimdb::{CopyError, OpenError, Store};
use clap::ValueEnum as _;
use std::path::PathBuf;

/// Copy a store into a new folder, for another storage engine or the same
///
/// What is remembered is in the copy as it was; results whose retention is over are left out. The source is not
/// changed, and no process may have it open. The copy is made in a folder beside DST, whose name ends in `.partial`,
/// and gets its name once it is whole and durable. Use one of the two afterwards: both would hand out the same tokens.
/// What is no sound record is copied as it is, and ends it with exit code 4. Of a store of which the engine cannot read a page
/// no copy is made, with exit code 4 as well.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The engine of the source
    #[arg(long, value_parser = EngineNames::<Engine>::new(), value_name = "ENGINE")]
    from: Engine,

    /// The engine of the copy
    #[arg(long, value_parser = EngineNames::<Engine>::new(), value_name = "ENGINE")]
    to: Engine,

    /// The store's folder
    #[arg(value_name = "SRC")]
    source: PathBuf,

    /// The folder for the copy; not there yet, or empty
    #[arg(value_name = "DST")]
    target: PathBuf,

    /// Give the counts as JSON, in one line
    ///
    /// {"records":5,"values":3,"forgotten":9,"unreadable":0}
    #[arg(long)]
    json: bool,
}

#[cfg(not(feature = "redb"))]
const EXAMPLES: &str =
    "This claimdb was built without the feature redb, so there is no other engine to migrate to.";

#[cfg(feature = "redb")]
const EXAMPLES: &str = "\
Examples:
  From sled to redb, and the copy in the store's place:
    claimdb migrate --from sled --to redb claims claims-redb
    mv claims claims-sled && mv claims-redb claims";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let source = Store::builder(args.from.existing(&args.source));
    let copied = source.migrate_into(&args.target, |folder| args.to.at(folder));
    let copied = Counts::from(copied.map_err(|error| match &error {
        CopyError::Open(OpenError::OtherEngine { place, found, .. })
            if Engine::from_str(found, false).is_ok() =>
        {
            Failure::failed(
                format_args!("opening the store {place}"),
                format_args!("it was made with {found}"),
                &format!("give --from {found}"),
            )
        }
        _ => Failure::copying(&error),
    })?);
    tell_done(args.json, || copied.text("copied"), || copied.json())?;
    copied.nothing_unreadable("copying", &args.target, "keep the source, and the backups from before")
}
