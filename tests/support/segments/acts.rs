//! What one thread does, act by act. It follows from its seed alone.

use crate::child::Random;
use claimdb::Durability;
use std::collections::HashMap;
use std::fmt;

/// Records, and values, of each thread.
const SLOTS: usize = 400;

/// What is looked at: a record or a value, by its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Name {
    Record(usize),
    Value(usize),
}

/// `by` is the act whose value it is.
#[derive(Debug)]
pub enum Act {
    Complete { slot: usize, durability: Durability, by: u64 },
    Replay { slot: usize, by: u64 },
    Remove { slot: usize },
    Put { slot: usize, by: u64 },
    Delete { slot: usize },
}

impl Act {
    pub fn name(&self) -> Name {
        match self {
            Self::Complete { slot, .. } | Self::Replay { slot, .. } | Self::Remove { slot } => {
                Name::Record(*slot)
            }
            Self::Put { slot, .. } | Self::Delete { slot } => Name::Value(*slot),
        }
    }

    /// Whether it is told after a sync that covers what came before it.
    pub fn is_durable(&self) -> bool {
        match self {
            Self::Complete { durability, .. } => *durability != Durability::Relaxed,
            Self::Replay { .. } => false,
            Self::Remove { .. } | Self::Put { .. } | Self::Delete { .. } => true,
        }
    }
}

pub struct Plan {
    random: Random,
    seed: u64,
    /// Of whose keys these are.
    of: String,
    acts: u64,
    /// By which act each was left as it is; `None` if it was removed.
    states: HashMap<Name, Option<u64>>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round and thread {}", self.of)
    }
}

impl Plan {
    pub fn new(seed: u64, of: String) -> Self {
        Self { random: Random(seed), seed, of, acts: 0, states: HashMap::new() }
    }

    /// The next act, taken for done.
    pub fn next(&mut self) -> Act {
        self.acts += 1;
        let (dice, slot, by) = (self.random.below(100), self.random.below(SLOTS), self.acts);
        let act = match (dice, self.state(Name::Record(slot))) {
            (0..45, None) => {
                let durability =
                    [Durability::Full, Durability::Result, Durability::Relaxed][self.random.below(3)];
                Act::Complete { slot, durability, by }
            }
            (0..15, Some(by)) => Act::Replay { slot, by },
            (15..45, Some(_)) => Act::Remove { slot },
            (45..95, _) => Act::Put { slot, by },
            _ => Act::Delete { slot },
        };
        let left = match &act {
            Act::Complete { by, .. } | Act::Replay { by, .. } | Act::Put { by, .. } => Some(*by),
            Act::Remove { .. } | Act::Delete { .. } => None,
        };
        self.states.insert(act.name(), left);
        act
    }

    pub fn state(&self, name: Name) -> Option<u64> {
        self.states.get(&name).copied().flatten()
    }

    pub fn any(&self, random: &mut Random) -> Option<Name> {
        let slot = random.below(SLOTS);
        let name = if random.below(2) == 0 { Name::Record(slot) } else { Name::Value(slot) };
        self.states.contains_key(&name).then_some(name)
    }

    pub fn key(&self, slot: usize) -> String {
        format!("{}-{slot}", self.of)
    }

    /// The bytes that the act `by` wrote: most are short, some fill a page, few are of up to 1 MiB.
    pub fn value(&self, by: u64) -> Vec<u8> {
        let mut random = Random(self.seed ^ by.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let length = match random.below(500) {
            0 => random.below(1 << 20),
            1..150 => random.below(4_000),
            _ => random.below(200),
        };
        let mut bytes = vec![0; 1 + length];
        bytes
            .chunks_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]));
        bytes
    }
}
