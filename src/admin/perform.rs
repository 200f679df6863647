//! Answering a command from a store of this process.

use super::answer::{Answer, Code, KeyTold, Stored};
use super::change;
use super::command::{Command, Wanted, from_hex};
use super::stats::stats;
use crate::backend::Backend;
use crate::error::{AdminError, Fault};
use crate::key::Key;
use crate::store::{CopyError, Inspection, KeyState, Listing, Next, Store};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Gives the engine for the folder of a backup.
pub(super) type Backups = dyn Fn(&Path) -> Box<dyn Backend> + Send + Sync;

/// Asks `store`. What the answers need is done as they are taken; a change is done once the last one is.
#[must_use = "nothing is done before the answers are taken"]
pub fn ask(store: &Store, command: Command) -> Answers {
    Answers { store: store.clone(), backups: None, doing: Doing::Begin(command) }
}

/// The answers to a command, one by one; `None` where a step was made that has nothing to tell. Each step but that of a
/// change or a backup is short.
pub struct Answers {
    store: Store,
    /// If there are none, a backup is made with the store's own engine.
    backups: Option<Arc<Backups>>,
    doing: Doing,
}

enum Doing {
    Begin(Command),
    Listing(Box<Lister>),
    Counting(Box<Listing<Inspection>>, Stored),
    Ended,
}

struct Lister {
    /// What memory alone may know, before what is stored.
    live: std::vec::IntoIter<Key>,
    stored: Listing<Inspection>,
    states: Vec<Wanted>,
    older_than: Duration,
    limit: u64,
    show_keys: bool,
    keys: u64,
    damaged: u64,
}

impl Answers {
    /// With the engine that `backups` gives for the folder of a backup.
    pub(super) fn with_backups(mut self, backups: Option<Arc<Backups>>) -> Self {
        self.backups = backups;
        self
    }

    /// Does a command of one step, or begins a longer one.
    fn begin(&self, command: Command) -> Result<Doing, Answer> {
        let done = match command {
            Command::Inspect { key, show_keys } => match key.key() {
                Ok(key) => match self.store.inspect(key.clone()) {
                    Ok(told) => Answer::Inspected(KeyTold::of(&key, &told, show_keys)),
                    Err(error) => refusal(&error),
                },
                Err(reason) => Answer::refused(Code::Invalid, format!("inspecting a key: {reason}")),
            },
            Command::Release { key, token, force } => {
                change::change(&self.store, &key, token.as_deref(), None, force)
            }
            Command::Resolve { key, token, settle, force } => {
                change::change(&self.store, &key, token.as_deref(), Some(&settle), force)
            }
            Command::Backup { folder } => self.back_up(Path::new(&folder)),
            Command::Stats { count: false } => stats(&self.store, None),
            Command::Stats { count: true } => {
                let all = self.store.keys(None).map_err(|error| refusal(&error))?;
                return Ok(Doing::Counting(Box::new(all), Stored::default()));
            }
            Command::List { scope_hex, states, older_than_ms, limit, show_keys } => {
                let scope = scope_hex.as_deref().map(from_hex).transpose();
                let scope = scope.map_err(|reason| {
                    Answer::refused(Code::Invalid, format!("listing keys: the scope: {reason}"))
                })?;
                let live = self.store.live_keys(scope.as_deref()).map_err(|error| refusal(&error))?;
                let stored = self.store.keys(scope.as_deref()).map_err(|error| refusal(&error))?;
                let older_than = Duration::from_millis(older_than_ms.unwrap_or(0));
                let (live, limit) = (live.into_iter(), limit.unwrap_or(u64::MAX));
                let (keys, damaged) = (0, 0);
                let lister = Lister { live, stored, states, older_than, limit, show_keys, keys, damaged };
                return Ok(Doing::Listing(Box::new(lister)));
            }
        };
        Err(done)
    }

    fn back_up(&self, folder: &Path) -> Answer {
        if !folder.is_absolute() {
            let why = "backing up: give the folder from the root on, as in /backup/claims-monday";
            return Answer::refused(Code::Invalid, why);
        }
        let made = match &self.backups {
            Some(backups) => self.store.backup_into(folder, |partial| backups(partial)),
            #[cfg(any(feature = "sled", feature = "redb"))]
            None => self.store.backup(folder),
            #[cfg(not(any(feature = "sled", feature = "redb")))]
            None => {
                let why =
                    "backing up: this service names no engine for it; it is to call admin::Server::backups";
                return Answer::refused(Code::Invalid, why);
            }
        };
        match made {
            Ok(copied) => Answer::backed_up(&copied),
            Err(CopyError::Fault(fault)) => {
                Answer::refused(Code::of(&fault), CopyError::Fault(fault).to_string())
            }
            Err(error @ CopyError::InStore { .. }) => Answer::refused(Code::Invalid, error.to_string()),
            Err(error) if error.is_damage() => Answer::refused(Code::Damaged, error.to_string()),
            Err(error) => Answer::refused(Code::Failed, error.to_string()),
        }
    }
}

