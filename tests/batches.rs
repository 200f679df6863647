//! Many claims at once: each for itself, or all or none.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)]
mod hooks;

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{
    AllClaimed, Claim, ClaimError, Durability, Fingerprint, KeyState, ManualClock, OnInterrupt, OpenError,
    Outcome, Request, Settled, StorageError, Store, SyncBy,
};
use faults::{Faulty, Syncs};
use hooks::{At, Hooked, Woken, comes_back, poll};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

fn world() -> (Store, ManualClock, Mem) {
    let (clock, mem) = (ManualClock::new(), Mem::with_power_cuts());
    // No thread syncs on its own, so that syncs can be counted.
    let store = Store::builder(mem.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    (store, clock, mem)
}

fn all(outcome: AllClaimed) -> Vec<Claim> {
    match outcome {
        AllClaimed::Granted(claims) => claims,
        AllClaimed::Refused { index, outcome } => panic!("request {index} was refused: {outcome:?}"),
    }
}

#[test]
fn each_request_of_a_batch_is_answered_for_itself_under_one_sync() {
    let (store, clock, _) = world();
    store.claim("done").unwrap().granted().unwrap().complete("x").unwrap();
    let held = store.claim("held").unwrap().granted().unwrap();
    drop(store.claim("dropped").unwrap().granted().unwrap());
    let expired = store.claim(Request::new("expired").lease(SEC)).unwrap().granted().unwrap();
    drop(store.claim(Request::new("odd").on_interrupt(OnInterrupt::Quarantine)).unwrap().granted().unwrap());
    clock.advance(SEC);
    let syncs = store.stats().syncs;
    let requests = [
        Request::new("new"),
        Request::new("done"),
        Request::new("held"),
        Request::new("new").wait(60 * SEC), // in flight by the first; never waited for
        Request::new("memory").durability(Durability::Result),
        Request::new(""),
        Request::new("dropped"),
        Request::new("expired"),
        Request::new("odd"),
        Request::new("bad").lease(Duration::ZERO),
    ];
    let answers = store.claim_many(&requests);
    assert_eq!(store.stats().syncs, syncs + 1, "one sync for the batch");
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap();
    let new = next().unwrap().granted().unwrap();
    assert!(matches!(next().unwrap(), Outcome::Settled(Settled::Completed(_))));
    assert!(matches!(next().unwrap(), Outcome::InFlight(_)));
    assert!(matches!(next().unwrap(), Outcome::InFlight(_)), "a duplicate in the batch");
    let memory = next().unwrap().granted().unwrap();
    assert!(next().unwrap_err().to_string().contains("empty"));
    assert_eq!(next().unwrap().granted().unwrap().attempt(), 2);
    assert_eq!(next().unwrap().granted().unwrap().attempt(), 2);
    assert!(matches!(next().unwrap(), Outcome::Interrupted(_)));
    assert!(next().unwrap_err().to_string().contains("lease"));
    assert!(answers.next().is_none());
    for claim in [new, memory] {
        claim.complete("mine").unwrap();
    }
    assert!(matches!(expired.complete("late"), Err(claimdb::SettleError::Lost(_))), "P3 fenced");
    drop(held);
}

#[test]
fn a_batch_survives_a_power_cut_as_it_was_told() {
    let (store, clock, mem) = world();
    let told = store.claim_many((0..100).map(|n| format!("k{n}")));
    let tokens: Vec<_> = told.into_iter().map(|told| told.unwrap().granted().unwrap().token()).collect();
    mem.crash();
    let store = Store::builder(mem).clock(clock).sync_by(SyncBy::Caller).open().unwrap();
    for (n, token) in tokens.into_iter().enumerate() {
        let claim = store.claim(format!("k{n}")).unwrap().granted().unwrap();
        let previous = claim.previous().map(|previous| previous.token);
        assert_eq!((claim.attempt(), previous), (2, Some(token)), "P4 durable before told");
    }
}

#[test]
fn all_or_none_are_claimed() {
    let (store, _clock, _) = world();
    let claims = all(store.claim_all(["b", "a", "b", "c"]).unwrap());
    let names: Vec<_> = claims.iter().map(|claim| claim.key().name().to_vec()).collect();
    assert_eq!(names, [b"b", b"a", b"c"], "in the order of the requests, each once");
    for key in ["a", "b", "c"] {
        assert!(matches!(store.claim(key).unwrap(), Outcome::InFlight(_)));
    }
    match store.claim_all(["x", "c", "y"]).unwrap() {
        AllClaimed::Refused { index: 1, outcome: Outcome::InFlight(_) } => {}
        other => panic!("{other:?}"),
    }
    for key in ["x", "y"] {
        assert_eq!(store.claim(key).unwrap().granted().unwrap().attempt(), 1, "DL-03: {key} was not undone");
    }
    drop(claims);
    let claims = all(store.claim_all(["a", "b", "c"]).unwrap());
    assert!(claims.iter().all(|claim| claim.attempt() == 2));
    for claim in claims {
        claim.complete("done").unwrap();
    }
    assert!(matches!(
        store.claim_all(["a", "z"]).unwrap(),
        AllClaimed::Refused { index: 0, outcome: Outcome::Settled(_) }
    ));
    assert_eq!(store.claim("z").unwrap().granted().unwrap().attempt(), 1);
}

#[test]
fn all_waits_for_the_last_one_and_holds_none_meanwhile() {
    let (store, clock, _) = world();
    let held = store.claim("c").unwrap().granted().unwrap();
    let waiter = {
        let store = store.clone();
        let requests = ["a", "c"].map(|key| Request::new(key).wait(60 * SEC));
        std::thread::spawn(move || all(store.claim_all(requests).unwrap()).len())
    };
    while store.stats().waiters == 0 {
        std::thread::yield_now();
    }
    let other = store.claim("a").unwrap().granted().expect("while it waits it holds none (rule 24)");
    other.release().unwrap();
    held.release().unwrap();
    assert_eq!(waiter.join().unwrap(), 2);
    // And keeps its deadline.
    let held = store.claim(Request::new("e").lease(3600 * SEC)).unwrap().granted().unwrap();
    let waiter = {
        let store = store.clone();
        let requests = ["d", "e"].map(|key| Request::new(key).wait(5 * SEC));
        std::thread::spawn(move || store.claim_all(requests).unwrap())
    };
    while store.stats().waiters == 0 {
        std::thread::yield_now();
    }
    clock.advance(5 * SEC);
    assert!(matches!(
        waiter.join().unwrap(),
        AllClaimed::Refused { index: 1, outcome: Outcome::InFlight(_) }
    ));
    drop(held);
    assert_eq!(store.stats().waiters, 0);
}

#[test]
fn opposite_orders_do_not_block_each_other() {
    let (store, _clock, _) = world();
    let threads: Vec<_> = [["a", "b"], ["b", "a"]]
        .into_iter()
        .map(|keys| {
            let store = store.clone();
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let requests = keys.map(|key| Request::new(key).wait(3600 * SEC));
                    for claim in all(store.claim_all(requests).unwrap()) {
                        claim.release().unwrap();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(store.stats().entries, 0, "DL-02");
}

/// Memory in which the second commit of a slice fails without landing.
#[derive(Debug, Clone)]
struct SecondFails(Mem);

#[derive(Debug)]
struct SecondFailsEngine(Box<dyn Engine>);

impl Backend for SecondFails {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(SecondFailsEngine(self.0.open()?)))
    }
}

impl Engine for SecondFailsEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        let one = |(n, commit): (usize, &Commit<'_>)| match n {
            1 => Err(StorageError::new("writing to", "memory", "it fails on purpose")),
            _ => self.0.commit(std::slice::from_ref(commit)).remove(0),
        };
        commits.iter().enumerate().map(one).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
    }
}

