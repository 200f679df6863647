//! A child that works on a store while something is done to it from outside, and what it told of that.
#![allow(dead_code)] // each harness uses a part
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a harness: its threads and its clock are not the library's

use claimdb::backend::Sled;
use claimdb::{Builder, Claim, Durability, Outcome, Request, SettleError, Settled, Store};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What a caller waits for a sync in the child.
pub const SYNC_LIMIT: Duration = Duration::from_secs(2);
/// A child ends by itself within this time, whatever is done to it: each of its threads stops at its first error that
/// is told twice, so at most a few limits are waited for.
pub const END: Duration = Duration::from_secs(40);
/// Stores on which a twin is tried before it counts as not caught.
pub const TWINS: usize = 8;
const SIZES: [usize; 3] = [1, 200, 30_000];
const TRIES: usize = 3;
const LEASE: Duration = Duration::from_secs(3600);
/// Longer than a few wrong clocks take from it: seven days each.
pub const RETENTION: Duration = Duration::from_secs(200 * 86_400);

/// What the child is to do, handed over in the environment.
#[derive(Debug, Clone)]
pub struct Task {
    pub store: PathBuf,
    pub backend: String,
    /// In the names of its keys, so that no two children have one key.
    pub round: u64,
    pub threads: usize,
    pub acts: usize,
}

impl Task {
    const IN: &str = "CLAIMDB_STRUCK";

    pub fn of_this_process() -> Option<Self> {
        let text = std::env::var(Self::IN).ok()?;
        let parts: Vec<_> = text.splitn(5, ' ').collect();
        let [backend, round, threads, acts, store] = parts[..] else { panic!("{text:?} is no task") };
        Some(Self {
            store: store.into(),
            backend: backend.to_owned(),
            round: round.parse().expect("a number"),
            threads: threads.parse().expect("a number"),
            acts: acts.parse().expect("a number"),
        })
    }

    fn text(&self) -> String {
        let Self { store, backend, round, threads, acts } = self;
        format!("{backend} {round} {threads} {acts} {}", store.display())
    }
}

pub fn value(token: u64, length: usize) -> Vec<u8> {
    token.to_le_bytes().into_iter().cycle().take(length).collect()
}

/// The store as the child has it, and as the parent looks at it afterwards.
pub fn sled(store: &Path) -> Builder {
    Store::builder(Sled::new(store)).sync_limit(SYNC_LIMIT).sweep_every(Duration::ZERO)
}

/// Claims and completes keys in each thread, and tells of it, one line each.
pub fn run(task: &Task, builder: Builder) {
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().expect("standard output can be duplicated");
    let pipe = File::from(stdout);
    say(&pipe, "started");
    let store = match builder.open() {
        Ok(store) => store,
        Err(error) => return say(&pipe, &format!("error opening: {error}")),
    };
    say(&pipe, "opened");
    thread::scope(|scope| {
        for number in 0..task.threads {
            let (store, pipe) = (&store, &pipe);
            scope.spawn(move || work(task, number, store, pipe));
        }
    });
    if let Err(error) = store.close() {
        say(&pipe, &format!("error closing: {error}"));
    }
    say(&pipe, "ended");
}

fn work(task: &Task, thread: usize, store: &Store, pipe: &File) {
    let mut errors = 0;
    for act in 0..task.acts {
        // One key in three is one that all threads want.
        let key = match act % 3 {
            0 => format!("{}-all-{act}", task.round),
            _ => format!("{}-{thread}-{act}", task.round),
        };
        let durability = if act % 2 == 0 { Durability::Full } else { Durability::Result };
        let request = Request::new(key.as_str()).durability(durability).lease(LEASE).retention(RETENTION);
        match store.claim(request) {
            Ok(Outcome::Granted(claim)) => {
                say(pipe, &format!("granted {key} {}", claim.token()));
                errors += u32::from(!complete(&key, claim, SIZES[act % SIZES.len()], pipe));
            }
            Ok(Outcome::Settled(settled)) => {
                say(pipe, &format!("settled {key} {}", settled.about().token()));
            }
            Ok(_) => say(pipe, &format!("busy {key}")),
            Err(error) => {
                say(pipe, &format!("error claiming: {error}"));
                errors += 1;
            }
        }
        if errors >= 2 {
            return;
        }
    }
}

/// Completes a claim, again under the same token if that is not told; tells whether it was.
fn complete(key: &str, claim: Claim, length: usize, pipe: &File) -> bool {
    let token = claim.token().get();
    let mut next = Some(claim);
    for _ in 0..TRIES {
        let Some(claim) = next.take() else { break };
        match claim.complete_bytes(value(token, length)) {
            Ok(()) => {
                say(pipe, &format!("completed {key} {token} {length}"));
                return true;
            }
            Err(error) => {
                say(pipe, &format!("error completing: {error}"));
                next = match error {
                    SettleError::Retry(retry) => Some(retry.claim),
                    _ => None,
                };
            }
        }
    }
    false
}

/// One write for a line: below `PIPE_BUF` bytes such a write is never torn nor mixed with another.
fn say(mut pipe: &File, line: &str) {
    let line = format!("{}\n", line.replace('\n', " "));
    if pipe.write(line.as_bytes()).ok() != Some(line.len()) {
        std::process::exit(4);
    }
}

