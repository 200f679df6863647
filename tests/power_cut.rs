//! Cuts the power under a process that uses a store, and looks whether all that it told is there (P4, P2, P6).
//!
//! The disk is simulated: see `support/disk.rs`. Needs Linux, root and a loop device, and says *skipped* without
//! them. `CLAIMDB_POWER_CUTS` says how often, and `CLAIMDB_SEED` repeats a run as far as threads allow. In the same
//! run a twin, the same store over a sled without the file sync, must lose something: else the cuts test nothing.

#[cfg(not(loom))]
#[path = "support/child.rs"]
mod child;
#[cfg(not(loom))]
#[path = "support/disk.rs"]
mod disk;
#[cfg(not(loom))]
#[path = "support/ledger.rs"]
mod ledger;
#[cfg(not(loom))]
#[path = "support/parent.rs"]
mod parent;
#[cfg(not(loom))]
#[path = "support/twin.rs"]
mod twin;

// The loom build has none of the above; cargo still wants a main.
#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    use claimdb::Store;
    if let Some(plan) = child::Plan::of_this_process() {
        let builder = match plan.backend.as_str() {
            "twin" => Store::builder(twin::Twin(plan.store.clone())),
            _ => Store::builder(claimdb::backend::Sled::new(&plan.store)),
        };
        child::run(&plan, builder);
        return std::process::ExitCode::SUCCESS;
    }
    parent::run_as_test("power_cut", harness::run)
}

#[cfg(not(loom))]
mod harness {
    use crate::child::{Plan, Random};
    use crate::disk::Disk;
    use crate::ledger::{Counts, Ledger};
    use crate::parent::{Moment, Passed, Running, seed, setting};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// Cuts on one store: many, since what a cut leaves behind adds up; but opening takes ever longer.
    const CUTS_PER_STORE: u64 = 7;
    /// One cut in two makes the twin lose something; so many without a loss are no bad luck.
    const MOST_TWIN_CUTS: u64 = 30;
    /// Lines of new work before a cut. sled makes its segments of 16 MiB durable, as zeros, when it opens, and what
    /// is written into those survives a cut without any sync. So a cut tests something only once a good part of a
    /// segment was written: this many lines are about two.
    const MOST_WORK: usize = 1_000;
    const THREADS: usize = 4;
    const SIZES: [usize; 4] = [1, 4 << 10, 20 << 10, 200 << 10];
    const DISK_MIB: u64 = 1 << 10;

    struct Harness {
        disk: Disk,
        /// Outside the disk.
        folder: tempfile::TempDir,
        random: Random,
    }

    pub fn run() -> Result<Passed, String> {
        let (seed, cuts) = (seed()?, setting("CLAIMDB_POWER_CUTS", 52)?);
        if let Err(reason) = Disk::available() {
            return Ok(Passed::Skipped(reason));
        }
        println!("power_cut: CLAIMDB_SEED={seed} CLAIMDB_POWER_CUTS={cuts}");
        let mut harness = Harness {
            disk: Disk::new("claimdb-power-cut", DISK_MIB)?,
            folder: tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?,
            random: Random(seed),
        };
        harness
            .real(cuts)
            .and_then(|()| harness.twin(cuts / 8))
            .map_err(|reason| format!("seed {seed}, {reason}"))?;
        Ok(Passed::Ran)
    }

