//! `claimdb purge`: what is stored, forgotten.

use crate::ask::{ask_in, bytes_of, closed, name_of, opened_to_change, opened_to_look, unexpected};
use crate::confirm;
use crate::failure::Failure;
use crate::out::{counted, tell_done};
use crate::told;
use claimdb::admin::{self, Answer, Command, KeyName, KeyTold};
use claimdb::{AdminError, Fault, Key, LiveClaims, Store};
use clap::ArgGroup;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// How many entries are swept in one step.
const STEP: usize = 4096;

/// Delete what is forgotten, one key, or all keys of a scope, from a store that no process has open
///
/// --forgotten deletes the results whose retention is over, and pending claims that nobody came back to within theirs: what
/// a running service does by itself each minute. THE WORK OF WHAT --key AND --whole-scope DELETE CAN RUN AGAIN, also if it
/// was done. The space that becomes free is used again, and given back by claimdb compact.
///
/// Asks first, and without a terminal wants --yes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group = ArgGroup::new("what").required(true).args(["forgotten", "key", "whole_scope"]))]
pub(crate) struct Args {
    /// The store's folder
    #[arg(long, value_name = "DIR")]
    store: PathBuf,

    /// Delete what is forgotten
    #[arg(long)]
    forgotten: bool,

    /// Delete this key, whatever its state
    #[arg(long, value_name = "KEY")]
    key: Option<OsString>,

    /// Delete all keys of this scope
    #[arg(long, value_name = "SCOPE")]
    whole_scope: Option<OsString>,

    /// The scope of KEY, if it has one
    #[arg(long, value_name = "SCOPE", conflicts_with_all = ["forgotten", "whole_scope"])]
    scope: Option<OsString>,

    /// KEY and SCOPE are given in hex: two digits for each byte
    #[arg(long)]
    hex: bool,

    /// Delete KEY although its record cannot be read
    #[arg(long, conflicts_with_all = ["forgotten", "whole_scope"])]
    force: bool,

    /// Show KEY itself when asking, instead of a hash that stands for it
    #[arg(long, conflicts_with_all = ["forgotten", "whole_scope"])]
    show_keys: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Tell what was done as JSON, in one line
    ///
    /// {"deleted":17}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Make a store that was not open for long as small as it can be:
    claimdb purge --store claims --forgotten --yes && claimdb compact claims

