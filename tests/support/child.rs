//! The child process of the crash harnesses: claims, completes, holds, releases, and tells of it on a pipe.
#![allow(dead_code)] // each harness uses a part
#![allow(clippy::disallowed_methods)] // a harness: its threads and its clock are not the library's

#[path = "random.rs"]
mod random;
#[path = "work.rs"]
mod work;

use claimdb::{Builder, Claim, Store};
pub use random::Random;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// A child whose parent forgot it ends by itself.
const LIFE: Duration = Duration::from_secs(600);

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
    /// Only reads `keys`, writes nothing, and waits to be killed.
    pub reads: bool,
    /// How many values of a hundred are large.
    pub large: usize,
    /// How much each thread does in an opening, at least, and up to twice that.
    pub acts: usize,
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
        let Self { backend, seed, round, threads, work, reads, large, acts, .. } = self;
        let head = format!("{backend} {seed} {round} {threads} {work} {reads} {large} {acts}");
        fs::write(path, format!("{}\n{head}\n{}", self.store.display(), self.keys.join("\n")))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let store = lines.next()?.into();
        let head: Vec<_> = lines.next()?.split(' ').collect();
        let [backend, seed, round, threads, work, reads, large, acts] = head[..] else { return None };
        Some(Self {
            store,
            backend: backend.to_owned(),
            seed: seed.parse().ok()?,
            round: round.parse().ok()?,
            threads: threads.parse().ok()?,
            work: work.parse().ok()?,
            reads: reads.parse().ok()?,
            large: large.parse().ok()?,
            acts: acts.parse().ok()?,
            keys: lines.map(str::to_owned).collect(),
        })
    }
}

/// Bytes that `stamp` tells apart from all others of the length.
fn blob(stamp: u64, length: usize) -> Vec<u8> {
    let mut random = Random(stamp);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Does what `plan` says with stores that `builder` opens, until killed. A child at work closes its store now and then,
/// and opens it again.
pub fn run(plan: &Plan, builder: &Builder) {
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        std::process::exit(3);
    });
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().expect("standard output can be duplicated");
    let pipe = File::from(stdout);
    let shared = AtomicU32::new(0);
    let new = |thread| work::Worker::new(plan, thread, &pipe, &shared);
    let mut workers: Vec<_> = (0..plan.threads).map(new).collect();
    loop {
        let store = match builder.clone().open() {
            Ok(store) => store,
            Err(error) => {
                say(&pipe, &format!("main error opening: {error}"));
                std::process::exit(2);
            }
        };
        say(&pipe, "main opened");
        let held: Vec<Claim> = std::thread::scope(|scope| {
            let work = |worker| scope.spawn(|| work(worker, &store));
            let working: Vec<_> = workers.iter_mut().map(work).collect();
            // What is held stays held until all are done, for nobody tells of its end.
            working.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
        });
        if plan.reads {
            std::thread::sleep(LIFE);
        }
        say(&pipe, "main closing");
        if let Err(error) = store.close() {
            say(&pipe, &format!("main error closing: {error}"));
        }
        // Claims outlive their opening, which has ended them all.
        drop(held);
        if !plan.work {
            return;
        }
    }
}

/// One opening's share of a worker; what it still holds.
fn work(worker: &mut work::Worker<'_>, store: &Store) -> Vec<Claim> {
    if let Err(error) = worker.run(store) {
        worker.say(&format!("error {}", error.replace('\n', " ")));
    }
    worker.let_go()
}

/// One write for a line: below `PIPE_BUF` bytes such a write is never torn nor mixed with another.
fn say(mut pipe: &File, line: &str) {
    let line = format!("{line}\n");
    if pipe.write(line.as_bytes()).ok() != Some(line.len()) {
        // Nobody is listening any more.
        std::process::exit(4);
    }
}
