//! Storage that fails, in the middle of a claim and in the middle of a settle, at every call and in every way.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{
    Claim, ClaimError, Durability, Fault as Cause, Fingerprint, ManualClock, OnInterrupt, Outcome, Request,
    RetryCause, SettleError, Settled, Store, SyncBy,
};
use faults::{FAULTS, Fault, Faulty};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];
/// No operation here makes as many calls of its engine.
const MANY: u64 = 20;

struct World {
    faulty: Faulty,
    store: Store,
}

impl World {
    fn new() -> Self {
        let faulty = Faulty::new();
        let store = open(&faulty);
        Self { faulty, store }
    }

    /// Closes the store, cuts the power and opens it again.
    fn reopen(&mut self) {
        let _ = self.store.close(); // after a failed sync it says so
        self.faulty.crash();
        self.store = open(&self.faulty);
    }

    fn grant(&self, request: &Request) -> Claim {
        match self.store.claim(request.clone().wait(HOUR)).unwrap() {
            Outcome::Granted(claim) => claim,
            other => panic!("P6 never stuck: expected a grant, was told {other:?}"),
        }
    }

    /// What is stored, told to somebody who waits until the sync that a failed settle asked for has ended.
    fn stored(&self, request: &Request) -> Option<String> {
        match self.store.claim(request.clone().wait(HOUR)).unwrap() {
            Outcome::Settled(Settled::Completed(stored)) => Some(stored.decode().unwrap()),
            Outcome::Granted(_) => None,
            other => panic!("P6 never stuck: {other:?}"),
        }
    }
}

fn open(faulty: &Faulty) -> Store {
    Store::builder(faulty.clone()).clock(ManualClock::new()).open().expect("without faults it opens")
}

/// What an operation that may panic on purpose came to; `None` if it did.
fn unwound<T>(operation: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(operation)).ok()
}

fn requests() -> impl Iterator<Item = Request> {
    let quarantine = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    let once = Request::new("k").max_attempts(1);
    ALL.into_iter().map(|durability| Request::new("k").durability(durability)).chain([quarantine, once])
}

/// Runs `body` with `count` calls going wrong from the n-th on, for every n at which that makes a difference.
fn at_every_call(count: u64, mut body: impl FnMut(&str, &dyn Fn(&Faulty)) -> bool) {
    for fault in FAULTS {
        let mut fired = 0;
        for n in 0.. {
            assert!(n < MANY, "the operation never ends");
            if !body(&format!("{fault:?} at call {n}"), &|faulty| faulty.arm(n, count, fault)) {
                break;
            }
            fired += 1;
        }
        assert!(fired > 0, "{fault:?} never fired: the test tests nothing");
    }
}

#[test]
fn a_forced_removal_that_fails_at_any_call_leaves_the_holder_as_it_was() {
    for durability in ALL {
        at_every_call(1, |name, arm| {
            let name = format!("{name}, {durability:?}");
            let world = World::new();
            let claim = world.grant(&Request::new("k").durability(durability));
            arm(&world.faulty);
            let told = unwound(|| world.store.remove_by_force("k"));
            let fired = world.faulty.disarm();
            if fired.is_empty() {
                assert!(matches!(told, Some(Ok(true))), "{name}: nothing went wrong: {told:?}");
                return false;
            }
            if matches!(told, Some(Ok(_))) || fired.contains(&"sync") {
                return true;
            }
            assert_eq!(claim.lost().cause(), None, "P9 fail closed: an error has fenced the holder: {name}");
            assert!(claim.renew(HOUR).is_ok(), "P9 fail closed: an error has fenced the holder: {name}");
            let other = world.store.claim("k").unwrap();
            assert!(
                matches!(other, Outcome::InFlight(_)),
                "P9 fail closed: an error has freed the key: {name}"
            );
            true
        });
    }
}

