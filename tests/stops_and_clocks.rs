//! Stops a process that uses a store for longer than a lease, and sets its wall clock by years, back and forth.
//!
//! The clock is libfaketime's, which leaves the monotonic one alone; where it is not installed only the stops run.
//! `CLAIMDB_SEED` repeats a run as far as threads allow.

#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/child.rs"]
mod child;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/ledger.rs"]
mod ledger;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/parent.rs"]
mod parent;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/struck.rs"]
mod struck;

// The loom build has none of the above; cargo still wants a main.
#[cfg(not(all(not(loom), target_os = "linux")))]
fn main() {}

#[cfg(all(not(loom), target_os = "linux"))]
fn main() -> std::process::ExitCode {
    if let Some(task) = struck::Task::of_this_process() {
        match task.backend.as_str() {
            "lease" => harness::hold_for_a_lease(&task),
            "jump" => harness::hold_while_the_clock_jumps(&task),
            _ => struck::run(&task, struck::sled(&task.store)),
        }
        return std::process::ExitCode::SUCCESS;
    }
    parent::run_as_test("stops_and_clocks", harness::run)
}

#[cfg(all(not(loom), target_os = "linux"))]
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // a harness: its threads and its clock are not the library's
mod harness {
    use crate::child::Random;
    use crate::parent::{Passed, seed};
    use crate::struck::{RETENTION, Running, Task, Told, folder, sled};
    use claimdb::{Outcome, Request, SettleError};
    use rustix::process::Signal;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::thread;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    /// Of the claims whose holders are stopped, in turn: shorter than the stop, and longer.
    const LEASES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1_000)];
    /// Of the claim whose clock is set.
    const LONG: Duration = Duration::from_secs(3600);
    const STOP: Duration = Duration::from_millis(500);
    const HOLDERS: u64 = 4;
    const WORKERS: u64 = 4;
    /// While a lease runs that is longer than any of this takes.
    const JUMPS_IN_A_LEASE: [&str; 2] = ["+50y", "-30y"];
    /// How long a child waits for its clock to be set.
    const SET_IN: Duration = Duration::from_secs(20);
    /// Openings at these distances from now, in turn, and jumps within an opening.
    const JUMPS: [&str; 7] = ["+0y", "+10y", "-10y", "+40y", "-25y", "+1y", "+0y"];

    pub fn run() -> Result<Passed, String> {
        let seed = seed()?;
        println!("stops_and_clocks: CLAIMDB_SEED={seed}");
        let mut random = Random(seed);
        let fail = |reason| format!("seed {seed}, {reason}");
        holders_are_stopped().and_then(|()| workers_are_stopped(&mut random)).map_err(fail)?;
        match faketime() {
            Some(library) => clocks_jump(&library).map_err(fail)?,
            None => println!("stops_and_clocks: libfaketime is not installed: no clock jumped"),
        }
        Ok(Passed::Ran)
    }

    fn task(folder: &Path, backend: &str, round: u64, acts: usize) -> Task {
        Task { store: folder.join("store"), backend: backend.to_owned(), round, threads: 4, acts }
    }

    fn lease(round: u64) -> Duration {
        LEASES[usize::try_from(round).unwrap_or_default() % LEASES.len()]
    }

    /// In the child: one holds a key until its lease is over, and completes it all the same; one waits for the key.
    pub fn hold_for_a_lease(task: &Task) {
        let store = sled(&task.store).open().expect("nobody else is here");
        println!("started\nopened");
        let lease = lease(task.round);
        let request = |wait| Request::new(format!("{}-key", task.round)).lease(lease).wait(wait);
        let start = Instant::now();
        let Ok(Outcome::Granted(late)) = store.claim(request(Duration::ZERO)) else {
            panic!("nobody else is here")
        };
        println!("granted {}-key {}", task.round, late.token());
        thread::scope(|scope| {
            scope.spawn(|| {
                let told = store.claim(request(Duration::from_secs(30)));
                if start.elapsed() < lease {
                    println!("error P5 no early takeover: after {:?}", start.elapsed());
                }
                match told {
                    Ok(Outcome::Granted(next)) => complete(task, next),
                    Ok(Outcome::Settled(settled)) => {
                        println!("settled {}-key {}", task.round, settled.about().token());
                    }
                    told => println!("error P6 never stuck: a waiter was told {told:?}"),
                }
            });
            while start.elapsed() < lease {
                thread::sleep(Duration::from_millis(1));
            }
            complete(task, late);
        });
        store.close().expect("it closes");
        println!("ended");
    }

    /// In the child: one holds a key while its wall clock is set to another year.
    pub fn hold_while_the_clock_jumps(task: &Task) {
        let store = sled(&task.store).open().expect("nobody else is here");
        let (start, wall) = (Instant::now(), SystemTime::now());
        println!("started\nopened");
        let key = format!("{}-key", task.round);
        let request = Request::new(key.as_str()).lease(LONG).retention(RETENTION);
        let Ok(Outcome::Granted(claim)) = store.claim(request) else { panic!("nobody else is here") };
        println!("granted {key} {}", claim.token());
        let far = Duration::from_secs(86_400);
        let has_jumped = || match SystemTime::now().duration_since(wall) {
            Ok(ahead) => ahead > far,
            Err(behind) => behind.duration() > far,
        };
        while !has_jumped() {
            if start.elapsed() > SET_IN {
                return println!("error the harness: no clock jumped");
            }
            thread::sleep(Duration::from_millis(1));
        }
        let told = store.claim(key.as_str());
        if !matches!(told, Ok(Outcome::InFlight(_))) {
            println!("error P5 no early takeover: while the clock jumped, another was told {told:?}");
        }
        if let Err(error) = claim.renew(LONG) {
            println!("error P5 no early takeover: while the clock jumped, the holder was told {error}");
        }
        complete(task, claim);
        store.close().expect("it closes");
        println!("ended");
    }

    fn complete(task: &Task, claim: claimdb::Claim) {
        let token = claim.token().get();
        match claim.complete_bytes(crate::struck::value(token, 200)) {
            Ok(()) => println!("completed {}-key {token} 200", task.round),
            Err(SettleError::Lost(_)) => println!("busy lost"),
            // Nobody settles by hand here.
            Err(error @ SettleError::AlreadySettled(_)) => {
                println!("error P3 fenced: {token} was not refused as lost: {error}");
            }
            Err(error) => println!("error completing: {error}"),
        }
    }

    fn holders_are_stopped() -> Result<(), String> {
        let folder = folder()?;
        let (mut told, mut late) = (Told::default(), 0);
        for round in 0..HOLDERS {
            told.begin();
            let mut running = Running::start(&task(folder.path(), "lease", round, 0), &[], &[])?;
            while let Some(line) = running.line()? {
                told.take(&line)?;
                late += u64::from(line == "busy lost");
                if line.starts_with("granted") && !told.completed.contains_key(&format!("{round}-key")) {
                    running.signal(Signal::STOP)?;
                    thread::sleep(STOP);
                    running.signal(Signal::CONT)?;
                }
            }
            if let Some(error) = told.errors.first() {
                return Err(format!("a holder that was stopped: {error}"));
            }
            if !told.completed.contains_key(&format!("{round}-key")) {
                return Err(
                    "P6 never stuck: nobody completed the key of a holder that was stopped".to_owned()
                );
            }
            told.judge(&folder.path().join("store"))?;
        }
        println!(
            "stops_and_clocks: holders stopped for longer or shorter than their lease: {HOLDERS}; refused as lost: {late}"
        );
        Ok(())
    }

    /// Stops at any moment, syncs and openings included.
    fn workers_are_stopped(random: &mut Random) -> Result<(), String> {
        let folder = folder()?;
        let (mut told, mut stops) = (Told::default(), 0);
        for round in 0..WORKERS {
            told.begin();
            let mut running = Running::start(&task(folder.path(), "sled", round, 20), &[], &[])?;
            let mut until = random.below(5);
            while let Some(line) = running.line()? {
                told.take(&line)?;
                if until == 0 {
                    running.signal(Signal::STOP)?;
                    thread::sleep(Duration::from_millis(20));
                    running.signal(Signal::CONT)?;
                    (stops, until) = (stops + 1, 15 + random.below(30));
                }
                until -= 1;
            }
            if let Some(error) = told.errors.first() {
                return Err(format!("a stop gives no errors, and the child told: {error}"));
            }
            told.judge(&folder.path().join("store"))?;
        }
        println!(
            "stops_and_clocks: stops at any moment: {stops}; told {} completions; lost 0",
            told.completed.len()
        );
        Ok(())
    }

    fn faketime() -> Option<PathBuf> {
        let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join("faketime"));
        let libraries = folders.map(|folder| folder.join("libfaketimeMT.so.1"));
        libraries.into_iter().find(|library| library.exists())
    }

    fn clocks_jump(library: &Path) -> Result<(), String> {
        let folder = folder()?;
        let clock = folder.path().join("clock");
        let set =
            |jump: &str| fs::write(&clock, format!("{jump}\n")).map_err(|error| format!("setting: {error}"));
        let (library, file) = (library.display().to_string(), clock.display().to_string());
        let environment = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", file.as_str()),
            ("FAKETIME_NO_CACHE", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let (mut told, mut jumps) = (Told::default(), 0);
        for (round, jump) in (100..).zip(JUMPS_IN_A_LEASE) {
            set("+0y")?;
            told.begin();
            let mut running = Running::start(&task(folder.path(), "jump", round, 0), &[], &environment)?;
            while let Some(line) = running.line()? {
                told.take(&line)?;
                if line.starts_with("granted") {
                    set(jump)?;
                    jumps += 1;
                }
            }
            if let Some(error) = told.errors.first() {
                return Err(format!("a clock that was set {jump} within a lease: {error}"));
            }
            told.judge(&folder.path().join("store"))?;
        }
        for (round, jump) in (0..).zip(JUMPS) {
            set(jump)?;
            told.begin();
            let mut running = Running::start(&task(folder.path(), "sled", round, 15), &[], &environment)?;
            let mut lines = 0;
            while let Some(line) = running.line()? {
                told.take(&line)?;
                lines += 1;
                // Back and forth within the opening too, and to where it began, so that the next one jumps.
                let within = match lines {
                    15 => "-30y",
                    40 => "+50y",
                    60 => jump,
                    _ => continue,
                };
                set(within)?;
                jumps += 1;
            }
            jumps += 1;
            if let Some(error) = told.errors.first() {
                return Err(format!(
                    "opened at {jump}: a clock gives no errors, and the child told: {error}"
                ));
            }
            told.judge(&folder.path().join("store")).map_err(|reason| format!("after {jump}: {reason}"))?;
        }
        // Tokens begin at the time of an opening, so they tell whether there were jumps.
        let then = SystemTime::now() + Duration::from_secs(39 * 365 * 86_400);
        let then = then.duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?.as_secs() << 20;
        if told.highest < then {
            return Err(format!("no clock jumped: the highest token is {}", told.highest));
        }
        println!("stops_and_clocks: clock jumps: {jumps}; told {} completions; lost 0", told.completed.len());
        Ok(())
    }
}
