//! Makes the system calls of a process that uses a store fail or hang, and looks whether it keeps to what it told.
//!
//! `strace` does that, call by call, and a preloaded library cuts writes short. Needs Linux, root and strace, and says
//! *skipped* without them. `CLAIMDB_FAULTS` says how many, and `CLAIMDB_SEED` repeats a run as far as threads allow. The parent opens the store again after
//! each fault, in the same boot, and each time asks for all that was told. In the same run a twin, the same store over
//! an engine that keeps failed syncs to itself, must be caught: else these faults test nothing. Besides, every read of some
//! openings fails, one after the other.

#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/child.rs"]
mod child;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/deaf.rs"]
mod deaf;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/ledger.rs"]
mod ledger;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/parent.rs"]
mod parent;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/short_writes.rs"]
mod short_writes;
#[cfg(all(not(loom), target_os = "linux"))]
#[path = "support/struck.rs"]
mod struck;

// The loom build has none of the above; cargo still wants a main.
#[cfg(not(all(not(loom), target_os = "linux")))]
fn main() {}

#[cfg(all(not(loom), target_os = "linux"))]
fn main() -> std::process::ExitCode {
    if let Some(task) = struck::Task::of_this_process() {
        struck::run(&task, harness::builder(&task.backend, &task.store));
        return std::process::ExitCode::SUCCESS;
    }
    parent::run_as_test("system_faults", harness::run)
}

#[cfg(all(not(loom), target_os = "linux"))]
mod harness {
    use crate::child::Random;
    use crate::deaf::Deaf;
    use crate::parent::{Passed, seed, setting};
    use crate::short_writes;
    use crate::struck::{Running, SYNC_LIMIT, TWINS, Task, Told, folder, sled};
    use claimdb::backend::{Redb, Sled};
    use claimdb::{Builder, Store};
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    /// Faults on one store: what one leaves behind is there at the next.
    const FAULTS_PER_STORE: u64 = 4;
    /// A call, what becomes of it, and the latest of them, of each thread, that is struck.
    const FAULTS: [(&str, &str, usize); 21] = [
        ("fdatasync", "error=EIO", 30),
        ("pwrite64", "error=EIO", 8),
        ("pwrite64", "error=ENOSPC", 8),
        ("fsync", "error=EIO", 12),
        ("openat", "error=EMFILE", 40),
        ("sync_file_range", "error=EIO", 8),
        ("fdatasync", "error=ENOSPC", 30),
        ("fallocate", "error=ENOSPC", 3),
        ("ftruncate", "error=EIO", 3),
        ("fdatasync", HANG, 10),
        ("rename", "error=EIO", 2),
        ("openat", "error=ENOSPC", 40),
        ("unlink", "error=EIO", 4),
        ("mkdir", "error=ENOSPC", 3),
        (READ, "error=EIO", 40),
        ("getdents64", "error=EIO", 4),
        ("flock", "error=EIO", 3),
        ("fadvise64", "error=EIO", 3),
        ("fallocate", "error=EOPNOTSUPP", 2),
        ("openat", "error=EIO", 40),
        ("sync_file_range", "error=ENOSPC", 8),
    ];
    /// Of sled's log alone: what is read of it before sled reads, and what sled reads.
    const READ: &str = "read";
    const SLED_READS: &str = "pread64";
    /// For longer than a caller waits.
    const HANG: &str = "delay_enter=3s";
    /// Before these are over a program has not reached its main.
    const OPENS_OF_THE_LOADER: usize = 8;

    pub fn run() -> Result<Passed, String> {
        let (seed, faults) = (seed()?, setting("CLAIMDB_FAULTS", 72)?);
        if !rustix::process::geteuid().is_root() {
            return Ok(Passed::Skipped("not root".to_owned()));
        }
        if Command::new("strace").arg("-V").output().is_err() {
            return Ok(Passed::Skipped("strace is not installed".to_owned()));
        }
        println!("system_faults: CLAIMDB_SEED={seed} CLAIMDB_FAULTS={faults}");
        let mut random = Random(seed);
        let fail = |reason| format!("seed {seed}, {reason}");
        // One in four is a short write.
        let short = short_writes::run(faults / 4, &mut random).map_err(fail)?;
        let done = real(faults - faults / 4, &mut random).map_err(fail)?;
        opens_in_order().map_err(fail)?;
        a_new_folder_is_synced_above().map_err(fail)?;
        nothing_is_written_where_nothing_can_be().map_err(fail)?;
        let reads = each_read_of_an_opening().map_err(fail)?;
        twin().map_err(fail)?;
        println!("system_faults: {} faults, short writes and reads", done + short + reads);
        Ok(Passed::Ran)
    }

