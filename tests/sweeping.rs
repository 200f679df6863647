//! How a store sweeps: in which steps, at what cost, by itself, and how its index is rebuilt.
#![cfg(not(loom))] // the support code plays faults on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/sweeps.rs"]
#[allow(dead_code)] // each test file uses a part
mod sweeps;

use claimdb::backend::{Backend, Mem};
use claimdb::{Durability, ManualClock, OnInterrupt, Outcome, Request, Settled, Store, Swept, SyncBy};
use faults::{Fault, Faulty};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use sweeps::{ALL, SEC, World, short};

#[test]
fn a_step_is_bounded_and_steps_get_through() {
    let world = World::new();
    for n in 0..100 {
        let request = Request::new(format!("k{n}")).durability(Durability::Relaxed).retention(60 * SEC);
        world.grant(request).complete(&n).unwrap();
    }
    world.clock.advance(61 * SEC);
    let swept = world.store.sweep(0).unwrap();
    assert_eq!((swept.deleted, swept.kept, swept.more), (0, 0, true));
    for round in 1..=10 {
        let swept = world.store.sweep(10).unwrap();
        assert_eq!((swept.deleted, swept.kept, swept.more), (10, 0, round < 10));
        assert_eq!(world.store.stats().sweep_backlog, if round < 10 { SEC } else { Duration::ZERO });
    }
    let stats = world.store.stats();
    assert_eq!((stats.swept, stats.sweep_failures, stats.since_sweep), (100, 0, Some(Duration::ZERO)));
    world.clock.advance(SEC);
    assert_eq!(world.store.stats().since_sweep, Some(SEC));
    assert_eq!(world.stored(), (0, 0));
}

#[test]
fn its_cost_follows_what_expired_and_not_what_is_stored() {
    let world = World::new();
    let complete = |n: u32, retention| {
        let request = Request::new(n.to_string()).durability(Durability::Relaxed).retention(retention);
        world.grant(request).complete(&n).unwrap();
    };
    let calls = || {
        world.faulty.arm(u64::MAX - 1, 1, Fault::FailBefore);
        let swept = world.sweep();
        (swept.deleted, world.faulty.calls())
    };
    (0..10_000).for_each(|n| complete(n, 86_400 * SEC));
    assert_eq!(calls(), (0, 1), "with nothing due a sweep looks once");
    (10_000..10_010).for_each(|n| complete(n, SEC));
    world.clock.advance(SEC);
    let (deleted, calls) = calls();
    assert!(deleted == 10 && calls <= 1 + 3 * 10, "{calls} calls for {deleted} records");
}

#[test]
fn a_hundred_thousand_keys_in_turn_leave_nothing_behind() {
    let (mem, clock) = (Mem::new(), ManualClock::new());
    let store = Store::builder(mem.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    let retention = Duration::from_millis(100);
    for n in 0..100_000_u32 {
        let durability = ALL[usize::try_from(n % 3).unwrap()];
        let request = Request::new(n.to_string()).durability(durability).retention(retention);
        let claim = store.claim(request).unwrap().granted().unwrap();
        match n % 7 {
            0 => drop(claim),
            1 => claim.release().unwrap(),
            _ => claim.complete(&n).unwrap(),
        }
        clock.advance(Duration::from_millis(1));
        if n % 20 == 0 {
            store.sweep(64).unwrap();
        }
    }
    let count = |space: u8| {
        store.close().unwrap();
        let mut count = 0;
        let engine = mem.open().unwrap();
        let mut one = |_: &[u8], _: &[u8]| {
            count += 1;
            ControlFlow::Continue(())
        };
        engine.scan(&[space], None, &mut one).unwrap();
        count
    };
    let (records, entries) = (count(1), count(4));
    assert!(records < 300 && entries < 600, "it grows: {records} records, {entries} entries");
}

#[test]
fn a_damaged_record_is_left_alone_and_keeps_nobody() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        let request = Request::new(name).retention(60 * SEC);
        world.grant(request).complete("done").unwrap();
    }
    world.store.close().unwrap();
    let key = [&[1, 0][..], b"a"].concat();
    world.faulty.put(&key, Some(b"damaged"));
    world.store = World::open(&world.faulty, &world.clock);
    world.clock.advance(61 * SEC);
    for round in 1..=2 {
        // One entry a step: what is kept must not be looked at again and again while others are due.
        let steps = (1..10).find(|_| !world.store.sweep(1).unwrap().more);
        assert!(steps.is_some(), "one record keeps the sweep from going on");
        assert_eq!(world.stored(), (1, 1), "round {round}");
        assert_eq!(world.store.stats().sweep_failures, round);
    }
    assert_eq!(world.faulty.stored(&key)[0].1, b"damaged");
    assert_eq!(world.store.stats().swept, 2);
}

