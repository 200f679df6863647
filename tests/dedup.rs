//! `claimdb dedup`, run as users run it.
#![cfg(feature = "cli")]

#[path = "dedup/codes.rs"]
mod codes;
#[path = "dedup/ends.rs"]
mod ends;
#[path = "dedup/keys.rs"]
mod keys;
#[path = "dedup/place.rs"]
mod place;
#[path = "dedup/stops.rs"]
mod stops;
#[path = "dedup/stores.rs"]
mod stores;

use place::{Numbers, Place, assert_same, first_seen, lines, made_up};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/github-webhooks-sample.jsonl");
const SAMPLE_LINES: u64 = 82;
const SAMPLE_DISTINCT: u64 = 46;

#[test]
fn the_first_run_writes_what_awk_would_and_the_second_nothing() {
    let sample = fs::read(SAMPLE).unwrap();
    let expected = first_seen(&sample);
    let distinct =
        sample.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect::<HashSet<_>>();
    assert_eq!((lines(&sample).len() as u64, distinct.len() as u64), (SAMPLE_LINES, SAMPLE_DISTINCT));
    assert_eq!(lines(&expected).len() as u64, SAMPLE_DISTINCT);

    let place = Place::new();
    let first = place.over(Path::new(SAMPLE), &["--json"]);
    first.wrote(&expected);
    let summary = first.summary();
    let count = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"));
    assert_eq!(count("lines"), SAMPLE_LINES);
    assert_eq!(count("first_seen"), SAMPLE_DISTINCT);
    assert_eq!(count("duplicates"), SAMPLE_LINES - SAMPLE_DISTINCT);
    assert_eq!((count("rejected"), count("batch")), (0, 8192));
    let (seconds, rate) =
        (summary["seconds"].as_f64().unwrap(), summary["lines_per_second"].as_f64().unwrap());
    assert!(seconds > 0.0 && (rate * seconds - 82.0).abs() < 0.01, "{summary}");
    assert_eq!(summary.as_object().unwrap().len(), 7, "{summary}");

    let second = place.over(Path::new(SAMPLE), &[]);
    second.wrote(b"");
    assert!(second.err.contains("82 lines: 0 first seen, 82 duplicates, 0 rejected"), "{}", second.err);
    assert!(second.err.contains("at most 8192 lines in flight"), "{}", second.err);
}

#[test]
fn threads_and_batches_change_nothing() {
    let input = made_up(4_000);
    let expected = first_seen(&input);
    for batch in ["1", "7", "1000"] {
        // With a batch of one there is a sync for each line, and a few lines tell as much.
        let some = if batch == "1" { 400 } else { 4_000 };
        let input: Vec<u8> = lines(&input)[..some].concat();
        let expected = if some == 4_000 { expected.clone() } else { first_seen(&input) };
        for threads in ["1", "2", "8"] {
            let place = Place::new();
            place.fed(&input, &["--threads", threads, "--batch", batch]).wrote(&expected);
            place.fed(&input, &["--threads", threads, "--batch", batch]).wrote(b"");
        }
    }
}

#[test]
fn of_lines_with_one_key_the_first_is_written_whatever_the_threads() {
    let mut numbers = Numbers(5);
    let (mut input, mut expected, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for number in 0..6_000 {
        let id = numbers.below(50) + number / 40;
        let line = format!("{{\"number\":{number},\"id\":{id}}}\n");
        if seen.insert(id) {
            expected.extend_from_slice(line.as_bytes());
        }
        input.extend_from_slice(line.as_bytes());
    }
    for threads in ["1", "2", "8"] {
        let place = Place::new();
        place.fed(&input, &["--key", "/id", "--threads", threads, "--batch", "3000"]).wrote(&expected);
    }
}

#[test]
fn lines_are_bytes() {
    let cases: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"a\n\nb\n\na", b"a\n\nb\n"),
        (b"no end", b"no end\n"),
        (b"a\r\na\n", b"a\r\na\n"),
        (b"\xff\xfe\n\xff\xfe\n\x00\n", b"\xff\xfe\n\x00\n"),
        (b"\n", b"\n"),
    ];
    for (input, expected) in cases {
        Place::new().fed(input, &[]).wrote(expected);
        assert_same(&first_seen(input), expected);
    }
    let long = [vec![b'x'; 3 << 20], b"\n".to_vec()].concat();
    Place::new().fed(&[long.clone(), long.clone()].concat(), &["--batch", "1"]).wrote(&long);
}

#[test]
fn standard_input_is_read_as_it_comes() {
    let place = Place::new();
    let mut command = place.dedup(&["-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (mut to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut from = BufReader::new(from);
    // Each answer is waited for before the next line is given: nothing may be held back for a fuller batch.
    for line in ["one\n", "two\n", "three\n"] {
        to.write_all(line.as_bytes()).unwrap();
        to.write_all(b"one\n").unwrap();
        let mut answer = String::new();
        from.read_line(&mut answer).unwrap();
        assert_eq!(answer, line);
    }
    drop(to);
    let mut rest = Vec::new();
    from.read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), child.wait().unwrap().code()), (0, Some(0)));
}

#[test]
fn a_key_is_forgotten_after_its_retention() {
    let place = Place::new();
    place.fed(b"a\n", &["--retain", "1s"]).wrote(b"a\n");
    let mut runs = 0_u32; // each takes its time, so that the second passes without waiting for it
    loop {
        let ended = place.fed(b"a\n", &["--retain", "1s"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        if ended.out == b"a\n" {
            break;
        }
        runs += 1;
        assert!(runs < 10_000, "it never came back");
    }
}
