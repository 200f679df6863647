//! `claimdb explore`, run as users run it.
#![cfg(feature = "explore")]

use regex::Regex;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

fn explore(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimdb"));
    command.arg("explore").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    explore(args).output().expect("the command can be started")
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("it is UTF-8")
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("it is UTF-8")
}

fn found(args: &[&str]) -> Value {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(out(&output).lines().count(), 1, "{}", err(&output));
    let found: Value = serde_json::from_str(out(&output)).expect("it is JSON");
    let code = if found["holds"] == true { 0 } else { 5 };
    assert_eq!(output.status.code(), Some(code), "{}", err(&output));
    found
}

/// What is broken, and by how many steps at the shortest.
fn broken(found: &Value) -> Vec<(&str, usize)> {
    let promises = found["promises"].as_array().expect("it is a list");
    let broken = promises.iter().filter(|promise| promise["holds"] == false);
    broken
        .map(|promise| {
            let trace = promise["trace"].as_array().expect("what is broken has a run");
            let name = promise["promise"].as_str().expect("it is text");
            let last = trace.last().expect("nothing is broken at the start");
            let breaks = last["breaks"].as_array().expect("it is a list");
            assert!(breaks.contains(&name.into()), "{name} is not broken by the last step: {last}");
            (name, trace.len())
        })
        .collect()
}

#[test]
fn the_protocol_keeps_its_promises_in_every_run() {
    for (args, states) in [(["--crashes", "0"], 3358), (["--crashes", "1"], 43280)] {
        let found = found(&args);
        assert_eq!(broken(&found), [], "{found}");
        assert_eq!(found["states"], states, "the model is another one");
        let promises = found["promises"].as_array().expect("it is a list");
        assert!(promises.len() == 10 && promises.iter().all(|promise| promise["holds"] == true), "{found}");
        let example = found["example"].as_array().expect("there is one");
        assert!(example.iter().any(|step| step["text"] == "was paid before: here is A's receipt"), "{found}");
    }
}

#[test]
fn each_broken_protocol_is_found_by_the_promise_that_it_breaks() {
    let card = "card charged once";
    let cases: [(&str, &[(&str, usize)]); 10] = [
        (
            "naive",
            &[
                ("P1 one holder", 4),
                ("P4 durable before told", 5),
                ("P7 mismatch is harmless", 5),
                ("P8 remembered", 7),
                (card, 4),
            ],
        ),
        ("token-per-key", &[("P2 ordered tokens", 13)]),
        ("unfenced", &[("P3 fenced", 16), ("P8 remembered", 17), (card, 16)]),
        ("ack-early", &[("P4 durable before told", 5), ("P8 remembered", 16), (card, 14)]),
        ("impatient", &[("P5 no early takeover", 12)]),
        ("no-lease", &[("P6 never stuck", 9)]),
        ("unchecked", &[("P7 mismatch is harmless", 10)]),
        ("lock-only", &[("P8 remembered", 17), (card, 17)]),
        (
            "fail-open",
            &[
                ("P1 one holder", 8),
                ("P4 durable before told", 7),
                ("P8 remembered", 11),
                ("P9 fail closed", 2),
                (card, 10),
            ],
        ),
        ("careless", &[(card, 15)]),
    ];
    for (protocol, expected) in cases {
        let found = found(&["--protocol", protocol]);
        assert_eq!(broken(&found), expected, "{protocol}");
        assert_eq!(
            (&found["protocol"], &found["clients"], &found["crashes"]),
            (&protocol.into(), &2.into(), &1.into())
        );
    }
}

