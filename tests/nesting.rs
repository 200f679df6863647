//! Claims made by the work of the same key: told at once, on the thread that would wait for itself.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a test that fails has nothing else to say

use claimdb::backend::Mem;
use claimdb::{
    ClaimError, Durability, Fingerprint, Key, ManualClock, Outcome, Request, Run, RunError, Store,
};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(100);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn world() -> (Store, ManualClock) {
    let clock = ManualClock::new();
    (Store::builder(Mem::new()).clock(clock.clone()).open().unwrap(), clock)
}

fn is_nested<T: std::fmt::Debug>(told: Result<T, ClaimError>) {
    assert!(matches!(told, Err(ClaimError::Nested { .. })), "P6 never stuck, nested: {told:?}");
}

fn run(store: &Store, key: &str, work: impl FnOnce()) {
    let told = store.run(key, |_| {
        work();
        Ok::<_, String>(())
    });
    assert!(matches!(told, Ok(Run::Fresh(()))), "P6 never stuck: the work did not run: {told:?}");
}

#[test]
fn a_claim_of_the_key_being_worked_on_is_refused_at_once() {
    for durability in ALL {
        let (store, _) = world();
        let request = Request::new("k").durability(durability);
        let told = store.run(&request, |claim| {
            is_nested(store.claim("k"));
            is_nested(store.claim(claim.key()));
            // Another fingerprint as well: nothing else is looked at.
            is_nested(store.claim(Request::new("k").fingerprint(Fingerprint::new([7; 32]))));
            match store
                .run(&request, |_| -> Result<i32, String> { panic!("P1 one holder: it ran inside itself") })
            {
                Err(RunError::Store(error)) => is_nested::<()>(Err(error)),
                other => panic!("P6 never stuck, nested: {other:?}"),
            }
            Ok::<_, String>(7)
        });
        assert_eq!(told.unwrap(), Run::Fresh(7), "{durability:?}");
        let again = store.run("k", |_| Ok::<_, String>(0));
        assert!(
            matches!(again, Ok(Run::Replayed(7))),
            "P6 never stuck: it is nested after its work: {again:?}"
        );
        assert_eq!(store.stats().entries, 0);
    }
}

#[test]
fn it_does_not_wait_for_itself() {
    let (store, clock) = world();
    run(&store, "k", || {
        // Were it to wait, this thread would end the wait, and the answer would be another.
        let (answered, watch) = mpsc::channel::<()>();
        std::thread::scope(|threads| {
            threads.spawn({
                let (store, clock) = (&store, &clock);
                move || {
                    while watch.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
                        if store.stats().waiters > 0 {
                            clock.advance(WAIT);
                        }
                    }
                }
            });
            let told = store.claim(Request::new("k").wait(WAIT));
            drop(answered);
            is_nested(told);
        });
    });
}

#[test]
fn it_is_found_by_every_verb_that_claims() {
    let (store, _) = world();
    let scope = store.scope("s").unwrap();
    let told = scope.run("k", |claim| {
        is_nested(scope.claim("k"));
        is_nested(store.claim(claim.key()));
        let mut many = store.claim_many([Request::new("free"), Request::new(claim.key())]);
        is_nested(many.pop().unwrap());
        assert!(many.pop().unwrap().unwrap().granted().is_some(), "each for itself");
        // All or none.
        is_nested(store.claim_all([Request::new("other"), Request::new(claim.key())]));
        assert_eq!(store.claim("other").unwrap().granted().unwrap().attempt(), 1);
        Ok::<_, String>(())
    });
    assert!(told.is_ok());
}

#[test]
fn it_is_found_around_other_work_and_through_clones() {
    let (store, _) = world();
    let clone = store.clone();
    run(&store, "a", || {
        run(&clone, "b", || {
            is_nested(store.claim("a"));
            is_nested(clone.claim("a"));
            is_nested(store.claim("b"));
            run(&store, "c", || is_nested(clone.claim("a")));
            is_nested(store.claim("b"));
        });
        // The inner work has ended: its key is settled and is told so, its own is still being worked on.
        assert!(matches!(store.claim("b").unwrap(), Outcome::Settled(_)));
        is_nested(store.claim("a"));
    });
    assert!(matches!(store.claim("a").unwrap(), Outcome::Settled(_)));
}

