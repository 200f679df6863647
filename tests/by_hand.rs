//! Ending and settling a claim in its holder's stead, and looking at a store without opening it to change it.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)] // threads from outside

use claimdb::backend::{Backend as _, Mem};
use claimdb::{
    AdminError, Clock, Durability, EndedBy, Fault, KeyState, Known, LossCause, ManualClock, Moment, Next,
    OnInterrupt, OpenError, Outcome, Request, Resolution, SettleError, Settled, Signal, Store, Token,
    WallTime,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

struct World {
    mem: Mem,
    clock: ManualClock,
    store: Store,
}

impl World {
    fn new() -> Self {
        let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
        let store = Store::builder(mem.clone()).clock(clock.clone()).open().unwrap();
        Self { mem, clock, store }
    }

    fn stored(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let engine = self.mem.open().unwrap();
        let mut found = BTreeMap::new();
        let mut collect = |key: &[u8], value: &[u8]| {
            found.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        engine.scan(&[], None, &mut collect).unwrap();
        found
    }
}

fn granted(store: &Store, request: impl Into<Request>) -> claimdb::Claim {
    store.claim(request).unwrap().granted().expect("nobody else has it")
}

#[test]
fn a_lease_that_is_ended_frees_the_key_and_wakes_who_waits_for_it() {
    for durability in [Durability::Full, Durability::Result] {
        let world = World::new();
        let old = granted(&world.store, Request::new("k").durability(durability));
        let (tell, told) = std::sync::mpsc::channel();
        let store = world.store.clone();
        let request = Request::new("k").durability(durability).wait(3600 * SEC);
        std::thread::spawn(move || {
            let claim = granted(&store, request);
            let _ = tell.send((claim.attempt(), claim.previous().map(|previous| previous.ended_by)));
        });
        while world.store.stats().waiters == 0 {
            std::thread::yield_now();
        }
        let another = Token::new(old.token().get() + 1);
        assert!(!world.store.end_lease("k", another).unwrap(), "the lease of another claim was ended");
        assert!(old.lost().cause().is_none(), "P5 no early takeover: another claim's lease was ended");
        assert!(world.store.end_lease("k", old.token()).unwrap());
        // The clock stands still: only a wake-up brings the waiter on.
        let told = told.recv_timeout(10 * SEC).expect("P6 never stuck: nobody woke who waits for the key");
        assert_eq!(told, (2, Some(EndedBy::LeaseOver)), "{durability:?}");
        assert!(!world.store.end_lease("k", old.token()).unwrap());
        assert!(matches!(old.complete("late"), Err(SettleError::Lost(_))), "P3 fenced: {durability:?}");
    }
}

#[test]
fn a_holder_whose_lease_was_ended_hears_of_it_and_may_settle_while_nobody_else_has_the_key() {
    let world = World::new();
    let claim = granted(&world.store, "k");
    claim.keep_alive(3600 * SEC).unwrap();
    let lost = claim.lost();
    assert!(world.store.end_lease("k", claim.token()).unwrap());
    assert_eq!(lost.cause(), Some(LossCause::LeaseOver), "it hears that its lease was ended");
    assert!(claim.renew(LEASE).is_err(), "rule 11: expiry is final for renew");
    claim.complete("after all").unwrap();
    assert!(world.store.get("k").unwrap().is_some());
}

/// A clock that is looked at, and then something comes in between.
#[derive(Debug, Clone)]
struct Slow {
    clock: ManualClock,
    then: Arc<Mutex<Option<(Store, Token)>>>,
}

impl Clock for Slow {
    fn now(&self) -> Moment {
        let now = self.clock.now();
        let then = self.then.lock().unwrap().take();
        if let Some((store, token)) = then {
            self.clock.advance(SEC);
            assert!(store.end_lease("k", token).unwrap());
        }
        now
    }

    fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    fn wait(&self, signal: &Arc<Signal>, deadline: Moment) {
        self.clock.wait(signal, deadline);
    }
}

#[test]
fn a_renewal_that_looked_at_the_clock_before_the_lease_was_ended_does_not_undo_that() {
    let slow = Slow { clock: ManualClock::new(), then: Arc::default() };
    let store = Store::builder(Mem::new()).clock(slow.clone()).open().unwrap();
    let claim = granted(&store, "k");
    *slow.then.lock().unwrap() = Some((store.clone(), claim.token()));
    let renewed = claim.renew(LEASE);
    assert!(renewed.is_err(), "rule 11: a lease that was ended is renewed");
    assert_eq!(claim.remaining(), Duration::ZERO, "rule 11: a lease that was ended runs on");
}

#[test]
fn a_claim_that_has_ended_is_settled_by_hand_and_a_live_one_is_not() {
    let resolutions = [
        Resolution::completed("by hand").unwrap(),
        Resolution::failed_bytes(b"by hand".to_vec()),
        Resolution::omitted(),
    ];
    for resolution in resolutions {
        for ended in ["lease over", "lease ended", "dropped", "reopened"] {
            let mut world = World::new();
            let claim = granted(&world.store, Request::new("k").on_interrupt(OnInterrupt::Quarantine));
            let token = claim.token();
            let live = world.store.resolve("k", token, resolution.clone());
            assert!(matches!(live, Err(AdminError::InFlight { .. })), "rule 19: {live:?}");
            let mut holder = Some(claim);
            match ended {
                "lease over" => world.clock.advance(LEASE),
                "lease ended" => assert!(world.store.end_lease("k", token).unwrap()),
                "dropped" => drop(holder.take()),
                _ => {
                    world.store.close().unwrap();
                    let builder = Store::builder(world.mem.clone()).clock(world.clock.clone());
                    world.store = builder.open().unwrap();
                }
            }
            let store = &world.store;
            let another = Token::new(token.get() + 1);
            assert!(!store.resolve("k", another, resolution.clone()).unwrap(), "rule 19: it names its case");
            assert!(store.resolve("k", token, resolution.clone()).unwrap(), "{ended}");
            world.mem.crash();
            let store = Store::builder(world.mem.clone()).clock(world.clock.clone()).open().unwrap();
            let settled = store.get("k").unwrap().expect("P4 durable before told: a resolution");
            assert!(settled.about().by_hand() && settled.about().token() == token, "{ended}");
            drop(holder);
        }
    }
}

#[test]
fn what_was_settled_or_freed_by_hand_is_not_its_holders_any_more() {
    let world = World::new();
    let (settled, freed) = (granted(&world.store, "settled"), granted(&world.store, "freed"));
    world.clock.advance(LEASE);
    assert!(world.store.resolve("settled", settled.token(), Resolution::omitted()).unwrap());
    assert!(world.store.resolve("freed", freed.token(), Resolution::released()).unwrap());
    assert_eq!(world.store.inspect("freed").unwrap().state, KeyState::Absent);
    let late = settled.complete("late");
    assert!(matches!(&late, Err(SettleError::AlreadySettled(already)) if already.by_hand()), "{late:?}");
    let late = freed.complete("late");
    assert!(matches!(late, Err(SettleError::Lost(_))), "P3 fenced: {late:?}");
    assert_eq!(granted(&world.store, "freed").attempt(), 1, "what is released was never there");
}

#[test]
fn all_keys_are_listed_with_what_there_is_to_tell() {
    let world = World::new();
    let store = &world.store;
    let scope = store.scope("shop").unwrap();
    granted(store, "done").complete("value").unwrap();
    granted(store, scope.request("failed")).fail(&7_u8).unwrap();
    let live = granted(store, "live");
    let in_memory = granted(store, Request::new("in memory").durability(Durability::Result));
    drop(granted(store, Request::new("dropped").max_attempts(2)));
    drop(granted(store, Request::new("last").on_interrupt(OnInterrupt::Quarantine)));
    drop(granted(store, Request::new("case").on_interrupt(OnInterrupt::Quarantine)));
    assert!(matches!(store.claim("case").unwrap(), Outcome::Interrupted(_)));
    world.clock.advance(10 * SEC);

    let listed: BTreeMap<Vec<u8>, _> = store
        .keys(None)
        .unwrap()
        .map(|listed| listed.map(|(key, told)| (key.name().to_vec(), told)).unwrap())
        .collect();
    let told: Vec<_> = listed
        .iter()
        .map(|(name, told)| (String::from_utf8(name.clone()).unwrap(), told.state, told.next))
        .collect();
    let expected = [
        ("case", KeyState::Interrupted, Next::Interrupted),
        ("done", KeyState::Settled, Next::Settled),
        ("dropped", KeyState::Pending, Next::Granted),
        ("failed", KeyState::Settled, Next::Settled),
        ("last", KeyState::Pending, Next::Interrupted),
        ("live", KeyState::Pending, Next::InFlight),
    ];
    assert_eq!(
        told,
        expected.map(|(name, state, next)| (name.to_owned(), state, next)),
        "what is told of keys"
    );
    for (name, told) in &listed {
        let key =
            if name == b"failed" { claimdb::Key::scoped("shop", name) } else { claimdb::Key::new(name) };
        assert_eq!(store.inspect(key.unwrap()).unwrap(), *told, "what is listed is what inspect tells");
        assert_eq!(told.since, Some(10 * SEC));
    }
    let length = store.get("done").unwrap().unwrap().completed().unwrap().bytes().len();
    assert_eq!(listed[&b"done"[..]].result, Some(Known::Completed { length }));
    assert_eq!(listed[&b"dropped"[..]].terms.unwrap().max_attempts, Some(2));
    let names = |scope| {
        store.keys(scope).unwrap().map(|listed| listed.unwrap().0.name().to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(names(Some(b"shop")), [b"failed"]);
    assert_eq!(names(Some(b"none")), Vec::<Vec<u8>>::new());
    let mut live_keys: Vec<_> =
        store.live_keys(None).unwrap().iter().map(|key| key.name().to_vec()).collect();
    live_keys.sort();
    assert_eq!(live_keys, [b"in memory".to_vec(), b"live".to_vec()]);
    // What the next claim is told is what was said.
    for (name, told) in listed.iter().filter(|(name, _)| *name != b"failed") {
        let next = match store.claim(name.as_slice()).unwrap() {
            Outcome::Granted(_) => Next::Granted,
            Outcome::InFlight(_) => Next::InFlight,
            Outcome::Interrupted(_) => Next::Interrupted,
            Outcome::Settled(Settled::Completed(_)) => Next::Settled,
            other => panic!("{other:?}"),
        };
        assert_eq!(next, told.next, "{}", String::from_utf8_lossy(name));
    }
    drop((live, in_memory));
}

#[test]
fn a_store_that_is_looked_at_is_as_it_was() {
    let world = World::new();
    granted(&world.store, Request::new("soon").retention(SEC)).complete("x").unwrap();
    let pending = granted(&world.store, "pending").token();
    world.store.close().unwrap();
    let before = world.stored();
    let look = || Store::builder(world.mem.clone()).clock(world.clock.clone()).read_only();
    // A clock that is ahead by a year each time is believed by an opening for a week.
    for n in 1..20 {
        world.clock.set_wall(WallTime::from_unix_millis(1_735_689_600_000 + n * 365 * 86_400_000));
        let store = look().open().unwrap();
        let told = store.inspect("pending").unwrap();
        assert_eq!((told.state, told.token), (KeyState::Pending, Some(pending)));
        assert_eq!((told.remaining, told.next), (None, Next::Granted), "its holder has ended");
        assert_eq!(store.inspect("soon").unwrap().state, KeyState::Absent);
        assert_eq!(store.keys(None).unwrap().count(), 1);
        for durability in [Durability::Full, Durability::Result] {
            let refused = store.claim(Request::new("new").durability(durability)).expect_err("it only looks");
            assert!(refused.to_string().contains("Builder::read_only"), "{refused}");
        }
        let refused = store.resolve("pending", pending, Resolution::omitted()).expect_err("it only looks");
        assert!(matches!(&refused, AdminError::Failed { fault: Fault::Storage(_), .. }), "{refused}");
        assert!(store.kv("values").put("k", "v").is_err() && store.remove("pending").is_err());
        let _ = store.sweep(100);
        let locked = look().lock_wait(Duration::ZERO).open();
        assert!(matches!(locked, Err(OpenError::Locked { .. })), "rule 9: {locked:?}");
        store.close().unwrap();
        assert!(world.stored() == before, "rule 8, rule 23: looking at the store has changed it");
    }
    let none = Store::builder(Mem::new()).read_only().open();
    assert!(matches!(none, Err(OpenError::NoStore { .. })), "{none:?}");
}
