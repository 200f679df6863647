//! Those who do not get the key: how many are woken, what they are told, and what their leaving does to the others.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::{
    Claim, ClaimError, Durability, Fault, KeyState, ManualClock, Outcome, Request, Settled, Store, SyncBy,
};
use hooks::{At, Hooked, Woken, block_on, poll};
use std::sync::mpsc;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn world() -> (Store, ManualClock, Hooked) {
    let (clock, place) = (ManualClock::new(), Hooked::new());
    let store = Store::builder(place.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    (store, clock, place)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

fn value(outcome: Outcome) -> String {
    match outcome {
        Outcome::Settled(Settled::Completed(stored)) => stored.decode().unwrap(),
        other => panic!("expected a replay, was told {other:?}"),
    }
}

#[test]
fn a_release_wakes_one_of_a_thousand_waiters_and_asks_storage_a_bounded_number_of_times() {
    for durability in ALL {
        let (store, _clock, place) = world();
        let request = Request::new("k").durability(durability);
        let mut claim = grant(&store, &request);
        let mut waiting: Vec<_> = (0..1000)
            .map(|_| (Box::pin(store.claim_async(request.clone().wait(HOUR))), Woken::new()))
            .collect();
        for (future, woken) in &mut waiting {
            assert!(poll(future.as_mut(), woken).is_pending());
        }
        for round in 0..20 {
            let before = place.calls();
            if round % 2 == 0 {
                claim.release().unwrap()
            } else {
                drop(claim)
            }
            let woken: Vec<_> =
                waiting.iter().map(|(_, woken)| woken.count()).enumerate().filter(|(_, n)| *n > 0).collect();
            assert_eq!(woken, [(0, 1)], "WT-05: the front alone is woken, {durability:?}");
            claim = block_on(waiting.remove(0).0).unwrap().granted().expect("P6 never stuck");
            let calls = place.calls() - before;
            assert!(calls <= 6, "WT-05: {calls} calls of the engine to hand a key on");
        }
    }
}

#[test]
fn whoever_does_not_wait_is_told_in_flight_in_every_state_that_is_not_free() {
    for durability in ALL {
        let (store, clock, place) = world();
        let request = Request::new("k").durability(durability);
        let (tell, told) = mpsc::channel();
        let look = |state: KeyState| {
            let (store, request, tell) = (store.clone(), request.clone(), tell.clone());
            move || {
                let (told, seen) = (store.claim(&request).unwrap(), store.inspect("k").unwrap());
                assert_eq!(store.stats().waiters, 0, "WT-08: it was put in the queue");
                let Outcome::InFlight(holder) = told else { panic!("WT-08: {state:?}: {told:?}") };
                for remaining in [Some(holder.remaining()), seen.remaining] {
                    assert!(remaining.unwrap_or_default() <= 30 * SEC, "CK-05: {state:?}: {remaining:?}");
                }
                assert!(holder.age() <= 30 * SEC, "CK-05");
                assert_eq!(seen.state, state);
                tell.send(()).unwrap();
            }
        };
        let mut looks = 0;
        if durability == Durability::Full {
            place.on(At::Commit, look(KeyState::InMemory)); // being taken
            looks += 1;
        }
        let claim = grant(&store, &request);
        let held = if durability == Durability::Full { KeyState::Pending } else { KeyState::InMemory };
        look(held)();
        // A holder that vanished counts until its lease is over.
        clock.advance(30 * SEC - Duration::from_nanos(1));
        look(held)();
        looks += 2;
        if durability != Durability::Relaxed {
            place.on(At::Sync, look(KeyState::Settling));
            looks += 1;
        }
        claim.complete("done").unwrap();
        assert_eq!(told.try_iter().count(), looks);
        assert_eq!(value(store.claim(&request).unwrap()), "done");
    }
}

#[test]
fn what_remains_is_never_more_than_the_lease_wherever_the_clock_is() {
    for durability in ALL {
        const CENTURIES: u64 = 500 * 365 * 86_400;
        for step in [0, 1, 29, 30, 31, 86_400, CENTURIES].map(Duration::from_secs) {
            let (store, clock, _) = world();
            let request = Request::new("k").durability(durability);
            let claim = grant(&store, &request);
            clock.advance(step);
            let left = (30 * SEC).saturating_sub(step);
            assert_eq!(claim.remaining(), left, "CK-05");
            assert_eq!(store.inspect("k").unwrap().remaining, Some(left), "CK-05");
            for pending in store.pending().map(Result::unwrap) {
                assert_eq!(pending.1.remaining(), Some(left), "CK-05");
            }
            match store.claim(&request).unwrap() {
                Outcome::InFlight(holder) => assert_eq!(holder.remaining(), left, "CK-05"),
                Outcome::Granted(next) => assert_eq!((left, next.remaining()), (Duration::ZERO, 30 * SEC)),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn while_a_retry_is_waited_for_the_key_is_held_or_free_as_the_holder_chose() {
    let (store, clock, _) = world();
    // Held: the claim is kept over the pause.
    let claim = grant(&store, "held");
    claim.renew(600 * SEC).unwrap();
    clock.advance(599 * SEC);
    assert_eq!(store.inspect("held").unwrap().state, KeyState::Pending, "WT-11");
    assert!(matches!(store.claim("held").unwrap(), Outcome::InFlight(_)), "WT-11");
    claim.complete("done").unwrap();
    // Free: it is given back.
    grant(&store, "free").release().unwrap();
    assert_eq!(store.inspect("free").unwrap().state, KeyState::Absent, "WT-11");
    assert_eq!(grant(&store, "free").attempt(), 1, "WT-11");
}

#[test]
fn a_settle_whose_caller_hung_up_is_there_for_the_retry() {
    for durability in ALL {
        let (store, _clock, _) = world();
        let request = Request::new("k").durability(durability);
        let mut settle = Box::pin(grant(&store, &request).complete_async("done"));
        let _ = poll(settle.as_mut(), &Woken::new());
        drop(settle); // the client is gone
        store.sync().unwrap();
        assert_eq!(
            value(store.claim(&request).unwrap()),
            "done",
            "CN-01: the work was done and not recorded"
        );
    }
    // And one who hangs up in the middle of the work is told of to the next.
    let (store, _clock, _) = world();
    let claim = grant(&store, "k");
    let token = claim.token();
    let mut work = Box::pin(async move {
        std::future::pending::<()>().await;
        claim.complete("done").unwrap();
    });
    assert!(poll(work.as_mut(), &Woken::new()).is_pending());
    drop(work);
    let next = grant(&store, "k");
    assert_eq!((next.attempt(), next.previous().map(|previous| previous.token)), (2, Some(token)), "CN-01");
}

#[test]
fn a_joiner_that_cancels_takes_nothing_from_the_holder() {
    for durability in ALL {
        let (store, _clock, _) = world();
        let request = Request::new("k").durability(durability);
        let claim = grant(&store, &request);
        for joiners in 1..4 {
            let woken = Woken::new();
            let mut futures: Vec<_> =
                (0..joiners).map(|_| Box::pin(store.claim_async(request.clone().wait(HOUR)))).collect();
            for future in &mut futures {
                assert!(poll(future.as_mut(), &woken).is_pending());
            }
            while !futures.is_empty() {
                drop(futures.swap_remove(0));
                let told = store.claim(&request).unwrap();
                assert!(matches!(told, Outcome::InFlight(_)), "P1 one holder: CN-03: {told:?}");
            }
            assert_eq!(store.stats().waiters, 0);
        }
        claim.complete("done").unwrap();
        assert_eq!(value(store.claim(&request).unwrap()), "done");
    }
}

#[test]
fn a_holder_that_gives_up_because_nobody_waits_strands_nobody_who_came_meanwhile() {
    let ends: [fn(Claim); 2] = [drop, |claim| claim.release().unwrap()];
    for durability in ALL {
        for end in ends {
            let (store, _clock, _) = world();
            let request = Request::new("k").durability(durability);
            let claim = grant(&store, &request);
            assert_eq!(store.inspect("k").unwrap().waiters, 0);
            let mut joiner = Box::pin(store.claim_async(request.clone().wait(HOUR)));
            assert!(poll(joiner.as_mut(), &Woken::new()).is_pending());
            end(claim); // on what it had seen before
            let next = block_on(joiner).unwrap().granted().expect("P6 never stuck: CN-05");
            next.complete("done").unwrap();
        }
    }
}

#[test]
fn however_a_holder_leaves_its_key_is_free() {
    fn early(store: &Store) -> Result<(), String> {
        let _claim = grant(store, "k");
        Err("too early".to_owned())
    }
    fn question_mark(store: &Store) -> Result<(), String> {
        let _claim = grant(store, "k");
        early_error()?;
        Ok(())
    }
    fn early_error() -> Result<(), String> {
        Err("too early".to_owned())
    }
    let exits: [fn(&Store); 6] = [
        |store| assert!(early(store).is_err()),
        |store| assert!(question_mark(store).is_err()),
        |store| {
            let store = store.clone();
            let panicked = std::thread::spawn(move || {
                let _claim = grant(&store, "k");
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            assert!(panicked.join().is_err());
        },
        |store| {
            for _ in 0..3 {
                let _claim = grant(store, "k");
                if store.stats().live_claims == 1 {
                    break;
                }
            }
        },
        |store| {
            let claim = grant(store, "k");
            let mut task = Box::pin(async move {
                std::future::pending::<()>().await;
                drop(claim);
            });
            assert!(poll(task.as_mut(), &Woken::new()).is_pending());
        },
        |store| drop(store.run("k", |_| Err::<(), _>("no"))),
    ];
    for (n, exit) in exits.into_iter().enumerate() {
        let (store, _clock, _) = world();
        exit(&store);
        assert_eq!(store.stats().entries, 0, "PN-06: exit {n} left the key held");
        grant(&store, "k").complete("done").unwrap();
    }
}

#[test]
fn a_failure_of_storage_is_never_told_as_a_conflict_wherever_it_is_in_a_batch() {
    let keys = ["a", "b", "c", "d"];
    for broken in keys {
        let (store, _clock, place) = world();
        place.break_key(Some(broken));
        for (key, told) in keys.into_iter().zip(store.claim_many(keys)) {
            match told {
                Ok(Outcome::Granted(claim)) if key != broken => claim.complete("done").unwrap(),
                Err(ClaimError::Failed { fault: Fault::Storage(_), .. }) if key == broken => {}
                other => panic!("OB-06: {broken} failed, and {key} was told {other:?}"),
            }
        }
        let alone = store.claim(broken);
        assert!(
            matches!(alone, Err(ClaimError::Failed { fault: Fault::Storage(_), .. })),
            "OB-06: {alone:?}"
        );
        place.break_key(None);
        assert_eq!(grant(&store, broken).attempt(), 1, "P9 fail closed");
    }
}
