//! What is remembered of a key's work, for how long, and on whose terms.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

use claimdb::backend::Mem;
use claimdb::{
    Claim, Durability, MAX_VALUE_LIMIT, ManualClock, OnInterrupt, Outcome, Refused, Request, Resolution,
    RetryCause, Run, RunError, SettleError, Settled, Store,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const MIN: Duration = Duration::from_secs(60);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn world() -> (Store, ManualClock, Mem) {
    let (clock, mem) = (ManualClock::new(), Mem::with_power_cuts());
    let store = Store::builder(mem.clone()).clock(clock.clone()).open().unwrap();
    (store, clock, mem)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

#[test]
fn an_error_of_the_work_frees_the_key_and_a_panic_is_told_unless_it_was_asked_to_be_stopped_at() {
    let (store, _clock, _) = world();
    // An error says that nothing was done: the retry is a first attempt.
    assert!(matches!(store.run("k", |_| Err::<i32, _>("no")), Err(RunError::Work("no"))));
    assert_eq!(store.run("k", |claim| Ok::<_, String>(claim.attempt())).unwrap(), Run::Fresh(1), "RP-03");
    // A panic says nothing, so the next attempt is told of it.
    let panics = |request: &Request| {
        let run = || store.run(request, |_| -> Result<(), String> { resume_unwind(Box::new("on purpose")) });
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    };
    panics(&Request::new("rerun"));
    let next = grant(&store, "rerun");
    assert!(next.attempt() == 2 && next.previous().is_some(), "CX-02: the retry was not told");
    // And whoever must not run twice unnoticed is stopped.
    let once = Request::new("once").on_interrupt(OnInterrupt::Quarantine);
    panics(&once);
    let told = store.run(&once, |_| -> Result<(), String> { unreachable!("CX-02: it ran again") });
    assert!(matches!(told, Err(RunError::Refused(Refused::Interrupted(_)))), "CX-02: {told:?}");
    // An effect that was noted before the failure is known to the next.
    let mut claim = grant(&store, "noted");
    claim.checkpoint("charged").unwrap();
    drop(claim);
    assert_eq!(grant(&store, "noted").last_checkpoint(), Some(&b"charged"[..]), "RP-03");
}

#[test]
fn work_that_must_not_run_twice_unnoticed_is_not_forgotten_before_somebody_was_told() {
    let requests = [
        Request::new("k").on_interrupt(OnInterrupt::Quarantine).retention(MIN),
        Request::new("k").max_attempts(1).retention(MIN),
    ];
    for request in requests {
        let clock = ManualClock::new();
        let builder = Store::builder(Mem::new()).clock(clock.clone()).sweep_every(Duration::ZERO);
        let store = builder.open().unwrap();
        drop(grant(&store, &request));
        clock.advance(2 * MIN);
        while store.sweep(1000).unwrap().more {}
        let told = store.claim("k").unwrap();
        let Outcome::Interrupted(case) = told else {
            panic!("CX-02: it would run again unnoticed: {told:?}")
        };
        assert!(store.resolve("k", case.token(), Resolution::omitted()).unwrap());
        clock.advance(2 * MIN);
        assert_eq!(store.get("k").unwrap(), None);
        let swept = store.sweep(1000).unwrap();
        assert_eq!(swept.deleted, 1, "once it is settled it is swept: {swept:?}");
        assert_eq!(grant(&store, &request).attempt(), 1);
    }
}

#[test]
fn a_failed_delivery_frees_its_key_unless_it_failed_for_good() {
    for durability in ALL {
        let (store, _clock, _) = world();
        let request = Request::new("k").durability(durability);
        for _ in 0..3 {
            grant(&store, &request).release().unwrap(); // TL-09: it can be delivered again
        }
        grant(&store, &request).fail("for good").unwrap();
        for _ in 0..3 {
            let told = store.claim(&request).unwrap();
            assert!(matches!(told, Outcome::Settled(Settled::Failed(_))), "P8 remembered: TL-09: {told:?}");
        }
    }
}

#[test]
fn the_retention_is_counted_from_the_end_of_the_work() {
    for durability in ALL {
        let (store, clock, mem) = world();
        let request = Request::new("k").durability(durability).lease(60 * MIN).retention(60 * MIN);
        let claim = grant(&store, &request);
        clock.advance(50 * MIN);
        claim.complete("done").unwrap();
        let settled = store.get("k").unwrap().unwrap();
        let about = settled.about();
        assert_eq!(about.forgotten_at(), about.settled_at().after(60 * MIN), "TL-06");
        store.close().unwrap();
        let store = Store::builder(mem).clock(clock.clone()).open().unwrap();
        clock.advance(60 * MIN - Duration::from_millis(1));
        assert!(store.get("k").unwrap().is_some(), "P8 remembered: TL-06");
        clock.advance(Duration::from_millis(1));
        assert_eq!(store.get("k").unwrap(), None);
    }
}

#[test]
fn each_limit_bounds_what_it_is_named_after_and_nothing_else() {
    let (store, clock, _) = world();
    let request = Request::new("k").lease(5 * SEC).retention(300 * SEC).wait(60 * SEC);
    let claim = grant(&store, &request);
    assert_eq!(claim.remaining(), 5 * SEC, "CF-06: the lease");
    claim.keep_alive(20 * SEC).unwrap();
    assert_eq!(claim.remaining(), 5 * SEC, "CF-06: max_hold bounds all renewals, not each");
    claim.complete("done").unwrap();
    clock.advance(300 * SEC - Duration::from_millis(1));
    assert!(store.get("k").unwrap().is_some(), "CF-06: the retention");
    clock.advance(Duration::from_millis(1));
    assert_eq!(store.get("k").unwrap(), None, "CF-06: the retention");
    let holder = grant(&store, Request::new("k").lease(3600 * SEC));
    assert!(
        matches!(store.claim(Request::new("k")).unwrap(), Outcome::InFlight(_)),
        "CF-06: no wait asked for"
    );
    drop(holder);
}

#[test]
fn a_key_is_what_it_was_given_whatever_the_clock_says() {
    let (store, clock, _) = world();
    // Items for two windows, made in the same moment.
    let (one, two) = (grant(&store, "report 12:00"), grant(&store, "report 12:12"));
    one.complete("a").unwrap();
    two.complete("b").unwrap();
    // And one item, presented in another.
    clock.advance(12 * MIN);
    let told = store.claim("report 12:00").unwrap();
    assert!(matches!(told, Outcome::Settled(_)), "TL-08: a clock changed the key: {told:?}");
}

#[test]
fn what_the_store_accepts_it_reads_again_whatever_its_limit_is_then() {
    for limit in [100, MAX_VALUE_LIMIT] {
        for length in [limit - 1, limit, limit + 1] {
            let (clock, mem) = (ManualClock::new(), Mem::new());
            let open = |limit| Store::builder(mem.clone()).clock(clock.clone()).value_limit(limit).open();
            let store = open(limit).unwrap();
            let value = "v".repeat(length - 8); // bincode puts the length before it
            match grant(&store, "k").complete(&value) {
                Ok(()) => assert!(length <= limit, "SZ-03: more was taken than the limit"),
                Err(SettleError::Retry(retry)) => {
                    assert!(matches!(retry.cause, RetryCause::TooLarge { .. }) && length > limit, "SZ-03");
                    continue;
                }
                Err(other) => panic!("{other:?}"),
            }
            store.close().unwrap();
            let store = open(1).unwrap();
            let settled = store.claim("k").unwrap().settled().expect("SZ-03: it was acknowledged");
            let stored = settled.completed().expect("SZ-04: whole or not at all");
            assert_eq!(stored.bytes().len(), length);
            let decoded: String = stored.decode().expect("SZ-03: it was acknowledged and cannot be read");
            assert!(decoded == value, "SZ-04: it was changed");
        }
    }
}