/// Compares with a file that `CLAIMDB_BLESS=1` writes anew.
#[track_caller]
fn assert_golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("CLAIMDB_BLESS").is_some() {
        std::fs::write(&path, text).expect("the file can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("it is there");
    assert!(text == golden, "{name} is another one now:\n{text}");
}

#[test]
fn a_newcomer_is_shown_how_the_card_is_charged_twice_and_how_once() {
    let naive = run(&["--protocol", "naive"]);
    assert_eq!(naive.status.code(), Some(5), "{}", err(&naive));
    assert!(err(&naive).contains("error: exploring naive: broken: P1 one holder"), "{}", err(&naive));
    assert_golden("explore_naive.txt", out(&naive));
    let claim = run(&["--width", "100"]);
    assert_eq!((claim.status.code(), err(&claim)), (Some(0), ""));
    assert_golden("explore_claim.txt", out(&claim));
}

#[test]
fn a_promise_that_holds_is_said_to_and_may_be_written_as_the_documents_do() {
    let output = run(&["--protocol", "claim", "--promise", "P3"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output), "nothing breaks P3 fenced here, so nothing is drawn\n");
}

#[test]
fn a_drawing_keeps_to_its_width() {
    for width in [60, 73, 80, 200] {
        let output = run(&["--protocol", "naive", "--promise", "p8", "--width", &width.to_string()]);
        let widest = out(&output).lines().map(|line| line.chars().count()).max().expect("there are lines");
        assert!(widest <= width, "{widest} columns of {width}: {}", out(&output));
        assert!(out(&output).contains("✗ P8 remembered is broken"), "{}", out(&output));
    }
}

#[test]
fn the_picture_stands_on_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("naive.svg");
    let output = run(&["--protocol", "naive", "--svg", file.to_str().expect("it is UTF-8")]);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    let svg = std::fs::read_to_string(file).expect("it is there");
    let tree = roxmltree::Document::parse(&svg).expect("it is well-formed");
    let root = tree.root_element();
    assert_eq!(
        (root.tag_name().name(), root.tag_name().namespace()),
        ("svg", Some("http://www.w3.org/2000/svg"))
    );
    let texts: Vec<_> =
        root.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
    for wanted in ["client A", "client B", "disk", "card", "charges AGAIN", "✗ the card is charged twice"] {
        assert!(texts.contains(&wanted), "{wanted} is not in {texts:?}");
    }
    let links =
        root.descendants().flat_map(|node| node.attributes()).filter(|of| of.name() == "href").count();
    assert_eq!((links, svg.matches("url(").count()), (0, 0), "it needs something else");
    let size = |name| root.attribute(name).and_then(|size| size.parse::<f64>().ok()).expect("it is a number");
    for node in root.descendants() {
        for (place, bound) in
            [("x", "width"), ("x1", "width"), ("x2", "width"), ("y", "height"), ("y2", "height")]
        {
            let Some(at) = node.attribute(place) else { continue };
            let at: f64 = at.parse().expect("it is a number");
            assert!((0.0..=size(bound)).contains(&at), "{place} {at} is outside of the picture");
        }
    }
}

#[test]
fn wrong_use_is_told_by_its_exit_code() {
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--protocol", "hope"], 2, "ack-early"),
        (&["--clients", "1"], 2, "2..=4"),
        (&["--clients", "5"], 2, "2..=4"),
        (&["--crashes", "4"], 2, "0..=3"),
        (&["--promise", "p10"], 2, "p9"),
        (&["--width", "10"], 2, "60"),
        (&["--serve", "3000", "--json"], 2, "--json"),
    ];
    for (args, code, told) in cases {
        let output = run(args);
        assert_eq!((output.status.code(), out(&output)), (Some(code), ""), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(told), "{args:?}: {}", err(&output));
    }
}

#[test]
fn what_was_found_is_told_though_the_picture_cannot_be_drawn() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let there = folder.path().join("there.svg");
    let path = |path: &std::path::Path| path.to_str().expect("it is UTF-8").to_owned();
    for (protocol, args, code, told) in [
        ("naive", vec!["--svg".to_owned(), "/dev/full".to_owned()], 1, "give --svg a file"),
        (
            "claim",
            vec!["--promise".to_owned(), "p1".to_owned(), "--svg".to_owned(), path(&there)],
            2,
            "nothing breaks",
        ),
    ] {
        let mut all = vec!["--crashes", "0", "--protocol", protocol];
        all.extend(args.iter().map(String::as_str));
        let output = run(&all);
        assert_eq!(output.status.code(), Some(code), "{all:?}: {}", err(&output));
        assert!(err(&output).contains(told), "{all:?}: {}", err(&output));
        assert!(out(&output).contains("P1 one holder"), "{all:?}: what was found is lost: {}", out(&output));
    }
    assert!(!there.exists());
}

