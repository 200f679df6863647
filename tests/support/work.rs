//! What one thread of a child does: claims of every kind, values, effects and sweeps, told line by line.

use super::{Plan, Random, blob, say};
use claimdb::{Claim, Durability, Outcome, Request, SettleError, Settled, Store, Writes};
use serde::{Serialize, Serializer};
use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Far longer than a run, so that a key granted again was not waited for.
const LONG_LEASE: Duration = Duration::from_secs(86_400);
const SHORT_LEASE: Duration = Duration::from_millis(2);
/// So short that a run's sweeps find what to delete.
const SHORT_RETENTION: Duration = Duration::from_millis(20);
const NO_WAIT: Duration = Duration::ZERO;
const WAIT: Duration = Duration::from_millis(20);
/// Plain values of each thread, overwritten again and again.
const VALUES: usize = 12;

/// Told of what, or why not.
type Told = Result<(), String>;

/// Bytes that serde takes for bytes, stored as their length in eight bytes and themselves.
struct Blob(Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

/// The children name keys so: `f` is claimed with `Full`, `r` with `Result`; `e` is completed with an effect.
fn is_durable(key: &str) -> bool {
    key.starts_with('f')
}

fn has_effect(key: &str) -> bool {
    key.as_bytes().get(1) == Some(&b'e')
}

pub struct Worker<'a> {
    plan: &'a Plan,
    thread: usize,
    pipe: &'a File,
    /// Numbers the keys that all threads want.
    shared: &'a AtomicU32,
    random: Random,
    made: u32,
    verified: bool,
    held: Vec<Claim>,
    /// Keys of this round that this thread has asked for.
    known: Vec<String>,
}

impl<'a> Worker<'a> {
    pub fn new(plan: &'a Plan, thread: usize, pipe: &'a File, shared: &'a AtomicU32) -> Self {
        let random = Random(plan.seed ^ (u64::from(plan.round) << 32) ^ ((thread as u64) << 56));
        let (made, verified, held, known) = (0, false, Vec::new(), Vec::new());
        Self { plan, thread, pipe, shared, random, made, verified, held, known }
    }

