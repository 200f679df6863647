//! Seeds, one after another, on as many threads as there are processors; and the smallest program of a seed that fails.

use super::program::Program;
use super::random::Random;
use super::schedule::{PLAYS, play};
use super::world::{self, Tally};
use crate::schedules::said;
use claimdb::Break;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// A seed whose world broke a promise.
#[derive(Debug)]
pub struct Found {
    pub seed: u64,
    /// The promise first.
    pub said: String,
    pub program: Program,
    /// The seed of the interleavings in which the program shows it.
    pub played: u64,
}

impl Found {
    /// The words of the promise, which a smaller program has to break as well.
    fn promise(&self) -> &str {
        self.said.split(':').next().unwrap_or_default()
    }

    /// How to see it again.
    pub fn told(&self) -> String {
        format!(
            "{}\nseed {}; again with: CLAIMDB_SEED={} CLAIMDB_SIM_HISTORIES=1 cargo shuttle --test shuttle_sim \
             simulated_histories -- --nocapture\nthe smallest program that shows it, in the interleavings of {}: {}",
            self.said, self.seed, self.seed, self.played, self.program
        )
    }
}

thread_local! {
    static PLAYING: Cell<bool> = const { Cell::new(false) };
    /// What the first panic of the world said that is being played: shuttle keeps it to itself.
    static SAID: Cell<Option<String>> = const { Cell::new(None) };
}

/// Keeps what panics say in worlds, instead of printing it.
fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !PLAYING.get() {
                return before(info);
            }
            let first = SAID.take().unwrap_or_else(|| said(info.payload()));
            SAID.set(Some(first));
        }));
    });
}

fn program_of(seed: u64) -> Program {
    Program::draw(&mut Random(seed))
}

/// Plays `program` in the interleavings of `seed`; what a broken promise says. On a thread of its own: what shuttle
/// leaves on the thread of a world that failed would spoil the next.
fn try_out(seed: u64, program: &Program, rule: Option<Break>, tally: &Arc<Tally>) -> Option<String> {
    let (actors, program, tally) = (program.actors.len(), program.clone(), Arc::clone(tally));
    let body = move || world::play(&program, &tally);
    let played = move || {
        PLAYING.set(true);
        let found = catch_unwind(AssertUnwindSafe(|| match rule {
            Some(rule) => rule.run(|| play(seed, actors, body)),
            None => play(seed, actors, body),
        }));
        let first = SAID.take();
        found.err().map(|panic| first.unwrap_or_else(|| said(&*panic)))
    };
    std::thread::spawn(played).join().expect("it catches panics")
}

/// Plays seeds from `first` on until there were `histories`. Ends at the first failure, which it makes as small as it
/// can. With a rule broken that is the first one that says what promise this breaks; it may break others as well.
pub fn search(first: u64, histories: u64, broken: Option<(Break, &str)>) -> (Arc<Tally>, Option<Found>) {
    let rule = broken.map(|(rule, _)| rule);
    listen();
    let tally = Arc::new(Tally::default());
    let seeds = histories.div_ceil(PLAYS as u64);
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds || failed.load(Ordering::Relaxed) {
                return None;
            }
            let seed = first.wrapping_add(number);
            let program = program_of(seed);
            let said = try_out(seed, &program, rule, &tally);
            if let Some(said) = said.filter(|said| broken.is_none_or(|(_, promise)| said.contains(promise))) {
                failed.store(true, Ordering::Relaxed);
                return Some(Found { seed, said, program, played: seed });
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |workers| workers.get());
    let found: Vec<Found> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().expect("it catches panics")).collect()
    });
    // The same one, however the threads were scheduled.
    let found = found.into_iter().min_by_key(|found| found.seed);
    (tally, found.map(|found| shrink(found, rule)))
}

/// Takes away actors and acts as long as the same promise is broken.
fn shrink(mut found: Found, rule: Option<Break>) -> Found {
    let nobody = Arc::new(Tally::default());
    const PATIENCE: Duration = Duration::from_secs(20);
    let (seed, start) = (found.seed, Instant::now());
    'smaller: loop {
        for program in found.program.smaller() {
            // With less in it, the same seed leads to other interleavings.
            for played in seed..seed.saturating_add(20) {
                if start.elapsed() > PATIENCE {
                    return found;
                }
                if let Some(said) = try_out(played, &program, rule, &nobody)
                    && said.split(':').next() == Some(found.promise())
                {
                    found = Found { seed, said, program, played };
                    continue 'smaller;
                }
            }
        }
        return found;
    }
}
