//! What claims, runs, locks and scopes tell of themselves, and the terms that a scope gives to its claims.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

use claimdb::backend::Mem;
use claimdb::{Claim, ManualClock, OnInterrupt, Outcome, Request, Run, Store, Token, WallTime};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

fn world() -> (Store, ManualClock) {
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sweep_every(Duration::ZERO).open().unwrap();
    (store, clock)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

fn is_interrupted(store: &Store, request: Request) -> bool {
    drop(grant(store, request.clone()));
    matches!(store.claim(request).unwrap(), Outcome::Interrupted(_))
}

#[test]
fn a_token_is_shown_as_its_number() {
    assert_eq!(Token::new(1_820_000_000_000_000).to_string(), "1820000000000000");
}

#[test]
fn a_run_tells_whether_it_was_replayed() {
    let (store, _) = world();
    let run = || store.run("k", |claim| Ok::<_, String>(claim.attempt())).unwrap();
    let fresh: Run<u32> = run();
    assert!(!fresh.is_replayed(), "it has just run");
    assert!(run().is_replayed(), "it has run before");
}

#[test]
fn a_pending_claim_that_is_listed_tells_its_attempt() {
    let (store, _) = world();
    for attempt in 1..=3 {
        let claim = grant(&store, "k");
        let (_, pending) = store.pending().next().unwrap().unwrap();
        assert_eq!((pending.token(), pending.attempt()), (claim.token(), attempt));
        assert!(pending.claimed_at() > WallTime::from_unix_millis(0));
    }
}

#[test]
fn an_interrupted_key_tells_what_was_saved_last() {
    let (store, _) = world();
    let request = |key: &str| Request::new(key).on_interrupt(OnInterrupt::Quarantine);
    for saved in [None, Some(&b"half of it"[..])] {
        let key = if saved.is_some() { "saved" } else { "not" };
        let mut claim = grant(&store, request(key));
        if let Some(saved) = saved {
            claim.checkpoint(saved).unwrap();
        }
        drop(claim);
        let Outcome::Interrupted(case) = store.claim(request(key)).unwrap() else { panic!("rule 18") };
        assert_eq!(case.checkpoint(), saved);
    }
}

#[test]
fn a_lock_tells_the_rest_of_its_lease() {
    let (store, clock) = world();
    let lock = store.lock("k", Duration::ZERO).unwrap().unwrap();
    assert_eq!(lock.remaining(), 30 * SEC);
    clock.advance(10 * SEC);
    assert_eq!(lock.remaining(), 20 * SEC);
    clock.advance(30 * SEC);
    assert_eq!(lock.remaining(), Duration::ZERO);
}

#[test]
fn a_scope_gives_each_of_its_terms_to_its_claims() {
    let (store, _) = world();
    let scope = || store.scope("tenant").unwrap();
    assert_eq!(scope().name(), b"tenant");
    assert!(!is_interrupted(&store, scope().request("as ever")));
    assert!(is_interrupted(&store, scope().on_interrupt(OnInterrupt::Quarantine).request("quarantined")));
    assert!(is_interrupted(&store, scope().max_attempts(1).request("once")));

    let _holder = grant(&store, scope().request("busy"));
    let poll = |request| {
        let mut claim = std::pin::pin!(store.claim_async(request));
        Future::poll(claim.as_mut(), &mut Context::from_waker(Waker::noop())).map(Result::unwrap)
    };
    assert!(matches!(poll(scope().request("busy")), Poll::Ready(Outcome::InFlight(_))));
    assert!(poll(scope().wait(SEC).request("busy")).is_pending(), "the scope's claims wait");
}
