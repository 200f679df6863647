//! `claimdb bench`, run as users run it, and briefly: what the report holds, not how fast anything is.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn bench(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimdb"));
    command.args(["bench", "--seconds", "0.05", "--warm-up", "0.01", "--dir"]).arg(folder).args(args);
    command.output().unwrap()
}

fn report(output: &Output) -> Value {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_first_row_is_the_default_configuration_whatever_was_asked_for() {
    let folder = TempDir::new().unwrap();
    let args = [
        "--json",
        "--backend",
        "mem",
        "--durability",
        "relaxed",
        "--threads",
        "2,1",
        "--keys",
        "50",
        "--rounds",
        "2",
    ];
    let report = report(&bench(folder.path(), &args));
    let rows = report["rows"].as_array().unwrap();
    let of = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("backend"), text("durability"), row["threads"].as_u64().unwrap(), row["keys"].as_u64().unwrap())
    };
    let row =
        |backend: &str, durability: &str, threads| (backend.to_owned(), durability.to_owned(), threads, 50);
    let expected = [row("sled", "full", 2), row("mem", "relaxed", 2), row("mem", "relaxed", 1)];
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!(number("slowest_round") <= number("operations_per_second"), "{row}");
        assert!(number("operations_per_second") <= number("fastest_round"), "{row}");
        assert!(number("operations_per_second") > 0.0, "{row}");
        let fresh = &row["fresh_latency_ns"];
        let at = |percentile: &str| fresh[percentile].as_u64().unwrap();
        assert!(
            at("count") > 0 && at("p50") <= at("p99") && at("p99") <= at("p99.9") && at("p99.9") <= at("max")
        );
        let synced = number("syncs_per_second") > 0.0;
        assert_eq!(synced, row["durability"] == "full", "{row}");
    }
    let machine = &report["machine"];
    assert!(machine["disk_syncs_per_second"].as_f64().unwrap() > 0.0, "{machine}");
    assert!(machine["cores"].as_u64().unwrap() > 0, "{machine}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "its stores are gone");
}

#[test]
fn duplicates_are_as_many_as_asked_for() {
    let folder = TempDir::new().unwrap();
    for (share, least, most) in [("0", 0.0, 0.0), ("1", 1.0, 1.0), ("0.3", 0.2, 0.4)] {
        let args =
            ["--json", "--backend", "mem", "--durability", "relaxed", "--threads", "1", "--keys", "20"];
        let count = |rounds: usize| {
            let rounds = rounds.to_string();
            let more = ["--duplicates", share, "--rounds", &rounds];
            let report = report(&bench(folder.path(), &[&args[..], &more].concat()));
            ["fresh_latency_ns", "duplicate_latency_ns"]
                .map(|of| report["rows"][1][of]["count"].as_f64().unwrap_or(0.0))
        };
        // A busy machine may do next to nothing in one round.
        let counts =
            [1, 10, 100].into_iter().map(count).find(|[fresh, duplicate]| fresh + duplicate > 1000.0);
        let [fresh, duplicate] = counts.expect("a thousand operations in a hundred rounds");
        let found = duplicate / (fresh + duplicate);
        assert!((least..=most).contains(&found), "{share}: {found}");
    }
}

#[test]
fn the_table_and_the_page_tell_the_same_rows() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("report.html");
    let stores = folder.path().join("stores");
    fs::create_dir(&stores).unwrap();
    let args = ["--threads", "1", "--keys", "10,40", "--durability", "full", "--rounds", "1", "--html"];
    let output = bench(&stores, &[&args[..], &[page.to_str().unwrap()]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("sled")).collect();
    assert_eq!(rows.len(), 2, "{table}");
    let page = fs::read_to_string(page).unwrap();
    for row in rows {
        let cells = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let cells: String = cells.map(|cell| format!("<td>{cell}</td>")).collect();
        assert!(page.contains(&cells), "{cells} is not in the page");
    }
    assert_eq!(page.matches("<svg").count(), 3, "by threads, latencies, by size");
    for elsewhere in ["src=", "href=", "@import", "<script"] {
        assert!(!page.contains(elsewhere), "the page stands on its own, and has {elsewhere}");
    }
    for line in [
        "sled full, 10 keys",
        "sled full, 40 keys",
        "sled full, 1 thread, 10 keys",
        "sled full, 1 thread, 40 keys",
    ] {
        assert_eq!(page.matches(&format!("\n{line}\n")).count(), 1, "{line} is one line of one picture");
    }
    for picture in page.split("<svg").skip(1) {
        let end = picture.find("</svg>").unwrap();
        roxmltree::Document::parse(&format!("<svg{}</svg>", &picture[..end])).unwrap();
    }
}

#[test]
fn what_was_not_measured_is_null_and_of_two_rounds_the_slower_one_is_told() {
    let folder = TempDir::new().unwrap();
    let args = ["--json", "--threads", "1", "--keys", "5", "--durability", "full", "--rounds", "2"];
    let output = bench(folder.path(), &[&args[..], &["--duplicates", "1"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &report["rows"][0];
    assert!(
        row["fresh_latency_ns"].is_null() && row["duplicate_latency_ns"]["count"].as_u64() > Some(0),
        "{row}"
    );
    assert_eq!(row["operations_per_second"], row["slowest_round"], "{row}");
}

#[test]
fn bad_input_is_told() {
    let folder = TempDir::new().unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--threads", "0"], 2, "0 is not in 1..=1024"),
        (&["--threads", ""], 2, "--threads"),
        (&["--duplicates", "1.1"], 2, "a number from 0 to 1"),
        (&["--duplicates", "NaN"], 2, "a number from 0 to 1"),
        (&["--seconds", "0"], 2, "a number from 0.01 to 3600"),
        (&["--value", "1048577"], 2, "not in 0..=1048576"),
        (&["--backend", "rocksdb"], 2, "possible values"),
        (&["--rounds", "0"], 2, "--rounds"),
    ];
    for (args, code, told) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimdb"));
        let output = command.arg("bench").args(args).arg("--dir").arg(folder.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(told), "{args:?}: {error}");
    }
    let output = bench(&folder.path().join("nowhere"), &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("nowhere") && error.contains("--dir"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn the_versions_that_are_told_are_those_that_are_built_in() {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let source = include_str!("../src/bin/claimdb/bench/machine.rs");
    for engine in ["sled", "redb"] {
        let line =
            manifest.lines().find(|line| line.starts_with(&format!("{engine} = {{ version = \"="))).unwrap();
        let version = line.split("\"=").nth(1).unwrap().split('"').next().unwrap();
        assert!(source.contains(&format!("{engine} {version}")), "{engine} {version}");
    }
}

#[test]
fn what_was_measured_is_told_though_the_page_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    let args = ["--json", "--keys", "5", "--threads", "1", "--rounds", "1", "--durability", "full", "--html"];
    let told = bench(folder.path(), &[&args[..], &["/dev/full"]].concat());
    let error = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(1), "{error}");
    assert!(error.contains("name another file with --html"), "{error}");
    let report: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 1, "{report}");
    // What can be seen before is told before anything is measured.
    for nowhere in [folder.path().join("nowhere/report.html"), folder.path().to_owned()] {
        let told = bench(folder.path(), &[&args[..], &[nowhere.to_str().unwrap()]].concat());
        let error = String::from_utf8_lossy(&told.stderr);
        assert_eq!(
            (told.status.code(), told.stdout.len()),
            (Some(2), 0),
            "it is measured for nothing: {error}"
        );
        assert!(error.contains("give"), "{error}");
    }
}
