//! `claimdb verify`: everything that is stored, looked at.

use crate::failure::Failure;
use crate::out::{counted, write_line};
use claimdb::{Flaw, Store, backend};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Look at everything that is stored, and tell what is wrong with it
///
/// Reads every record, plain value and index entry, and tells each flaw in a line with a hash that stands for its
/// key. Pages that the engine itself cannot read are walked around: each stretch of them is one flaw, with the hashes of
/// the keys that the retention index knows of there. Over redb the checksums of all pages are looked at as well. Then a
/// line tells what earlier openings and repairs have put aside in the store's folder, which is no flaw. Nothing is written
/// to the store but what opening it always does, over redb not even that. No process may have it open. Exit code 0 says that it is sound, 4 that it is damaged.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store's folder
    #[arg(value_name = "DIR")]
    store: PathBuf,

    /// Give flaws and counts as JSON, each in one line
    ///
    /// First a line for each flaw:
    /// {"flaw":"unreadable","part":"record","key":"key#0123456789ab","keys":null,"message":"..."}; a stretch that the
    /// engine could not read has "keys":["key#0123456789ab"] and part and key null.
    /// The last line has the counts: {"records":5,"values":3,"entries":5,"stale_entries":0,"flaws":0,"sound":true,
    /// "aside":[]}, where aside names what was put aside in the store's folder.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Before an upgrade:
    claimdb verify /var/lib/shop/claims

  After a crash of the machine, with the folder copied away before anything opens it:
    cp -a claims claims-crashed && claimdb verify claims

  Verify a backup, and keep what was found:
    claimdb verify --json backup-monday > verified.jsonl || echo damaged";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (mut written, mut is_copy) = (Ok(()), false);
    let verified = Store::builder(backend::existing(&args.store)).verify(&mut |flaw| {
        is_copy |= *flaw == Flaw::UnfinishedCopy;
        if written.is_ok() {
            written = write_line(if args.json { json_of(flaw) } else { flaw.to_string() });
        }
    });
    let verified = verified.map_err(|error| Failure::copying(&error))?;
    written?;
    let aside = put_aside(&args.store)?;
    let claimdb::Verified { records, values, entries, stale_entries, flaws, .. } = verified;
    write_line(if args.json {
        let sound = verified.is_sound();
        json!({
            "records": records,
            "values": values,
            "entries": entries,
            "stale_entries": stale_entries,
            "flaws": flaws,
            "sound": sound,
            "aside": aside,
        })
        .to_string()
    } else {
        if !aside.is_empty() {
            write_line(format_args!(
                "put aside by earlier openings and repairs: {}; look at it, and delete it once it is of no use",
                aside.join(", ")
            ))?;
        }
        format!(
            "{}: {}, {}, {} of which {} for nothing, {}",
            if verified.is_sound() { "sound" } else { "damaged" },
            counted(records, "record", "records"),
            counted(values, "value", "values"),
            counted(entries, "index entry", "index entries"),
            counted(stale_entries, "stands", "stand"),
            counted(flaws, "flaw", "flaws")
        )
    })?;
    if verified.is_sound() {
        return Ok(());
    }
    let store = args.store.display();
    let then = match is_copy {
        true => {
            "delete it, and make the copy again: it holds a part of its store, and no repair adds the rest"
                .to_owned()
        }
        false => format!(
            "put a backup in its place, or copy the folder away and mend it with: claimdb repair {store}"
        ),
    };
    let flaws = counted(flaws, "flaw", "flaws");
    Err(Failure::Damaged(format!("verifying the store {store}: it has {flaws}; {then}")))
}

/// What is in the store's folder under the names that openings and repairs give to what they put aside.
fn put_aside(store: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error| {
        let doing = format!("looking for what was put aside in {}", store.display());
        Failure::failed(doing, error, "see that the folder can be read")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(store).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("aside-") {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

fn json_of(flaw: &Flaw) -> String {
    let (name, part, key) = match flaw {
        Flaw::Unreadable { part, key, .. } => ("unreadable", Some(part.to_string()), Some(key.to_string())),
        Flaw::NotIndexed { key } => ("not_indexed", Some("record".to_owned()), Some(key.to_string())),
        Flaw::NoCeiling => ("no_ceiling", None, None),
        Flaw::UnfinishedCopy => ("unfinished_copy", None, None),
        Flaw::NotRead { .. } | Flaw::ValuesNotRead { .. } => ("not_read", None, None),
        Flaw::IndexNotRead { .. } => ("index_not_read", Some("entry".to_owned()), None),
        Flaw::Altered { .. } => ("altered", None, None),
        _ => ("other", None, None),
    };
    let keys = match flaw {
        Flaw::NotRead { keys, .. } => Some(keys.iter().map(ToString::to_string).collect::<Vec<_>>()),
        Flaw::ValuesNotRead { .. } => Some(Vec::new()),
        _ => None,
    };
    json!({ "flaw": name, "part": part, "key": key, "keys": keys, "message": flaw.to_string() }).to_string()
}
