//! Claims that race with one another, with records that move under them, and with time.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::{
    AllClaimed, Claim, Clock, Durability, ManualClock, Moment, Outcome, Request, SettleError, Settled,
    Signal, Store, SyncBy, WallTime,
};
use hooks::{At, Hooked, until};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn open(place: &Hooked, clock: &(impl Clock + Clone + 'static)) -> Store {
    Store::builder(place.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap()
}

fn world() -> (Store, ManualClock, Hooked) {
    let (clock, place) = (ManualClock::new(), Hooked::new());
    (open(&place, &clock), clock, place)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

fn in_flight(told: &Outcome) -> bool {
    matches!(told, Outcome::InFlight(_))
}

#[test]
fn a_record_that_vanishes_under_a_claim_leaves_a_grant_that_is_stored() {
    let (store, clock, place) = world();
    let old = grant(&store, "k");
    clock.advance(30 * SEC);
    // The record that the claimant has read is released before it is swapped.
    place.on(At::Commit, move || old.release().unwrap());
    let claim = grant(&store, "k");
    assert!(in_flight(&store.claim("k").unwrap()), "P1 one holder");
    let token = claim.token();
    place.mem.crash();
    let again = grant(&open(&place, &clock), "k");
    let previous = again.previous().map(|previous| previous.token);
    assert_eq!(previous, Some(token), "CR-04: a grant was told that no record stands behind");
}

#[test]
fn a_claim_that_is_taken_back_was_never_taken_for_done() {
    let (store, clock, place) = world();
    let old = grant(&store, "b");
    clock.advance(30 * SEC);
    let (tell, told) = mpsc::channel();
    let (looker, inner) = (store.clone(), place.clone());
    // All of `a` and `b` are asked for; `a` lands, and `b` is refused because its old holder was quicker.
    place.on(At::Commit, move || {
        old.complete("old").unwrap();
        inner.on(At::Committed, move || tell.send(looker.claim("a").unwrap()).unwrap());
    });
    let answer = store.claim_all(["a", "b"]).unwrap();
    assert!(
        matches!(&answer, AllClaimed::Refused { index: 1, outcome: Outcome::Settled(_) }),
        "rule 24: {answer:?}"
    );
    let told = told.recv().unwrap();
    assert!(in_flight(&told), "CR-05: a claim that was not certain was told as {told:?}");
    let claim = grant(&store, "a");
    assert_eq!((claim.attempt(), claim.previous()), (1, None), "CR-05: it was taken back, and left a trace");
}

#[test]
fn what_was_taken_before_the_one_that_was_refused_is_given_back() {
    for durability in ALL {
        for refused in 0..5 {
            let (store, _clock, place) = world();
            let keys = ["a", "b", "c", "d", "e"];
            let request = |key: &str| Request::new(key).durability(durability);
            let free = |store: &Store| {
                for key in keys.into_iter().filter(|key| *key != keys[refused]) {
                    let claim = grant(store, request(key));
                    assert_eq!((claim.attempt(), claim.previous()), (1, None), "DL-03: {key} left a trace");
                    claim.release().unwrap();
                }
            };
            let held = grant(&store, request(keys[refused]));
            match store.claim_all(keys.map(request)).unwrap() {
                AllClaimed::Refused { index, outcome: Outcome::InFlight(_) } => assert_eq!(index, refused),
                other => panic!("DL-03: {other:?}"),
            }
            free(&store);
            held.release().unwrap();
            if durability == Durability::Full {
                place.break_key(Some(keys[refused]));
                let told = store.claim_all(keys.map(request)).expect_err("DL-03: its write failed");
                assert!(told.to_string().contains("on purpose"), "DL-03: the real error is hidden: {told}");
                free(&store);
            }
            assert_eq!(store.stats().entries, 0, "DL-03");
        }
    }
}

#[test]
fn a_key_does_not_count_against_itself() {
    for durability in ALL {
        let (store, clock, _) = world();
        let scope = store.scope("s").unwrap().max_live(1).durability(durability);
        drop(scope.claim("k").unwrap().granted().unwrap());
        let again = scope.claim("k").expect("CR-11: a dropped key stood in its own way");
        let held = again.granted().unwrap();
        clock.advance(30 * SEC);
        let again = scope.claim("k").expect("CR-11: an expired key stood in its own way");
        assert!(scope.claim("other").is_err(), "the bound is kept");
        drop((held, again));
    }
}

#[test]
fn a_thousand_keys_held_at_once_do_not_meet() {
    // Many more than there are shards, so many keys share a lock.
    let (store, _clock, _) = world();
    let held: Vec<_> = (0..1000)
        .map(|n| Request::new(format!("k{n}")).durability(Durability::Result))
        .map(|request| store.claim(request).unwrap().granted().expect("KE-03: another key was in the way"))
        .collect();
    assert_eq!(store.stats().live_claims, 1000, "ML-04: live claims were pushed out");
    for claim in &held {
        assert!(in_flight(&store.claim(claim.key()).unwrap()), "ML-04: a live claim was pushed out");
    }
}

#[test]
fn a_lease_has_nothing_to_do_with_the_retention() {
    for durability in ALL {
        let (store, clock, _) = world();
        let request = Request::new("k").durability(durability).lease(SEC).retention(86_400 * SEC);
        let dead = grant(&store, &request);
        clock.advance(SEC);
        let claim = grant(&store, &request);
        claim.complete("done").unwrap();
        clock.advance(86_399 * SEC);
        assert!(store.get("k").unwrap().is_some(), "P8 remembered: a lease cut the retention short");
        drop(dead);
    }
}

#[test]
fn a_key_that_is_being_taken_is_not_free_however_long_that_takes() {
    let (store, clock, place) = world();
    let (tell, told) = mpsc::channel();
    let (looker, hand) = (store.clone(), clock.clone());
    place.on(At::Commit, move || {
        hand.advance(YEAR);
        tell.send(looker.claim("k").unwrap()).unwrap();
    });
    let claim = grant(&store, "k");
    match told.recv().unwrap() {
        Outcome::InFlight(holder) => {
            assert_eq!((holder.token(), holder.remaining()), (None, Duration::ZERO));
        }
        other => panic!("P1 one holder: LE-03: {other:?}"),
    }
    assert_eq!(claim.remaining(), 30 * SEC, "rule 15: storage ate the lease");
}

#[test]
fn a_holder_that_outlives_its_lease_is_refused_and_counted() {
    for durability in ALL {
        let (store, clock, _) = world();
        let request = Request::new("k").durability(durability).lease(SEC);
        let slow = grant(&store, &request);
        clock.advance(3 * SEC / 2);
        let rival = grant(&store, &request);
        clock.advance(SEC / 2);
        assert!(slow.renew(SEC).is_err(), "P3 fenced");
        assert!(rival.token() > slow.token(), "P2 ordered tokens");
        let told = slow.complete("slow");
        assert!(matches!(told, Err(SettleError::Lost(lost)) if lost.by() == Some(rival.token())));
        let stats = store.stats();
        assert_eq!((stats.reclaimed, stats.refused_late), (1, 1), "LE-04: the overrun was not counted");
        rival.complete("rival").unwrap();
    }
}

/// A clock on which much time passes after a certain reading: a thread that was paused there.
#[derive(Debug, Clone)]
struct Pausing {
    clock: ManualClock,
    readings_left: Arc<Mutex<Option<usize>>>,
}

impl Clock for Pausing {
    fn now(&self) -> Moment {
        let now = self.clock.now();
        let mut left = self.readings_left.lock().unwrap();
        match *left {
            Some(0) => {
                *left = None;
                self.clock.advance(60 * SEC);
            }
            Some(n) => *left = Some(n - 1),
            None => {}
        }
        now
    }

    fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    fn wait(&self, signal: &Arc<Signal>, deadline: Moment) {
        self.clock.wait(signal, deadline);
    }
}

#[test]
fn a_claimant_paused_anywhere_has_its_whole_lease_or_is_refused() {
    for durability in ALL {
        let claim_with_pause = |after: usize| {
            let clock = Pausing { clock: ManualClock::new(), readings_left: Arc::default() };
            let store = open(&Hooked::new(), &clock);
            let request = Request::new("k").durability(durability);
            *clock.readings_left.lock().unwrap() = Some(after);
            let claim = grant(&store, &request);
            let left = clock.readings_left.lock().unwrap().take();
            (store, request, claim, left)
        };
        const NEVER: usize = 1000;
        let (.., undisturbed, left) = claim_with_pause(NEVER);
        let readings = NEVER - left.expect("it was not paused");
        assert!(readings >= 2, "the clock was hardly read");
        drop(undisturbed);
        for pause in 0..readings {
            let (store, request, claim, _) = claim_with_pause(pause);
            let rival = store.claim(&request).unwrap();
            if pause + 1 < readings {
                assert_eq!(claim.remaining(), 30 * SEC, "LE-06: the lease began before the grant");
                assert!(in_flight(&rival), "P1 one holder: {rival:?}");
                claim.complete("done").unwrap();
            } else {
                // After the last look at the clock, which is as good as after the grant.
                let rival = rival.granted().expect("P6 never stuck");
                assert!(matches!(claim.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
                rival.complete("done").unwrap();
            }
            assert!(matches!(store.claim(&request).unwrap(), Outcome::Settled(Settled::Completed(_))));
        }
    }
}

#[test]
fn a_claim_that_lapses_before_its_work_begins_is_counted_and_keep_alive_prevents_it() {
    let (store, clock, _) = world();
    let queued = grant(&store, Request::new("queued").lease(65 * SEC));
    let kept = grant(&store, Request::new("kept").lease(65 * SEC));
    kept.keep_alive(3600 * SEC).unwrap();
    for _ in 0..4 {
        clock.advance(33 * SEC);
        until("it is renewed", || kept.remaining() > 33 * SEC);
    }
    assert!(in_flight(&store.claim("kept").unwrap()), "LE-15: it lapsed although it was kept alive");
    let duplicate = grant(&store, "queued");
    assert!(matches!(queued.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
    let stats = store.stats();
    assert_eq!((stats.reclaimed, stats.refused_late), (1, 1), "LE-15: the lapse was not counted");
    duplicate.complete("done").unwrap();
    kept.complete("done").unwrap();
}
