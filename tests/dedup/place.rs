//! Running the command, and what it is given.

use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder with a store and files.
pub struct Place(pub TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), content).expect("the folder can be written to");
        self.path(name)
    }

    pub fn dedup(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimdb"));
        command.arg("dedup").arg("--store").arg(self.path("store")).args(args).stdin(Stdio::null());
        command
    }

    /// Runs it over a file.
    pub fn over(&self, file: &Path, args: &[&str]) -> Ended {
        Ended::of(self.dedup(args).arg(file))
    }

    /// Runs it over standard input.
    pub fn fed(&self, input: &[u8], args: &[&str]) -> Ended {
        self.over(&self.file("fed", input), args)
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Ended {
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the command can be started");
        let err = String::from_utf8(output.stderr).expect("messages are UTF-8");
        Self { code: output.status.code(), out: output.stdout, err }
    }

    #[track_caller]
    pub fn wrote(&self, expected: &[u8]) {
        assert_eq!(self.code, Some(0), "{}", self.err);
        assert_same(&self.out, expected);
    }

    /// The summary of `--json`.
    pub fn summary(&self) -> Value {
        let line = self.err.lines().find(|line| line.starts_with('{')).expect("there is a summary");
        serde_json::from_str(line).expect("the summary is JSON")
    }
}

#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8]) {
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        found == expected,
        "{} bytes were written and {} expected; they differ at {differ:?}",
        found.len(),
        expected.len()
    );
}

/// What `awk '!seen[$0]++'` writes.
pub fn first_seen(input: &[u8]) -> Vec<u8> {
    let mut seen = HashSet::new();
    let body = input.strip_suffix(b"\n").unwrap_or(input);
    let lines = body.split(|byte| *byte == b'\n').filter(|line| seen.insert(*line));
    if input.is_empty() { Vec::new() } else { lines.flat_map(|line| [line, b"\n"].concat()).collect() }
}

pub fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Repeatable and unlike any other run with another seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Lines of some 100 bytes, three in ten of which were there before.
pub fn made_up(count: u64) -> Vec<u8> {
    let mut numbers = Numbers(1);
    let mut made = Vec::new();
    let mut fresh = 0;
    for _ in 0..count {
        let repeated = fresh > 0 && numbers.below(10) < 3;
        let id = if repeated { numbers.below(fresh) } else { fresh };
        fresh += u64::from(!repeated);
        made.extend_from_slice(format!("{id:-<100}\n").as_bytes());
    }
    made
}
