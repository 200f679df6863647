//! The parent's side of the crash harnesses: starts children, reads what they tell, kills them.
#![allow(dead_code)] // each harness uses a part
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a harness: its threads and its clock are not the library's

use crate::child::{Plan, Random};
use crate::ledger::Ledger;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A child that tells nothing for this long hangs. Longer than a store's sync limit of 30 s: when it is a sync that hangs,
/// the child says so itself.
const SILENCE: Duration = Duration::from_secs(45);
/// A child that has been killed, or has closed its store, is gone within this time.
const END: Duration = Duration::from_secs(45);

/// When to strike.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// This long after the start, wherever the child is then: most likely opening the store.
    Started(Duration),
    /// After so many lines.
    Told(usize),
    /// After so many lines of new work.
    Worked(usize),
    /// When earlier rounds have been verified: everything that the store holds has been told.
    Verified,
    /// When a sweep has begun.
    Sweeping,
}

impl Moment {
    /// Two in ten while the store is opened and recovered, two while earlier rounds are verified, one in a sweep, else
    /// while at work.
    pub fn random(random: &mut Random, keys: usize, work: usize) -> Self {
        match random.below(10) {
            0 | 1 => Self::Started(Duration::from_micros(random.below(40_000) as u64)),
            2 | 3 => Self::Told(1 + random.below(2 * keys)),
            4 => Self::Sweeping,
            _ => Self::Worked(1 + random.below(work)),
        }
    }
}

/// A child at work.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    stderr: PathBuf,
    threads: usize,
    /// How many lines it told, and the last.
    told: (usize, String),
}

impl Running {
    /// Starts a child of this very program, with `plan`.
    pub fn start(folder: &Path, plan: &Plan, ledger: &mut Ledger) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("starting a child: {error}");
        ledger.begin_child();
        let (path, stderr) = (folder.join("plan"), folder.join("stderr"));
        plan.write(&path).map_err(failed)?;
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .env(Plan::PATH_IN, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let pipe = child.stdout.take().ok_or("the child has no pipe")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = String::new();
            while pipe.read_line(&mut line).is_ok_and(|read| read > 0) {
                // Only whole lines are to be trusted.
                let Some(whole) = line.strip_suffix('\n') else { break };
                if sender.send(whole.to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Ok(Self { child, lines, stderr, threads: plan.threads, told: (0, String::new()) })
    }

    /// Gives the ledger what the child tells, until `moment`, and a little longer.
    pub fn read_until(
        &mut self,
        moment: Moment,
        random: &mut Random,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let mut left = match moment {
            Moment::Started(delay) => {
                thread::sleep(delay);
                return Ok(());
            }
            Moment::Told(lines) | Moment::Worked(lines) => lines,
            Moment::Verified | Moment::Sweeping => 1,
        };
        while left > 0 {
            match self.line(SILENCE, ledger) {
                Ok(line) => {
                    let counts = match moment {
                        Moment::Told(_) => true,
                        Moment::Sweeping => line.ends_with(" sweeping"),
                        _ => ledger.verified == self.threads,
                    };
                    left -= usize::from(counts);
                    self.take(&line, ledger);
                    if matches!(moment, Moment::Verified) && ledger.verified == self.threads {
                        left = 0;
                    }
                    if let Some(error) = ledger.errors.first() {
                        return Err(format!(
                            "P6 never stuck: nothing was cut off yet, and the child told: {error}"
                        ));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.hangs("told nothing", SILENCE)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended_early(ledger)),
            }
        }
        // Lines come in bursts, after a sync. What lies between them is worth a strike too.
        let strike = Instant::now() + Duration::from_micros(random.below(1_500) as u64);
        while Instant::now() < strike {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Kills the child with `SIGKILL`, and gives the ledger all that it still told.
    pub fn kill(mut self, ledger: &mut Ledger) -> Result<(), String> {
        self.child.kill().map_err(|error| format!("killing the child: {error}"))?;
        self.drain(ledger)?;
        self.reap().map(drop)
    }

    /// Lets a child that has no work to do end by itself, which includes closing its store.
    pub fn finish(mut self, ledger: &mut Ledger) -> Result<(), String> {
        self.drain(ledger)?;
        let status = self.reap()?;
        if status.success() && ledger.errors.is_empty() { Ok(()) } else { Err(self.ended_early(ledger)) }
    }

    /// The next line, which the ledger hears how long it took.
    fn line(&self, limit: Duration, ledger: &mut Ledger) -> Result<String, RecvTimeoutError> {
        let start = Instant::now();
        let line = self.lines.recv_timeout(limit);
        ledger.counts.silence = ledger.counts.silence.max(start.elapsed());
        line
    }

    fn take(&mut self, line: &str, ledger: &mut Ledger) {
        let verified = ledger.verified;
        self.told = (self.told.0 + 1, line.to_owned());
        ledger.take(line);
        if verified < self.threads && ledger.verified == self.threads {
            ledger.all_verified();
        }
    }

    fn drain(&mut self, ledger: &mut Ledger) -> Result<(), String> {
        loop {
            match self.line(END, ledger) {
                Ok(line) => self.take(&line, ledger),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => return Err(self.hangs("did not end", END)),
            }
        }
    }

    /// Its pipe is closed, so it is about to end.
    fn reap(&mut self) -> Result<ExitStatus, String> {
        let deadline = Instant::now() + END;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_micros(200)),
                Ok(None) => return Err(self.hangs("did not end", END)),
                Err(error) => return Err(format!("reaping the child: {error}")),
            }
        }
    }

    fn hangs(&mut self, what: &str, limit: Duration) -> String {
        // It must not outlive the harness, nor keep a disk busy.
        let _ = self.child.kill();
        let (lines, last) = &self.told;
        format!(
            "P6 never stuck: the child {what} for {limit:?}, after {lines} lines, the last of them {last:?}"
        )
    }

    fn ended_early(&mut self, ledger: &Ledger) -> String {
        let status = self.reap().map_or_else(|error| error, |status| status.to_string());
        let stderr = fs::read_to_string(&self.stderr).unwrap_or_default();
        format!("the child ended by itself ({status}), {:?}; its stderr: {}", ledger.errors, stderr.trim())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already reaped unless something went wrong; then the harness is about to fail with its message.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> Result<u64, String> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name} is {text:?}, and must be a number")),
        Err(_) => Ok(default),
    }
}

/// The seed of this run: as the environment says, else another one each time.
pub fn seed() -> Result<u64, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    setting("CLAIMDB_SEED", u64::from(now.subsec_nanos()))
}

