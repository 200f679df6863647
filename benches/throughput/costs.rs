//! What criterion measured, in one file.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Writes the medians of what was measured since `start` to `target/figures/claim-costs.json`. Each is of one thread; a waiter that
/// is woken is a second one.
pub fn write(start: SystemTime) {
    let mut rows: Vec<Value> = estimates(&folder(), start);
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    rows.sort_by_key(|row| (text(row, "group"), text(row, "what")));
    let json = json!({ "threads": 1, "nanoseconds_at_the_median": rows });
    crate::about::write("claim-costs", "cargo bench --bench claim", &json.to_string());
}

/// Where criterion writes.
fn folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    named("CRITERION_HOME")
        .or_else(|| named("CARGO_TARGET_DIR").map(|target| target.join("criterion")))
        .unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/target/criterion").into())
}

/// criterion keeps a folder for each group, and one in it for each of its functions.
fn estimates(folder: &Path, start: SystemTime) -> Vec<Value> {
    let mut rows = Vec::new();
    for group in folder.read_dir().unwrap().flatten() {
        for function in group.path().read_dir().into_iter().flatten().flatten() {
            let new = function.path().join("new");
            let read = |name: &str| fs::read_to_string(new.join(name)).ok();
            let (Some(about), Some(estimates)) = (read("benchmark.json"), read("estimates.json")) else {
                continue;
            };
            // Those of other benches and of earlier runs are there as well. File times are coarse.
            let written = new.join("estimates.json").metadata().unwrap().modified().unwrap();
            if written + Duration::from_secs(1) < start {
                continue;
            }
            let [about, estimates]: [Value; 2] =
                [about, estimates].map(|text| serde_json::from_str(&text).unwrap());
            let median = estimates["median"]["point_estimate"].as_f64().unwrap();
            rows.push(json!({
                "group": about["group_id"], "what": about["function_id"],
                "nanoseconds": (median * 10.0).round() / 10.0,
            }));
        }
    }
    rows
}
