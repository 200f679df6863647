//! What a claimant is told.

use super::{Held, KEYS, Pending, Untold, World, in_seconds, seconds, value_of};
use crate::reference::{Key, Ret};
use crate::{Ask, Level};
use claimdb::{AllClaimed, Claim, ClaimError, Outcome, Settled};

impl World {
    pub(super) fn claimed(&mut self, ask: &Ask, told: Result<Outcome, ClaimError>) {
        let (key, op) = (usize::from(ask.key), ask.op(self.now));
        match told {
            Ok(outcome) if self.counts() => self.told(ask, outcome),
            Ok(_) | Err(ClaimError::Failed { .. }) => self.untold(key, &op, &Untold::Fault),
            Err(other) => panic!("a claim was told {other}"),
        }
    }

    pub(super) fn told(&mut self, ask: &Ask, outcome: Outcome) {
        let (key, op, name) = (usize::from(ask.key), ask.op(self.now), KEYS[usize::from(ask.key)]);
        let live = self.has(key);
        let ret = match outcome {
            Outcome::Granted(claim) => {
                self.granted(ask, claim);
                return;
            }
            Outcome::Settled(settled) => {
                self.is_remembered(&settled);
                Ret::Settled(settled.about().token().get(), value_of(&settled))
            }
            Outcome::InFlight(_) => {
                assert!(live.is_some(), "P6 never stuck: {name} is told to be in flight, and nobody has it");
                Ret::InFlight
            }
            // After a failed sync it may be told of a write whose fate nobody knows.
            Outcome::Mismatched(_) if self.sync_failed => Ret::InFlight,
            Outcome::Mismatched(_) => Ret::Mismatched,
            Outcome::Interrupted(case) => {
                let token = case.token().get();
                let known = &mut self.keys[key];
                if let Some(pending) = known.pending.take().filter(|pending| pending.token == token) {
                    let found = (case.attempt(), case.checkpoint().map(<[u8]>::to_vec));
                    assert_eq!(
                        found,
                        (pending.attempt, pending.progress),
                        "rule 18: an interruption of {name}"
                    );
                }
                known.interrupted = Some(token);
                Ret::Interrupted(token)
            }
        };
        if matches!(ret, Ret::Settled(..) | Ret::Interrupted(_)) {
            assert!(live.is_none(), "rule 10: {name} was told as {ret:?}, and {live:?} has it");
        }
        self.goes_on(key, &op, &ret);
    }

    pub(super) fn granted(&mut self, ask: &Ask, claim: Claim) {
        let (key, op, name) = (usize::from(ask.key), ask.op(self.now), KEYS[usize::from(ask.key)]);
        self.writes("a claim was granted");
        let token = claim.token().get();
        let before = self.greatest_token;
        assert!(token > before, "P2 ordered tokens: {token} was granted after {before}");
        let live = self.has(key);
        assert!(
            live.is_none(),
            "P1 one holder, P5 no early takeover: {name} was granted while {live:?} has it"
        );
        assert_eq!(claim.remaining(), seconds(ask.lease()), "rule 15: the lease of {name}");
        let previous = claim.previous().map(|previous| previous.token.get());
        let progress = claim.last_checkpoint().map(<[u8]>::to_vec);
        let now = self.now;
        let known = &mut self.keys[key];
        let forgotten = |key: &Key| matches!(key, Key::Claimed { until, .. } if now >= *until);
        if let [Key::Absent { .. }] = known.may_be.0[..] {
            assert_eq!((claim.attempt(), previous), (1, None), "rule 18: the first attempt of {name}");
        } else if let Some(pending) = &known.pending
            && !known.may_be.0.iter().any(forgotten)
        {
            let found = (claim.attempt(), previous, &progress);
            let wanted = (pending.attempt + 1, Some(pending.token), &pending.progress);
            assert_eq!(found, wanted, "rule 18: the attempt of {name} after {}", pending.attempt);
        }
        self.greatest_token = token;
        self.goes_on(key, &op, &Ret::Granted(token));
        let known = &mut self.keys[key];
        // A pending record that is taken over makes any claim a stored one.
        let stored = known.may_be.0.iter().all(|key| matches!(key, Key::Claimed { stored: true, .. }));
        let attempt = claim.attempt();
        let until = now + ask.retention();
        known.pending = stored.then_some(Pending { token, until, attempt, progress });
        known.live = Some((token, now + ask.lease()));
        let (relaxed, retention) = (ask.durability == Level::Relaxed, ask.retention());
        self.hand.push(Held { claim, key, relaxed, retention, tried: false });
    }

    pub(super) fn is_remembered(&self, settled: &Settled) {
        let until = in_seconds(settled.about().forgotten_at());
        assert!(
            self.now < until,
            "rule 21: a result was told at {} s that is kept until {until} s",
            self.now
        );
    }

    pub(super) fn claim_all(&mut self, first: &Ask, second: &Ask) {
        let mut asks = [first, second];
        if first.key == second.key {
            return;
        }
        let told = self.store().claim_all(asks.map(Ask::request));
        let counts = self.counts();
        match told {
            Ok(AllClaimed::Granted(claims)) if counts => {
                let mut claims: Vec<_> = asks.iter().zip(claims).collect();
                // Tokens are drawn in the order of the keys.
                claims.sort_by_key(|(_, claim)| claim.token());
                claims.into_iter().for_each(|(ask, claim)| self.granted(ask, claim));
            }
            Ok(AllClaimed::Refused { index, outcome }) if counts => {
                self.told(asks[index], outcome);
                asks.swap(0, index);
                self.untold(usize::from(asks[1].key), &asks[1].op(self.now), &Untold::Otherwise);
            }
            Ok(_) | Err(ClaimError::Failed { .. }) => {
                for ask in asks {
                    self.untold(usize::from(ask.key), &ask.op(self.now), &Untold::Fault);
                }
            }
            Err(other) => panic!("a claim of several keys was told {other}"),
        }
    }
}
