//! Fingerprints on every path: what differs is refused before anything else is told, and changes nothing.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)]
mod hooks;

use claimdb::backend::Mem;
use claimdb::{
    Claim, Durability, Fingerprint, ManualClock, Omission, OnInterrupt, Outcome, Refused, Request,
    Resolution, Run, RunError, SettleError, Settled, Store,
};
use hooks::{At, Hooked};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn mine() -> Request {
    Request::new("k").fingerprint(Fingerprint::of_bytes("mine"))
}

fn others() -> [Request; 2] {
    [Request::new("k").fingerprint(Fingerprint::of_bytes("another")), Request::new("k")]
}

struct World {
    mem: Mem,
    clock: ManualClock,
    store: Store,
}

impl World {
    fn new() -> Self {
        let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
        let store = Store::builder(mem.clone()).clock(clock.clone()).open().unwrap();
        Self { mem, clock, store }
    }

    fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = Store::builder(self.mem.clone()).clock(self.clock.clone()).open().unwrap();
    }

    /// Each other request is refused by each verb, and a wait is not begun: the clock stands still, so it would not
    /// end.
    fn refuses_others(&self, when: &str) {
        let before = self.store.stats();
        for other in others() {
            for other in [other.clone(), other.wait(SEC)] {
                let told = self.store.claim(&other).unwrap();
                assert!(matches!(told, Outcome::Mismatched(_)), "P7 mismatch is harmless: {when}: {told:?}");
                match pin!(self.store.claim_async(&other)).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(Outcome::Mismatched(_))) => {}
                    told => panic!("P7 mismatch is harmless: {when}, async: {told:?}"),
                }
                let told = self.store.run(&other, |_| -> Result<String, String> {
                    panic!("P7 mismatch is harmless: {when}: it ran")
                });
                let refused = matches!(told, Err(RunError::Refused(Refused::Mismatched(_))));
                assert!(refused, "P7 mismatch is harmless: {when}, run: {told:?}");
            }
        }
        let after = self.store.stats();
        assert_eq!(after.told_mismatched - before.told_mismatched, 12);
        assert_eq!(
            (after.granted, after.entries, after.waiters),
            (before.granted, before.entries, before.waiters)
        );
    }
}

#[test]
fn another_fingerprint_is_refused_by_every_verb_in_every_state() {
    for durability in ALL {
        let mut world = World::new();
        let mine = mine().durability(durability);
        let claim = world.store.claim(&mine).unwrap().granted().unwrap();
        world.refuses_others("claimed");
        world.clock.advance(31 * SEC);
        if durability == Durability::Full {
            world.refuses_others("lease over");
            drop(claim);
            world.refuses_others("dropped");
            world.reopen();
            world.refuses_others("of an earlier opening");
        } else {
            drop(claim); // nothing is stored: the key is free
        }
        let told = world.store.run(&mine, |_| Ok::<_, String>("receipt 7".to_owned()));
        assert_eq!(told.unwrap(), Run::Fresh("receipt 7".to_owned()));
        world.refuses_others("completed");
        world.reopen();
        world.refuses_others("completed, of an earlier opening");
        let told = world.store.run(&mine, |_| Err::<String, _>("it ran twice"));
        assert_eq!(told.unwrap(), Run::Replayed("receipt 7".to_owned()));
    }
}

#[test]
fn another_fingerprint_is_refused_while_interrupted_and_after_a_person_resolved_it() {
    let mut world = World::new();
    let mine = mine().on_interrupt(OnInterrupt::Quarantine);
    drop(world.store.claim(&mine).unwrap());
    world.refuses_others("about to be interrupted");
    let told = world.store.claim(&mine).unwrap();
    let Outcome::Interrupted(case) = told else { panic!("{told:?}") };
    world.refuses_others("interrupted");
    world.reopen();
    world.refuses_others("interrupted, of an earlier opening");
    assert!(world.store.resolve("k", case.token(), Resolution::completed("by hand").unwrap()).unwrap());
    world.refuses_others("resolved");
    assert!(matches!(world.store.claim(&mine).unwrap(), Outcome::Settled(Settled::Completed(_))));
}

#[test]
fn the_other_settlings_are_refused_as_well() {
    let settle: [fn(claimdb::Claim); 2] =
        [|claim| claim.fail("declined").unwrap(), |claim| claim.omit(claimdb::Omission::OnPurpose).unwrap()];
    for settle in settle {
        let world = World::new();
        settle(world.store.claim(mine()).unwrap().granted().unwrap());
        world.refuses_others("settled");
        assert!(matches!(world.store.claim(mine()).unwrap(), Outcome::Settled(_)));
    }
}

#[test]
fn it_is_set_by_the_claim_that_takes_a_free_key_and_forgotten_with_the_record() {
    let world = World::new();
    let [other, _] = others();
    world.store.claim(mine()).unwrap().granted().unwrap().release().unwrap();
    // Released: there is no record, so the key may be used for something else.
    let claim = world.store.claim(&other).unwrap().granted().unwrap();
    assert!(matches!(world.store.claim(mine()).unwrap(), Outcome::Mismatched(_)), "P7 mismatch is harmless");
    claim.complete("other").unwrap();
    assert!(matches!(world.store.claim(mine()).unwrap(), Outcome::Mismatched(_)), "P7 mismatch is harmless");
    world.clock.advance(Duration::from_secs(86_400));
    assert!(world.store.claim(mine()).unwrap().granted().is_some(), "its retention has ended");
}

