//! What the user does with what it has: settles, saves, removes, writes values, and looks.

use super::ledger::{Fact, LEASE, Name};
use super::twins::OTHER_WORK;
use super::user::{Held, Step, TRIES, User, kept, unwound};
use claimdb::{
    Claim, Compared, Durability, Kept, KeyState, LiveClaims, Omission, Resolution, SettleError, Store, Writes,
};

/// How a claim ends.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    Complete(&'static str),
    /// With an effect: the claim's token, under the key's name.
    CompleteWith(&'static str),
    Fail(&'static str),
    Omit,
    Release,
}

impl Act {
    fn kept(self) -> Option<Kept> {
        match self {
            Self::Complete(value) | Self::CompleteWith(value) => Some(Kept::Completed(encoded(value))),
            Self::Fail(reason) => Some(Kept::Failed(encoded(reason))),
            Self::Omit => Some(Kept::Omitted(Omission::OnPurpose)),
            Self::Release => None,
        }
    }

    fn apply(self, claim: Claim, effect: Option<&str>) -> Result<(), SettleError> {
        match self {
            Self::Complete(value) => claim.complete(value),
            Self::CompleteWith(value) => {
                let token = claim.token().get().to_le_bytes();
                claim.complete_with(value, Writes::new().put("v", effect.expect("it is named so"), token))
            }
            Self::Fail(reason) => claim.fail(reason),
            Self::Omit => claim.omit(Omission::OnPurpose),
            Self::Release => claim.release(),
        }
    }
}

/// A text as the store encodes it.
fn encoded(value: &str) -> Vec<u8> {
    let mut bytes = (value.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(value.as_bytes());
    bytes
}

impl User {
    /// Ends the claim of `name`, if it is held.
    pub fn settle(&mut self, name: Name, act: Act) -> Step {
        let Some(Held { mut claim, .. }) = self.held.remove(&name) else { return Ok(()) };
        let full = name.durability() == Durability::Full;
        for _ in 0..TRIES {
            let (token, at) = (claim.token(), self.wall());
            let fact = match act.kept() {
                Some(result) => Fact::Settled { token: Some(token), result, at },
                None if full => Fact::Absent,
                None => self.ledger.key(name).now().pop().expect("there is one"),
            };
            let effect = name.effect().filter(|_| matches!(act, Act::CompleteWith(_)));
            let value = Some(token.get().to_le_bytes().to_vec());
            self.ledger.key(name).tried(fact.clone());
            if let Some(effect) = effect {
                self.ledger.value(effect).tried(value.clone());
            }
            match unwound(|| act.apply(claim, effect)) {
                Some(Ok(())) => {
                    let capped = name.is_quarantined() || name.cap().is_some();
                    let durable = match act {
                        Act::Release => capped,
                        _ => name.durability() != Durability::Relaxed,
                    };
                    if let Some(effect) = effect {
                        self.ledger.value(effect).told(value, durable);
                    }
                    self.tell(name, fact, durable);
                    return self.after();
                }
                Some(Err(SettleError::Retry(retry))) => {
                    claim = retry.claim;
                    if self.faulty.is_down() || self.store().stats().poisoned {
                        self.stale.push((name, claim));
                        return self.after();
                    }
                    assert!(!self.faulty.fired().is_empty(), "P6 never stuck: {name:?}: {}", retry.cause);
                }
                Some(Err(error)) => {
                    panic!("P6 never stuck: {name:?}, whose claim is current, is told {error}")
                }
                // The claim went with the panic.
                None => return self.after(),
            }
        }
        panic!("P6 never stuck: {name:?} cannot be settled");
    }

    pub fn drop_claim(&mut self, name: Name) {
        self.held.remove(&name);
    }

    pub fn renew(&mut self, name: Name) {
        let live = self.is_live(name);
        let until = self.ledger.elapsed + LEASE;
        let Some(held) = self.held.get_mut(&name) else { return };
        let told = held.claim.renew(LEASE);
        assert_eq!(told.is_ok(), live, "P3 fenced: {name:?} is renewed, live: {live}: {told:?}");
        if live {
            held.until = until;
        }
    }

    pub fn checkpoint(&mut self, name: Name, progress: &'static str) -> Step {
        for _ in 0..TRIES {
            let Some(Fact::Pending(mut claimed)) = self.ledger.key(name).now().pop() else { return Ok(()) };
            claimed.checkpoint = Some(progress.into());
            let Some(held) = self.held.get_mut(&name) else { return Ok(()) };
            self.ledger.keys.get_mut(&name).expect("it is held").tried(Fact::Pending(claimed.clone()));
            if let Some(Ok(())) = unwound(|| held.claim.checkpoint(progress)) {
                self.tell(name, Fact::Pending(claimed), true);
                return self.after();
            }
            self.after()?;
        }
        panic!("P6 never stuck: no progress of {name:?} is saved");
    }

    /// Whoever has lost its claim tries to settle it all the same.
    pub fn stale_holders_try(&mut self) -> Step {
        for (name, claim) in std::mem::take(&mut self.stale) {
            let stored = |user: &Self| (user.faulty.stored(&[1]), user.faulty.stored(&[3]));
            let before = stored(self);
            assert!(claim.renew(LEASE).is_err(), "P3 fenced: {name:?} is renewed by a stale holder");
            let told = unwound(|| claim.complete_with("stale", Writes::new().put("v", "stale", "")));
            assert!(!matches!(told, Some(Ok(()))), "P3 fenced: {name:?} is completed by a stale holder");
            drop(told);
            self.after()?;
            assert!(stored(self) == before, "P3 fenced: a stale holder of {name:?} changed what is stored");
        }
        Ok(())
    }

    /// Claims `name` for something else.
    pub fn claim_for_other_work(&mut self, name: Name) -> Step {
        let now = self.wall();
        let free = |fact: &Fact| *fact == Fact::Absent || fact.is_forgotten(name, now);
        if self.ledger.key(name).now().iter().any(free) && !self.is_live(name) {
            return Ok(());
        }
        let before = self.faulty.stored(&[1]);
        let request = name.request().fingerprint(claimdb::Fingerprint::of_bytes(OTHER_WORK));
        let told = self.call(|store| store.claim(request));
        let refused =
            !matches!(&told, Some(Ok(outcome)) if !matches!(outcome, claimdb::Outcome::Mismatched(_)));
        assert!(refused, "P7 mismatch is harmless: {name:?} is told {told:?}");
        assert!(self.faulty.stored(&[1]) == before, "P7 mismatch is harmless: {name:?} was changed");
        self.after()
    }

    pub fn remove(&mut self, name: Name, by_force: bool) -> Step {
        for _ in 0..TRIES {
            let before = self.ledger.key(name).clone();
            self.ledger.key(name).tried(Fact::Absent);
            let told = self.call(|store| match by_force {
                true => store.remove_by_force(name.key()),
                false => store.remove(name.key()),
            });
            if let Some(Ok(removed)) = told {
                let now = self.wall();
                let gone = |fact: &Fact| *fact == Fact::Absent || fact.is_forgotten(name, now);
                let there = before.now().iter().any(|fact| !gone(fact)) || self.held.contains_key(&name);
                assert!(removed <= there, "P9 fail closed: {name:?} was removed, and was not there");
                if !removed && !before.now().iter().any(gone) {
                    self.lost(name, "is not there to be removed");
                }
                self.tell(name, Fact::Absent, removed);
                if let Some(held) = self.held.remove(&name) {
                    self.stale.push((name, held.claim));
                }
                return self.after();
            }
            self.after()?;
        }
        panic!("P6 never stuck: {name:?} is not removed");
    }

    /// Settles by hand what is interrupted.
    pub fn resolve(&mut self, name: Name, value: &'static str) -> Step {
        for _ in 0..TRIES {
            let Some(Fact::Interrupted(claimed)) = self.ledger.key(name).now().pop() else { return Ok(()) };
            let Some(token) = claimed.token else { return Ok(()) };
            let result = Kept::Completed(encoded(value));
            let fact = Fact::Settled { token: Some(token), result, at: self.wall() };
            self.ledger.key(name).tried(fact.clone());
            let resolution = Resolution::completed(value).unwrap();
            match self.call(|store| store.resolve(name.key(), token, resolution)) {
                Some(Ok(true)) => {
                    self.tell(name, fact, true);
                    return self.after();
                }
                Some(Ok(false)) => self.lost(name, "has no case to resolve"),
                Some(Err(_)) | None => {}
            }
            self.after()?;
            self.look(name)?;
        }
        panic!("P6 never stuck: {name:?} is not resolved");
    }

    pub fn empty_scope(&mut self, scope: &'static str) -> Step {
        let prefix = format!("{scope}/");
        let names: Vec<_> =
            self.ledger.keys.keys().copied().filter(|name| name.0.starts_with(&prefix)).collect();
        for _ in 0..TRIES {
            for name in &names {
                self.ledger.key(*name).tried(Fact::Absent);
            }
            let told = self.call(|store| store.scope(scope).unwrap().empty(LiveClaims::Refuse));
            if let Some(Ok(_)) = told {
                for name in &names {
                    self.tell(*name, Fact::Absent, true);
                }
                return self.after();
            }
            self.after()?;
        }
        panic!("P6 never stuck: the scope is not emptied");
    }

    pub fn write(&mut self, keys: &[&'static str], value: Option<&'static str>) -> Step {
        let bytes = value.map(|value| value.as_bytes().to_vec());
        for _ in 0..TRIES {
            keys.iter().for_each(|key| self.ledger.value(key).tried(bytes.clone()));
            let told = self.call(|store| match (keys, value) {
                ([key], Some(value)) => store.kv("v").put(key, value),
                ([key], None) => store.kv("v").delete(key),
                (keys, value) => store.write(keys.iter().fold(Writes::new(), |writes, key| match value {
                    Some(value) => writes.put("v", key, value),
                    None => writes.delete("v", key),
                })),
            });
            if let Some(Ok(())) = told {
                keys.iter().for_each(|key| self.ledger.value(key).told(bytes.clone(), true));
                self.ledger.synced();
                return self.after();
            }
            self.after()?;
        }
        panic!("P6 never stuck: {keys:?} cannot be written");
    }

    pub fn compare_and_swap(&mut self, key: &'static str, new: &'static str) -> Step {
        let new = Some(new.as_bytes().to_vec());
        for _ in 0..TRIES {
            self.look_at_value(key)?;
            let expected = self.ledger.value(key).now().pop().expect("there is one");
            if expected == new {
                return Ok(()); // the try before had landed
            }
            self.ledger.value(key).tried(new.clone());
            let told =
                self.call(|store| store.kv("v").compare_and_swap(key, expected.as_deref(), new.as_deref()));
            match told {
                Some(Ok(Compared::Swapped)) => {
                    self.ledger.value(key).told(new, true);
                    self.ledger.synced();
                    return self.after();
                }
                Some(Ok(Compared::Differs { .. })) => {
                    panic!("P4 durable before told: {key} is not what it was")
                }
                Some(Err(_)) | None => self.after()?,
            }
        }
        panic!("P6 never stuck: {key} cannot be swapped");
    }

    pub fn sync(&mut self) -> Step {
        if let Some(Ok(())) = self.call(Store::sync) {
            self.ledger.synced();
        }
        self.after()
    }

    /// Sweeps until nothing is due.
    pub fn sweep(&mut self) -> Step {
        let now = self.wall();
        for name in self.ledger.keys.keys().copied().collect::<Vec<_>>() {
            let live = self.is_live(name);
            let possible = self.ledger.key(name);
            let due = |fact: &Fact| match fact {
                Fact::Pending(claimed) => claimed.at.after(name.retention()) <= now && !live,
                _ => false,
            };
            if possible.now().iter().any(due) {
                possible.tried(Fact::Absent); // swept, or waiting to be told as interrupted
            }
        }
        for _ in 0..100 {
            match self.call(|store| store.sweep(2)) {
                Some(Ok(swept)) if !swept.more => return self.after(),
                _ => self.after()?,
            }
        }
        panic!("rule 21: sweeping never ends");
    }

    pub fn look(&mut self, name: Name) -> Step {
        let now = self.wall();
        for _ in 0..TRIES {
            let told = self.call(|store| (store.inspect(name.key()), store.get(name.key())));
            let Some((Ok(seen), Ok(settled))) = told else {
                self.after()?;
                continue;
            };
            let result = settled.map(kept);
            let is = |fact: &Fact| match fact {
                Fact::Absent => matches!(seen.state, KeyState::Absent | KeyState::InMemory),
                fact if fact.is_forgotten(name, now) => {
                    matches!(seen.state, KeyState::Absent | KeyState::InMemory) && result.is_none()
                }
                Fact::Pending(claimed) | Fact::Interrupted(claimed) => {
                    let pending = matches!(fact, Fact::Pending(_));
                    let state = if pending { KeyState::Pending } else { KeyState::Interrupted };
                    seen.state == state
                        && claimed.token.is_none_or(|token| Some(token) == seen.token)
                        && claimed.attempt == seen.attempt
                }
                Fact::Settled { token, result: stored, at } => {
                    seen.state == KeyState::Settled
                        && token.is_none_or(|token| Some(token) == seen.token)
                        && Some(stored) == result.as_ref()
                        && seen.settled_at == Some(*at)
                }
            };
            let facts = self.ledger.key(name).now();
            let fitting: Vec<_> = facts.iter().filter(|fact| is(fact)).cloned().collect();
            if fitting.is_empty() {
                self.lost(name, &format!("is {:?} at attempt {}", seen.state, seen.attempt));
            }
            self.observe(name, fitting, seen.token);
            return self.after();
        }
        panic!("P6 never stuck: {name:?} cannot be looked at");
    }

    pub fn look_at_value(&mut self, key: &'static str) -> Step {
        for _ in 0..TRIES {
            let Some(Ok(told)) = self.call(|store| store.kv("v").get(key)) else {
                self.after()?;
                continue;
            };
            let facts = self.ledger.value(key).now();
            assert!(
                facts.contains(&told),
                "P4 durable before told: the value {key} is {told:?}, and was told as {facts:?}"
            );
            // The effect of a relaxed claim is as durable as that.
            let durable = self.ledger.recovering || !key.starts_with('x');
            self.ledger.value(key).told(told, durable);
            return self.after();
        }
        panic!("P6 never stuck: {key} cannot be read");
    }
}
