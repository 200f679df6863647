//! Fills a disk under a store, over each engine: what is refused, what goes on, and that all that was told is there
//! afterwards.
//!
//! The disk is an ext4 image on a loop device: see `support/disk.rs`. Needs Linux and root, and says *skipped* without
//! them. Every call must return within a bound, full or not.

#[cfg(not(loom))]
#[path = "support/child.rs"]
mod child;
#[cfg(not(loom))]
#[path = "support/disk.rs"]
#[allow(dead_code)]
mod disk;
#[cfg(not(loom))]
#[path = "support/engines.rs"]
mod engines;
#[cfg(not(loom))]
#[path = "support/ledger.rs"]
mod ledger;
#[cfg(not(loom))]
#[path = "support/parent.rs"]
mod parent;
#[cfg(not(loom))]
#[path = "support/struck.rs"]
mod struck;

// The loom build has none of the above; cargo still wants a main.
#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    if let Some(task) = struck::Task::of_this_process() {
        struck::run(&task, harness::builder(engines::Engine::of(&task.backend), &task.store));
        return std::process::ExitCode::SUCCESS;
    }
    parent::run_as_test("full_disk", harness::run)
}

#[cfg(not(loom))]
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // a harness: its clock is not the library's
mod harness {
    use crate::disk::Disk;
    use crate::engines::Engine;
    use crate::parent::Passed;
    use crate::struck::{Running, SYNC_LIMIT, Task, Told, value};
    use claimdb::{
        Builder, Claim, ClaimError, Durability, Fault, KvError, OpenError, Outcome, Request, Store,
    };
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::process::Signal;
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    const DISK_MIB: u64 = 112;
    /// What is deleted to make room.
    const BALLAST: u64 = 36 << 20;
    const LENGTH: usize = 30_000;
    /// No call takes longer, full disk or not.
    const BOUND: Duration = Duration::from_secs(15);

    pub fn builder(engine: Engine, store: &Path) -> Builder {
        Store::builder(engine.at(store)).sync_limit(SYNC_LIMIT).sweep_every(Duration::ZERO)
    }

    struct Harness {
        engine: Engine,
        disk: Disk,
        told: Told,
        slowest: Duration,
    }

    pub fn run() -> Result<Passed, String> {
        if let Err(reason) = Disk::available() {
            return Ok(Passed::Skipped(reason));
        }
        for &engine in Engine::ALL {
            let disk = Disk::new("claimdb-full-disk", DISK_MIB)?;
            let mut harness = Harness { engine, disk, told: Told::default(), slowest: Duration::ZERO };
            harness.fill_all().map_err(|error| format!("over {}: {error}", engine.name()))?;
            println!(
                "full_disk: over {}: 4 fillings; told {} completions; lost 0; the slowest call took {:?}",
                engine.name(),
                harness.told.completed.len(),
                harness.slowest
            );
        }
        Ok(Passed::Ran)
    }

    impl Harness {
        fn fill_all(&mut self) -> Result<(), String> {
            self.refused_in_time()?;
            self.killed_while_full()?;
            self.used_up()
        }

        /// How much one completion of those that fill the disk stores, and how many are begun at once. A sync over redb
        /// costs more, so it has fewer of them.
        fn portion(&self) -> (usize, usize) {
            match self.engine {
                Engine::Sled => (LENGTH, 50),
                #[cfg(feature = "redb")]
                Engine::Redb => (4 * LENGTH, 20),
            }
        }

        fn store(&self) -> PathBuf {
            self.disk.path().join("store")
        }

        fn ballast(&self) -> PathBuf {
            self.disk.path().join("ballast")
        }

        fn take_ballast(&self) -> Result<(), String> {
            let file = File::create(self.ballast()).map_err(|error| format!("making ballast: {error}"))?;
            fallocate(&file, FallocateFlags::empty(), 0, BALLAST)
                .map_err(|error| format!("making ballast: {error}"))
        }

        fn drop_ballast(&self) -> Result<(), String> {
            fs::remove_file(self.ballast()).map_err(|error| format!("dropping ballast: {error}"))
        }

        #[cfg(feature = "redb")]
        fn shorten_ballast(&self, by: u64) -> Result<(), String> {
            let file = File::options().write(true).open(self.ballast());
            let shortened = file.and_then(|file| file.set_len(BALLAST - by));
            shortened.map_err(|error| format!("shortening ballast: {error}"))
        }

