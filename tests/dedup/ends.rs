//! Files that end within a line, as a run that is killed or meets a full disk can leave them.

use crate::place::{Ended, Place};
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::process::Stdio;

/// Runs it over `input`, with its output behind what the file `out` has, and gives how it ended and what is there then.
fn behind(place: &Place, there: &[u8], appends: bool, input: &[u8], args: &[&str]) -> (Ended, Vec<u8>) {
    let (out, input) = (place.file("out", there), place.file("input", input));
    let mut file = OpenOptions::new().append(appends).write(true).open(&out).expect("it can be written");
    if !appends {
        file.seek(SeekFrom::End(0)).expect("a file has a place");
    }
    let ended = Ended::of(place.dedup(args).arg(input).stdout(Stdio::from(file)));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    (ended, fs::read(out).expect("it can be read"))
}

#[test]
fn a_line_that_was_cut_does_not_run_into_the_next() {
    let cases: [(&[u8], &[u8], bool); 6] = [
        (b"", b"a\nb\n", false),
        (b"x\n", b"x\na\nb\n", false),
        (b"\n", b"\na\nb\n", false),
        (b"x\npar", b"x\npar\na\nb\n", true),
        (b"p", b"p\na\nb\n", true),
        (b"\0", b"\0\na\nb\n", true),
    ];
    for (there, expected, told) in cases {
        for appends in [true, false] {
            // In one batch, and in one for each line, of which none but the first begins behind what was there.
            for batch in ["8192", "1"] {
                let place = Place::new();
                let (ended, wrote) = behind(&place, there, appends, b"a\nb\na\n", &["--batch", batch]);
                let what = format!(
                    "behind {:?}, appends {appends}, batch {batch}",
                    there.escape_ascii().to_string()
                );
                assert_eq!(wrote.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{what}");
                let warned = ended.err.contains("warning: standard output ended within a line");
                assert_eq!(warned, told, "{what}: {}", ended.err);
            }
        }
    }
}

/// A run that was killed has written a part of a line, whose key it had not recorded.
#[test]
fn a_line_that_was_cut_comes_again_whole() {
    let lines = "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n";
    let before = &lines[..18];
    for cut in 1..9 {
        let place = Place::new();
        place.fed(before.as_bytes(), &["--key", "/id"]).wrote(before.as_bytes());
        let there = &lines[..18 + cut];
        let (_, wrote) = behind(&place, there.as_bytes(), true, lines.as_bytes(), &["--key", "/id"]);
        let wrote = String::from_utf8(wrote).unwrap();
        let whole: Vec<&str> = wrote.lines().filter(|line| line.ends_with('}')).collect();
        let expected: Vec<&str> = lines.lines().collect();
        let twice = usize::from(cut == 8); // all of it was there but its end
        assert_eq!(whole[..3], expected, "after {cut} bytes of it: {wrote}");
        assert_eq!(whole.len(), 3 + twice, "after {cut} bytes of it: {wrote}");
    }
}

#[test]
fn where_nothing_is_written_nothing_is_ended() {
    let place = Place::new();
    place.fed(b"a\n", &[]).wrote(b"a\n");
    let (ended, wrote) = behind(&place, b"par", true, b"a\n", &[]);
    assert_eq!(wrote, b"par");
    assert!(!ended.err.contains("warning"), "{}", ended.err);
}

#[test]
fn rejects_are_ended_as_well() {
    let place = Place::new();
    let rejects = place.file("rejects", "cu");
    let ended =
        place.fed(b"bad\n{\"id\":1}\nworse\n", &["--key", "/id", "--rejects", rejects.to_str().unwrap()]);
    ended.wrote(b"{\"id\":1}\n");
    assert_eq!(fs::read(&rejects).unwrap(), b"cu\nbad\nworse\n");
    assert!(ended.err.contains("rejects ended within a line"), "{}", ended.err);
}
