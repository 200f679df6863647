//! The files of figures: each says which command wrote it, of which commit, and on what it was measured.
#![allow(dead_code)] // no bench needs all of it

mod commit;
#[path = "../../src/bin/claimdb/bench/machine.rs"]
mod machine;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Writes what was timed, a JSON object, to `target/figures/NAME.json`.
pub fn write(name: &str, command: &str, figures: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = machine::Machine::look(folder.path(), 200).unwrap().json();
    machine.as_object_mut().unwrap().remove("versions"); // the command's own
    write_beside(name, command, figures, ("machine", machine));
}

/// The same for what was counted: no machine changes it, and the compiler does.
pub fn write_counted(name: &str, command: &str, figures: &str) {
    let rustc = std::process::Command::new("rustc").arg("--version").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    write_beside(name, command, figures, ("rustc", rustc.trim().into()));
}

fn write_beside(name: &str, command: &str, figures: &str, (what, of): (&str, Value)) {
    let mut json: Value = serde_json::from_str(figures).unwrap();
    json["command"] = command.into();
    json["commit"] = json!(commit::commit());
    json[what] = of;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/figures").join(name).with_extension("json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("{json:#}\n")).unwrap();
    println!("written to target/figures/{name}.json");
}
