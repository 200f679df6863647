//! `claimdb backup`: a copy of a store, while its service runs or not.

use crate::ask::{ASK_IT, Place, closed, opened_to_look, unexpected};
use crate::counts::Counts;
use crate::failure::Failure;
use crate::out::tell_done;
use claimdb::admin::{Answer, Command};
use claimdb::backend;
use std::path::{PathBuf, absolute};

/// Copy a store into a new folder, as it stands at one moment
///
/// Over a socket the service makes the copy, and goes on meanwhile: DST is a folder on its machine, which it must be able
/// to write. The copy has the name DST once it is whole and durable, and is a store as any other. What is no sound
/// record is copied as it is, and ends it with exit code 4: then keep the backups from before. Of a store of which the engine
/// cannot read a page no copy is made, with exit code 4 as well.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,

    /// The folder for the copy; not there yet, or empty
    #[arg(value_name = "DST")]
    target: PathBuf,

    /// Give the counts as JSON, in one line
    ///
    /// {"records":5,"values":3,"forgotten":9,"unreadable":0}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Each night, while the service runs:
    claimdb backup --socket /run/shop/claims.sock /backup/claims-$(date +%F)

  While it is stopped:
    claimdb backup --store /var/lib/shop/claims /backup/claims-monday";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let counts = match args.place.folder() {
        Some(folder) => {
            let store = opened_to_look(folder, ASK_IT)?;
            let copied = store.backup_into(&args.target, |partial| backend::same_engine(folder, partial));
            let copied = copied.map_err(|error| Failure::copying(&error))?;
            closed(&store)?;
            Counts::from(copied)
        }
        None => {
            let target = absolute(&args.target);
            let target = target.ok().and_then(|target| target.into_os_string().into_string().ok());
            let Some(folder) = target else {
                let why = "backing up: DST is no text that a service could be sent; give another folder";
                return Err(Failure::Usage(why.to_owned()));
            };
            match args.place.ask_once(&Command::Backup { folder })? {
                Answer::BackedUp { records, values, forgotten, unreadable } => {
                    Counts { records, values, forgotten, unreadable }
                }
                other => return Err(unexpected(&other)),
            }
        }
    };
    tell_done(args.json, || counts.text("backed up"), || counts.json())?;
    counts.nothing_unreadable("backing up", &args.target, "keep the backups from before")
}
