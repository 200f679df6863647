//! Waiting for a key: who is woken, by what, in what order, and until when. Time is moved by hand.
#![cfg(not(loom))] // real threads wait here
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::Mem;
use claimdb::{Claim, Durability, Fingerprint, ManualClock, Outcome, Request, Settled, Store};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

const SEC: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];
/// Real time, for the test alone: what has not come about by then never will.
const IN_TIME: Duration = Duration::from_secs(30);

struct World {
    clock: ManualClock,
    store: Store,
    told: Receiver<(usize, Outcome)>,
    tell: Sender<(usize, Outcome)>,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        // A sweeping thread would wait on the clock as well.
        // Nobody else waits on the clock.
        let builder = Store::builder(Mem::new()).clock(clock.clone());
        let store = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap();
        let (tell, told) = mpsc::channel();
        Self { clock, store, told, tell }
    }

    fn grant(&self, request: impl Into<Request>) -> Claim {
        self.store.claim(request).unwrap().granted().expect("nobody has the key")
    }

    /// Starts a thread that waits for the key, and returns once it does.
    fn wait(&self, name: usize, request: Request) {
        let before = self.store.stats().waiters;
        let (store, tell) = (self.store.clone(), self.tell.clone());
        thread::spawn(move || {
            let told = store.claim(request).expect("memory does not fail");
            let _ = tell.send((name, told)); // a test that has failed listens no more
        });
        self.until_waiters(before + 1);
    }

    /// Until that many stand in the key's queue and on the clock.
    fn until_waiters(&self, count: usize) {
        self.until(&format!("{count} waiters"), || {
            self.store.stats().waiters == count && self.clock.waiting() == count
        });
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < IN_TIME, "P6 never stuck: never came about: {what}");
            thread::yield_now();
        }
    }

    fn next(&self) -> (usize, Outcome) {
        self.told.recv_timeout(IN_TIME).expect("P6 never stuck: nobody was told anything")
    }

    fn nobody_was_told(&self) -> bool {
        matches!(self.told.try_recv(), Err(TryRecvError::Empty))
    }

    fn is_empty(&self) {
        // A syncing thread may be on its way out of the last sync.
        self.until("entries, waiters and marks at zero", || {
            let stats = self.store.stats();
            (stats.entries, stats.waiters, stats.unsynced, stats.live_claims) == (0, 0, 0, 0)
        });
        assert_eq!(self.clock.waiting(), 0);
    }
}

/// How a holder ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Drop,
    Release,
    Panic,
    Expiry,
}

#[test]
fn one_waiter_becomes_the_holder_and_the_rest_wait_to_their_own_deadlines() {
    const WAITERS: usize = 8;
    // Each has its own, all of them after the lease and before the next one ends.
    let deadline = |name: usize| 40 * SEC + SEC * u32::try_from(name).unwrap();
    for durability in ALL {
        for end in [End::Drop, End::Release, End::Panic, End::Expiry] {
            let world = World::new();
            let request = Request::new("k").durability(durability).lease(30 * SEC);
            let mut claim = Some(world.grant(&request));
            for name in 0..WAITERS {
                world.wait(name, request.clone().wait(deadline(name)));
            }
            assert!(world.nobody_was_told(), "P5 no early takeover: {durability:?} {end:?}");
            world.clock.advance(29 * SEC);
            world.until_waiters(WAITERS);
            assert!(world.nobody_was_told(), "P5 no early takeover: {durability:?} {end:?}");
            match end {
                End::Drop => drop(claim.take()),
                End::Release => claim.take().unwrap().release().unwrap(),
                End::Panic => {
                    let claim = claim.take();
                    thread::spawn(move || {
                        let _claim = claim;
                        panic!("on purpose");
                    });
                }
                End::Expiry => world.clock.advance(SEC),
            }
            let (first, told) = world.next();
            let Outcome::Granted(new) = told else {
                panic!("P6 never stuck: {durability:?} {end:?}: {told:?}")
            };
            world.until_waiters(WAITERS - 1);
            assert!(world.nobody_was_told(), "P1 one holder: {durability:?} {end:?}");
            let mut left = WAITERS - 1;
            let mut now = if end == End::Expiry { 30 * SEC } else { 29 * SEC };
            for (name, deadline) in
                (0..WAITERS).map(|name| (name, deadline(name))).filter(|(n, _)| *n != first)
            {
                world.clock.advance(deadline - NANO - now);
                world.until_waiters(left);
                assert!(world.nobody_was_told(), "waiter {name} went before its deadline");
                world.clock.advance(NANO);
                now = deadline;
                let (who, told) = world.next();
                assert_eq!(who, name, "the deadline of waiter {name} was kept by another");
                let Outcome::InFlight(holder) = told else { panic!("{durability:?} {end:?}: {told:?}") };
                assert_eq!(holder.token(), Some(new.token()));
                left -= 1;
            }
            new.complete("done").unwrap();
            drop(claim);
            world.is_empty();
        }
    }
}

