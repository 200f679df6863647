//! Which steps there are, for the checker.

use super::promise::Promise;
use super::protocol::Protocol;
use super::steps;
use super::world::{End, RUNNING, Step, World};
use super::{story, svg};
use stateright::{Path, Property};

/// A protocol, and how much may happen to it.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) protocol: Protocol,
    pub(super) clients: usize,
    pub(super) crashes: u8,
}

/// One step; a number is a client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Asks memory who has the key.
    Look {
        client: usize,
        other: bool,
    },
    /// Reads the record.
    Read(usize),
    ReadFails(usize),
    /// Tells what was read, or that the work is done.
    Tell(usize),
    /// Takes the key's place, and decides by the record what to swap in.
    Take(usize),
    /// Swaps its record in, if what it has read is there still.
    Swap(usize),
    Grant(usize),
    /// Asks the card what an earlier attempt has done.
    Ask(usize),
    Charge(usize),
    /// Says that the work is done: from here on the unsynced mark is on the key.
    Complete(usize),
    /// Writes the result.
    Settle(usize),
    /// Lets its claim go without a word.
    Drop(usize),
    /// Gives the key back, with nothing done.
    Release(usize),
    /// The lease of the claim that has the key's place runs out.
    Expire,
    /// Makes durable all that was written.
    Sync,
    /// The power is cut; so many of what was written since the last sync are there all the same.
    Crash {
        kept: usize,
    },
    Reopen,
}

/// The name of what may happen and is no promise: the shortest run that shows the protocol at its work.
pub(super) const EXAMPLE: &str = "a retry is told the result";

impl Model {
    /// Which steps `client` can make.
    fn steps_of(&self, world: &World, client: usize, acts: &mut Vec<Act>) {
        let protocol = self.protocol;
        match &world.clients[client].step {
            // Clients are alike, so that they may as well come in order.
            Step::Away if client > 0 && world.clients[client - 1].step == Step::Away => {}
            Step::Away | Step::Idle => {
                let first = world.clients[client].step == Step::Away;
                let other = world.clients[client].other;
                if first && client + 1 == self.clients {
                    acts.push(Act::Look { client, other: true });
                }
                acts.push(Act::Look { client, other });
            }
            Step::Looked => {
                if world.failures > 0 {
                    acts.push(Act::ReadFails(client));
                }
                acts.push(Act::Read(client));
            }
            Step::Read(seen) => acts.push(match steps::is_free(self, world, client, seen) {
                false => Act::Tell(client),
                true if protocol.claims() => Act::Take(client),
                true => Act::Charge(client),
            }),
            Step::Storing { .. } => acts.push(Act::Swap(client)),
            Step::Stored { synced, .. } => {
                if *synced || protocol == Protocol::AckEarly {
                    acts.push(Act::Grant(client));
                }
            }
            Step::Working(work) => {
                let asks = work.attempt() > 1 && protocol != Protocol::Careless;
                if work.claim.is_some() {
                    acts.push(Act::Drop(client));
                    if !work.charged && (work.asked || !asks) {
                        acts.push(Act::Release(client));
                    }
                }
                acts.push(match work {
                    _ if asks && !work.asked => Act::Ask(client),
                    _ if !work.charged => Act::Charge(client),
                    _ if work.claim.is_some() => Act::Complete(client),
                    _ => Act::Settle(client),
                });
            }
            Step::Completing(_) => acts.push(Act::Settle(client)),
            Step::Written { synced, .. } => {
                if *synced || protocol == Protocol::AckEarly {
                    acts.push(Act::Tell(client));
                }
            }
            Step::Done(_) => {}
        }
    }
}

impl stateright::Model for Model {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.clients, self.crashes)]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        if !world.open {
            acts.push(Act::Reopen);
            return;
        }
        // The order decides which of equally short runs is shown: of those that end alike the first, in which all look
        // before any acts; else the last, in which the first client runs ahead.
        let asks = |client: &usize| matches!(world.clients[*client].step, Step::Away | Step::Idle);
        let (asking, acting): (Vec<_>, Vec<_>) = (0..self.clients).rev().partition(asks);
        for client in asking.into_iter().chain(acting) {
            self.steps_of(world, client, acts);
        }
        if world.disk.len() > 1 {
            acts.push(Act::Sync);
        }
        let runs = world.place.is_some_and(|place| place.holder.deadline == Some(RUNNING));
        if runs && self.protocol != Protocol::NoLease {
            acts.push(Act::Expire);
        }
        if world.crashes > 0 {
            acts.extend((0..world.disk.len()).map(|kept| Act::Crash { kept }));
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut world = world.clone();
        steps::take(self, &mut world, act);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let kept: [fn(&Self, &World) -> bool; 10] = [
            keeps::<0>, keeps::<1>, keeps::<2>, keeps::<3>, keeps::<4>, keeps::<5>, keeps::<6>, keeps::<7>,
            keeps::<8>, keeps::<9>,
        ];
        let promises = Promise::ALL.into_iter().zip(kept);
        let mut properties: Vec<_> =
            promises.map(|(promise, kept)| Property::always(promise.name(), kept)).collect();
        properties.push(Property::sometimes(EXAMPLE, |_, world: &World| {
            let told = world.clients.iter().all(|client| client.step == Step::Done(End::Told));
            told && world.refused && world.card.charges == 1
        }));
        properties
    }

    fn format_action(&self, act: &Act) -> String {
        format!("{act:?}")
    }

    fn as_svg(&self, path: Path<World, Act>) -> Option<String> {
        Some(svg::draw(self, &story::tell(self, &path.into_vec()), ""))
    }
}

fn keeps<const INDEX: usize>(_: &Model, world: &World) -> bool {
    !world.broken.has(Promise::ALL[INDEX])
}
