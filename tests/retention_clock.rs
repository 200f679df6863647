//! The clock by which retentions are counted, over openings and clocks that are wrong (rule 23).
#![cfg(not(loom))] // the support code plays faults on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{Clock, ManualClock, Moment, OpenError, Request, Signal, Store, SyncBy, WallTime};
use faults::Faulty;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const TODAY: WallTime = WallTime::from_unix_millis(1_735_689_600_000);
const HIGH_WATER: &[u8] = b"\0high-water";

/// A store that is opened and closed, by a clock whose monotonic part goes on only while it is open.
struct World {
    faulty: Faulty,
    clock: ManualClock,
    store: Option<Store>,
}

impl World {
    fn new() -> Self {
        Self { faulty: Faulty::new(), clock: ManualClock::new(), store: None }
    }

    /// Opens the store when the wall clock says `wall`.
    fn open(&mut self, wall: WallTime) -> &Store {
        self.clock.set_wall(wall);
        let builder = Store::builder(self.faulty.clone()).clock(self.clock.clone());
        self.store.insert(builder.sync_by(SyncBy::Caller).open().unwrap())
    }

    fn close(&mut self) {
        self.store.take().unwrap().close().unwrap();
    }

    fn complete(&self, name: &str, retention: Duration) {
        let claim = self.store().claim(Request::new(name).retention(retention)).unwrap().granted();
        claim.expect("it is not there").complete("done").unwrap();
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn remembers(&self, name: &str) -> bool {
        let told = self.store().get(name).unwrap().is_some();
        self.store().sweep(1000).unwrap();
        assert_eq!(self.store().get(name).unwrap().is_some(), told, "a sweep changed what is told");
        told
    }
}

fn before(span: Duration) -> WallTime {
    WallTime::from_unix_millis(TODAY.unix_millis() - u64::try_from(span.as_millis()).unwrap())
}

#[test]
fn a_store_opened_for_a_minute_each_day_follows_the_wall_clock() {
    let mut world = World::new();
    world.open(TODAY);
    world.complete("k", 10 * DAY);
    for day in 0_u32..12 {
        world.open_again(TODAY.after(day * DAY));
        assert_eq!(world.remembers("k"), day < 10, "rule 23: day {day}");
        world.clock.advance(MINUTE);
    }
}

impl World {
    fn open_again(&mut self, wall: WallTime) {
        self.close();
        self.open(wall);
    }
}

#[test]
fn one_jump_ahead_empties_nothing_that_is_kept_for_more_than_a_step_and_freezes_nothing() {
    for first in [false, true] {
        let mut world = World::new();
        world.open(TODAY);
        world.complete("month", 30 * DAY);
        // Closed in between, or running on: a wall clock that jumps under an open store is not looked at.
        if first {
            world.clock.set_wall(TODAY.after(50 * YEAR));
            assert!(world.remembers("month"), "rule 23: a jump emptied the store");
        }
        world.open_again(TODAY.after(50 * YEAR));
        assert!(world.remembers("month"), "rule 23: one wrong jump emptied the store");
        world.complete("day", DAY);
        world.clock.advance(DAY / 2);
        assert!(world.remembers("day"), "P8 remembered");
        world.clock.advance(DAY / 2);
        assert!(!world.remembers("day"), "rule 23: a retention is counted while the store is open");
        world.complete("later", DAY);
        // Mended: time stands while the store is closed until the wall clock has caught up, a step at most.
        let last = (1_u32..20).find(|day| {
            world.open_again(TODAY.after(*day * DAY));
            !world.remembers("later")
        });
        assert!(
            last.is_some_and(|day| (2..=10).contains(&day)),
            "rule 23: one jump froze the store: {last:?}"
        );
    }
}

#[test]
fn one_jump_back_revives_nothing_and_freezes_nothing() {
    let mut world = World::new();
    world.open(TODAY);
    world.complete("gone", DAY);
    world.complete("kept", 3 * DAY);
    world.clock.advance(DAY);
    assert!(!world.remembers("gone"));
    world.open_again(before(50 * YEAR));
    assert!(world.remembers("kept"), "P8 remembered");
    let again = world.store().claim("gone").unwrap().granted();
    assert!(again.is_some(), "rule 23: what was forgotten came back");
    drop(again);
    world.clock.advance(2 * DAY);
    assert!(!world.remembers("kept"), "rule 23: one jump back froze the store");
    // Mended, it goes on from the wall clock.
    world.complete("next", DAY);
    world.open_again(TODAY.after(4 * DAY));
    assert!(!world.remembers("next"), "rule 23: one jump back froze the store");
}

#[test]
fn a_store_that_is_restored_after_two_years_counts_on_from_where_it_stopped() {
    let mut world = World::new();
    world.open(TODAY);
    world.complete("month", 30 * DAY);
    let openings = (0_u32..20).find(|n| {
        world.open_again(TODAY.after(2 * YEAR + *n * MINUTE));
        !world.remembers("month")
    });
    assert_eq!(openings, Some(4), "rule 23: seven days an opening, thirty days in the fifth");
    world.complete("day", DAY);
    world.clock.advance(DAY - Duration::from_millis(1));
    assert!(world.remembers("day"), "P8 remembered: what is new is kept as long as it should be");
    world.clock.advance(Duration::from_millis(1));
    assert!(!world.remembers("day"), "rule 23: retentions are counted on one clock");
}

#[test]
fn the_high_water_mark_outlives_a_power_cut() {
    let mut world = World::new();
    world.open(TODAY);
    world.complete("k", 30 * DAY);
    // Two hours of use, with the sweeps and syncs of a store in use.
    for _ in 0..120 {
        world.clock.advance(MINUTE);
        world.store().sweep(10).unwrap();
        world.store().sync().unwrap();
    }
    world.faulty.crash();
    let store = world.open(before(YEAR)).clone();
    let claim = store.claim("next").unwrap().granted().unwrap();
    claim.complete("done").unwrap();
    let stamped = store.get("next").unwrap().unwrap().about().settled_at();
    assert!(stamped >= TODAY.after(60 * MINUTE), "rule 23: hours of use were forgotten: {stamped:?}");
}

#[test]
fn the_high_water_mark_is_the_documented_bytes_and_damage_in_it_is_told() {
    let mut world = World::new();
    world.open(TODAY);
    world.clock.advance(MINUTE);
    world.close();
    let stored = world.faulty.stored(HIGH_WATER);
    let hex: Vec<String> = stored[0].1.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex.join(" "), include_str!("golden/high_water_v1.hex").trim());
    for bad in [&b""[..], b"not framed", &stored[0].1[..19]] {
        world.faulty.put(HIGH_WATER, Some(bad));
        let told = Store::builder(world.faulty.clone()).open();
        let error = told.expect_err("P9 fail closed: a damaged mark was believed");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("high-water mark"), "{error}");
        assert_eq!(world.faulty.stored(HIGH_WATER)[0].1, bad, "a refused opening changed something");
    }
    // A store from before there was one begins with the wall clock.
    world.faulty.put(HIGH_WATER, None);
    world.open(TODAY.after(YEAR));
    world.complete("k", DAY);
    assert_eq!(world.store().get("k").unwrap().unwrap().about().settled_at(), TODAY.after(YEAR));
}

