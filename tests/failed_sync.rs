//! Syncs that fail, panic or hang: what is told, to whom, and how the store comes back.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{
    AdminError, AllClaimed, Claim, ClaimError, Durability, Fault as Cause, ManualClock, OnInterrupt, Outcome,
    Request, RetryCause, SettleError, Settled, Store, SyncBy,
};
use faults::{Fault, Faulty, Syncs};
use std::thread;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
/// A real sync limit for the tests in which a sync hangs; nothing depends on how long it is.
const SHORT: Duration = Duration::from_millis(300);
/// What a bounded wait is given on a machine that is busy with something else.
const IN_TIME: Duration = Duration::from_secs(20);

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

fn stored(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Settled(Settled::Completed(stored)) => Some(stored.decode().unwrap()),
        _ => None,
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < IN_TIME, "never came about: {what}");
        thread::yield_now();
    }
}

fn claim_is_poisoned(told: &Result<Outcome, ClaimError>) -> bool {
    matches!(told, Err(ClaimError::Failed { fault: Cause::Poisoned(_), .. }))
}

fn look_is_poisoned<T>(told: &Result<T, AdminError>) -> bool {
    let poisoned = |fault: &Cause| matches!(fault, Cause::Poisoned(_));
    matches!(told, Err(AdminError::Failed { fault, .. } | AdminError::Listed { fault, .. }) if poisoned(fault))
}

#[test]
fn after_a_failed_sync_nothing_is_told_that_no_finished_sync_covers() {
    for (syncs, durability) in
        [Syncs::Fail, Syncs::Panic].into_iter().flat_map(|s| [(s, Durability::Full), (s, Durability::Result)])
    {
        let (faulty, clock) = (Faulty::new(), ManualClock::new());
        let open = || Store::builder(faulty.clone()).clock(clock.clone()).open().unwrap();
        let store = open();
        let request = |key: &str| Request::new(key).durability(durability);
        grant(&store, request("old")).complete("old").unwrap();
        let (busy, new) = (grant(&store, request("busy")), grant(&store, request("new")));
        let quick = grant(&store, Request::new("quick").durability(Durability::Relaxed));
        quick.complete("quick").unwrap();
        let waiters = ["busy", "new"].map(|key| {
            let (store, request) = (store.clone(), request(key).wait(HOUR));
            thread::spawn(move || store.claim(request))
        });
        until("both wait", || store.stats().waiters == 2);

        faulty.syncs(syncs);
        let Err(SettleError::Retry(retry)) = new.complete("new") else {
            panic!("P4 durable before told: the completer was not told that its sync failed")
        };
        assert!(matches!(retry.cause, RetryCause::Fault(Cause::Poisoned(_))), "{:?}", retry.cause);
        assert!(retry.cause.to_string().contains("open it again"), "{}", retry.cause);
        faulty.syncs(Syncs::Work); // it stays poisoned all the same
        for waiter in waiters {
            until("P6 never stuck: a waiter is told that a sync failed", || waiter.is_finished());
            let told = waiter.join().unwrap();
            assert!(claim_is_poisoned(&told), "P6 never stuck: a waiter was told {told:?}");
        }

        assert!(store.stats().poisoned);
        assert_eq!(
            stored(store.claim(request("old")).unwrap()).as_deref(),
            Some("old"),
            "it was synced before"
        );
        assert!(store.get("old").unwrap().is_some(), "it was synced before");
        for key in ["new", "quick", "other"] {
            let told = store.claim(request(key));
            assert!(claim_is_poisoned(&told), "P9 fail closed: claim of {key}: {told:?}");
        }
        for key in ["new", "quick"] {
            let told = store.get(key);
            assert!(look_is_poisoned(&told), "P9 fail closed: get of {key}: {told:?}");
        }
        let scanned: Vec<_> = store.scan("", "").unwrap().collect();
        let told: Vec<_> = scanned.iter().map(look_is_poisoned).collect();
        assert_eq!(told, [true, false, true], "P9 fail closed: scan: of new, old and quick: {scanned:?}");
        let told = store.claim(request("busy"));
        assert!(matches!(told, Ok(Outcome::InFlight(_))), "its claim is still held: {told:?}");
        assert!(busy.complete("busy").is_err(), "P9 fail closed: a settle after a failed sync");
        assert!(look_is_poisoned(&store.remove("old")), "P9 fail closed: a removal after a failed sync");
        assert!(look_is_poisoned(&store.sync()), "asking again would prove nothing");

        assert!(store.close().is_err(), "the last sync failed, and close says so");
        faulty.crash();
        let store = open();
        assert_eq!(stored(store.claim("old").unwrap()).as_deref(), Some("old"), "P8 remembered");
        grant(&store, request("new")).complete("again").unwrap();
        assert_eq!(stored(store.claim("new").unwrap()).as_deref(), Some("again"));
        drop(retry);
    }
}

