//! What a child of `many_segments` does, and what its parent knows of it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a harness: its threads are not the library's

mod acts;
mod loses;

use crate::child::Random;
use acts::{Act, Name, Plan};
use claimdb::{Outcome, SettleError, Settled, Store, backend::Sled};
pub use loses::Loses;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// So small that much is read from the log while it runs.
const CACHE: u64 = 4 << 20;
const THREADS: usize = 4;
const SEGMENT: u64 = 8 << 20;
/// How often a thread looks how many segments are filled.
const LOOK_EVERY: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Close,
    /// It works on until it is killed.
    Kill,
}

/// What a child is to do. Handed over in the environment.
#[derive(Debug, Clone)]
pub struct Round {
    pub store: PathBuf,
    pub seed: u64,
    /// Each has keys of its own.
    pub number: u64,
    /// How many segments are to be filled by its end.
    pub until: u64,
    pub end: End,
    pub loses: Loses,
}

impl Round {
    pub const IN: &str = "CLAIMDB_SEGMENTS_ROUND";

    pub fn to_text(&self) -> String {
        let Self { store, seed, number, until, end, loses } = self;
        format!("{seed} {number} {until} {} {} {}", *end as u8, *loses as u8, store.display())
    }

    /// The round, in a child.
    pub fn of_this_process() -> Option<Self> {
        let text = std::env::var(Self::IN).ok()?;
        let mut words = text.splitn(6, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (seed, round, until, end, loses) = (number()?, number()?, number()?, number()?, number()?);
        Some(Self {
            store: words.next()?.into(),
            seed,
            number: round,
            until,
            end: if end == 0 { End::Close } else { End::Kill },
            loses: [Loses::Nothing, Loses::AtOnce, Loses::AtTheEnd][usize::try_from(loses).ok()?],
        })
    }

    fn plan(&self, thread: usize) -> Plan {
        Plan::new(self.seed ^ ((thread as u64) << 56), format!("{}-{thread}", self.number))
    }

    /// Where a thread notes how far it came. What is written there survives a kill of the process.
    fn told(&self, thread: usize) -> PathBuf {
        self.store.with_file_name(format!("told-{}-{thread}", self.number))
    }

    /// In the child. It tells `full` once enough is filled, and else what is wrong.
    pub fn run(&self) -> ExitCode {
        match self.work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{}", why.replace('\n', " "));
                ExitCode::FAILURE
            }
        }
    }

    fn work(&self) -> Result<(), String> {
        let backend = loses::Losing::over(Sled::new(&self.store).cache_capacity(CACHE), self.loses);
        let store = Store::builder(backend).sweep_every(Duration::ZERO).open();
        let store = store.map_err(|error| format!("opening: {error}"))?;
        let full = AtomicBool::new(false);
        let ended: Result<(), String> = std::thread::scope(|scope| {
            let working: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn({
                        let (store, full) = (&store, &full);
                        move || self.works(thread, store, full)
                    })
                })
                .collect();
            working.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| "P6 never stuck: a thread panicked".to_owned())?
            })
        });
        ended?;
        store.close().map_err(|error| format!("closing: {error}"))
    }

    fn works(&self, thread: usize, store: &Store, full: &AtomicBool) -> Result<(), String> {
        let file = File::create(self.told(thread)).map_err(|error| format!("making a file: {error}"))?;
        let (mut plan, mut looks) = (self.plan(thread), Random(self.seed));
        for number in 1_u64.. {
            let act = plan.next();
            perform(&plan, &act, store)?;
            file.write_all_at(&number.to_le_bytes(), 0).map_err(|error| format!("noting an act: {error}"))?;
            if let Some(name) = plan.any(&mut looks) {
                expect(&plan, name, &[plan.state(name)], store)?;
            }
            let is_full = full.load(Ordering::Relaxed);
            if is_full && self.end == End::Close {
                break;
            }
            let looks = !is_full && number.is_multiple_of(LOOK_EVERY);
            if looks && Segments::of(&self.store)?.filled >= self.until && !full.swap(true, Ordering::Relaxed)
            {
                println!("full");
            }
        }
        Ok(())
    }
}

