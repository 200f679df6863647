//! Any operations of a store, one after another: each answer is one that the simulator's reference could give, and, since
//! nothing runs beside it, is told exactly: who has the key, which attempt it is, with what progress.
#![no_main]

#[allow(dead_code)] // the tests use more of it
#[path = "../../tests/support/faults.rs"]
mod faults;
#[allow(dead_code)]
#[path = "../../tests/sim/reference.rs"]
mod reference;

mod played;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use played::World;

#[derive(Debug, Arbitrary)]
enum Act {
    Claim(Ask),
    /// As a task that is dropped after its first poll.
    ClaimAndGo(Ask),
    ClaimAll(Ask, Ask),
    /// These are of one of the claims in hand.
    Renew(u8),
    Checkpoint(u8),
    Complete(u8),
    CompleteWith(u8),
    Fail(u8),
    Omit(u8),
    Release(u8),
    Drop(u8),
    EndLease(u8),
    /// These are of a key.
    Get(bool),
    Remove(bool),
    RemoveByForce(bool),
    Resolve(bool),
    /// These are of a plain value.
    Put(bool),
    Delete(bool),
    Read(bool),
    Swap(bool),
    Sweep,
    RebuildIndex,
    Sync,
    /// Moves the clock by so many steps of ten seconds.
    Pass(u8),
    /// The call of the drive after so many goes wrong.
    Fault(u8, Goes),
    PowerCut(Left),
    /// Closes and opens it again.
    Reopen(Left),
}

#[derive(Debug, Arbitrary)]
struct Ask {
    key: bool,
    /// What the work is: its fingerprint.
    work: bool,
    durability: Level,
    quarantine: bool,
    long: bool,
    kept: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
enum Level {
    Full,
    Result,
    Relaxed,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Goes {
    WrongBefore,
    WrongAfter,
    DownBefore,
    DownAfter,
}

/// What is left of that which no sync covers.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Left {
    First(u8),
    /// With the hints of the next commit.
    Torn(u8),
    Any(u16),
}

/// More than these take long, and show no more.
const MOST: usize = 100;

fuzz_target!(|acts: Vec<Act>| {
    let mut world = World::new();
    for act in acts.iter().take(MOST) {
        world.play(act);
    }
    world.look_at_last();
});
