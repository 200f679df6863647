//! Writes that are cut short, which `strace` cannot play: by a library in C that is preloaded into the child.

use crate::child::Random;
use crate::harness::builder;
use crate::struck::{Running, TWINS, Task, Told, folder};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/short_writes.c");
/// Short writes on one store: what one leaves behind is there at the next.
const PER_STORE: usize = 4;
/// What becomes of a write, whether for good, and whether those who write the rest of it need not notice.
const KINDS: [(&str, bool, bool); 7] = [
    ("half", false, true),
    ("half-full", false, false),
    ("one", false, true),
    ("none-full", false, false),
    ("half", true, true),
    ("half-full", true, false),
    ("none-full", true, false),
];

struct Library(PathBuf);

/// What the library has told.
#[derive(Default)]
struct Seen {
    writes: usize,
    /// How often it has cut which call.
    cut: BTreeMap<String, u64>,
}

/// Plays `faults` short writes, half of them over each engine, and tells how many there were.
pub fn run(faults: u64, random: &mut Random) -> Result<u64, String> {
    let place = folder()?;
    let library = Library::build(place.path())?;
    let mut all = 0;
    for engine in ["sled", "redb"] {
        let (done, line) = over(engine, &library, faults.div_ceil(2), random)
            .map_err(|reason| format!("short writes over {engine}: {reason}"))?;
        println!("system_faults: over {engine}: {line}");
        all += done;
        twin(engine, &library)?;
    }
    Ok(all)
}

fn over(engine: &str, library: &Library, faults: u64, random: &mut Random) -> Result<(u64, String), String> {
    // One that nothing is done to says how many writes there are to be struck.
    let (place, mut told) = (folder()?, Told::default());
    let writes = library.strike(engine, place.path(), 0, ("half", 0, false), &mut told)?.writes;
    told.judge_by(builder(engine, &place.path().join("store")))?;
    if writes == 0 || !told.errors.is_empty() {
        return Err(format!("the library saw {writes} writes of a child that told {:?}", told.errors));
    }
    let (mut done, mut tried, mut completed, mut errors, mut refused) = (0, 0, 0, 0, 0);
    let mut cut = BTreeMap::<String, u64>::new();
    while done < faults {
        let (place, mut told) = (folder()?, Told::default());
        for round in 0..PER_STORE {
            let (kind, for_good, unnoticed) = KINDS[tried % KINDS.len()];
            let number = 1 + random.below(writes);
            let named =
                format!("{kind} of write {number}{}", if for_good { " and all after it" } else { "" });
            tried += 1;
            let played = library
                .strike(engine, place.path(), round as u64, (kind, number, for_good), &mut told)
                .and_then(|seen| {
                    if unnoticed && !told.errors.is_empty() {
                        return Err("P6 never stuck: the rest could be written".to_owned());
                    }
                    told.judge_by(builder(engine, &place.path().join("store"))).map(|()| seen)
                });
            let seen = played
                .map_err(|reason| format!("{named}, round {round}: {reason}; it told {:?}", told.errors))?;
            done += u64::from(!seen.cut.is_empty());
            for (call, times) in seen.cut {
                *cut.entry(call).or_default() += times;
            }
            (errors, refused) = (errors + told.errors.len(), refused + u64::from(!told.opened));
        }
        completed += told.completed.len();
        if tried as u64 > 4 * faults.max(8) {
            return Err(format!("{done} of {tried} struck anything"));
        }
    }
    if completed == 0 || errors == 0 {
        return Err("too little was told to mean anything".to_owned());
    }
    let line = format!(
        "{done} short writes ({cut:?}, of {writes} by a child); {refused} openings refused; told {completed} completions \
         and {errors} errors; lost 0"
    );
    Ok((done, line))
}

/// Whoever takes a short write for a whole one must be caught on one of [`TWINS`] stores: here the library says that it
/// was. Which write is cut, and what was told before it, is up to the threads.
fn twin(engine: &str, library: &Library) -> Result<(), String> {
    let mut seen = String::new();
    for _ in 0..TWINS {
        let (place, mut told) = (folder()?, Told::default());
        let judged = library
            .strike(engine, place.path(), 0, ("lie", 12, true), &mut told)
            .and_then(|_| told.judge_by(builder(engine, &place.path().join("store"))));
        match judged {
            Err(reason) if told.completed.len() > 1 => {
                println!(
                    "system_faults: the twin of {engine} that takes short writes for whole ones: caught as {reason}"
                );
                return Ok(());
            }
            other => seen = format!("{other:?} after {} completions", told.completed.len()),
        }
    }
    Err(format!("{engine} that takes short writes for whole ones was not caught: {seen}"))
}

impl Library {
    /// Compiles it with the compiler that Rust links with.
    fn build(place: &Path) -> Result<Self, String> {
        let library = place.join("short_writes.so");
        let mut command = Command::new("cc");
        command.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(SOURCE);
        let ran = command.output().map_err(|error| format!("compiling {SOURCE} with cc: {error}"))?;
        if !ran.status.success() {
            return Err(format!("compiling {SOURCE}: {}", String::from_utf8_lossy(&ran.stderr)));
        }
        Ok(Self(library))
    }

    /// Lets a child work while writes to its store's files are cut: of which kind, from which on, whether for good.
    fn strike(
        &self,
        engine: &str,
        place: &Path,
        round: u64,
        (kind, first, for_good): (&str, usize, bool),
        told: &mut Told,
    ) -> Result<Seen, String> {
        let log = place.join(format!("cut-{round}"));
        let task =
            Task { store: place.join("store"), backend: engine.to_owned(), round, threads: 4, acts: 12 };
        let text = |path: &Path| path.display().to_string();
        let environment = [
            ("LD_PRELOAD", text(&self.0)),
            ("SHORT_WRITES_FOLDER", text(&task.store)),
            ("SHORT_WRITES_LOG", text(&log)),
            ("SHORT_WRITES_KIND", kind.to_owned()),
            ("SHORT_WRITES_FIRST", first.to_string()),
            ("SHORT_WRITES_FOR_GOOD", String::new()),
        ];
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let environment: Vec<_> = environment.take(5 + usize::from(for_good)).collect();
        told.begin();
        Running::start(&task, &[], &environment)?.finish(told)?;
        let log = fs::read_to_string(&log)
            .map_err(|error| format!("the library was not loaded: {}: {error}", log.display()))?;
        let mut seen = Seen::default();
        for line in log.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["writes", number] => seen.writes = number.parse().unwrap_or_default(),
                ["cut", call, ..] => *seen.cut.entry(call.to_owned()).or_default() += 1,
                _ => return Err(format!("the library told {line:?}")),
            }
        }
        Ok(seen)
    }
}