    fn real(faults: u64, random: &mut Random) -> Result<u64, String> {
        let (mut done, mut tried, mut kinds) = (0, 0, BTreeMap::<String, u64>::new());
        let (mut completed, mut errors, mut refused) = (0, 0, 0);
        while done < faults {
            let folder = folder()?;
            let mut told = Told::default();
            for round in 0..FAULTS_PER_STORE {
                let (call, what, latest) = FAULTS[tried % FAULTS.len()];
                let first = if call == "openat" { OPENS_OF_THE_LOADER } else { 1 };
                let number = first + random.below(latest);
                // From the second time on it is for good, every other time.
                let for_good = if what != HANG && (tried / FAULTS.len() + tried) % 2 == 1 { "+" } else { "" };
                let fault = format!("{call}:{what}:when={number}{for_good}");
                tried += 1;
                let struck = strike(&task("sled", folder.path(), round), &fault, &mut told)
                    .and_then(|struck| told.judge(&folder.path().join("store")).map(|()| struck))
                    .map_err(|reason| {
                        format!("{fault}, round {round}: {reason}; it told {:?}", told.errors)
                    })?;
                if struck {
                    done += 1;
                    *kinds.entry(format!("{call} {what}")).or_default() += 1;
                    errors += told.errors.len();
                    refused += u64::from(!told.opened);
                }
            }
            completed += told.completed.len();
            if tried > 10 * usize::try_from(faults).unwrap_or(usize::MAX) {
                return Err("most of these faults strike nothing".to_owned());
            }
        }
        println!(
            "system_faults: {done} faults of {} kinds; {refused} openings refused; told {completed} completions and \
             {errors} errors; lost 0",
            kinds.len()
        );
        if completed == 0 || errors == 0 {
            return Err("too little was told to mean anything".to_owned());
        }
        Ok(done)
    }

    /// Each read of an opening fails, one after the other: of stores with and without a snapshot, of one segment and of
    /// several, closed and killed. What was told must be there whether that opening succeeds or not, and at the next.
    fn each_read_of_an_opening() -> Result<u64, String> {
        let (mut struck, mut refused) = (0, 0);
        for (acts, has_snapshot, is_killed) in
            [(12, false, false), (12, true, false), (12, true, true), (150, false, true)]
        {
            let (made, mut told) = (folder()?, Told::default());
            let mut work = Task { acts, ..task("sled", made.path(), 1) };
            if has_snapshot {
                Running::start(&Task { round: 0, ..work.clone() }, &[], &[])?.finish(&mut told)?;
            }
            told.begin();
            let mut running = Running::start(&work, &[], &[])?;
            while let Some(line) = running.line()? {
                told.take(&line)?;
                if is_killed && told.completed.len() > acts {
                    running.signal(rustix::process::Signal::KILL)?;
                }
            }
            // The same keys again, so that it tells what it finds.
            work.acts = 3;
            for (call, for_good) in [(READ, ""), (SLED_READS, ""), (SLED_READS, "+")] {
                if for_good == "+" && acts == 12 {
                    continue;
                }
                for number in 1.. {
                    let (copied, mut told) = (folder()?, told.clone());
                    work.store = copied.path().join("store");
                    copy(&made.path().join("store"), &work.store)?;
                    let fault = format!("{call}:error=EIO:when={number}{for_good}");
                    let hit = strike(&work, &fault, &mut told)
                        .and_then(|hit| told.judge(&work.store).map(|()| hit))
                        .map_err(|reason| {
                            let store = format!("snapshot {has_snapshot}, killed {is_killed}");
                            format!("opening, {store}, {fault}: {reason}; it told {:?}", told.errors)
                        })?;
                    if !hit {
                        break;
                    }
                    struck += 1;
                    refused += u64::from(!told.opened);
                }
            }
        }
        println!("system_faults: reads while opening: {struck} struck, {refused} openings refused, lost 0");
        if struck < 40 || refused < 20 {
            return Err("too few reads were struck to mean anything".to_owned());
        }
        Ok(struck)
    }

