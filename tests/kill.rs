//! Kills a process that uses a store, at random moments, and looks whether all that it told is there (P4, P2, P6).
//!
//! `CLAIMDB_KILLS` says how often, and `CLAIMDB_SEED` repeats a run as far as threads allow. A kill leaves the page
//! cache alone: `power_cut.rs` is what tests the syncs. What this tests is what sled keeps in its own memory, what a
//! kill interrupts (opening included), and that a holder which was killed keeps nobody waiting.

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
    if let Some(plan) = child::Plan::of_this_process() {
        let sled = claimdb::backend::Sled::new(&plan.store);
        child::run(&plan, claimdb::Store::builder(sled));
        return std::process::ExitCode::SUCCESS;
    }
    parent::run_as_test("kill", harness::run)
}

#[cfg(not(loom))]
mod harness {
    use crate::child::{Plan, Random};
    use crate::ledger::{Counts, Ledger};
    use crate::parent::{Moment, Passed, Running, seed, setting};

    /// Rounds on one store: many, since what a kill leaves behind adds up; but opening takes ever longer.
    const ROUNDS_PER_STORE: u64 = 25;
    const THREADS: usize = 4;

    pub fn run() -> Result<Passed, String> {
        let (seed, kills) = (seed()?, setting("CLAIMDB_KILLS", 100)?);
        println!("kill: CLAIMDB_SEED={seed} CLAIMDB_KILLS={kills}");
        let mut random = Random(seed);
        let (mut counts, mut stores, mut at) = (Counts::default(), 0, [0_u64; 3]);
        let mut done = 0;
        while done < kills {
            let folder = tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?;
            let mut ledger = Ledger::default();
            let rounds = ROUNDS_PER_STORE.min(kills - done);
            for round in 1..=rounds + 1 {
                let plan = Plan {
                    store: folder.path().join("store"),
                    backend: "sled".to_owned(),
                    seed: random.next(),
                    round: u32::try_from(round).map_err(|error| error.to_string())?,
                    threads: THREADS,
                    // The last one only verifies, and closes.
                    work: round <= rounds,
                    sizes: vec![1, 100, 1_000, 20_000],
                    keys: ledger.keys(),
                };
                let reached = one_round(folder.path(), &plan, &mut random, &mut ledger)
                    .and_then(|()| ledger.verdict(THREADS))
                    .map_err(|reason| format!("seed {seed}, store {stores}, {reason}"))?;
                if plan.work {
                    at[reached] += 1;
                }
            }
            done += rounds;
            stores += 1;
            counts.add(ledger.counts);
        }
        let [opening, verifying, working] = at;
        println!(
            "kill: {done} kills ({opening} while opening, {verifying} while verifying, {working} at work) of {stores} \
             stores; told {} completions and {} grants; found again after a kill {} and {} times; lost {}",
            counts.completions, counts.grants, counts.completions_found, counts.grants_found, counts.lost
        );
        // A run that had nothing to lose shows nothing.
        if counts.completions_found < done || counts.grants_found < done {
            return Err("too little was told and looked for again to mean anything".to_owned());
        }
        Ok(Passed::Ran)
    }

    fn one_round(
        folder: &std::path::Path,
        plan: &Plan,
        random: &mut Random,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let moment = Moment::random(random, plan.keys.len(), 600);
        let told = |reason| format!("round {}, {moment:?}: {reason}", plan.round);
        let mut running = Running::start(folder, plan, ledger).map_err(told)?;
        if !plan.work {
            return running.finish(ledger).map_err(told);
        }
        running.read_until(moment, random, ledger).map_err(told)?;
        running.kill(ledger).map_err(told)?;
        match ledger.errors.first() {
            Some(error) => Err(told(format!("a kill gives no errors, and the child told: {error}"))),
            None => Ok(()),
        }
    }
}
