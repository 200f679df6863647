//! A job that is to run once in each slot of time, whoever starts it: `cargo run --example schedule`.
//!
//! Several workers look at the clock and start what is due. The slot's beginning is the key: one of them is granted it, the
//! others learn that it is done or being done. A slot that was missed while everything was down is due until it is too old,
//! and so is one whose run was cut off. Slots are remembered for longer than they are due, else an old one would run again.
// A program of its own: its threads are not the library's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use claimdb::backend::Sled;
use claimdb::{Clock, Key, ManualClock, Outcome, Request, Settled, Store, Token, WallTime};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

type Told<T> = Result<T, Box<dyn Error + Send + Sync>>;

const HOUR: Duration = Duration::from_secs(3600);
/// How long a slot is.
const SLOT: Duration = HOUR;
/// How many slots back one that was missed is still run. Older ones are left out, and said to be.
const CATCH_UP: u32 = 4;
/// How long a slot's run is remembered, from its end.
const RETENTION: Duration = Duration::from_secs(48 * 3600);
const _: () = assert!(
    RETENTION.as_secs() > (CATCH_UP as u64 + 1) * SLOT.as_secs(),
    "a slot that is due must not be forgotten, or it runs again"
);

/// The slot that `time` lies in, by its beginning. UTC, since a local hour can come twice or not at all.
fn slot_of(time: WallTime) -> WallTime {
    let slot = SLOT.as_secs() * 1000;
    WallTime::from_unix_millis(time.unix_millis() / slot * slot)
}

/// Runs the job for each slot that has ended, is not too old, and has no run yet; the oldest first. Any worker calls this,
/// as often as it likes: at its start, and each minute. Gives the slots that were run here.
fn run_due(store: &Store, now: WallTime, job: impl Fn(WallTime, Token) -> Told<()>) -> Told<Vec<WallTime>> {
    let mut ran = Vec::new();
    for back in (1..=CATCH_UP).rev() {
        let Some(begin) = now.unix_millis().checked_sub(u64::from(back) * SLOT.as_secs() * 1000) else {
            continue;
        };
        let slot = slot_of(WallTime::from_unix_millis(begin));
        // A name of the job's own as scope. Whoever changes how long a slot is takes another, or keys would mean two things.
        let key = Key::scoped("hourly-report", slot.utc())?;
        match store.claim(Request::new(key).retention(RETENTION))? {
            Outcome::Granted(claim) => {
                // A job that may take longer than the lease, 30 s, asks to be kept alive, for as long as it may take.
                claim.keep_alive(HOUR / 2)?;
                if let Some(previous) = claim.previous() {
                    println!(
                        "{}: attempt {}, token {} has not ended well",
                        slot.utc(),
                        claim.attempt(),
                        previous.token
                    );
                }
                job(slot, claim.token())?; // an error drops the claim: the slot is due again
                claim.complete(&())?;
                ran.push(slot);
            }
            // Done, or another worker is at it: nothing for this one to do. If that one fails, the slot is due next time.
            Outcome::Settled(Settled::Completed(_) | Settled::Omitted(_)) | Outcome::InFlight(_) => {}
            other => return Err(format!("the slot {} cannot be run: {other:?}", slot.utc()).into()),
        }
    }
    Ok(ran)
}

fn main() -> Told<()> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or_else(|| temporary.path().join("store"), PathBuf::from);
    if folder.exists() {
        return Err("this starts from nothing: name a folder that is not there".into());
    }
    // A clock that is moved, so that a day passes in a moment. A service leaves it out.
    let clock = ManualClock::new();
    let open = || Store::builder(Sled::new(&folder)).clock(clock.clone()).open();
    let reports = Reports::default();
    let begin = slot_of(clock.wall());

    // Six slots, at whose end four workers all start what is due, twice each.
    let mut store = open()?;
    for _ in 0..6 {
        clock.advance(SLOT);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..2 {
                            run_due(&store, clock.wall(), |slot, token| reports.publish(slot, token))?;
                        }
                        Told::Ok(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
        })?;
    }
    // Those before the first were due as well, since nothing had run them.
    let runs = reports.runs();
    assert!(runs.values().all(|runs| *runs == 1), "a slot was run by two: {runs:?}");
    assert_eq!(runs.len(), 6 + CATCH_UP as usize - 1);
    println!("6 slots, 4 workers, 2 starts each: {} runs, each slot once", runs.len());

    // The run of the next slot is cut off, with its process. Whoever starts first afterwards runs it again, told so.
    clock.advance(SLOT);
    let cut_off = slot_of(WallTime::from_unix_millis(clock.wall().unix_millis() - SLOT.as_secs() * 1000));
    let Outcome::Granted(claim) = store.claim(Key::scoped("hourly-report", cut_off.utc())?)? else {
        return Err("the slot has ended just now".into());
    };
    store.close()?;
    drop(claim);
    store = open()?;
    let ran = run_due(&store, clock.wall(), |slot, token| reports.publish(slot, token))?;
    assert_eq!(ran, [cut_off]);

    // Everything is down for ten slots. Those that are due are made up for, and the older ones are missed for good.
    store.close()?;
    let down_since = clock.wall();
    clock.advance(SLOT * 10);
    store = open()?;
    let ran = run_due(&store, clock.wall(), |slot, token| reports.publish(slot, token))?;
    assert_eq!(ran.len(), CATCH_UP as usize);
    assert!(ran.is_sorted() && ran.iter().all(|slot| *slot >= down_since), "the oldest first: {ran:?}");
    println!("down for 10 slots: {} made up for, {} missed for good", ran.len(), 10 - ran.len());

    // A job that fails is not done: its slot is due again, and the next start runs it.
    clock.advance(SLOT);
    let failed = run_due(&store, clock.wall(), |_, _| Err("the printer is out of paper".into()));
    let failed = failed.expect_err("the job failed");
    let ran = run_due(&store, clock.wall(), |slot, token| reports.publish(slot, token))?;
    println!("{failed}: run again, {} slot", ran.len());
    assert_eq!(ran.len(), 1);

    let runs = reports.runs();
    assert!(runs.values().all(|runs| *runs == 1), "a slot was run twice: {runs:?}");
    assert_eq!(runs.len(), 15, "of the 21 slots from {} on, and what was due then", begin.utc());
    store.close()?;
    Ok(())
}

/// Stands for what the job changes. It keeps the greatest token that it has seen for a slot, and refuses lesser ones.
#[derive(Default)]
struct Reports(Mutex<BTreeMap<WallTime, (Token, usize)>>);

impl Reports {
    fn publish(&self, slot: WallTime, token: Token) -> Told<()> {
        let mut reports = self.0.lock().expect("nobody panics with it");
        let (seen, runs) = reports.entry(slot).or_insert((token, 0));
        if token < *seen {
            return Err(format!("token {token} is too late: {seen} was here").into());
        }
        (*seen, *runs) = (token, *runs + 1);
        Ok(())
    }

    fn runs(&self) -> BTreeMap<WallTime, usize> {
        let reports = self.0.lock().expect("nobody panics with it");
        reports.iter().map(|(slot, (_, runs))| (*slot, *runs)).collect()
    }
}
