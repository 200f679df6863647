//! How commands end whose output, or whose place for it, is not as it should be.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "command/place.rs"]
#[allow(dead_code)] // each test file uses a part
mod place;

use claimdb::backend::{Backend, Commit, Sled};
use place::{Ended, Place};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes the record of a key one that cannot be read.
fn scribble(place: &Place, key: &str) {
    let engine = Sled::existing(place.path("claims")).open().unwrap();
    let key = [b"\x01\0", key.as_bytes()].concat();
    let stored = engine.read(&key).unwrap();
    let swap = Commit::swap(&key, stored.as_deref(), Some(b"scribble"));
    engine.commit(&[swap]).remove(0).unwrap();
    engine.sync().unwrap();
}

/// The command, with a standard output on which there is no room.
fn with_full_output(place: &Place, args: &[&str]) -> String {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = place.claimdb(args).stdin(std::process::Stdio::null()).stdout(full).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
    assert!(told.contains("error: writing to standard output: "), "{args:?}: {told}");
    told
}

#[test]
fn a_result_that_could_not_be_told_is_said_to_be_done_only_where_something_was_done() {
    let place = Place::new();
    for args in [
        &["list", "--store", "claims"][..],
        &["list", "--store", "claims", "--json"],
        &["stats", "--store", "claims"],
        &["inspect", "--store", "claims", "order-42"],
        &["verify", "claims"],
        &["completions", "bash"],
        &["man", "list"],
    ] {
        let told = with_full_output(&place, args);
        assert!(
            told.contains("then run it again") && !told.contains("is done all the same"),
            "{args:?}: {told}"
        );
    }
    for args in [
        &["release", "--store", "claims", "--yes", "order-42"][..],
        &["resolve", "--store", "claims", "--yes", "--as", "omitted", "--json", "order-43"],
        &["purge", "--store", "claims", "--yes", "--key", "order-41"],
        &["backup", "--store", "claims", "copy"],
        &["migrate", "--from", "sled", "--to", "sled", "claims", "other"],
        &["compact", "claims"],
        &["repair", "--yes", "--json", "claims"],
        &["man", "--into", "pages"],
    ] {
        let told = with_full_output(&place, args);
        assert!(told.contains("is done all the same") && !told.contains("run it again"), "{args:?}: {told}");
    }
    assert!(place.path("copy").exists() && place.path("other").exists() && place.path("pages").exists());
    let left = place.run(&["list", "--store", "claims"]).done();
    assert_eq!(left.lines().count(), 5, "{left}");
}

