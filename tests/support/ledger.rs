//! What a child process told before it was killed, and whether the store keeps to it after reopening.
//!
//! The parent gives the ledger each whole line of the child's pipe, in order. A thread writes *claims*, *reads*,
//! *settling*, *checkpointing*, *releasing*, *dropping*, *putting* and *deleting* before it acts and the other lines
//! after the call returned, and one write is one line: so what a line tells had happened when any later line was begun.
//! What was begun and not told may have happened or not, and the ledger allows both; what was told must be so.
#![allow(dead_code)] // each harness uses a part

#[path = "told.rs"]
mod told;

use std::collections::{BTreeMap, HashMap};
pub use told::Counts;
use told::Values;

#[derive(Debug, Default)]
pub struct Ledger {
    keys: BTreeMap<String, Key>,
    values: Values,
    /// The claim that each thread of the child is waiting for.
    asks: HashMap<String, Ask>,
    /// The effect that each thread found, before it asked for its key: the token it carries, and whether it is whole.
    effects: HashMap<String, (u64, bool)>,
    highest: u64,
    /// Counts the openings of all children.
    round: u32,
    pub opened: bool,
    /// Threads that have been through all keys of earlier rounds.
    pub verified: usize,
    /// What went wrong in the child by its own account. After a power cut that is as it should be.
    pub errors: Vec<String>,
    /// Promises that were broken.
    pub broken: Vec<String>,
    pub counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    token: u64,
    length: usize,
    failed: bool,
}

#[derive(Debug, Default)]
struct Key {
    settled: Option<Value>,
    /// The newest grant's settle was begun and not told.
    settling: Option<Value>,
    grant: Option<Grant>,
    /// The stamp of the newest checkpoint that was told, zero for none, and of one that was begun and not told.
    saved: u64,
    saving: Option<u64>,
    /// Claims that were cut off and may have been granted since the newest grant.
    untold: u32,
    claims_this_round: u32,
    seen_this_round: bool,
    /// The round in which the newest settle or grant was told.
    told_in: u32,
}

#[derive(Debug, Clone, Copy)]
struct Grant {
    token: u64,
    attempt: u32,
    /// It may have ended without settling: dropped, of a short lease, or of an earlier round.
    ended: bool,
    releasing: bool,
    short: bool,
}

#[derive(Debug)]
struct Ask {
    key: String,
    /// As opposed to a read, which can change nothing.
    claim: bool,
    /// The highest token told before.
    highest: u64,
    settled: bool,
}

/// Whether claims of `key` are stored before they are granted: the children name keys so.
fn is_durable(key: &str) -> bool {
    key.starts_with('f')
}

impl Ledger {
    /// A child is about to be started.
    pub fn begin_child(&mut self) {
        self.begin_round();
        (self.opened, self.verified) = (false, 0);
        self.errors.clear();
    }

    /// A store is about to be opened: all claims of earlier openings have ended.
    fn begin_round(&mut self) {
        for ask in std::mem::take(&mut self.asks).into_values().filter(|ask| ask.claim) {
            let key = self.keys.entry(ask.key).or_default();
            // Nobody can have been granted a key whose holder had not begun to end.
            if key.settled.is_none() && key.grant.is_none_or(|grant| grant.ended || grant.releasing) {
                key.untold += 1;
            }
        }
        for key in self.keys.values_mut() {
            (key.claims_this_round, key.seen_this_round) = (0, false);
            if let Some(grant) = &mut key.grant {
                grant.ended = true;
            }
        }
        self.effects.clear();
        self.round += 1;
    }