    pub fn let_go(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.held)
    }

    pub fn run(&mut self, store: &Store) -> Told {
        if !self.verified {
            self.verifies(store)?;
            self.verified = true;
            self.say("verified");
        }
        if self.plan.work && !self.plan.reads {
            for _ in 0..self.plan.acts + self.random.below(self.plan.acts) {
                self.works(store)?;
            }
        }
        Ok(())
    }

    fn verifies(&mut self, store: &Store) -> Told {
        for number in 0..VALUES {
            self.looks(store, number)?;
        }
        let mine: Vec<_> = self.plan.keys.iter().skip(self.thread).step_by(self.plan.threads).collect();
        for (number, key) in mine.into_iter().enumerate() {
            if has_effect(key) {
                self.looks_at_effect(store, key)?;
            }
            // Every other one by reading, as long as there is something to read.
            let found = (self.plan.reads || number % 2 == 1) && self.reads(store, key)?;
            if found || self.plan.reads {
                continue;
            }
            if let Some(claim) = self.claims(store, key, LONG_LEASE, NO_WAIT)? {
                self.ends(claim)?;
            }
        }
        Ok(())
    }

    fn works(&mut self, store: &Store) -> Told {
        match self.random.below(100) {
            dice @ 0..38 => {
                let key = self.new_key(["f", "f", "r", "fe", "re"][dice % 5]);
                if let Some(claim) = self.claims(store, &key, LONG_LEASE, NO_WAIT)? {
                    self.settles(claim)?;
                }
            }
            dice @ 38..53 => {
                let key = self.new_key(["f", "f", "fe", "r"][dice % 4]);
                if let Some(claim) = self.claims(store, &key, LONG_LEASE, NO_WAIT)? {
                    self.held.push(claim);
                }
            }
            53..63 => {
                if !self.held.is_empty() {
                    let claim = self.held.swap_remove(self.random.below(self.held.len()));
                    self.ends(claim)?;
                }
            }
            // A key that the others want as well: each number is drawn six times.
            dice @ 63..74 => {
                let number = self.shared.fetch_add(1, Ordering::Relaxed) / 6;
                let kind = if dice < 70 { "f" } else { "r" };
                let key = format!("{kind}s-{}-{number}", self.plan.round);
                if let Some(claim) = self.claims(store, &key, LONG_LEASE, WAIT)? {
                    self.ends(claim)?;
                }
            }
            74..78 => {
                let key = self.new_key("f");
                if let Some(late) = self.claims(store, &key, SHORT_LEASE, NO_WAIT)? {
                    // Taken over once its lease is over, and then settled by both.
                    let next = self.claims(store, &key, LONG_LEASE, WAIT)?;
                    self.settles(late)?;
                    next.map_or(Ok(()), |next| self.settles(next))?;
                }
            }
            78..83 => {
                if !self.held.is_empty() {
                    let at = self.random.below(self.held.len());
                    let mut claim = self.held.swap_remove(at);
                    if is_durable(&key_of(&claim)) {
                        self.checkpoints(&mut claim)?;
                    }
                    self.held.push(claim);
                }
            }
            83..90 => self.writes(store)?,
            90..94 => self.passes(store)?,
            94 => {
                self.say("sweeping");
                store.sweep(1000).map_err(|error| format!("sweeping: {error}"))?;
            }
            _ => {
                if !self.known.is_empty() {
                    let key = self.known[self.random.below(self.known.len())].clone();
                    if let Some(claim) = self.claims(store, &key, LONG_LEASE, NO_WAIT)? {
                        self.ends(claim)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a claim in one way or another, or goes on holding it.
    fn ends(&mut self, claim: Claim) -> Told {
        match self.random.below(10) {
            0..5 => self.settles(claim),
            5..7 => self.releases(claim),
            7..9 => {
                self.say(&format!("dropping {}", name(&claim)));
                drop(claim);
                Ok(())
            }
            _ => {
                self.held.push(claim);
                Ok(())
            }
        }
    }

    fn new_key(&mut self, kind: &str) -> String {
        self.made += 1;
        let key = format!("{kind}-{}-{}-{}", self.plan.round, self.thread, self.made);
        self.known.push(key.clone());
        key
    }

    /// Mostly small, up to the largest that a store takes.
    fn length(&mut self) -> usize {
        let (below, range) = if self.random.below(100) < self.plan.large {
            ([4 << 10, 64 << 10, 256 << 10], [60 << 10, 192 << 10, (768 << 10) - 8])
        } else {
            ([0, 64, 1_000], [64, 936, 3_096])
        };
        let class = [0, 0, 0, 1, 1, 2][self.random.below(6)];
        1 + below[class] + self.random.below(range[class])
    }

    pub fn say(&self, what: &str) {
        say(self.pipe, &format!("{} {what}", self.thread));
    }

    fn claims(
        &mut self,
        store: &Store,
        key: &str,
        lease: Duration,
        wait: Duration,
    ) -> Result<Option<Claim>, String> {
        let durability = if is_durable(key) { Durability::Full } else { Durability::Result };
        let request = Request::new(key).durability(durability).lease(lease).wait(wait);
        self.say(&format!("claims {key}"));
        match store.claim(request).map_err(|error| format!("claiming {key}: {error}"))? {
            Outcome::Granted(claim) => {
                let previous = claim.previous().map_or(0, |previous| previous.token.get());
                let lease = if lease == SHORT_LEASE { "short" } else { "long" };
                let checkpoint = claim.last_checkpoint().map_or("0".to_owned(), |bytes| stamp_of(bytes).0);
                let attempt = claim.attempt();
                self.say(&format!("granted {} {attempt} {previous} {lease} {checkpoint}", name(&claim)));
                Ok(Some(claim))
            }
            Outcome::Settled(settled) => {
                self.settled(key, &settled)?;
                Ok(None)
            }
            Outcome::InFlight(_) => {
                self.say(&format!("busy {key}"));
                Ok(None)
            }
            other => Err(format!("claiming {key}: {other:?}")),
        }
    }

    /// Reads a key; tells whether there was something.
    fn reads(&mut self, store: &Store, key: &str) -> Result<bool, String> {
        self.say(&format!("reads {key}"));
        let found = store.get(key).map_err(|error| format!("reading {key}: {error}"))?;
        match &found {
            Some(settled) => self.settled(key, settled)?,
            None => self.say(&format!("absent {key}")),
        }
        Ok(found.is_some())
    }

    fn settled(&self, key: &str, settled: &Settled) -> Told {
        let (stored, how) = match settled {
            Settled::Completed(stored) => (stored, "completed"),
            Settled::Failed(stored) => (stored, "failed"),
            Settled::Omitted(_) => return Err(format!("{key} is {settled:?}")),
        };
        let bytes = stored.bytes();
        // What went through serde has its length before it.
        let bytes = if how == "failed" || has_effect(key) { bytes.get(8..) } else { Some(bytes) };
        let (token, bytes) = (settled.about().token().get(), bytes.unwrap_or_default());
        let same = if bytes == blob(token, bytes.len()) { "same" } else { "other" };
        self.say(&format!("settled {key} {token} {} {how} {same}", bytes.len()));
        Ok(())
    }

    fn settles(&mut self, claim: Claim) -> Told {
        let length = self.length();
        let (key, token, name) = (key_of(&claim), claim.token().get(), name(&claim));
        let how = if self.random.below(10) == 0 { "failed" } else { "completed" };
        self.say(&format!("settling {name} {length} {how}"));
        let bytes = blob(token, length);
        let told = if how == "failed" {
            claim.fail(&Blob(bytes))
        } else if has_effect(&key) {
            let effect = stamped(token, length % 500);
            claim.complete_with(&Blob(bytes), Writes::new().put("effects", &key, effect))
        } else {
            claim.complete_bytes(bytes)
        };
        match told {
            Ok(()) => self.say(&format!("{how} {name} {length}")),
            Err(SettleError::Lost(_)) => self.say(&format!("lost {name}")),
            Err(error) => return Err(format!("settling {name}: {error}")),
        }
        Ok(())
    }

    fn releases(&mut self, claim: Claim) -> Told {
        let name = name(&claim);
        self.say(&format!("releasing {name}"));
        claim.release().map_err(|error| format!("releasing {name}: {error}"))?;
        self.say(&format!("released {name}"));
        Ok(())
    }

    fn checkpoints(&mut self, claim: &mut Claim) -> Told {
        let (name, stamp) = (name(claim), self.stamp());
        self.say(&format!("checkpointing {name} {stamp}"));
        let told = claim.checkpoint(stamped(stamp, self.random.below(500)));
        told.map_err(|error| format!("checkpointing {name}: {error}"))?;
        self.say(&format!("checkpointed {name} {stamp}"));
        Ok(())
    }

    /// A completion that is soon forgotten, for sweeps to find. Nobody is told of it.
    fn passes(&mut self, store: &Store) -> Told {
        self.made += 1;
        let key = format!("x-{}-{}-{}", self.plan.round, self.thread, self.made);
        let claimed = store.claim(Request::new(&key).retention(SHORT_RETENTION));
        match claimed.map_err(|error| format!("claiming {key}: {error}"))? {
            Outcome::Granted(claim) => {
                claim.complete_bytes([1]).map_err(|error| format!("settling {key}: {error}"))
            }
            other => Err(format!("claiming {key}: {other:?}")),
        }
    }

    /// Writes or deletes one of this thread's plain values.
    fn writes(&mut self, store: &Store) -> Told {
        let key = format!("v-{}-{}", self.thread, self.random.below(VALUES));
        let values = store.kv("values");
        if self.random.below(4) == 0 {
            self.say(&format!("deleting {key}"));
            values.delete(&key).map_err(|error| format!("deleting {key}: {error}"))?;
            self.say(&format!("deleted {key}"));
        } else {
            let (stamp, length) = (self.stamp(), self.length());
            self.say(&format!("putting {key} {stamp}"));
            let put = values.put(&key, stamped(stamp, length));
            put.map_err(|error| format!("putting {key}: {error}"))?;
            self.say(&format!("put {key} {stamp}"));
        }
        Ok(())
    }

    fn looks(&mut self, store: &Store, number: usize) -> Told {
        let key = format!("v-{}-{number}", self.thread);
        let found = store.kv("values").get(&key).map_err(|error| format!("reading {key}: {error}"))?;
        let (stamp, same) = found.map_or(("0".to_owned(), "same"), |bytes| stamp_of(&bytes));
        self.say(&format!("value {key} {stamp} {same}"));
        Ok(())
    }

    fn looks_at_effect(&mut self, store: &Store, key: &str) -> Told {
        let found =
            store.kv("effects").get(key).map_err(|error| format!("reading {key}'s effect: {error}"))?;
        let (token, same) = found.map_or(("0".to_owned(), "same"), |bytes| stamp_of(&bytes));
        self.say(&format!("effect {key} {token} {same}"));
        Ok(())
    }

    fn stamp(&mut self) -> u64 {
        self.random.next() | 1
    }
}

/// Bytes that carry their stamp.
fn stamped(stamp: u64, length: usize) -> Vec<u8> {
    [&stamp.to_le_bytes()[..], &blob(stamp, length)].concat()
}

/// The stamp of bytes, and whether the rest is as it was made.
fn stamp_of(bytes: &[u8]) -> (String, &'static str) {
    let Some((stamp, rest)) = bytes.split_first_chunk() else { return ("short".to_owned(), "other") };
    let stamp = u64::from_le_bytes(*stamp);
    (stamp.to_string(), if rest == blob(stamp, rest.len()) { "same" } else { "other" })
}

fn key_of(claim: &Claim) -> String {
    String::from_utf8_lossy(claim.key().name()).into_owned()
}

/// The key and the token of a claim.
fn name(claim: &Claim) -> String {
    format!("{} {}", key_of(claim), claim.token())
}