#[test]
fn another_store_another_scope_and_a_lock_are_no_nesting() {
    let ((store, _), (other, _)) = (world(), world());
    run(&store, "k", || {
        run(&other, "k", || is_nested(store.claim("k")));
        let scoped = Key::scoped("s", "k").unwrap();
        assert!(store.claim(scoped).unwrap().granted().is_some());
        let lock = store.lock("k", Duration::ZERO).unwrap();
        assert!(lock.is_some(), "a lock is a space of its own");
    });
}

#[test]
fn after_the_work_has_ended_the_key_is_as_any_other() {
    let (store, _) = world();
    let failed = store.run("k", |_| {
        is_nested(store.claim("k"));
        Err::<(), _>("no")
    });
    assert!(matches!(failed, Err(RunError::Work("no"))));
    for round in 1..=3 {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            store.run("k", |claim| -> Result<(), String> {
                assert_eq!(claim.attempt(), round);
                is_nested(store.claim("k"));
                panic!("on purpose")
            })
        }));
        assert!(unwound.is_err(), "P6 never stuck: the key is nested after its work: {unwound:?}");
    }
    let told = store.run("k", |claim| Ok::<_, String>(claim.attempt()));
    assert!(matches!(told, Ok(Run::Fresh(4))), "P6 never stuck: the key is nested after its work: {told:?}");
    assert!(matches!(store.claim("k").unwrap(), Outcome::Settled(_)));
    assert_eq!(store.stats().entries, 0);
}

#[test]
fn a_panic_in_nested_work_ends_that_work_alone() {
    let (store, _) = world();
    run(&store, "a", || {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            run(&store, "b", || {
                is_nested(store.claim("a"));
                panic!("on purpose")
            });
        }));
        assert!(unwound.is_err());
        is_nested(store.claim("a"));
        let told = store.claim("b");
        let Ok(Outcome::Granted(b)) = told else { panic!("P6 never stuck: its work has unwound: {told:?}") };
        assert_eq!(b.attempt(), 2);
    });
}

#[test]
fn a_lease_that_runs_out_meanwhile_does_not_let_the_work_take_its_own_key() {
    let (store, clock) = world();
    let told = store.run(Request::new("k").lease(SEC), |_| {
        clock.advance(2 * SEC);
        is_nested(store.claim("k"));
        Ok::<_, String>(7)
    });
    assert_eq!(told.unwrap(), Run::Fresh(7), "nobody else was granted the key");
}

#[test]
fn other_threads_are_told_in_flight() {
    let (store, _) = world();
    run(&store, "k", || {
        let told = std::thread::scope(|threads| threads.spawn(|| store.claim("k")).join().unwrap());
        assert!(matches!(told.unwrap(), Outcome::InFlight(_)));
    });
}

#[test]
fn a_future_is_nested_where_it_is_first_polled() {
    let (store, _) = world();
    let mut context = Context::from_waker(Waker::noop());
    let outside = store.claim_async(Request::new("k").wait(WAIT));
    let mut outside = pin!(outside);
    let mut made_inside = None;
    run(&store, "k", || {
        match outside.as_mut().poll(&mut context) {
            Poll::Ready(told) => is_nested(told),
            Poll::Pending => panic!("P6 never stuck, nested: the work would wait for itself"),
        }
        let mut elsewhere = Box::pin(store.claim_async(Request::new("k").wait(WAIT)));
        let first = std::thread::scope(|threads| {
            let poll =
                || elsewhere.as_mut().poll(&mut Context::from_waker(Waker::noop())).map(|told| told.is_ok());
            threads.spawn(poll).join().unwrap()
        });
        assert!(first.is_pending(), "on another thread it waits like any other");
        made_inside = Some((elsewhere, store.claim_async("k")));
    });
    let (mut elsewhere, mut later) = made_inside.unwrap();
    let told = pin!(&mut elsewhere).poll(&mut context);
    assert!(matches!(told, Poll::Ready(Ok(Outcome::Settled(_)))), "P6 never stuck: {told:?}");
    let told = pin!(&mut later).poll(&mut context);
    assert!(
        matches!(told, Poll::Ready(Ok(Outcome::Settled(_)))),
        "polled after the work it is not nested: {told:?}"
    );
}

#[test]
fn what_is_told_says_what_to_do_and_not_the_key() {
    let (store, _) = world();
    let secret = "order-of-somebody";
    run(&store, secret, || {
        let text = store.claim(secret).unwrap_err().to_string();
        for part in ["claiming key#", "inside Store::run", "wait for itself", "after run has returned"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains(secret), "{text}");
    });
}
