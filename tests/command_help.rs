//! What holds for all commands of `claimdb`: help with examples, manual pages, completions, terminals.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "command/place.rs"]
#[allow(dead_code)] // each test file uses a part
mod place;

use place::{Ended, Place};
use std::io::Write as _;
use std::process::{Command, Stdio};

fn claimdb(args: &[&str]) -> Ended {
    Ended::of(Command::new(env!("CARGO_BIN_EXE_claimdb")).args(args))
}

/// The commands that `--help` tells.
fn commands() -> Vec<String> {
    let help = claimdb(&["--help"]).done();
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn each_help_has_examples_and_each_command_its_manual_and_its_place_in_the_document() {
    let commands = commands();
    assert!(commands.len() >= 14, "{commands:?}");
    let document = include_str!("../docs/command-line.md");
    for command in &commands {
        let help = claimdb(&[command, "--help"]).done();
        assert!(help.contains("Examples:\n"), "claimdb {command} --help has no examples");
        assert!(help.contains(&format!("claimdb {command}")), "its examples are not its own: {help}");
        let page = claimdb(&["man", command]).done();
        assert!(page.starts_with(".ie") && page.contains("Examples:"), "{command}: {page}");
        assert!(
            document.contains(&format!("`{command}`")),
            "docs/command-line.md does not tell of {command}"
        );
    }
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = claimdb(&["completions", shell]).done();
        for command in &commands {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
}

#[test]
fn manual_pages_are_written_for_all() {
    let folder = tempfile::tempdir().unwrap();
    claimdb(&["man", "--into", folder.path().to_str().unwrap()]).done();
    for command in commands() {
        let page = std::fs::read_to_string(folder.path().join(format!("claimdb-{command}.1"))).unwrap();
        assert!(page.contains(&format!("claimdb\\-{command}")), "{page}");
    }
    assert!(folder.path().join("claimdb.1").exists());
}

#[test]
fn the_exit_codes_of_the_help_are_those_of_the_document() {
    let help = claimdb(&["--help"]).done();
    let document = include_str!("../docs/command-line.md");
    let codes = help.split("Exit codes:\n").nth(1).unwrap();
    for line in codes.lines() {
        let (code, means) = line.trim().split_once("  ").unwrap();
        let row = format!("| {code} | {}", means.split(" (").next().unwrap());
        assert!(document.contains(&row), "docs/command-line.md does not have: {row}");
    }
    assert_eq!(codes.lines().count(), 8);
}

/// Runs a command on a terminal of its own, where `typed` is typed; what the terminal shows.
fn on_a_terminal(place: &Place, command: &str, typed: &str) -> String {
    let mut script = Command::new("script");
    script.args(["-qec", command, "/dev/null"]).current_dir(place.0.path());
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("NO_COLOR");
    let mut child = script.spawn().expect("script(1) makes terminals");
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn a_person_is_asked_before_something_is_changed() {
    let place = Place::new();
    let claimdb = env!("CARGO_BIN_EXE_claimdb");
    let release = format!("{claimdb} release --store claims order-42; echo code=$?");
    let told = on_a_terminal(&place, &release, "n\n");
    assert!(told.contains("Go on? [y/N]") && told.contains("code=1"), "{told}");
    assert!(told.contains("holder ended") && told.contains("nothing was changed"), "{told}");
    let state = || place.run(&["inspect", "--store", "claims", "--json", "order-42"]);
    assert_eq!(state().json()["state"], "pending", "it was not agreed to");
    let told = on_a_terminal(&place, &release, "y\n");
    assert!(told.contains("released: key#") && told.contains("code=0"), "{told}");
    assert_eq!(state().code, Some(6));
}

#[test]
fn colours_are_of_help_on_a_terminal_and_go_with_no_color() {
    let place = Place::new();
    let claimdb = env!("CARGO_BIN_EXE_claimdb");
    let shown = on_a_terminal(&place, &format!("TERM=xterm {claimdb} inspect --help"), "");
    assert!(shown.contains('\u{1b}'), "this terminal shows no colours, so nothing is known: {shown}");
    for command in ["inspect --help", "inspect", "list --store claims", "inspect --store claims order-99"] {
        let shown = on_a_terminal(&place, &format!("NO_COLOR=1 TERM=xterm {claimdb} {command}"), "");
        assert!(!shown.contains('\u{1b}'), "{command} has colours although NO_COLOR is set: {shown:?}");
    }
    let piped = place.run(&["inspect", "--help"]);
    assert!(!piped.out.contains('\u{1b}'), "{}", piped.out);
}