/// Runs `harness` over both engines at once: most of its time is spent waiting for disks and processes.
pub fn over_both<T: Send>(
    harness: impl Fn(&'static str) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let harness = &harness;
    thread::scope(|scope| {
        // Told at once: the other may take a while yet.
        let run = |engine| harness(engine).inspect_err(|reason| println!("over {engine}: {reason}"));
        let running = ["sled", "redb"].map(|engine| scope.spawn(move || run(engine)));
        let ended =
            running.map(|running| running.join().unwrap_or_else(|_| Err("the harness panicked".to_owned())));
        ended.into_iter().collect()
    })
}

/// How a harness ended well.
pub enum Passed {
    Ran,
    Skipped(String),
}

/// Runs `test` as the one test of this program, and tells of it as cargo's own harness does, arguments included.
pub fn run_as_test(name: &str, test: impl FnOnce() -> Result<Passed, String>) -> ExitCode {
    let (mut filters, mut skipped, mut has_list, mut only_ignored) = (Vec::new(), false, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => has_list = true,
            "--ignored" => only_ignored = true,
            "--skip" => skipped |= arguments.next().is_some_and(|filter| name.contains(&filter)),
            "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(arguments.next()),
            option if option.starts_with('-') => {}
            _ => filters.push(argument),
        }
    }
    let wanted = !skipped
        && !only_ignored
        && (filters.is_empty() || filters.iter().any(|f| name.contains(f.as_str())));
    if has_list {
        if wanted {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    println!("\nrunning {} test{}", u8::from(wanted), if wanted { "" } else { "s" });
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    if wanted {
        match test() {
            Ok(Passed::Ran) => {
                println!("test {name} ... ok");
                passed = 1;
            }
            Ok(Passed::Skipped(reason)) => {
                println!("skipped: {reason}");
                println!("test {name} ... ignored, {reason}");
                ignored = 1;
            }
            Err(reason) => {
                println!("test {name} ... FAILED\n\n{reason}");
                failed = 1;
            }
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {} filtered out; \
         finished in {:.2?}\n",
        u8::from(!wanted),
        start.elapsed()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
