//! The child process of the crash harnesses: claims, completes, holds, releases, and tells of it on a pipe.
#![allow(dead_code)] // each harness uses a part
#![allow(clippy::disallowed_methods)] // a harness: its threads and its clock are not the library's

use claimdb::{Builder, Claim, Durability, Outcome, Request, SettleError, Settled, Store};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Far longer than a run, so that a key granted again was not waited for.
const LONG_LEASE: Duration = Duration::from_secs(86_400);
const SHORT_LEASE: Duration = Duration::from_millis(2);
/// A child whose parent forgot it ends by itself.
const LIFE: Duration = Duration::from_secs(120);

/// A small generator (splitmix64) with nothing to install, whose runs can be repeated.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }
}

/// What a child is to do. Handed over in a file, whose path is in the environment.
#[derive(Debug, Clone)]
pub struct Plan {
    pub store: PathBuf,
    /// Which backend, in words of the harness.
    pub backend: String,
    pub seed: u64,
    pub round: u32,
    pub threads: usize,
    /// Whether to go on with new work once `keys` have been asked for, until killed.
    pub work: bool,
    pub sizes: Vec<usize>,
    pub keys: Vec<String>,
}

impl Plan {
    pub const PATH_IN: &str = "CLAIMDB_CHILD_PLAN";

    /// The plan, in a child.
    pub fn of_this_process() -> Option<Self> {
        let path = std::env::var_os(Self::PATH_IN)?;
        let text = fs::read_to_string(path).expect("the plan is readable");
        Some(Self::parse(&text).expect("the plan was written by Plan::write"))
    }

    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let Self { backend, seed, round, threads, work, .. } = self;
        let sizes: Vec<_> = self.sizes.iter().map(usize::to_string).collect();
        let head = format!("{backend} {seed} {round} {threads} {work} {}", sizes.join(","));
        fs::write(path, format!("{}\n{head}\n{}", self.store.display(), self.keys.join("\n")))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let store = lines.next()?.into();
        let head: Vec<_> = lines.next()?.split(' ').collect();
        let [backend, seed, round, threads, work, sizes] = head[..] else { return None };
        Some(Self {
            store,
            backend: backend.to_owned(),
            seed: seed.parse().ok()?,
            round: round.parse().ok()?,
            threads: threads.parse().ok()?,
            work: work.parse().ok()?,
            sizes: sizes.split(',').map(|size| size.parse().ok()).collect::<Option<_>>()?,
            keys: lines.map(str::to_owned).collect(),
        })
    }
}

/// The bytes that the holder of `token` stores, if they are to be this long.
fn value(token: u64, length: usize) -> Vec<u8> {
    let mut random = Random(token);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Does what `plan` says with the store that `builder` opens, until killed.
pub fn run(plan: &Plan, builder: Builder) {
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        std::process::exit(3);
    });
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().expect("standard output can be duplicated");
    let pipe = File::from(stdout);
    let store = match builder.open() {
        Ok(store) => store,
        Err(error) => {
            say(&pipe, &format!("main error opening: {error}"));
            std::process::exit(2);
        }
    };
    say(&pipe, "main opened");
    let shared = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let work = |thread: usize| {
            let random = Random(plan.seed ^ (u64::from(plan.round) << 32) ^ ((thread as u64) << 56));
            let (pipe, store, shared) = (&pipe, &store, &shared);
            let mut worker = Worker {
                plan,
                thread,
                pipe,
                store,
                shared,
                random,
                made: 0,
                held: Vec::new(),
                known: Vec::new(),
            };
            scope.spawn(move || {
                if let Err(error) = worker.run() {
                    worker.say(&format!("error {}", error.replace('\n', " ")));
                }
                worker.held
            })
        };
        let workers: Vec<_> = (0..plan.threads).map(work).collect();
        // What is held stays held until all are done, for nobody tells of its end.
        let held: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        drop(held);
    });
    if let Err(error) = store.close() {
        say(&pipe, &format!("main error closing: {error}"));
    }
}

/// One write for a line: below `PIPE_BUF` bytes such a write is never torn nor mixed with another.
fn say(mut pipe: &File, line: &str) {
    let line = format!("{line}\n");
    if pipe.write(line.as_bytes()).ok() != Some(line.len()) {
        // Nobody is listening any more.
        std::process::exit(4);
    }
}

struct Worker<'a> {
    plan: &'a Plan,
    thread: usize,
    pipe: &'a File,
    store: &'a Store,
    /// Numbers the keys that all threads want.
    shared: &'a AtomicU32,
    random: Random,
    made: u32,
    held: Vec<Claim>,
    /// Keys of this round that this thread has asked for.
    known: Vec<String>,
}

