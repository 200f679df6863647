//! What is shown of a run that fails: who did what, in its order. See `docs/model-checking.md`.
#![cfg(loom)]
#![allow(missing_docs)]

use claimdb::backend::Mem;
use claimdb::{ManualClock, Outcome, Request, Steps, Store, SyncBy};
use loom::thread;
use std::process::Command;
use std::time::Duration;

/// Which of the runs below the process is for.
const CHILD: &str = "CLAIMDB_STEPS_OF";

fn check(run: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(move || {
        Steps::follow();
        run();
    });
}

fn open() -> Store {
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    store.open().expect("memory opens")
}

/// Fails once the other thread is granted the key first, which takes a few runs.
fn the_other_has_it() {
    let store = open();
    let other = store.clone();
    let other = thread::spawn(move || {
        Steps::note("is the other");
        let claim = other.claim("k").expect("memory does not fail").granted();
        claim.map(|claim| claim.complete("done").expect("nobody takes it over"))
    });
    let mine = store.claim("k").expect("memory does not fail");
    assert!(!matches!(mine, Outcome::Settled(_)), "the other has done it");
    drop(mine);
    other.join().expect("the other panicked");
}

/// Waits for a key that nobody lets go.
fn nobody_lets_go() {
    let store = open();
    let held = store.claim("k").expect("memory does not fail").granted();
    let waiter = thread::spawn(move || drop(store.claim(Request::new("k").wait(Duration::from_secs(1)))));
    waiter.join().expect("the waiter panicked");
    drop(held);
}

/// Runs the test `name` as a process of its own, and gives what it says of `message` and after it.
fn said(name: &str, message: &str, all: bool) -> String {
    let mut child = Command::new(std::env::current_exe().expect("this test is a file"));
    child.args(["--exact", name, "--nocapture"]).env(CHILD, name).env("RUST_BACKTRACE", "0");
    if all {
        child.env("CLAIMDB_STEPS", "all");
    } else {
        child.env_remove("CLAIMDB_STEPS");
    }
    let ended = child.output().expect("this test can be started again");
    assert!(!ended.status.success(), "nothing was found");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    let at = told.find(message).unwrap_or_else(|| panic!("{message} is not in {told}"));
    told[at..].to_owned()
}

/// Each of `parts` comes in `text`, after the one before it.
#[track_caller]
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not where it should be, in {text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn a_run_that_fails_is_shown_step_by_step() {
    if std::env::var_os(CHILD).is_some() {
        return check(the_other_has_it);
    }
    let told = said("a_run_that_fails_is_shown_step_by_step", "the other has done it", false);
    in_order(
        &told,
        &[
            "what led to it, thread 0 being the model's own:",
            "\n  thread 0\n    opens the store, tests/loom_steps.rs:",
            "\n  thread 1\n    is the other, tests/loom_steps.rs:",
            "\n    claims, tests/loom_steps.rs:",
            "more like it",
            "\n    is told: granted",
            "\n    settles: complete, tests/loom_steps.rs:",
            "\n    is told: settled",
            "\n  thread 0",
            "\n    is told: completed",
        ],
    );
    assert_eq!(
        told.matches("opens the store").count(),
        1,
        "runs that did not fail are shown as well: {told}"
    );
    let all = said("a_run_that_fails_is_shown_step_by_step", "the other has done it", true);
    assert!(!all.contains("more like it") && all.lines().count() > told.lines().count() * 2, "{all}");
    in_order(
        &all,
        &["takes the lock, claimdb/src/lease/table.rs:", "reads the atomic, claimdb/src/token.rs:"],
    );
}

#[test]
fn a_deadlock_is_shown_though_it_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        return check(nobody_lets_go);
    }
    let told = said("a_deadlock_is_shown_though_it_ends_the_process", "deadlock; threads = [", false);
    in_order(
        &told,
        &["what led to it", "is told: granted", "\n  thread 1\n    claims, tests/loom_steps.rs:", "waits"],
    );
}

#[test]
fn a_run_that_does_not_fail_shows_nothing() {
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().expect("this test is a file"));
        let child =
            child.args(["--exact", "a_run_that_does_not_fail_shows_nothing", "--nocapture"]).env(CHILD, "");
        let ended = child.output().expect("this test can be started again");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && !told.contains("what led to it"), "{told}");
        return;
    }
    check(|| drop(open().claim("k").expect("memory does not fail")));
}

/// Nothing has led to it in the run that was the last.
#[test]
fn what_fails_behind_a_model_is_not_what_its_last_run_led_to() {
    if std::env::var_os(CHILD).is_some() {
        check(|| drop(open().claim("k").expect("memory does not fail")));
        panic!("behind the model");
    }
    let told = said("what_fails_behind_a_model_is_not_what_its_last_run_led_to", "behind the model", false);
    assert!(!told.contains("what led to it"), "it is told to have led to what came after it: {told}");
    in_order(&told, &["what was done in the last run, whose body had ended", "is told: granted"]);
}

#[test]
fn a_run_of_no_steps_has_no_heading_for_them() {
    if std::env::var_os(CHILD).is_some() {
        return check(|| panic!("at once"));
    }
    let told = said("a_run_of_no_steps_has_no_heading_for_them", "at once", false);
    assert!(!told.contains("what led to it"), "a heading with nothing below it: {told}");
}
