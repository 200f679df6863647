//! Runs mutants against the tests that come to them, the cheapest first, until one fails.

use crate::{Mutant, read};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// All threads slept for so long: nobody wakes them any more.
const ASLEEP: Duration = Duration::from_secs(8);
/// Of the processor, beside what the tests take of themselves.
const TURNING: Duration = Duration::from_secs(15);
/// A test that takes more of the processor is left out.
const SLOW: Duration = Duration::from_secs(2);

pub const KILLED: &str = "killed";
pub const HUNG: &str = "hung";
pub const STANDS: &str = "stands";
pub const NOT_REACHED: &str = "not reached";
const OUTCOMES: [&str; 4] = [KILLED, HUNG, STANDS, NOT_REACHED];

struct Test {
    name: String,
    takes: Duration,
    comes_to: BTreeSet<usize>,
}

fn number(variable: &str, unset: u64) -> u64 {
    std::env::var(variable).map_or(unset, |number| number.parse().expect("it is a number"))
}

/// Hands each of `all` to `work`, on as many threads as JOBS says.
fn each<T: Send>(all: Vec<T>, work: impl Fn(T) + Sync) {
    let all = Mutex::new(all.into_iter());
    let next = || all.lock().expect("no panic").next();
    std::thread::scope(|scope| {
        for _ in 0..number("JOBS", 1) {
            scope.spawn(|| {
                while let Some(one) = next() {
                    work(one);
                }
            });
        }
    });
}

#[derive(PartialEq)]
enum End {
    Passed,
    Failed,
    Asleep,
    Turning,
}

pub fn run(mutants: &[Mutant], program: &Path, results: &Path, outcomes: &mut BTreeMap<usize, &'static str>) {
    let known: HashMap<String, String> = std::fs::read_to_string(results)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once('\t')?.1.rsplit_once('\t').map(|(name, _)| (name, line)))
        .map(|(name, line)| (name.to_owned(), line.split('\t').next().unwrap_or_default().to_owned()))
        .collect();
    let file =
        std::fs::OpenOptions::new().append(true).create(true).open(results).expect("results can be written");
    let tries = number("TESTED_FOR", u64::MAX) > 0;
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut left: Vec<&Mutant> = Vec::new();
    for mutant in mutants {
        let before = known.get(&mutant.name);
        let over = OUTCOMES.into_iter().find(|outcome| before.is_some_and(|before| before == outcome));
        match over {
            _ if outcomes.contains_key(&mutant.number) => {}
            Some(outcome) if !tries || outcome == KILLED || outcome == HUNG => {
                outcomes.insert(mutant.number, outcome);
            }
            _ if tries && mutant.file.starts_with(&only) => left.push(mutant),
            // What is not tried now keeps what it was.
            over => outcomes.extend(over.map(|outcome| (mutant.number, outcome))),
        }
    }
    let tests = if tries { tests(program) } else { Vec::new() };
    eprintln!("{} tests, {} mutants to try", tests.len(), left.len());
    let shared = Mutex::new((file, outcomes));
    each(left, |mutant| {
        let outcome = of(mutant.number, program, &tests);
        let mut shared = shared.lock().expect("no panic");
        writeln!(shared.0, "{outcome}\t{}\t{}", mutant.name, mutant.number).expect("results can be written");
        shared.1.insert(mutant.number, outcome);
    });
}

/// The tests that pass, with what each comes to.
fn tests(program: &Path) -> Vec<Test> {
    let list =
        Command::new(program).args(["--list", "--format", "terse"]).output().expect("tests list themselves");
    let list = String::from_utf8(list.stdout).expect("names are text");
    let names = list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    let tests = Mutex::new(Vec::new());
    each(names, |name: String| {
        let notes = std::env::temp_dir().join(format!("{name}.{}", std::process::id()));
        let start = Instant::now();
        let child = start_tests(program, &[&name]).env("MUTANT_NOTES", &notes).spawn().expect("tests start");
        let end = watch(child, SLOW);
        let takes = start.elapsed();
        if end != End::Passed {
            eprintln!("left out: {name}, {takes:?}");
        } else if notes.exists() {
            let comes_to = read(&notes).lines().map(|line| line.parse().expect("a number")).collect();
            tests.lock().expect("no panic").push(Test { name, takes, comes_to });
        }
        let _ = std::fs::remove_file(&notes);
    });
    tests.into_inner().expect("no panic")
}

fn start_tests(program: &Path, names: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "--test-threads=1"]).args(names);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What becomes of a mutant. The tests of a file are run together, since a process costs as much as a short test.
fn of(mutant: usize, program: &Path, tests: &[Test]) -> &'static str {
    let mut files: BTreeMap<&str, (Duration, Vec<&str>)> = BTreeMap::new();
    for test in tests.iter().filter(|test| test.comes_to.contains(&mutant)) {
        let file = test.name.split("::").next().unwrap_or_default();
        let (takes, names) = files.entry(file).or_default();
        *takes += test.takes;
        names.push(&test.name);
    }
    let mut files: Vec<_> = files.into_values().collect();
    files.sort();
    if files.is_empty() {
        return NOT_REACHED;
    }
    let mut all = Duration::ZERO;
    for (takes, names) in files {
        all += takes;
        if all > Duration::from_secs(number("TESTED_FOR", u64::MAX)) {
            break;
        }
        let child =
            start_tests(program, &names).env("MUTANT", mutant.to_string()).spawn().expect("tests start");
        match watch(child, takes + TURNING) {
            End::Passed => {}
            End::Failed => return KILLED,
            End::Asleep | End::Turning => return HUNG,
        }
    }
    STANDS
}

/// Waits for the child's end, or makes one when it hangs.
fn watch(mut child: Child, limit: Duration) -> End {
    let mut last = (Duration::ZERO, Instant::now());
    let mut pause = Duration::from_millis(1);
    let end = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return if status.success() { End::Passed } else { End::Failed };
        }
        let worked = processor(child.id());
        if worked != last.0 {
            last = (worked, Instant::now());
        }
        if worked > limit {
            break End::Turning;
        } else if last.1.elapsed() > ASLEEP {
            break End::Asleep;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let _ = child.kill();
    let _ = child.wait();
    end
}

/// What the process has had of the processor, by Linux's count of hundredths.
fn processor(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
