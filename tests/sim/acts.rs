//! How an actor does what its program says, and tells the ledger.

use super::history::On;
use super::ledger::{Asked, Call};
use super::program::{Act, Ask, What};
use super::reference::{Op, Ret};
use super::world::World;
use super::{call, seconds, within};
use claimdb::{
    AllClaimed, Claim, ClaimError, Durability, Fault, Fingerprint, OnInterrupt, Outcome, Request, Settled,
    Store, WallTime,
};

/// The claims that an actor holds, the last one uppermost.
#[derive(Default)]
pub struct Hand(Vec<Held>);

pub struct Held {
    pub claim: Claim,
    pub key: u8,
    /// How often the power had been cut when it was granted. Nobody holds anything across that.
    pub power: u64,
}

impl Hand {
    pub fn is_holding(&self) -> bool {
        !self.0.is_empty()
    }

    /// What is kept, as the ledger names it.
    pub fn value_of(settled: &Settled) -> String {
        match settled {
            Settled::Completed(stored) => {
                format!("completed {}", stored.decode::<String>().expect("a string was stored"))
            }
            Settled::Failed(stored) => {
                format!("failed {}", stored.decode::<String>().expect("a string was stored"))
            }
            Settled::Omitted(_) => "omitted".to_owned(),
        }
    }
}

/// The seconds at which a clock that began with the world's shows `wall`.
pub fn in_seconds(wall: WallTime) -> u64 {
    const Y2025: u64 = 1_735_689_600;
    wall.unix_seconds().saturating_sub(Y2025)
}

fn request(ask: &Ask) -> Request {
    let on_interrupt = if ask.quarantine { OnInterrupt::Quarantine } else { OnInterrupt::Rerun };
    Request::new(ask.key.to_string())
        .fingerprint(Fingerprint::of_bytes([ask.work]))
        .durability(ask.durability)
        .wait(seconds(ask.wait))
        .lease(seconds(ask.lease))
        .retention(seconds(ask.retention))
        .on_interrupt(on_interrupt)
}

fn asked(ask: &Ask) -> Asked {
    let Ask { key, work, durability, lease, retention, .. } = *ask;
    let (stored, relaxed) = (durability == Durability::Full, durability == Durability::Relaxed);
    Asked { key, work, stored, relaxed, lease, retention }
}

/// Does one act.
pub async fn act(world: &World, task: bool, me: usize, step: usize, act: &Act, hand: &mut Hand) {
    match &act.what {
        What::Pass(time) => return world.pass(*time),
        What::PowerCut(keep) => return world.cut_power(*keep),
        What::Reopen(keep) => return world.reopen(*keep),
        What::Fault(call, goes) => {
            drop(world.store(|| world.storage.arm(*call, *goes)));
            return;
        }
        _ => {}
    }
    let (store, (opening, power)) = world.store(|| {
        let ledger = world.ledger();
        (ledger.opening, ledger.power)
    });
    // Outside the ledger: dropping them takes locks of the store's.
    let (kept, gone): (Vec<_>, Vec<_>) = hand.0.drain(..).partition(|held| held.power == power);
    hand.0 = kept;
    drop(gone);
    let doing = Doing { world, store, opening, power, task, polls: act.polls, value: format!("{me}.{step}") };
    match &act.what {
        What::Claim(ask) => doing.claim(ask, hand).await,
        What::ClaimAll(first, second) => doing.claim_all([first, second], hand).await,
        What::Get(key) => doing.get(*key),
        What::Remove(key) => doing.remove(*key, false).await,
        What::RemoveByForce(key) => doing.remove(*key, true).await,
        What::Resolve(key) => doing.resolve(*key).await,
        What::Sweep => drop(doing.store.sweep(10)),
        What::Sync => doing.sync().await,
        What::Put(value) => doing.put(*value, Some(format!("{me}.{step}"))).await,
        What::Delete(value) => doing.put(*value, None).await,
        What::Read(value) => doing.read(*value).await,
        What::Swap(value) => doing.swap(*value).await,
        of_a_claim => {
            let Some(held) = hand.0.pop() else { return };
            hand.0.extend(doing.with(held, of_a_claim).await);
        }
    }
}

pub struct Doing<'a> {
    pub world: &'a World,
    pub store: Store,
    /// Which opening the store is of, and how often the power had been cut then.
    pub opening: u64,
    pub power: u64,
    pub task: bool,
    pub polls: Option<u8>,
    pub value: String,
}

