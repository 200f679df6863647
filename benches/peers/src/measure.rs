//! How often in a second a system does the job, and whether it does it right.

use crate::job::{Result, Session, System, key, operate};
use crate::syncs;
use crate::systems::Peer;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

pub const THREADS: [usize; 3] = [1, 8, 64];

/// How long, and how often.
#[derive(Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    /// What is measured of a round.
    pub span: Duration,
    /// What goes before it, and is not counted.
    pub warm_up: Duration,
}

/// A system that is measured, and how far its keys have come.
pub struct Load {
    pub system: Box<dyn System>,
    next: AtomicU64,
}

impl Load {
    pub fn new(system: Box<dyn System>) -> Self {
        Self { system, next: AtomicU64::new(0) }
    }

    /// Operations a second in one round.
    pub fn rate(&self, threads: usize, plan: Plan) -> Result<f64> {
        rate(threads, plan, |_| {
            let mut session = self.system.session()?;
            Ok(move || {
                operate(session.as_mut(), &key(self.next.fetch_add(1, Ordering::Relaxed)))?;
                Ok(1)
            })
        })
    }
}

/// How much all threads together get done in a second of one round. `prepare` is given a thread's number and makes its
/// step, which tells how much it has done.
pub fn rate<S: FnMut() -> Result<u64>>(
    threads: usize,
    plan: Plan,
    prepare: impl Fn(usize) -> Result<S> + Sync,
) -> Result<f64> {
    let (barrier, start) = (Barrier::new(threads), OnceLock::new());
    let one = |number: usize| -> Result<u64> {
        let step = prepare(number);
        barrier.wait(); // even without a step, since the others wait
        // The same for all: with more threads than cores some get here late, and each would have the machine to itself.
        let start = start.get_or_init(Instant::now);
        let (mut step, mut done) = (step?, 0);
        loop {
            let more = step()?;
            let spent = start.elapsed();
            if spent >= plan.warm_up + plan.span {
                return Ok(done);
            }
            if spent >= plan.warm_up {
                done += more;
            }
        }
    };
    let done: Result<u64> = thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    });
    Ok(done? as f64 / plan.span.as_secs_f64())
}

/// Operations whose syncs are counted.
const CHECKED: u64 = 50;

/// Looks whether a new store of `peer` refuses the losers, and tells how often one thread's operation is synced, if it can
/// be counted. `process` is the one that syncs, or whose children do.
pub fn check(peer: &Peer, store: &Path, process: u32, run: &Path) -> Result<Option<f64>> {
    let system = (peer.open)(peer.level, store)?;
    // Far from the keys that are measured.
    let mut keys = (1 << 40..).map(key);
    let mut fresh = || keys.next().ok_or("the keys have run out");
    let (mut one, mut other) = (system.session()?, system.session()?);
    let contested = fresh()?;
    let claims = |session: &mut dyn Session, granted: bool, when: &str| -> Result<()> {
        match session.claim(&contested)? {
            told if told == granted => Ok(()),
            told => Err(format!("{}: a claim {when} was told {told}", peer.name).into()),
        }
    };
    claims(one.as_mut(), true, "of a fresh key")?;
    claims(other.as_mut(), false, "of a key that another has")?;
    one.store(&contested)?;
    claims(other.as_mut(), false, "of a key that has a result")?;
    if !syncs::countable() {
        return Ok(None);
    }
    // What is done once, at first.
    operate(one.as_mut(), &fresh()?)?;
    let syncs = syncs::count(process, run, || {
        for _ in 0..CHECKED {
            operate(one.as_mut(), &fresh()?)?;
        }
        Ok(())
    })?;
    Ok(Some(syncs as f64 / CHECKED as f64))
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
