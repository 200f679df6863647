//! Holders that are too late, cut off, renewed, or that end in an unusual way.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)]
mod hooks;

use claimdb::backend::{Backend, Mem};
use claimdb::{
    Claim, Durability, ExpiredLease, LossCause, ManualClock, Outcome, Request, RunError, SettleError, Store,
    Token,
};
use faults::{Fault, Faulty};
use hooks::until;
use std::ops::ControlFlow;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn world() -> (Store, ManualClock, Faulty) {
    let (clock, faulty) = (ManualClock::new(), Faulty::new());
    let store = Store::builder(faulty.clone()).clock(clock.clone()).sweep_every(Duration::ZERO).open();
    (store.unwrap(), clock, faulty)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

fn is_held(store: &Store, request: &Request, by: Token) {
    match store.claim(request).unwrap() {
        Outcome::InFlight(holder) => assert_eq!(holder.token(), Some(by), "P1 one holder"),
        other => panic!("P3 fenced: a stale holder ended another's claim: {other:?}"),
    }
}

#[test]
fn a_release_that_is_tried_again_ends_no_newer_claim() {
    for landed in [true, false] {
        let (store, clock, faulty) = world();
        let request = Request::new("k");
        let first = grant(&store, &request);
        // The release lands or not, and nobody is told which.
        faulty.arm(0, 2, if landed { Fault::FailAfter } else { Fault::FailBefore });
        let unclear = first.release().expect_err("its write and the look after it failed");
        faulty.disarm();
        store.sync().unwrap(); // a settle that failed has asked for one, and its key is in flight until then
        clock.advance(30 * SEC);
        let second = grant(&store, &request);
        let again = unclear.into_claim().expect("its fate is unknown").release();
        assert!(
            matches!(&again, Err(SettleError::Lost(lost)) if lost.by() == Some(second.token())),
            "P3 fenced: FN-02: {again:?}"
        );
        is_held(&store, &request, second.token());
        second.complete("done").unwrap();
    }
}

#[test]
fn each_win_has_a_token_of_its_own_and_an_older_one_ends_nothing() {
    let ends: [fn(Claim); 4] = [
        drop,
        |claim| assert!(matches!(claim.release(), Err(SettleError::Lost(_))), "P3 fenced"),
        |claim| assert!(matches!(claim.complete("late"), Err(SettleError::Lost(_))), "P3 fenced"),
        |claim| {
            claim.renew(SEC).expect_err("P3 fenced");
            claim.keep_alive(SEC).expect_err("P3 fenced");
        },
    ];
    for durability in ALL {
        for end in ends {
            let (store, clock, _) = world();
            let request = Request::new("k").durability(durability);
            let first = grant(&store, &request);
            clock.advance(30 * SEC);
            let second = grant(&store, &request);
            assert!(second.token() > first.token(), "P2 ordered tokens: FN-09");
            end(first);
            is_held(&store, &request, second.token());
            assert_eq!(second.remaining(), 30 * SEC);
            second.complete("done").unwrap();
        }
    }
}

#[test]
fn a_release_says_what_became_of_it() {
    let (store, clock, faulty) = world();
    grant(&store, "mine").release().unwrap();
    let late = grant(&store, "late");
    clock.advance(30 * SEC);
    let holder = grant(&store, "late");
    let told = late.release();
    assert!(
        matches!(told, Err(SettleError::Lost(lost)) if lost.by() == Some(holder.token())),
        "OB-03: not owner"
    );
    let gone = grant(&store, "gone");
    assert!(store.remove_by_force("gone").unwrap());
    let told = gone.release();
    assert!(matches!(told, Err(SettleError::Lost(lost)) if lost.by().is_none()), "OB-03: already free");
    let done = grant(&store, "done");
    faulty.arm(0, 2, Fault::FailAfter);
    let unclear = done.complete("done").unwrap_err();
    faulty.disarm();
    let told = unclear.into_claim().unwrap().release();
    assert!(matches!(told, Err(SettleError::AlreadySettled(_))), "OB-03: already settled: {told:?}");
    is_held(&store, &Request::new("late"), holder.token());
}

#[test]
fn tokens_rise_without_anything_being_kept_for_a_key() {
    let (mem, clock) = (Mem::new(), ManualClock::new());
    let store = Store::builder(mem.clone()).clock(clock.clone()).sweep_every(Duration::ZERO).open().unwrap();
    let mut last = Token::new(0);
    for n in 0..3000 {
        let durability = ALL[n % 3];
        let claim = grant(&store, Request::new(format!("k{n}")).durability(durability));
        assert!(claim.token() > last, "P2 ordered tokens");
        last = claim.token();
        if n % 2 == 0 {
            claim.release().unwrap();
        } else {
            claim.complete("done").unwrap();
            assert!(store.remove(format!("k{n}")).unwrap());
        }
    }
    assert_eq!(store.stats().entries, 0, "FN-05: memory is not back at its base");
    clock.advance(86_400 * SEC); // the retention, at whose end the index forgets what was removed before
    while store.sweep(1000).unwrap().more {}
    store.close().unwrap();
    let mut stored = 0;
    let mut count = |key: &[u8], _: &[u8]| {
        stored += usize::from(key[0] != 0); // but for what the store keeps about itself
        ControlFlow::Continue(())
    };
    mem.open().unwrap().scan(b"", None, &mut count).unwrap();
    assert_eq!(stored, 0, "FN-05: keys that are gone left something behind");
}

#[test]
fn a_holder_that_is_cut_off_knows_by_its_own_clock_and_is_refused_by_the_target() {
    /// What the work changes: it refuses tokens below the greatest that it has seen.
    #[derive(Default)]
    struct Target(u64);
    impl Target {
        fn write(&mut self, token: Token) -> bool {
            let accepted = token.get() >= self.0;
            self.0 = self.0.max(token.get());
            accepted
        }
    }
    let (store, clock, faulty) = world();
    let mut target = Target::default();
    let cut_off = grant(&store, "k");
    let lost = cut_off.lost();
    assert!(target.write(cut_off.token()));
    faulty.arm(0, 1_000_000, Fault::FailBefore); // nothing can be reached any more
    clock.advance(30 * SEC);
    assert_eq!((cut_off.remaining(), lost.cause()), (Duration::ZERO, Some(LossCause::LeaseOver)), "FN-07");
    assert!(matches!(cut_off.renew(SEC), Err(ExpiredLease::Expired { .. })));
    assert_eq!(faulty.disarm(), [""; 0], "FN-07: storage was asked");
    let next = grant(&store, "k");
    assert!(target.write(next.token()));
    assert!(!target.write(cut_off.token()), "FN-07: the target took what a stale holder wrote");
    assert!(matches!(cut_off.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
}

#[test]
fn a_missed_renewal_is_told_before_the_next_protected_step() {
    let (store, clock, _) = world();
    let claim = grant(&store, "k");
    claim.keep_alive(3600 * SEC).unwrap();
    let lost = claim.lost();
    clock.advance(30 * SEC); // all at once: whoever was to renew it was not in time
    assert_eq!(lost.cause(), Some(LossCause::LeaseOver), "RN-03: it was not told at once");
    assert_eq!(claim.remaining(), Duration::ZERO);
    let next = grant(&store, "k");
    assert!(matches!(claim.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
    next.complete("done").unwrap();
}

#[test]
fn a_run_whose_claim_was_lost_comes_back_after_its_work_with_its_value() {
    let (store, clock, _) = world();
    let (mut next, mut cleaned) = (None, false);
    let told = store.run("k", |claim| {
        let lost = claim.lost();
        clock.advance(30 * SEC);
        // By another: the work itself may not claim its own key.
        next =
            std::thread::scope(|scope| scope.spawn(|| store.claim("k").unwrap().granted()).join().unwrap());
        assert!(lost.is_raised(), "RN-05: the work cannot tell that it should stop");
        cleaned = true; // what it began is put in order before anybody else hears of it
        Ok::<_, String>(7)
    });
    assert!(
        matches!(told, Err(RunError::Unsettled { value: 7, source: SettleError::Lost(_) })),
        "RN-05: {told:?}"
    );
    assert!(cleaned);
    next.unwrap().complete(&8).unwrap();
}

#[test]
fn a_new_win_is_renewed_whatever_was_renewed_before() {
    let (store, clock, _) = world();
    let first = grant(&store, "k");
    first.keep_alive(3600 * SEC).unwrap();
    assert!(store.remove_by_force("k").unwrap());
    let second = grant(&store, "k");
    second.keep_alive(3600 * SEC).unwrap();
    for _ in 0..4 {
        clock.advance(15 * SEC);
        until("RN-07: the new claim is renewed", || second.remaining() == 30 * SEC);
    }
    assert!(first.renew(SEC).is_err(), "P3 fenced");
    assert_eq!(first.remaining(), Duration::ZERO);
    drop(first);
    clock.advance(15 * SEC);
    until("RN-07: the new claim is renewed after the old guard went", || second.remaining() == 30 * SEC);
}

#[test]
fn keep_alive_asked_for_many_times_is_one_renewal() {
    for times in 1..=5 {
        let (store, clock, _) = world();
        let claim = grant(&store, "k");
        for _ in 0..times {
            claim.keep_alive(3600 * SEC).unwrap();
        }
        claim.keep_alive(40 * SEC).unwrap();
        clock.advance(15 * SEC);
        until("the last bound cuts it short", || claim.remaining() == 25 * SEC);
        clock.advance(15 * SEC);
        // A renewal that was left over rings now; then the timer waits on the clock again.
        until("the timer is at rest", || clock.waiting() == 1);
        clock.advance(10 * SEC);
        assert_eq!(
            claim.remaining(),
            Duration::ZERO,
            "RN-08: {times} renewals were asked for, and one was left"
        );
        drop(claim);
        assert_eq!(store.stats().entries, 0);
    }
}

#[test]
fn a_renewal_changes_neither_token_nor_record_so_a_release_is_never_too_late_for_it() {
    let (store, clock, faulty) = world();
    let claim = grant(&store, "k");
    let (token, before) = (claim.token(), faulty.stored(&[1]));
    for _ in 0..3 {
        clock.advance(SEC);
        claim.renew(60 * SEC).unwrap();
    }
    assert_eq!((claim.token(), faulty.stored(&[1])), (token, before), "RN-09");
    claim.release().unwrap();
    // And while renewals are under way.
    for n in 0..200 {
        let claim = grant(&store, "k");
        claim.keep_alive(3600 * SEC).unwrap();
        let told = std::thread::scope(|scope| {
            scope.spawn(|| clock.advance(15 * SEC));
            if n % 2 == 0 { claim.release() } else { claim.complete("done") }
        });
        assert!(told.is_ok(), "RN-09: {told:?}");
        store.remove("k").unwrap();
        assert_eq!(store.stats().live_claims, 0, "RN-01: it was renewed after its end");
    }
}

#[test]
fn a_loss_says_why() {
    let (store, clock, _) = world();
    let watched = |key: &str| {
        let claim = grant(&store, Request::new(key).durability(Durability::Result));
        let lost = claim.lost();
        (claim, lost)
    };
    let (claim, lost) = watched("expired");
    clock.advance(30 * SEC);
    assert_eq!(lost.cause(), Some(LossCause::LeaseOver), "OB-04");
    drop(claim);
    let (claim, lost) = watched("removed");
    store.remove_by_force("removed").unwrap();
    assert_eq!(lost.cause(), Some(LossCause::Removed), "OB-04");
    drop(claim);
    let claim = grant(&store, "taken");
    clock.advance(30 * SEC);
    let next = grant(&store, "taken");
    assert_eq!(claim.lost().cause(), Some(LossCause::TakenOver), "OB-04");
    drop((claim, next));
    let (claim, lost) = watched("settled");
    claim.complete("done").unwrap();
    assert_eq!(lost.cause(), Some(LossCause::Ended), "OB-04");
    let (claim, lost) = watched("closed");
    store.close().unwrap();
    assert_eq!(lost.cause(), Some(LossCause::Closed), "OB-04");
    drop(claim);
}