#[test]
fn a_lost_index_is_rebuilt_and_garbage_in_it_goes() {
    let mut world = World::new();
    for durability in ALL {
        let request = Request::new(format!("{durability:?}")).durability(durability).retention(60 * SEC);
        world.grant(request).complete("done").unwrap();
    }
    drop(world.grant(short(Durability::Full)));
    let quarantine = Request::new("q").on_interrupt(OnInterrupt::Quarantine).retention(60 * SEC);
    drop(world.grant(&quarantine));
    assert!(matches!(world.store.claim(&quarantine).unwrap(), Outcome::Interrupted(_)));
    world.store.close().unwrap();
    for (key, _) in world.faulty.stored(&[4]) {
        world.faulty.put(&key, None);
    }
    for garbage in [&[4][..], &[4, 1, 2], &[[4; 17].as_slice(), &[1, 0], b"absent"].concat()] {
        world.faulty.put(garbage, Some(b""));
    }
    world.store = World::open(&world.faulty, &world.clock);
    let rebuilt = world.store.rebuild_index().unwrap();
    assert_eq!((rebuilt.written, rebuilt.deleted, rebuilt.damaged), (4, 3, 0));
    assert_eq!(world.store.rebuild_index().unwrap(), Default::default(), "there is nothing more to do");
    world.clock.advance(60 * SEC);
    world.sweep();
    assert_eq!(world.stored(), (1, 0), "rule 21: all but the interrupted one are swept");
}

#[test]
fn an_index_of_several_pages_is_rebuilt_to_its_end() {
    const MANY: u64 = 257;
    let mut world = World::new();
    for n in 0..MANY {
        let request = Request::new(n.to_string()).durability(Durability::Relaxed);
        world.grant(request).complete("done").unwrap();
    }
    world.store.close().unwrap();
    for (key, _) in world.faulty.stored(&[4]) {
        world.faulty.put(&key, None);
    }
    for n in 0..MANY {
        world.faulty.put(&[&[4][..], &n.to_be_bytes()[6..]].concat(), Some(b""));
    }
    world.store = World::open(&world.faulty, &world.clock);
    let rebuilt = world.store.rebuild_index().unwrap();
    assert_eq!((rebuilt.written, rebuilt.deleted, rebuilt.damaged), (MANY, MANY, 0));
}

#[test]
fn what_a_claim_that_was_taken_over_has_left_in_the_index_goes() {
    let world = World::new();
    drop(world.grant(short(Durability::Full)));
    drop(world.grant(short(Durability::Full)));
    assert_eq!(world.stored(), (1, 2), "each has written its entry");
    let rebuilt = world.store.rebuild_index().unwrap();
    assert_eq!((rebuilt.written, rebuilt.deleted), (0, 1));
    assert_eq!(world.stored(), (1, 1));
}

#[test]
fn what_stands_for_nothing_or_cannot_be_read_is_counted() {
    let mut world = World::new();
    world.store.close().unwrap();
    for garbage in [&[4][..], &[4, 1, 2], &[4, 1, 3]] {
        world.faulty.put(garbage, Some(b""));
    }
    for damaged in ["a", "b"] {
        world.faulty.put(&[&[1, 0], damaged.as_bytes()].concat(), Some(b"damaged"));
    }
    world.store = World::open(&world.faulty, &world.clock);
    let swept = world.sweep();
    assert_eq!((swept.dropped, swept.deleted, swept.kept), (3, 0, 0));
    let rebuilt = world.store.rebuild_index().unwrap();
    assert_eq!((rebuilt.written, rebuilt.deleted, rebuilt.damaged), (0, 0, 2));
}

