//! How `run` ends a claim by a rule of the caller's.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::Mem;
use claimdb::{
    Claim, Durability, Ending, ManualClock, Omission, OnInterrupt, Outcome, Request, Run, RunError, Settled,
    Store, Worked,
};
use faults::{Fault, Faulty};
use std::panic::{AssertUnwindSafe, catch_unwind};

const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

/// How work ends, and what its rule is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Returns,
    Fails,
    Panics,
}

fn work(how: Work) -> Result<u64, String> {
    match how {
        Work::Returns => Ok(7),
        Work::Fails => Err("declined".to_owned()),
        Work::Panics => panic!("on purpose"),
    }
}

/// What the next claimant is told, in a word.
fn next(store: &Store, key: &str) -> String {
    match store.claim(key).unwrap() {
        Outcome::Granted(claim) => format!("attempt {}", claim.attempt()),
        Outcome::Settled(Settled::Completed(stored)) => {
            format!("completed {}", stored.decode::<u64>().unwrap())
        }
        Outcome::Settled(Settled::Failed(stored)) => format!("failed {}", stored.decode::<String>().unwrap()),
        Outcome::Settled(Settled::Omitted(omitted)) => {
            assert_eq!(omitted.reason(), Omission::OnPurpose);
            "omitted".to_owned()
        }
        Outcome::Interrupted(_) => "interrupted".to_owned(),
        other => panic!("P6 never stuck: {other:?}"),
    }
}

#[test]
fn a_claim_ends_as_its_rule_says() {
    let endings = [
        (Ending::Complete, ["completed 7", "omitted", "omitted"]),
        (Ending::fail("no").unwrap(), ["failed no"; 3]),
        (Ending::Omit, ["omitted"; 3]),
        (Ending::Release, ["attempt 1"; 3]),
        (Ending::Drop, ["attempt 2"; 3]),
    ];
    for durability in ALL {
        for (ending, expected) in &endings {
            for (how, expected) in [Work::Returns, Work::Fails, Work::Panics].into_iter().zip(expected) {
                let name = format!("{durability:?}, {how:?}, {ending:?}");
                let store = Store::builder(Mem::new()).clock(ManualClock::new()).open().unwrap();
                let rule = |worked: Worked<'_, u64, String>| {
                    let seen = match worked {
                        Worked::Returned(value) => *value == 7 && how == Work::Returns,
                        Worked::Failed(error) => error == "declined" && how == Work::Fails,
                        Worked::Panicked => how == Work::Panics,
                    };
                    assert!(seen, "the rule was told of something else: {name}: {worked:?}");
                    ending.clone()
                };
                let request = Request::new("k").durability(durability);
                let told = catch_unwind(AssertUnwindSafe(|| store.run_by(request, rule, |_| work(how))));
                let as_work = match (&told, how) {
                    (Ok(Ok(Run::Fresh(7))), Work::Returns) => true,
                    (Ok(Err(RunError::Work(error))), Work::Fails) => error == "declined",
                    (Err(panic), Work::Panics) => panic.downcast_ref::<&str>() == Some(&"on purpose"),
                    _ => false,
                };
                assert!(as_work, "the caller keeps what the work gave: {name}: {told:?}");
                // Of a claim in memory nothing was stored: no attempt is known of.
                let in_memory = durability != Durability::Full && *ending == Ending::Drop;
                let expected = if in_memory { "attempt 1" } else { *expected };
                assert_eq!(next(&store, "k"), expected, "P8 remembered: {name}");
            }
        }
    }
}

#[test]
fn a_rule_that_drops_interrupts_what_was_quarantined() {
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).open().unwrap();
    let request = || Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    let told = store.run_by(request(), |_| Ending::Drop, |_| work(Work::Fails));
    assert!(matches!(told, Err(RunError::Work(_))), "{told:?}");
    assert_eq!(next(&store, "k"), "interrupted");
}

#[test]
fn a_failure_that_could_not_be_stored_is_told_as_such() {
    let faulty = Faulty::new();
    let store = Store::builder(faulty.clone()).clock(ManualClock::new()).open().unwrap();
    let rule = |_: Worked<'_, u64, String>| Ending::fail("no").unwrap();
    let told = store.run_by("k", rule, |_| {
        faulty.arm(0, 2, Fault::FailBefore);
        work(Work::Fails)
    });
    assert_eq!(faulty.disarm(), ["commit", "read"]);
    let Err(RunError::FailureUnsettled { error, source }) = told else {
        panic!("P9 fail closed: a failure that was not stored was told as one: {told:?}")
    };
    assert_eq!(error, "declined");
    source.into_claim().expect("it may be tried again").fail("no").unwrap();
    assert_eq!(next(&store, "k"), "failed no");
}

#[test]
fn a_rule_that_panics_drops_the_claim() {
    let store = Store::builder(Mem::new()).clock(ManualClock::new()).open().unwrap();
    let rule = |_: Worked<'_, u64, String>| -> Ending { panic!("the rule, on purpose") };
    assert!(catch_unwind(AssertUnwindSafe(|| store.run_by("k", rule, |_| work(Work::Returns)))).is_err());
    assert_eq!(next(&store, "k"), "attempt 2", "P6 never stuck");
}

#[test]
fn a_task_goes_by_the_same_rule() {
    let store = Store::builder(Mem::new()).open().unwrap();
    let rule = |worked: Worked<'_, u64, String>| match worked {
        Worked::Failed(error) => Ending::fail(error).unwrap(),
        other => other.default_ending(),
    };
    let told = hooks::block_on(store.run_by_async("k", rule, async |_: &Claim| work(Work::Fails)));
    assert!(matches!(told, Err(RunError::Work(_))), "{told:?}");
    assert_eq!(next(&store, "k"), "failed declined");
}

#[test]
fn a_release_that_cannot_be_stored_leaves_the_works_error_and_drops_the_claim() {
    let hooked = hooks::Hooked::new();
    let store = Store::builder(hooked.clone()).clock(ManualClock::new()).open().unwrap();
    let told = store.run("k", |_| {
        hooked.break_key(Some("k"));
        work(Work::Fails)
    });
    hooked.break_key(None);
    store.sync().unwrap(); // of what that write may have left
    assert!(matches!(&told, Err(RunError::Work(error)) if error == "declined"), "{told:?}");
    assert_eq!(next(&store, "k"), "attempt 2", "rule 15: work that may have acted is a former attempt");
}
