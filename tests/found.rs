//! What was found by trying to break it: each stays as a test of what must hold.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)] // threads from outside

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::Mem;
use claimdb::{
    Claim, Durability, EndedBy, ExpiredLease, LiveClaims, LossCause, ManualClock, OnInterrupt, Outcome,
    Request, Resolution, SettleError, Store, WallTime,
};
use hooks::{At, Hooked};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

fn world() -> (Store, ManualClock) {
    let clock = ManualClock::new();
    (Store::builder(Mem::new()).clock(clock.clone()).open().unwrap(), clock)
}

#[test]
#[cfg(feature = "sled")]
fn nothing_is_acknowledged_in_a_folder_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let first = Store::open(&path).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let second = Store::open(&path).unwrap();
    let told = first.claim("k").map(|outcome| outcome.granted().is_some());
    assert!(told.is_err(), "P4 durable before told: a claim was granted in a folder that is gone");
    drop(first);
    assert!(!path.join("clean").exists(), "the old opening wrote into the folder of the new one");
    second.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
    second.close().unwrap();
    assert!(Store::open(&path).unwrap().get("k").unwrap().is_some());
}

#[test]
fn a_refused_claim_of_several_keys_leaves_nothing_behind() {
    let (store, _clock) = world();
    let hot = store.claim("z-hot").unwrap().granted().unwrap();
    for n in 0..100 {
        let refused = store.claim_all([format!("fresh-{n}"), "z-hot".to_owned()]).unwrap();
        assert!(matches!(refused, claimdb::AllClaimed::Refused { index: 1, .. }));
    }
    assert_eq!(store.stats().entries, 1, "memory goes back to its base");
    drop(hot);
}

#[test]
fn a_claim_of_several_keys_that_waited_knows_what_ended_before() {
    for durability in [Durability::Full, Durability::Result] {
        let (store, clock) = world();
        let request = Request::new("k").durability(durability).wait(3600 * SEC);
        let old = store.claim(&request).unwrap().granted().unwrap();
        let waiter = {
            let (store, request) = (store.clone(), request.clone());
            std::thread::spawn(move || match store.claim_all([request]).unwrap() {
                claimdb::AllClaimed::Granted(claims) => {
                    (claims[0].attempt(), claims[0].previous().map(|previous| previous.ended_by))
                }
                other => panic!("{other:?}"),
            })
        };
        while clock.waiting() == 0 {
            std::thread::yield_now();
        }
        clock.advance(30 * SEC);
        assert_eq!(waiter.join().unwrap(), (2, Some(EndedBy::LeaseOver)), "{durability:?}");
        drop(old);
    }
}

#[test]
fn what_changes_nothing_leaves_an_expired_holder_its_right_to_settle() {
    let (store, clock) = world();
    let request = Request::new("k").durability(Durability::Result);
    let claim = store.claim(&request).unwrap().granted().unwrap();
    clock.advance(31 * SEC);
    assert!(!store.remove("k").unwrap());
    assert!(!store.resolve("k", claim.token(), claimdb::Resolution::omitted()).unwrap());
    claim.complete("late").unwrap();
    // A holder that is dropped while its place is kept for it takes that with it.
    let claim = store.claim(Request::new("m").durability(Durability::Result)).unwrap().granted().unwrap();
    clock.advance(31 * SEC);
    drop(claim);
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_loss_signal_follows_a_lease_that_was_shortened() {
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (store, clock) = world();
    let claim = store.claim("k").unwrap().granted().unwrap();
    let lost = claim.lost();
    claim.renew(SEC).unwrap();
    clock.advance(SEC);
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    let mut raised = pin!(lost.raised());
    loop {
        match raised.as_mut().poll(&mut Context::from_waker(&waker)) {
            std::task::Poll::Ready(cause) => break assert_eq!(cause, LossCause::LeaseOver),
            std::task::Poll::Pending => std::thread::park_timeout(60 * SEC),
        }
    }
}

#[test]
fn all_who_close_at_once_are_told_at_once() {
    let store = Store::builder(Mem::new()).sync_limit(3600 * SEC).open().unwrap();
    store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
    let closers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            std::thread::spawn(move || store.close())
        })
        .collect();
    for closer in closers {
        closer.join().unwrap().unwrap();
    }
}

#[test]
fn a_waker_that_panics_harms_its_task_alone() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let store = Store::builder(Mem::new()).open().unwrap();
    let mut claim = Box::pin(store.claim_async("k"));
    let _ = claim.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Panics))));
    store.claim("other").unwrap().granted().unwrap().complete("done").unwrap();
    drop(claim);
    store.close().unwrap();
}

