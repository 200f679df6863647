//! The house rules that no compiler holds: floors, file sizes, and tests that do not sleep.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The floors of `docs/architecture.md`: a module may name only modules of lower floors, or itself.
const FLOORS: [(&str, u8); 19] = [
    ("sync", 0),
    ("clock", 0),
    ("key", 1),
    ("fingerprint", 1),
    ("token", 1),
    ("telemetry", 1),
    ("value", 1),
    ("error", 1),
    ("record", 2),
    ("protocol", 3),
    ("backend", 3),
    ("lease", 4),
    ("commit", 4),
    ("timer", 4),
    ("store", 5),
    ("http", 6),
    ("admin", 6),
    ("bin", 6),
    ("documents", 6),
];
/// On these floors modules may name their neighbours; on the others they are siblings that may not.
const NEIGHBOURLY: [u8; 2] = [0, 1];
const MAX_LINES: usize = 400;
/// The harnesses that break things from outside, where a moment must pass in another process.
const MAY_SLEEP: [&str; 7] = [
    "tests/kill.rs",
    "tests/power_cut.rs",
    "tests/redb_damage.rs",
    "tests/stops_and_clocks.rs",
    "tests/support/child.rs",
    "tests/support/disk.rs",
    "tests/support/parent.rs",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("the folder is readable").path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("it lies below").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("sources are text")));
            }
        }
    }
    found.sort();
    found
}

/// The code of `source` without comments and documentation, which may name what they like.
fn code(source: &str) -> String {
    source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn module_of(file: &str) -> &str {
    let below = file.strip_prefix("src/").expect("a source file");
    below.split(['/', '.']).next().expect("split gives one part at least")
}

/// The modules of the crate that `code` names, through `crate::` paths.
fn named_modules(code: &str) -> Vec<String> {
    let mut named = Vec::new();
    for part in code.split("crate::").skip(1) {
        let inner = part.strip_prefix('{');
        let list = match inner {
            Some(inner) => inner.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![part],
        };
        for item in list {
            let name: String =
                item.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            named.push(name);
        }
    }
    named
}

#[test]
fn each_file_imports_only_from_floors_below_it() {
    let floors: BTreeMap<&str, u8> = FLOORS.into();
    let mut seen = 0;
    for (file, source) in rust_files("src") {
        let module = module_of(&file);
        if module == "lib" {
            continue;
        }
        let floor = *floors.get(module).unwrap_or_else(|| panic!("{file}: {module} is on no floor"));
        let code: String =
            code(&source).lines().filter(|line| !line.contains("cfg(doc)")).collect::<Vec<_>>().join("\n");
        for named in named_modules(&code) {
            let Some(&other) = floors.get(named.as_str()) else { continue };
            seen += 1;
            let neighbour = other == floor && NEIGHBOURLY.contains(&floor);
            assert!(
                named == module || other < floor || neighbour,
                "{file} (floor {floor}) names {named} (floor {other}); a file imports from floors below it"
            );
        }
    }
    assert!(seen > 50, "only {seen} imports were looked at: the check looks at the wrong thing");
}

#[test]
fn the_import_check_sees_what_it_should() {
    assert_eq!(named_modules("use crate::store::Store;"), ["store"]);
    assert_eq!(named_modules("use crate::{lease::Table, commit};"), ["lease", "commit"]);
    assert_eq!(named_modules("fn f() -> crate::error::Fault"), ["error"]);
    assert_eq!(module_of("src/store/mod.rs"), "store");
    assert_eq!(module_of("src/key.rs"), "key");
}

#[test]
fn no_file_holds_more_than_one_thought() {
    for folder in ["src", "tests", "benches", "examples", "fuzz"] {
        for (file, source) in rust_files(folder) {
            let lines = source.lines().count();
            assert!(lines <= MAX_LINES, "{file} has {lines} lines; over {MAX_LINES} wants splitting");
        }
    }
}

#[test]
fn no_test_sleeps_except_in_fault_harnesses() {
    let this = "tests/tidy.rs";
    for (file, source) in rust_files("tests").into_iter().chain(rust_files("src")) {
        let sleeps = code(&source).contains("sleep(");
        let may = file == this || MAY_SLEEP.contains(&file.as_str());
        assert!(!sleeps || may, "{file} sleeps; tests move the manual clock");
    }
}

#[test]
fn only_their_one_file_names_locks_clocks_threads_and_seeds() {
    let only = [
        ("parking_lot::", "src/sync/"),
        ("std::sync::atomic", "src/sync/"),
        ("loom::", "src/sync/"),
        ("shuttle::", "src/sync/"),
        ("thread::", "src/sync/"),
        ("RandomState", "src/sync/"),
        ("Instant", "src/clock.rs"),
        ("SystemTime", "src/clock.rs"),
    ];
    for (file, source) in rust_files("src") {
        // The command line is a user of the crate, and starts scoped threads of its own.
        if file.starts_with("src/bin/") {
            continue;
        }
        for (word, home) in only {
            let found = code(&source).contains(word);
            assert!(!found || file.starts_with(home), "{file} names {word}, which lives in {home}");
        }
    }
}

#[test]
fn each_lock_is_in_the_list_of_the_architecture() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("it is there");
    let list = page.split("\n## Locks\n").nth(1).expect("it has a list of locks");
    let list = list.split("\n## ").next().expect("split gives one part at least");
    let listed: Vec<&str> =
        list.split('`').filter(|word| word.ends_with(".rs") && *word != "tests/tidy.rs").collect();
    // Those of `sync/` that are no lock of their own, but what locks are made of.
    let made_of = ["sync/real.rs", "sync/mocked.rs"];
    let mut locks = Vec::new();
    for (file, source) in rust_files("src") {
        let Some(file) = file.strip_prefix("src/").filter(|file| !file.starts_with("bin/")) else { continue };
        if code(&source).contains("Mutex<") && !made_of.contains(&file) {
            assert!(listed.contains(&file), "docs/architecture.md does not list the lock of src/{file}");
            locks.push(file.to_owned());
        }
    }
    assert!(locks.len() > 10, "only {locks:?} have locks: the check looks at the wrong thing");
    for file in listed {
        assert!(
            locks.iter().any(|lock| lock == file),
            "docs/architecture.md lists a lock of src/{file}, which has none"
        );
    }
}

