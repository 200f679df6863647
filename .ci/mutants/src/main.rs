//! Mutation testing in one build: all mutants that cargo-mutants lists are woven into one copy of the tree, in which a
//! variable chooses one; each is then run against the tests that come to it. `run.sh` says how to start it.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it plays no part in what the clock and locks of src/ are for

mod run;
mod weave;

use run::{NOT_REACHED, STANDS};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NO_PLACE: &str = "no place";
const NO_COMPILE: &str = "does not compile";
const NOT_TRIED: &str = "not tried";

/// One change that cargo-mutants lists.
#[derive(Clone)]
pub struct Mutant {
    pub number: usize,
    /// Its file and what it changes, without the line, so that it keeps its name when others move it.
    pub name: String,
    pub file: String,
    pub range: weave::Range,
    pub genre: String,
    pub replacement: String,
}

/// What stands in the tree that was copied, and how it is built there.
pub struct Woven {
    tree: PathBuf,
    features: String,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [list, tree, results, argued, features] = arguments.as_slice() else {
        eprintln!("used by run.sh");
        std::process::exit(2);
    };
    let mutants = listed(&read(Path::new(list)));
    let woven = Woven { tree: tree.into(), features: features.clone() };
    let (mut outcomes, program) = woven.built(&mutants);
    run::run(&mutants, &program, Path::new(results), &mut outcomes);
    let argued: BTreeSet<String> =
        read(Path::new(argued)).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    println!("{:#}", summary(&mutants, &outcomes, &argued));
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn listed(list: &str) -> Vec<Mutant> {
    let list: Value = serde_json::from_str(list).expect("cargo-mutants lists JSON");
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().expect("a line or column") as usize;
    let at = |place: &Value| (number(&place["line"]), number(&place["column"]) - 1);
    let all = list.as_array().expect("it is a list").iter().enumerate();
    all.map(|(index, mutant)| {
        let file = text(&mutant["file"]);
        let name = text(&mutant["name"]);
        let what = name.splitn(4, ':').last().unwrap_or_default().trim();
        let name = format!("{file}: {what}");
        let times = named.entry(name.clone()).or_default();
        *times += 1;
        Mutant {
            number: index,
            name: if *times == 1 { name } else { format!("{name} #{times}") },
            file,
            range: (at(&mutant["span"]["start"]), at(&mutant["span"]["end"])),
            genre: text(&mutant["genre"]),
            replacement: text(&mutant["replacement"]),
        }
    })
    .collect()
}

impl Woven {
    /// The program, and the mutants that are not in it. With AGAIN set, as they were built before.
    fn built(&self, mutants: &[Mutant]) -> (BTreeMap<usize, &'static str>, PathBuf) {
        let file = self.tree.join("built");
        if std::env::var_os("AGAIN").is_none() {
            let outside = self.weave(mutants);
            let numbers =
                |why| outside.iter().filter(|out| out.1 == why).map(|out| out.0).collect::<Vec<_>>();
            let built = json!([self.build(), numbers(NO_PLACE), numbers(NO_COMPILE)]);
            std::fs::write(&file, built.to_string()).expect("the tree can be written");
        }
        let (program, no_place, no_compile): (PathBuf, Vec<usize>, Vec<usize>) =
            serde_json::from_str(&read(&file)).expect("it was written so");
        let no_place = no_place.into_iter().map(|number| (number, NO_PLACE));
        (no_place.chain(no_compile.into_iter().map(|number| (number, NO_COMPILE))).collect(), program)
    }

