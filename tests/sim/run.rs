//! Seeds, one after another, on as many threads as there are processors; and the smallest program of a seed that fails.

use super::program::Program;
use super::random::Random;
use super::schedule::{PLAYS, play};
use super::world::{self, Tally};
use crate::schedules::first_panic;
use claimdb::Break;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many smaller programs are tried. Not a time: the same seed ends at the same program on any machine.
const TRIES: usize = 5_000;

/// A seed whose world broke a promise.
#[derive(Debug)]
pub struct Found {
    pub seed: u64,
    /// The promise first.
    pub said: String,
    pub program: Program,
    /// The seed of the interleavings in which the program shows it.
    pub played: u64,
    /// Whether no smaller one was left to be tried.
    smallest: bool,
}

impl Found {
    /// The words of the promise, which a smaller program has to break as well.
    fn promise(&self) -> &str {
        self.said.split(':').next().unwrap_or_default()
    }

    /// How to see it again, by `test`, which begins with the seed that it is given.
    pub fn told(&self, test: &str) -> String {
        let Self { seed, said, program, played, smallest } = self;
        let smallest =
            if *smallest { "the smallest program" } else { "the smallest program of those that were tried" };
        format!(
            "{said}\nseed {seed}; again with: CLAIMDB_SEED={seed} CLAIMDB_SIM_HISTORIES=1 cargo shuttle --test \
             shuttle_sim {test} -- --nocapture\n{smallest} that shows it, in the interleavings of {played}: {program}"
        )
    }
}

fn program_of(seed: u64) -> Program {
    Program::draw(&mut Random(seed))
}

/// Plays `program` in the interleavings of `seed`; what a broken promise says.
fn try_out(seed: u64, program: &Program, rule: Option<Break>, tally: &Arc<Tally>) -> Option<String> {
    let (actors, program, tally) = (program.actors.len(), program.clone(), Arc::clone(tally));
    let body = move || world::play(&program, &tally);
    first_panic(move || match rule {
        Some(rule) => rule.run(|| play(seed, actors, body)),
        None => play(seed, actors, body),
    })
}

/// Plays seeds from `first` on until there were `histories`. Ends at the first failure, which it makes as small as it
/// can. With a rule broken that is the first one that says what promise this breaks; it may break others as well.
pub fn search(first: u64, histories: u64, broken: Option<(Break, &str)>) -> (Arc<Tally>, Option<Found>) {
    let rule = broken.map(|(rule, _)| rule);
    let tally = Arc::new(Tally::default());
    let seeds = histories.div_ceil(PLAYS as u64);
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        // Asked before a seed is taken, so that each that was taken is played: those before one that fails all are.
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                break;
            }
            let seed = first.wrapping_add(number);
            let program = program_of(seed);
            let said = try_out(seed, &program, rule, &tally);
            if let Some(said) = said.filter(|said| broken.is_none_or(|(_, promise)| said.contains(promise))) {
                failed.store(true, Ordering::Relaxed);
                return Some(Found { seed, said, program, played: seed, smallest: false });
            }
        }
        None
    };
    let workers = std::thread::available_parallelism().map_or(1, |workers| workers.get());
    let found: Vec<Found> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().expect("it catches panics")).collect()
    });
    // The same one, however the threads were scheduled.
    let found = found.into_iter().min_by_key(|found| found.seed.wrapping_sub(first));
    (tally, found.map(|found| shrink(found, rule)))
}

/// The seeds of the interleavings in which what failed at `seed` is played with less in it.
pub fn others(seed: u64) -> impl Iterator<Item = u64> {
    (0..20).map(move |more| seed.wrapping_add(more))
}

/// Takes away actors and acts as long as the same promise is broken.
fn shrink(mut found: Found, rule: Option<Break>) -> Found {
    let nobody = Arc::new(Tally::default());
    let (seed, mut tries) = (found.seed, 0);
    'smaller: loop {
        for program in found.program.smaller() {
            // With less in it, the same seed leads to other interleavings.
            for played in others(seed) {
                if tries == TRIES {
                    return found;
                }
                tries += 1;
                if let Some(said) = try_out(played, &program, rule, &nobody)
                    && said.split(':').next() == Some(found.promise())
                {
                    found = Found { said, program, played, ..found };
                    continue 'smaller;
                }
            }
        }
        return Found { smallest: true, ..found };
    }
}
