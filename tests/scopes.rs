//! Scopes, and what can be listed, counted, emptied and inspected.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

use claimdb::backend::Mem;
use claimdb::{
    AdminError, ClaimError, Durability, Fault, Fingerprint, Key, KeyState, LiveClaims, LossCause,
    ManualClock, OnInterrupt, Outcome, Request, SettleError, Store,
};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

fn world() -> (Store, ManualClock, Mem) {
    let (clock, mem) = (ManualClock::new(), Mem::with_power_cuts());
    let store = Store::builder(mem.clone()).clock(clock.clone()).open().unwrap();
    (store, clock, mem)
}

#[test]
fn a_scope_gives_its_claims_their_terms_and_keeps_its_keys_apart() {
    let (store, clock, _) = world();
    let short = store.scope("short").unwrap().lease(SEC).retention(10 * SEC);
    let other = store.scope("shor").unwrap();
    let claim = short.claim("tk").unwrap().granted().unwrap();
    assert_eq!(claim.remaining(), SEC);
    assert!(other.claim("ttk").unwrap().granted().is_some(), "scope and name do not run together");
    assert!(store.claim("tk").unwrap().granted().is_some());
    assert!(matches!(short.claim("tk").unwrap(), Outcome::InFlight(_)));
    claim.complete("done").unwrap();
    assert!(short.get("tk").unwrap().is_some());
    clock.advance(10 * SEC);
    assert!(short.get("tk").unwrap().is_none(), "its retention is the scope's");
    assert_eq!(short.run("n", |claim| Ok::<_, String>(claim.attempt())).unwrap().into_value(), 1);
    assert!(store.scope([7; 256]).is_err());
    assert!(matches!(short.claim(""), Err(ClaimError::InvalidKey(_))));
}

#[test]
fn a_bound_on_live_claims_is_never_exceeded_and_comes_back_by_itself() {
    for durability in [Durability::Full, Durability::Result] {
        let (store, clock, _) = world();
        let scope = store.scope("s").unwrap().max_live(2).durability(durability);
        let full = |key: &str| match scope.claim(key) {
            Err(ClaimError::Failed { fault: Fault::ScopeFull { limit: 2 }, .. }) => true,
            Ok(Outcome::Granted(_)) => false,
            other => panic!("{other:?}"),
        };
        let one = scope.claim("1").unwrap().granted().unwrap();
        let two = scope.claim("2").unwrap().granted().unwrap();
        assert!(full("3"));
        assert!(matches!(scope.claim("1").unwrap(), Outcome::InFlight(_)), "no new one is asked for");
        assert!(store.scope("other").unwrap().claim("3").unwrap().granted().is_some());
        one.complete("done").unwrap();
        assert!(matches!(scope.claim("1").unwrap(), Outcome::Settled(_)));
        let three = scope.claim("3").unwrap().granted().unwrap();
        assert!(full("4"));
        drop(two);
        let four = scope.claim("4").unwrap().granted().unwrap();
        clock.advance(30 * SEC);
        assert!(!full("5"), "an expired claim takes no room");
        drop((three, four));
    }
}

#[test]
fn scopes_are_listed_and_counted() {
    let (store, _clock, _) = world();
    assert!(store.scopes().unwrap().is_empty());
    store.claim("bare").unwrap().granted().unwrap().complete(&1).unwrap();
    for scope in ["b", "a", "long/one"] {
        let scope = store.scope(scope).unwrap();
        for n in 0..200 {
            scope.claim(format!("k{n}")).unwrap().granted().unwrap().complete(&n).unwrap();
        }
        drop(scope.claim("pending").unwrap().granted().unwrap());
        let odd = scope.request("odd").on_interrupt(OnInterrupt::Quarantine);
        drop(store.claim(&odd).unwrap().granted().unwrap());
        assert!(matches!(store.claim(&odd).unwrap(), Outcome::Interrupted(_)));
        let live = scope.request("memory").durability(Durability::Result);
        let live = store.claim(live).unwrap().granted().unwrap();
        let count = scope.count().unwrap();
        assert_eq!((count.pending, count.interrupted, count.settled, count.live), (1, 1, 200, 1));
        drop(live);
    }
    let names: Vec<_> = store.scopes().unwrap().into_iter().map(|s| String::from_utf8(s).unwrap()).collect();
    assert_eq!(names, ["", "a", "b", "long/one"]);
    assert_eq!(store.pending().count(), 3);
    assert_eq!(store.interrupted().count(), 3);
    assert_eq!(store.scope("a").unwrap().settled("k1").unwrap().count(), 111);
}

