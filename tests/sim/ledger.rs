//! What was told to whom, judged at once by the promises; and the history of each key, judged at the end.
//!
//! Nothing here lets others run, so each entry is made at one moment. Times are bounds: `low` is what the clock shows
//! at least, `high` at most.

mod promises;

use super::history::{self, Event, On};
use super::reference::{Op, Ret};
use std::collections::BTreeMap;

/// What is certain of a settled key: who was told what.
#[derive(Debug, Clone)]
pub struct Fact {
    pub token: u64,
    pub value: String,
    /// Until when it is remembered at least.
    until: u64,
    relaxed: bool,
    after_failed_sync: bool,
}

/// What is certain of a durable claim.
#[derive(Debug, Clone, Copy)]
pub struct Stored {
    pub token: u64,
    until: u64,
    after_fault: bool,
}

#[derive(Debug, Default)]
struct KeyFacts {
    settled: Option<Fact>,
    stored: Option<Stored>,
    /// The claims that may have replaced the record and told nobody, by their calls: it is swept on their terms then.
    untold: BTreeMap<usize, u64>,
    /// The greatest token that was told.
    last_token: u64,
    /// When a removal or the like began or ended last, and how many are under way.
    loosened: u64,
    loosening: u32,
    /// When a call or a hold ended last.
    quiet_since: u64,
    /// Whether a call was cut off in this opening that may have put a mark, which may stand.
    unclear: bool,
    pub interrupted: Option<u64>,
}

/// A claim that was granted.
#[derive(Debug, Clone)]
struct Grant {
    key: u8,
    work: u8,
    relaxed: bool,
    opening: u64,
    retention: u64,
    /// Its lease ends in between.
    sure_end: u64,
    may_end: u64,
    held: bool,
    /// Whether nobody has begun to fence it.
    sure: bool,
    told: u64,
    tried: Vec<Tried>,
}

/// A value that a claim tried to settle with.
#[derive(Debug, Clone)]
struct Tried {
    value: String,
    /// From when on it is remembered at the soonest: a second try confirms what the first has stored.
    since: u64,
    /// Whether it may have landed.
    may: bool,
    /// When the claim came back from it, which leaves open whether it has landed.
    back: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Call {
    pub number: usize,
    begun: u64,
    low: u64,
    opening: u64,
    power: u64,
    greatest_token: u64,
    failures: u64,
    /// The keys that it waits for, and for how long.
    keys: Vec<u8>,
    wait: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Ledger {
    now: u64,
    pub low: u64,
    pub high: u64,
    pub opening: u64,
    /// How often the power was cut.
    pub power: u64,
    greatest_token: u64,
    keys: BTreeMap<u8, KeyFacts>,
    grants: BTreeMap<u64, Grant>,
    /// The calls under way, by number, and when all others stood still with it under way for the first time.
    calls: BTreeMap<usize, (Call, Option<u64>)>,
    pub events: Vec<Event>,
    sync_failed: bool,
    poison_told: Option<u64>,
}

/// What a claim asked for, as far as it is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub key: u8,
    pub work: u8,
    pub stored: bool,
    pub relaxed: bool,
    pub lease: u64,
    pub retention: u64,
}

impl Ledger {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn key(&mut self, key: u8) -> &mut KeyFacts {
        self.keys.entry(key).or_default()
    }

    /// A call begins. `ops` is what it is to each key that it is about, `of` the opening of the store that it goes
    /// to, and how often the power had been cut then.
    pub fn begin(&mut self, ops: Vec<(On, Op)>, wait: Option<u64>, failures: u64, of: (u64, u64)) -> Call {
        let begun = self.tick();
        let number = begun as usize;
        let keys = ops.iter().filter_map(|(on, _)| if let On::Key(key) = on { Some(*key) } else { None });
        let keys: Vec<u8> = keys.collect();
        for (on, op) in ops {
            if let (On::Key(key), Op::Remove { .. } | Op::Resolve { .. } | Op::Release { .. }) = (on, &op) {
                let facts = self.key(key);
                facts.loosening += 1;
                facts.stored = None;
                if !matches!(op, Op::Release { .. }) {
                    facts.settled = None;
                }
            }
            if let (On::Key(key), Op::Claim { until, .. }) = (on, &op) {
                let until = *until;
                self.key(key).untold.insert(number, until);
            }
            self.events.push(Event { call: number, on, op, begun, ended: None });
        }
        let call = Call {
            number,
            begun,
            low: self.low,
            opening: of.0,
            power: of.1,
            greatest_token: self.greatest_token,
            failures,
            keys,
            wait,
        };
        self.calls.insert(number, (call.clone(), None));
        call
    }

    /// Whether what is told now counts: what is told after a power cut is told to nobody.
    pub fn counts(&self, call: &Call) -> bool {
        call.power == self.power
    }

