//! What a holder does with its claim.

use super::acts::{Doing, Held};
use super::history::On;
use super::ledger::Call;
use super::program::What;
use super::reference::{Op, Ret};
use super::{call, seconds, within};
use claimdb::{CheckpointError, Claim, Omission, RetryCause, SettleError, Writes};

/// What a claim is renewed for, in seconds.
const LEASE: u64 = 10;

impl Doing<'_> {
    /// Does something with a claim, and gives it back if it is still there.
    pub(super) async fn with(&self, held: Held, what: &What) -> Option<Held> {
        let Held { mut claim, key, power } = held;
        let (on, token) = (On::Key(key), claim.token().get());
        match what {
            What::Renew => {
                let call = self.begin(vec![(on, Op::Renew { token })], None);
                self.world.ledger().renewing(token, LEASE);
                let told = claim.renew(seconds(LEASE));
                let mut ledger = self.world.ledger();
                if told.is_ok() && ledger.counts(&call) {
                    ledger.renewed(&call, token, LEASE);
                }
                ledger.end(&call, vec![if told.is_ok() { Ret::Done } else { Ret::Refused }]);
                drop(ledger);
                Some(Held { claim, key, power })
            }
            What::Checkpoint => {
                let call = self.begin(vec![(on, Op::Save { token })], None);
                let progress = self.value.clone();
                let told = call!(
                    self.task,
                    self.polls,
                    claim.checkpoint_async(progress),
                    claim.checkpoint(&self.value)
                );
                match told {
                    Some(Err(CheckpointError::Failed { cause: RetryCause::Fault(fault), .. })) => {
                        let here = self.world.ledger().is_of(&call, token);
                        self.failed(&call, Some(&fault).filter(|_| here));
                    }
                    told => {
                        let mut ledger = self.world.ledger();
                        if matches!(told, Some(Ok(()))) && ledger.counts(&call) {
                            ledger.done_by(&call, "saved progress of", token);
                        }
                        let done = matches!(told, Some(Ok(())));
                        ledger.end(&call, vec![if done { Ret::Done } else { Ret::Refused }]);
                    }
                }
                Some(Held { claim, key, power })
            }
            What::Drop => {
                let call = self.begin(vec![(on, Op::Drop { token })], None);
                self.world.ledger().let_go(token);
                drop(claim);
                self.world.ledger().end(&call, vec![Ret::Done]);
                None
            }
            What::Release => {
                let call = self.begin(vec![(on, Op::Release { token, by: u64::MAX })], None);
                self.world.ledger().settling(token, None);
                let told = call!(self.task, self.polls, claim.release_async(), claim.release());
                self.settled(&call, told, key, power, token, None)
            }
            What::Complete | What::CompleteWith(_) | What::Fail | What::Omit => {
                self.settle(claim, key, power, what).await
            }
            other => unreachable!("{other:?} is not of a claim"),
        }
    }

    async fn settle(&self, claim: Claim, key: u8, power: u64, what: &What) -> Option<Held> {
        let (token, mine) = (claim.token().get(), self.value.clone());
        let value = match what {
            What::Fail => format!("failed {mine}"),
            What::Omit => "omitted".to_owned(),
            _ => format!("completed {mine}"),
        };
        let (until, relaxed) = self.world.ledger().settling(token, Some(&value));
        let op = Op::Settle { token, value: value.clone(), until, relaxed, by: u64::MAX };
        let mut ops = vec![(On::Key(key), op)];
        if let What::CompleteWith(effect) = what {
            ops.push((On::Value(*effect), Op::Put { value: Some(mine.clone()), relaxed }));
        }
        let call = self.begin(ops, None);
        let (task, polls) = (self.task, self.polls);
        let told = match what {
            What::Fail => call!(task, polls, claim.fail_async(&mine), claim.fail(&mine)),
            What::Omit => {
                let why = Omission::OnPurpose;
                call!(task, polls, claim.omit_async(why), claim.omit(why))
            }
            What::CompleteWith(effect) => {
                let writes = Writes::new().put("values", [*effect], mine.as_str());
                call!(
                    task,
                    polls,
                    claim.complete_with_async(&mine, writes.clone()),
                    claim.complete_with(&mine, writes)
                )
            }
            _ => call!(task, polls, claim.complete_async(&mine), claim.complete(&mine)),
        };
        self.settled(&call, told, key, power, token, Some(&value))
    }

    /// Notes how a settle or a release ended; gives the claim back if it came back.
    fn settled(
        &self,
        call: &Call,
        told: Option<Result<(), SettleError>>,
        key: u8,
        power: u64,
        token: u64,
        value: Option<&str>,
    ) -> Option<Held> {
        match told {
            None => {
                self.failed(call, None);
                None
            }
            Some(Err(SettleError::Retry(retry))) => {
                let fault = if let RetryCause::Fault(fault) = &retry.cause { Some(fault) } else { None };
                let here = self.world.ledger().is_of(call, token);
                self.failed(call, fault.filter(|_| here));
                if let Some(value) = value {
                    self.world.ledger().came_back(token, value);
                }
                let claim = retry.claim;
                if !claim.remaining().is_zero() {
                    self.world.ledger().still_held(call, token);
                }
                Some(Held { claim, key, power })
            }
            Some(told) => {
                let mut ledger = self.world.ledger();
                if !ledger.counts(call) {
                    ledger.end(call, Vec::new());
                    return None;
                }
                let changes = match (&told, value) {
                    (Ok(()), Some(value)) => ledger.settled(call, token, value),
                    (Ok(()), None) => {
                        ledger.done_by(call, "released", token);
                        true
                    }
                    (Err(_), Some(value)) => {
                        ledger.refused(token, value);
                        false
                    }
                    (Err(_), None) => false,
                };
                // A second one is of the effect, which shares its fate. For what changes nothing there is one word.
                let ret = if changes { Ret::Done } else { Ret::Refused };
                ledger.end(call, vec![ret.clone(), ret]);
                None
            }
        }
    }
}