#[test]
fn emptying_a_scope_refuses_live_claims_or_fences_them_and_is_durable() {
    let (store, clock, mem) = world();
    let (scope, other) = (store.scope("s").unwrap(), store.scope("t").unwrap());
    other.claim("k").unwrap().granted().unwrap().complete("theirs").unwrap();
    for n in 0..1500 {
        let request = scope.request(format!("k{n}")).durability(Durability::Relaxed);
        store.claim(request).unwrap().granted().unwrap().complete(&n).unwrap();
    }
    let durable = scope.claim("durable").unwrap().granted().unwrap();
    let memory = scope.request("memory").durability(Durability::Result);
    let memory = store.claim(memory).unwrap().granted().unwrap();
    let lost = memory.lost();
    match scope.empty(LiveClaims::Refuse) {
        Err(AdminError::ScopeInUse { live: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(scope.count().unwrap().settled, 1500, "nothing was removed");
    assert_eq!(scope.empty(LiveClaims::Fence).unwrap(), 1501);
    assert_eq!(lost.cause(), Some(LossCause::Removed));
    assert!(matches!(durable.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
    assert!(matches!(memory.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
    mem.crash();
    let store = Store::builder(mem).clock(clock).open().unwrap();
    let (scope, other) = (store.scope("s").unwrap(), store.scope("t").unwrap());
    let count = scope.count().unwrap();
    assert_eq!((count.pending, count.settled), (0, 0), "P4: what was told removed came back");
    assert!(other.get("k").unwrap().is_some(), "another scope is left alone");
    assert_eq!(scope.empty(LiveClaims::Refuse).unwrap(), 0);
}

#[test]
fn a_removal_by_force_fences_the_holder() {
    for durability in [Durability::Full, Durability::Result] {
        let (store, _clock, _) = world();
        let request = Request::new("k").durability(durability);
        let claim = store.claim(&request).unwrap().granted().unwrap();
        let lost = claim.lost();
        assert!(matches!(store.remove("k"), Err(AdminError::InFlight { .. })), "rule 19");
        assert!(store.remove_by_force("k").unwrap());
        assert_eq!(lost.cause(), Some(LossCause::Removed));
        assert!(claim.renew(SEC).is_err());
        let next = store.claim(&request).unwrap().granted().unwrap();
        assert!(next.token() > claim.token(), "P2 ordered tokens");
        assert!(matches!(claim.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
        next.complete("mine").unwrap();
    }
}

#[test]
fn a_key_can_be_inspected_in_each_state() {
    let (store, clock, _) = world();
    let inspect = || store.inspect("k").unwrap();
    assert_eq!(inspect().state, KeyState::Absent);
    let fingerprint = Fingerprint::new([3; 32]);
    let request = Request::new("k").fingerprint(fingerprint);
    let memory = store.claim(request.clone().durability(Durability::Result)).unwrap().granted().unwrap();
    clock.advance(SEC);
    let seen = inspect();
    assert_eq!((seen.state, seen.token, seen.attempt), (KeyState::InMemory, Some(memory.token()), 1));
    assert_eq!((seen.age, seen.remaining), (Some(SEC), Some(29 * SEC)));
    drop(memory);
    let claim = store.claim(&request).unwrap().granted().unwrap();
    let seen = inspect();
    assert_eq!((seen.state, seen.token), (KeyState::Pending, Some(claim.token())));
    assert_eq!((seen.fingerprint, seen.remaining), (Some(fingerprint), Some(30 * SEC)));
    clock.advance(40 * SEC);
    assert_eq!(inspect().remaining, Some(Duration::ZERO), "CK-05: never negative, never huge");
    let pending: Vec<_> = store.pending().map(Result::unwrap).collect();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].0, Key::new("k").unwrap());
    assert_eq!((pending[0].1.token(), pending[0].1.remaining()), (claim.token(), Some(Duration::ZERO)));
    claim.complete("done").unwrap();
    let seen = inspect();
    assert_eq!((seen.state, seen.age, seen.waiters), (KeyState::Settled, None, 0));
    assert!(seen.settled_at.is_some() && seen.forgotten_at > seen.settled_at);
}

#[test]
fn a_lock_is_live_and_is_no_claim_of_its_scope() {
    let (store, _clock, _) = world();
    let scope = store.scope("s").unwrap().max_live(1);
    let lock = store.lock(Key::scoped("s", "k").unwrap(), Duration::ZERO).unwrap().unwrap();
    assert_eq!((store.stats().live_claims, store.stats().granted), (1, 0));
    assert_eq!(scope.count().unwrap().live, 0);
    assert!(scope.claim("k").unwrap().granted().is_some(), "a lock takes no room");
    drop(lock);
}

#[test]
fn a_scope_is_emptied_under_one_sync() {
    let (store, _, _) = world();
    let scope = store.scope("s").unwrap();
    for n in 0..10 {
        scope.claim(n.to_string()).unwrap().granted().unwrap().complete("done").unwrap();
    }
    let before = store.stats().syncs;
    assert_eq!(scope.empty(LiveClaims::Refuse).unwrap(), 10);
    assert_eq!(store.stats().syncs - before, 1, "a sync is shared by what one call removes");
}
