//! `claimdb dedup`'s way from a file to the keys of its lines, beside plain ways to the same.
#![no_main]

#[allow(dead_code)] // the command's, of which only reading is fuzzed
#[path = "../../src/bin/claimdb/failure.rs"]
mod failure;
#[allow(dead_code)]
#[path = "../../src/bin/claimdb/dedup/input.rs"]
mod input;
#[allow(dead_code)]
#[path = "../../src/bin/claimdb/out.rs"]
mod out;
#[allow(dead_code)]
#[path = "../../src/bin/claimdb/dedup/pointer.rs"]
mod pointer;

use arbitrary::Arbitrary;
use input::Input;
use libfuzzer_sys::fuzz_target;
use pointer::{Pointer, Scalar};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Arbitrary)]
struct Case<'a> {
    batch: u8,
    pointer: &'a str,
    lines: &'a [u8],
}

fuzz_target!(|case: Case<'_>| {
    let batch = usize::from(case.batch).max(1);
    let expected: Vec<&[u8]> = match case.lines.strip_suffix(b"\n") {
        _ if case.lines.is_empty() => Vec::new(),
        Some(lines) => lines.split(|byte| *byte == b'\n').collect(),
        None => case.lines.split(|byte| *byte == b'\n').collect(),
    };
    assert_eq!(read(case.lines, batch), expected, "other lines than the file has");
    let Ok(pointer) = case.pointer.parse::<Pointer>() else {
        assert!(case.pointer.contains('~') || !case.pointer.starts_with('/'), "refused: {:?}", case.pointer);
        return;
    };
    for line in expected {
        compare(&pointer, case.pointer, line);
    }
});

/// The lines of a file with these `bytes`, read by batches.
fn read(bytes: &[u8], batch: usize) -> Vec<Vec<u8>> {
    let file = rustix::fs::memfd_create("lines", rustix::fs::MemfdFlags::CLOEXEC).expect("memory has files");
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).expect("memory takes writes");
    let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
    let mut input = Input::open(Some(&path), batch).expect("it can be read");
    let (mut lines, mut covered) = (Vec::new(), 0);
    while let Some(batch_read) = input.next_batch().expect("it can be read") {
        assert!((1..=batch).contains(&batch_read.len()), "a batch of {} lines", batch_read.len());
        assert_eq!(batch_read.number, lines.len() as u64 + 1, "a line is numbered wrongly");
        covered += batch_read.length;
        lines.extend((0..batch_read.len()).map(|index| batch_read.line(index).to_vec()));
    }
    assert_eq!(covered, bytes.len() as u64, "bytes of the input are in no batch");
    lines
}

/// Compares what `pointer` finds with what serde_json finds in the whole document.
fn compare(pointer: &Pointer, text: &str, line: &[u8]) {
    let found = pointer.find(line);
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(line) else {
        assert!(
            found.is_err() || line.is_empty() || !text.is_empty() || is_beyond(line),
            "{found:?} is not JSON"
        );
        return;
    };
    match (found, document.pointer(text)) {
        (Ok(Scalar::String(found)), Some(value)) => assert_eq!(Some(found.as_str()), value.as_str()),
        (Ok(Scalar::Boolean(found)), Some(value)) => assert_eq!(Some(found), value.as_bool()),
        (Ok(Scalar::Number(found)), Some(value)) => {
            assert!(value.is_number());
            assert_eq!(serde_json::from_str::<serde_json::Value>(found).ok().as_ref(), Some(value));
        }
        (Err(_), None) => {}
        (Err(_), Some(value)) => {
            assert!(value.is_null() || value.is_object() || value.is_array(), "a key was not found: {value}");
        }
        (Ok(found), None) => panic!("{found:?} was found where nothing is"),
    }
}

/// serde_json refuses numbers beyond its own range and deep nesting; what is kept as written has no such bounds.
fn is_beyond(line: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(line).is_ok()
}
