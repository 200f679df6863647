//! What goes on beside a claim, at times of its own, under shuttle. See `docs/testing.md`.
#![cfg(shuttle)]
#![allow(missing_docs)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "support/schedules.rs"]
#[allow(dead_code)] // the other worlds use more of it
mod schedules;

use claimdb::backend::Mem;
use claimdb::{Break, Durability, ManualClock, Request, Store, SyncBy};
use schedules::world;
use shuttle::thread;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const HALF: Duration = Duration::from_secs(15);
const SCHEDULES: usize = 5_000;

/// The time of the first renewal comes while a holder asks for renewals. Tells what is said of the first one that is not
/// made.
fn renewal_against_its_alarm() -> Option<String> {
    let clock = ManualClock::new();
    let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller).open();
    let store = store.expect("memory opens");
    let request = Request::new("k").durability(Durability::Result).lease(LEASE);
    let claim = store.claim(request).expect("memory does not fail").granted().expect("nobody else is here");
    let claim = Arc::new(claim);
    let asking = {
        let claim = Arc::clone(&claim);
        thread::spawn(move || claim.keep_alive(20 * LEASE).expect("its lease is not over"))
    };
    clock.advance(HALF);
    asking.join().expect("it panicked");
    let made = || {
        let mut turns = 0..1_000;
        turns.any(|_| {
            thread::yield_now();
            claim.remaining() > HALF
        })
    };
    let mut missed = None;
    for renewal in 1..=3 {
        if !made() {
            missed = Some(format!("P6 never stuck: renewal {renewal} of a claim was not made"));
            break;
        }
        clock.advance(HALF);
    }
    drop(claim);
    store.close().expect("memory closes");
    missed
}

#[test]
fn renewal_and_its_alarm() {
    world("renewal_against_its_alarm", SCHEDULES, || {
        if let Some(missed) = renewal_against_its_alarm() {
            panic!("{missed}");
        }
    });
}

#[test]
fn twin_spent_alarm_kept() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&heard);
    Break::SpentAlarmKept.run(|| {
        world("twin_spent_alarm_kept", SCHEDULES, move || {
            telling.lock().expect("nobody panics with it").extend(renewal_against_its_alarm());
        });
    });
    let heard = heard.lock().expect("nobody panics with it");
    let told = heard.first().expect("a spent alarm was kept, and no schedule showed it");
    assert!(told.contains("P6 never stuck: renewal 2"), "it was found as: {told}");
    println!("twin SpentAlarmKept: found in {} of {SCHEDULES} schedules, as: {told}", heard.len());
}
