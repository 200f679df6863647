//! Freeing and settling a key in its holder's stead.

use super::answer::{Answer, Code, Did, KeyTold};
use super::command::{Command, KeyName, Settle, Value, from_hex};
use super::perform::refusal;
use crate::error::AdminError;
use crate::key::Key;
use crate::store::{Inspection, KeyState, Resolution, Store};
use crate::token::Token;
use crate::value::EncodeError;
use std::time::Duration;

/// Settles the key as `settle` says, or frees it without that. `token` names the claim that was looked at.
pub(super) fn change(
    store: &Store,
    key: &KeyName,
    token: Option<&str>,
    settle: Option<&Settle>,
    force: bool,
) -> Answer {
    let doing = if settle.is_some() { RESOLVING } else { RELEASING };
    let asked = || -> Result<(Key, Option<Token>, Resolution, Did), String> {
        let token = token.map(|token| token.parse().map(Token::new)).transpose();
        let token = token.map_err(|_| "its token is not a number; give it as inspect tells it".to_owned())?;
        let encode = |error: EncodeError| error.to_string();
        let (resolution, did) = match settle {
            None => (Resolution::released(), Did::Released),
            Some(Settle::Omitted) => (Resolution::omitted(), Did::Omitted),
            Some(Settle::Completed(Value::Text(text))) => {
                (Resolution::completed(text).map_err(encode)?, Did::Completed)
            }
            Some(Settle::Completed(Value::Hex(hex))) => {
                (Resolution::completed_bytes(from_hex(hex)?), Did::Completed)
            }
            Some(Settle::Failed(Value::Text(text))) => {
                (Resolution::failed(text).map_err(encode)?, Did::Failed)
            }
            Some(Settle::Failed(Value::Hex(hex))) => (Resolution::failed_bytes(from_hex(hex)?), Did::Failed),
        };
        Ok((key.key()?, token, resolution, did))
    };
    let (key, token, resolution, did) = match asked() {
        Ok(asked) => asked,
        Err(reason) => return Answer::refused(Code::Invalid, format!("{doing} a key: {reason}")),
    };
    let change = Change { store, doing, key, force };
    change.make(token, resolution, did).unwrap_or_else(|refused| refused)
}

struct Change<'a> {
    store: &'a Store,
    doing: &'static str,
    key: Key,
    force: bool,
}

impl Change<'_> {
    fn make(&self, asked: Option<Token>, resolution: Resolution, did: Did) -> Result<Answer, Answer> {
        let seen = self.look()?;
        let before = KeyTold::of(&self.key, &seen, false);
        let token = changeable(&before, asked, did == Did::Released, self.force);
        let token = token.map_err(|(code, why)| self.refused(code, &why))?;
        let live = before.is_live();
        if live && !self.store.end_lease(self.key.clone(), token).map_err(|error| refusal(&error))? {
            return Err(self.refused(Code::State, MOVED_ON));
        }
        let changed = |did| Ok(Answer::Changed { did, before: before.clone() });
        if seen.state == KeyState::InMemory {
            return changed(did); // no record says anything of it, and its lease is over
        }
        match self.store.resolve(self.key.clone(), token, resolution) {
            Ok(true) => changed(did),
            // One who waited for it had the key sooner than this.
            Ok(false) | Err(AdminError::InFlight { .. }) if live => match self.look()?.state {
                KeyState::Settled => Err(self.refused(Code::State, "its holder settled it at the last moment")),
                _ if did == Did::Released => changed(Did::TakenOver),
                _ => Err(self.refused(
                    Code::State,
                    "its lease was ended, and another has taken the key over before it could be settled; look at it \
                     again",
                )),
            },
            Ok(false) => Err(self.refused(Code::State, MOVED_ON)),
            Err(error) => Err(refusal(&error)),
        }
    }

    fn look(&self) -> Result<Inspection, Answer> {
        self.store.inspect(self.key.clone()).map_err(|error| {
            refusal(&match error {
                // What was asked for is this change.
                AdminError::Failed { on, fault, .. } => AdminError::Failed { doing: self.doing, on, fault },
                error => error,
            })
        })
    }

    fn refused(&self, code: Code, why: &str) -> Answer {
        Answer::refused(code, refusal_text(self.doing, &self.key.label().to_string(), why))
    }
}

/// What `command`, a release or a resolution, is refused with if its key is as `told`; `None` if nothing there stands in its
/// way, and for other commands. For those who ask a person before they ask the store, whose word is the last.
#[must_use]
pub fn would_refuse(command: &Command, told: &KeyTold) -> Option<Answer> {
    let (doing, token, releases, force) = match command {
        Command::Release { token, force, .. } => (RELEASING, token, true, *force),
        Command::Resolve { token, force, .. } => (RESOLVING, token, false, *force),
        _ => return None,
    };
    let asked = token.as_ref().and_then(|token| token.parse().ok()).map(Token::new);
    let (code, why) = changeable(told, asked, releases, force).err()?;
    Some(Answer::refused(code, refusal_text(doing, &told.key, &why)))
}

fn refusal_text(doing: &str, key: &str, why: &str) -> String {
    format!("{doing} {key}: {why}")
}

/// The token of the claim that is to be changed, if a key that is told as `told` may be.
fn changeable(
    told: &KeyTold,
    asked: Option<Token>,
    releases: bool,
    force: bool,
) -> Result<Token, (Code, String)> {
    let state = |why: &str| Err((Code::State, why.to_owned()));
    if told.is(KeyState::Absent) {
        return Err((Code::NoSuchKey, NO_SUCH_KEY.to_owned()));
    }
    if told.is(KeyState::Settled) {
        return state(
            "it is settled: its work is done, or has failed for good; if it has to run again, delete the key with claimdb \
             purge, once no process has the store open",
        );
    }
    let token = told.token.as_ref().and_then(|token| token.parse().ok()).map(Token::new);
    let Some(token) = token.filter(|_| !told.is(KeyState::Settling)) else {
        return state("it is being stored or settled at this moment; look again");
    };
    if asked.is_some_and(|asked| asked != token) {
        return state(MOVED_ON);
    }
    if told.is(KeyState::InMemory) && !releases {
        return state(
            "its claim is kept in memory alone, so there is no record to settle; it can be released",
        );
    }
    if told.is_live() && !force {
        let left = Duration::from_millis(told.lease_left_ms.unwrap_or(0));
        return state(&format!(
            "a live claim has it, whose lease runs out in {left:.1?}; wait for that, or end its lease now with --force: its \
             holder may still be at work, and is told to stop if it asks"
        ));
    }
    Ok(token)
}

/// What is wrong with a key that is not there, and what to do: it stands behind what was tried on it.
pub const NO_SUCH_KEY: &str = "there is no such key, or it is forgotten; see what there is with claimdb list, and give the \
                               scope of a key that has one";

const RELEASING: &str = "releasing";
const RESOLVING: &str = "resolving";

const MOVED_ON: &str =
    "it has moved on: another claim has it than the one that was looked at; look at it again";
