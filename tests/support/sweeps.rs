//! A store that sweeps only when it is told to, and a look at what is stored.

use crate::faults::Faulty;
use claimdb::{Claim, Durability, ManualClock, Outcome, Request, Store, Swept, SyncBy};
use std::time::Duration;

pub const SEC: Duration = Duration::from_secs(1);
pub const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

pub struct World {
    pub faulty: Faulty,
    pub clock: ManualClock,
    pub store: Store,
}

impl World {
    pub fn new() -> Self {
        let (faulty, clock) = (Faulty::new(), ManualClock::new());
        let store = Self::open(&faulty, &clock);
        Self { faulty, clock, store }
    }

    /// A store that sweeps only when it is told to.
    pub fn open(faulty: &Faulty, clock: &ManualClock) -> Store {
        Store::builder(faulty.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap()
    }

    pub fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = Self::open(&self.faulty, &self.clock);
    }

    pub fn grant(&self, request: impl Into<Request>) -> Claim {
        match self.store.claim(request).unwrap() {
            Outcome::Granted(claim) => claim,
            other => panic!("expected a grant, was told {other:?}"),
        }
    }

    /// How many records and how many entries are stored.
    pub fn stored(&self) -> (usize, usize) {
        (self.faulty.stored(&[1]).len(), self.faulty.stored(&[4]).len())
    }

    pub fn sweep(&self) -> Swept {
        let swept = self.store.sweep(1000).unwrap();
        assert!(!swept.more, "{swept:?}");
        swept
    }

    pub fn is_swept(&self, what: &str) {
        self.sweep();
        assert_eq!(self.stored(), (0, 0), "rule 21: records or entries were left behind: {what}");
    }
}

pub fn short(durability: Durability) -> Request {
    Request::new("k").durability(durability).retention(60 * SEC)
}
