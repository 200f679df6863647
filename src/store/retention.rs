//! The clock by which retentions are counted (rule 23).
//!
//! The wall clock may be wrong, and believing it once could forget everything or nothing for years. So time goes on
//! from a stored *high-water mark*: within an opening by the monotonic clock alone, and from one opening to the next
//! by what the wall clock says, but at most by [`STEP`] and never back. `docs/decisions/retention-clock.md` says what
//! that means for stores that were closed for long or whose clock was wrong.

use super::engine::commit_one;
use crate::backend::{Commit, Engine, Write};
use crate::clock::{Moment, WallTime};
use crate::error::StorageError;
use crate::key;
use crate::record;
use crate::sync::Break;
use std::time::Duration;

/// The longest time between two openings that is believed.
pub(super) const STEP: Duration = Duration::from_secs(7 * 86_400);
/// A clock beyond this is broken (the year 2242), and with it ends could no longer be told apart.
const LATEST: WallTime = WallTime::from_unix_millis((1 << 33) * 1000);

/// The time of one opening, by which records are stamped and forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetentionClock {
    start: WallTime,
    since: Moment,
}

impl RetentionClock {
    /// The clock of an opening that begins at `now`, at which the wall clock says `wall`, and that found
    /// `high_water` in the store; the first opening finds none and believes the wall clock.
    pub(super) fn starting(wall: WallTime, high_water: Option<WallTime>, now: Moment) -> Self {
        let wall = wall.min(LATEST);
        let believed = high_water.map(|mark| wall.clamp(mark, mark.after(STEP)));
        let start = believed.filter(|_| !Break::ClockBelieved.is()).unwrap_or(wall);
        Self { start, since: now }
    }

    /// When the opening began.
    pub(super) fn start(&self) -> WallTime {
        self.start
    }

    /// The time at `now`.
    pub(super) fn at(&self, now: Moment) -> WallTime {
        self.start.after(now.since(self.since))
    }
}

/// Where the high-water mark is kept.
pub(super) fn high_water_key() -> Vec<u8> {
    key::meta("high-water")
}

/// Stores `time` as the high-water mark. Harmless alone, so it can go along with any commit. Two at once may leave
/// the earlier one: the next opening then believes a moment less.
pub(super) fn high_water(time: WallTime) -> Write {
    Write { key: high_water_key(), value: Some(record::encode_high_water(time)) }
}

/// Stores `time` as the high-water mark, with no other write to go along with.
pub(super) fn store_high_water(engine: &dyn Engine, time: WallTime) -> Result<(), StorageError> {
    let key = high_water_key();
    let seen = engine.read(&key)?;
    let bytes = record::encode_high_water(time);
    // Refused only if another has just written one, which will do.
    commit_one(engine, &Commit::swap(&key, seen.as_deref(), Some(&bytes))).map(drop)
}
