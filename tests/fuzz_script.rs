//! `fuzz/run.sh`: what it is given wrongly is told at once, and not fuzzed for ever.
#![cfg(not(any(loom, shuttle)))]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the script where `cargo` does nothing but fail, so that nothing is built.
fn run(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let cargo = folder.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\nexit 1\n").expect("the folder is writable");
    fs::set_permissions(&cargo, Permissions::from_mode(0o755)).expect("the file is there");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/run.sh");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.path().display());
    Command::new("bash").arg(script).args(args).env("PATH", path).output().expect("bash is there")
}

#[test]
fn what_is_no_number_of_seconds_or_no_target_is_refused() {
    for (args, told) in [
        (
            vec!["record"],
            "fuzzing for 'record' seconds: that is no number above 0; give the seconds, and then",
        ),
        (vec!["0"], "fuzzing for '0' seconds"),
        (vec!["20s"], "fuzzing for '20s' seconds"),
        (vec!["20", "recrod"], "fuzzing 'recrod': there is no such target, but record value"),
    ] {
        let output = run(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?} is fuzzed, which may not end: {said}");
        assert!(said.contains(told), "{args:?}: {said}");
    }
    assert_eq!(run(&["20", "record", "canary"]).status.code(), Some(1), "it builds");
}
