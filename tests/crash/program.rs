//! The fixed program, and how it is judged in the end.

use super::acts::Act;
use super::ledger::{Fact, LEASE, Name, SEC, SHORT};
use super::user::{Step, User};
use claimdb::{OnInterrupt, Record, State, Token};
use std::time::Duration;

/// Longer than anything that the program lets somebody wait for.
const LONG_WAIT: Duration = SHORT;

/// Everything that a store does, once at least.
pub fn program(user: &mut User) -> Step {
    let name = Name;
    user.open()?;
    user.write(&["a"], Some("1"))?;
    // Every durability, and what is told of each ending.
    user.claim(name("full"))?;
    user.checkpoint(name("full"), "half")?;
    user.renew(name("full"));
    user.claim(name("full"))?; // in flight
    user.claim_for_other_work(name("full"))?;
    user.settle(name("full"), Act::Complete("full"))?;
    user.claim_for_other_work(name("full"))?;
    user.claim(name("full"))?; // replayed
    user.claim(name("result-plain"))?;
    user.settle(name("result-plain"), Act::Complete("result"))?;
    user.claim(name("xrelaxed"))?;
    user.settle(name("xrelaxed"), Act::Complete("relaxed"))?;
    user.claim(name("failed"))?;
    user.settle(name("failed"), Act::Fail("no"))?;
    user.claim(name("omitted"))?;
    user.settle(name("omitted"), Act::Omit)?;
    for settled in ["result-plain", "failed", "omitted"].map(Name) {
        user.claim(settled)?; // replayed
    }
    // Ended without settling: dropped, quarantined, capped.
    user.claim(name("dropped"))?;
    user.checkpoint(name("dropped"), "some")?;
    user.drop_claim(name("dropped"));
    user.claim(name("dropped"))?;
    user.claim(name("quarantine"))?;
    user.checkpoint(name("quarantine"), "most")?;
    user.drop_claim(name("quarantine"));
    user.claim_on_lax_terms(name("quarantine"))?;
    user.resolve(name("quarantine"), "by hand")?;
    for _ in 0..2 {
        user.claim(name("capped"))?;
        user.drop_claim(name("capped"));
    }
    user.claim_on_lax_terms(name("capped"))?;
    user.remove(name("capped"), false)?;
    user.claim(name("quarantine-released"))?;
    user.settle(name("quarantine-released"), Act::Release)?;
    // Those who wait while others' syncs may fail, until the store is closed.
    for held in ["held", "quarantine-held", "rheld"].map(Name) {
        user.claim(held)?;
        user.wait(held, LONG_WAIT)?;
    }
    // No time passes over this reopening: the tokens go by the ceiling alone.
    user.reopen()?;
    user.stale_holders_try()?;
    user.claim(name("held"))?;
    user.claim(name("quarantine-held"))?;
    user.claim(name("rheld"))?;
    user.reopen()?;
    user.claim(name("held"))?;
    // Effects.
    user.claim(name("full-effect"))?;
    user.settle(name("full-effect"), Act::CompleteWith("with"))?;
    user.claim(name("reffect"))?;
    user.settle(name("reffect"), Act::CompleteWith("with"))?;
    user.claim(name("xeffect"))?;
    user.settle(name("xeffect"), Act::CompleteWith("with"))?;
    // Waiters whose key is given back, whose holder is dropped, and whose own time is over.
    user.claim(name("waited"))?;
    user.wait(name("waited"), LONG_WAIT)?;
    user.settle(name("waited"), Act::Release)?;
    user.join(name("waited"))?;
    user.wait(name("waited"), LONG_WAIT)?;
    user.drop_claim(name("waited"));
    user.join(name("waited"))?;
    user.claim(name("rwaited"))?;
    user.wait(name("rwaited"), SEC)?;
    user.advance(SEC);
    user.join(name("rwaited"))?; // in flight
    user.wait(name("rwaited"), LONG_WAIT)?;
    user.settle(name("rwaited"), Act::Complete("waited for"))?;
    user.join(name("rwaited"))?;
    // Who was too slow: others wait, one of them takes over, and the old holder comes back.
    user.claim(name("late-effect"))?;
    user.wait(name("late-effect"), LONG_WAIT)?;
    user.wait(name("late-effect"), LONG_WAIT)?;
    user.advance(LEASE);
    user.claim_for_other_work(name("late-effect"))?;
    user.join(name("late-effect"))?; // granted
    user.stale_holders_try()?;
    user.settle(name("late-effect"), Act::CompleteWith("with"))?;
    user.join(name("late-effect"))?; // replayed
    user.advance(LEASE);
    user.renew(name("held"));
    user.settle(name("held"), Act::Complete("late"))?; // its lease is over, and nobody has taken it
    // Plain values.
    user.write(&["a", "b"], Some("2"))?;
    user.compare_and_swap("a", "3")?;
    user.write(&["b"], None)?;
    // Several at once.
    let many = ["many", "rmany", "quarantine-many", "xmany"].map(Name);
    user.claim_many(&many)?;
    for (at, name) in many.into_iter().enumerate() {
        user.settle(name, [Act::Complete("many"), Act::Release][at / 3])?;
    }
    user.claim_all(&[name("both"), name("other")])?;
    user.settle(name("both"), Act::Complete("both"))?;
    user.settle(name("other"), Act::Release)?;
    user.claim_all(&[name("other"), name("both")])?; // refused, and nothing is held
    user.claim(name("other"))?;
    // Removing.
    for scoped in ["s/one", "s/two", "s/three"].map(Name) {
        user.claim(scoped)?;
        user.settle(scoped, Act::Complete("scoped"))?;
    }
    user.empty_scope("s")?;
    user.remove(name("full"), false)?;
    user.claim(name("full"))?;
    user.remove(name("full"), true)?;
    user.stale_holders_try()?;
    user.claim(name("full"))?;
    // Forgetting.
    user.claim(name("short"))?;
    user.settle(name("short"), Act::Complete("short"))?;
    user.claim(name("rshort"))?;
    user.settle(name("rshort"), Act::Complete("short"))?;
    user.claim(name("short-dropped"))?;
    user.drop_claim(name("short-dropped"));
    user.claim(name("quarantine-short"))?;
    user.drop_claim(name("quarantine-short"));
    user.advance(SHORT);
    user.claim(name("rshort"))?; // anew
    user.settle(name("rshort"), Act::Complete("again"))?;
    // A tail that nothing syncs: results, releases and sweeps.
    user.settle(name("full"), Act::Release)?;
    for relaxed in ["x1", "x2", "xrelaxed"].map(Name) {
        user.claim(relaxed)?;
        user.settle(relaxed, Act::Complete("unsynced"))?;
    }
    user.sweep()?;
    user.claim(name("x3"))?;
    user.settle(name("x3"), Act::Omit)?;
    user.sync()?;
    user.advance(SEC);
    user.reopen()
}

