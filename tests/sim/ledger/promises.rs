//! The promises, each asked where something is told that could break it.

use super::{Asked, Call, Fact, Grant, Ledger, Stored, Tried};

impl Grant {
    /// When it tried first to settle with this, of the tries that may have landed.
    fn remembered_since(&self, value: &str) -> Option<u64> {
        self.tried.iter().find(|tried| tried.value == value && tried.may).map(|tried| tried.since)
    }

    /// Whether a try to settle with this may have landed, and its claim had come back by then.
    fn may_have_landed_by(&self, value: &str, then: u64) -> bool {
        let by_then = |tried: &Tried| tried.back.is_some_and(|back| back < then);
        self.tried.iter().any(|tried| tried.value == value && tried.may && by_then(tried))
    }
}

impl Ledger {
    /// A write was told, or something new granted, though the store had been told to be poisoned before.
    pub fn writes(&self, call: &Call, what: &str) {
        let told = self.poison_told.filter(|_| call.opening == self.opening);
        assert!(
            told.is_none_or(|told| call.begun < told),
            "P9 fail closed: {what} after a failed sync, of which this opening had told before"
        );
    }

    pub fn granted(&mut self, call: &Call, asked: Asked, token: u64, previous: Option<u64>, failures: u64) {
        self.writes(call, "a claim was granted");
        let Asked { key, work, .. } = asked;
        let told = format!("key {key} was granted to token {token}");
        assert!(
            token > call.greatest_token,
            "P2 ordered tokens: {told}; {} was told before this was asked for",
            call.greatest_token
        );
        let high = self.high;
        for (other, grant) in self.grants.range(..token) {
            assert!(
                !(grant.key == key && grant.held && grant.sure && high < grant.sure_end),
                "P1 one holder, P5 no early takeover: {told} while token {other} has it until {} s, and it is {high} s",
                grant.sure_end
            );
        }
        if let Some(previous) = previous.and_then(|previous| self.grants.get(&previous)) {
            assert!(previous.work == work, "P7 mismatch is harmless: {told}, over a claim for other work");
        }
        if let Some(fact) = self.key(key).settled.as_ref().filter(|fact| fact.token < token) {
            let before =
                format!("token {} settled it as {:?} until {} s", fact.token, fact.value, fact.until);
            assert!(high >= fact.until, "P8 remembered: {told}; {before}, and it is {high} s");
        }
        let (low, until) = (self.low, call.low + asked.retention);
        let after_fault = failures > call.failures;
        let under_way: Vec<usize> = self.calls.keys().copied().collect();
        let facts = self.key(key);
        // Another was granted it before this one heard of its own grant: then its time is over.
        let late = token < facts.last_token;
        let sure = facts.loosening == 0 && facts.loosened < call.begun;
        if !late {
            facts.last_token = token;
            facts.settled = None;
            facts.stored = (asked.stored && sure).then_some(Stored { token, until, after_fault });
            // Those that have ended wrote before this one did.
            facts.untold.retain(|number, _| under_way.contains(number));
        }
        self.greatest_token = self.greatest_token.max(token);
        let grant = Grant {
            key,
            work,
            relaxed: asked.relaxed,
            opening: call.opening,
            retention: asked.retention,
            sure_end: call.low + asked.lease,
            may_end: high.max(low) + asked.lease,
            held: call.opening == self.opening && !late,
            sure,
            told: self.now,
            tried: Vec::new(),
        };
        self.grants.insert(token, grant);
    }

    /// Somebody with other work, or the same, was told of what this token did.
    fn told_of(&self, told: &str, token: u64, work: Option<u8>) {
        if let (Some(grant), Some(work)) = (self.grants.get(&token), work) {
            let same = grant.work == work;
            assert!(same, "P7 mismatch is harmless: a claim for other work was told {told} of token {token}");
        }
    }

    /// Somebody was told that the key is settled.
    pub fn told_settled(
        &mut self,
        call: &Call,
        key: u8,
        work: Option<u8>,
        token: u64,
        value: &str,
        until: u64,
    ) {
        self.told_of("the result", token, work);
        let Some(grant) = self.grants.get(&token) else {
            panic!(
                "P8 remembered: key {key} was told to be settled by token {token}, which nobody was granted"
            )
        };
        assert!(
            grant.tried.iter().any(|tried| tried.value == value && tried.may),
            "P3 fenced: {value:?} of token {token} is told of key {key}, and was never tried or was refused"
        );
        let relaxed = grant.relaxed;
        self.remember(call, key, token, value, until, relaxed);
    }

    pub fn told_interrupted(&mut self, key: u8, work: u8, token: u64) {
        self.told_of("of an interruption", token, Some(work));
        self.key(key).interrupted = Some(token);
    }

    pub fn interrupted(&mut self, key: u8) -> Option<u64> {
        self.key(key).interrupted
    }

    /// A settle begins: from now on the key may be another's.
    pub fn settling(&mut self, token: u64, value: Option<&str>) -> (u64, bool) {
        self.let_go(token);
        let low = self.low;
        let Some(grant) = self.grants.get_mut(&token) else { return (0, false) };
        if let Some(value) = value {
            grant.tried.push(Tried { value: value.to_owned(), since: low, may: true, back: None });
        }
        let since = value.and_then(|value| grant.remembered_since(value)).unwrap_or(low);
        (since + grant.retention, grant.relaxed)
    }

    /// A claim ends, or is no longer certain to be held.
    pub fn let_go(&mut self, token: u64) {
        let now = self.tick();
        let Some(grant) = self.grants.get_mut(&token) else { return };
        grant.held = false;
        let key = grant.key;
        self.key(key).quiet_since = now;
    }

