//! The examples that documents show of the command line, run as they stand there: each shows what comes out.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "command/place.rs"]
#[allow(dead_code)] // each test file uses a part
mod place;

use claimdb::admin::Server;
use place::{Place, Service};
use regex::{Captures, Regex};
use snapbox::{Redactions, assert_data_eq};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A command that a document shows, and what it says comes out.
struct Example {
    line: usize,
    command: String,
    shown: String,
}

fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for (line, text) in document.lines().enumerate() {
        match text {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (text.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => {
                    examples.push(Example {
                        line: line + 1,
                        command: command.to_owned(),
                        shown: String::new(),
                    });
                }
                (None, Some(example)) => example.shown += &format!("{text}\n"),
                (None, None) => panic!("line {}: what comes out of no command", line + 1),
            },
        }
    }
    examples
}

/// What differs from run to run: tokens, hashes, times, processes.
fn redactions() -> Redactions {
    let mut redactions = Redactions::new();
    let patterns = [
        ("[HASH]", r"key#(?<redacted>[0-9a-f]{12})"),
        ("[TOKEN]", r"(?<redacted>\b1[0-9]{15}\b)"),
        ("[TIME]", r"(?<redacted>\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)"),
        ("[SPAN]", r"(?<redacted> +[0-9.]+(ms|s|m|h|d)\b)"),
        ("[PROCESS]", r"process (?<redacted>[0-9]+)"),
        ("[MS]", r#"_ms":(?<redacted>[0-9]+)"#),
    ];
    for (name, pattern) in patterns {
        redactions.insert(name, Regex::new(pattern).unwrap()).unwrap();
    }
    redactions
}

/// `shown` with the sizes that came out, where those that it shows are about as large: an engine's files differ by a little
/// from run to run.
fn with_sizes_of(out: &str, shown: &str) -> String {
    let sizes = Regex::new(r"[0-9]+ (?:bytes|after)").unwrap();
    let number = |size: &str| size.split(' ').next().unwrap().parse::<f64>().unwrap();
    let mut out = sizes.find_iter(out).map(|size| size.as_str());
    let about = sizes.replace_all(shown, |size: &Captures<'_>| match out.next() {
        Some(out) if (number(out) - number(&size[0])).abs() <= number(out) / 20.0 => out.to_owned(),
        _ => size[0].to_owned(),
    });
    about.into_owned()
}

/// Runs the examples of `document`, in order and in one folder. With SNAPSHOTS=overwrite, what comes out is written there.
fn play(document: &str) -> usize {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(&file).unwrap();
    let place = Place::new();
    let service = Service::start(&place, Server::new());
    let bin = Path::new(env!("CARGO_BIN_EXE_claimdb")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let folder = format!("{}/", place.0.path().canonicalize().unwrap().display());
    let overwrite = std::env::var("SNAPSHOTS").is_ok_and(|how| how == "overwrite");
    let (redactions, examples, mut written) = (redactions(), examples(&text), text.clone());
    for Example { line, command, shown } in &examples {
        let mut shell = Command::new("sh");
        let command_line = format!("exec 2>&1 </dev/null; {command}");
        shell.args(["-c", &command_line]).current_dir(place.0.path()).env("PATH", &path);
        let out =
            String::from_utf8(shell.output().unwrap().stdout).unwrap().replace(&folder, "/var/lib/shop/");
        let head = format!("{document}, line {line}: {command}\n");
        let (same_shown, same_out) =
            (redactions.redact(&with_sizes_of(&out, shown)), redactions.redact(&out));
        if overwrite && same_shown != same_out {
            written = written.replacen(&format!("$ {command}\n{shown}"), &format!("$ {command}\n{out}"), 1);
        } else {
            assert_data_eq!(head.clone() + &same_out, head + &same_shown);
        }
    }
    if written != text {
        fs::write(file, written).unwrap();
    }
    drop(service);
    println!("{document}: {} examples", examples.len());
    examples.len()
}

#[test]
fn what_the_command_line_document_shows_is_what_comes_out() {
    assert!(play("docs/command-line.md") >= 15, "the examples are not found");
}

#[test]
fn what_the_operations_document_shows_is_what_comes_out() {
    assert!(play("docs/operations.md") >= 4, "the examples are not found");
}

#[cfg(feature = "explore")]
#[test]
fn what_the_guide_shows_of_the_protocols_is_what_comes_out() {
    assert!(play("docs/guides/check-then-act.md") >= 3, "the examples are not found");
}
