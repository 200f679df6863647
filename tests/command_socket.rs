//! `claimdb --socket`: a service that is running, asked by the command.
#![cfg(feature = "cli")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // threads from outside

#[path = "command/place.rs"]
#[allow(dead_code)] // each test file uses a part
mod place;

use claimdb::admin::Server;
use claimdb::{Key, KeyState, Store};
use place::{Ended, Place, Service, granted};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

const SOCKET: [&str; 2] = ["--socket", "claims.sock"];

/// The service is root's, who is here, and its socket everybody's; or not even that.
#[test]
fn another_user_is_told_who_may_ask() {
    if !rustix::process::geteuid().is_root() {
        println!("only root can be another user");
        return;
    }
    let place = Place::new();
    let _service = Service::start(&place, Server::new());
    let readable = |path: &str, mode| {
        fs::set_permissions(place.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    readable("", 0o755);
    fs::copy(env!("CARGO_BIN_EXE_claimdb"), place.path("claimdb")).unwrap();
    let ask = || {
        let mut command = Command::new(place.path("claimdb"));
        command.current_dir(place.0.path()).args(["stats", "--socket", "claims.sock"]);
        Ended::of(command.uid(65534).gid(65534)).failed(1)
    };
    for (mode, words) in [(0o600, "Permission denied"), (0o666, "its own user and root alone")] {
        readable("claims.sock", mode);
        let told = ask();
        assert!(told.contains(words) && told.contains("runuser -u NAME"), "mode {mode:o}: {told}");
        for wrong in ["its service runs", "may have been done"] {
            assert!(!told.contains(wrong), "mode {mode:o}: that helps nobody: {told}");
        }
    }
}

#[test]
fn a_running_service_is_looked_at_and_mended() {
    let place = Place::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let log = Arc::clone(&log);
        Server::new().audit(move |change| log.lock().unwrap().push(change.to_string()))
    };
    let service = Service::start(&place, server);
    let run = |args: &[&str]| place.run(&[args, &SOCKET].concat());

    let told = run(&["inspect", "order-50", "--json"]).json();
    assert_eq!((&told["state"], &told["holder"]), (&"pending".into(), &"live".into()), "{told}");
    assert_eq!(told["token"], service.stored.token().to_string());
    // As in the service's own log.
    assert_eq!(told["key"], Key::new("order-50").unwrap().to_string());
    let listed = run(&["list", "--state", "pending", "--show-keys"]).done();
    assert!(
        listed.contains("order-50") && listed.contains("order-51") && !listed.contains("order-52"),
        "{listed}"
    );
    let stats = run(&["stats", "--json", "--count"]).json();
    assert_eq!(
        (&stats["opening"]["live_claims"], &stats["stored"]["settled"]),
        (&2.into(), &1.into()),
        "{stats}"
    );
    assert_eq!(run(&["stats", "--json"]).json()["stored"], Value::Null);

    let told = run(&["release", "--yes", "order-50"]).failed(7);
    assert!(told.contains("--force"), "{told}");
    assert_eq!(run(&["release", "order-50"]).failed(7), told, "what will be refused is asked about");
    let unasked = run(&["release", "--force", "order-50"]).failed(2);
    assert!(unasked.contains("--yes"), "without a terminal it is not asked: {unasked}");
    assert!(!service.stored.lost().is_raised(), "P5: what was refused ended a lease");
    run(&["release", "--yes", "--force", "order-50"]).done();
    run(&["release", "--yes", "--force", "order-51"]).done();
    assert!(service.stored.lost().is_raised() && service.in_memory.lost().is_raised());
    assert!(run(&["resolve", "--yes", "--as", "omitted", "order-99"]).failed(6).contains("no such key"));
    drop(granted(&service.store, "order-53"));
    run(&["resolve", "--yes", "--as", "omitted", "order-53"]).done();
    assert_eq!(service.store.inspect("order-53").unwrap().state, KeyState::Settled);

    // Where the command is run, not the service.
    run(&["backup", "copy"]).done();
    assert!(run(&["backup", "copy"]).failed(1).contains("something is there already"));
    assert!(run(&["backup", "live/copy"]).failed(2).contains("lies in the folder of the store"));
    assert!(!place.path("live/copy").exists() && !place.path("live/copy.partial").exists());
    let copy = Store::open(place.path("copy")).unwrap();
    assert_eq!(copy.keys(None).unwrap().count(), 2);
    copy.close().unwrap();

    let log = log.lock().unwrap().clone();
    let changes = log.iter().map(|line| line.contains("refused")).collect::<Vec<_>>();
    assert_eq!(changes, [true, false, false, true, false, false, true, true], "{log:?}");

    service.store.close().unwrap();
    let told = run(&["stats"]).failed(1);
    assert!(told.contains("see that its service runs"), "{told}");
}

#[cfg(feature = "redb")]
#[test]
fn a_service_over_another_engine_backs_up_over_that() {
    let place = Place::new();
    let store = Store::builder(claimdb::backend::Redb::new(place.path("live"))).open().unwrap();
    granted(&store, "k").complete("x").unwrap();
    let server = Server::new().backups(|folder| Box::new(claimdb::backend::Redb::new(folder)));
    let _serving = server.serve(&store, place.path("claims.sock")).unwrap();
    place.run(&["backup", "--socket", "claims.sock", "copy"]).done();
    assert!(place.path("copy/redb").exists());
}

/// What answers is not what it should be.
#[test]
fn one_who_answers_nonsense_is_told_as_that() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "closed the connection"),
        (b"hello\n", "does not understand"),
        (b"{\"listed\":{\"keys\":1,\"damaged\":0,\"more\":false}", "cut off"),
        (b"{\"listed\":{\"keys\":1,\"damaged\":0,\"more\":false}}\n", "it answered"),
        (b"{\"exploded\":{}}\n", "use that of the service"),
        (b"endless", "has no end"),
    ];
    for (answer, words) in cases {
        let place = Place::new();
        let listener = UnixListener::bind(place.path("claims.sock")).unwrap();
        let service = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            if answer != b"endless" {
                stream.write_all(answer).unwrap();
                return 0;
            }
            let mut sent = 0;
            while sent < 64 << 20 && stream.write_all(&[b'x'; 4096]).is_ok() {
                sent += 4096;
            }
            sent
        });
        let told = place.run(&["inspect", "--socket", "claims.sock", "k"]).failed(1);
        assert!(told.contains(words), "{}: {told}", String::from_utf8_lossy(answer));
        let sent = service.join().unwrap();
        assert!(sent < 8 << 20, "{sent} bytes of an answer without end were taken");
    }
}

#[cfg(feature = "redb")]
#[test]
fn a_backup_of_a_running_store_is_one_of_its_own_engine() {
    use claimdb::backend::{Backend, Mem, Redb, Sled};
    let place = Place::new();
    let backends: [(Box<dyn Backend>, &str); 3] = [
        (Box::new(Redb::new(place.path("of-redb"))), "redb"),
        (Box::new(Sled::new(place.path("of-sled"))), "sled"),
        // That has no files, so its copy is over the default engine.
        (Box::new(Mem::new()), "sled"),
    ];
    for (number, (backend, engine)) in backends.into_iter().enumerate() {
        let store = Store::builder(backend).open().unwrap();
        granted(&store, "k").complete("done").unwrap();
        let serving = Server::new().serve(&store, place.path("claims.sock")).unwrap();
        let [by_socket, by_call] = ["socket", "call"].map(|way| place.path(&format!("copy-{number}-{way}")));
        place.run(&[&["backup"], &SOCKET[..], &[by_socket.to_str().unwrap()]].concat()).done();
        store.backup(&by_call).unwrap();
        for copy in [by_socket, by_call] {
            assert!(copy.join(engine).is_dir(), "{} is not over {engine}, as its store is", copy.display());
        }
        drop(serving);
    }
}