        /// Does something and sees that it ends in time.
        fn timed<T>(&mut self, what: &str, call: impl FnOnce() -> T) -> Result<T, String> {
            let start = Instant::now();
            let told = call();
            self.slowest = self.slowest.max(start.elapsed());
            if start.elapsed() > BOUND {
                return Err(format!("P6 never stuck: {what} took {:?}", start.elapsed()));
            }
            Ok(told)
        }

        fn open(&mut self, when: &str) -> Result<Store, String> {
            self.try_open()?.map_err(|error| format!("P6 never stuck: {when} it does not open: {error}"))
        }

        fn try_open(&mut self) -> Result<Result<Store, OpenError>, String> {
            let (engine, path) = (self.engine, self.store());
            self.timed("opening", || builder(engine, &path).open())
        }

        fn close(&mut self, store: &Store) -> Result<(), String> {
            self.timed("closing", || store.close())?.map_err(|error| format!("closing: {error}"))
        }

        /// Claims and completes until new work is refused; tells how many.
        fn fill(&mut self, store: &Store, name: &str) -> Result<usize, String> {
            let (length, size) = self.portion();
            for batch in 0.. {
                let (mut claims, mut refused) = (Vec::new(), None);
                for number in 0..size {
                    let key = format!("{name}-{batch}-{number}");
                    let request = Request::new(key.as_str()).durability(Durability::Result);
                    match self.timed("claiming", || store.claim(request))? {
                        Ok(Outcome::Granted(claim)) => claims.push((key, claim)),
                        told => {
                            refused = Some(told);
                            break;
                        }
                    }
                }
                let filled = batch * size + claims.len();
                for (key, claim) in claims {
                    self.complete(&key, claim, length)?.map_err(|error| {
                        format!(
                            "P6 never stuck: what was begun is settled while new work is refused: {key}: {error}"
                        )
                    })?;
                }
                if let Some(told) = refused {
                    is_full(&told)?;
                    return Ok(filled);
                }
            }
            unreachable!("batches do not end")
        }

        fn complete(&mut self, key: &str, claim: Claim, length: usize) -> Result<Result<(), String>, String> {
            let token = claim.token().get();
            let told = self.timed("completing", || claim.complete_bytes(value(token, length)))?;
            if told.is_ok() {
                self.told.completed.insert(key.to_owned(), (token, length));
            }
            Ok(told.map_err(|error| error.to_string()))
        }

        /// New work is refused for want of room, by all verbs, and everything told is told again.
        fn goes_on_full(&mut self, store: &Store) -> Result<(), String> {
            is_full(&self.timed("claiming", || store.claim("new"))?)?;
            match self.timed("putting", || store.kv("values").put("new", vec![0; LENGTH]))? {
                Err(KvError::Failed { fault: Fault::DiskFull(_), .. }) => {}
                other => return Err(format!("a value was put on a full disk: {other:?}")),
            }
            if !store.stats().disk_full {
                return Err("the stats do not tell of a full disk".to_owned());
            }
            self.told.judge_open(store)?;
            for key in self.told.completed.keys().take(20) {
                let told = store.claim(key.as_str());
                if !matches!(told, Ok(Outcome::Settled(_))) {
                    return Err(format!("P8 remembered: on a full disk the replay of {key} is {told:?}"));
                }
            }
            Ok(())
        }

        fn refused_in_time(&mut self) -> Result<(), String> {
            self.take_ballast()?;
            let store = self.open("new")?;
            let held = (0..100).map(|number| {
                let key = format!("held-{number}");
                let claim = store.claim(key.as_str()).map_err(|error| error.to_string())?;
                Ok((key, claim.granted().ok_or("nobody else is here")?))
            });
            let held = held.collect::<Result<Vec<_>, String>>()?;
            let filled = self.fill(&store, "first")?;
            self.goes_on_full(&store)?;
            for (key, claim) in held {
                self.complete(&key, claim, LENGTH)?.map_err(|error| {
                    format!("P6 never stuck: what was begun is settled on a full disk: {key}: {error}")
                })?;
            }
            self.goes_on_full(&store)?;
            // Full, it closes and opens.
            self.close(&store)?;
            let store = self.open("on a full disk")?;
            self.goes_on_full(&store)?;
            // It goes on by itself once there is room.
            self.drop_ballast()?;
            let more = self.fill(&store, "second")?;
            let (_, size) = self.portion();
            if filled < 6 * size || more < 2 * size {
                return Err(format!("too little fitted to mean anything: {filled} and {more}"));
            }
            self.goes_on_full(&store)?;
            self.close(&store)
        }