    /// The keys of earlier rounds, all of which the next child must ask for before it does anything else.
    pub fn keys(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// Settles, durable grants and values that a reopened store must show.
    pub fn told(&self) -> u64 {
        let told = |(name, key): (&String, &Key)| {
            key.settled.is_some() || (is_durable(name) && key.grant.is_some_and(|grant| !grant.releasing))
        };
        self.keys.iter().map(|pair| u64::from(told(pair))).sum::<u64>() + self.values.told_of()
    }

    /// All threads have been through the keys of earlier rounds: none may be left out.
    pub fn all_verified(&mut self) {
        let unseen: Vec<_> = self.keys.iter().filter(|(_, key)| !key.seen_this_round).collect();
        if let Some((name, _)) = unseen.first() {
            self.broken.push(format!("the harness: {} keys were not asked for, as {name}", unseen.len()));
        }
        if let Some(value) = self.values.unseen(self.round) {
            self.broken.push(format!("the harness: {value} was not looked at"));
        }
    }

    /// What was broken, if anything; else how far the last child had come: 0 it had not opened the store, 1 it had
    /// not verified all, 2 it had.
    pub fn verdict(&self, threads: usize) -> Result<usize, String> {
        if self.broken.is_empty() {
            return Ok(if self.verified == threads { 2 } else { usize::from(self.opened) });
        }
        let more = if self.broken.len() > 8 { "\n..." } else { "" };
        Err(format!(
            "{} broken:\n{}{more}",
            self.broken.len(),
            self.broken[..self.broken.len().min(8)].join("\n")
        ))
    }

    /// Takes a whole line.
    pub fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap_or(u64::MAX);
        let value = |token: &str, length: &str, how: &str| Value {
            token: number(token),
            length: length.parse().unwrap_or(usize::MAX),
            failed: how == "failed",
        };
        let round = self.round;
        match words[..] {
            [_, "opened"] => (self.opened, self.counts.openings) = (true, self.counts.openings + 1),
            [_, "closing"] => self.begin_round(),
            [_, "verified"] => self.verified += 1,
            [_, "sweeping"] => self.counts.sweeps += 1,
            [_, "error", ..] => self.errors.push(line.to_owned()),
            [thread, verb @ ("claims" | "reads"), key] => {
                let state = self.keys.entry(key.to_owned()).or_default();
                let claim = verb == "claims";
                state.claims_this_round += u32::from(claim);
                state.seen_this_round = true;
                let settled = state.settled.is_some();
                let ask = Ask { key: key.to_owned(), claim, highest: self.highest, settled };
                self.asks.insert(thread.to_owned(), ask);
            }
            [thread, "granted", key, token, attempt, previous, lease, checkpoint] => {
                let (attempt, short) = (attempt.parse().unwrap_or(u32::MAX), lease == "short");
                let grant = Grant { token: number(token), attempt, ended: short, releasing: false, short };
                self.effect(thread, key, None);
                self.granted(thread, key, grant, number(previous), number(checkpoint));
            }
            [thread, "settled", key, token, length, how, bytes] => {
                let found = value(token, length, how);
                self.asks.remove(thread);
                self.effect(thread, key, Some(found));
                self.settled(key, found, bytes == "same");
            }
            [thread, "busy", key] => {
                self.asks.remove(thread);
                if self.key(key).claims_this_round == 1 {
                    self.broken.push(format!(
                        "P6 never stuck: round {round}: {key} is in flight, and nobody in this opening has asked for it"
                    ));
                }
            }
            [thread, "absent", key] => {
                // If a claim follows, it follows at once: nothing came in between.
                self.effect(thread, key, None);
                if self.asks.remove(thread).is_some_and(|ask| ask.settled) {
                    self.lose(key, "is absent".to_owned());
                }
            }
            [_, "settling", key, token, length, how] => {
                let value = value(token, length, how);
                let key = self.key(key);
                // One that was overtaken will be refused.
                if key.grant.is_some_and(|grant| grant.token == value.token) {
                    key.settling = Some(value);
                }
            }
            [_, how @ ("completed" | "failed"), key, token, length] => {
                self.told_settled(key, value(token, length, how));
            }
            [_, "checkpointing", key, _, stamp] => self.key(key).saving = Some(number(stamp)),
            [_, "checkpointed", key, _, stamp] => {
                let key = self.key(key);
                (key.saved, key.saving, key.told_in) = (number(stamp), None, round);
            }
            [_, "releasing", key, token] => self.end(key, number(token), |grant| grant.releasing = true),
            [_, "dropping", key, token] => self.end(key, number(token), |grant| grant.ended = true),
            [_, "released", ..] => {}
            [_, "lost", key, token] => {
                let token = number(token);
                if self.key(key).grant.is_some_and(|grant| grant.token == token && !grant.short) {
                    self.broken
                        .push(format!("P5 no early takeover: {key} was lost by {token} within its lease"));
                }
            }
            [thread, "effect", _, token, bytes] => {
                self.effects.insert(thread.to_owned(), (number(token), bytes == "same"));
            }
            [_, "putting", key, stamp] => self.values.begun(key, number(stamp)),
            [_, "deleting", key] => self.values.begun(key, 0),
            [_, "put", key, stamp] => self.values.told(key, number(stamp), round),
            [_, "deleted", key] => self.values.told(key, 0, round),
            [_, "value", key, stamp, bytes] => {
                let same = bytes == "same";
                self.broken.extend(self.values.found(key, number(stamp), same, round, &mut self.counts));
            }
            _ => self.broken.push(format!("the harness: the child wrote {line:?}")),
        }
    }

    /// Judges the effect that `thread` found just before its key was answered.
    fn effect(&mut self, thread: &str, name: &str, settled: Option<Value>) {
        let Some((found, same)) = self.effects.remove(thread) else { return };
        let expected = settled.filter(|value| !value.failed).map_or(0, |value| value.token);
        if found == expected && same {
            self.counts.effects_found += u64::from(expected != 0);
        } else {
            self.broken.push(format!(
                "rule 25, effects land with their completion: round {}: {name} is completed by {expected} (0: by nobody), \
                 and its effect is by {found}, {}",
                self.round,
                if same { "whole" } else { "with other bytes" }
            ));
        }
    }