#[test]
fn a_waiter_that_finds_the_key_used_for_something_else_is_refused_and_wakes_the_next() {
    let world = World::new();
    // Claims in memory, so that no future has to wait for a sync.
    let [mine, other] = [mine(), others()[0].clone()].map(|request| request.durability(Durability::Result));
    let claim = world.store.claim(&mine).unwrap().granted().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(world.store.claim_async(mine.wait(SEC)));
    assert!(first.as_mut().poll(&mut context).is_pending());
    claim.release().unwrap();
    // A newcomer gets in ahead of the waiter that was just woken.
    let newcomer = world.store.claim(&other).unwrap().granted().unwrap();
    let mut second = pin!(world.store.claim_async(other.wait(SEC)));
    assert!(second.as_mut().poll(&mut context).is_pending());
    let told = first.poll(&mut context);
    assert!(matches!(told, Poll::Ready(Ok(Outcome::Mismatched(_)))), "P7 mismatch is harmless: {told:?}");
    drop(newcomer);
    let told = second.poll(&mut context);
    assert!(matches!(told, Poll::Ready(Ok(Outcome::Granted(_)))), "P6 never stuck: {told:?}");
}

#[cfg(feature = "sled")]
#[test]
fn fingerprints_come_back_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Store::open(folder.path().join("claims")).unwrap();
    let order = |cents: u32| {
        Fingerprint::of_value(&[("article", "tea".to_owned()), ("cents", cents.to_string())]).unwrap()
    };
    let request = |key, cents| Request::new(key).fingerprint(order(cents));
    let store = open();
    store.run(request("settled", 450), |_| Ok::<_, String>(7)).unwrap();
    let pending = store.claim(request("pending", 450)).unwrap().granted().unwrap();
    store.close().unwrap();
    drop((pending, store));

    let store = open();
    for key in ["settled", "pending"] {
        let told = store.claim(request(key, 4500)).unwrap();
        assert!(matches!(told, Outcome::Mismatched(_)), "P7 mismatch is harmless: {key}: {told:?}");
    }
    assert_eq!(store.run(request("settled", 450), |_| Err("it ran twice")).unwrap(), Run::Replayed(7));
    assert_eq!(store.claim(request("pending", 450)).unwrap().granted().unwrap().attempt(), 2);
}

/// A holder that has lost its key puts a mark on it before the record refuses it. That says nothing of what the key is
/// for by then.
#[test]
fn late_holder_says_nothing_of_the_key() {
    type Settle = fn(Claim) -> Result<(), SettleError>;
    let settles: [(&str, Settle); 4] = [
        ("complete", |claim| claim.complete("late")),
        ("fail", |claim| claim.fail("late")),
        ("omit", |claim| claim.omit(Omission::OnPurpose)),
        ("release", Claim::release),
    ];
    for (name, settle) in settles {
        for taken in [false, true] {
            let (hooked, clock) = (Hooked::new(), ManualClock::new());
            let store = Store::builder(hooked.clone()).clock(clock).open().unwrap();
            let late = store.claim(mine()).unwrap().granted().unwrap();
            assert!(store.remove_by_force("k").unwrap());
            let [other, _] = others();
            let successor = taken.then(|| store.claim(&other).unwrap().granted().unwrap());
            let (tell, told) = mpsc::channel();
            let beside = store.clone();
            hooked.on(At::Commit, move || tell.send(beside.claim(&other)).unwrap());
            let refused = settle(late);
            assert!(matches!(refused, Err(SettleError::Lost(_))), "P3 fenced: {name}: {refused:?}");
            let told = told.recv().unwrap();
            let busy = matches!(told, Ok(Outcome::InFlight(_)));
            assert!(busy, "P7 mismatch is harmless: {name} beside, its successor there: {taken}: {told:?}");
            drop(successor);
        }
    }
}

#[test]
fn a_key_that_is_being_taken_is_taken_for_its_own_work_alone() {
    let hooked = Hooked::new();
    let store = Store::builder(hooked.clone()).clock(ManualClock::new()).open().unwrap();
    let (tell, told) = mpsc::channel();
    let beside = store.clone();
    hooked.on(At::Commit, move || {
        let asked = others().into_iter().chain([mine()]);
        tell.send(asked.map(|request| beside.claim(request).unwrap()).collect::<Vec<_>>()).unwrap();
    });
    let _holder = store.claim(mine()).unwrap().granted().unwrap();
    let told = told.recv().unwrap();
    let [Outcome::Mismatched(_), Outcome::Mismatched(_), Outcome::InFlight(_)] = &told[..] else {
        panic!("rule 16: mismatch comes before busy from the first moment: {told:?}")
    };
}