        fn killed_while_full(&mut self) -> Result<(), String> {
            self.fresh()?;
            let store = self.open("fresh")?;
            self.fill(&store, "third")?;
            // Leaves room for a little of the child's.
            match self.engine {
                Engine::Sled => self.drop_ballast()?,
                #[cfg(feature = "redb")]
                Engine::Redb => self.shorten_ballast(12 << 20)?,
            }
            self.close(&store)?;
            let task = Task {
                store: self.store(),
                backend: self.engine.name().to_owned(),
                round: 1,
                threads: 4,
                acts: 1_000_000,
            };
            let mut running = Running::start(&task, &[], &[])?;
            while let Some(line) = running.line()? {
                self.told.take(&line)?;
                if line.starts_with("error") {
                    running.signal(Signal::KILL)?;
                }
            }
            if !self.told.errors.iter().any(|error| error.contains("nothing new is begun")) {
                return Err(format!("the child was not told of a full disk: {:?}", self.told.errors));
            }
            let store = self.open("killed on a full disk")?;
            for (key, (token, length)) in &self.told.completed {
                let stored = store.get(key.as_str()).ok().flatten();
                let bytes = stored.and_then(|settled| Some(settled.completed()?.bytes().to_vec()));
                if bytes != Some(value(*token, *length)) {
                    return Err(format!("P4 durable before told: {key} is lost by a kill on a full disk"));
                }
            }
            self.close(&store)
        }

        /// So much is settled that the room for it is used up as well.
        fn used_up(&mut self) -> Result<(), String> {
            self.fresh()?;
            let store = self.open("fresh")?;
            let held = (0..400).map(|number| {
                let key = format!("large-{number}");
                let request = Request::new(key.as_str()).durability(Durability::Result);
                let claim = store.claim(request).map_err(|error| error.to_string())?;
                Ok((key, claim.granted().ok_or("nobody else is here")?))
            });
            let held = held.collect::<Result<Vec<_>, String>>()?;
            self.fill(&store, "fourth")?;
            let mut failed = None;
            for (key, claim) in held {
                if let Err(error) = self.complete(&key, claim, 150_000)? {
                    failed.get_or_insert(error);
                }
            }
            let failed = failed.ok_or("all fitted, so this tests nothing")?;
            println!("full_disk: settles that use the room up are told: {failed}");
            let _ = self.timed("closing", || store.close())?;
            drop(store);
            // Full to the last byte, it opens and tells what was told, or says what to do.
            match self.try_open()? {
                Ok(store) => {
                    self.told.judge_results(&store)?;
                    let _ = self.timed("closing", || store.close())?;
                }
                Err(OpenError::DiskFull { .. }) => {
                    println!("full_disk: a disk full to the last byte is told as such")
                }
                Err(error) => return Err(format!("on a full disk it does not say what to do: {error:?}")),
            }
            self.drop_ballast()?;
            let store = self.open("once there is room again")?;
            self.told.judge_open(&store)?;
            let claim = store.claim("afterwards").map_err(|error| format!("once there is room: {error}"))?;
            let claim = claim.granted().ok_or("nobody else is here")?;
            self.complete("afterwards", claim, LENGTH)??;
            self.close(&store)?;
            let store = self.open("at last")?;
            self.told.judge_open(&store)?;
            self.close(&store)
        }

        /// A new store on the same disk, with the ballast in it again.
        fn fresh(&mut self) -> Result<(), String> {
            fs::remove_dir_all(self.store()).map_err(|error| format!("removing the store: {error}"))?;
            let _ = fs::remove_file(self.ballast());
            self.told = Told::default();
            self.take_ballast()
        }
    }

    fn is_full(told: &Result<Outcome, ClaimError>) -> Result<(), String> {
        match told {
            Err(ClaimError::Failed { fault: Fault::DiskFull(_), .. }) => Ok(()),
            other => Err(format!("P9 fail closed: a claim on a full disk is told {other:?}")),
        }
    }
}
