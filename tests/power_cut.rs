//! Cuts the power under a process that uses a store, and looks whether all that it told is there (P4, P2, P6).
//!
//! The disk is simulated: see `support/disk.rs`. Needs Linux, root and a loop device, and says *skipped* without
//! them. `CLAIMDB_POWER_CUTS` says how often over each engine, and `CLAIMDB_SEED` repeats a run as far as threads
//! allow. In the same run each engine has a twin without syncs, a sled without the file sync and a redb that never
//! commits durably, which must lose something: else the cuts test nothing.

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
#[path = "support/plain_redb.rs"]
mod plain_redb;
#[cfg(not(loom))]
#[path = "support/twin.rs"]
mod twin;

// The loom build has none of the above; cargo still wants a main.
#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    use claimdb::{Store, backend};
    if let Some(plan) = child::Plan::of_this_process() {
        let store = plan.store.clone();
        let builder = match plan.backend.as_str() {
            "sled-twin" => Store::builder(twin::Twin(store)),
            "redb-twin" => {
                Store::builder(plain_redb::PlainRedb { file: store, syncs: false, two_phases: false })
            }
            "redb" => Store::builder(backend::Redb::new(store)),
            _ => Store::builder(backend::Sled::new(store)),
        };
        child::run(&plan, &builder);
        return std::process::ExitCode::SUCCESS;
    }
    parent::run_as_test("power_cut", harness::run)
}

#[cfg(not(loom))]
mod harness {
    use crate::child::{Plan, Random};
    use crate::disk::Disk;
    use crate::ledger::{Counts, Ledger};
    use crate::parent::{Moment, Passed, Running, over_both, seed, setting};
    use std::path::Path;

    /// Cuts on one store: many, since what a cut leaves behind adds up; but verifying takes ever longer.
    const CUTS_PER_STORE: u64 = 8;
    /// One cut in two makes the twin lose something; so many without a loss are no bad luck.
    const MOST_TWIN_CUTS: u64 = 30;
    /// Lines of new work before a cut. sled makes its segments of 8 MiB durable, as zeros, when it opens, and what
    /// is written into those survives a cut without any sync. So a cut tests something only once a good part of a
    /// segment was written.
    const MOST_WORK: usize = 800;
    const THREADS: usize = 4;
    const DISK_MIB: u64 = 1 << 10;

    struct Harness {
        engine: &'static str,
        disk: Disk,
        /// Outside the disk.
        folder: tempfile::TempDir,
        random: Random,
        children: u32,
    }

    pub fn run() -> Result<Passed, String> {
        let (seed, cuts) = (seed()?, setting("CLAIMDB_POWER_CUTS", 200)?);
        if let Err(reason) = Disk::available() {
            return Ok(Passed::Skipped(reason));
        }
        println!("power_cut: CLAIMDB_SEED={seed} CLAIMDB_POWER_CUTS={cuts}");
        over_both(|engine| {
            let mut harness = Harness {
                engine,
                disk: Disk::new("claimdb-power-cut", DISK_MIB)?,
                folder: tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?,
                random: Random(seed),
                children: 0,
            };
            let ran = harness.real(cuts).and_then(|()| harness.twin(cuts / 25));
            ran.map_err(|reason| format!("seed {seed}, {engine}, {reason}"))
        })?;
        Ok(Passed::Ran)
    }

