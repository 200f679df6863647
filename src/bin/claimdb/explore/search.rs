//! All runs of a model, and the shortest that break something.

use super::model::{Act, EXAMPLE, Model};
use super::promise::Promise;
use super::world::World;
use stateright::{Checker, Model as _};
use std::thread::available_parallelism;

/// Each moment, and the step that follows it.
pub(super) type Run = Vec<(World, Option<Act>)>;

/// What all runs together show.
pub(super) struct Explored {
    /// Different moments, and the steps between them.
    pub(super) states: usize,
    pub(super) steps: usize,
    /// For each promise the shortest run that breaks it, if one does.
    pub(super) verdicts: Vec<(Promise, Option<Run>)>,
    /// The shortest run in which a client is told to try again, and all are told the one result.
    pub(super) example: Option<Run>,
}

impl Explored {
    pub(super) fn of(model: &Model) -> Self {
        let threads = available_parallelism().map_or(1, usize::from);
        let all = model.clone().checker().threads(threads).spawn_bfs().join();
        let found = all.discoveries();
        let mut wanted: Vec<&str> = found.into_keys().collect();
        let mut shortest = Vec::new();
        // The checker keeps the last run that it finds, not the first. With the depth bounded by one more each time,
        // what is found first is the shortest; one thread finds the same one each time.
        let mut depth = 1;
        while !wanted.is_empty() {
            depth += 1;
            let bounded = model.clone().checker().target_max_depth(depth).spawn_bfs().join();
            for (name, run) in bounded.discoveries() {
                if let Some(index) = wanted.iter().position(|wanted| *wanted == name) {
                    wanted.swap_remove(index);
                    shortest.push((name, run.into_vec()));
                }
            }
        }
        let mut take = |name| {
            let index = shortest.iter().position(|(found, _)| *found == name)?;
            Some(shortest.swap_remove(index).1)
        };
        Self {
            states: all.unique_state_count(),
            steps: all.state_count(),
            verdicts: Promise::ALL.into_iter().map(|promise| (promise, take(promise.name()))).collect(),
            example: take(EXAMPLE),
        }
    }

    pub(super) fn broken(&self) -> impl Iterator<Item = (Promise, &Run)> {
        self.verdicts.iter().filter_map(|(promise, run)| Some((*promise, run.as_ref()?)))
    }

    /// The run to show: one that charges the card twice, since that is what it is all for; else one that breaks a
    /// promise.
    pub(super) fn most_telling(&self) -> Option<(Promise, &Run)> {
        let card = self.broken().find(|(promise, _)| *promise == Promise::Card);
        card.or_else(|| self.broken().next())
    }
}
