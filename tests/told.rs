//! What claims, runs, locks and scopes tell of themselves, and the terms that a scope gives to its claims.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{
    Claim, CopyError, Durability, Key, KeyState, ManualClock, Omission, OnInterrupt, OpenError, Outcome,
    Request, Resolution, Run, StorageError, Store, Token, WallTime, Writes,
};
use hooks::{At, Hooked, until};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// Memory whose engine tells of itself, and fails to sync once it is opened to look.
#[derive(Debug, Clone, Default)]
struct Telling {
    mem: Mem,
    bytes: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
}

#[derive(Debug)]
struct TellingEngine(Box<dyn Engine>, Telling);

fn on_purpose() -> StorageError {
    StorageError::new("looking at", "memory", "on purpose")
}

impl Backend for Telling {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(TellingEngine(self.mem.open()?, self.clone())))
    }
}

impl Engine for TellingEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.0.commit(commits)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        if self.1.fails.load(Ordering::SeqCst) { Err(on_purpose()) } else { self.0.sync() }
    }

    fn size(&self) -> Result<Option<u64>, StorageError> {
        Ok(Some(self.1.bytes.load(Ordering::SeqCst)))
    }

    fn is_as_written(&self) -> Result<(), StorageError> {
        if self.1.fails.load(Ordering::SeqCst) { Err(on_purpose()) } else { Ok(()) }
    }
}

#[test]
fn what_an_engine_tells_of_itself_is_told_of_the_store_also_in_a_look() {
    let telling = Telling::default();
    let tells = |bytes| telling.bytes.store(bytes, Ordering::SeqCst);
    tells(4321);
    let store = Store::builder(telling.clone()).sweep_every(Duration::ZERO).open().unwrap();
    assert_eq!(store.stats().store_bytes, Some(4321));
    tells(8642);
    assert!(!store.sweep(1).unwrap().more);
    assert_eq!(store.stats().store_bytes, Some(8642));
    store.close().unwrap();
    let look = Store::builder(telling.clone()).read_only().open().unwrap();
    assert_eq!(look.stats().store_bytes, Some(8642));
    telling.fails.store(true, Ordering::SeqCst);
    let copied = look.backup_to(&Mem::new());
    assert!(
        matches!(copied, Err(CopyError::Storage(_))),
        "P9 fail closed: what is not as it was written was copied: {copied:?}"
    );
    assert_eq!(world().0.stats().store_bytes, None, "memory takes no room on a disk");
    assert!(look.sync().is_err(), "P9 fail closed: a sync that failed was told as one");
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

    let _kept = grant(&store, scope().durability(Durability::Result).request("in memory"));
    let key = Key::scoped("tenant", "in memory").unwrap();
    assert_eq!(store.inspect(key).unwrap().state, KeyState::InMemory);

    let _holder = grant(&store, scope().request("busy"));
    let poll = |request| {
        let mut claim = std::pin::pin!(store.claim_async(request));
        Future::poll(claim.as_mut(), &mut Context::from_waker(Waker::noop())).map(Result::unwrap)
    };
    assert!(matches!(poll(scope().request("busy")), Poll::Ready(Outcome::InFlight(_))));
    assert!(poll(scope().wait(SEC).request("busy")).is_pending(), "the scope's claims wait");
}

#[test]
fn what_is_stored_tells_its_attempt_and_whether_a_person_settled_it() {
    let (store, _) = world();
    drop(grant(&store, "k"));
    let claim = grant(&store, "k");
    let Outcome::InFlight(holder) = store.claim("k").unwrap() else { panic!("P1 one holder") };
    assert_eq!((holder.token(), holder.attempt()), (Some(claim.token()), 2));
    let token = claim.token();
    claim.complete("done").unwrap();
    let settled = store.get("k").unwrap().unwrap();
    let about = settled.about();
    assert_eq!((about.token(), about.attempt(), about.by_hand()), (token, 2, false));

    let token = grant(&store, "other").token();
    assert!(store.resolve("other", token, Resolution::omitted()).unwrap());
    let settled = store.get("other").unwrap().unwrap();
    assert_eq!((settled.about().attempt(), settled.about().by_hand()), (1, true));
}

#[test]
fn a_backup_takes_nothing_from_what_is_told_of_the_stores_room() {
    let (telling, hooked) = (Telling::default(), Hooked::new());
    let store = Store::builder(telling.clone()).sweep_every(Duration::ZERO).open().unwrap();
    let beside = store.clone();
    hooked.on(At::Commit, move || {
        telling.bytes.store(777, Ordering::SeqCst);
        assert!(!beside.sweep(1).unwrap().more);
    });
    store.backup_to(&hooked).unwrap();
    assert_eq!(store.stats().store_bytes, Some(777));
}

#[test]
fn each_way_to_end_is_counted_by_itself() {
    let (store, _) = world();
    grant(&store, "a").complete("done").unwrap();
    let writes = Writes::new();
    assert!(writes.is_empty());
    let writes = writes.put("v", "k", "1");
    assert!(!writes.is_empty());
    grant(&store, "b").complete_with("done", writes).unwrap();
    grant(&store, "c").fail("no").unwrap();
    grant(&store, "d").omit(Omission::OnPurpose).unwrap();
    for durability in [Durability::Full, Durability::Result] {
        grant(&store, Request::new("e").durability(durability)).release().unwrap();
    }
    let stats = store.stats();
    assert_eq!((stats.completed, stats.failed, stats.omitted, stats.released), (2, 1, 1, 2));
    assert_eq!(stats.settled, 4);
}

#[test]
fn whoever_lost_the_key_is_told_to_whom() {
    let (store, clock) = world();
    let late = grant(&store, Request::new("k").lease(SEC));
    clock.advance(SEC);
    let holder = grant(&store, "k");
    let told = late.complete("late").expect_err("P3 fenced").to_string();
    assert!(told.contains(&format!("token {} is current", holder.token())), "{told}");
    assert!(store.remove_by_force("k").unwrap());
    let told = holder.complete("late").expect_err("P3 fenced").to_string();
    assert!(told.contains("it ended, or the key was removed"), "{told}");
}

#[test]
fn who_waits_for_a_lock_is_told_when_the_wait_is_over() {
    let (store, clock) = world();
    let _held = store.lock("k", Duration::ZERO).unwrap().unwrap();
    let waits = RefCell::new(Box::pin(store.lock_async("k", SEC)));
    let poll = || Future::poll(waits.borrow_mut().as_mut(), &mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending(), "it waits");
    clock.advance(SEC);
    until("the wait is over", || matches!(poll(), Poll::Ready(Ok(None))));
}
