//! What there is at one moment of a run: a service with its store, its disk, its clients, and a card.

use super::promise::Broken;
use claimdb::protocol::{Holder, KeyView, Purpose};
use claimdb::{Fingerprint, Moment, Record, State, WallTime};
use std::sync::Arc;

/// A lease runs or is over; how long either takes changes nothing that is told.
pub(super) const NOW: Moment = Moment::new(std::time::Duration::from_secs(1));
pub(super) const RUNNING: Moment = NOW.after(std::time::Duration::from_secs(1));
pub(super) const OVER: Moment = Moment::ORIGIN;
pub(super) const WALL: WallTime = WallTime::from_unix_millis(0);

/// What a read of the key finds.
pub(super) type Found = Option<Arc<Record>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// Whether the store is open, as opposed to being down after a power cut.
    pub(super) open: bool,
    /// The key's record and what it was before, oldest first. The first is durable, the last is what a read finds; a
    /// power cut goes back to any of them.
    pub(super) disk: Vec<Found>,
    /// Who has the key's place in memory.
    pub(super) place: Option<Place>,
    pub(super) clients: Vec<Client>,
    /// The first token of this opening.
    pub(super) first: u64,
    /// The next token to be drawn.
    pub(super) next: u64,
    pub(super) card: Card,
    /// How often the power may still be cut.
    pub(super) crashes: u8,
    /// How often a read may still fail.
    pub(super) failures: u8,
    /// The greatest token granted.
    pub(super) granted: u64,
    /// Whether anybody was told that the key is in flight.
    pub(super) refused: bool,
    /// Whether anybody was told that the work is done.
    pub(super) told: bool,
    pub(super) broken: Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) client: usize,
    pub(super) holder: Holder,
}

/// A request for the work of one key, in a thread or a task of the service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// Asks for other work than the rest, under the same key.
    pub(super) other: bool,
    pub(super) step: Step,
}

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Has not come yet.
    Away,
    /// May ask, or ask again.
    Idle,
    /// Memory said that nobody has the key.
    Looked,
    /// Has read the record.
    Read(Found),
    /// Has the place, and is about to swap `record` in for what it has seen.
    Storing {
        seen: Found,
        record: Arc<Record>,
        ended: Option<Holder>,
    },
    /// Has swapped it in; granted once it is durable.
    Stored {
        record: Arc<Record>,
        ended: Option<Holder>,
        synced: bool,
    },
    Working(Work),
    /// The unsynced mark is on the key, and the settling write is under way.
    Completing(Work),
    /// The settling write has landed; told once it is durable, and the mark stands until then.
    Written {
        work: Work,
        synced: bool,
    },
    Done(End),
}

/// Work that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Work {
    /// The record of its claim; `None` if it goes on without one.
    pub(super) claim: Found,
    /// Whether the claim's lease is over.
    pub(super) over: bool,
    /// Whether the card was asked what an earlier attempt has done.
    pub(super) asked: bool,
    /// Whether the card is charged, as far as this work knows.
    pub(super) charged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// Told that the work is done.
    Told,
    /// Told that the key is for other work.
    Mismatched,
    /// Too late: refused.
    Lost,
    /// Has let its claim go.
    Gone,
}

/// The system outside that the work acts on. It remembers the greatest token that it has seen and refuses older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Card {
    pub(super) charges: u8,
    pub(super) greatest: u64,
}

impl World {
    pub(super) fn new(clients: usize, crashes: u8) -> Self {
        let client = Client { other: false, step: Step::Away };
        Self {
            open: true,
            disk: vec![None],
            place: None,
            clients: vec![client; clients],
            first: 1,
            next: 1,
            card: Card { charges: 0, greatest: 0 },
            crashes,
            failures: 1,
            granted: 0,
            refused: false,
            told: false,
            broken: Broken::default(),
        }
    }

    /// What a read finds.
    pub(super) fn found(&self) -> &Found {
        // The durable version is always there.
        &self.disk[self.disk.len() - 1]
    }

    /// The claim whose settling write no finished sync covers.
    pub(super) fn unsynced(&self) -> Option<Holder> {
        self.clients.iter().find_map(|client| match &client.step {
            Step::Completing(work) | Step::Written { work, synced: false } => {
                work.claim.as_deref().map(|record| Holder { deadline: None, ..holder(record) })
            }
            _ => None,
        })
    }

    /// Asks what memory knows of the key.
    pub(super) fn view<'a>(&'a self, unsynced: &'a Option<Holder>) -> KeyView<'a> {
        KeyView { place: self.place.as_ref().map(|place| &place.holder), unsynced: unsynced.as_ref() }
    }

    pub(super) fn has_place(&self, client: usize) -> bool {
        self.place.is_some_and(|place| place.client == client)
    }

    /// An ending holder removes the place only if it is its own (rule 12).
    pub(super) fn leave_place(&mut self, client: usize) {
        if self.has_place(client) {
            self.place = None;
        }
    }

    /// A client is told something for good, and leaves.
    pub(super) fn end(&mut self, client: usize, end: End) {
        self.leave_place(client);
        self.clients[client].step = Step::Done(end);
    }
}

impl Client {
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        Some(Fingerprint::new([u8::from(self.other); 32]))
    }

    /// The work of a claim whose lease runs, or that is being settled.
    pub(super) fn is_at_work(&self) -> bool {
        matches!(&self.step, Step::Working(work) | Step::Completing(work) if !work.over)
    }

    /// Whether others have something to wait for.
    pub(super) fn keeps_others_waiting(&self) -> bool {
        let on_its_way = matches!(
            self.step,
            Step::Storing { .. }
                | Step::Stored { .. }
                | Step::Completing(_)
                | Step::Written { synced: false, .. }
        );
        on_its_way || self.is_at_work()
    }
}

impl Work {
    pub(super) fn token(&self) -> u64 {
        self.claim.as_ref().map_or(0, |record| record.token.get())
    }

    pub(super) fn attempt(&self) -> u32 {
        self.claim.as_ref().map_or(1, |record| record.attempt)
    }
}

/// Whether a record says that the work is done.
pub(super) fn is_settled(record: &Record) -> bool {
    matches!(record.state, State::Settled { .. })
}

/// What memory says of the claim that `record` is pending for, from its grant on.
pub(super) fn holder(record: &Record) -> Holder {
    Holder {
        token: Some(record.token),
        attempt: record.attempt,
        stored: true,
        purpose: Purpose::Work(record.fingerprint),
        since: NOW,
        deadline: Some(RUNNING),
    }
}
