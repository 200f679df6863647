//! Changing one key: looked at, asked about, and changed only if it has not moved on.

use crate::ask::{KeyArgs, Place, refused, unexpected};
use crate::confirm;
use crate::failure::Failure;
use crate::out::tell_done;
use crate::told;
use claimdb::admin::{Answer, Command, KeyName, would_refuse};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(crate) struct Changing {
    /// Only if this is still the token of the claim
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Option<u64>,

    /// End the lease of a live claim first
    #[arg(long)]
    pub(crate) force: bool,

    /// Show the key itself when asking, instead of a hash that stands for it
    #[arg(long)]
    show_keys: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Tell what was done as JSON, in one line
    ///
    /// {"did":"released","before":{...}}, where did is released, taken_over, completed, failed or omitted, and before is
    /// what claimdb inspect --json gave before.
    #[arg(long)]
    json: bool,
}

fn token(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a token is a number, as claimdb inspect tells it".to_owned())
}

/// `doing` says what is tried, `will` what becomes of the key.
pub(crate) fn run(
    place: &Place,
    key: &KeyArgs,
    changing: &Changing,
    (doing, will): (&str, &str),
    command: impl Fn(KeyName, Option<String>) -> Command,
) -> Result<(), Failure> {
    let key = key.name()?;
    let mut token = changing.token.map(|token| token.to_string());
    if !changing.yes {
        let look = Command::Inspect { key: key.clone(), show_keys: changing.show_keys };
        let told = match place.ask_once(&look).map_err(|failure| failure.before(doing))? {
            Answer::Inspected(told) => told,
            other => return Err(unexpected(&other)),
        };
        // Nobody is asked for a word on what will be refused.
        if let Some(Answer::Refused { code, message }) =
            would_refuse(&command(key.clone(), token.clone()), &told)
        {
            return Err(refused(code, message));
        }
        let lease = match told.holder.as_deref() {
            Some("live") => "The lease of its holder is ended, who may be at work all the same. ",
            _ => "",
        };
        let change = format!("{}\n{lease}{will} This cannot be taken back.", told::whole(&told));
        confirm::agreed(&format!("{doing} {}", told.key), &change)?;
        // What was agreed to is a change of this claim, and not of another that has the key by now.
        token = token.or_else(|| told.token.clone());
    }
    let (did, before) = match place.ask_once(&command(key, token))? {
        Answer::Changed { did, before } => (did, before),
        other => return Err(unexpected(&other)),
    };
    let text = || {
        format!(
            "{}: {} (was {}, attempt {}, token {})",
            did.text(),
            told::name(&before),
            before.state,
            before.attempt,
            before.token.as_deref().unwrap_or("-")
        )
    };
    tell_done(changing.json, text, || json!({ "did": did, "before": before }))
}