    impl Harness {
        fn real(&mut self, cuts: u64) -> Result<(), String> {
            let (mut counts, mut lengths, mut at) = (Counts::default(), BTreeMap::new(), [0_u64; 3]);
            let (mut done, mut stores) = (0, 0);
            while done < cuts {
                let store = self.disk.path().join("store");
                let mut ledger = Ledger::default();
                let rounds = CUTS_PER_STORE.min(cuts - done);
                for round in 1..=rounds + 1 {
                    // The last one only verifies, and closes.
                    let plan = self.plan("sled", &store, round, round <= rounds, &ledger);
                    let moment = Moment::random(&mut self.random, plan.keys.len(), MOST_WORK);
                    let reached = if plan.work {
                        self.cut(&plan, moment, &mut ledger).and_then(|()| ledger.verdict(THREADS))
                    } else {
                        self.verify(&plan, &mut ledger).and_then(|()| ledger.verdict(THREADS))
                    };
                    let reached = reached
                        .map_err(|reason| format!("store {stores}, round {round}, {moment:?}: {reason}"))?;
                    at[reached] += u64::from(plan.work);
                }
                done += rounds;
                stores += 1;
                counts.add(ledger.counts);
                for (length, told) in ledger.lengths {
                    *lengths.entry(length).or_insert(0_u64) += told;
                }
                std::fs::remove_dir_all(&store).map_err(|error| format!("removing the store: {error}"))?;
                // Else a cut early in the life of the next store brings this one back.
                self.disk.sync()?;
            }
            let [opening, verifying, working] = at;
            println!(
                "power_cut: {done} cuts ({opening} while opening, {verifying} while verifying, {working} at work) of \
                 {stores} stores; told {} completions {lengths:?} and {} grants; found again after a cut {} and {} \
                 times; lost {}",
                counts.completions, counts.grants, counts.completions_found, counts.grants_found, counts.lost
            );
            // A run that had nothing to lose shows nothing.
            if counts.completions_found < done || counts.grants_found < done || lengths.len() != SIZES.len() {
                return Err("too little was told and looked for again to mean anything".to_owned());
            }
            Ok(())
        }

        fn twin(&mut self, cuts: u64) -> Result<(), String> {
            let (mut told, mut lost, mut losing, mut done) = (0, 0, 0, 0);
            while done < cuts.max(2) || (lost == 0 && done < MOST_TWIN_CUTS) {
                let store = self.disk.path().join(format!("twin-{done}"));
                let mut ledger = Ledger::default();
                // That a young store disappears would be a cheap loss: this one is there, and durable.
                let empty = self.plan("twin", &store, 1, false, &ledger);
                self.verify(&empty, &mut ledger)?;
                self.disk.sync()?;
                let plan = self.plan("twin", &store, 2, true, &ledger);
                let moment = Moment::Worked(MOST_WORK / 2 + self.random.below(MOST_WORK));
                self.cut(&plan, moment, &mut ledger)?;
                let told_now = ledger.told();
                let plan = self.plan("twin", &store, 3, false, &ledger);
                // One that cannot be opened has lost everything.
                let lost_now = match self.verify(&plan, &mut ledger) {
                    Ok(()) => ledger.counts.lost,
                    Err(_) => told_now,
                };
                losing += u64::from(lost_now > 0);
                (told, lost, done) = (told + told_now, lost + lost_now, done + 1);
            }
            println!(
                "power_cut: the twin without a file sync: {done} cuts, {losing} of them with a loss; told {told}; lost {lost}"
            );
            if lost == 0 {
                return Err("the twin lost nothing, so these cuts would not show a missing sync".to_owned());
            }
            Ok(())
        }

        fn plan(&mut self, backend: &str, store: &Path, round: u64, work: bool, ledger: &Ledger) -> Plan {
            Plan {
                store: store.to_owned(),
                backend: backend.to_owned(),
                seed: self.random.next(),
                round: u32::try_from(round).unwrap_or(u32::MAX),
                threads: THREADS,
                work,
                sizes: SIZES.to_vec(),
                keys: ledger.keys(),
            }
        }

        /// Lets a child work, and cuts the power at `moment`.
        fn cut(&mut self, plan: &Plan, moment: Moment, ledger: &mut Ledger) -> Result<(), String> {
            let mut running = Running::start(self.folder.path(), plan, ledger)?;
            running.read_until(moment, &mut self.random, ledger)?;
            // Now and then the process goes first, and leaves to the kernel what it had written.
            if self.random.below(4) == 0 {
                running.kill(ledger)?;
                self.disk.cut()?;
            } else {
                self.disk.cut()?;
                running.kill(ledger)?;
            }
            self.disk.restore()
        }

        /// Lets a child look at all keys and close the store.
        fn verify(&mut self, plan: &Plan, ledger: &mut Ledger) -> Result<(), String> {
            Running::start(self.folder.path(), plan, ledger)?.finish(ledger)
        }
    }
}