impl Iterator for Answers {
    type Item = Option<Answer>;

    fn next(&mut self) -> Option<Option<Answer>> {
        let answer = match std::mem::replace(&mut self.doing, Doing::Ended) {
            Doing::Ended => return None,
            Doing::Begin(command) => match self.begin(command) {
                Ok(doing) => {
                    self.doing = doing;
                    None
                }
                Err(done) => Some(done),
            },
            Doing::Listing(mut lister) => {
                let answer = lister.step(&self.store);
                if !answer.as_ref().is_some_and(Answer::is_last) {
                    self.doing = Doing::Listing(lister);
                }
                answer
            }
            Doing::Counting(mut all, mut stored) => match count(all.next(), &mut stored) {
                Ok(true) => {
                    self.doing = Doing::Counting(all, stored);
                    None
                }
                Ok(false) => Some(match self.store.is_as_written() {
                    Ok(()) => stats(&self.store, Some(stored)),
                    Err(error) => cut_off(&error, &stored),
                }),
                Err(error) => Some(cut_off(&error, &stored)),
            },
        };
        Some(answer)
    }
}

impl Lister {
    /// Looks at one key.
    fn step(&mut self, store: &Store) -> Option<Answer> {
        let (told, since) = if let Some(key) = self.live.next() {
            match store.inspect(key.clone()) {
                // All others are met among what is stored.
                Ok(told) if told.state == KeyState::InMemory && self.wants(&told) => {
                    (KeyTold::of(&key, &told, self.show_keys), told.age)
                }
                Ok(_) => return None,
                Err(error) => return Some(refusal(&error)),
            }
        } else {
            match self.stored.next() {
                None => {
                    return Some(
                        store.is_as_written().map_or_else(|error| refusal(&error), |()| self.end(false)),
                    );
                }
                Some(Ok((key, told))) if self.wants(&told) => {
                    (KeyTold::of(&key, &told, self.show_keys), told.since)
                }
                Some(Ok(_)) => return None,
                // Whatever was asked for: it may be that.
                Some(Err(AdminError::Listed { key, fault })) => {
                    self.damaged += 1;
                    (KeyTold::unreadable(&key, &fault, self.show_keys), None)
                }
                Some(Err(error)) => return Some(refusal(&error)),
            }
        };
        if since.is_some_and(|since| since < self.older_than) {
            return None;
        }
        if self.keys == self.limit {
            return Some(self.end(true));
        }
        self.keys += 1;
        Some(Answer::Key(told))
    }

    fn end(&self, more: bool) -> Answer {
        Answer::Listed { keys: self.keys, damaged: self.damaged, more }
    }

    fn wants(&self, told: &Inspection) -> bool {
        let its = match told.state {
            KeyState::InMemory | KeyState::Pending => Wanted::Pending,
            KeyState::Interrupted => Wanted::Interrupted,
            KeyState::Settled => Wanted::Settled,
            KeyState::Absent | KeyState::Settling => return false,
        };
        self.states.is_empty() || self.states.contains(&its)
    }
}

/// Counts one key; whether there are more.
fn count(
    listed: Option<Result<(Key, Inspection), AdminError>>,
    stored: &mut Stored,
) -> Result<bool, AdminError> {
    let Some(listed) = listed else { return Ok(false) };
    match listed {
        Ok((_, told)) => match told.state {
            KeyState::Pending => {
                stored.pending += 1;
                stored.ended += u64::from(told.remaining.is_none() && told.next != Next::InFlight);
            }
            KeyState::Interrupted => stored.interrupted += 1,
            KeyState::Settled => stored.settled += 1,
            KeyState::Absent | KeyState::InMemory | KeyState::Settling => {}
        },
        Err(AdminError::Listed { fault: Fault::Damaged(_), .. }) => stored.damaged += 1,
        Err(error) => return Err(error),
    }
    Ok(true)
}

/// What counting came to before it failed: of a store with a damaged page it is all that can be told.
fn cut_off(error: &AdminError, stored: &Stored) -> Answer {
    let Stored { pending, ended, interrupted, settled, damaged } = stored;
    let Answer::Refused { code, message } = refusal(error) else { return refusal(error) };
    let counted = format!(
        "{pending} pending ({ended} ended), {interrupted} interrupted, {settled} settled, {damaged} damaged"
    );
    Answer::refused(code, format!("counting what is stored: it was cut off at {counted}: {message}"))
}

pub(super) fn refusal(error: &AdminError) -> Answer {
    let code = match error {
        AdminError::InvalidKey { .. } | AdminError::TooLarge { .. } => Code::Invalid,
        AdminError::InFlight { .. } => Code::State,
        AdminError::Listed { fault, .. } | AdminError::Failed { fault, .. } => Code::of(fault),
        AdminError::NotEmptied { .. } | AdminError::ScopeInUse { .. } => Code::Failed,
    };
    Answer::refused(code, error.to_string())
}