    /// Somebody begins to fence whoever has the key.
    pub fn fence(&mut self, key: u8) {
        self.grants.values_mut().filter(|grant| grant.key == key).for_each(|grant| grant.sure = false);
    }

    /// It came back and has its lease yet.
    pub fn still_held(&mut self, call: &Call, token: u64) {
        let current = call.opening == self.opening;
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.held = current && grant.opening == call.opening;
        }
    }

    /// A renewal, a release or a checkpoint was told as done.
    pub fn done_by(&mut self, call: &Call, what: &str, token: u64) {
        if what != "renewed" && what != "released" {
            self.writes(call, what);
        }
        self.is_fenced(call, what, token, None);
    }

    /// A settle was told as done. Whether it may have changed anything: what an earlier try has stored is confirmed, also
    /// when it is no longer remembered and another was granted the key in memory meanwhile.
    pub fn settled(&mut self, call: &Call, token: u64, value: &str) -> bool {
        self.writes(call, "settled");
        let confirmed = self.is_fenced(call, "settled", token, Some(value));
        let Some(grant) = self.grants.get(&token).cloned() else { return true };
        let high = self.high;
        if let Some(fact) = &self.key(grant.key).settled {
            assert!(
                fact.token >= token || high >= fact.until,
                "P8 remembered: token {token} settled key {}, which token {} had settled",
                grant.key,
                fact.token
            );
        }
        let since = grant.remembered_since(value).unwrap_or(call.low);
        self.remember(call, grant.key, token, value, since + grant.retention, grant.relaxed);
        !confirmed
    }

    /// Panics if a token did something in a later opening than its own, or after another was granted its key. Unless that
    /// was a settle of which an earlier try may have landed before: whether it was.
    fn is_fenced(&self, call: &Call, what: &str, token: u64, value: Option<&str>) -> bool {
        let Some(grant) = self.grants.get(&token) else { return false };
        assert!(
            grant.opening == call.opening,
            "P3 fenced: token {token} {what} key {}, and its opening had ended",
            grant.key
        );
        let newer = self
            .grants
            .iter()
            .find(|(other, newer)| **other > token && newer.key == grant.key && newer.told < call.begun);
        let Some((newer, Grant { told, .. })) = newer else { return false };
        assert!(
            value.is_some_and(|value| grant.may_have_landed_by(value, *told)),
            "P3 fenced: token {token} {what} key {}, after {newer} was granted it",
            grant.key
        );
        true
    }

    /// A settle came back, and may have landed.
    pub fn came_back(&mut self, token: u64, value: &str) {
        let now = self.tick();
        if let Some(tried) = self.last_try(token, value) {
            tried.back = Some(now);
        }
    }

    /// A settle was refused for good.
    pub fn refused(&mut self, token: u64, value: &str) {
        if let Some(tried) = self.last_try(token, value) {
            tried.may = false;
        }
    }

    fn last_try(&mut self, token: u64, value: &str) -> Option<&mut Tried> {
        self.grants.get_mut(&token)?.tried.iter_mut().rev().find(|tried| tried.value == value)
    }

    /// A lease is about to be made shorter or longer.
    pub fn renewing(&mut self, token: u64, lease: u64) {
        let low = self.low;
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.sure_end = grant.sure_end.min(low + lease);
        }
    }

    pub fn renewed(&mut self, call: &Call, token: u64, lease: u64) {
        self.done_by(call, "renewed", token);
        let (low, high) = (call.low, self.high);
        if let Some(grant) = self.grants.get_mut(&token) {
            (grant.sure_end, grant.may_end) = (low + lease, high + lease);
        }
    }

    fn remember(&mut self, call: &Call, key: u8, token: u64, value: &str, until: u64, relaxed: bool) {
        let after_failed_sync = self.sync_failed;
        let facts = self.key(key);
        if facts.loosening == 0 && facts.loosened < call.begun && token >= facts.last_token {
            let value = value.to_owned();
            facts.settled = Some(Fact { token, value, until, relaxed, after_failed_sync });
            facts.stored = None;
        }
    }

    /// A claim was told *in flight*: somebody has to have had the key meanwhile.
    pub fn told_in_flight(&mut self, call: &Call, key: u8) {
        let others =
            self.calls.values().any(|(other, _)| other.number != call.number && other.keys.contains(&key));
        let held =
            self.grants.values().any(|grant| grant.key == key && grant.held && grant.may_end > call.low);
        let failed = self.sync_failed || call.opening != self.opening;
        let facts = self.key(key);
        let excused = others || held || failed || facts.unclear || facts.quiet_since >= call.begun;
        let history = if excused { String::new() } else { self.history(key) };
        assert!(excused, "P6 never stuck: key {key} was told to be in flight, and nobody has it:{history}");
    }

    /// Nothing can run until the clock moves: whoever waits has to wait for somebody.
    pub fn stands_still(&mut self) {
        let (low, high) = (self.low, self.high);
        let mut calls = std::mem::take(&mut self.calls);
        for (call, since) in calls.values_mut() {
            let since = *since.get_or_insert(high);
            let Some(wait) = call.wait else {
                panic!("P6 never stuck: {:?} waits, and nothing runs", self.what(call));
            };
            assert!(low < since + wait, "P6 never stuck: {:?} waits beyond its deadline", self.what(call));
            let held = |key: &u8| {
                self.grants.values().any(|grant| grant.key == *key && grant.held && grant.may_end > low)
            };
            assert!(
                call.keys.iter().any(held),
                "P6 never stuck: {:?} waits for what nobody has",
                self.what(call)
            );
        }
        self.calls = calls;
    }
}
