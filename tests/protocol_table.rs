//! Every state by every event: each cell of the table in `docs/protocol.md` is played on a world of its own, and
//! the document must say what came out.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

use claimdb::backend::Mem;
use claimdb::{
    AdminError, CheckpointError, Claim, Durability, ExpiredLease, Fingerprint, KeyState, ManualClock,
    Omission, OnInterrupt, Outcome, Request, Resolution, SettleError, Settled, Store,
};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(86_400);

/// One key in some state, and the claim that has it or had it last.
struct World {
    mem: Mem,
    clock: ManualClock,
    store: Store,
    claim: Option<Claim>,
}

impl World {
    fn new() -> Self {
        let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
        let store = Self::open(&mem, &clock);
        Self { mem, clock, store, claim: None }
    }

    /// What is forgotten stays stored: a sweep would make some cells a matter of time.
    fn open(mem: &Mem, clock: &ManualClock) -> Store {
        let builder = Store::builder(mem.clone()).clock(clock.clone());
        builder.sweep_every(Duration::ZERO).open().unwrap()
    }

    /// The answer to a claim that asks for this.
    fn told(&mut self, request: Request) -> String {
        match self.store.claim(request).unwrap() {
            Outcome::Granted(claim) => {
                let attempt = claim.attempt();
                self.claim = Some(claim);
                format!("granted, attempt {attempt}")
            }
            Outcome::Settled(Settled::Completed(_)) => "the result".to_owned(),
            Outcome::Settled(Settled::Failed(_)) => "the failure".to_owned(),
            Outcome::Settled(Settled::Omitted(_)) => "done, not kept".to_owned(),
            Outcome::InFlight(_) => "in flight".to_owned(),
            Outcome::Mismatched(_) => "mismatched".to_owned(),
            Outcome::Interrupted(_) => "interrupted".to_owned(),
        }
    }

    fn state(&self) -> &'static str {
        match self.store.inspect("k").unwrap().state {
            KeyState::Absent => "absent",
            KeyState::InMemory => "in memory",
            KeyState::Pending => "pending",
            KeyState::Settling => "settling",
            KeyState::Interrupted => "interrupted",
            KeyState::Settled => "settled",
        }
    }
}

fn request() -> Request {
    Request::new("k").fingerprint(Fingerprint::new([1; 32]))
}

fn claimed(request: Request) -> World {
    let mut world = World::new();
    world.told(request);
    world
}

fn settled(settle: impl FnOnce(Claim) -> Result<(), SettleError>) -> World {
    let mut world = claimed(request());
    settle(world.claim.take().unwrap()).unwrap();
    world
}

fn later(mut world: World, change: impl FnOnce(&mut World)) -> World {
    change(&mut world);
    world
}