/// A folder in memory, if there is room: what is done to the child does not come from a disk, and one that is busy adds
/// nothing to it.
pub fn folder() -> Result<tempfile::TempDir, String> {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
    let made = if free > 512 << 20 { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.map_err(|error| format!("making a folder: {error}"))
}

/// What was told of a store by all its children.
#[derive(Debug, Default, Clone)]
pub struct Told {
    pub completed: BTreeMap<String, (u64, usize)>,
    granted: BTreeMap<String, u64>,
    pub highest: u64,
    /// The highest of the children before this one.
    before: u64,
    pub started: bool,
    pub opened: bool,
    pub errors: Vec<String>,
}

impl Told {
    pub fn begin(&mut self) {
        (self.started, self.opened, self.before) = (false, false, self.highest);
        self.errors.clear();
    }

    pub fn take(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse().map_err(|_| format!("the harness: the child wrote {line:?}"));
        match words[..] {
            ["started"] => self.started = true,
            ["opened"] => self.opened = true,
            ["ended"] | ["busy", _] => {}
            ["error", ..] => self.errors.push(line.to_owned()),
            ["granted", key, token] => {
                let token = number(token)?;
                if token <= self.before {
                    return Err(format!("P2 ordered tokens: {token} was granted after {}", self.before));
                }
                if let Some((by, _)) = self.completed.get(key) {
                    return Err(format!("P8 remembered: {key}, completed by {by}, was granted to {token}"));
                }
                // Without an error no claim of this child has ended but by its completion.
                if self.errors.is_empty() && self.granted.get(key).is_some_and(|by| *by > self.before) {
                    return Err(format!("P5 no early takeover: {key} was granted twice within a lease"));
                }
                self.highest = self.highest.max(token);
                self.granted.insert(key.to_owned(), token);
            }
            ["completed", key, token, length] => {
                let (token, length) =
                    (number(token)?, usize::try_from(number(length)?).unwrap_or(usize::MAX));
                if let Some((by, _)) = self.completed.insert(key.to_owned(), (token, length)) {
                    return Err(format!("P3 fenced: {key} was completed by {by} and by {token}"));
                }
            }
            ["settled", key, token] => {
                let token = number(token)?;
                // Whoever completed it may tell of that later, or not at all.
                if self.completed.get(key).is_some_and(|(by, _)| *by != token) {
                    return Err(format!("P3 fenced: {key} was told as completed by another than {token}"));
                }
            }
            _ => return Err(format!("the harness: the child wrote {line:?}")),
        }
        Ok(())
    }

    /// Opens the store again and looks whether all that was told is there, and nobody is in the way of the rest.
    pub fn judge(&self, store: &Path) -> Result<(), String> {
        self.judge_by(sled(store))
    }

    pub fn judge_by(&self, builder: Builder) -> Result<(), String> {
        let store =
            builder.open().map_err(|error| format!("P6 never stuck: it does not open again: {error}"))?;
        self.judge_open(&store)?;
        store.close().map_err(|error| format!("P6 never stuck: it does not close again: {error}"))
    }

    /// All that was told as completed is there.
    pub fn judge_results(&self, store: &Store) -> Result<(), String> {
        for (key, (token, length)) in &self.completed {
            let lost = |found: String| {
                format!("P4 durable before told, P8 remembered: {key}, completed by {token}, {found}")
            };
            match store.get(key.as_str()).map_err(|error| lost(format!("cannot be read: {error}")))? {
                Some(Settled::Completed(stored)) => {
                    let by = stored.about().token().get();
                    if by != *token || stored.bytes() != value(*token, *length) {
                        return Err(lost(format!("is another's, {by}'s")));
                    }
                }
                other => return Err(lost(format!("is {other:?}"))),
            }
        }
        Ok(())
    }

    pub fn judge_open(&self, store: &Store) -> Result<(), String> {
        self.judge_results(store)?;
        for key in self.granted.keys().filter(|key| !self.completed.contains_key(*key)) {
            match store.claim(key.as_str()) {
                Ok(Outcome::Granted(claim)) => {
                    if claim.token().get() <= self.highest {
                        return Err(format!(
                            "P2 ordered tokens: {} came after {}",
                            claim.token(),
                            self.highest
                        ));
                    }
                    claim
                        .complete("by the judge")
                        .map_err(|error| format!("P6 never stuck: {key}: {error}"))?;
                }
                Ok(Outcome::Settled(_)) => {}
                other => return Err(format!("P6 never stuck: {key}, whose holder is gone, is {other:?}")),
            }
        }
        Ok(())
    }
}

/// A child at work under `wrapper`, if that is not empty.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    start: Instant,
}

impl Running {
    pub fn start(task: &Task, wrapper: &[String], environment: &[(&str, &str)]) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("starting a child: {error}");
        let here = std::env::current_exe().map_err(failed)?.display().to_string();
        let words: Vec<_> = wrapper.iter().cloned().chain([here]).collect();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .env(Task::IN, task.text())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pipe = child.stdout.take().ok_or("the child has no pipe")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines, start: Instant::now() })
    }

    /// The next line; `None` once the child has ended.
    pub fn line(&mut self) -> Result<Option<String>, String> {
        let left = END.saturating_sub(self.start.elapsed());
        match self.lines.recv_timeout(left) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("P6 never stuck: the child did not end within {END:?}"))
            }
        }
    }

    /// Gives `told` all that it tells, to its end.
    pub fn finish(mut self, told: &mut Told) -> Result<(), String> {
        while let Some(line) = self.line()? {
            told.take(&line)?;
        }
        Ok(())
    }

    /// Sends it a signal, and all that it started.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<(), String> {
        let group = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let group = group.ok_or("the child has no process group")?;
        rustix::process::kill_process_group(group, signal)
            .map_err(|error| format!("signalling the child: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.signal(rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}
