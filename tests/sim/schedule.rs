//! One seed, one scheduler: shuttle's own, and one task that runs only when no other can.

use super::random::Random;
use crate::schedules::config;
use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use std::cell::Cell;

thread_local! {
    /// Whether the first task waits until no other can run.
    static IDLE: Cell<bool> = const { Cell::new(false) };
}

/// Returns once nothing else can run. For the first task of a world.
pub fn idle() {
    IDLE.set(true);
    shuttle::thread::yield_now();
    IDLE.set(false);
}

/// How often each program is played, in as many interleavings.
pub const PLAYS: usize = 4;

/// Plays `body`, of so many actors, in those interleavings that belong to `seed`.
pub fn play(seed: u64, actors: usize, body: impl Fn() + Send + Sync + 'static) {
    IDLE.set(false);
    let mut random = Random(seed);
    let (kind, seed) = (random.below(4), random.next());
    match kind {
        // The first of these has no preemptions but those at which a task has to wait.
        // It refuses what has nothing to choose from.
        1..=3 if actors > 1 => run(PctScheduler::new_from_seed(seed, 2 * kind, PLAYS), body),
        _ => run(RandomScheduler::new_from_seed(seed, PLAYS), body),
    }
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    Runner::new(Idling(scheduler), config()).run(body);
}

#[derive(Debug)]
struct Idling<S>(S);

impl<S: Scheduler> Scheduler for Idling<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        if IDLE.get() && runnable.len() > 1 {
            let first = TaskId::from(0);
            let others: Vec<&Task> = runnable.iter().copied().filter(|task| task.id() != first).collect();
            return self.0.next_task(&others, current, is_yielding);
        }
        self.0.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
