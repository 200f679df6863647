//! What is logged of each thing that an operator wants to read at night, at which level and how often.

use crate::captured::{capture, lines_of};
use crate::faults::Syncs;
use crate::world::{DAY, LEASE, SEC, World};
use claimdb::admin::{Client, Command, KeyName};
use claimdb::backend::{Mem, Sled};
use claimdb::{Durability, OnInterrupt, Request, SettleError, Store, SyncBy};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// The events of a store that say this; what spans tell of themselves is none.
fn events(name: &str, says: &str) -> Vec<String> {
    let of_span = |line: &String| {
        ["new", "enter", "exit", "close"].iter().any(|word| line.ends_with(&format!("claimdb: {word}")))
    };
    lines_of(name).into_iter().filter(|line| line.contains(says) && !of_span(line)).collect()
}

fn in_memory() -> Request {
    Request::new("k").durability(Durability::Result)
}

#[track_caller]
fn is_logged_once(name: &str, level: &str, says: &str, fields: &[&str]) {
    let found = events(name, says);
    assert_eq!(found.len(), 1, "told once: {says}: {found:?} among {:#?}", lines_of(name));
    assert!(found[0].trim_start().starts_with(level), "level {level}: {}", found[0]);
    for field in fields {
        assert!(found[0].contains(field), "{field}: {}", found[0]);
    }
}

#[test]
fn opening_and_closing_are_logged_and_so_is_an_end_that_was_not_clean() {
    capture();
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Store::builder(Sled::new(folder.path())).name(name).open();
    let store = open("log-first").unwrap();
    let second = Store::builder(Sled::new(folder.path())).name("log-locked").lock_wait(Duration::ZERO).open();
    assert!(second.is_err());
    store.close().unwrap();
    std::fs::remove_file(folder.path().join("clean")).unwrap();
    std::fs::write(folder.path().join("sled/snap.0000000000000001.generating"), "torn").unwrap();
    open("log-second").unwrap().close().unwrap();
    is_logged_once("log-first", "INFO", " opened ", &["first_token="]);
    is_logged_once("log-first", "INFO", "claimdb: closed ", &[]);
    assert_eq!(events("log-first", "did not end cleanly"), [""; 0]);
    is_logged_once("log-second", "WARN", "did not end cleanly", &[]);
    is_logged_once("log-second", "WARN", "a half-written snapshot was deleted", &[]);
    assert!(events("log-locked", " opened ").is_empty());
    assert!(lines_of("log-locked").iter().any(|line| line.contains("error=opening the store")));
}

#[test]
fn a_takeover_and_the_late_holder_are_logged_with_their_tokens() {
    capture();
    let world = World::with(|builder| builder.name("log-late"));
    let slow = world.grant(in_memory());
    world.clock.advance(LEASE + SEC);
    let next = world.grant(in_memory());
    let (old, new) = (format!("token={}", slow.token()), format!("token={}", next.token()));
    let label = format!("key={}", slow.key());
    assert!(matches!(slow.complete("late"), Err(SettleError::Lost(_))));
    is_logged_once("log-late", "WARN", "outlived its lease", &[&old, &label, "attempt=1", "by=1s"]);
    is_logged_once(
        "log-late",
        "INFO",
        "whose holder had ended without settling",
        &[&new, &label, "attempt=2", "cause=\"lease over\""],
    );
    let current = format!("current={}", next.token());
    is_logged_once("log-late", "WARN", "refused to settle", &[&old, &label, &current]);
    drop(next);
}

#[test]
fn a_failed_sync_a_slow_one_a_damaged_record_and_a_failed_sweep_are_logged() {
    capture();
    let world = World::with(|builder| builder.name("log-syncs").sync_by(SyncBy::Thread).sync_limit(DAY));
    world.drive.syncs(Syncs::Hang);
    let claimant = {
        let store = world.store.clone();
        thread::spawn(move || store.claim("k").map(|told| told.granted().map(drop)))
    };
    world.drive.until_a_sync_hangs();
    world.clock.advance(SEC);
    for _ in 0..3 {
        assert_eq!(world.store.stats().slow_syncs, 1);
    }
    is_logged_once("log-syncs", "WARN", "a sync is slow", &["so_far=1s"]);
    world.drive.syncs(Syncs::Work);
    claimant.join().unwrap().unwrap();
    is_logged_once("log-syncs", "WARN", "a sync is slow", &["so_far=1s"]);
    world.grant("done").complete("done").unwrap();
    let world = world.reopened();
    world.store.close().unwrap();
    world.drive.put(b"\x01\x00done", Some(b"no record"));
    let world = world.reopened();
    assert!(world.store.claim("done").is_err());
    is_logged_once("log-syncs", "ERROR", "met a damaged record", &["key=key#", "damage=it has 9 bytes"]);
    world.drive.arm(0, 1, crate::faults::Fault::FailBefore);
    assert!(world.store.sweep(10).is_err());
    is_logged_once("log-syncs", "WARN", "a sweep failed", &["error=scan the faulty drive"]);
    world.drive.syncs(Syncs::Fail);
    for _ in 0..3 {
        assert!(world.store.claim("k").is_err());
    }
    is_logged_once("log-syncs", "ERROR", "a sync failed earlier", &["on purpose", "open it again"]);
    assert!(world.store.close().is_err());
    is_logged_once("log-syncs", "WARN", "closed, and not cleanly", &[]);
}