fn perform(plan: &Plan, act: &Act, store: &Store) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{act:?}: an error: {error}");
    match act {
        Act::Complete { slot, durability, by } => {
            let request = claimdb::Request::new(plan.key(*slot)).durability(*durability);
            match store.claim(request).map_err(|error| failed(&error))? {
                Outcome::Granted(claim) => {
                    claim.complete_bytes(plan.value(*by)).map_err(|error| match error {
                        // Nobody else works on this key.
                        SettleError::Lost(_) | SettleError::AlreadySettled(_) => {
                            format!("P8 remembered: {act:?}: what was granted is gone: {error}")
                        }
                        error => failed(&error),
                    })
                }
                other => {
                    Err(format!("P4 durable before told: {act:?}: what was removed is told as {other:?}"))
                }
            }
        }
        Act::Replay { slot, by } => match store.claim(plan.key(*slot)).map_err(|error| failed(&error))? {
            Outcome::Settled(Settled::Completed(stored)) if stored.bytes() == plan.value(*by) => Ok(()),
            other => Err(format!("P8 remembered: {act:?}: what was completed is told as {other:?}")),
        },
        Act::Remove { slot } => match store.remove(plan.key(*slot)).map_err(|error| failed(&error))? {
            true => Ok(()),
            false => Err(format!("P8 remembered: {act:?}: what was completed is told as absent")),
        },
        Act::Put { slot, by } => {
            let put = store.kv("segments").put(plan.key(*slot), plan.value(*by));
            put.map_err(|error| failed(&error))
        }
        Act::Delete { slot } => store.kv("segments").delete(plan.key(*slot)).map_err(|error| failed(&error)),
    }
}

/// Looks whether `name` is in one of the states that it may be in; tells which.
fn expect(plan: &Plan, name: Name, states: &[Option<u64>], store: &Store) -> Result<Option<u64>, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("P8 remembered: {name:?} of {plan:?} is told as an error: {error}")
    };
    let found = match name {
        Name::Record(slot) => match store.get(plan.key(slot)).map_err(|error| failed(&error))? {
            Some(Settled::Completed(stored)) => Some(stored.bytes().to_vec()),
            Some(other) => return Err(format!("P8 remembered: {name:?} of {plan:?} is told as {other:?}")),
            None => None,
        },
        Name::Value(slot) => store.kv("segments").get(plan.key(slot)).map_err(|error| failed(&error))?,
    };
    let fits = states.iter().find(|state| state.map(|by| plan.value(by)) == found);
    fits.copied().ok_or_else(|| {
        let promise =
            if matches!(name, Name::Record(_)) { "P8 remembered" } else { "P4 durable before told" };
        let found = found.map_or("absent".to_owned(), |found| format!("{} other bytes", found.len()));
        format!("{promise}: {name:?} of {plan:?} was left by the act {states:?}, and is told as {found}")
    })
}

/// The acts by any of which each may have been left as it is.
type MayBe = HashMap<Name, Vec<Option<u64>>>;

/// What a round has left, as its parent knows it.
pub struct Seen {
    threads: Vec<(Plan, MayBe)>,
    acts: u64,
}

impl Seen {
    /// From how far its threads came. What was not durable when it was killed, and the act that it was at, may be there or
    /// not; what was durable is.
    pub fn of(round: &Round) -> Result<Self, String> {
        let mut seen = Self { threads: Vec::new(), acts: 0 };
        for thread in 0..THREADS {
            let told =
                fs::read(round.told(thread)).map_err(|error| format!("reading how far it came: {error}"))?;
            let told = told.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let mut plan = round.plan(thread);
            let mut may_be = MayBe::new();
            for number in 1..=told + u64::from(round.end == End::Kill) {
                let act = plan.next();
                let is_sure =
                    number <= told && (act.is_durable() || (number == told && round.end == End::Close));
                may_be.entry(act.name()).or_insert_with(|| vec![None]).push(plan.state(act.name()));
                if is_sure {
                    // A sync covers all that was done before it.
                    may_be
                        .values_mut()
                        .filter(|states| states.len() > 1)
                        .for_each(|states| *states = states.split_off(states.len() - 1));
                }
            }
            seen.acts += told;
            seen.threads.push((plan, may_be));
        }
        Ok(seen)
    }

    pub fn acts(&self) -> u64 {
        self.acts
    }

    /// Looks at all of it. What is told once stays so.
    pub fn compare(&mut self, store: &Store) -> Result<(), String> {
        for (plan, may_be) in &mut self.threads {
            for (name, states) in may_be {
                *states = vec![expect(plan, *name, states, store)?];
            }
        }
        Ok(())
    }
}

/// How far sled's log came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Segments {
    /// Since the store was made.
    pub filled: u64,
    /// In the file. The others have been used again.
    pub stand: u64,
}

impl Segments {
    /// From the positions in the headers: checksum (4), position (8, all bits but the first flipped).
    pub fn of(store: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("looking at sled's log: {error}");
        let log = File::open(store.join("sled/db")).map_err(failed)?;
        let mut segments = Self::default();
        for at in (0..log.metadata().map_err(failed)?.len()).step_by(8 << 20) {
            let mut header = [0; 20];
            let read = log.read_exact_at(&mut header, at).is_ok();
            let checksum = (crc32fast::hash(&header[4..]) ^ u32::MAX).to_le_bytes();
            let Some(position) = header[4..].first_chunk().filter(|_| read && header[..4] == checksum) else {
                continue;
            };
            let position = u64::from_le_bytes(*position) ^ (i64::MAX as u64);
            segments.filled = segments.filled.max(position / SEGMENT + 1);
            segments.stand += 1;
        }
        Ok(segments)
    }
}
