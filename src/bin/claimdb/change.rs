//! Changing one key: looked at, asked about, and changed only if it has not moved on.

use crate::ask::{KeyArgs, Place, unexpected, write_json};
use crate::confirm;
use crate::counts::write_line;
use crate::failure::Failure;
use crate::told;
use claimdb::admin::{Answer, Command, KeyName};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(crate) struct Changing {
    /// Only if this is still the token of the claim
    #[arg(long, value_name = "TOKEN")]
    token: Option<u64>,

    /// End the lease of a live claim first
    #[arg(long)]
    pub(crate) force: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Tell what was done as JSON, in one line
    ///
    /// {"did":"released","before":{...}}, where before is what claimdb inspect --json gave before.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(
    place: &Place,
    key: &KeyArgs,
    changing: &Changing,
    doing: &str,
    command: impl FnOnce(KeyName, Option<String>) -> Command,
) -> Result<(), Failure> {
    let key = key.name()?;
    let mut token = changing.token.map(|token| token.to_string());
    if !changing.yes {
        let looked = place.ask_once(&Command::Inspect { key: key.clone(), show_keys: false });
        let told = match looked.map_err(|failure| failure.before(doing))? {
            Answer::Inspected(told) => told,
            other => return Err(unexpected(&other)),
        };
        let holder = told.holder.as_ref().map(|holder| format!(" (holder {holder})")).unwrap_or_default();
        let change = format!("{} is {}{holder}; {doing} it cannot be taken back.", told.key, told.state);
        confirm::agreed(false, &format!("{doing} {}", told.key), &change)?;
        // What was agreed to is a change of this claim, and not of another that has the key by now.
        token = token.or_else(|| told.token.clone());
    }
    let (did, before) = match place.ask_once(&command(key, token))? {
        Answer::Changed { did, before } => (did, before),
        other => return Err(unexpected(&other)),
    };
    if changing.json {
        return write_json(&json!({ "did": did, "before": before }));
    }
    write_line(format_args!(
        "{}: {} (was {}, attempt {}, token {})",
        did.text(),
        told::name(&before),
        before.state,
        before.attempt,
        before.token.as_deref().unwrap_or("-")
    ))
}