impl Doing<'_> {
    pub fn begin(&self, ops: Vec<(On, Op)>, wait: Option<u64>) -> Call {
        let failures = self.world.storage.failed();
        self.world.ledger().begin(ops, wait, failures, (self.opening, self.power))
    }

    /// It failed, so that it may have been done or not.
    pub fn failed(&self, call: &Call, fault: Option<&Fault>) {
        let mut ledger = self.world.ledger();
        if let (true, Some(Fault::Poisoned(_))) = (ledger.counts(call), fault) {
            ledger.told_poisoned(call);
        }
        ledger.end(call, Vec::new());
    }

    fn op(&self, ask: &Ask) -> (On, Op) {
        let until = self.world.ledger().low + ask.retention;
        let (stored, quarantine) = (ask.durability == Durability::Full, ask.quarantine);
        (On::Key(ask.key), Op::Claim { work: ask.work, stored, quarantine, by: u64::MAX, until })
    }

    async fn claim(&self, ask: &Ask, hand: &mut Hand) {
        let call = self.begin(vec![self.op(ask)], Some(ask.wait));
        let told = call!(
            self.task,
            self.polls,
            self.store.claim_async(request(ask)),
            self.store.claim(request(ask))
        );
        match told {
            None => self.failed(&call, None),
            Some(Ok(outcome)) => {
                let (ret, claim) = self.told(&call, ask, outcome);
                self.world.ledger().end(&call, vec![ret]);
                self.keep(&call, claim.map(|claim| (ask.key, claim)), hand);
            }
            Some(Err(ClaimError::Failed { fault, .. })) => self.failed(&call, Some(&fault)),
            Some(Err(other)) => panic!("a claim was told {other}"),
        }
    }

    /// Nothing else runs from the answer to the entry in the ledger.
    fn told(&self, call: &Call, ask: &Ask, outcome: Outcome) -> (Ret, Option<Claim>) {
        let mut ledger = self.world.ledger();
        if !ledger.counts(call) {
            return (Ret::Unclear, outcome.granted());
        }
        let key = ask.key;
        match outcome {
            Outcome::Granted(claim) => {
                let (token, previous) = (claim.token().get(), claim.previous());
                let previous = previous.map(|previous| previous.token.get());
                ledger.granted(call, asked(ask), token, previous, self.world.storage.failed());
                (Ret::Granted(token), Some(claim))
            }
            Outcome::Settled(settled) => {
                let (token, value) = (settled.about().token().get(), Hand::value_of(&settled));
                let until = in_seconds(settled.about().forgotten_at());
                ledger.told_settled(call, key, Some(ask.work), token, &value, until);
                (Ret::Settled(token, value), None)
            }
            Outcome::InFlight(_) => {
                ledger.told_in_flight(call, key);
                (Ret::InFlight, None)
            }
            Outcome::Mismatched(_) => (Ret::Mismatched, None),
            Outcome::Interrupted(case) => {
                ledger.told_interrupted(key, ask.work, case.token().get());
                (Ret::Interrupted(case.token().get()), None)
            }
        }
    }

    fn keep(&self, call: &Call, granted: impl IntoIterator<Item = (u8, Claim)>, hand: &mut Hand) {
        let power = call.power();
        hand.0.extend(granted.into_iter().map(|(key, claim)| Held { claim, key, power }));
    }

    async fn claim_all(&self, asks: [&Ask; 2], hand: &mut Hand) {
        let wait = asks.iter().map(|ask| ask.wait).max();
        let call = self.begin(asks.iter().map(|ask| self.op(ask)).collect(), wait);
        let told = call!(
            self.task,
            self.polls,
            self.store.claim_all_async(asks.map(request)),
            self.store.claim_all(asks.map(request))
        );
        match told {
            None => self.failed(&call, None),
            Some(Ok(AllClaimed::Granted(claims))) => {
                let mut granted = Vec::new();
                let mut rets = Vec::new();
                for (ask, claim) in asks.into_iter().zip(claims) {
                    let (ret, claim) = self.told(&call, ask, Outcome::Granted(claim));
                    rets.push(ret);
                    granted.extend(claim.map(|claim| (ask.key, claim)));
                }
                self.world.ledger().end(&call, rets);
                self.keep(&call, granted, hand);
            }
            Some(Ok(AllClaimed::Refused { index, outcome })) => {
                // Of the other key others may have been told meanwhile that it was in flight.
                let mut rets = vec![Ret::Unclear, Ret::Unclear];
                rets[index] = self.told(&call, asks[index], outcome).0;
                self.world.ledger().end(&call, rets);
            }
            Some(Err(ClaimError::Failed { fault, .. })) => self.failed(&call, Some(&fault)),
            Some(Err(other)) => panic!("a claim of several keys was told {other}"),
        }
    }
}