#[test]
fn a_claim_that_fails_at_any_call_holds_nothing_and_costs_no_attempt() {
    for request in requests() {
        for count in [1, 2] {
            at_every_call(count, |name, arm| {
                let name = format!("{name}, {request:?}");
                let mut world = World::new();
                arm(&world.faulty);
                let told = unwound(|| world.store.claim(&request));
                let fired = world.faulty.disarm();
                if fired.is_empty() {
                    assert!(
                        matches!(told, Some(Ok(Outcome::Granted(_)))),
                        "{name}: nothing went wrong: {told:?}"
                    );
                    return false;
                }
                match told {
                    // An error of a write that landed all the same is settled by reading it back.
                    Some(Ok(Outcome::Granted(claim))) => {
                        assert_eq!(fired[0], "commit", "P9 fail closed: {name}: an error granted the key");
                        let settled = claim.complete("done");
                        assert!(
                            settled.is_ok(),
                            "P9 fail closed: an error granted the key: {name}: {settled:?}"
                        );
                        assert_eq!(world.stored(&request).as_deref(), Some("done"), "{name}");
                    }
                    Some(Ok(other)) => panic!("{name}: {other:?}"),
                    Some(Err(_)) | None => {
                        // An interruption that failed asked for a sync of its own, which may be at it still.
                        let _ = world.store.sync();
                        let stats = world.store.stats();
                        assert_eq!((stats.live_claims, stats.granted), (0, 0), "P9 fail closed: {name}");
                        if stats.poisoned {
                            assert!(fired.contains(&"sync"), "{name}: poisoned without a failed sync");
                            let refused = world.store.claim(&request);
                            let poisoned =
                                matches!(refused, Err(ClaimError::Failed { fault: Cause::Poisoned(_), .. }));
                            assert!(poisoned, "P9 fail closed: {name}: {refused:?}");
                            world.reopen();
                            // What memory knew of it is gone, so it counts as an attempt (rule 15).
                            let told = world.store.claim(&request).unwrap();
                            assert!(matches!(told, Outcome::Granted(_) | Outcome::Interrupted(_)), "{name}");
                            return true;
                        }
                        let claim = world.grant(&request);
                        assert_eq!(claim.attempt(), 1, "nobody ever ran (rule 15): {name}");
                        assert_eq!(claim.previous(), None, "nobody ever ran (rule 15): {name}");
                        claim.complete("done").unwrap();
                    }
                }
                let stats = world.store.stats();
                assert_eq!((stats.entries, stats.unsynced, stats.waiters), (0, 0, 0), "left behind: {name}");
                true
            });
        }
    }
}

#[test]
fn a_complete_that_fails_at_any_call_is_stored_once_or_tried_again_under_the_same_token() {
    for durability in ALL {
        let request = Request::new("k").durability(durability);
        for (count, second) in [(1, "first"), (2, "first"), (1, "second"), (2, "second")] {
            at_every_call(count, |name, arm| {
                let name = format!("{name}, {durability:?}, then {second:?}");
                let mut world = World::new();
                let claim = world.grant(&request);
                let token = claim.token();
                arm(&world.faulty);
                let told = unwound(|| claim.complete("first"));
                let fired = world.faulty.disarm();
                // A settle that failed asked for a sync of its own, which may be at it still.
                let _ = world.store.sync();
                let poisoned = world.store.stats().poisoned;
                match told {
                    Some(Ok(())) => {
                        assert!(!poisoned, "P4 durable before told: {name}: Ok after a failed sync");
                        if durability != Durability::Relaxed {
                            world.reopen();
                        }
                        assert_eq!(world.stored(&request).as_deref(), Some("first"), "P8 remembered: {name}");
                    }
                    Some(Err(SettleError::Retry(retry))) => {
                        let failed =
                            matches!(retry.cause, RetryCause::Fault(Cause::Storage(_) | Cause::Poisoned(_)));
                        assert!(failed, "{name}: {:?}", retry.cause);
                        assert_eq!(retry.claim.token(), token, "{name}: it comes back under the same token");
                        if poisoned {
                            let again = retry.claim.complete("first");
                            assert!(again.is_err(), "P9 fail closed: {name}: Ok after a failed sync");
                            world.reopen();
                            drop(again);
                            let stored = world.stored(&request);
                            assert!(matches!(stored.as_deref(), None | Some("first")), "{name}: {stored:?}");
                        } else {
                            match retry.claim.complete(second) {
                                Ok(()) => {}
                                Err(SettleError::AlreadySettled(_)) => {
                                    assert_eq!(second, "second", "{name}: what stands is what was asked for");
                                }
                                Err(other) => panic!("rule 17: {name}: {other:?}"),
                            }
                        }
                        if !poisoned {
                            let stored = world.stored(&request);
                            assert!(stored.is_some(), "P8 remembered: {name}");
                            let about = *world.store.get("k").unwrap().unwrap().about();
                            assert_eq!(about.token(), token, "{name}");
                        }
                    }
                    Some(Err(other)) => panic!("{name}: {other:?}"),
                    // The claim went with the panic: what landed is told, else the next one gets the key.
                    None => {
                        if poisoned {
                            world.reopen();
                        }
                        let stored = world.stored(&request);
                        assert!(matches!(stored.as_deref(), None | Some("first")), "{name}: {stored:?}");
                    }
                }
                let stats = world.store.stats();
                assert_eq!((stats.live_claims, stats.unsynced), (0, 0), "left behind: {name}");
                !fired.is_empty()
            });
        }
    }
}