impl User {
    pub fn reopen(&mut self) -> Step {
        self.close()?;
        self.open()?;
        self.look_at_all()
    }

    /// Reads everything, and holds it against what was told.
    pub fn look_at_all(&mut self) -> Step {
        let names: Vec<_> = self.ledger.keys.keys().copied().collect();
        for name in &names {
            self.look(*name)?;
        }
        for key in self.ledger.values.keys().copied().collect::<Vec<_>>() {
            self.look_at_value(key)?;
        }
        for name in names {
            let Some(effect) = name.effect() else { continue };
            let token = |bytes: Vec<u8>| Token::new(u64::from_le_bytes(bytes.try_into().unwrap()));
            let landed = self.ledger.value(effect).now().pop().flatten().map(token);
            let completed = match self.ledger.key(name).now().pop() {
                Some(Fact::Settled { token, .. }) => token,
                _ => None,
            };
            assert_eq!(landed, completed, "rule 25: the completion of {name:?} and its effect came apart");
        }
        self.ledger.recovering = false;
        Ok(())
    }

    /// After whatever went wrong: opens, looks, and cuts the power once more, which must change nothing.
    pub fn recover(&mut self) -> Step {
        self.open()?;
        self.look_at_all()?;
        self.cut()?;
        self.look_at_all()
    }

    /// Holds the store to everything that it promises, with every key.
    pub fn judge(&mut self) -> Step {
        let names: Vec<_> = self.ledger.keys.keys().copied().collect();
        for name in &names {
            self.claim_for_other_work(*name)?;
        }
        for name in &names {
            self.claim(*name)?;
        }
        self.stale_holders_try()?;
        for name in &names {
            let act =
                if name.effect().is_some() { Act::CompleteWith("in the end") } else { Act::Complete("end") };
            self.settle(*name, act)?;
            self.claim(*name)?;
        }
        self.look_at_all()?;
        for name in names {
            if let Some(Fact::Interrupted(_)) = self.ledger.key(name).now().pop() {
                self.remove(name, false)?;
            }
        }
        Ok(())
    }

    /// Once everything may be forgotten, sweeping leaves nothing but what somebody is to be told of.
    pub fn forget_all(&mut self) -> Step {
        self.held.clear();
        self.stale.clear();
        for _ in 0..2 {
            self.advance(10 * 86_400 * SEC);
            self.sweep()?;
        }
        let untold = |record: &Record| match record.state {
            State::Pending { .. } => {
                let terms = &record.terms;
                terms.on_interrupt == OnInterrupt::Quarantine || terms.max_attempts == Some(record.attempt)
            }
            State::Interrupted { .. } => true,
            State::Settled { .. } => false,
        };
        let records = self.faulty.stored(&[1]);
        for (key, bytes) in &records {
            let record = Record::decode(bytes).unwrap();
            let key = String::from_utf8_lossy(key);
            assert!(untold(&record), "rule 21: a record was left without an entry: {key} {record:?}");
        }
        for (entry, _) in self.faulty.stored(&[4]) {
            let stands = records.iter().any(|(key, _)| entry.ends_with(key));
            assert!(stands, "rule 21: an entry was left behind: {}", String::from_utf8_lossy(&entry));
        }
        let stats = self.store().stats();
        assert_eq!((stats.entries, stats.unsynced, stats.waiters), (0, 0, 0), "left behind in memory");
        Ok(())
    }
}