#[test]
fn what_had_landed_is_swapped_back_when_one_fails() {
    let mem = Mem::new();
    let open = || Store::builder(SecondFails(mem.clone())).clock(ManualClock::new()).open().unwrap();
    let store = open();
    let old = store.claim("c").unwrap().granted().unwrap();
    let token = old.token();
    drop(old);
    assert!(store.claim_all(["a", "b", "c"]).is_err(), "P9 fail closed");
    assert_eq!(store.stats().live_claims, 0, "P9 fail closed: an error granted a key");
    store.close().unwrap();
    // Memory knows nothing now: the records alone say what was taken back.
    let store = open();
    let one = |key: &str| store.claim(key).unwrap().granted().unwrap();
    assert_eq!(one("a").attempt(), 1, "rule 24: it was not swapped back");
    let again = one("c");
    let previous = again.previous().map(|previous| previous.token);
    assert_eq!((again.attempt(), previous), (2, Some(token)), "rule 24: not to exactly what was there");
}

#[test]
fn two_requests_for_one_key_are_for_the_same_work() {
    let (store, _clock, _) = world();
    let of = |key: &str, work: u8| Request::new(key).fingerprint(Fingerprint::of_bytes([work]));
    store.claim(of("settled", 1)).unwrap().granted().unwrap().complete("x").unwrap();
    let held = store.claim(of("held", 1)).unwrap().granted().unwrap();
    for key in ["free", "settled", "held"] {
        let told = store.claim_all([of("other", 1), of(key, 1), of(key, 2)]).unwrap();
        let mismatched = matches!(told, AllClaimed::Refused { index: 2, outcome: Outcome::Mismatched(_) });
        assert!(mismatched, "P7 mismatch is harmless: one {key} key for two things was told {told:?}");
    }
    drop(held);
    for key in ["free", "other"] {
        let claim = store.claim(of(key, 3)).unwrap().granted();
        assert!(claim.is_some_and(|claim| claim.attempt() == 1), "P7: {key} was taken");
    }
}