#[test]
fn a_clock_set_back_brings_no_forgotten_result_to_life_under_a_claim() {
    let (store, clock) = world();
    let request = Request::new("k").durability(Durability::Result).retention(SEC);
    store.claim(&request).unwrap().granted().unwrap().complete("old").unwrap();
    clock.advance(SEC);
    let claim = store.claim(&request).unwrap().granted().unwrap();
    clock.set_wall(WallTime::from_unix_millis(0));
    claim.complete("new").unwrap();
    match store.claim(&request).unwrap() {
        Outcome::Settled(settled) => {
            assert_eq!(settled.completed().unwrap().decode::<String>().unwrap(), "new");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_of_another_store_is_judged_by_that_ones_limits() {
    let small = Store::builder(Mem::new()).value_limit(10).open().unwrap();
    let large = Store::builder(Mem::new()).open().unwrap();
    let claim = large.claim("k").unwrap().granted().unwrap();
    let told = small.complete_many([(claim, "x".repeat(100))]);
    assert!(told.into_iter().all(|told| told.is_ok()));
    assert!(large.get("k").unwrap().is_some());
}

#[test]
fn a_renewal_of_an_interrupted_claim_says_that_its_lease_is_over() {
    let (store, clock) = world();
    let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    let claim = store.claim(&request).unwrap().granted().unwrap();
    clock.advance(31 * SEC);
    assert!(matches!(store.claim(&request).unwrap(), Outcome::Interrupted(_)));
    assert!(matches!(claim.renew(SEC), Err(claimdb::ExpiredLease::Expired { .. })));
    assert!(matches!(claim.release(), Err(SettleError::Interrupted(_))));
}

#[test]
fn holding_for_longer_than_the_bound_is_refused() {
    let (store, clock) = world();
    let claim = store.claim(Request::new("k").lease(100 * SEC)).unwrap().granted().unwrap();
    clock.advance(50 * SEC);
    assert!(claim.keep_alive(40 * SEC).is_err());
    assert_eq!(claim.remaining(), 50 * SEC, "refused, it changes nothing");
}

#[test]
fn a_release_of_a_lost_claim_says_so() {
    for durability in [Durability::Full, Durability::Result] {
        let (store, clock) = world();
        let request = Request::new("k").durability(durability);
        let old = store.claim(&request).unwrap().granted().unwrap();
        clock.advance(30 * SEC);
        let new = store.claim(&request).unwrap().granted().unwrap();
        assert!(matches!(old.release(), Err(SettleError::Lost(_))), "P3 fenced: {durability:?}");
        assert!(matches!(store.claim(&request).unwrap(), Outcome::InFlight(_)), "the new one has it");
        new.release().unwrap();
    }
}

#[test]
fn a_release_that_lands_before_a_takeover_leaves_the_first_attempt() {
    let (clock, hooked) = (ManualClock::new(), Hooked::new());
    let store = Store::builder(hooked.clone()).clock(clock.clone()).open().unwrap();
    let late = store.claim("k").unwrap().granted().unwrap();
    clock.advance(30 * SEC);
    let told = Arc::new(Mutex::new(None));
    let release = {
        let told = Arc::clone(&told);
        move || *told.lock().unwrap() = Some(late.release())
    };
    // The one who takes over has taken the place and seen the pending record, and is about to swap it.
    hooked.on(At::Commit, release);
    let next = store.claim("k").unwrap().granted().unwrap();
    let told = told.lock().unwrap().take().unwrap();
    assert!(told.is_ok(), "nobody else was granted the key: {told:?}");
    assert_eq!((next.attempt(), next.previous()), (1, None), "rule 14: a released key counts no attempts");
}

#[test]
fn an_abandoned_record_that_was_swept_counts_no_attempt_whether_or_not_its_guard_is_alive() {
    for alive in [true, false] {
        let clock = ManualClock::new();
        let builder = Store::builder(Mem::new()).clock(clock.clone()).sweep_every(Duration::ZERO);
        let store = builder.open().unwrap();
        let late = Some(store.claim("k").unwrap().granted().unwrap()).filter(|_| alive);
        clock.advance(86_400 * SEC);
        assert_eq!(store.sweep(10).unwrap().deleted, 1);
        assert_eq!(store.claim("k").unwrap().granted().unwrap().attempt(), 1, "alive: {alive}");
        drop(late);
    }
}

/// What ends a claim, and what is to be told of it.
type Ends = (&'static str, LossCause, fn(&Store, &ManualClock));

#[test]
fn the_cause_of_a_loss_is_the_true_one_whenever_it_is_asked() {
    let ends: [Ends; 7] = [
        ("removed by force", LossCause::Removed, |store, _| {
            assert!(store.remove_by_force("k").unwrap());
        }),
        ("its scope was emptied", LossCause::Removed, |store, _| {
            store.scope("").unwrap().empty(LiveClaims::Fence).unwrap();
        }),
        ("removed when over", LossCause::Removed, |store, clock| {
            clock.advance(30 * SEC);
            assert!(store.remove("k").unwrap());
        }),
        ("resolved", LossCause::Removed, |store, clock| {
            clock.advance(30 * SEC);
            let Outcome::Interrupted(case) = store.claim("k").unwrap() else { panic!("it is quarantined") };
            assert!(store.resolve("k", case.token(), Resolution::released()).unwrap());
        }),
        ("taken over", LossCause::TakenOver, |store, clock| {
            clock.advance(30 * SEC);
            drop(store.claim("k").unwrap().granted().unwrap());
        }),
        ("closed", LossCause::Closed, |store, _| store.close().unwrap()),
        ("its lease is over", LossCause::LeaseOver, |_, clock| clock.advance(30 * SEC)),
    ];
    for (name, cause, end) in ends {
        for then in ["nothing", "claimed again", "closed"] {
            let cause = match (cause, then) {
                (LossCause::Closed, "claimed again") => continue,
                (LossCause::LeaseOver, "claimed again") => LossCause::TakenOver,
                (LossCause::LeaseOver, "closed") => LossCause::Closed,
                (cause, _) => cause,
            };
            for durability in [Durability::Full, Durability::Result] {
                // A claim in memory is never interrupted, and has no record that could be removed.
                if durability == Durability::Result && ["resolved", "removed when over"].contains(&name) {
                    continue;
                }
                let (store, clock) = world();
                let request = Request::new("k").durability(durability);
                let quarantined = request.clone().on_interrupt(OnInterrupt::Quarantine);
                let request = if name == "resolved" { quarantined } else { request };
                let claim = store.claim(request).unwrap().granted().unwrap();
                end(&store, &clock);
                match then {
                    "claimed again" => drop(store.claim("k").unwrap().granted().unwrap()),
                    "closed" => store.close().unwrap(),
                    _ => {}
                }
                if cause == LossCause::Removed && then == "nothing" {
                    let told = claim.renew(SEC).unwrap_err().to_string();
                    assert!(!told.contains("another claim"), "OB-04: {name}: {told}");
                }
                let told = claim.lost().cause();
                assert_eq!(told, Some(cause), "OB-04: {name}, then {then}, {durability:?}");
            }
        }
    }
}

#[test]
fn a_holder_whose_key_is_being_taken_over_knows_that_its_lease_is_over() {
    let (clock, hooked) = (ManualClock::new(), Hooked::new());
    let store = Store::builder(hooked.clone()).clock(clock.clone()).open().unwrap();
    let late: Claim = store.claim("k").unwrap().granted().unwrap();
    clock.advance(30 * SEC);
    let told = Arc::new(Mutex::new(None));
    let ask = {
        let (told, late) = (Arc::clone(&told), late);
        move || *told.lock().unwrap() = Some((late.lost().cause(), late.renew(SEC), late))
    };
    hooked.on(At::Commit, ask);
    hooked.break_key(Some("k"));
    store.claim("k").expect_err("its write fails, so nobody was granted the key");
    hooked.break_key(None);
    let (cause, renewed, late) = told.lock().unwrap().take().unwrap();
    assert_eq!(cause, Some(LossCause::LeaseOver), "OB-04: nobody else was granted the key");
    assert!(matches!(renewed, Err(ExpiredLease::Expired { .. })), "nobody else was granted it: {renewed:?}");
    assert_eq!(late.lost().cause(), Some(LossCause::LeaseOver));
    late.complete("late").unwrap();
}

#[test]
fn what_is_forgotten_is_answered_as_absent_whether_or_not_it_was_swept() {
    type Verb = (&'static str, fn(&Store) -> String);
    let verbs: [Verb; 5] = [
        ("remove", |store| format!("{:?}", store.remove("k"))),
        ("remove by force", |store| format!("{:?}", store.remove_by_force("k"))),
        ("empty its scope", |store| format!("{:?}", store.scope("").unwrap().empty(LiveClaims::Fence))),
        ("list the scopes", |store| format!("{:?}", store.scopes())),
        ("count", |store| format!("{:?}", store.scope("").unwrap().count())),
    ];
    for (name, verb) in verbs {
        let [kept, swept, never] = [Some(false), Some(true), None].map(|sweep| {
            let clock = ManualClock::new();
            let builder = Store::builder(Mem::new()).clock(clock.clone()).sweep_every(Duration::ZERO);
            let store = builder.open().unwrap();
            if let Some(sweep) = sweep {
                store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();
                clock.advance(86_400 * SEC);
                assert!(!sweep || store.sweep(10).unwrap().deleted == 1);
            }
            verb(&store)
        });
        assert_eq!((&kept, &swept), (&never, &never), "P8: {name} depends on the sweep");
    }
}
