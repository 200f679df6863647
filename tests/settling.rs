//! Settles that come late, fail or are tried again: what the holder is told, and what its claim can do after that.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)]
mod hooks;

use claimdb::backend::Backend;
use claimdb::{
    AlreadySettled, CheckpointError, Claim, Durability, ExpiredLease, LossCause, ManualClock, OnInterrupt,
    Outcome, Request, Resolution, RetryCause, SettleError, Settled, Store, Writes,
};
use faults::{Fault, Faulty};
use hooks::{At, Hooked, Woken, poll, until};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
type Settle = fn(Claim) -> Result<(), SettleError>;

const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn world(place: &(impl Backend + Clone + 'static)) -> (Store, ManualClock) {
    let clock = ManualClock::new();
    let store = Store::builder(place.clone()).clock(clock.clone()).sweep_every(Duration::ZERO).open();
    (store.unwrap(), clock)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

/// A claim whose lease ran out, and whose key somebody has resolved then.
fn resolved_by_hand(store: &Store, clock: &ManualClock, resolution: Resolution) -> Claim {
    let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    let claim = grant(store, &request);
    clock.advance(30 * SEC);
    let Outcome::Interrupted(case) = store.claim(&request).unwrap() else { panic!("it is quarantined") };
    assert!(store.resolve("k", case.token(), resolution).unwrap());
    claim
}

#[test]
fn what_was_resolved_by_hand_is_never_confirmed_as_the_holders_own() {
    let late: [Settle; 5] = [
        |claim| claim.complete("charged"),
        |claim| claim.complete("other"),
        |claim| claim.complete_with("charged", Writes::new().put("balances", "alice", "1")),
        |claim| claim.fail("charged"),
        Claim::release,
    ];
    for settle in late {
        let (store, clock) = world(&Faulty::new());
        let claim = resolved_by_hand(&store, &clock, Resolution::completed("charged").unwrap());
        let told = settle(claim).expect_err("rule 17: it was confirmed, and is not this claim's");
        assert!(
            matches!(&told, SettleError::AlreadySettled(already) if already.by_hand()),
            "rule 17: {told}"
        );
        assert!(told.to_string().contains("resolved by hand"), "{told}");
        assert!(store.get("k").unwrap().unwrap().about().by_hand(), "rule 17: it was replaced");
        assert_eq!(
            store.kv("balances").get("alice").unwrap(),
            None,
            "rule 25: an effect without its completion"
        );
    }
}

#[test]
fn a_holder_whose_key_was_resolved_by_hand_is_told_so_by_each_verb() {
    let (store, clock) = world(&Faulty::new());
    let mut claim = resolved_by_hand(&store, &clock, Resolution::omitted());
    assert_eq!(claim.lost().cause(), Some(LossCause::Removed), "OB-04: nobody has taken it over");
    let renewed = claim.renew(SEC).unwrap_err();
    assert!(!renewed.to_string().contains("another"), "OB-04: nobody has taken it over: {renewed}");
    let saved = claim.checkpoint("half").unwrap_err();
    let by_hand = |already: &AlreadySettled| already.by_hand();
    assert!(matches!(&saved, CheckpointError::AlreadySettled(already) if by_hand(already)), "{saved}");
    drop(claim);
    store.remove("k").unwrap();

    let claim = resolved_by_hand(&store, &clock, Resolution::released());
    let told = claim.complete("late").unwrap_err();
    assert!(matches!(&told, SettleError::Lost(lost) if lost.by().is_none()), "P3 fenced: {told}");
}

#[test]
fn a_completion_that_was_not_told_is_not_released() {
    for durability in ALL {
        let faulty = Faulty::new();
        let (store, _) = world(&faulty);
        let claim = grant(&store, Request::new("k").durability(durability));
        faulty.arm(0, 2, Fault::FailAfter); // it lands, and the look after it fails
        let effects = Writes::new().put("balances", "alice", "1");
        let unclear = claim.complete_with("charged", effects).expect_err("its fate is unknown");
        faulty.disarm();
        let told = unclear.into_claim().expect("its fate is unknown").release();
        assert!(
            matches!(&told, Err(SettleError::AlreadySettled(already)) if !already.by_hand()),
            "P8: {durability:?}: a release was told {told:?}, and the completion stands"
        );
        store.sync().unwrap();
        assert!(store.get("k").unwrap().is_some());
        assert!(store.kv("balances").get("alice").unwrap().is_some());
        assert_eq!(store.stats().released, 0);
    }
}

#[test]
fn a_completion_that_did_not_land_leaves_a_claim_that_can_be_released() {
    for durability in ALL {
        let faulty = Faulty::new();
        let (store, _) = world(&faulty);
        let claim = grant(&store, Request::new("k").durability(durability));
        faulty.arm(0, 2, Fault::FailBefore);
        let unclear = claim.complete("done").expect_err("its fate is unknown");
        faulty.disarm();
        unclear.into_claim().unwrap().release().unwrap();
        store.sync().unwrap();
        assert_eq!(grant(&store, Request::new("k").durability(durability)).attempt(), 1);
    }
}

#[test]
fn a_retry_of_what_landed_and_was_forgotten_touches_nothing_of_the_next_holders() {
    for durability in ALL {
        let faulty = Faulty::new();
        let (store, clock) = world(&faulty);
        let claim = grant(&store, Request::new("k").durability(durability).retention(SEC));
        faulty.arm(0, 2, Fault::FailAfter); // it lands, and the look after it fails
        let unclear = claim.complete("charged").expect_err("its fate is unknown");
        faulty.disarm();
        store.sync().unwrap();
        clock.advance(60 * SEC);
        let other = grant(&store, Request::new("k").durability(Durability::Result));
        let told = unclear.into_claim().expect("its fate is unknown").complete("charged");
        // What is stored says whose it is, though it counts no more; of a claim in memory its lost place tells first.
        match durability {
            Durability::Full => {
                assert!(told.is_ok(), "it was done in its time, and its holder was told {told:?}")
            }
            _ => assert!(matches!(told, Err(SettleError::Lost(_))), "P3 fenced: {durability:?}: {told:?}"),
        }
        other.complete("again").unwrap();
        let Outcome::Settled(Settled::Completed(found)) = store.claim("k").unwrap() else {
            panic!("P8 remembered: it was settled")
        };
        assert_eq!(found.decode::<String>().unwrap(), "again", "P8: what another has settled was replaced");
    }
}

#[test]
fn a_release_whose_fate_was_unknown_is_told_as_it_went() {
    for (fault, released) in [(Fault::FailAfter, true), (Fault::FailBefore, false)] {
        let faulty = Faulty::new();
        let (store, _) = world(&faulty);
        let claim = grant(&store, "k");
        faulty.arm(0, 1, fault);
        let told = claim.release();
        assert_eq!(faulty.disarm(), ["commit"]);
        assert_eq!(told.is_ok(), released, "P9: it was not settled by reading it back: {told:?}");
        drop(told);
        store.sync().unwrap();
        assert_eq!(grant(&store, "k").attempt(), if released { 1 } else { 2 });
    }
}

#[test]
fn a_claim_that_a_settle_gives_back_is_kept_alive_as_before() {
    let no_key =
        |claim: Claim| claim.complete_with("done", Writes::new().put("values", "", "it has no name"));
    let ways: [(&str, Settle); 3] = [
        ("storage failed", |claim| claim.complete("done")),
        ("too large", |claim| claim.complete(&vec![0_u8; 2 << 20])),
        ("an effect is no key", no_key),
    ];
    for (way, settle) in ways {
        let faulty = Faulty::new();
        let (store, clock) = world(&faulty);
        let claim = grant(&store, "k");
        claim.keep_alive(3600 * SEC).unwrap();
        if way == "storage failed" {
            faulty.arm(0, 1, Fault::FailBefore);
        }
        let claim = settle(claim).unwrap_err().into_claim().expect(way);
        faulty.disarm();
        for _ in 0..4 {
            clock.advance(15 * SEC);
            until(&format!("{way}: it is renewed"), || claim.remaining() == 30 * SEC);
        }
        claim.complete("done").unwrap();
        for _ in 0..4 {
            clock.advance(15 * SEC);
        }
        assert_eq!(store.stats().live_claims, 0, "RN-01: it was renewed after its end");
    }
}

/// A claim in memory whose lease is over tries to settle while a second is on its way to the key, which then fails
/// or is granted it.
fn settles_while_another_takes_the_key(durability: Durability, taker_fails: bool) {
    let place = Hooked::new();
    let (store, clock) = world(&place);
    let claim = grant(&store, Request::new("k").durability(durability));
    clock.advance(30 * SEC);
    let slow = Arc::new(Mutex::new(Some(claim)));
    {
        let (slow, place) = (Arc::clone(&slow), place.clone());
        place.clone().on(At::Commit, move || {
            let claim = slow.lock().unwrap().take().unwrap();
            assert_eq!(claim.lost().cause(), Some(LossCause::LeaseOver), "nobody was granted the key");
            let renewed = claim.renew(SEC).unwrap_err();
            assert!(matches!(renewed, ExpiredLease::Expired { .. }), "rule 11: {renewed}");
            let told = claim.complete("done").expect_err("the other may have read the record");
            let SettleError::Retry(retry) = told else {
                panic!("P3 fenced: lost, and nobody was granted the key: {told}");
            };
            assert!(matches!(retry.cause, RetryCause::BeingTaken), "{retry}");
            *slow.lock().unwrap() = Some(retry.claim);
            place.break_key(taker_fails.then_some("k"));
        });
    }
    let taken = store.claim("k");
    let claim = slow.lock().unwrap().take().expect("the other has written its record");
    if taker_fails {
        taken.expect_err("its write failed");
        place.break_key(None);
        claim.complete("done").expect("nobody else was granted the key");
        assert!(store.get("k").unwrap().is_some());
    } else {
        let taken = taken.unwrap().granted().expect("the lease was over");
        let told = claim.complete("done").unwrap_err();
        assert!(
            matches!(&told, SettleError::Lost(lost) if lost.by() == Some(taken.token())),
            "P3 fenced: {told}"
        );
        taken.complete("done").unwrap();
    }
}

#[test]
fn a_claim_in_memory_is_lost_once_another_is_granted_its_key_and_not_before() {
    for durability in [Durability::Result, Durability::Relaxed] {
        for taker_fails in [true, false] {
            settles_while_another_takes_the_key(durability, taker_fails);
        }
    }
}

#[test]
fn a_claim_that_is_being_removed_by_force_is_renewed_until_its_record_is_gone() {
    for removal_fails in [true, false] {
        let place = Hooked::new();
        let (store, _) = world(&place);
        let claim = Arc::new(grant(&store, "k"));
        {
            let (claim, place) = (Arc::clone(&claim), place.clone());
            place.clone().on(At::Commit, move || {
                claim.renew(60 * SEC).expect("P9 fail closed: it is fenced, and its record is there");
                place.break_key(removal_fails.then_some("k"));
            });
        }
        let removed = store.remove_by_force("k");
        assert_eq!(removed.is_err(), removal_fails, "{removed:?}");
        assert_eq!(claim.renew(SEC).is_ok(), removal_fails, "rule 19: a forced removal fences the holder");
        let cause = (!removal_fails).then_some(LossCause::Removed);
        assert_eq!(claim.lost().cause(), cause, "rule 19: a forced removal fences the holder");
    }
}

#[test]
fn whoever_awaits_a_loss_is_woken_when_a_lease_that_was_shortened_meanwhile_ends() {
    let (store, clock) = world(&Faulty::new());
    let claim = grant(&store, "k");
    let (mut raised, woken) = (Box::pin(claim.lost().raised()), Woken::new());
    assert!(poll(raised.as_mut(), &woken).is_pending());
    claim.renew(20 * SEC).unwrap();
    until("it hears that the lease ends sooner", || woken.count() == 1);
    assert!(poll(raised.as_mut(), &woken).is_pending());
    claim.renew(30 * SEC).unwrap();
    clock.advance(20 * SEC);
    until("it looks when the lease was to end", || woken.count() == 2);
    assert!(poll(raised.as_mut(), &woken).is_pending(), "the lease was renewed");
    clock.advance(10 * SEC);
    until("the lease is over", || woken.count() == 3);
    assert_eq!(poll(raised.as_mut(), &woken), std::task::Poll::Ready(LossCause::LeaseOver));
}

#[test]
fn a_value_that_panics_while_it_is_encoded_leaves_nothing_settled_of_many() {
    struct Value(bool);
    impl serde::Serialize for Value {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            assert!(self.0, "this value panics on purpose");
            serializer.serialize_unit()
        }
    }
    let (store, _) = world(&Faulty::new());
    let keys = ["a", "b", "c"];
    let results: Vec<_> = keys.into_iter().map(|key| (grant(&store, key), Value(key != "b"))).collect();
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.complete_many(results)));
    assert!(told.is_err(), "the panic goes on");
    for key in keys {
        assert!(store.get(key).unwrap().is_none(), "rule 17: {key} was settled, and nobody was told");
        assert_eq!(grant(&store, key).attempt(), 2, "P6 never stuck");
    }
}

#[test]
fn whether_a_commit_that_failed_has_landed_is_told_as_it_is() {
    // The fate of a commit that failed is looked up (P9).
    let acts: [fn(&Store, &mut Claim) -> bool; 2] = [
        |_, claim| claim.checkpoint("half of it").is_ok(),
        |store, _| store.remove("done").is_ok_and(|removed| removed),
    ];
    for (act, fault) in
        acts.into_iter().flat_map(|act| [Fault::FailAfter, Fault::FailBefore].map(|fault| (act, fault)))
    {
        let commits = (0..6).filter(|&call| {
            let faulty = Faulty::new();
            let (store, _) = world(&faulty);
            let mut claim = store.claim("k").unwrap().granted().unwrap();
            store.claim("done").unwrap().granted().unwrap().complete("done").unwrap();
            faulty.arm(call, 1, fault);
            let told = act(&store, &mut claim);
            let commit = faulty.disarm() == ["commit"];
            assert!(
                !commit || told == (fault == Fault::FailAfter),
                "P9 fail closed: {fault:?} was told as {told}"
            );
            commit
        });
        assert!(commits.count() > 0, "no commit went wrong");
    }
}