    /// A store on a file system that is mounted read-only: here only its lock file says so.
    fn nothing_is_written_where_nothing_can_be() -> Result<(), String> {
        let (folder, mut told) = (folder()?, Told::default());
        let task = task("sled", folder.path(), 0);
        Running::start(&task, &[], &[])?.finish(&mut told)?;
        let words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=openat:error=EROFS", "-P"];
        let lock = task.store.join("lock").display().to_string();
        let wrapper: Vec<_> = words.map(str::to_owned).into_iter().chain([lock]).collect();
        told.begin();
        Running::start(&task, &wrapper, &[])?.finish(&mut told)?;
        match &told.errors[..] {
            [error] if error.contains("mounted read-only") && error.contains("`cp -a '") => {
                told.judge(&task.store)
            }
            errors => Err(format!("on a read-only file system it does not say what to do: {errors:?}")),
        }
    }

    fn copy(from: &Path, to: &Path) -> Result<(), String> {
        let copied = Command::new("cp").arg("-a").args([from, to]).status();
        match copied.is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err(format!("copying {} failed", from.display())),
        }
    }

    /// After a kill the log is synced, dropped from the page cache and read through, before sled reads any of it.
    fn opens_in_order() -> Result<(), String> {
        let folder = folder()?;
        let mut told = Told::default();
        let (calls, log) = (["fsync", "fadvise64", "read", "pread64"], folder.path().join("strace"));
        let mut task = task("sled", folder.path(), 0);
        task.acts = 1_000;
        let mut running = Running::start(&task, &[], &[])?;
        while let Some(line) = running.line()? {
            told.take(&line)?;
            if line.starts_with("completed") {
                running.signal(rustix::process::Signal::KILL)?;
            }
        }
        (task.round, task.acts) = (1, 3);
        let words = ["strace", "-f", "-qq", "-e", &format!("trace={}", calls.join(","))].map(str::to_owned);
        let more = ["-P".to_owned(), task.store.join("sled/db").display().to_string(), "-o".to_owned()];
        let wrapper: Vec<_> = words.into_iter().chain(more).chain([log.display().to_string()]).collect();
        told.begin();
        Running::start(&task, &wrapper, &[])?.finish(&mut told)?;
        let log = fs::read_to_string(log).map_err(|error| format!("reading what strace saw: {error}"))?;
        let first = |call: &str| log.lines().position(|line| line.contains(&format!(" {call}(")));
        let firsts = calls.map(first);
        if firsts.iter().all(Option::is_some) && firsts.is_sorted() {
            println!("system_faults: an opening after a kill: {calls:?} of the log, in this order");
            return told.judge(&task.store);
        }
        Err(format!("rule 7: of {calls:?} the first are in lines {firsts:?} of what strace saw"))
    }

    /// A new store's folder, and each that is made for it, has an entry in the folder above, which is synced as well.
    fn a_new_folder_is_synced_above() -> Result<(), String> {
        for (store, above) in [("claims", &[""][..]), ("a/b/claims", &["", "/a", "/a/b"][..])] {
            let (folder, mut told) = (folder()?, Told::default());
            let root =
                folder.path().canonicalize().map_err(|error| format!("finding the folder: {error}"))?;
            let (root, log) = (root.display().to_string(), folder.path().join("strace"));
            let words = ["env", "-C", &root, "strace", "-f", "-qq", "-y", "-e", "trace=fsync", "-o"]
                .map(str::to_owned);
            let wrapper: Vec<_> = words.into_iter().chain([log.display().to_string()]).collect();
            let task = Task { store: store.into(), ..task("sled", folder.path(), 0) };
            told.begin();
            Running::start(&task, &wrapper, &[])?.finish(&mut told)?;
            let log = fs::read_to_string(log).map_err(|error| format!("reading what strace saw: {error}"))?;
            if told.completed.is_empty() {
                return Err(format!("nothing was told of {store}: {:?}", told.errors));
            }
            for above in above {
                if !log.contains(&format!("<{root}{above}>)")) {
                    return Err(format!(
                        "P4 durable before told: `.{above}`, above the new store {store}, is never synced: {log}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The twin must be caught by a lost write and by a sync that it tried again.
    ///
    /// Whether a lost write shows hangs on whether a completion was told between it and the failed write that sled tells
    /// to all: of 30 stores 28 showed it, so one of [`TWINS`] must.
    fn twin() -> Result<(), String> {
        for (fault, promise) in [
            ("pwrite64:error=EIO:when=2+", "P4 durable before told"),
            ("fdatasync:error=EIO:when=3", "rule 7"),
        ] {
            let mut tries = 0;
            loop {
                let folder = folder()?;
                let mut told = Told::default();
                let judged = strike(&task("deaf", folder.path(), 0), fault, &mut told)
                    .and_then(|_| told.judge(&folder.path().join("store")));
                tries += 1;
                match judged {
                    Err(reason) if reason.contains(promise) => {
                        println!(
                            "system_faults: the twin that is deaf to failed syncs: {fault}: caught as {reason}"
                        );
                        break;
                    }
                    Ok(()) if tries < TWINS => {}
                    other => {
                        return Err(format!(
                            "the deaf twin was not caught as {promise:?} by {fault}: {other:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn task(backend: &str, folder: &Path, round: u64) -> Task {
        let store = folder.join("store");
        Task { store, backend: backend.to_owned(), round, threads: 4, acts: 12 }
    }

    /// Lets a child work while `fault` strikes; tells whether it did.
    fn strike(task: &Task, fault: &str, told: &mut Told) -> Result<bool, String> {
        let log = task.store.with_file_name("strace");
        let call = fault.split(':').next().unwrap_or_default();
        let words = ["strace", "-f", "-qq", "--seccomp-bpf", "-o"].map(str::to_owned);
        let trace = ["-e".to_owned(), format!("trace={call}"), "-e".to_owned(), format!("inject={fault}")];
        let only = if [READ, SLED_READS].contains(&call) {
            vec!["-P".to_owned(), task.store.join("sled/db").display().to_string()]
        } else {
            vec![]
        };
        let trace = trace.into_iter().chain(only);
        let wrapper: Vec<_> = words.into_iter().chain([log.display().to_string()]).chain(trace).collect();
        told.begin();
        Running::start(task, &wrapper, &[])?.finish(told)?;
        let log = fs::read_to_string(log).map_err(|error| format!("reading what strace saw: {error}"))?;
        let struck = log.lines().any(|line| line.contains("INJECTED") || line.contains("DELAYED"));
        let for_no_person =
            |text: &&String| ["Os {", "Some(", "backtrace"].iter().any(|word| text.contains(word));
        if let Some(text) = told.errors.iter().find(for_no_person) {
            return Err(format!("an engine's own words reach its users: {text}"));
        }
        if call == "fdatasync" {
            nothing_is_synced_after_a_failure(&log)?;
        }
        // Struck before main, it is nobody's fault.
        Ok(struck && told.started)
    }

    fn nothing_is_synced_after_a_failure(log: &str) -> Result<(), String> {
        let failed = |line: &str| line.contains("= -1") && line.contains("INJECTED");
        match log.lines().skip_while(|line| !failed(line)).nth(1) {
            Some(line) if line.contains("fdatasync") => {
                Err(format!("rule 7: after a failed sync there was another: {line}"))
            }
            _ => Ok(()),
        }
    }

    /// A store as a child has it, and as the parent looks at it.
    pub fn builder(backend: &str, store: &Path) -> Builder {
        match backend {
            "deaf" => Store::builder(Deaf(Sled::new(store))).sync_limit(SYNC_LIMIT),
            "redb" => Store::builder(Redb::new(store)).sync_limit(SYNC_LIMIT).sweep_every(Duration::ZERO),
            _ => sled(store),
        }
    }
}