#[test]
fn two_requests_for_one_key_are_on_the_same_terms() {
    let (store, _clock, _) = world();
    let one = || Request::new("k");
    let bounded = store.scope("").unwrap().max_live(7);
    let others = [
        ("lease", one().lease(SEC)),
        ("retention", one().retention(SEC)),
        ("durability", one().durability(Durability::Result)),
        ("on_interrupt", one().on_interrupt(OnInterrupt::Quarantine)),
        ("max_attempts", one().max_attempts(2)),
        ("max_live", bounded.request("k")),
    ];
    for (setting, other) in others {
        for requests in [[one(), other.clone()], [other, one()]] {
            let told = store.claim_all(requests);
            let Err(ClaimError::InvalidRequest(error)) = &told else {
                panic!("rule 18: of two terms for {setting} one was dropped: {told:?}")
            };
            let text = error.to_string();
            assert!(text.contains(setting) && text.contains("same key"), "{text}");
        }
    }
    let claims = all(store.claim_all([one(), one().wait(SEC)]).unwrap());
    assert_eq!(claims.len(), 1, "how long each waits is no term of the claim");
    assert_eq!(claims[0].attempt(), 1);
}

#[test]
fn every_lease_of_a_batch_starts_when_the_batch_is_told() {
    const LEASE: Duration = Duration::from_secs(5);
    let requests = || {
        [
            Request::new("memory").durability(Durability::Result).lease(LEASE),
            Request::new("stored").lease(LEASE),
        ]
    };
    type Claims = fn(&Store, [Request; 2]) -> Vec<Claim>;
    let batches: [(&str, Claims); 2] = [
        ("claim_all", |store, requests| all(store.claim_all(requests).unwrap())),
        ("claim_many", |store, requests| {
            store.claim_many(requests).into_iter().map(|told| told.unwrap().granted().unwrap()).collect()
        }),
    ];
    for (name, batch) in batches {
        let (faulty, clock) = (Faulty::new(), ManualClock::new());
        let store =
            Store::builder(faulty.clone()).clock(clock.clone()).sync_limit(3600 * SEC).open().unwrap();
        faulty.syncs(Syncs::Hang);
        let claims = {
            let store = store.clone();
            std::thread::spawn(move || batch(&store, requests()))
        };
        faulty.until_a_sync_hangs();
        assert_eq!(store.stats().granted, 0, "rule 15: {name} granted a key before its sync");
        clock.advance(2 * LEASE);
        let rival = store.claim("memory").unwrap();
        assert!(matches!(rival, Outcome::InFlight(_)), "rule 15: {name} lost a key untold: {rival:?}");
        faulty.syncs(Syncs::Work);
        let claims = comes_back("the batch", move || claims.join().unwrap());
        for claim in claims {
            assert_eq!(claim.remaining(), LEASE, "rule 15: the lease of {name} starts when it is told");
            claim.complete("done").unwrap();
        }
    }
}

