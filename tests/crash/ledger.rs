//! What was told, and so what a store may answer from now on.
//!
//! For each key the ledger keeps the facts that may be stored. A write that is tried adds one; a write that is told
//! as durable leaves that one alone; a fault leaves it open which of them it is, until the store has told.

use claimdb::{Durability, Fingerprint, Kept, OnInterrupt, Request, Token, WallTime};
use std::collections::BTreeMap;
use std::time::Duration;

pub const SEC: Duration = Duration::from_secs(1);
pub const LEASE: Duration = Duration::from_secs(30);
/// The retention of keys whose name says "short".
pub const SHORT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3 * 86_400);

/// A key of the program, whose name says on what terms it is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub &'static str);

impl Name {
    pub fn durability(self) -> Durability {
        match self.0.as_bytes()[0] {
            b'r' => Durability::Result,
            b'x' => Durability::Relaxed,
            _ => Durability::Full,
        }
    }

    pub fn retention(self) -> Duration {
        if self.0.contains("short") { SHORT } else { LONG }
    }

    pub fn is_quarantined(self) -> bool {
        self.0.contains("quarantine")
    }

    pub fn cap(self) -> Option<u32> {
        self.0.contains("cap").then_some(2)
    }

    pub fn fingerprint(self) -> Option<Fingerprint> {
        (!self.0.contains("plain")).then(|| Fingerprint::of_bytes(self.0))
    }

    /// Keys with a slash are in the scope before it.
    pub fn key(self) -> claimdb::Key {
        match self.0.split_once('/') {
            Some((scope, name)) => claimdb::Key::scoped(scope, name).unwrap(),
            None => claimdb::Key::new(self.0).unwrap(),
        }
    }

    pub fn request(self) -> Request {
        let mut request = self.lax_request();
        if self.is_quarantined() {
            request = request.on_interrupt(OnInterrupt::Quarantine);
        }
        if let Some(cap) = self.cap() {
            request = request.max_attempts(cap);
        }
        request
    }

    /// Without what keeps it from being run again.
    pub fn lax_request(self) -> Request {
        let request = Request::new(self.key()).lease(LEASE).retention(self.retention());
        let request = request.durability(self.durability());
        match self.fingerprint() {
            Some(fingerprint) => request.fingerprint(fingerprint),
            None => request,
        }
    }

    /// The value that an effect of this key's completion is kept under.
    pub fn effect(self) -> Option<&'static str> {
        self.0.contains("effect").then_some(self.0)
    }
}

/// A claim, as its record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// `None` if nobody was told.
    pub token: Option<Token>,
    pub attempt: u32,
    /// Outer `None` if nobody was told.
    pub previous: Option<Option<Token>>,
    pub checkpoint: Option<Vec<u8>>,
    /// Stored in this opening and granted to nobody.
    pub never_granted: bool,
    pub at: WallTime,
}

/// What may be stored for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Absent,
    Pending(Claimed),
    Interrupted(Claimed),
    Settled { token: Option<Token>, result: Kept, at: WallTime },
}

/// What a claimant is to be told of a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    Grant { attempt: u32, previous: Option<Option<Token>>, checkpoint: Option<Vec<u8>> },
    Interrupted(Claimed),
    Settled { token: Option<Token>, result: Kept },
}

impl Fact {
    pub fn is_forgotten(&self, name: Name, now: WallTime) -> bool {
        matches!(self, Self::Settled { at, .. } if at.after(name.retention()) <= now)
    }

    /// What a claim with the key's own request is told.
    pub fn expected(&self, name: Name, now: WallTime) -> Expected {
        match self {
            fact if fact.is_forgotten(name, now) => Self::Absent.expected(name, now),
            Self::Absent => Expected::Grant { attempt: 1, previous: Some(None), checkpoint: None },
            Self::Pending(claimed) => {
                let (attempt, checkpoint) = (claimed.attempt, claimed.checkpoint.clone());
                if claimed.never_granted {
                    Expected::Grant { attempt, previous: claimed.previous, checkpoint }
                } else if name.is_quarantined() || name.cap().is_some_and(|cap| attempt >= cap) {
                    Expected::Interrupted(claimed.clone())
                } else {
                    let previous = claimed.token.map(Some);
                    Expected::Grant { attempt: attempt + 1, previous, checkpoint }
                }
            }
            Self::Interrupted(claimed) => Expected::Interrupted(claimed.clone()),
            Self::Settled { token, result, .. } => {
                Expected::Settled { token: *token, result: result.clone() }
            }
        }
    }

