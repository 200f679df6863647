//! Kills a process that uses a store, at random moments, and looks whether all that it told is there (P4, P2, P6).
//!
//! `CLAIMDB_KILLS` says how often, half of it over each engine, and `CLAIMDB_SEED` repeats a run as far as threads
//! allow. A kill leaves the page cache alone: `power_cut.rs` is what tests the syncs. What this tests is what engines
//! keep in their own memory, what a kill interrupts (opening, recovery and sweeps included), and that a holder which
//! was killed keeps nobody waiting.

#[cfg(not(loom))]
#[path = "support/child.rs"]
mod child;
#[cfg(not(loom))]
#[path = "support/ledger.rs"]
mod ledger;
#[cfg(not(loom))]
#[path = "support/parent.rs"]
mod parent;

// The loom build has none of the above; cargo still wants a main.
#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    use claimdb::{Store, backend};
    if let Some(plan) = child::Plan::of_this_process() {
        let builder = match plan.backend.as_str() {
            "redb" => Store::builder(backend::Redb::new(&plan.store)),
            _ => Store::builder(backend::Sled::new(&plan.store)),
        };
        child::run(&plan, &builder);
        return std::process::ExitCode::SUCCESS;
    }
    parent::run_as_test("kill", harness::run)
}

#[cfg(not(loom))]
mod harness {
    use crate::child::{Plan, Random};
    use crate::ledger::{Counts, Ledger};
    use crate::parent::{Moment, Passed, Running, over_both, seed, setting};
    use std::path::Path;

    /// Rounds on one store: many, since what a kill leaves behind adds up; but verifying takes ever longer.
    const ROUNDS_PER_STORE: u64 = 15;
    const THREADS: usize = 4;
    const MOST_WORK: usize = 600;

    pub fn run() -> Result<Passed, String> {
        let (seed, kills) = (seed()?, setting("CLAIMDB_KILLS", 300)?);
        println!("kill: CLAIMDB_SEED={seed} CLAIMDB_KILLS={kills}");
        let done = over_both(|engine| kill(engine, Random(seed), kills.div_ceil(2)))?;
        println!("kill: {} kills", done.iter().sum::<u64>());
        Ok(Passed::Ran)
    }

    fn kill(engine: &'static str, mut random: Random, kills: u64) -> Result<u64, String> {
        let (mut counts, mut stores, mut at, mut done) = (Counts::default(), 0, [0_u64; 3], 0);
        let (seed, mut sweeping) = (random.0, 0);
        while done < kills {
            let folder = tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?;
            let mut ledger = Ledger::default();
            let rounds = ROUNDS_PER_STORE.min(kills - done);
            for round in 1..=rounds + 1 {
                let plan = Plan {
                    store: folder.path().join("store"),
                    backend: engine.to_owned(),
                    seed: random.next(),
                    round: u32::try_from(round).map_err(|error| error.to_string())?,
                    threads: THREADS,
                    // The last one only verifies, and closes.
                    work: round <= rounds,
                    reads: false,
                    large: 3,
                    acts: 10,
                    keys: ledger.keys(),
                };
                let moment = Moment::random(&mut random, plan.keys.len(), MOST_WORK);
                let reached = one_round(folder.path(), &plan, moment, &mut random, &mut ledger)
                    .and_then(|()| ledger.verdict(THREADS))
                    .map_err(|reason| {
                        format!("seed {seed}, {engine}, store {stores}, round {round}, {moment:?}: {reason}")
                    })?;
                at[reached] += u64::from(plan.work);
                sweeping += u64::from(plan.work && matches!(moment, Moment::Sweeping));
            }
            done += rounds;
            stores += 1;
            counts.add(ledger.counts);
            // A long run that is ended early has shown this much.
            println!("kill: so far over {engine}: {done} kills; lost {}", counts.lost);
        }
        let [opening, verifying, working] = at;
        println!(
            "kill: over {engine}: {done} kills ({opening} while opening, {verifying} while verifying, {working} at work, \
             {sweeping} of those in a sweep) of {stores} stores; {}",
            counts.summary(done)?
        );
        Ok(done)
    }

    fn one_round(
        folder: &Path,
        plan: &Plan,
        moment: Moment,
        random: &mut Random,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let mut running = Running::start(folder, plan, ledger)?;
        if !plan.work {
            return running.finish(ledger);
        }
        running.read_until(moment, random, ledger)?;
        running.kill(ledger)?;
        match ledger.errors.first() {
            Some(error) => Err(format!("a kill gives no errors, and the child told: {error}")),
            None => Ok(()),
        }
    }
}