#[test]
fn the_store_sweeps_by_itself_and_goes_on_after_failures_and_panics() {
    let (faulty, clock) = (Faulty::new(), ManualClock::new());
    let builder = Store::builder(faulty.clone()).clock(clock.clone());
    let store = builder.watch_every(Duration::ZERO).open().unwrap();
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < 20 * SEC, "never came about: {what}");
            std::thread::yield_now();
        }
    };
    let waits = || until("the sweeping thread waits", &|| clock.waiting() == 1);
    waits();
    let request = short(Durability::Relaxed).retention(SEC);
    store.claim(request).unwrap().granted().unwrap().complete("done").unwrap();
    for (round, fault) in faults::FAULTS.into_iter().enumerate() {
        faulty.arm(0, 1, fault);
        clock.advance(60 * SEC);
        let failures = u64::try_from(round).unwrap() + 1;
        until("it fails", &|| store.stats().sweep_failures == failures);
        waits();
        assert_eq!(faulty.disarm(), ["scan"]);
        assert_eq!(store.stats().since_sweep, None);
    }
    clock.advance(60 * SEC);
    until("it sweeps", &|| store.stats().swept == 1);
    waits();
    assert_eq!(store.stats().since_sweep, Some(Duration::ZERO));
    assert!(faulty.stored(&[1]).is_empty());
    store.close().unwrap();
    until("the thread ends", &|| clock.waiting() == 0);
}

#[test]
fn a_claim_that_was_stored_and_never_granted_is_swept_from_memory_as_well() {
    let faulty = Faulty::new();
    let limit = Duration::from_millis(20);
    let store = Store::builder(faulty.clone()).sync_limit(limit).sweep_every(Duration::ZERO).open().unwrap();
    faulty.syncs(faults::Syncs::Hang);
    let told = store.claim(Request::new("k").retention(Duration::from_millis(1)));
    assert!(told.is_err(), "P4 durable before told: {told:?}");
    faulty.syncs(faults::Syncs::Work);
    // Waits longer than the limit only if the machine is busy.
    while store.sync().is_err() {}
    assert_eq!(store.stats().entries, 1);
    assert_eq!(store.sweep(10).unwrap().deleted, 1);
    assert_eq!((store.stats().entries, faulty.stored(&[1]).len()), (0, 0));
}

#[test]
fn a_store_that_was_closed_or_poisoned_is_not_swept() {
    let world = World::new();
    world.grant(short(Durability::Full)).complete("done").unwrap();
    world.clock.advance(60 * SEC);
    world.faulty.syncs(faults::Syncs::Fail);
    assert!(world.store.sync().is_err());
    assert!(world.store.sweep(10).unwrap_err().to_string().contains("sweeping the store"), "P9 fail closed");
    assert_eq!((world.stored().0, world.store.stats().sweep_failures), (1, 1));
    let _ = world.store.close();
    assert!(world.store.sweep(10).is_err());
    assert!(world.store.rebuild_index().is_err());
}

#[test]
fn the_last_handle_frees_the_place_although_the_store_sweeps() {
    let mem = Mem::new();
    for _ in 0..200 {
        let builder =
            Store::builder(mem.clone()).lock_wait(Duration::ZERO).sweep_every(Duration::from_millis(1));
        let store = builder.open().expect("the last handle has freed the lock");
        let request = short(Durability::Relaxed).retention(Duration::from_millis(1));
        if let Outcome::Granted(claim) = store.claim(request).unwrap() {
            claim.complete("done").unwrap();
        }
        assert!(matches!(store.get("k").unwrap(), None | Some(Settled::Completed(_))));
    }
}

#[test]
fn what_is_swept_kept_and_dropped_is_counted() {
    let counts = |swept: Swept| (swept.deleted, swept.kept, swept.dropped);
    let mut world = World::new();
    drop(world.grant(short(Durability::Full)));
    drop(world.grant(short(Durability::Full)));
    world.clock.advance(61 * SEC);
    assert_eq!(counts(world.sweep()), (1, 0, 1), "one record, and what its former attempt left");

    let live = world.grant(short(Durability::Full).lease(90 * SEC));
    world.clock.advance(61 * SEC);
    assert_eq!(counts(world.sweep()), (0, 1, 0), "a live claim is looked at again");
    live.complete("done").unwrap();
    world.clock.advance(31 * SEC);
    assert_eq!(counts(world.sweep()), (0, 1, 0), "it was settled since, and ends later");

    let (key, _) = world.faulty.stored(&[1]).remove(0);
    world.store.close().unwrap();
    world.faulty.put(&key, Some(b"damaged"));
    world.store = World::open(&world.faulty, &world.clock);
    world.clock.advance(61 * SEC);
    assert_eq!(counts(world.sweep()), (0, 1, 0), "what is damaged stays");
}
