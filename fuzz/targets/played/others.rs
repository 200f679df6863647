//! What is told without a claim, and of plain values.

use super::{Held, KEYS, Untold, World, text, value_of};
use crate::reference::{Op, Ret};
use claimdb::{AdminError, Compared, KvError, Resolution, Token};

impl World {
    pub(super) fn get(&mut self, key: usize) {
        let told = self.store().get(KEYS[key]);
        let op = Op::Get { by: self.now };
        match told {
            Ok(Some(settled)) if self.counts() => {
                self.is_remembered(&settled);
                let ret = Ret::Settled(settled.about().token().get(), value_of(&settled));
                self.goes_on(key, &op, &ret);
            }
            Ok(None) if self.counts() => self.goes_on(key, &op, &Ret::Nothing),
            Ok(_) | Err(AdminError::Failed { .. }) => self.untold(key, &op, &Untold::Fault),
            Err(other) => panic!("a read was told {other}"),
        }
    }

    pub(super) fn removed(&mut self, key: usize, force: bool, told: Result<bool, AdminError>) {
        let op = Op::Remove { force, by: self.now };
        let live = self.has(key);
        // One that failed has fenced the holder only if it may have removed the record; its own claim knows.
        let has_it = |held: &Held| held.key == key && Some(held.claim.token().get()) == live;
        let goes_on = |held: &Held| has_it(held) && !held.claim.remaining().is_zero();
        if force && !(told.is_err() && self.hand.iter().any(goes_on)) {
            self.keys[key].live = None;
        }
        match told {
            Ok(there) if self.counts() => {
                assert!(force || live.is_none(), "rule 19: {} was removed, and {live:?} has it", KEYS[key]);
                if there {
                    self.writes("a removal was told");
                    self.keys[key].pending = None;
                }
                self.goes_on(key, &op, if there { &Ret::Done } else { &Ret::Nothing });
            }
            Err(AdminError::InFlight { .. }) => {
                let excused = live.is_some() && !force;
                assert!(excused, "P6 never stuck: {} is told to be in flight, and nobody has it", KEYS[key]);
            }
            Ok(_) | Err(AdminError::Failed { .. }) => self.untold(key, &op, &Untold::Fault),
            Err(other) => panic!("a removal was told {other}"),
        }
    }

    pub(super) fn resolve(&mut self, key: usize) {
        let Some(token) = self.keys[key].interrupted else { return };
        let told = self.store().resolve(KEYS[key], Token::new(token), Resolution::released());
        let op = Op::Resolve { token };
        match told {
            Ok(there) if self.counts() => {
                if there {
                    self.writes("a resolution was told");
                }
                self.goes_on(key, &op, if there { &Ret::Done } else { &Ret::Nothing });
            }
            Err(AdminError::InFlight { .. }) => {
                assert!(
                    self.has(key).is_some(),
                    "P6 never stuck: {} is in flight, and nobody has it",
                    KEYS[key]
                );
            }
            Ok(_) | Err(AdminError::Failed { .. }) => self.untold(key, &op, &Untold::Fault),
            Err(other) => panic!("a resolution was told {other}"),
        }
    }

    pub(super) fn put(&mut self, value: usize, new: Option<String>) {
        let values = self.store().kv("values");
        let name = [u8::from(value == 1)];
        let told = match &new {
            Some(new) => values.put(name, new),
            None => values.delete(name),
        };
        self.value(value, &Op::Put { value: new, relaxed: false }, told.map(|()| Ret::Done));
    }

    /// From what was read before to a new value.
    pub(super) fn swap(&mut self, value: usize) {
        let (values, name) = (self.store().kv("values"), [u8::from(value == 1)]);
        let old = match values.get(name) {
            Ok(old) => old,
            Err(error) => return self.value(value, &Op::Read, Err(error)),
        };
        let new = self.step.to_string();
        let told = values.compare_and_swap(name, old.as_deref(), Some(new.as_bytes()));
        let told = told.map(|told| match told {
            Compared::Swapped => Ret::Done,
            Compared::Differs { current } => panic!("nobody else wrote, and it differs: {current:?}"),
        });
        self.value(value, &Op::Swap(text(old), Some(new)), told);
    }

    pub(super) fn value(&mut self, value: usize, op: &Op, told: Result<Ret, KvError>) {
        let ret = match told {
            Ok(ret) if self.counts() => {
                if ret == Ret::Done {
                    self.writes("a plain value was written");
                }
                ret
            }
            Ok(_) | Err(KvError::Failed { .. }) => {
                self.notice();
                let excused = self.went_wrong || self.sync_failed;
                assert!(excused, "P6 never stuck: nothing has failed, and yet {op:?} was told nothing");
                Ret::Unclear
            }
            Err(other) => panic!("a call that names a value was told {other}"),
        };
        let before = self.values[value].clone();
        let may = self.values[value].goes_on(op, &ret);
        assert!(may, "linearizable: {op:?} told {ret:?} of value {value}, which may be {before:?}");
    }
}