/// Whoever reads of a model can run it by that name, and it is bounded as the list says.
#[test]
fn the_models_that_are_listed_are_tests_of_their_names() {
    let page = fs::read_to_string(root().join("docs/testing.md")).expect("it is there");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>();
    let is_row = |row: &Vec<String>| row.len() > 4 && ["model", "twin"].contains(&row[2].as_str());
    let mut listed: Vec<_> = page.lines().map(cells).filter(is_row).map(|row| row[1..4].join(", ")).collect();
    let mut tests = Vec::new();
    for (_, source) in rust_files("tests").into_iter().filter(|(file, _)| file.starts_with("tests/loom_")) {
        let twins = source.split("fn twin_").skip(1).filter_map(|rest| rest.split('(').next());
        tests.extend(twins.map(|twin| format!("{twin}, twin, 3 preemptions")));
        let block = source.split_once("models! {\n").map_or("", |(_, block)| block);
        // A model's row begins with its name and its bound.
        for row in block.lines().take_while(|line| line.trim() != "}") {
            let mut parts = row.trim().splitn(3, ", ");
            let (Some(name), Some(bound), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let least = bound.strip_prefix("Some(").and_then(|bound| bound.strip_suffix(')'));
            let bound = match least {
                Some(preemptions) => format!("{preemptions} preemptions"),
                None if bound == "None" => "exhaustive".to_owned(),
                None => continue,
            };
            tests.push(format!("{name}, model, {bound}"));
        }
    }
    listed.sort();
    tests.sort();
    assert!(tests.len() > 100, "only {tests:?} are found: the check looks at the wrong thing");
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|one| !those.contains(one)).cloned().collect()
    };
    let (only_listed, only_tests) = (only(&listed, &tests), only(&tests, &listed));
    assert!(
        listed == tests,
        "docs/testing.md lists {only_listed:?}, and what there is besides is {only_tests:?}"
    );
}