    impl Harness {
        fn real(&mut self, cuts: u64) -> Result<(), String> {
            let (mut counts, mut at, mut reopened) = (Counts::default(), [0_u64; 3], 0);
            let (mut done, mut stores) = (0, 0);
            while done < cuts {
                let store = self.disk.path().join("store");
                let mut ledger = Ledger::default();
                let cuts_here = CUTS_PER_STORE.min(cuts - done);
                for cut in 1..=cuts_here + 1 {
                    let mut moment = Moment::random(&mut self.random, ledger.keys().len(), MOST_WORK);
                    let told = |reason| format!("store {stores}, cut {cut}, {moment:?}: {reason}");
                    // The last one only verifies, and closes.
                    if cut > cuts_here {
                        self.verify(self.engine, &store, &mut ledger).map_err(told)?;
                        ledger.verdict(THREADS).map_err(told)?;
                        continue;
                    }
                    // Now and then a kill first, which leaves what was written in the page cache, and on the disk or
                    // not. The power goes once the next opening has told of what it found (rule 6).
                    if self.random.below(4) == 0 {
                        let plan = self.plan(self.engine, &store, true, &ledger);
                        self.start_until(&plan, moment, &mut ledger)
                            .and_then(|running| running.kill(&mut ledger))
                            .and_then(|()| ledger.verdict(THREADS))
                            .map_err(told)?;
                        moment = Moment::Verified;
                        reopened += 1;
                    }
                    let told = |reason| format!("store {stores}, cut {cut}, {moment:?}: {reason}");
                    let mut plan = self.plan(self.engine, &store, true, &ledger);
                    plan.reads = matches!(moment, Moment::Verified);
                    self.cut(&plan, moment, &mut ledger).map_err(told)?;
                    at[ledger.verdict(THREADS).map_err(told)?] += 1;
                }
                done += cuts_here;
                stores += 1;
                counts.add(ledger.counts);
                // A long run that is ended early has shown this much.
                println!("power_cut: so far over {}: {done} cuts; lost {}", self.engine, counts.lost);
                std::fs::remove_dir_all(&store).map_err(|error| format!("removing the store: {error}"))?;
                // Else a cut early in the life of the next store brings this one back.
                self.disk.sync()?;
            }
            let [opening, verifying, working] = at;
            println!(
                "power_cut: over {}: {done} cuts ({opening} while opening, {verifying} while verifying, {working} at \
                 work, {reopened} just after a kill and reopening) of {stores} stores; {}",
                self.engine,
                counts.summary(done)?
            );
            Ok(())
        }

        fn twin(&mut self, cuts: u64) -> Result<(), String> {
            let twin = if self.engine == "sled" { "sled-twin" } else { "redb-twin" };
            let (mut told, mut lost, mut losing, mut done) = (0, 0, 0, 0);
            while done < cuts.max(2) || (lost == 0 && done < MOST_TWIN_CUTS) {
                let store = self.disk.path().join(format!("twin-{done}"));
                let mut ledger = Ledger::default();
                // That a young store disappears would be a cheap loss: this one is there, and durable.
                self.verify(twin, &store, &mut ledger)?;
                self.disk.sync()?;
                let plan = self.plan(twin, &store, true, &ledger);
                let moment = Moment::Worked(MOST_WORK / 2 + self.random.below(MOST_WORK));
                self.cut(&plan, moment, &mut ledger)?;
                let told_now = ledger.told();
                // One that cannot be opened has lost everything.
                let lost_now = match self.verify(twin, &store, &mut ledger) {
                    Ok(()) => ledger.counts.lost,
                    Err(_) => told_now,
                };
                losing += u64::from(lost_now > 0);
                (told, lost, done) = (told + told_now, lost + lost_now, done + 1);
            }
            println!(
                "power_cut: the twin of {} without syncs: {done} cuts, {losing} of them with a loss; told {told}; lost \
                 {lost}",
                self.engine
            );
            if lost == 0 {
                return Err("the twin lost nothing, so these cuts would not show a missing sync".to_owned());
            }
            Ok(())
        }

        fn plan(&mut self, backend: &str, store: &Path, work: bool, ledger: &Ledger) -> Plan {
            self.children += 1;
            Plan {
                store: store.to_owned(),
                backend: backend.to_owned(),
                seed: self.random.next(),
                round: self.children,
                threads: THREADS,
                work,
                reads: false,
                large: 15,
                // An opening makes a segment durable, so that few are better here.
                acts: 150,
                keys: ledger.keys(),
            }
        }

        fn start_until(
            &mut self,
            plan: &Plan,
            moment: Moment,
            ledger: &mut Ledger,
        ) -> Result<Running, String> {
            let mut running = Running::start(self.folder.path(), plan, ledger)?;
            running.read_until(moment, &mut self.random, ledger)?;
            Ok(running)
        }

        /// Lets a child work, and cuts the power at `moment`.
        fn cut(&mut self, plan: &Plan, moment: Moment, ledger: &mut Ledger) -> Result<(), String> {
            let running = self.start_until(plan, moment, ledger)?;
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
        fn verify(&mut self, backend: &str, store: &Path, ledger: &mut Ledger) -> Result<(), String> {
            let plan = self.plan(backend, store, false, ledger);
            Running::start(self.folder.path(), &plan, ledger)?.finish(ledger)
        }
    }
}