  Forget what a tenant has done:
    claimdb purge --store claims --whole-scope tenant-7";

const IF_LOCKED: &str = "stop it first; what is forgotten a running service deletes by itself";

/// What is to be deleted.
enum What {
    Forgotten,
    Key(Key),
    Scope(Vec<u8>),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let bytes = |given: &Option<OsString>, name| {
        given.as_ref().map(|given| bytes_of(given, args.hex, name)).transpose()
    };
    let key = args.key.as_ref().map(|given| name_of(given, args.hex, "--key"));
    let what = match (key.transpose()?, bytes(&args.whole_scope, "--whole-scope")?) {
        (Some(name), _) => {
            let scope = bytes(&args.scope, "--scope")?.unwrap_or_default();
            let key = Key::scoped(scope, name);
            What::Key(key.map_err(|error| Failure::Usage(format!("purging a key: {error}")))?)
        }
        // Most likely a variable that is not set; and most keys have no scope.
        (None, Some(scope)) if scope.is_empty() => {
            return Err(Failure::Usage(
                "--whole-scope is empty, which would delete every key that has no scope: give the scope, or delete those \
                 keys one by one with --key"
                    .to_owned(),
            ));
        }
        (None, Some(scope)) => What::Scope(scope),
        (None, None) => What::Forgotten,
    };
    let mut shown = None;
    if !args.yes {
        let (text, key) = look(args, &what)?;
        confirm::agreed(&format!("purging the store {}", args.store.display()), &text)?;
        shown = key;
    }
    let store = opened_to_change(&args.store, IF_LOCKED)?;
    if let (What::Key(key), Some(shown)) = (&what, shown)
        && let Some(Answer::Inspected(now)) = admin::ask(&store, inspect(key, false)).flatten().last()
        && (&now.state, &now.token) != (&shown.state, &shown.token)
    {
        return Err(Failure::State(format!(
            "purging {key}: it has moved on, and is not as it was shown; look at it again"
        )));
    }
    let deleted = purge(&store, &what, args.force)?;
    closed(&store)?;
    tell_done(args.json, || format!("{deleted} deleted"), || json!({ "deleted": deleted }))
}

fn inspect(key: &Key, show_keys: bool) -> Command {
    Command::Inspect { key: KeyName::new(key.scope(), key.name()), show_keys }
}

/// Tells what is there and what becomes of it, for a person; and the key as it was, if it is one that can be read.
fn look(args: &Args, what: &What) -> Result<(String, Option<Box<KeyTold>>), Failure> {
    const AGAIN: &str = "work can run again, also if it was done. This cannot be taken back.";
    let ask = |command: Command, tell: &mut dyn FnMut(Answer) -> Result<(), Failure>| {
        ask_in(&args.store, IF_LOCKED, &command, tell)
    };
    match what {
        What::Forgotten => {
            closed(&opened_to_look(&args.store, IF_LOCKED)?)?;
            let text = "Results whose retention is over are deleted, and pending claims that nobody came back to within \
                        theirs. What is remembered stays.";
            Ok((text.to_owned(), None))
        }
        What::Key(key) => {
            let (text, told) = match ask(inspect(key, args.show_keys), &mut |_| Ok(())) {
                Ok(Answer::Inspected(told)) if told.state == "absent" => {
                    return Err(Failure::no_such_key(format_args!("purging {key}")));
                }
                Ok(Answer::Inspected(told)) => (told::whole(&told), Some(told)),
                Err(Failure::Damaged(why)) if args.force => (why, None),
                Err(Failure::Damaged(why)) => {
                    return Err(Failure::Damaged(format!("{why}; --force deletes this one key")));
                }
                Err(failure) => return Err(failure),
                Ok(other) => return Err(unexpected(&other)),
            };
            Ok((format!("{text}\nIt is deleted: its {AGAIN}"), told))
        }
        What::Scope(scope) => {
            let mut states = BTreeMap::<String, u64>::new();
            ask(Command::list(Some(scope.as_slice()), Vec::new(), None, None, false), &mut |answer| {
                if let Answer::Key(told) = answer {
                    *states.entry(told.state).or_default() += 1;
                }
                Ok(())
            })?;
            let lines: String =
                states.iter().map(|(state, count)| format!("{state:<12} {count:>8}\n")).collect();
            let keys = counted(states.values().sum::<u64>(), "key", "keys");
            Ok((format!("{lines}All of this scope is deleted, {keys}: their {AGAIN}"), None))
        }
    }
}

fn purge(store: &Store, what: &What, force: bool) -> Result<u64, Failure> {
    let deleted = match what {
        What::Forgotten => return forgotten(store).map_err(|error| failed(&error)),
        What::Key(key) => {
            let removed = if force { store.remove_by_force(key) } else { store.remove(key) };
            match removed {
                Ok(true) => Ok(1),
                Ok(false) => return Err(Failure::no_such_key(format_args!("purging {key}"))),
                Err(error) => Err(error),
            }
        }
        What::Scope(scope) => {
            let scope =
                store.scope(scope).map_err(|error| Failure::Usage(format!("purging a scope: {error}")))?;
            scope.empty(LiveClaims::Refuse)
        }
    };
    deleted.map_err(|error| failed(&error))
}

fn forgotten(store: &Store) -> Result<u64, AdminError> {
    let mut deleted = 0;
    loop {
        let swept = store.sweep(STEP)?;
        deleted += swept.deleted as u64;
        if !swept.more {
            store.sync()?;
            return Ok(deleted);
        }
    }
}

fn failed(error: &AdminError) -> Failure {
    let (skipped, cause) = match error {
        AdminError::NotEmptied { damaged, first, .. } => (*damaged > 0, &**first),
        error => (false, error),
    };
    let fault = match cause {
        AdminError::Listed { fault, .. } | AdminError::Failed { fault, .. } => Some(fault),
        _ => None,
    };
    if skipped || matches!(fault, Some(Fault::Damaged(_))) {
        return Failure::Damaged(format!(
            "{error}; one key goes with --key and --force, claimdb repair puts all of these aside"
        ));
    }
    match fault.is_some_and(Fault::is_damage) {
        true => Failure::Damaged(error.to_string()),
        false => Failure::Failed(error.to_string()),
    }
}
