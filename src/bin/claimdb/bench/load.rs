//! Threads that claim and complete.
#![allow(clippy::disallowed_types)] // a user of the crate, with a counter of its own

use super::Args;
use super::machine::{resident, written};
use super::options::{Row, Storage};
use crate::engine::Engine;
use crate::failure::Failure;
use claimdb::backend::Mem;
use claimdb::{Clock, Durability, Moment, Outcome, Request, Store, SystemClock};
use fastrand::Rng;
use hdrhistogram::Histogram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A store that is measured, and how far its keys have come.
pub(super) struct Load {
    store: Store,
    row: Row,
    value: Vec<u8>,
    duplicates: f64,
    clock: SystemClock,
    /// Keys below this were asked for.
    next: AtomicU64,
    rounds: u64,
}

/// What one round brought.
pub(super) struct Round {
    pub(super) seconds: f64,
    /// Claimed and completed.
    pub(super) fresh: Latencies,
    /// Answered with what was stored, or with *in flight*.
    pub(super) duplicate: Latencies,
    /// Of those, answered with *in flight*.
    pub(super) in_flight: u64,
    pub(super) syncs: u64,
    /// Bytes that the process had written to files; unknown outside Linux.
    pub(super) written: Option<u64>,
    /// Bytes of memory that the process had at the end of the round, all stores together.
    pub(super) resident: Option<u64>,
}

/// How long operations took, in nanoseconds.
pub(super) type Latencies = Histogram<u64>;

/// Up to a minute, to three digits.
pub(super) fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .expect("the bounds are in order, and three digits are allowed")
}

impl Load {
    /// A new store in `folder` with as many completed keys as `row` says.
    pub(super) fn new(row: Row, args: &Args, folder: &Path) -> Result<Self, Failure> {
        let builder = match row.storage {
            Storage::Sled => Store::builder(Engine::Sled.at(folder)),
            #[cfg(feature = "redb")]
            Storage::Redb => Store::builder(Engine::Redb.at(folder)),
            Storage::Mem => Store::builder(Mem::new()),
        };
        let store = builder.open().map_err(|error| {
            Failure::opening(&error, "wait until that has ended, or give another folder with --dir")
        })?;
        let value = vec![0x5A; args.value as usize];
        let (duplicates, clock) = (args.duplicates, SystemClock::new());
        let load = Self { store, row, value, duplicates, clock, next: AtomicU64::new(0), rounds: 0 };
        for number in 0..row.keys {
            load.operate(number, Durability::Relaxed)?;
        }
        load.next.store(row.keys, Ordering::Relaxed);
        load.store.sync().map_err(|error| failed(&row, error))?;
        Ok(load)
    }

    pub(super) fn round(&mut self, args: &Args) -> Result<Round, Failure> {
        self.rounds += 1;
        self.all_threads(Duration::from_secs_f64(args.warm_up))?;
        let (syncs, before, start) = (self.store.stats().syncs, written(), self.clock.now());
        let threads = self.all_threads(args.round())?;
        let seconds = self.clock.now().since(start).as_secs_f64();
        let syncs = self.store.stats().syncs - syncs;
        let written = written().zip(before).map(|(after, before)| after.saturating_sub(before));
        let mut round = Round {
            seconds,
            fresh: latencies(),
            duplicate: latencies(),
            in_flight: 0,
            syncs,
            written,
            resident: resident(),
        };
        for thread in threads {
            round.fresh += thread.fresh;
            round.duplicate += thread.duplicate;
            round.in_flight += thread.in_flight;
        }
        Ok(round)
    }

    fn all_threads(&self, span: Duration) -> Result<Vec<Thread>, Failure> {
        let until = self.clock.now().after(span);
        thread::scope(|scope| {
            let start = |number| scope.spawn(move || self.one_thread(number, until));
            let running: Vec<_> = (0..self.row.threads).map(start).collect();
            let ended = running.into_iter().map(|thread| thread.join());
            ended.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    fn one_thread(&self, number: u16, until: Moment) -> Result<Thread, Failure> {
        let mut random = Rng::with_seed(self.rounds << 16 | u64::from(number));
        let mut thread = Thread { fresh: latencies(), duplicate: latencies(), in_flight: 0 };
        let mut now = self.clock.now();
        // Once at least, however late a busy machine lets a thread begin.
        loop {
            let key = match random.f64() < self.duplicates {
                true => random.u64(..self.next.load(Ordering::Relaxed)),
                false => self.next.fetch_add(1, Ordering::Relaxed),
            };
            let answer = self.operate(key, self.row.durability)?;
            let start = std::mem::replace(&mut now, self.clock.now());
            let took = u64::try_from(now.since(start).as_nanos()).unwrap_or(u64::MAX);
            match answer {
                Answer::Completed => thread.fresh.saturating_record(took),
                Answer::Replayed | Answer::InFlight => thread.duplicate.saturating_record(took),
            }
            thread.in_flight += u64::from(answer == Answer::InFlight);
            if now >= until {
                return Ok(thread);
            }
        }
    }

    fn operate(&self, number: u64, durability: Durability) -> Result<Answer, Failure> {
        let request = Request::new(key(number)).durability(durability);
        match self.store.claim(request).map_err(|error| failed(&self.row, error))? {
            Outcome::Granted(claim) => {
                let completed = claim.complete_bytes(self.value.as_slice());
                completed.map(|()| Answer::Completed).map_err(|error| failed(&self.row, error))
            }
            Outcome::Settled(_) => Ok(Answer::Replayed),
            Outcome::InFlight(_) => Ok(Answer::InFlight),
            other => Err(failed(&self.row, format!("a claim was told {other:?}"))),
        }
    }
}

/// What one thread did in one round.
struct Thread {
    fresh: Latencies,
    duplicate: Latencies,
    in_flight: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Completed,
    Replayed,
    InFlight,
}

/// 16 characters, spread over the key space as hashes and random identifiers are.
fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn failed(row: &Row, error: impl std::fmt::Display) -> Failure {
    Failure::failed(
        format!("measuring {row}"),
        error,
        "see whether the disk of --dir has room, and run it again",
    )
}