#[test]
fn a_value_that_landed_although_its_write_failed_is_never_replaced() {
    for durability in ALL {
        let request = Request::new("k").durability(durability);
        for landed in [true, false] {
            let world = World::new();
            let claim = world.grant(&request);
            // The write, and the read that would settle its fate. A claim in memory and one that is stored make
            // the same two calls.
            let fault = if landed { Fault::FailAfter } else { Fault::FailBefore };
            world.faulty.arm(0, 2, fault);
            let error = claim.complete("first").expect_err("its write and the look after it failed");
            assert_eq!(world.faulty.disarm(), ["commit", "read"]);
            let claim = error.into_claim().expect("its fate is unknown, so it comes back");
            let again = claim.complete("second");
            if landed {
                assert!(
                    matches!(again, Err(SettleError::AlreadySettled(_))),
                    "rule 17: an applied completion is never replaced: {durability:?}: {again:?}"
                );
            } else {
                assert!(again.is_ok(), "P9 fail closed: an error freed the key: {again:?}");
            }
            let expected = if landed { "first" } else { "second" };
            assert_eq!(world.stored(&request).as_deref(), Some(expected), "{durability:?}");
        }
    }
}

#[test]
fn a_key_is_not_freed_by_a_settle_that_failed() {
    for request in requests() {
        let world = World::new();
        let claim = world.grant(&request);
        world.faulty.arm(0, 2, Fault::FailBefore);
        let error = claim.complete("first").expect_err("its write failed");
        world.faulty.disarm();
        let told = world.store.claim(&request).unwrap();
        assert!(matches!(told, Outcome::InFlight(_)), "P9 fail closed: an error freed the key: {told:?}");
        assert_eq!(world.store.get("k").unwrap(), None);
        let again = error.into_claim().expect("its fate is unknown, so it comes back").complete("first");
        assert!(again.is_ok(), "P9 fail closed: an error freed the key: {again:?}");
        assert_eq!(world.stored(&request).as_deref(), Some("first"));
    }
}

#[test]
fn a_look_that_fails_says_so_and_changes_nothing() {
    let world = World::new();
    world.grant(&Request::new("k")).complete("done").unwrap();
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        world.faulty.arm(0, 1, fault);
        let error = world.store.get("k").expect_err("reading failed").to_string();
        assert!(error.contains("reading key#") && error.contains("on purpose"), "{error}");
        world.faulty.arm(0, 1, fault);
        let scanned: Vec<_> = world.store.scan("", "").unwrap().collect();
        assert_eq!(scanned.len(), 1, "the error, and the end");
        assert!(scanned[0].is_err());
        world.faulty.arm(0, 1, fault);
        assert!(world.store.remove("k").is_err());
        world.faulty.disarm();
        assert_eq!(world.stored(&Request::new("k")).as_deref(), Some("done"));
    }
    assert_eq!(world.store.stats().entries, 0);
}