    fn key(&mut self, name: &str) -> &mut Key {
        self.keys.entry(name.to_owned()).or_default()
    }

    fn end(&mut self, key: &str, token: u64, how: impl FnOnce(&mut Grant)) {
        if let Some(grant) = self.key(key).grant.as_mut().filter(|grant| grant.token == token) {
            how(grant);
        }
    }

    fn lose(&mut self, name: &str, found: String) {
        let round = self.round;
        let key = self.key(name);
        let told_in = key.told_in;
        let promise = match key.settled {
            _ if told_in < round => "P4 durable before told",
            Some(_) => "P8 remembered",
            None => "rule 18, attempts are exact",
        };
        let told = match (key.settled, key.grant) {
            (Some(Value { token, length, failed }), _) => {
                format!(
                    "{} by token {token} with {length} bytes",
                    if failed { "failed" } else { "completed" }
                )
            }
            (None, Some(grant)) => format!("granted to token {} as attempt {}", grant.token, grant.attempt),
            (None, None) => "nothing".to_owned(),
        };
        self.broken
            .push(format!("{promise}: round {round}: {name}, told in round {told_in} as {told}, {found}"));
        self.counts.lost += u64::from(told_in < round);
        *self.key(name) =
            Key { told_in: round, claims_this_round: 1, seen_this_round: true, ..Key::default() };
    }

    fn granted(&mut self, thread: &str, name: &str, grant: Grant, previous: u64, checkpoint: u64) {
        let (round, durable) = (self.round, is_durable(name));
        let highest = self.asks.remove(thread).map_or(self.highest, |ask| ask.highest);
        if grant.token <= highest {
            self.broken.push(format!(
                "P2 ordered tokens: round {round}: {name} was granted to token {}, and {highest} was told before",
                grant.token
            ));
        }
        self.highest = self.highest.max(grant.token);
        let key = self.key(name);
        let shown =
            format!("is granted as attempt {} after {previous} with checkpoint {checkpoint}", grant.attempt);
        let live = key.grant.filter(|old| !old.ended && !old.releasing);
        if key.settled.is_some() {
            self.lose(name, shown);
        } else if let Some(old) = live {
            self.broken.push(format!("P1 one holder: round {round}: {name}, held by {}, {shown}", old.token));
        } else if durable && let Some(old) = key.grant {
            let next = |from: u32| from + 1..=from + 1 + key.untold;
            let again = next(old.attempt).contains(&grant.attempt)
                && (key.untold > 0 || previous == old.token)
                && (checkpoint == key.saved || Some(checkpoint) == key.saving);
            let fresh = old.releasing && next(0).contains(&grant.attempt) && checkpoint == 0;
            if !again && !fresh {
                let saved = key.saved;
                self.lose(name, format!("{shown}; {saved} was saved last"));
            } else if key.told_in < round {
                self.counts.grants_found += 1;
                self.counts.checkpoints_found += u64::from(checkpoint != 0);
            }
        } else if key.claims_this_round == 1
            && !(1..=1 + if durable { key.untold } else { 0 }).contains(&grant.attempt)
        {
            // A claim in memory is forgotten with its process, so the next one is the first.
            self.broken.push(format!(
                "rule 18, attempts are exact: round {round}: {name}, of which nothing was told, {shown}"
            ));
        }
        self.counts.grants += 1;
        let key = self.key(name);
        (key.grant, key.settling, key.told_in) = (Some(grant), None, round);
        (key.saved, key.saving, key.untold) = (checkpoint, None, 0);
    }

    /// A settle is told to its settler.
    fn told_settled(&mut self, name: &str, value: Value) {
        let round = self.round;
        let key = self.key(name);
        // Somebody else may have been told first.
        if key.settled.or(key.settling) != Some(value) {
            let by = value.token;
            self.broken
                .push(format!("P3 fenced: round {round}: {name} was settled by {by}, which had lost it"));
        }
        let key = self.key(name);
        (key.settled, key.told_in) = (Some(value), round);
        self.counts.completions += u64::from(!value.failed);
        self.counts.failures += u64::from(value.failed);
        self.counts.length(value.length);
    }

    /// A settle is told to a claimant or a reader.
    fn settled(&mut self, name: &str, found: Value, same_bytes: bool) {
        let round = self.round;
        let key = self.key(name);
        let told = key.settled;
        if told.or(key.settling) != Some(found) || !same_bytes {
            let bytes = if same_bytes { "its own" } else { "other" };
            self.lose(
                name,
                format!("is settled by token {} with {} {bytes} bytes", found.token, found.length),
            );
            return;
        }
        let earlier = told.is_some() && key.told_in < round;
        if told.is_none() {
            (key.settled, key.told_in) = (Some(found), round);
        }
        self.counts.settles_found += u64::from(earlier);
    }
}
