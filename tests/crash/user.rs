//! Somebody who uses a store as one should: tries again what comes back, opens again what went down, and compares
//! every answer with the ledger.

use super::faults::Faulty;
use super::ledger::{Claimed, Expected, Fact, LEASE, Ledger, Name};
use super::twins::{Broken, Watched};
use super::waiters::Waiter;
use claimdb::{
    Claim, ClaimError, Clock, Durability, Kept, ManualClock, Outcome, Request, Settled, Store, SyncBy, Token,
    WallTime,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The machine is down.
#[derive(Debug)]
pub struct Down;

pub type Step = Result<(), Down>;

/// Tries of one thing. One fault is played, and what it leaves behind may cost another try.
pub const TRIES: u32 = 3;

pub struct User {
    pub faulty: Faulty,
    pub clock: ManualClock,
    pub ledger: Ledger,
    pub(super) held: BTreeMap<Name, Held>,
    /// Claims that were lost, with their keys.
    pub(super) stale: Vec<(Name, Claim)>,
    /// In the order in which they came.
    pub(super) waiters: Vec<Waiter>,
    /// How many faults were played before this opening.
    played_before: usize,
    /// Whether a drive whose sync failed has lost what the sync was to cover.
    loses: bool,
    broken: Option<Broken>,
    store: Option<Store>,
}

pub struct Held {
    pub claim: Claim,
    /// Until when its lease runs, in time since the beginning.
    pub until: Duration,
}

pub fn unwound<T>(operation: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(operation)).ok()
}

impl User {
    /// Somebody who knows of `ledger`, and has opened nothing yet.
    pub fn new(faulty: Faulty, ledger: Ledger, broken: Option<Broken>, loses: bool) -> Self {
        let clock = ManualClock::new();
        clock.advance(ledger.elapsed);
        let (held, stale, waiters, store) = (BTreeMap::new(), Vec::new(), Vec::new(), None);
        Self { faulty, clock, ledger, held, stale, waiters, played_before: 0, loses, broken, store }
    }

    pub fn has_store(&self) -> bool {
        self.store.is_some()
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("the program opens it first")
    }

    pub fn call<T>(&self, operation: impl FnOnce(&Store) -> T) -> Option<T> {
        let store = self.store().clone();
        unwound(|| operation(&store))
    }

    pub fn advance(&mut self, span: Duration) {
        self.clock.advance(span);
        self.ledger.elapsed += span;
    }

    pub fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    pub fn open(&mut self) -> Step {
        for attempt in 1.. {
            let watched = Watched { faulty: self.faulty.clone(), broken: self.broken };
            let builder = Store::builder(watched).clock(self.clock.clone()).sync_by(SyncBy::Caller);
            let builder = builder.sweep_every(Duration::ZERO).lock_wait(Duration::ZERO);
            let opened = unwound(|| builder.open());
            if self.faulty.is_down() {
                return Err(Down);
            }
            if let Some(Ok(store)) = opened {
                self.store = Some(store);
                self.played_before = self.faulty.fired().len();
                break;
            }
            let played = attempt == 1 && !self.faulty.fired().is_empty();
            assert!(played, "P6 never stuck: the store does not open: {opened:?}");
        }
        Ok(())
    }

    /// Closes the store, and fences what was claimed from it.
    pub fn close(&mut self) -> Step {
        let held = std::mem::take(&mut self.held);
        self.stale.extend(held.into_iter().map(|(name, held)| (name, held.claim)));
        let told = self.call(Store::close);
        self.waiters_are_sent_away();
        self.store = None;
        let closed = matches!(told, Some(Ok(())));
        if closed {
            self.ledger.synced();
        } else if self.loses {
            self.faulty.crash();
        }
        self.ledger.ended();
        if self.faulty.is_down() { Err(Down) } else { Ok(()) }
    }

    /// The power is cut, and nothing survives that was not synced.
    pub fn cut(&mut self) -> Step {
        self.held.clear();
        self.stale.clear();
        self.waiters.clear();
        self.faulty.crash();
        self.store = None;
        self.ledger.ended();
        self.open()
    }

    /// What follows each call: goes on, unless the machine is down; a store that refuses writes is opened again.
    pub fn after(&mut self) -> Step {
        if self.faulty.is_down() {
            return Err(Down);
        }
        let fired = self.faulty.fired();
        if fired == ["sync"] && fired.len() > self.played_before {
            self.refuses()?;
            self.close()?;
            self.open()?;
            self.look_at_all()?;
        }
        Ok(())
    }