impl Worker<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mine: Vec<_> = self.plan.keys.iter().skip(self.thread).step_by(self.plan.threads).collect();
        for (number, key) in mine.into_iter().enumerate() {
            // Every other one by reading, as long as there is something to read.
            if number % 2 == 1 && self.reads(key)? {
                continue;
            }
            if let Some(claim) = self.claims(key, LONG_LEASE, Duration::ZERO)? {
                self.ends(claim)?;
            }
        }
        self.say("verified");
        while self.plan.work {
            self.works()?;
        }
        Ok(())
    }

    fn works(&mut self) -> Result<(), String> {
        let wait = Duration::from_millis(20);
        match self.random.below(100) {
            dice @ 0..50 => {
                let key = self.new_key(if dice < 30 { "f" } else { "r" });
                if let Some(claim) = self.claims(&key, LONG_LEASE, Duration::ZERO)? {
                    self.completes(claim)?;
                }
            }
            dice @ 50..65 => {
                let key = self.new_key(if dice < 62 { "f" } else { "r" });
                if let Some(claim) = self.claims(&key, LONG_LEASE, Duration::ZERO)? {
                    self.held.push(claim);
                }
            }
            65..75 => {
                if !self.held.is_empty() {
                    let claim = self.held.swap_remove(self.random.below(self.held.len()));
                    self.ends(claim)?;
                }
            }
            // A key that the others want as well: each number is drawn six times.
            dice @ 75..88 => {
                let number = self.shared.fetch_add(1, Ordering::Relaxed) / 6;
                let kind = if dice < 84 { "f" } else { "r" };
                let key = format!("{kind}s-{}-{number}", self.plan.round);
                if let Some(claim) = self.claims(&key, LONG_LEASE, wait)? {
                    self.ends(claim)?;
                }
            }
            88..93 => {
                let key = self.new_key("f");
                if let Some(late) = self.claims(&key, SHORT_LEASE, Duration::ZERO)? {
                    // Taken over once its lease is over, and then completed by both.
                    let next = self.claims(&key, LONG_LEASE, wait)?;
                    self.completes(late)?;
                    next.map_or(Ok(()), |next| self.completes(next))?;
                }
            }
            _ => {
                if !self.known.is_empty() {
                    let key = self.known[self.random.below(self.known.len())].clone();
                    if let Some(claim) = self.claims(&key, LONG_LEASE, Duration::ZERO)? {
                        self.ends(claim)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a claim in one way or another, or goes on holding it.
    fn ends(&mut self, claim: Claim) -> Result<(), String> {
        match self.random.below(10) {
            0..5 => self.completes(claim),
            5..7 => self.releases(claim),
            7..9 => {
                self.say(&format!("dropping {}", name(&claim)));
                drop(claim);
                Ok(())
            }
            _ => {
                self.held.push(claim);
                Ok(())
            }
        }
    }

    /// `f` keys are claimed with `Full`, `r` keys with `Result`, always.
    fn new_key(&mut self, kind: &str) -> String {
        self.made += 1;
        let key = format!("{kind}-{}-{}-{}", self.plan.round, self.thread, self.made);
        self.known.push(key.clone());
        key
    }

    fn say(&self, what: &str) {
        say(self.pipe, &format!("{} {what}", self.thread));
    }

    fn claims(&mut self, key: &str, lease: Duration, wait: Duration) -> Result<Option<Claim>, String> {
        let durability = if key.starts_with('f') { Durability::Full } else { Durability::Result };
        let request = Request::new(key).durability(durability).lease(lease).wait(wait);
        self.say(&format!("claims {key}"));
        match self.store.claim(request).map_err(|error| format!("claiming {key}: {error}"))? {
            Outcome::Granted(claim) => {
                let previous = claim.previous().map_or(0, |previous| previous.token.get());
                let lease = if lease == SHORT_LEASE { "short" } else { "long" };
                self.say(&format!("granted {} {} {previous} {lease}", name(&claim), claim.attempt()));
                Ok(Some(claim))
            }
            Outcome::Settled(settled) => {
                self.settled(key, &settled)?;
                Ok(None)
            }
            Outcome::InFlight(_) => {
                self.say(&format!("busy {key}"));
                Ok(None)
            }
            other => Err(format!("claiming {key}: {other:?}")),
        }
    }

    /// Reads a key; tells whether there was something.
    fn reads(&mut self, key: &str) -> Result<bool, String> {
        self.say(&format!("reads {key}"));
        let found = self.store.get(key).map_err(|error| format!("reading {key}: {error}"))?;
        match &found {
            Some(settled) => self.settled(key, settled)?,
            None => self.say(&format!("absent {key}")),
        }
        Ok(found.is_some())
    }

    fn settled(&self, key: &str, settled: &Settled) -> Result<(), String> {
        let Settled::Completed(stored) = settled else { return Err(format!("{key} is {settled:?}")) };
        let token = settled.about().token().get();
        let length = stored.bytes().len();
        let bytes = if stored.bytes() == value(token, length) { "same" } else { "other" };
        self.say(&format!("settled {key} {token} {length} {bytes}"));
        Ok(())
    }

    fn completes(&mut self, claim: Claim) -> Result<(), String> {
        let length = self.plan.sizes[self.random.below(self.plan.sizes.len())];
        let (name, bytes) = (name(&claim), value(claim.token().get(), length));
        self.say(&format!("completing {name} {length}"));
        match claim.complete_bytes(bytes) {
            Ok(()) => self.say(&format!("completed {name} {length}")),
            Err(SettleError::Lost(_)) => self.say(&format!("lost {name}")),
            Err(error) => return Err(format!("completing {name}: {error}")),
        }
        Ok(())
    }

    fn releases(&mut self, claim: Claim) -> Result<(), String> {
        let name = name(&claim);
        self.say(&format!("releasing {name}"));
        claim.release().map_err(|error| format!("releasing {name}: {error}"))?;
        self.say(&format!("released {name}"));
        Ok(())
    }
}

/// The key and the token of a claim.
fn name(claim: &Claim) -> String {
    format!("{} {}", String::from_utf8_lossy(claim.key().name()), claim.token())
}