#[test]
fn all_waiters_get_the_result() {
    for durability in ALL {
        let world = World::new();
        let request = Request::new("k").durability(durability);
        let claim = world.grant(&request);
        for name in 0..20 {
            world.wait(name, request.clone().wait(10 * SEC));
        }
        claim.complete("done").unwrap();
        for _ in 0..20 {
            let (_, told) = world.next();
            let stored =
                told.settled().and_then(Settled::completed).expect("P6 never stuck: it was completed");
            assert_eq!(stored.decode::<String>().unwrap(), "done");
        }
        world.is_empty();
    }
}

#[test]
fn all_waiters_get_the_failure() {
    let world = World::new();
    let claim = world.grant("k");
    for name in 0..5 {
        world.wait(name, Request::new("k").wait(10 * SEC));
    }
    claim.fail("for good").unwrap();
    for _ in 0..5 {
        let (_, told) = world.next();
        assert!(matches!(told, Outcome::Settled(Settled::Failed(_))), "{told:?}");
    }
    world.is_empty();
}

#[test]
fn a_wait_of_zero_returns_at_once() {
    for durability in ALL {
        let world = World::new();
        let claim = world.grant(Request::new("k").durability(durability));
        let told = world.store.claim(Request::new("k").durability(durability).wait(Duration::ZERO)).unwrap();
        assert!(matches!(told, Outcome::InFlight(_)), "{told:?}");
        assert_eq!((world.clock.waiting(), world.store.stats().waiters), (0, 0));
        claim.release().unwrap();
        world.is_empty();
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let world = World::new();
    let claim = world.grant("k");
    world.wait(0, Request::new("k").wait(5 * SEC));
    world.clock.advance(5 * SEC - NANO);
    world.until_waiters(1);
    assert!(world.nobody_was_told(), "it went before its deadline");
    world.clock.advance(NANO);
    let (_, told) = world.next();
    let Outcome::InFlight(holder) = told else { panic!("{told:?}") };
    assert_eq!((holder.token(), holder.age(), holder.remaining()), (Some(claim.token()), 5 * SEC, 25 * SEC));
    drop(claim);
    world.is_empty();
}

#[test]
fn a_renewed_lease_is_waited_for_anew() {
    let world = World::new();
    let claim = world.grant(Request::new("k").lease(10 * SEC));
    world.wait(0, Request::new("k").wait(100 * SEC));
    world.clock.advance(9 * SEC);
    claim.renew(10 * SEC).unwrap();
    world.clock.advance(10 * SEC - NANO);
    world.until_waiters(1);
    assert!(world.nobody_was_told(), "P5 no early takeover: the lease was renewed");
    world.clock.advance(NANO);
    let (_, told) = world.next();
    assert!(matches!(told, Outcome::Granted(_)), "P6 never stuck: {told:?}");
    // And one that is cut short is not waited out.
    let claim = told.granted().unwrap();
    world.wait(1, Request::new("k").wait(100 * SEC));
    claim.renew(SEC).unwrap();
    world.until_waiters(1);
    world.clock.advance(SEC);
    let (_, told) = world.next();
    assert!(matches!(told, Outcome::Granted(_)), "P6 never stuck: {told:?}");
}

#[test]
fn a_claim_for_something_else_does_not_wait() {
    let world = World::new();
    let (one, two) = (Fingerprint::new([1; 32]), Fingerprint::new([2; 32]));
    let claim = world.grant(Request::new("k").fingerprint(one));
    let told = world.store.claim(Request::new("k").fingerprint(two).wait(10 * SEC)).unwrap();
    assert!(matches!(told, Outcome::Mismatched(_)), "P7 mismatch is harmless: {told:?}");
    drop(claim);
}

#[test]
fn a_waiter_that_gives_up_hands_on_the_watch_over_the_lease() {
    let world = World::new();
    let claim = world.grant(Request::new("k").lease(30 * SEC));
    for (name, wait) in [5, 10, 100, 100].into_iter().enumerate() {
        world.wait(name, Request::new("k").wait(SEC * wait));
    }
    for (expected, left) in [(0, 3), (1, 2)] {
        world.clock.advance(5 * SEC);
        let (name, told) = world.next();
        assert!(name == expected && matches!(told, Outcome::InFlight(_)), "{name}: {told:?}");
        world.until_waiters(left);
    }
    world.clock.advance(20 * SEC);
    let (name, told) = world.next();
    assert!(matches!(told, Outcome::Granted(_)), "P6 never stuck: {told:?}");
    assert_eq!(name, 2, "out of order");
    drop(claim);
}

#[test]
fn a_hundred_waiters_are_granted_in_the_order_in_which_they_came() {
    const WAITERS: usize = 100;
    for durability in ALL {
        for release in [false, true] {
            let world = World::new();
            let request = Request::new("k").durability(durability);
            let mut claim = world.grant(&request);
            for name in 0..WAITERS {
                world.wait(name, request.clone().wait(1000 * SEC));
            }
            for expected in 0..WAITERS {
                if release {
                    claim.release().unwrap()
                } else {
                    drop(claim)
                }
                let (name, told) = world.next();
                assert_eq!(name, expected, "out of order: {durability:?}, by release: {release}");
                let Outcome::Granted(next) = told else { panic!("P6 never stuck: {told:?}") };
                // The others have gone back to waiting before the next one ends.
                world.until_waiters(WAITERS - 1 - expected);
                claim = next;
            }
            claim.complete("done").unwrap();
            world.is_empty();
        }
    }
}
