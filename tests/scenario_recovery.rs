//! Openings, crashes, restored copies, and clocks that were set: what a store makes of what it finds.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::backend::{Backend, Commit, Engine, Mem};
use claimdb::{
    Builder, Claim, Durability, EndedBy, ManualClock, OnInterrupt, OpenError, Outcome, Request, RetryCause,
    SettleError, Settled, Store, Token, WallTime,
};
use faults::{Faulty, Syncs};
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn builder(place: &(impl Backend + Clone + 'static), clock: &ManualClock) -> Builder {
    Store::builder(place.clone()).clock(clock.clone()).lock_wait(Duration::ZERO)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

fn value(settled: Option<Settled>) -> Option<String> {
    settled.and_then(Settled::completed).map(|stored| stored.decode().unwrap())
}

/// Moves the wall clock alone, by whole seconds.
fn set_wall(clock: &ManualClock, seconds: i64) {
    const Y2025: i64 = 1_735_689_600;
    let millis = u64::try_from((Y2025 + seconds) * 1000).unwrap();
    clock.set_wall(WallTime::from_unix_millis(millis));
}

#[test]
fn claims_belong_to_an_opening_by_their_token_and_never_by_the_time() {
    // Nothing moves between an opening and its first claim, and the wall clock is anywhere.
    for wall in [0, -3600, 3600, -86_400 * 365] {
        let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
        let store = builder(&mem, &clock).open().unwrap();
        let dead = grant(&store, "k").token();
        mem.crash();
        set_wall(&clock, wall);
        let store = builder(&mem, &clock).open().unwrap();
        let first = grant(&store, "live");
        assert!(
            matches!(store.claim("live").unwrap(), Outcome::InFlight(_)),
            "CX-03: it adopted a live claim"
        );
        let token = first.token();
        drop(first);
        let ended = grant(&store, "live").previous().map(|previous| (previous.token, previous.ended_by));
        assert_eq!(ended, Some((token, EndedBy::Dropped)), "CX-03: it was taken for an orphan");
        let claim = grant(&store, "k");
        let ended = claim.previous().map(|previous| (previous.token, previous.ended_by));
        assert_eq!(ended, Some((dead, EndedBy::Reopened)), "CK-04: {wall} s");
        assert_eq!(claim.remaining(), 30 * SEC);
    }
}

#[test]
fn a_wall_clock_that_is_set_changes_no_lease() {
    for durability in ALL {
        let (mem, clock) = (Mem::new(), ManualClock::new());
        let store = builder(&mem, &clock).open().unwrap();
        let request = Request::new("k").lease(60 * SEC).durability(durability);
        let claim = grant(&store, &request);
        for wall in [3600, -3600, 86_400 * 365 * 50, -86_400 * 365 * 50] {
            set_wall(&clock, wall);
            assert_eq!(claim.remaining(), 60 * SEC, "CK-01: {wall} s");
            match store.claim(&request).unwrap() {
                Outcome::InFlight(holder) => assert_eq!(holder.remaining(), 60 * SEC),
                other => panic!("P5 no early takeover: CK-01: {other:?}"),
            }
        }
        clock.advance(60 * SEC);
        assert_eq!(grant(&store, &request).attempt(), 2, "P6 never stuck: CK-01");
    }
}

#[test]
fn an_opening_that_is_not_durable_answers_nothing() {
    let (faulty, clock) = (Faulty::new(), ManualClock::new());
    let store = builder(&faulty, &clock).open().unwrap();
    grant(&store, Request::new("done").durability(Durability::Relaxed)).complete("done").unwrap();
    let dead = grant(&store, "k").token();
    faulty.crash();
    for syncs in [Syncs::Fail, Syncs::Panic] {
        faulty.syncs(syncs);
        let told = builder(&faulty, &clock).open();
        assert!(matches!(told, Err(OpenError::Storage { .. })), "rule 6: CX-04: it opened");
    }
    faulty.syncs(Syncs::Work);
    let store = builder(&faulty, &clock).open().expect("a refused opening gives the place back");
    let claim = grant(&store, "k");
    assert_eq!(claim.previous().map(|previous| previous.token), Some(dead));
}

#[test]
fn of_many_that_open_a_store_at_once_one_does() {
    for _ in 0..50 {
        let (mem, clock) = (Mem::new(), ManualClock::new());
        let dead = grant(&builder(&mem, &clock).open().unwrap(), "k");
        drop(dead);
        let start = Barrier::new(8);
        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = || {
                start.wait();
                builder(&mem, &clock).open()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1, "rule 9: CX-08");
        let granted = opened.iter().flatten().filter(|store| grant(store, "k").attempt() == 2).count();
        assert_eq!(granted, 1);
    }
}

#[test]
fn attempts_used_up_by_crashes_end_in_a_state_that_is_listed_and_takes_no_room() {
    let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
    for attempt in 1..=3 {
        let store = builder(&mem, &clock).open().unwrap();
        let scope = store.scope("s").unwrap().max_live(1);
        let claim = grant(&store, scope.request("k").max_attempts(3));
        assert_eq!(claim.attempt(), attempt);
        mem.crash();
    }
    let store = builder(&mem, &clock).open().unwrap();
    let scope = store.scope("s").unwrap().max_live(1);
    let told = scope.claim("k").unwrap();
    assert!(matches!(told, Outcome::Interrupted(_)), "CX-11: the attempts were used up: {told:?}");
    assert_eq!(store.interrupted().count(), 1, "CX-11: nobody can find it");
    assert!(scope.claim("other").unwrap().granted().is_some(), "CX-11: it blocks its scope");
}

#[test]
fn a_record_is_recovered_on_the_terms_it_was_claimed_on() {
    let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
    let store = builder(&mem, &clock).open().unwrap();
    grant(&store, Request::new("short").retention(5 * SEC)).complete("x").unwrap();
    grant(&store, Request::new("long").retention(300 * SEC)).complete("x").unwrap();
    drop(grant(&store, Request::new("once").max_attempts(1)));
    drop(grant(&store, Request::new("odd").on_interrupt(OnInterrupt::Quarantine)));
    let live = grant(&store, Request::new("live").lease(5 * SEC));
    clock.advance(5 * SEC);
    assert_eq!(grant(&store, "live").attempt(), 2, "TL-10: its own lease");
    drop(live);
    mem.crash();
    let store = builder(&mem, &clock).lease(4 * HOUR).retention(4 * HOUR).open().unwrap();
    assert_eq!(store.get("short").unwrap(), None, "CF-03: a setting of today's was used");
    assert!(store.get("long").unwrap().is_some(), "P8 remembered: TL-10");
    clock.advance(295 * SEC);
    assert_eq!(store.get("long").unwrap(), None, "CF-03: a setting of today's was used");
    for key in ["once", "odd"] {
        let told = store.claim(key).unwrap();
        assert!(matches!(told, Outcome::Interrupted(_)), "rule 18: CF-03: {key}: {told:?}");
    }
}

#[test]
fn an_old_opening_is_fenced_whatever_was_cleaned_away_since() {
    for durability in ALL {
        let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
        let old = builder(&mem, &clock).open().unwrap();
        let claim = grant(&old, Request::new("k").durability(durability));
        assert!(matches!(builder(&mem, &clock).open(), Err(OpenError::Locked { .. })), "rule 9");
        mem.crash();
        let new = builder(&mem, &clock).open().unwrap();
        new.remove("k").unwrap();
        let told = claim.complete("late").expect_err("FN-08: a write of an ended opening was acknowledged");
        let SettleError::Retry(retry) = told else { panic!("{told:?}") };
        assert!(matches!(retry.cause, RetryCause::Fault(_)), "{:?}", retry.cause);
        assert_eq!(new.get("k").unwrap(), None, "FN-08");
        assert_eq!(grant(&new, "k").attempt(), 1);
    }
}

/// All that a closed place holds.
fn copy(mem: &Mem) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut collect = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    mem.open().unwrap().scan(b"", None, &mut collect).unwrap();
    found
}

fn restore(copy: &[(Vec<u8>, Vec<u8>)]) -> Mem {
    let mem = Mem::new();
    let engine: Box<dyn Engine> = mem.open().unwrap();
    for (key, value) in copy {
        engine.commit(&[Commit::swap(key, None, Some(value))]).remove(0).unwrap();
    }
    drop(engine);
    mem
}

#[test]
fn a_restored_copy_gives_greater_tokens_by_the_clock_or_by_the_floor() {
    let (mem, clock) = (Mem::new(), ManualClock::new());
    let store = builder(&mem, &clock).open().unwrap();
    grant(&store, "before").complete("before").unwrap();
    store.close().unwrap();
    let saved = copy(&mem);
    let store = builder(&mem, &clock).open().unwrap();
    let tokens = (0..100).map(|n| grant(&store, format!("k{n}")).token());
    let last: Token = tokens.max().unwrap();
    grant(&store, "after").complete("after").unwrap();
    store.close().unwrap();

    // The clock is past the time at which the old store stopped.
    clock.advance(10 * SEC);
    let restored = builder(&restore(&saved), &clock).open().unwrap();
    assert!(grant(&restored, "k").token() > last, "P2 ordered tokens: FN-13");
    assert_eq!(value(restored.get("before").unwrap()).as_deref(), Some("before"));
    assert_eq!(restored.get("after").unwrap(), None, "what came after the copy can run again");
    // The clock is behind, and the operator knows the last token.
    set_wall(&clock, -86_400);
    let restored = builder(&restore(&saved), &clock).token_floor(last).open().unwrap();
    assert!(grant(&restored, "k").token() > last, "P2 ordered tokens: FN-13");
}
