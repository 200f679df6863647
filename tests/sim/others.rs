//! What is done to keys without a claim, and to plain values.

use super::acts::{Doing, Hand, in_seconds};
use super::history::On;
use super::ledger::Call;
use super::reference::{Op, Ret};
use super::{call, within};
use claimdb::{AdminError, Compared, KvError, Resolution, Token};

impl Doing<'_> {
    pub(super) fn get(&self, key: u8) {
        let call = self.begin(vec![(On::Key(key), Op::Get { by: u64::MAX })], None);
        match self.store.get(key.to_string()) {
            Ok(found) => {
                let mut ledger = self.world.ledger();
                let ret = match found {
                    None => Ret::Nothing,
                    Some(settled) => {
                        let (token, value) = (settled.about().token().get(), Hand::value_of(&settled));
                        let until = in_seconds(settled.about().forgotten_at());
                        if ledger.counts(&call) {
                            ledger.told_settled(&call, key, None, token, &value, until);
                        }
                        Ret::Settled(token, value)
                    }
                };
                ledger.end(&call, vec![ret]);
            }
            Err(error) => self.failed_admin(&call, &error),
        }
    }

    fn failed_admin(&self, call: &Call, error: &AdminError) {
        match error {
            AdminError::InFlight { .. } => self.world.ledger().end(call, vec![Ret::InFlight]),
            AdminError::Failed { fault, .. } => self.failed(call, Some(fault)),
            other => panic!("a call that names a key was told {other}"),
        }
    }

    pub(super) async fn remove(&self, key: u8, force: bool) {
        let call = self.begin(vec![(On::Key(key), Op::Remove { force, by: u64::MAX })], None);
        if force {
            // Whoever has it is fenced by this.
            self.world.ledger().fence(key);
        }
        let (store, name) = (&self.store, key.to_string());
        let told = match force {
            false => call!(self.task, self.polls, store.remove_async(&name), store.remove(&name)),
            true => {
                call!(self.task, self.polls, store.remove_by_force_async(&name), store.remove_by_force(&name))
            }
        };
        self.changed(&call, told);
    }

    fn changed(&self, call: &Call, told: Option<Result<bool, AdminError>>) {
        match told {
            None => self.failed(call, None),
            Some(Err(error)) => self.failed_admin(call, &error),
            Some(Ok(changed)) => {
                let mut ledger = self.world.ledger();
                if changed && ledger.counts(call) {
                    ledger.writes(call, "a removal was told");
                }
                ledger.end(call, vec![if changed { Ret::Done } else { Ret::Nothing }]);
            }
        }
    }

    pub(super) async fn resolve(&self, key: u8) {
        let Some(token) = self.world.ledger().interrupted(key) else { return };
        let call = self.begin(vec![(On::Key(key), Op::Resolve { token })], None);
        let (store, name, case) = (&self.store, key.to_string(), Token::new(token));
        let told = call!(
            self.task,
            self.polls,
            store.resolve_async(&name, case, Resolution::released()),
            store.resolve(&name, case, Resolution::released())
        );
        self.changed(&call, told);
    }

    pub(super) async fn sync(&self) {
        let call = self.begin(Vec::new(), None);
        let told = call!(self.task, self.polls, self.store.sync_async(), self.store.sync());
        let fault = match &told {
            Some(Err(AdminError::Failed { fault, .. })) => Some(fault),
            _ => None,
        };
        self.failed(&call, fault);
    }

    pub(super) async fn put(&self, value: u8, new: Option<String>) {
        let call = self.begin(vec![(On::Value(value), Op::Put { value: new.clone(), relaxed: false })], None);
        let values = self.store.kv("values");
        let told = match &new {
            Some(new) => {
                call!(
                    self.task,
                    self.polls,
                    values.put_async([value], new.as_str()),
                    values.put([value], new)
                )
            }
            None => call!(self.task, self.polls, values.delete_async([value]), values.delete([value])),
        };
        self.wrote(&call, told.map(|told| told.map(|()| Ret::Done)));
    }

    pub(super) async fn read(&self, value: u8) {
        let call = self.begin(vec![(On::Value(value), Op::Read)], None);
        let values = self.store.kv("values");
        let told = call!(self.task, self.polls, values.get_async([value]), values.get([value]));
        self.wrote(&call, told.map(|told| told.map(|found| Ret::Value(text(found)))));
    }

    /// From what was read before to a new value.
    pub(super) async fn swap(&self, value: u8) {
        let values = self.store.kv("values");
        let Ok(old) = values.get([value]) else { return };
        let new = Some(self.value.clone());
        let call = self.begin(vec![(On::Value(value), Op::Swap(text(old.clone()), new.clone()))], None);
        let bytes = new.map(String::into_bytes);
        let told = call!(
            self.task,
            self.polls,
            values.compare_and_swap_async([value], old.clone(), bytes.clone()),
            values.compare_and_swap([value], old.as_deref(), bytes.as_deref())
        );
        let ret = |told| match told {
            Compared::Swapped => Ret::Done,
            Compared::Differs { current } => Ret::Value(text(current)),
        };
        self.wrote(&call, told.map(|told| told.map(ret)));
    }

    fn wrote(&self, call: &Call, told: Option<Result<Ret, KvError>>) {
        match told {
            None => self.failed(call, None),
            Some(Err(KvError::Failed { fault, .. })) => self.failed(call, Some(&fault)),
            Some(Err(other)) => panic!("a call that names a value was told {other}"),
            Some(Ok(ret)) => {
                let mut ledger = self.world.ledger();
                if ret == Ret::Done && ledger.counts(call) {
                    ledger.writes(call, "a plain value was written");
                }
                ledger.end(call, vec![ret]);
            }
        }
    }
}

fn text(bytes: Option<Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8(bytes).expect("text was written"))
}