#[test]
fn an_interruption_is_told_after_its_sync() {
    let (faulty, clock) = (Faulty::new(), ManualClock::new());
    let store = Store::builder(faulty.clone()).clock(clock).open().unwrap();
    drop(grant(&store, Request::new("k").on_interrupt(OnInterrupt::Quarantine)));
    faulty.syncs(Syncs::Fail);
    for look in ["whose sync failed", "that came after it"] {
        let told = store.claim("k");
        assert!(claim_is_poisoned(&told), "P9 fail closed: the claim {look} was told {told:?}");
    }
}

#[test]
fn an_interruption_whose_sync_hangs_is_in_flight() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
    drop(grant(&store, Request::new("k").on_interrupt(OnInterrupt::Quarantine)));
    faulty.syncs(Syncs::Hang);
    assert!(matches!(store.claim("k"), Err(ClaimError::Failed { fault: Cause::SyncPending { .. }, .. })));
    let told = store.claim("k").unwrap();
    assert!(matches!(told, Outcome::InFlight(_)), "P4 durable before told: {told:?}");
    faulty.syncs(Syncs::Work);
    let told = store.claim(Request::new("k").wait(IN_TIME)).unwrap();
    assert!(matches!(told, Outcome::Interrupted(_)), "{told:?}");
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_sync_that_hangs_keeps_nobody_and_is_confirmed_later() {
    for durability in [Durability::Full, Durability::Result] {
        let faulty = Faulty::new();
        let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
        let request = |key: &str| Request::new(key).durability(durability);
        let (claim, busy) = (grant(&store, request("k")), grant(&store, request("busy")));
        grant(&store, request("old")).complete("old").unwrap();

        faulty.syncs(Syncs::Hang);
        let start = Instant::now();
        let Err(SettleError::Retry(retry)) = claim.complete("done") else {
            panic!("P4 durable before told: the completer was not told that its sync hangs")
        };
        assert!(start.elapsed() < IN_TIME, "every settle has a bound in time: {:?}", start.elapsed());
        let RetryCause::Fault(Cause::SyncPending { waited, .. }) = retry.cause else {
            panic!("{:?}", retry.cause)
        };
        assert!(waited >= SHORT);
        faulty.until_a_sync_hangs();
        assert!(store.stats().sync_running.is_some());
        assert!(!store.stats().poisoned, "a sync that hangs has not failed");

        // What needs no sync is answered as ever.
        assert!(matches!(store.claim(request("busy")).unwrap(), Outcome::InFlight(_)));
        assert_eq!(stored(store.claim("old").unwrap()).as_deref(), Some("old"));
        drop(grant(&store, Request::new("other").durability(Durability::Result)));
        // And what was not synced is told to nobody.
        let told = store.claim(request("k")).unwrap();
        assert!(matches!(told, Outcome::InFlight(_)), "P4 durable before told: {told:?}");
        assert_eq!(store.get("k").unwrap(), None, "P4 durable before told");
        let waiter = {
            let (store, request) = (store.clone(), request("k").wait(HOUR));
            thread::spawn(move || store.claim(request))
        };
        until("it waits", || store.stats().waiters == 1);

        faulty.syncs(Syncs::Work);
        until("P6 never stuck: a waiter is told once it is synced", || waiter.is_finished());
        let told = waiter.join().unwrap().unwrap();
        assert_eq!(stored(told).as_deref(), Some("done"), "whoever waits is told once it is synced");
        retry.claim.complete("done").expect("trying again confirms what is stored");
        assert_eq!(stored(store.claim("k").unwrap()).as_deref(), Some("done"));
        assert!(store.stats().sync_running.is_none());
        busy.release().unwrap();
        assert_eq!(store.stats().entries, 0);
    }
}

