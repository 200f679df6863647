//! What holds for all commands of `claimdb`: help with examples, manual pages, completions, terminals.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "command/place.rs"]
#[allow(dead_code)] // each test file uses a part
mod place;

use claimdb::admin::Server;
use place::{Ended, Place, Service, granted};
use std::io::{Read as _, Write as _};
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
        let title = format!(".TH claimdb-{command} 1  \"claimdb {}\"", env!("CARGO_PKG_VERSION"));
        assert!(
            page.lines().any(|line| line.trim_end() == title),
            "{command} is not headed as {title}: {page}"
        );
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
fn manual_pages_are_written_for_all_into_a_folder_that_is_made() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("share/man1");
    claimdb(&["man", "--into", folder.to_str().unwrap()]).done();
    for command in commands() {
        let page = std::fs::read_to_string(folder.join(format!("claimdb-{command}.1"))).unwrap();
        assert!(page.contains(&format!("claimdb\\-{command}")), "{page}");
    }
    assert!(folder.join("claimdb.1").exists());
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), commands().len() + 1);
}

#[test]
fn a_build_tells_what_it_has_and_what_it_lacks() {
    let version = claimdb(&["--version"]).done();
    let number = env!("CARGO_PKG_VERSION");
    assert_eq!(claimdb(&["-V"]).done(), format!("claimdb {number}\n"));
    let features = version.strip_prefix(&format!("claimdb {number}\nfeatures: ")).unwrap();
    let features: Vec<_> = features.trim_end().split(", ").collect();
    for (feature, built) in [("explore", cfg!(feature = "explore")), ("redb", cfg!(feature = "redb"))] {
        assert_eq!(features.contains(&feature), built, "{version}");
        if built {
            continue;
        }
        let place = Place::new();
        std::fs::create_dir_all(place.path("other/redb")).unwrap();
        std::fs::write(place.path("other/format"), "claimdb 1 redb\n").unwrap();
        let cases: &[(&[&str], i32)] = match feature {
            "explore" => {
                &[(&["explore"], 2), (&["explore", "--help"], 2), (&["explore", "--protocol", "naive"], 2)]
            }
            _ => &[
                (&["migrate", "--from", "sled", "--to", "redb", "claims", "copy"], 2),
                (&["bench", "--backend", "sled,redb"], 2),
                (&["list", "--store", "other"], 1),
                (&["verify", "other"], 1),
                (&["compact", "other"], 1),
            ],
        };
        for (args, code) in cases {
            let told = place.run(args);
            assert_eq!((told.code, told.out.as_str()), (Some(*code), ""), "{args:?}: {}", told.err);
            let hint = format!(
                "without the feature {feature}; install one that has all, from its sources: cargo install"
            );
            assert!(told.err.contains(&hint), "{args:?}: {}", told.err);
        }
    }
    assert!(claimdb(&["list", "--help"]).done().contains("also what is claimed in memory alone"));
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

/// What a terminal shows of `claimdb` with these arguments, where `typed` is typed, and the exit code behind it.
fn asked(place: &Place, args: &str, typed: &str) -> String {
    let claimdb = env!("CARGO_BIN_EXE_claimdb");
    on_a_terminal(place, &format!("{claimdb} {args}; echo code=$?"), typed)
}

#[track_caller]
fn has_all(told: &str, words: &[&str]) {
    for word in words {
        assert!(told.contains(word), "{word:?} is not in: {told}");
    }
}

#[test]
fn a_person_is_asked_before_something_is_changed() {
    let place = Place::new();
    let release = "release --store claims order-42";
    let told = asked(&place, release, "n\n");
    has_all(&told, &["Go on? [y/N]", "code=1", "nothing was changed"]);
    // What is there, and what becomes of it.
    let there =
        ["key           key#", "state         pending", "holder        ended", "token  ", "attempt       1"];
    has_all(&told, &there);
    has_all(&told, &["The key is freed: its work can run again", "cannot be taken back"]);
    assert!(!told.contains("order-42"), "a key is shown unasked: {told}");
    has_all(&asked(&place, &format!("{release} --show-keys"), "n\n"), &["key           order-42", "code=1"]);
    let resolve = "resolve --store claims --as omitted --scope refunds order-44";
    has_all(
        &asked(&place, resolve, "n\n"),
        &["state         interrupted", "settled as done, with no result kept"],
    );
    let state = || place.run(&["inspect", "--store", "claims", "--json", "order-42"]);
    assert_eq!(state().json()["state"], "pending", "it was not agreed to");
    has_all(&asked(&place, release, "y\n"), &["released: key#", "code=0"]);
    assert_eq!(state().code, Some(6));
}

#[test]
fn a_person_is_shown_what_a_purge_deletes() {
    let place = Place::new();
    let told = asked(&place, "purge --store claims --key order-41", "n\n");
    has_all(
        &told,
        &["state         settled", "result        failed", "It is deleted: its work can run again", "code=1"],
    );
    let told = asked(&place, "purge --store claims --whole-scope refunds", "n\n");
    has_all(
        &told,
        &["interrupted         1", "settled             1", "2 keys: their work can run again", "code=1"],
    );
    has_all(
        &asked(&place, "purge --store claims --forgotten", "n\n"),
        &["What is remembered stays", "code=1"],
    );
    let listed = place.run(&["list", "--store", "claims"]).done();
    assert_eq!(listed.lines().count(), 7, "it was not agreed to");
    has_all(&asked(&place, "purge --store claims --key order-41", "y\n"), &["1 deleted", "code=0"]);
}

#[test]
fn a_person_is_shown_what_a_repair_finds_before_it_is_made() {
    let place = Place::new();
    let told = asked(&place, "repair claims", "n\n");
    has_all(&told, &["records and 0 values can be read there; 0 flaws", "Go on? [y/N]", "code=1"]);
    let told = asked(&place, "repair nowhere", "");
    has_all(&told, &["there is none", "code=1"]);
    assert!(!told.contains("[y/N]"), "a person is asked about nothing: {told}");
    // What no opening gets past, and a repair does.
    std::fs::write(place.path("claims").join("tail"), "scribble").unwrap();
    has_all(
        &asked(&place, "repair claims", "n\n"),
        &["its file `tail` is not what claimdb wrote", "[y/N]", "code=1"],
    );
    has_all(&asked(&place, "repair claims", "y\n"), &["repaired: ", "code=0"]);
}

/// The store is closed while a person thinks.
#[test]
fn a_key_that_moves_on_while_a_person_thinks_is_left_alone() {
    let claimdb = env!("CARGO_BIN_EXE_claimdb");
    for args in ["release --store claims order-42", "purge --store claims --key order-42"] {
        let place = Place::new();
        let mut script = Command::new("script");
        let command = format!("{claimdb} {args}; echo code=$?");
        script.args(["-qec", &command, "/dev/null"]).current_dir(place.0.path());
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = script.spawn().expect("script(1) makes terminals");
        let (mut told, mut out) = (Vec::new(), child.stdout.take().unwrap());
        while !told.ends_with(b"[y/N] ") {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "it ended: {}", String::from_utf8_lossy(&told));
            told.push(byte[0]);
        }
        let store = place.open();
        let next = granted(&store, "order-42");
        assert_eq!(next.attempt(), 2);
        drop(next);
        store.close().unwrap();
        child.stdin.take().unwrap().write_all(b"y\n").unwrap();
        out.read_to_end(&mut told).unwrap();
        child.wait().unwrap();
        has_all(&String::from_utf8(told).unwrap(), &["it has moved on", "code=7"]);
        let now = place.run(&["inspect", "--store", "claims", "--json", "order-42"]).json();
        assert_eq!(now["attempt"], 2, "another claim was changed than the one that was agreed to: {now}");
    }
}