/// Tells all the rows that the page is to have if one is missing.
fn shows(page: &str, rows: &[String]) {
    let text = fs::read_to_string(root().join(page)).expect("it is there");
    let missing = rows.iter().any(|row| !text.contains(row.as_str()));
    assert!(!missing, "{page} does not show what was measured, which is\n{}\n", rows.join("\n"));
}

#[test]
fn the_figures_in_the_readme_are_those_that_the_bench_wrote() {
    let json = fs::read_to_string(root().join("docs/figures/claim-throughput.json")).expect("it is there");
    let figures: serde_json::Value = serde_json::from_str(&json).expect("the bench writes JSON");
    let rows = figures["operations_per_second"].as_array().expect("it is a list");
    assert_eq!(rows.first().map(|row| &row["what"]), Some(&"Full".into()), "the first row is the default");
    let shown = rows.iter().map(|row| {
        let what = row["what"].as_str().expect("it is text");
        let what = if what.starts_with("floor") { what.to_owned() } else { format!("`{what}`") };
        format!("| {what} | {} | {} |", row["threads_1"], row["threads_64"])
    });
    shows("README.md", &shown.collect::<Vec<_>>());
}

#[test]
fn the_figures_of_the_backends_are_those_that_the_bench_wrote() {
    let json = fs::read_to_string(root().join("docs/figures/backends.json")).expect("it is there");
    let figures: serde_json::Value = serde_json::from_str(&json).expect("the bench writes JSON");
    let rows = figures["operations_per_second"].as_array().expect("it is a list");
    let ours: Vec<_> = rows.iter().filter(|row| row["engine"] == "sled" || row["engine"] == "redb").collect();
    assert_eq!(ours.len(), 6, "two engines, three durabilities");
    let shown = ours.iter().map(|row| {
        let [engine, durability] =
            ["engine", "durability"].map(|name| row[name].as_str().expect("it is text"));
        format!("| {engine} | `{durability}` | {} | {} |", row["threads_1"], row["threads_64"])
    });
    let sizes =
        figures["on_disk"].as_array().expect("it is a list").iter().map(|row| row["bytes"].to_string());
    shows("docs/backends.md", &shown.chain(sizes).collect::<Vec<_>>());
}

#[test]
fn the_figures_of_the_http_layer_are_those_that_the_bench_wrote() {
    let json = fs::read_to_string(root().join("docs/figures/http.json")).expect("it is there");
    let figures: serde_json::Value = serde_json::from_str(&json).expect("the bench writes JSON");
    let rows = figures["microseconds_at_the_median"].as_array().expect("it is a list");
    assert_eq!(rows.len(), 6, "three durabilities, in memory and over the loopback interface");
    assert_eq!(rows[0]["durability"], "Full", "the first row is the default");
    let shown = rows.iter().map(|row| {
        let [durability, way] = ["durability", "way"].map(|name| row[name].as_str().expect("it is text"));
        let fields = ["bare", "claims_itself", "layer", "over_bare", "over_claims_itself"];
        format!("| `{durability}` | {way} | {} |", fields.map(|field| row[field].to_string()).join(" | "))
    });
    shows("docs/http.md", &shown.collect::<Vec<_>>());
}

#[test]
fn the_counts_of_instructions_are_those_that_the_bench_wrote() {
    let json = fs::read_to_string(root().join("docs/figures/instructions.json")).expect("it is there");
    let figures: serde_json::Value = serde_json::from_str(&json).expect("the bench writes JSON");
    let log = fs::read_to_string(root().join("docs/performance.md")).expect("it is there");
    let rows = figures["counted"].as_array().expect("it is a list");
    let first = rows.first().and_then(|row| row["path"].as_str());
    assert_eq!(first, Some("claim and complete, Full"), "the first row is the default");
    let (mut shown, mut again) = (Vec::new(), true);
    for row in rows.iter().filter(|row| row["floor"].is_string()) {
        let [path, floor] = ["path", "floor"].map(|name| row[name].as_str().expect("it is text"));
        let now = format!(" | {} | {floor}: {} |", row["instructions"], row["floor_instructions"]);
        again &= log.lines().any(|line| line.starts_with(&format!("| {path} | ")) && line.ends_with(&now));
        shown.push(format!("| {path}{now}"));
    }
    shows("docs/testing.md", &shown);
    assert!(again, "docs/performance.md does not show what was counted, which is\n{}\n", shown.join("\n"));
}