#[test]
fn a_change_over_the_admin_socket_is_logged_with_who_asked_and_a_look_is_not() {
    capture();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    let path = folder.path().join("admin.sock");
    let store = Store::builder(Mem::new()).name("log-admin").open().unwrap();
    let serving = store.serve_admin(&path).unwrap();
    let ask = |command: &Command| Client::connect(&path).unwrap().ask(command).unwrap().last().unwrap();
    let key = || KeyName::new(b"", b"stuck");
    drop(store.claim("stuck").unwrap());
    ask(&Command::Inspect { key: key(), show_keys: true }).unwrap();
    assert_eq!(events("log-admin", "admin: "), [""; 0]);
    ask(&Command::Release { key: key(), token: None, force: false }).unwrap();
    let (user, process) = (rustix::process::geteuid().as_raw(), std::process::id());
    let who = format!("admin: uid {user}, process {process}: release key#");
    is_logged_once("log-admin", "WARN", &who, &["(was pending, token ", "): released"]);
    drop(serving);
}

#[test]
fn what_is_no_news_is_logged_below_info_and_has_its_state_and_attempt() {
    capture();
    let world = World::with(|builder| builder.name("log-quiet"));
    let claim = world.grant(in_memory());
    for _ in 0..3 {
        drop(world.store.claim(in_memory()).unwrap());
    }
    claim.complete("done").unwrap();
    drop(world.store.claim(in_memory()).unwrap());
    drop(world.grant(Request::new("q").on_interrupt(OnInterrupt::Quarantine)));
    drop(world.store.claim("q").unwrap());
    assert!(world.store.claim("").is_err());
    assert_eq!(world.store.claim_many(["k", "new"]).len(), 2);
    assert!(!world.store.sweep(10).unwrap().more);
    let loud =
        |line: &&String| !line.trim_start().starts_with("DEBUG") && !line.trim_start().starts_with("TRACE");
    let loud: Vec<_> = lines_of("log-quiet").into_iter().filter(|line| loud(&line)).collect();
    assert!(loud.iter().all(|line| line.contains("open{")), "{loud:#?}");
    for ended in [
        "claim{store=\"log-quiet\" key=key#",
        "state=\"granted\" attempt=1",
        "state=\"in flight\" attempt=1",
        "state=\"completed\" attempt=1",
        "state=\"interrupted\" attempt=1",
        "state=\"error\"",
        "claim{store=\"log-quiet\" keys=2 granted=1}",
        "doing=\"complete\" state=\"settled\"",
        "sync{store=\"log-quiet\" writes=1}",
        "sweep{store=\"log-quiet\" deleted=0 kept=0 dropped=0}",
    ] {
        let closed = |line: &String| line.contains(ended) && line.ends_with(": close");
        assert!(lines_of("log-quiet").iter().any(closed), "{ended}: {:#?}", lines_of("log-quiet"));
    }
}

/// Claims something else, on another thread, whenever it is told of an error.
struct Asks {
    store: Store,
    refused: Arc<Mutex<Vec<bool>>>,
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Asks {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::ERROR {
            let store = self.store.clone();
            let request = Request::new("other").durability(Durability::Relaxed);
            let claimed = thread::spawn(move || store.claim(request).is_err());
            self.refused.lock().unwrap().push(claimed.join().unwrap());
        }
    }
}

#[test]
fn whoever_is_told_of_a_failed_sync_keeps_no_writes_from_being_refused() {
    let world = World::new();
    let refused = Arc::<Mutex<Vec<bool>>>::default();
    let asks = Asks { store: world.store.clone(), refused: Arc::clone(&refused) };
    world.drive.syncs(Syncs::Fail);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(asks), || {
        assert!(world.store.claim("k").is_err());
    });
    let refused = refused.lock().unwrap();
    assert!(!refused.is_empty(), "nothing was told");
    assert!(
        refused.iter().all(|refused| *refused),
        "P9: after a failed sync the store grants claims: {refused:?}"
    );
}