    /// After a failed sync nothing is written, and nothing told that no finished sync covers.
    fn refuses(&mut self) -> Step {
        self.waiters_are_refused();
        let claimed = self.call(|store| store.claim("poisoned"));
        assert!(matches!(claimed, Some(Err(_))), "P9 fail closed: claimed after a failed sync: {claimed:?}");
        let put = self.call(|store| store.kv("v").put("poisoned", ""));
        assert!(matches!(put, Some(Err(_))), "P9 fail closed: written after a failed sync");
        let now = self.wall();
        for (name, possible) in &self.ledger.keys {
            let Some(Ok(told)) = self.call(|store| store.get(name.key())) else { continue };
            let covered = match possible.oldest().expected(*name, now) {
                Expected::Settled { result, .. } => Some(result),
                _ => None,
            };
            let told = told.map(kept);
            assert!(told == covered, "P9 fail closed: {name:?} is told after a failed sync: {told:?}");
        }
        for (key, possible) in &self.ledger.values {
            let Some(Ok(told)) = self.call(|store| store.kv("v").get(key)) else { continue };
            assert!(
                told == *possible.oldest(),
                "P9 fail closed: {key} is told after a failed sync: {told:?}"
            );
        }
        Ok(())
    }

    /// Whether a claim has the key whose lease has not run out.
    pub fn is_live(&self, name: Name) -> bool {
        self.held.get(&name).is_some_and(|held| self.ledger.elapsed < held.until)
    }

    pub fn claim(&mut self, name: Name) -> Step {
        self.claim_by(name, &name.request())
    }

    /// Claims on terms that would have it run again whatever happens: those of the record hold as well (rule 18).
    pub fn claim_on_lax_terms(&mut self, name: Name) -> Step {
        self.claim_by(name, &name.lax_request())
    }

    fn claim_by(&mut self, name: Name, request: &Request) -> Step {
        for _ in 0..TRIES {
            let asked = self.ask(&[name]);
            let told = self.call(|store| store.claim(request.clone()));
            match told {
                Some(Ok(outcome)) => {
                    self.told(name, outcome, &asked);
                    return self.after();
                }
                Some(Err(error)) => self.check_error(&error),
                None => {}
            }
            self.after()?;
        }
        panic!("P6 never stuck: {name:?} is not claimed");
    }

    pub fn claim_many(&mut self, names: &[Name]) -> Step {
        let asked = self.ask(names);
        let told = self.call(|store| store.claim_many(names.iter().map(|name| name.request())));
        let answers = told.unwrap_or_default();
        let failed = answers.len() < names.len() || answers.iter().any(Result::is_err);
        for (name, told) in names.iter().zip(answers) {
            match told {
                Ok(outcome) => self.told(*name, outcome, &asked),
                Err(error) => self.check_error(&error),
            }
        }
        self.after()?;
        for name in names.iter().filter(|_| failed) {
            if !self.held.contains_key(name) {
                self.claim(*name)?;
            }
        }
        Ok(())
    }

    pub fn claim_all(&mut self, names: &[Name]) -> Step {
        use claimdb::AllClaimed::{Granted, Refused};
        for _ in 0..TRIES {
            let asked = self.ask(names);
            let told = self.call(|store| store.claim_all(names.iter().map(|name| name.request())));
            match told {
                Some(Ok(Granted(claims))) => {
                    assert_eq!(claims.len(), names.len(), "rule 24: not all were granted");
                    for (name, claim) in names.iter().zip(claims) {
                        self.told(*name, Outcome::Granted(claim), &asked);
                    }
                    return self.after();
                }
                Some(Ok(Refused { index, outcome })) => {
                    for (name, before) in asked.before {
                        *self.ledger.key(name) = before;
                    }
                    assert!(outcome.granted().is_none(), "rule 24: {index} was granted, and not all");
                    return self.after();
                }
                Some(Err(error)) => self.check_error(&error),
                None => {}
            }
            self.after()?;
        }
        panic!("P6 never stuck: {names:?} are not claimed");
    }

    pub(super) fn check_error(&self, error: &ClaimError) {
        let played = !self.faulty.fired().is_empty();
        assert!(played, "P6 never stuck: nothing went wrong, and a claim is told {error}");
    }

    /// Writes down what claims of `names` may leave, whatever becomes of them.
    pub(super) fn ask(&mut self, names: &[Name]) -> Asked {
        let now = self.wall();
        let mut before = BTreeMap::new();
        for &name in names {
            let live = self.is_live(name);
            let possible = self.ledger.key(name);
            before.insert(name, possible.clone());
            let left = possible.now().into_iter().filter(|_| !live);
            for fact in left.filter_map(|fact| fact.after_a_claim(name, now)).collect::<Vec<_>>() {
                possible.tried(fact);
            }
        }
        Asked { floor: self.ledger.highest, before }
    }