#[test]
fn a_batch_whose_sync_fails_grants_nothing() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).clock(ManualClock::new()).open().unwrap();
    faulty.syncs(Syncs::Fail);
    let told =
        store.claim_many([Request::new("memory").durability(Durability::Result), Request::new("stored")]);
    assert!(told.iter().all(Result::is_err), "P9 fail closed: {told:?}");
    assert_eq!((store.stats().granted, store.stats().live_claims), (0, 0), "P9 fail closed");
}

#[test]
fn a_request_that_another_got_ahead_of_is_decided_anew() {
    let (hooked, clock) = (Hooked::new(), ManualClock::new());
    let store = Store::builder(hooked.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    let late = store.claim(Request::new("k").lease(SEC)).unwrap().granted().unwrap();
    clock.advance(SEC);
    hooked.on(At::Commit, move || late.complete("late").unwrap());
    let mut told = store.claim_many(["k", "l"]).into_iter().map(Result::unwrap);
    let first = told.next();
    assert!(matches!(first, Some(Outcome::Settled(_))), "P8 remembered: {first:?}");
    let claim = told.next().and_then(Outcome::granted).expect("nobody has it");
    assert_eq!((claim.attempt(), store.stats().granted), (1, 2));
}

#[test]
fn a_batch_that_gives_a_key_back_gives_back_that_it_was_never_granted() {
    let place = Hooked::new();
    let store =
        Store::builder(place.clone()).sync_by(SyncBy::Caller).clock(ManualClock::new()).open().unwrap();
    let other = store.clone();
    // A task stores its claim and is dropped while somebody syncs.
    place.on(At::Sync, move || {
        let mut claim = Box::pin(other.claim_async(Request::new("k")));
        assert!(poll(claim.as_mut(), &Woken::new()).is_pending());
    });
    store.sync().unwrap();
    place.break_key(Some("l"));
    store.claim_all(["k", "l"]).expect_err("one of its writes failed");
    place.break_key(None);
    let claim = store.claim("k").unwrap().granted().unwrap();
    assert_eq!(claim.attempt(), 1, "rule 15: nobody was granted the one before");
}

#[test]
fn what_is_only_planned_for_a_key_leaves_no_mark() {
    let (store, ..) = world();
    let ended = |key| Request::new(key).on_interrupt(OnInterrupt::Quarantine);
    for key in ["k", "l"] {
        drop(store.claim(ended(key)).unwrap());
    }
    let held = store.claim("m").unwrap();
    let syncs = store.stats().syncs;
    // It is to become interrupted, and is not, since another key is the answer.
    let told = store.claim_all([ended("k"), Request::new("m")]).unwrap();
    assert!(matches!(told, AllClaimed::Refused { index: 1, outcome: Outcome::InFlight(_) }), "{told:?}");
    let told = (store.inspect("k").unwrap().state, store.stats().syncs);
    assert_eq!(
        told,
        (KeyState::Pending, syncs),
        "P6 never stuck: nothing was written, and k waits for a sync"
    );
    let told = store.claim_all([ended("k"), ended("l")]).unwrap();
    assert!(matches!(told, AllClaimed::Refused { index: 0, outcome: Outcome::Interrupted(_) }), "{told:?}");
    let syncs = store.stats().syncs;
    let told = (store.inspect("l").unwrap().state, store.stats().syncs);
    assert_eq!(
        told,
        (KeyState::Pending, syncs),
        "P6 never stuck: nothing was written, and l waits for a sync"
    );
    drop(held);
}