    /// A call has ended with one answer for each of its keys.
    pub fn end(&mut self, call: &Call, rets: Vec<Ret>) {
        let ended = self.tick();
        self.calls.remove(&call.number);
        if !self.counts(call) {
            return;
        }
        let high = self.high;
        let mut rets = rets.into_iter();
        for at in 0..self.events.len() {
            if self.events[at].call != call.number {
                continue;
            }
            let mut ret = rets.next().unwrap_or(Ret::Unclear);
            if ret == Ret::Mismatched && self.is_beside_other_work(at) {
                // The other was on its way, and may come to nothing (rule 16).
                ret = Ret::InFlight;
            }
            if ret == Ret::Nothing && self.is_read_beside_a_write(at) {
                // A key that is being written is told to have nothing, and may have something again.
                ret = Ret::InFlight;
            }
            let event = &mut self.events[at];
            let (on, op, unclear) = (event.on, event.op.clone(), ret == Ret::Unclear);
            if !unclear {
                event.answered_by(high);
                event.ended = Some((ended, ret));
            }
            let On::Key(key) = on else { continue };
            let opening = self.opening;
            let facts = self.key(key);
            facts.quiet_since = ended;
            match op {
                Op::Remove { .. } | Op::Resolve { .. } | Op::Release { .. } => {
                    facts.loosening -= 1;
                    facts.loosened = ended;
                    facts.unclear |= unclear && opening == call.opening;
                }
                Op::Settle { .. } => facts.unclear |= unclear && opening == call.opening,
                Op::Claim { .. } => {
                    facts.unclear |= unclear && opening == call.opening;
                    if !unclear {
                        facts.untold.remove(&call.number);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether claims for other work were under way at the same time as this one, or the mark of a write that failed may
    /// stand until the next sync.
    fn is_beside_other_work(&self, at: usize) -> bool {
        let Event { on, op: Op::Claim { work, .. }, begun, .. } = &self.events[at] else { return false };
        if let On::Key(key) = on
            && self.keys.get(key).is_some_and(|facts| facts.unclear)
        {
            return true;
        }
        self.events.iter().any(|other| {
            let since = other.ended.as_ref().is_none_or(|(ended, _)| ended >= begun);
            other.on == *on && since && matches!(&other.op, Op::Claim { work: of, .. } if of != work)
        })
    }

    /// Whether this is a read, and something else was done to the key at the same time.
    fn is_read_beside_a_write(&self, at: usize) -> bool {
        let Event { on, op: Op::Get { .. }, begun, .. } = &self.events[at] else { return false };
        self.events.iter().any(|other| {
            let since = other.ended.as_ref().is_none_or(|(ended, _)| ended >= begun);
            other.on == *on && since && !matches!(other.op, Op::Get { .. } | Op::PowerCut | Op::Reopen)
        })
    }

    /// The power was cut, or else the store was closed; the next opening begins. `lossy` says whether what was not
    /// synced may be gone.
    pub fn ended(&mut self, lossy: bool) {
        let now = self.tick();
        let op = if lossy { Op::PowerCut } else { Op::Reopen };
        for on in On::all() {
            let ended = Some((now, Ret::Done));
            self.events.push(Event { call: now as usize, on, op: op.clone(), begun: now, ended });
        }
        self.opening += 1;
        self.power += u64::from(lossy);
        self.grants.values_mut().for_each(|grant| grant.held = false);
        for facts in self.keys.values_mut() {
            facts.unclear = false;
            facts.quiet_since = now;
            if lossy {
                facts.loosening = 0;
                facts.loosened = now;
                facts.settled.take_if(|fact| fact.relaxed);
            }
        }
        (self.sync_failed, self.poison_told) = (false, None);
    }

    /// Notes whether a sync has failed in this opening.
    pub fn note(&mut self, sync_failed: bool) {
        self.sync_failed |= sync_failed;
    }

    /// Whether the claim with this token is of the opening that the call goes to; else an old store answers.
    pub fn is_of(&self, call: &Call, token: u64) -> bool {
        self.grants.get(&token).is_some_and(|grant| grant.opening == call.opening)
    }

    /// Somebody was told that the store is poisoned.
    pub fn told_poisoned(&mut self, call: &Call) {
        if call.opening == self.opening {
            let now = self.tick();
            self.poison_told.get_or_insert(now);
        }
    }

    fn what(&self, call: &Call) -> Vec<&Event> {
        self.events.iter().filter(|event| event.call == call.number).collect()
    }

    /// All that was done to the key, for messages.
    pub fn history(&self, key: u8) -> String {
        history::lines(self.events.iter().filter(|event| event.on == On::Key(key)))
    }

    /// What has to be there after an opening.
    pub fn facts(&self) -> Vec<(u8, Option<Fact>, Option<Stored>)> {
        let high = self.high;
        let facts = |(key, facts): (&u8, &KeyFacts)| {
            let settled = facts.settled.clone().filter(|fact| high < fact.until);
            let swept = facts.untold.values().any(|until| high >= *until);
            (*key, settled, facts.stored.filter(|stored| high < stored.until && !swept))
        };
        self.keys.iter().map(facts).collect()
    }

    /// Whether that is so yet.
    pub fn is_certain(&self, key: u8, token: u64) -> bool {
        self.facts().into_iter().any(|(of, settled, stored)| {
            let settled = settled.is_some_and(|fact| fact.token == token);
            of == key && (settled || stored.is_some_and(|stored| stored.token == token))
        })
    }

    /// How many calls there were.
    pub fn calls(&self) -> usize {
        self.events.len()
    }
}

impl Call {
    pub fn power(&self) -> u64 {
        self.power
    }
}

impl Fact {
    /// By what it would be known to be gone.
    pub fn promise(&self) -> &'static str {
        if self.after_failed_sync {
            "P9 fail closed: told after a failed sync"
        } else if self.relaxed {
            "P8 remembered: told before a clean close"
        } else {
            "P4 durable before told"
        }
    }
}

impl Stored {
    pub fn promise(&self) -> &'static str {
        if self.after_fault {
            "P9 fail closed: granted after an error of storage"
        } else {
            "P4 durable before told"
        }
    }
}