/// The command, whose standard output nobody reads.
fn unread(place: &Place, args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = place.claimdb(args).stdin(std::process::Stdio::null()).stdout(writer).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_listing_ends_with_its_reader_and_a_verdict_does_not() {
    let place = Place::new();
    scribble(&place, "order-43");
    for args in [&["list", "--store", "claims"][..], &["list", "--store", "claims", "--json"]] {
        // It neither counts to the end nor comes to the damaged record.
        assert_eq!(unread(&place, args), (Some(0), String::new()), "{args:?}: it read on for nobody");
    }
    let (code, told) = unread(&place, &["verify", "claims"]);
    assert_eq!(code, Some(4), "P9 fail closed: damage is told as nothing: {told}");
    let (code, told) = unread(&place, &["inspect", "--store", "claims", "order-99"]);
    assert_eq!(code, Some(6), "{told}");
}

#[test]
fn a_repair_tells_all_its_paths_from_the_root_on() {
    let place = Place::new();
    scribble(&place, "order-43");
    let mut tail = fs::read_to_string(place.path("claims/tail")).unwrap().trim_end().to_owned();
    let digit = if tail.pop() == Some('1') { "2" } else { "1" };
    fs::write(place.path("claims/tail"), format!("{tail}{digit}\n")).unwrap();
    std::os::unix::fs::symlink(place.path("claims"), place.path("link")).unwrap();
    let repaired = place.run(&["repair", "--yes", "--json", "link"]);
    let (advice, told) = (repaired.err.clone(), repaired.json());
    let real = fs::canonicalize(place.path("claims")).unwrap();
    for field in ["aside_in", "tail_in"] {
        let path = Path::new(told[field].as_str().unwrap());
        assert!(path.starts_with(&real) && path.is_file(), "{field}: {told}");
        assert!(advice.contains(&path.display().to_string()), "{field} is another one for people: {advice}");
    }
}

#[test]
fn no_command_writes_into_a_stores_folder() {
    let place = Place::new();
    let refused = |args: &[&str], made: &str| {
        let ended: Ended = place.run(args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{args:?}: {}", ended.err);
        let what = "in the folder of the store";
        assert!(ended.err.contains(what) && ended.err.contains("outside of it"), "{args:?}: {}", ended.err);
        assert!(!place.path(made).exists(), "{args:?}: {made} was made");
    };
    refused(&["man", "--into", "claims/pages/man1"], "claims/pages");
    refused(&["bench", "--seconds", "0.01", "--html", "claims/report.html"], "claims/report.html");
    refused(&["bench", "--seconds", "0.01", "--dir", "claims"], "claims/claimdb-bench-");
    #[cfg(feature = "explore")]
    refused(&["explore", "--crashes", "0", "--svg", "claims/sled/naive.svg"], "claims/sled/naive.svg");
    refused(&["backup", "--store", "claims", "claims/copy"], "claims/copy");
    refused(&["migrate", "--from", "sled", "--to", "sled", "claims", "claims/copy"], "claims/copy");
}

/// With a disk on which there is no room: files end after 512 bytes.
fn without_room(place: &Place, args: &[&str]) -> Ended {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_claimdb")]);
    Ended::of(shell.current_dir(place.0.path()).args(args))
}

#[test]
#[cfg_attr(not(feature = "explore"), allow(clippy::single_element_loop))]
fn a_file_that_cannot_be_written_whole_leaves_the_one_before() {
    let place = Place::new();
    fs::create_dir(place.path("made")).unwrap();
    for (args, made) in [
        (&["man", "--into", "made"][..], "made/claimdb.1"),
        #[cfg(feature = "explore")]
        (&["explore", "--crashes", "0", "--svg", "made/claim.svg"], "made/claim.svg"),
    ] {
        let names = || {
            let entries = fs::read_dir(place.path("made")).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let ended = without_room(&place, args);
        assert_eq!(ended.code, Some(1), "{args:?}: {ended:?}");
        assert!(names().is_empty(), "{args:?}: half a file is left: {:?}", names());
        fs::write(place.path(made), "before").unwrap();
        let ended = without_room(&place, args);
        assert!(ended.code == Some(1) && ended.err.contains("File too large"), "{args:?}: {ended:?}");
        let left = fs::read_to_string(place.path(made)).unwrap();
        assert_eq!(left, "before", "{args:?}: the file from before is lost");
        assert_eq!(names().len(), 1, "{args:?}: half a file is left: {:?}", names());
        fs::remove_file(place.path(made)).unwrap();
    }
}

/// As writing over it would: where a link leads, with the mode of what was there.
#[test]
fn a_file_that_is_replaced_stays_where_it_is_and_whose_it_is_to_read() {
    let place = Place::new();
    fs::create_dir(place.path("pages")).unwrap();
    fs::write(place.path("elsewhere"), "before").unwrap();
    fs::set_permissions(place.path("elsewhere"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("../elsewhere", place.path("pages/claimdb.1")).unwrap();
    fs::write(place.path("plain"), "").unwrap();
    place.run(&["man", "--into", "pages"]).done();
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    assert!(place.path("pages/claimdb.1").is_symlink(), "a link was replaced");
    assert!(fs::read_to_string(place.path("elsewhere")).unwrap().contains(".TH claimdb"));
    let found = (mode("elsewhere"), mode("pages/claimdb-list.1"));
    assert_eq!(found, (0o640, mode("plain")), "others may read it than before, or than any new file");
}

#[test]
fn help_that_cannot_be_written_is_a_failure_as_any_other() {
    let place = Place::new();
    for args in [&["--help"][..], &["--version"], &["list", "--help"], &["help", "list"]] {
        let told = with_full_output(&place, args);
        assert!(told.contains("then run it again"), "{args:?}: {told}");
        assert_eq!(unread(&place, args), (Some(0), String::new()), "{args:?}");
    }
}

/// What a path that is a link names is where the link leads, be there something or not.
#[test]
fn a_link_that_leads_to_nothing_leads_nothing_into_a_stores_folder() {
    let place = Place::new();
    std::os::unix::fs::symlink("claims/made", place.path("link")).unwrap();
    for args in [
        &["bench", "--seconds", "0.01", "--html", "link"][..],
        #[cfg(feature = "explore")]
        &["explore", "--crashes", "0", "--svg", "link"],
        &["dedup", "--store", "claims", "--rejects", "link"],
    ] {
        let told = place.run(args).failed(2);
        assert!(told.contains("link: that is a link which leads to nothing; "), "{args:?}: {told}");
        assert!(!place.path("claims/made").exists(), "{args:?}: a link led into a store's folder");
    }
}

#[test]
fn a_path_too_long_for_a_socket_is_told_with_what_can_be_done() {
    let place = Place::new();
    let folder = place.path(&"x".repeat(120));
    fs::create_dir(&folder).unwrap();
    let socket = folder.join("claims.sock");
    let told = place.run(&["stats", "--socket", socket.to_str().unwrap()]).failed(1);
    let advice = format!("108 bytes, and this one has {}", socket.as_os_str().len());
    assert!(told.contains(&advice) && told.contains("go into its folder"), "{told}");
    assert!(!told.contains("its service runs"), "that helps nobody: {told}");
    // What is advised can be done.
    let from_there = Ended::of(place.claimdb(&["stats", "--socket", "claims.sock"]).current_dir(&folder));
    let told = from_there.failed(1);
    assert!(told.contains("its service runs"), "{told}");
}
