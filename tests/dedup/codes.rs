//! Exit codes and messages.

use crate::place::{Ended, Place};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn a_locked_store_is_told_by_its_exit_code() {
    let place = Place::new();
    let store = claimdb::Store::open(place.path("store")).unwrap();
    let ended = place.fed(b"a\n", &[]);
    assert_eq!((ended.code, ended.out.len()), (Some(3), 0), "{}", ended.err);
    let process = format!("process {}", std::process::id());
    assert!(ended.err.contains("locked") && ended.err.contains(&process), "{}", ended.err);
    store.close().unwrap();
    place.fed(b"a\n", &[]).wrote(b"a\n");
}

#[test]
fn a_damaged_store_is_told_by_its_exit_code() {
    let place = Place::new();
    place.fed(b"a\n", &[]).wrote(b"a\n");
    let format = place.path("store").join("format");
    let sound = fs::read(&format).unwrap();
    fs::write(&format, "scribble").unwrap();
    let ended = place.fed(b"b\n", &[]);
    assert_eq!((ended.code, ended.out.len()), (Some(4), 0), "{}", ended.err);
    assert!(ended.err.contains("damaged"), "{}", ended.err);
    fs::write(&format, sound).unwrap();
    place.fed(b"a\nb\n", &[]).wrote(b"b\n");
}

#[test]
fn wrong_use_is_told_by_its_exit_code_and_touches_nothing() {
    let place = Place::new();
    let cases: [(&[&str], &str); 10] = [
        (&["--retain", "24"], "unit"),
        (&["--retain", "h"], "from 1s"),
        (&["--retain", "0s"], "from 1s"),
        (&["--retain", "1.5h"], "whole number"),
        (&["--retain", "99999999999999999999d"], "from 1s"),
        (&["--key", "id"], "/id"),
        (&["--key", "/a~2"], "~0"),
        (&["--threads", "0"], "--threads"),
        (&["--batch", "0"], "--batch"),
        (&["--what"], "--what"),
    ];
    for (args, told) in cases {
        let ended = place.fed(b"a\n", args);
        assert_eq!((ended.code, ended.out.len()), (Some(2), 0), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
    }
    let input = place.file("input", "not json\n");
    let name = input.to_str().unwrap();
    let ended = place.over(&input, &["--key", "/id", "--rejects", name]);
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert_eq!(fs::read(&input).unwrap(), b"not json\n");
    assert!(!place.path("store").exists());

    let bare = Ended::of(&mut Command::new(env!("CARGO_BIN_EXE_claimdb")));
    assert!(bare.err.contains("Usage: claimdb") && bare.err.contains("dedup"), "{}", bare.err);
    let help = Ended::of(place.dedup(&[]).arg("--help"));
    assert!(help.code == Some(0) && String::from_utf8_lossy(&help.out).contains("Examples:"));
}

#[test]
fn an_input_that_is_not_there_is_told_and_no_store_is_made() {
    let place = Place::new();
    let ended = place.over(&place.path("nowhere.jsonl"), &[]);
    assert_eq!((ended.code, ended.out.len()), (Some(1), 0));
    assert!(ended.err.contains("nowhere.jsonl") && ended.err.contains("No such file"), "{}", ended.err);
    assert!(!place.path("store").exists());
    let folder = place.over(place.0.path(), &[]);
    assert_eq!(folder.code, Some(1), "{}", folder.err);
    assert!(folder.err.contains("directory"), "{}", folder.err);
}

#[test]
fn an_output_that_cannot_be_written_fails_and_records_nothing() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let place = Place::new();
    let file = place.file("input", "a\nb\n");
    let ended = Ended::of(place.dedup(&[]).arg(&file).stdout(Stdio::from(full)));
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("writing to standard output"), "{}", ended.err);
    place.over(&file, &[]).wrote(b"a\nb\n");
}

#[test]
fn a_closed_standard_output_is_refused_before_anything_is_recorded() {
    let place = Place::new();
    let (input, store) = (place.file("input", "a\nb\n"), place.path("store"));
    let shell = "exec \"$0\" dedup --store \"$1\" \"$2\" >&-";
    let mut command = Command::new("sh");
    command.args(["-c", shell, env!("CARGO_BIN_EXE_claimdb")]).args([&store, &input]);
    let ended = Ended::of(&mut command);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("closed"), "{}", ended.err);
    place.over(&input, &[]).wrote(b"a\nb\n");
}

/// A job without input would be told for ever that there was nothing new.
#[test]
fn a_closed_standard_input_is_refused_before_a_store_is_made() {
    let place = Place::new();
    let store = place.path("store");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" dedup --store \"$1\" <&-", env!("CARGO_BIN_EXE_claimdb")]).arg(&store);
    let ended = Ended::of(&mut command);
    assert_eq!(
        ended.code,
        Some(1),
        "P9 fail closed: no input at all is taken for an empty one: {}",
        ended.err
    );
    assert!(ended.err.contains("opening the input standard input: it is closed"), "{}", ended.err);
    assert!(!store.exists(), "a store was made");
}

#[test]
fn a_line_that_is_no_json_is_told_with_its_number_and_what_is_wrong() {
    let cases = [
        ("nope", "a word that is none of true, false and null (column 2)"),
        ("hello", "expected value (column 1)"),
        ("{\"id\":1", "EOF while parsing an object (column 7)"),
        ("{id:1}", "a name is to be text in double quotes (column 2)"),
        ("", "the line is empty"),
    ];
    for (line, told) in cases {
        let ended = Place::new().fed(format!("{{\"id\":1}}\n{line}\n").as_bytes(), &["--key", "/id"]);
        assert_eq!((ended.code, ended.out.as_slice()), (Some(1), &b"{\"id\":1}\n"[..]), "{}", ended.err);
        for words in ["error: line 2 has no key: ", told, "--rejects FILE", "without --key"] {
            assert!(ended.err.contains(words), "{line}: no {words:?} in: {}", ended.err);
        }
    }
}