    /// What a claim may leave if its fate is not told.
    pub fn after_a_claim(&self, name: Name, now: WallTime) -> Option<Self> {
        match self.expected(name, now) {
            Expected::Grant { .. } if name.durability() != Durability::Full => None,
            Expected::Grant { attempt, previous, checkpoint } => Some(Self::Pending(Claimed {
                token: None,
                attempt,
                previous,
                checkpoint,
                never_granted: true,
                at: now,
            })),
            Expected::Interrupted(claimed) => Some(Self::Interrupted(claimed)),
            Expected::Settled { .. } => None,
        }
    }
}

/// Facts of which one is stored, the one that was written last at the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Possible<F> {
    facts: Vec<F>,
    /// Whether it is known in this opening that the last one is it. A power cut may still leave another.
    sure: bool,
}

impl<F: Clone + PartialEq> Possible<F> {
    pub fn certainly(fact: F) -> Self {
        Self { facts: vec![fact], sure: true }
    }

    /// What the open store may answer.
    pub fn now(&self) -> Vec<F> {
        let facts = if self.sure { &self.facts[self.facts.len() - 1..] } else { &self.facts[..] };
        facts.to_vec()
    }

    /// What is known to be durable.
    pub fn oldest(&self) -> &F {
        &self.facts[0]
    }

    /// A write begins that may leave `fact`.
    pub fn tried(&mut self, fact: F) {
        if self.facts.last() != Some(&fact) {
            self.facts.push(fact);
        }
        self.sure = false;
    }

    /// It is told that this is what is there; `durable` if a power cut leaves it.
    pub fn told(&mut self, fact: F, durable: bool) {
        if durable {
            self.facts.clear();
        }
        self.facts.retain(|other| *other != fact);
        self.facts.push(fact);
        self.sure = true;
    }

    /// It is told that what is there is one of `facts`, which only some show in all they have.
    pub fn seen(&mut self, mut facts: Vec<F>, durable: bool) {
        match facts.pop() {
            Some(fact) if facts.is_empty() => self.told(fact, durable),
            Some(fact) if durable => {
                facts.push(fact);
                (self.facts, self.sure) = (facts, false);
            }
            _ => {}
        }
    }

    /// A sync has ended that began after all writes had returned.
    pub fn synced(&mut self) {
        if self.sure {
            self.facts.drain(..self.facts.len() - 1);
        }
    }

    /// The opening has ended, by a crash unless everything was synced.
    pub fn ended(&mut self) {
        self.sure = self.facts.len() == 1;
    }

    fn change(&mut self, change: impl FnMut(&mut F)) {
        self.facts.iter_mut().for_each(change);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    pub keys: BTreeMap<Name, Possible<Fact>>,
    pub values: BTreeMap<&'static str, Possible<Option<Vec<u8>>>>,
    /// The greatest token that was told.
    pub highest: Token,
    /// How far the clock has been moved.
    pub elapsed: Duration,
    /// Whether nothing of this opening was told yet, so that whatever is amiss was amiss before.
    pub recovering: bool,
}

impl Ledger {
    pub fn new() -> Self {
        let (keys, values) = (BTreeMap::new(), BTreeMap::new());
        Self { keys, values, highest: Token::new(0), elapsed: Duration::ZERO, recovering: false }
    }

    pub fn key(&mut self, name: Name) -> &mut Possible<Fact> {
        self.keys.entry(name).or_insert_with(|| Possible::certainly(Fact::Absent))
    }

    pub fn value(&mut self, key: &'static str) -> &mut Possible<Option<Vec<u8>>> {
        self.values.entry(key).or_insert_with(|| Possible::certainly(None))
    }

    pub fn synced(&mut self) {
        self.keys.values_mut().for_each(Possible::synced);
        self.values.values_mut().for_each(Possible::synced);
    }

    /// The opening has ended: a claim that was stored and never granted counts as an attempt from now on.
    pub fn ended(&mut self) {
        for possible in self.keys.values_mut() {
            possible.ended();
            possible.change(|fact| {
                if let Fact::Pending(claimed) = fact {
                    claimed.never_granted = false;
                }
            });
        }
        self.values.values_mut().for_each(Possible::ended);
        self.recovering = true;
    }
}
