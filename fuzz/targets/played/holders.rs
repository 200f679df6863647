//! What a holder is told.

use super::{Held, KEYS, LEASE, Untold, World, seconds};
use crate::Act;
use crate::reference::{Op, Ret};
use claimdb::{CheckpointError, Omission, RetryCause, SettleError, Writes};

impl World {
    pub(super) fn pick(&self, at: u8) -> Option<usize> {
        (!self.hand.is_empty()).then(|| usize::from(at) % self.hand.len())
    }

    pub(super) fn renew(&mut self, at: u8) {
        let Some(at) = self.pick(at) else { return };
        let Held { claim, key, .. } = &self.hand[at];
        let (key, token, told) = (*key, claim.token().get(), claim.renew(seconds(LEASE)));
        let live = self.has(key) == Some(token);
        assert_eq!(told.is_ok(), live, "rule 11: renewing {}: {told:?}", KEYS[key]);
        if live {
            self.keys[key].live = Some((token, self.now + LEASE));
            self.goes_on(key, &Op::Renew { token }, &Ret::Done);
        }
    }

    pub(super) fn end_lease(&mut self, at: u8) {
        let Some(at) = self.pick(at) else { return };
        let (key, token) = (self.hand[at].key, self.hand[at].claim.token());
        let told = self.store().end_lease(KEYS[key], token).expect("memory alone is asked");
        // One that has the key and is being settled, as after a try that failed, is let be.
        let has_it = self.has(key) == Some(token.get());
        let let_be = has_it && !told && self.keys[key].left_untold;
        assert!(
            told == has_it || let_be,
            "P5: a lease of {} was ended: {told}, it had one: {has_it}",
            KEYS[key]
        );
        if told {
            self.keys[key].live = Some((token.get(), self.now));
        }
    }

    pub(super) fn checkpoint(&mut self, at: u8) {
        let Some(at) = self.pick(at) else { return };
        let progress = self.step.to_string().into_bytes();
        let Held { claim, key, .. } = &mut self.hand[at];
        let (key, token, told) = (*key, claim.token().get(), claim.checkpoint(&progress));
        let op = Op::Save { token };
        match told {
            Err(CheckpointError::NotStored { .. }) => {}
            Ok(()) if self.counts() => {
                self.writes("progress was saved");
                self.goes_on(key, &op, &Ret::Done);
                if let Some(pending) =
                    self.keys[key].pending.as_mut().filter(|pending| pending.token == token)
                {
                    pending.progress = Some(progress);
                }
            }
            Ok(()) | Err(CheckpointError::Failed { .. }) => self.untold(key, &op, &Untold::Fault),
            Err(_) => {
                let pending = self.keys[key].pending.as_ref().map(|pending| pending.token);
                assert!(pending != Some(token), "P3 fenced: progress of {} was refused: {told:?}", KEYS[key]);
            }
        }
    }

    /// Ends one of the claims in hand, as `act` says; one that comes back is in hand again.
    pub(super) fn end(&mut self, at: u8, act: &Act) {
        let Some(at) = self.pick(at) else { return };
        let Held { claim, key, relaxed, retention, tried } = self.hand.swap_remove(at);
        let (token, mine, now) = (claim.token().get(), self.step.to_string(), self.now);
        let value = match act {
            Act::Fail(_) => format!("failed {mine}"),
            Act::Omit(_) => "omitted".to_owned(),
            _ => format!("completed {mine}"),
        };
        let settles = Op::Settle { token, value, until: now + retention, relaxed, by: now };
        let (op, told) = match act {
            Act::Drop(_) => {
                drop(claim);
                self.ended(key, token);
                return self.goes_on(key, &Op::Drop { token }, &Ret::Done);
            }
            Act::Release(_) => (Op::Release { token, by: now }, claim.release()),
            Act::Fail(_) => (settles, claim.fail(&mine)),
            Act::Omit(_) => (settles, claim.omit(Omission::OnPurpose)),
            Act::CompleteWith(_) => {
                let writes = Writes::new().put("values", [0], mine.as_str());
                (settles, claim.complete_with(&mine, writes))
            }
            _ => (settles, claim.complete(&mine)),
        };
        let effect = matches!(act, Act::CompleteWith(_)).then(|| Op::Put { value: Some(mine), relaxed });
        let completes = matches!(act, Act::Complete(_) | Act::CompleteWith(_));
        let counts = self.counts();
        match told {
            Err(SettleError::Retry(retry)) => {
                let refused = matches!(retry.cause, RetryCause::OtherEffects);
                assert!(!refused || tried, "nothing was tried before: {:?}", retry.cause);
                let untold = if refused { Untold::Otherwise } else { Untold::Fault };
                self.untold(key, &op, &untold);
                if let Some(op) = effect {
                    self.values[0].goes_on(&op, &Ret::Unclear);
                }
                let claim = retry.claim;
                if claim.remaining().is_zero() {
                    self.ended(key, token);
                }
                self.hand.push(Held { claim, key, relaxed, retention, tried: tried || completes });
            }
            told if counts => {
                let ret = if told.is_ok() { Ret::Done } else { Ret::Refused };
                if told.is_ok() && matches!(op, Op::Settle { .. }) {
                    self.writes("a claim was settled");
                }
                let pending = self.keys[key].pending.as_ref().map(|pending| pending.token);
                assert!(told.is_ok() || pending != Some(token), "P6 never stuck: {told:?} of {}", KEYS[key]);
                self.ended(key, token);
                if let Some(op) = effect {
                    let may = self.values[0].goes_on(&op, &ret);
                    assert!(may, "linearizable: an effect was {ret:?}");
                }
                self.goes_on(key, &op, &ret);
                self.keys[key].pending.take_if(|pending| pending.token == token);
            }
            _ => {
                self.untold(key, &op, &Untold::Fault);
                if let Some(op) = effect {
                    self.values[0].goes_on(&op, &Ret::Unclear);
                }
            }
        }
    }

    /// The claim has the key no more.
    pub(super) fn ended(&mut self, key: usize, token: u64) {
        self.keys[key].live.take_if(|(live, _)| *live == token);
    }
}