#[test]
fn a_claim_whose_sync_hangs_costs_no_attempt() {
    let requests = [
        Request::new("k"),
        Request::new("k").on_interrupt(OnInterrupt::Quarantine),
        Request::new("k").max_attempts(1),
    ];
    for request in requests {
        let faulty = Faulty::new();
        let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
        faulty.syncs(Syncs::Hang);
        for _ in 0..2 {
            let told = store.claim(&request);
            let pending = matches!(told, Err(ClaimError::Failed { fault: Cause::SyncPending { .. }, .. }));
            assert!(pending, "P4 durable before told: {told:?}");
            assert_eq!(store.stats().live_claims, 0);
        }
        faulty.syncs(Syncs::Work);
        let claim = grant(&store, &request);
        assert_eq!((claim.attempt(), claim.previous()), (1, None), "it was never granted (rule 15)");
        claim.complete("done").unwrap();
        assert_eq!(store.stats().entries, 0);
    }
}

#[test]
fn a_key_that_was_never_granted_can_be_removed_and_leaves_nothing_in_memory() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).sync_limit(SHORT).open().unwrap();
    faulty.syncs(Syncs::Hang);
    assert!(store.claim("k").is_err());
    faulty.syncs(Syncs::Work);
    assert!(store.remove("k").unwrap());
    assert_eq!(store.stats().entries, 0);
}

/// Where callers sync, a settle whose caller is gone has nobody to sync it but those who find it.
#[test]
fn whoever_finds_a_settle_that_nobody_waits_for_syncs_it() {
    type Find = fn(&Store) -> bool;
    let finds: [(&str, Find); 6] = [
        ("claim", |store| matches!(store.claim("k").unwrap(), Outcome::Settled(_))),
        ("claim that waits", |store| {
            matches!(
                store.claim(Request::new("k").wait(Duration::from_secs(1))).unwrap(),
                Outcome::Settled(_)
            )
        }),
        ("claim_many", |store| matches!(store.claim_many(["k"])[0], Ok(Outcome::Settled(_)))),
        ("claim_all", |store| {
            let told = store.claim_all([Request::new("k").wait(Duration::from_secs(1))]).unwrap();
            matches!(told, AllClaimed::Refused { outcome: Outcome::Settled(_), .. })
        }),
        ("get", |store| store.get("k").unwrap().is_some()),
        ("remove", |store| store.remove("k").unwrap()),
    ];
    for (what, find) in finds {
        let faulty = Faulty::new();
        let store =
            Store::builder(faulty.clone()).sync_by(SyncBy::Caller).clock(ManualClock::new()).open().unwrap();
        let claim = store.claim(Request::new("k").durability(Durability::Result)).unwrap().granted().unwrap();
        // The commit lands and errs, and so does the look that follows.
        faulty.arm(0, 2, Fault::FailAfter);
        let settled = claim.complete("done");
        let fired = faulty.disarm();
        assert_eq!(fired, ["commit", "read"], "{what}");
        drop(settled);
        assert!(find(&store), "rule 3: {what}: the settle was left without a sync");
        assert_eq!(store.stats().entries, 0, "{what}");
    }
}

#[test]
fn a_sync_that_hangs_shows_in_the_stats_while_it_does() {
    let (faulty, clock) = (Faulty::new(), ManualClock::new());
    let builder = Store::builder(faulty.clone()).clock(clock.clone()).sync_limit(HOUR);
    let store = builder.slow_sync(Duration::from_secs(5)).open().unwrap();
    grant(&store, "fast").complete("done").unwrap();
    assert_eq!((store.stats().slow_syncs, store.stats().slowest_sync), (0, Duration::ZERO));

    faulty.syncs(Syncs::Hang);
    let claimant = {
        let store = store.clone();
        thread::spawn(move || store.claim("k"))
    };
    faulty.until_a_sync_hangs();
    for (seconds, slow) in [(4, 0), (5, 1), (600, 1)] {
        clock.advance(Duration::from_secs(seconds) - store.stats().sync_running.unwrap());
        let stats = store.stats();
        let running = Duration::from_secs(seconds);
        assert_eq!((stats.sync_running, stats.slowest_sync), (Some(running), running));
        assert_eq!(stats.slow_syncs, slow, "rule 10: a hung storage call is reported, after {seconds} s");
    }
    faulty.syncs(Syncs::Work);
    assert!(matches!(claimant.join().unwrap(), Ok(Outcome::Granted(_))));
    grant(&store, "fast again").complete("done").unwrap();
    let stats = store.stats();
    assert_eq!((stats.sync_running, stats.slow_syncs), (None, 1));
    assert_eq!(stats.slowest_sync, Duration::from_secs(600), "it is remembered");
}