/// What can be known before the search is told before it.
#[test]
fn a_picture_that_cannot_have_its_place_is_refused_before_the_search() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = |path: &std::path::Path| path.to_str().expect("it is UTF-8").to_owned();
    let (nowhere, here) = (path(&folder.path().join("no/such.svg")), path(folder.path()));
    std::fs::write(folder.path().join("file"), "").expect("the folder is writable");
    let below_a_file = path(&folder.path().join("file/such.svg"));
    for (args, told) in [
        (vec!["--svg", &nowhere], "there is no folder"),
        (vec!["--svg", &below_a_file], "file is no folder; give another file"),
        (vec!["--svg", &here], "that is a folder"),
        (vec!["--svg", "-", "--json"], "give --svg a file, or leave --json out"),
    ] {
        let all = [&["--protocol", "naive"], args.as_slice()].concat();
        let output = run(&all);
        assert_eq!((output.status.code(), out(&output)), (Some(2), ""), "{all:?}: {}", err(&output));
        assert!(err(&output).contains(told), "{all:?}: {}", err(&output));
    }
}

#[test]
fn a_picture_may_be_standard_output_alone() {
    let output = run(&["--protocol", "naive", "--svg", "-"]);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    assert!(roxmltree::Document::parse(out(&output)).is_ok(), "more than a picture: {}", out(&output));
    assert!(err(&output).contains("broken: P1 one holder"), "{}", err(&output));
    assert!(!std::path::Path::new("-").exists(), "a file is called -");
}

/// A run is about two pieces of work or two holders: whose a write is, and whose receipt is told, is what it shows.
#[test]
fn a_drawing_says_whose_work_and_whose_write_it_is() {
    for (args, wanted) in [
        (
            ["--protocol", "naive", "--promise", "p7"],
            ["reads order-42, for other work: paid by A", "was paid before: here is A's receipt"],
        ),
        (
            ["--protocol", "unfenced", "--promise", "p3"],
            ["writes for A: paid by A, token 2", "writes for B: pending"],
        ),
    ] {
        let drawn = run(&args);
        for wanted in wanted {
            assert!(out(&drawn).contains(wanted), "{wanted} is not in: {}", out(&drawn));
        }
    }
}

#[test]
fn the_explorer_listens_on_the_loopback_interface() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let port = taken.local_addr().expect("it has an address").port();
    let output = run(&["--serve", &port.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("give --serve another port"), "{}", err(&output));
    drop(taken);

    // With 0, the system chooses.
    for asked in [port, 0] {
        let mut command = explore(&["--protocol", "naive", "--serve", &asked.to_string()]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command can be started");
        let mut line = String::new();
        let told = BufReader::new(child.stderr.take().expect("it is piped")).read_line(&mut line);
        assert!(told.is_ok(), "{line}");
        let port = line.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.split('/').next());
        let port: u16 =
            port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no port in {line}"));
        assert!(port == asked || asked == 0 && port > 0, "{line}");
        // It says so just before it listens.
        let connected = (0..2_000_000).find_map(|_| {
            assert!(child.try_wait().expect("it is a child").is_none(), "it has ended");
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        let Some(mut connection) = connected else {
            child.kill().expect("it runs");
            panic!("nobody listens where it says: {line}")
        };
        let mut answer = String::new();
        connection
            .write_all(b"GET /.status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it listens");
        connection.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("P1 one holder"), "{answer}");
        // Only there: another address of the same machine finds nobody.
        assert!(TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), port)).is_err(), "it listens elsewhere too");
        child.kill().expect("it runs");
        child.wait().expect("it is a child");
    }
}

/// Each row of the guide's table of mends draws the run that breaks the promise it names.
#[test]
fn what_the_guide_says_to_run_draws_the_promise_that_it_names() {
    let guide = include_str!("../docs/guides/check-then-act.md");
    let mut seen = 0;
    for row in guide.lines().filter(|line| line.starts_with("| ") && line.contains("`--protocol ")) {
        let options =
            row.split('`').find(|part| part.starts_with("--protocol ")).expect("it has just been found");
        let promise =
            row.rsplit("`: ").next().and_then(|rest| rest.split(' ').next()).expect("split gives a part");
        let output = run(&options.split(' ').collect::<Vec<_>>());
        let title = out(&output).lines().find(|line| line.starts_with("The shortest way"));
        let named = Regex::new(&format!(r"✗ {promise} \w+")).expect("it is a pattern");
        assert!(title.is_some() && named.is_match(out(&output)), "{row}: {}", out(&output));
        assert!(
            options.ends_with(&format!("--promise {}", promise.to_lowercase())),
            "what is drawn may be another promise: {row}"
        );
        seen += 1;
    }
    assert_eq!(seen, 5, "the rows are not found");
}