#[test]
fn a_clock_out_of_all_bounds_is_not_believed() {
    let mut world = World::new();
    world.open(WallTime::from_unix_millis(u64::MAX));
    world.complete("k", DAY);
    world.clock.advance(DAY - MINUTE);
    assert!(world.remembers("k"), "P8 remembered");
    world.clock.advance(MINUTE);
    assert!(!world.remembers("k"), "rule 23: a wrong clock froze the store");
}

/// A clock behind whose first reading of the wall clock the process stands still for a minute.
#[derive(Debug)]
struct Pausing(ManualClock, AtomicBool);

impl Clock for Pausing {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn wall(&self) -> WallTime {
        let wall = self.0.wall();
        if !self.1.swap(true, Ordering::Relaxed) {
            self.0.advance(MINUTE);
        }
        wall
    }

    fn wait(&self, signal: &Arc<Signal>, deadline: Moment) {
        self.0.wait(signal, deadline);
    }
}

/// Found by the simulator: the opening's clock was behind by the pause, and what it stamped was forgotten by the next
/// opening as much too early.
#[test]
fn a_pause_while_a_store_is_opened_costs_no_retention() {
    let (faulty, clock) = (Faulty::new(), ManualClock::new());
    let builder = || Store::builder(faulty.clone()).sync_by(SyncBy::Caller);
    let store = builder().clock(Pausing(clock.clone(), AtomicBool::new(false))).open().unwrap();
    let claim = store.claim(Request::new("k").retention(MINUTE)).unwrap().granted().unwrap();
    claim.complete("done").unwrap();
    store.close().unwrap();
    let found = builder().clock(clock).open().unwrap().get("k").unwrap();
    assert!(found.is_some(), "P8 remembered: forgotten at once, with a minute to go");
}