    /// Compares what a claim was told with what it may be told.
    pub(super) fn told(&mut self, name: Name, outcome: Outcome, asked: &Asked) {
        *self.ledger.key(name) = asked.before[&name].clone();
        let (now, live) = (self.wall(), self.is_live(name));
        let facts = self.ledger.key(name).now();
        let fits = |fits: &dyn Fn(&Expected) -> bool| {
            facts.iter().rev().find(|fact| fits(&fact.expected(name, now))).cloned()
        };
        match outcome {
            Outcome::Granted(claim) => {
                assert!(!live, "P5 no early takeover: {name:?} is granted twice");
                let token = claim.token();
                assert!(
                    token > asked.floor,
                    "P2 ordered tokens: {name:?} is granted to {token} after {}",
                    asked.floor
                );
                let claimed = Claimed {
                    token: Some(token),
                    attempt: claim.attempt(),
                    previous: Some(claim.previous().map(|previous| previous.token)),
                    checkpoint: claim.last_checkpoint().map(<[u8]>::to_vec),
                    never_granted: false,
                    at: now,
                };
                let full = name.durability() == Durability::Full;
                let fact = fits(&|expected| match expected {
                    Expected::Grant { attempt, previous, checkpoint } => {
                        let same = *attempt == claimed.attempt
                            && previous.is_none_or(|previous| Some(previous) == claimed.previous)
                            && *checkpoint == claimed.checkpoint;
                        same || !full
                    }
                    _ => false,
                });
                let Some(fact) = fact else { self.lost(name, &format!("is granted as {claimed:?}")) };
                self.ledger.highest = self.ledger.highest.max(token);
                let until = self.ledger.elapsed + LEASE;
                if let Some(old) = self.held.insert(name, Held { claim, until }) {
                    self.stale.push((name, old.claim));
                }
                let fact = if full { Fact::Pending(claimed) } else { fact };
                self.tell(name, fact, full);
            }
            Outcome::Settled(settled) => {
                let (token, result) = (settled.about().token(), kept(settled));
                let fact = fits(&|expected| match expected {
                    Expected::Settled { token: by, result: stored } => {
                        by.is_none_or(|by| by == token) && *stored == result
                    }
                    _ => false,
                });
                let Some(fact) = fact else { self.lost(name, &format!("is settled by {token}")) };
                self.observe(name, vec![fact], Some(token));
            }
            Outcome::Interrupted(case) => {
                let fact = fits(&|expected| match expected {
                    Expected::Interrupted(claimed) => {
                        claimed.token.is_none_or(|token| token == case.token())
                            && claimed.attempt == case.attempt()
                            && claimed.checkpoint.as_deref() == case.checkpoint()
                    }
                    _ => false,
                });
                let Some(fact) = fact else { self.lost(name, &format!("is interrupted: {case:?}")) };
                let (Fact::Pending(claimed) | Fact::Interrupted(claimed)) = fact else { unreachable!() };
                let claimed = Claimed { token: Some(case.token()), ..claimed };
                self.tell(name, Fact::Interrupted(claimed), true);
            }
            Outcome::InFlight(_) => {
                assert!(live, "P6 never stuck: {name:?} is in flight, and nobody has it");
            }
            Outcome::Mismatched(_) => panic!("P7 mismatch is harmless: {name:?} has lost its fingerprint"),
        }
    }

    /// It was told that `fact` is what is stored for the key.
    pub fn tell(&mut self, name: Name, fact: Fact, durable: bool) {
        self.ledger.key(name).told(fact, durable);
        if durable {
            self.ledger.synced();
        }
    }

    /// Somebody was told of what is stored, which can be any of `facts`.
    pub fn observe(&mut self, name: Name, mut facts: Vec<Fact>, seen: Option<Token>) {
        let relaxed = name.durability() == Durability::Relaxed;
        let settled = facts.iter().any(|fact| matches!(fact, Fact::Settled { .. }));
        let durable = self.ledger.recovering || (settled && !relaxed);
        for fact in &mut facts {
            match fact {
                Fact::Pending(claimed) | Fact::Interrupted(claimed) => claimed.token = claimed.token.or(seen),
                Fact::Settled { token, .. } => *token = token.or(seen),
                Fact::Absent => {}
            }
        }
        self.ledger.key(name).seen(facts, durable);
    }

    /// What was told is not there.
    pub fn lost(&mut self, name: Name, found: &str) -> ! {
        let (now, recovering) = (self.wall(), self.ledger.recovering);
        let facts = self.ledger.key(name).now();
        let settled = |fact: &Fact| matches!(fact.expected(name, now), Expected::Settled { .. });
        let promise = match facts.iter().any(settled) {
            _ if recovering => "P4 durable before told",
            true => "P8 remembered",
            false => "rule 18: attempts are exact",
        };
        panic!("{promise}: {name:?} {found}, and was told as {facts:?}");
    }
}

pub struct Asked {
    /// The greatest token that was told when this was asked.
    floor: Token,
    before: BTreeMap<Name, super::ledger::Possible<Fact>>,
}

pub fn kept(settled: Settled) -> Kept {
    match settled {
        Settled::Completed(stored) => Kept::Completed(stored.into_bytes()),
        Settled::Failed(stored) => Kept::Failed(stored.into_bytes()),
        Settled::Omitted(omitted) => Kept::Omitted(omitted.reason()),
    }
}
