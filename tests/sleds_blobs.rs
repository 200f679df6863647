//! Files that sled makes beside its log and never syncs: whose they are when a sync finds them half written (rule 6).
#![cfg(all(not(loom), feature = "sled", target_os = "linux"))] // real files
#![allow(clippy::unwrap_used)] // tests play the caller

use claimdb::backend::{Backend, Sled};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

/// sled takes a place in its log, makes the file, and writes it: a sync of another thread's can come in between. Each sync of
/// such a file closes it to others as well, which shows that there was one.
#[test]
fn a_file_that_was_still_being_written_is_synced_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Sled::new(folder.path()).open().unwrap();
    engine.sync().unwrap();
    let blob = folder.path().join("sled/blobs/4711");
    let is_synced_again = || {
        fs::set_permissions(&blob, Permissions::from_mode(0o644)).unwrap();
        engine.sync().unwrap();
        fs::metadata(&blob).unwrap().permissions().mode() & 0o777 == 0o600
    };
    fs::write(&blob, b"").unwrap();
    assert!(is_synced_again(), "P4 durable before told: a new file in `blobs/` is not synced");
    fs::write(&blob, b"all of it").unwrap();
    assert!(
        is_synced_again(),
        "P4 durable before told: what was half written when it was found is not synced"
    );
    // The flush before that has waited for whoever wrote it.
    assert!(!is_synced_again(), "what is durable is synced for ever");
}
