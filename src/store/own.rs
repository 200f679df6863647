//! What a store keeps about itself: the token ceiling and the high-water mark of its retention clock.

use super::retention::{self, RetentionClock};
use crate::backend::Engine;
use crate::clock::{Clock, WallTime};
use crate::error::{OpenError, StorageError, StoreDamage};
use crate::key;
use crate::record;
use crate::token::Token;
use std::ops::ControlFlow;
use std::time::Duration;

/// The store's own entries, as they were found.
pub(super) struct Own {
    /// The ceiling as it is stored.
    pub(super) stored: Option<Vec<u8>>,
    /// `None` in a store that was never opened.
    pub(super) ceiling: Option<Token>,
    high_water: Option<WallTime>,
}

impl Own {
    /// Reads them from the engine of `place`.
    pub(super) fn read(engine: &dyn Engine, place: &str) -> Result<Self, OpenError> {
        let place = || place.to_owned();
        let storage = |source| OpenError::storage(place(), source);
        let damaged = |damage| OpenError::damaged(place(), &damage);
        let stored = engine.read(&ceiling_key()).map_err(storage)?;
        let ceiling = match &stored {
            Some(bytes) if *bytes == record::unfinished_copy() => {
                return Err(OpenError::UnfinishedCopy { place: place() });
            }
            Some(bytes) => {
                let ceiling = record::decode_ceiling(bytes);
                Some(ceiling.map_err(|damage| damaged(StoreDamage::Ceiling(damage)))?)
            }
            None if has_entries(engine).map_err(storage)? => {
                return Err(damaged(StoreDamage::NoCeiling));
            }
            None => None,
        };
        if let Some(ceiling) = ceiling.filter(|ceiling| *ceiling >= CEILING_END) {
            return Err(damaged(StoreDamage::OddCeiling { ceiling }));
        }
        let high_water = engine.read(&retention::high_water_key()).map_err(storage)?;
        let high_water = high_water.as_deref().map(record::decode_high_water).transpose();
        let high_water = high_water.map_err(|damage| damaged(StoreDamage::HighWater(damage)))?;
        Ok(Self { stored, ceiling, high_water })
    }

    /// The retention clock of an opening that begins now.
    pub(super) fn retention(&self, clock: &dyn Clock) -> RetentionClock {
        let mut before = clock.now();
        // A pause between the two readings would set this opening's clock wrong by as much. One that takes long each time
        // is believed in the end: opening has a bound.
        for _ in 0..16 {
            let (wall, after) = (clock.wall(), clock.now());
            if after.since(before) < AT_ONCE {
                return RetentionClock::starting(wall, self.high_water, after);
            }
            before = after;
        }
        RetentionClock::starting(clock.wall(), self.high_water, before)
    }
}

/// Two readings of the clocks this close are of one moment.
const AT_ONCE: Duration = Duration::from_millis(10);

/// Never reached by handing tokens out, and above it the counter would wrap.
pub(super) const CEILING_END: Token = Token::new(1 << 63);

/// Where the durable token ceiling is kept.
pub(super) fn ceiling_key() -> Vec<u8> {
    key::meta("token-ceiling")
}

/// Whether there is anything that an opening could have written once it had a token ceiling: then that is lost, and the store
/// is no new one. The high-water mark goes along with the first ceiling, and can be there without it after a power cut.
fn has_entries(engine: &dyn Engine) -> Result<bool, StorageError> {
    let (mut found, high_water) = (false, retention::high_water_key());
    engine.scan(&[], None, &mut |key, _| {
        found = key != high_water;
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}