#[test]
fn the_mutants_of_the_store_are_those_that_were_tried() {
    let json = fs::read_to_string(root().join("docs/figures/mutants.json")).expect("it is there");
    let figures: serde_json::Value = serde_json::from_str(&json).expect("the program writes JSON");
    let page = fs::read_to_string(root().join("docs/testing.md")).expect("it is there");
    let store = &["src/store", "src/store/tasks"][..];
    for (row, folders) in [("`src/store/`", store), ("`src/store/copy/`", &["src/store/copy"])] {
        let count = |outcome: &str| -> u64 {
            folders.iter().filter_map(|folder| figures["counts"][folder][outcome].as_u64()).sum()
        };
        let line = page.lines().find(|line| line.starts_with(&format!("| {row} | ")));
        let cells =
            line.expect("the table has the row").split('|').filter_map(|cell| cell.trim().parse().ok());
        let [listed, no, killed, written, deleted, argued, stand, untried] = cells.collect::<Vec<u64>>()[..]
        else {
            panic!("the row of {row} is not as long as its table is wide")
        };
        let shown = [listed, no, killed + written, argued, stand, untried];
        let tried = [count("listed"), count("does not compile"), count("killed") + count("hung")];
        let left = [count("argued"), count("stands"), count("no place") + count("not tried")];
        assert_eq!(shown[..], [tried, left].concat(), "docs/testing.md does not show what became of {row}");
        assert_eq!(listed, deleted + shown[1..].iter().sum::<u64>(), "the row of {row} does not add up");
    }
}

#[test]
fn the_figures_of_the_peers_are_those_that_the_bench_wrote() {
    let json = fs::read_to_string(root().join("docs/figures/peers.json")).expect("it is there");
    let figures: serde_json::Value = serde_json::from_str(&json).expect("the bench writes JSON");
    let page = fs::read_to_string(root().join("docs/peers.md")).expect("it is there");
    for (table, last, syncs) in [
        ("full", "syncs_per_operation", 2.0),
        ("result", "syncs_per_operation", 1.0),
        ("memory", "nanoseconds", 0.0),
    ] {
        let part = page.split(&format!("<!-- peers: {table} -->\n")).nth(1).expect("the page has its marks");
        let part = part.split("<!-- peers: end -->").next().expect("split gives one part at least");
        let rows = figures[table].as_array().expect("it is a list");
        assert_eq!(
            rows.first().map(|row| &row["name"]),
            Some(&"claimdb, sled".into()),
            "first comes the default"
        );
        let text = |row: &serde_json::Value, name: &str| row[name].as_str().expect("it is text").to_owned();
        let mut expected: Vec<String> = rows
            .iter()
            .map(|row| {
                let [name, way] = ["name", "way"].map(|field| text(row, field));
                let last = if row[last].is_null() { "not counted".to_owned() } else { row[last].to_string() };
                let [one, some, many] = ["threads_1", "threads_8", "threads_64"].map(|field| &row[field]);
                format!("| {name} | {way} | {one} | {some} | {many} | {last} |")
            })
            .collect();
        for row in rows.iter().filter(|row| !row["syncs_per_operation"].is_null()) {
            let seen = row["syncs_per_operation"].as_f64().expect("it is a number");
            assert!(seen >= syncs, "docs/peers.md shows {row} as one that syncs {syncs} times an operation");
        }
        let skipped = figures["skipped"].as_array().expect("it is a list").iter();
        expected.extend(
            skipped
                .filter(|row| row["table"] == table)
                .map(|row| format!("| {} | skipped: {} | | | | |", text(row, "name"), text(row, "reason"))),
        );
        let shown: Vec<&str> = part.lines().filter(|line| line.starts_with('|')).skip(2).collect();
        assert_eq!(
            shown, expected,
            "docs/peers.md does not show what was measured: run benches/peers/run.sh"
        );
    }
}