type State = (&'static str, fn() -> World);

const STATES: [State; 13] = [
    ("absent", World::new),
    ("in memory, live", || claimed(request().durability(Durability::Result))),
    ("in memory, lease over", || {
        later(claimed(request().durability(Durability::Result)), |world| world.clock.advance(LEASE))
    }),
    ("pending, live", || claimed(request())),
    ("pending, lease over", || later(claimed(request()), |world| world.clock.advance(LEASE))),
    ("pending, dropped", || later(claimed(request()), |world| drop(world.claim.take()))),
    ("pending, reclaimed", || {
        later(claimed(request()), |world| {
            world.clock.advance(LEASE);
            let old = world.claim.take();
            world.told(request());
            // The successor holds on; what follows is asked by the one that was too slow.
            std::mem::forget(std::mem::replace(&mut world.claim, old));
        })
    }),
    ("interrupted", || {
        later(claimed(request().on_interrupt(OnInterrupt::Quarantine)), |world| {
            world.clock.advance(LEASE);
            world.told(request());
        })
    }),
    ("resolved by hand", || {
        // With what its holder will complete it with, which makes it no more the holder's own.
        later(claimed(request().on_interrupt(OnInterrupt::Quarantine)), |world| {
            world.clock.advance(LEASE);
            let (token, holder) = (world.claim.as_ref().unwrap().token(), world.claim.take());
            world.told(request());
            world.claim = holder;
            let resolution = Resolution::completed("late").unwrap();
            assert!(world.store.resolve("k", token, resolution).unwrap());
        })
    }),
    ("completed", || settled(|claim| claim.complete("done"))),
    ("failed", || settled(|claim| claim.fail("no"))),
    ("omitted", || settled(|claim| claim.omit(Omission::OnPurpose))),
    ("forgotten", || later(settled(|claim| claim.complete("done")), |world| world.clock.advance(RETENTION))),
];

fn settle(world: &mut World, settle: impl FnOnce(Claim) -> Result<(), SettleError>) -> Option<String> {
    Some(match settle(world.claim.take()?) {
        Ok(()) => "done".to_owned(),
        Err(SettleError::Lost(_)) => "lost".to_owned(),
        Err(SettleError::Interrupted(_)) => "interrupted".to_owned(),
        Err(SettleError::AlreadySettled(already)) if already.by_hand() => "resolved by hand".to_owned(),
        Err(other) => panic!("{other}"),
    })
}

fn changed(result: Result<bool, AdminError>) -> Option<String> {
    Some(match result {
        Ok(true) => "done".to_owned(),
        Ok(false) => "nothing there".to_owned(),
        Err(AdminError::InFlight { .. }) => "in flight".to_owned(),
        Err(other) => panic!("{other}"),
    })
}

/// What the event is answered; `None` where there is nobody to raise it.
type Event = (&'static str, fn(&mut World) -> Option<String>);

const EVENTS: [Event; 16] = [
    ("claim", |world| Some(world.told(request()))),
    ("claim for something else", |world| {
        Some(world.told(Request::new("k").fingerprint(Fingerprint::new([2; 32]))))
    }),
    ("renew", |world| {
        Some(match world.claim.as_ref()?.renew(LEASE) {
            Ok(()) => "done".to_owned(),
            Err(ExpiredLease::Expired { .. }) => "expired".to_owned(),
            Err(ExpiredLease::Lost { .. }) => "lost".to_owned(),
            Err(other) => panic!("{other}"),
        })
    }),
    ("checkpoint", |world| {
        Some(match world.claim.as_mut()?.checkpoint("half") {
            Ok(()) => "done".to_owned(),
            Err(CheckpointError::NotStored { .. }) => "not stored".to_owned(),
            Err(CheckpointError::Lost(_)) => "lost".to_owned(),
            Err(CheckpointError::Interrupted(_)) => "interrupted".to_owned(),
            Err(CheckpointError::AlreadySettled(already)) if already.by_hand() => {
                "resolved by hand".to_owned()
            }
            Err(other) => panic!("{other}"),
        })
    }),
    ("complete", |world| settle(world, |claim| claim.complete("late"))),
    ("fail", |world| settle(world, |claim| claim.fail("late"))),
    ("omit", |world| settle(world, |claim| claim.omit(Omission::OnPurpose))),
    ("release", |world| settle(world, Claim::release)),
    ("drop", |world| world.claim.take().map(|_| "done".to_owned())),
    ("lease over", |world| {
        world.clock.advance(LEASE);
        Some("-".to_owned())
    }),
    ("reopen", |world| {
        world.store.close().unwrap();
        world.store = World::open(&world.mem, &world.clock);
        Some("-".to_owned())
    }),
    ("resolve", |world| {
        let token = world.store.inspect("k").unwrap().token.unwrap_or(claimdb::Token::new(1));
        changed(world.store.resolve("k", token, Resolution::omitted()))
    }),
    ("end lease", |world| {
        let token = world.store.inspect("k").unwrap().token.unwrap_or(claimdb::Token::new(1));
        changed(world.store.end_lease("k", token))
    }),
    ("remove", |world| changed(world.store.remove("k"))),
    ("remove by force", |world| changed(world.store.remove_by_force("k"))),
    ("retention over", |world| {
        world.clock.advance(RETENTION);
        Some("-".to_owned())
    }),
];

/// The answer and where the key stands after it; just the state where nobody is answered.
fn play(state: fn() -> World, event: fn(&mut World) -> Option<String>) -> String {
    let mut world = state();
    match event(&mut world) {
        None => String::new(),
        Some(answer) if answer == "-" => format!("→ {}", world.state()),
        Some(answer) => format!("{answer} → {}", world.state()),
    }
}

#[test]
fn each_cell_of_the_table_is_as_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (mut played, mut wrong) = (0, String::new());
    for (event, raise) in EVENTS {
        let mut table = format!("**{event}**\n\n| the key is | answer → state |\n|---|---|\n");
        for (state, make) in STATES {
            let cell = play(make, raise);
            if !cell.is_empty() {
                table += &format!("| {state} | {cell} |\n");
                played += 1;
            }
        }
        if !document.contains(&table) {
            wrong += &format!("\n{table}");
        }
    }
    assert!(wrong.is_empty(), "docs/protocol.md says otherwise; this came out:\n{wrong}");
    assert!(played > 120, "only {played} cells were played");
    println!("{played} cells");
}
