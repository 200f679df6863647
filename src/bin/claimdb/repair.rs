//! `claimdb repair`: what cannot be read put aside, the rest written anew.

use crate::confirm;
use crate::counts::Counts;
use crate::failure::Failure;
use crate::out::{counted, tell_done};
use claimdb::{CopyError, Remedy, Store, backend};
use serde_json::json;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Put aside what cannot be read, and write the rest anew
///
/// Unreadable records and values go into a file `aside-1` (or the next number) in the store's folder, which is never
/// deleted; the retention index is made anew; the rest is as it was. Pages that the engine itself cannot read are
/// walked around: the file tells where they lay, and the engine's files are kept in `aside-1-files`. A store that does
/// not open because its log does not match the checksum of its last close is repaired without that: the file `tail` is
/// put into a folder aside-DATE. A repair that cannot be made says so, and changes nothing. KEYS WHOSE RECORDS ARE PUT
/// ASIDE ARE FREE AFTERWARDS: their work can run again. So it looks at the store, tells what can be read of it and asks,
/// and without a terminal wants --yes. Exit code 4 says that nothing could be read. If a backup is recent enough, prefer
/// that. No process may have the store open. Killed at any point, the store is as it was or repaired: repair it again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store's folder
    #[arg(value_name = "DIR")]
    store: PathBuf,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Give the counts as JSON, in one line
    ///
    /// {"records":5,"values":3,"forgotten":0,"aside":2,"unread":0,"unread_values":0,"named":0,"unread_index":0,
    /// "missing":0,"altered":false,"aside_in":"/srv/claims/aside-1","kept_in":null,"tail_in":null,"new_ceiling":null};
    /// aside_in is null if nothing was put aside, unread how many stretches the engine could not read, unread_values how
    /// many of those hold plain values at most, named how many records the retention index knows of in those, unread_index
    /// how many stretches are of that index alone, which was made anew, missing how many records that index speaks of that
    /// are not there, altered whether all could be read and is not what was written, kept_in where its files are kept for
    /// that, tail_in null if the log matched the checksum of its last close, new_ceiling the token ceiling if the stored
    /// one could not be believed.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Copy the folder away, look what is wrong, and mend it:
    cp -a claims claims-damaged && claimdb verify claims; claimdb repair claims

  In a script:
    claimdb repair --yes --json claims > repaired.json";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let store = args.store.display();
    if !args.yes {
        let found = look(&args.store)?;
        let change = format!(
            "{found}\nRepairing {store} frees the keys of records that cannot be read: their work can run again."
        );
        confirm::agreed(&format!("repairing the store {store}"), &change)?;
    }
    let repaired = Store::repair(&args.store).map_err(|error| Failure::copying(&error))?;
    let [aside_in, kept_in, tail_in] =
        [&repaired.aside_in, &repaired.kept_in, &repaired.tail_in].map(from_root);
    let mut advice = String::new();
    if let (Some(path), Some(kept)) = (&aside_in, &kept_in)
        && repaired.altered
    {
        advice += &format!(
            "what could be read is not all as it was written: a key that has changed is free, records and plain values \
             can be missing that nothing names, and their work can run again: put a backup in the store's place, if there is one. The files as they \
             were are kept in {kept}, and {path} tells of it\n"
        );
    }
    if let Some(path) = aside_in.as_ref().filter(|_| repaired.missing > 0) {
        advice += &format!(
            "{} that the retention index speaks of {} not there, and named in {path}: if they were not released or removed, \
             they are lost, and their work can run again\n",
            counted(repaired.missing, "record", "records"),
            if repaired.missing == 1 { "is" } else { "are" }
        );
    }
    if let (Some(path), Some(kept)) = (&aside_in, &kept_in)
        && repaired.unread > repaired.unread_values
    {
        advice += &format!(
            "{} could not be read at all: {path} tells between which keys, and names the {} that the retention index knows \
             of there, whose bytes are not in it; others may have been among them. Their keys are free, and their work can run again: put a backup in the \
             store's place, if there is one. The files as they were are kept in {kept}\n",
            counted(
                repaired.unread - repaired.unread_values,
                "stretch of the store",
                "stretches of the store"
            ),
            counted(repaired.named, "record", "records")
        );
    }
    if let (Some(path), Some(kept)) = (&aside_in, &kept_in)
        && repaired.unread_values > 0
    {
        advice += &format!(
            "{} behind the last record could not be read: plain values lay in it at most, and read as absent; {path} tells where. \
             The files as they were are kept in {kept}\n",
            counted(repaired.unread_values, "stretch", "stretches")
        );
    }
    if let Some(path) = aside_in.as_ref().filter(|_| repaired.aside > 0) {
        advice += &format!(
            "{} put aside in {path}; keys of records in there are free, and their work can run again: find out what they \
             were before it does\n",
            counted(repaired.aside, "item was", "items were")
        );
    }
    if repaired.unread_index > 0 {
        advice += &format!(
            "{} could not be read; that was made anew from the records{}\n",
            counted(
                repaired.unread_index,
                "stretch of the retention index",
                "stretches of the retention index"
            ),
            if repaired.altered { "" } else { ", and nothing is lost by it" }
        );
    }
    if let Some(path) = &tail_in {
        advice += &format!(
            "the checksum of the last close did not match the log or could not be read, and was put aside as {path}; if it \
             was the log that changed, results of the last opening may be gone: compare with the copy of the folder, or with a backup\n"
        );
    }
    if let Some(ceiling) = repaired.new_ceiling {
        advice += &format!(
            "the token ceiling could not be believed, and is {ceiling} now; if tokens above it may have been handed out, \
             open the store once with Builder::token_floor above them\n"
        );
    }
    // With standard error gone there is nobody left to tell.
    let _ = io::stderr().write_all(advice.as_bytes());
    let copied = Counts::from(repaired.copied);
    let text = || {
        let unread = counted(repaired.unread, "stretch", "stretches");
        let done = copied.text("repaired");
        let named = counted(repaired.named, "record is", "records are");
        format!("{done}; {} put aside; {unread} could not be read, in which {named} named", repaired.aside)
    };
    let json = || {
        json!({
            "records": copied.records,
            "values": copied.values,
            "forgotten": copied.forgotten,
            "aside": repaired.aside,
            "unread": repaired.unread,
            "unread_values": repaired.unread_values,
            "named": repaired.named,
            "unread_index": repaired.unread_index,
            "missing": repaired.missing,
            "altered": repaired.altered,
            "aside_in": aside_in,
            "kept_in": kept_in,
            "tail_in": tail_in,
            "new_ceiling": repaired.new_ceiling.map(|ceiling| ceiling.to_string()),
        })
    };
    tell_done(args.json, text, json)?;
    let lost = repaired.unread > 0 || repaired.aside > 0 || repaired.altered;
    match lost && copied.records == 0 && copied.values == 0 {
        true => Err(Failure::Damaged(format!(
            "repairing the store {store}: nothing in it could be read, so that it is empty now, and the work of all its keys \
             can run again: put a backup in its place"
        ))),
        false => Ok(()),
    }
}

/// A path of something that is there, from the root on and without links, so that it is the same wherever it is read.
fn from_root(path: &Option<PathBuf>) -> Option<String> {
    let path = path.as_ref()?;
    Some(fs::canonicalize(path).unwrap_or_else(|_| path.clone()).display().to_string())
}

/// What is there, for a person who is asked. What an opening is refused for is told as it stands, if a repair may help.
fn look(store: &Path) -> Result<String, Failure> {
    match Store::builder(backend::existing(store)).verify(&mut |_| {}) {
        Ok(found) => Ok(format!(
            "{} and {} can be read there; {}.",
            counted(found.records, "record", "records"),
            counted(found.values, "value", "values"),
            counted(found.flaws, "flaw", "flaws")
        )),
        Err(CopyError::Open(error)) if error.remedy() == Some(Remedy::Repair) => Ok(error.to_string()),
        Err(error) => Err(Failure::copying(&error)),
    }
}