#[test]
fn a_failed_removal_is_removed_or_not_and_nothing_between() {
    at_every_call(1, |name, arm| {
        let mut world = World::new();
        world.grant(&Request::new("k")).complete("done").unwrap();
        arm(&world.faulty);
        let told = unwound(|| world.store.remove("k"));
        let fired = world.faulty.disarm();
        // A removal that failed asked for a sync of its own, which may be at it still.
        let _ = world.store.sync();
        if world.store.stats().poisoned {
            assert!(matches!(told, Some(Err(_))), "P4 durable before told: {name}: {told:?}");
            world.reopen();
        }
        let stored = world.stored(&Request::new("k"));
        match told {
            Some(Ok(removed)) => assert!(removed && stored.is_none(), "{name}: {stored:?}"),
            Some(Err(_)) | None => assert!(matches!(stored.as_deref(), None | Some("done")), "{name}"),
        }
        assert_eq!(world.store.stats().entries, 0, "{name}");
        !fired.is_empty()
    });
}

/// Found by the simulator, whose smallest program this is. The mark of the settle that failed stood until somebody
/// synced; claims for other work were told that they mismatched, and none of them did.
#[test]
fn a_settle_that_failed_and_was_given_up_mismatches_nobody() {
    let faulty = Faulty::new();
    let builder = Store::builder(faulty.clone()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    let store = builder.open().unwrap();
    let request = |work: &str| Request::new("k").fingerprint(Fingerprint::of_bytes(work));
    let first = request("first").durability(Durability::Relaxed);
    let claim = store.claim(first).unwrap().granted().unwrap();
    faulty.arm(0, 1, Fault::FailBefore);
    let given_back = claim.complete("done").unwrap_err();
    assert_eq!(faulty.disarm(), ["commit"]);
    drop(given_back);
    let told = store.claim(request("other")).unwrap();
    let granted = matches!(told, Outcome::Granted(_));
    assert!(
        granted,
        "P6 never stuck: nobody has the key, and it was never settled; a claim was told {told:?}"
    );
}

/// A claim is stored and told as failed; that of the next claimant is not stored, and is told so no better: it is the first
/// one's record that is there, and nobody was granted either.
#[test]
fn two_claims_that_were_never_granted_in_a_row_cost_no_attempt() {
    let quarantine = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    for request in [Request::new("k"), quarantine, Request::new("k").max_attempts(1)] {
        for fault in [Fault::FailBefore, Fault::FailAfter, Fault::PanicBefore, Fault::PanicAfter] {
            let world = World::new();
            world.faulty.arm(1, 2, Fault::FailAfter);
            world.store.claim(&request).expect_err("its write and the look after it failed");
            assert_eq!(world.faulty.disarm(), ["commit", "read"]);
            world.faulty.arm(1, 2, fault);
            assert!(!matches!(unwound(|| world.store.claim(&request)), Some(Ok(_))), "P9 fail closed");
            assert_eq!(world.faulty.disarm()[0], "commit", "{fault:?}, {request:?}");
            let told = world.store.claim(request.clone().wait(HOUR)).unwrap();
            let Outcome::Granted(claim) = told else {
                panic!("rule 15: {fault:?}: {told:?}, and nobody was granted the key before")
            };
            assert_eq!(claim.attempt(), 1, "rule 15: {fault:?}: nobody was granted the one before");
            claim.complete("done").unwrap();
            assert_eq!(world.store.stats().entries, 0, "left behind");
        }
    }
}

#[test]
fn a_key_that_was_removed_is_not_told_as_released_by_a_write_that_failed() {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let world = World::new();
        let claim = world.grant(&Request::new("k"));
        assert!(world.store.remove_by_force("k").unwrap());
        world.faulty.arm(0, 1, fault);
        let told = claim.release();
        assert_eq!(world.faulty.disarm(), ["commit"]);
        let Err(SettleError::Retry(retry)) = told else {
            panic!("P3 fenced: {fault:?}: a holder whose key was removed was told {told:?}")
        };
        assert!(matches!(retry.claim.release(), Err(SettleError::Lost(_))), "P3 fenced: {fault:?}");
    }
}