    /// Weaves all that compile, and tells of the others why they were left out.
    fn weave(&self, mutants: &[Mutant]) -> Vec<(usize, &'static str)> {
        let mut files: BTreeMap<&str, (String, Vec<&Mutant>)> = BTreeMap::new();
        for mutant in mutants {
            let file = files.entry(&mutant.file);
            let source = || (read(&self.tree.join(&mutant.file)), Vec::new());
            file.or_insert_with(source).1.push(mutant);
        }
        let library = self.tree.join("src/lib.rs");
        let with_choice = format!("{}\nmod mutant;\n", read(&library));
        std::fs::write(&library, with_choice).expect("the tree can be written");
        std::fs::write(self.tree.join("src/mutant.rs"), include_str!("mutant.rs")).expect("likewise");
        let mut outside: BTreeMap<usize, &str> = BTreeMap::new();
        loop {
            let mut places = BTreeMap::new();
            for (name, (source, all)) in &files {
                let all: Vec<&Mutant> =
                    all.iter().copied().filter(|mutant| !outside.contains_key(&mutant.number)).collect();
                let (woven, impossible, left) = weave::weave(source, &all);
                places.insert(*name, weave::Places::of(&woven));
                outside.extend(left.into_iter().map(|number| (number, NO_PLACE)));
                outside.extend(impossible.into_iter().map(|number| (number, NO_COMPILE)));
                std::fs::write(self.tree.join(name), woven).expect("the tree can be written");
            }
            let before = outside.len();
            let messages = self.cargo(&["check", "--lib"]);
            let errors: Vec<&Value> = messages
                .iter()
                .map(|line| &line["message"])
                .filter(|message| message["level"] == "error")
                .collect();
            for error in &errors {
                if let Some((number, why)) = blamed(error, &places) {
                    outside.insert(number, why);
                }
            }
            eprintln!("{} errors, {} mutants are out", errors.len(), outside.len());
            if errors.is_empty() {
                return outside.into_iter().collect();
            }
            if outside.len() == before {
                let told: Vec<&str> = errors.iter().filter_map(|error| error["rendered"].as_str()).collect();
                panic!("errors that no mutant is to blame for:\n{}", told.join("\n"));
            }
        }
    }

    fn cargo(&self, what: &[&str]) -> Vec<Value> {
        let mut cargo = Command::new("cargo");
        cargo.args(what).args([
            "--message-format=json",
            "--no-default-features",
            "--features",
            &self.features,
        ]);
        cargo.current_dir(&self.tree).env("RUSTFLAGS", "--cap-lints=allow");
        let output = cargo.stderr(Stdio::inherit()).output().expect("cargo is there");
        let lines = String::from_utf8(output.stdout).expect("cargo writes text");
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The program of all tests.
    fn build(&self) -> PathBuf {
        let messages = self.cargo(&["test", "--no-run", "--test", "woven"]);
        let program = messages.iter().find_map(|message| message["executable"].as_str());
        let errors = messages.iter().filter(|line| line["message"]["level"] == "error");
        let told: Vec<&str> = errors.filter_map(|line| line["message"]["rendered"].as_str()).collect();
        program.unwrap_or_else(|| panic!("the tests do not compile:\n{}", told.join("\n"))).into()
    }
}

/// Which mutant an error is of.
fn blamed(error: &Value, places: &BTreeMap<&str, weave::Places>) -> Option<(usize, &'static str)> {
    let spans = error["spans"].as_array()?;
    let at = |span: &Value| {
        let number = |name: &str| span[name].as_u64().unwrap_or_default() as usize;
        let places = places.get(span["file_name"].as_str().unwrap_or_default())?;
        let start = (number("line_start"), number("column_start").saturating_sub(1));
        Some((places, (start, (number("line_end"), number("column_end").saturating_sub(1)))))
    };
    let primary = spans.iter().filter(|span| span["is_primary"] == true);
    let all: Vec<_> =
        primary.chain(spans.iter().filter(|span| span["is_primary"] == false)).filter_map(at).collect();
    let own = all.iter().find_map(|(places, at)| places.mutant_at(*at));
    match own {
        // What is known while compiling cannot be chosen while running.
        Some((number, true)) => Some((number, NO_PLACE)),
        Some((number, false)) => Some((number, NO_COMPILE)),
        None => Some((all.iter().find_map(|(places, at)| places.choice_at(*at))?, NO_COMPILE)),
    }
}

/// How many there are of each outcome in each folder, and the names of those that wait for a test.
fn summary(mutants: &[Mutant], outcomes: &BTreeMap<usize, &str>, argued: &BTreeSet<String>) -> Value {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut stand = Vec::new();
    for mutant in mutants {
        let outcome = match outcomes.get(&mutant.number).copied().unwrap_or(NOT_TRIED) {
            STANDS | NOT_REACHED if argued.contains(&mutant.name) => "argued",
            STANDS | NOT_REACHED => STANDS,
            outcome => outcome,
        };
        let folder = mutant.file.rsplit_once('/').map_or("", |(folder, _)| folder);
        for count in ["listed", outcome] {
            *counts.entry(folder).or_default().entry(count).or_default() += 1;
        }
        if outcome == STANDS {
            stand.push(&mutant.name);
        }
    }
    json!({ "counts": counts, "stand": stand })
}