#[test]
fn a_person_who_waits_for_a_service_that_says_nothing_is_told_so() {
    let place = Place::new();
    let silent = std::os::unix::net::UnixListener::bind(place.path("silent.sock")).unwrap();
    let mut script = Command::new("script");
    let command = format!("{} stats --socket silent.sock; echo code=$?", env!("CARGO_BIN_EXE_claimdb"));
    script.args(["-qec", &command, "/dev/null"]).current_dir(place.0.path());
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = script.spawn().expect("script(1) makes terminals");
    let (asking, _) = silent.accept().unwrap();
    let (mut told, mut out) = (Vec::new(), child.stdout.take().unwrap());
    while !told.ends_with(b"waiting for the service at silent.sock, which has not answered yet") {
        let mut byte = [0];
        let read = out.read(&mut byte).unwrap();
        assert_eq!(read, 1, "nobody is told what is waited for: {}", String::from_utf8_lossy(&told));
        told.push(byte[0]);
    }
    drop(asking);
    out.read_to_end(&mut told).unwrap();
    child.wait().unwrap();
    has_all(&String::from_utf8(told).unwrap(), &["or be stopped", "error: asking the service", "code=1"]);
}

#[test]
fn nobody_is_asked_about_what_is_refused() {
    let place = Place::new();
    let service = Service::start(&place, Server::new());
    for (args, code) in [
        ("release --socket claims.sock order-50", 7),
        ("resolve --socket claims.sock --as omitted order-50", 7),
        ("resolve --socket claims.sock --force --as omitted order-51", 7),
        ("release --socket claims.sock --force --token 1 order-50", 7),
        ("release --store claims order-40", 7),
        ("resolve --store claims --as omitted order-99", 6),
        ("purge --store claims --key order-99", 6),
        ("purge --store live --forgotten", 3),
        ("purge --store nowhere --forgotten", 1),
    ] {
        let told = asked(&place, args, "y\n");
        assert!(told.contains(&format!("code={code}")) && !told.contains("Go on?"), "{args}: {told}");
    }
    let told = asked(&place, "release --socket claims.sock --force order-50", "n\n");
    has_all(&told, &["holder        live", "lease left", "The lease of its holder is ended", "code=1"]);
    assert!(!service.stored.lost().is_raised(), "P5: nobody agreed to the end of this lease");
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

#[test]
fn a_store_in_use_is_told_with_who_has_it_and_what_can_be_done() {
    let place = Place::new();
    let store = place.open();
    let migrate = ["migrate", "--from", "sled", "--to", "sled", "claims", "copy"];
    let commands: [&[&str]; 13] = [
        &["inspect", "--store", "claims", "order-42"],
        &["list", "--store", "claims"],
        &["stats", "--store", "claims"],
        &["release", "--store", "claims", "--yes", "order-42"],
        &["resolve", "--store", "claims", "--yes", "--as", "omitted", "order-42"],
        &["purge", "--store", "claims", "--yes", "--forgotten"],
        // Before it asks.
        &["purge", "--store", "claims", "--whole-scope", "refunds"],
        &["backup", "--store", "claims", "copy"],
        &["compact", "claims"],
        &["verify", "claims"],
        &["repair", "--yes", "claims"],
        &migrate,
        &["dedup", "--store", "claims"],
    ];
    for args in commands {
        let told = place.run(args).failed(3);
        let process = format!("process {}", std::process::id());
        assert!(told.contains(&process), "{args:?}: {told}");
        let help = place.run(&[args[0], "--help"]).done();
        assert_eq!(told.contains("--socket"), help.contains("--socket"), "{args:?}: {told}");
        let words = told.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        for option in words.filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{} is told of {option}, which it does not have: {told}", args[0]);
        }
    }
    store.close().unwrap();
}
