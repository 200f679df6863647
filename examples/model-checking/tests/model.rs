//! The service in every interleaving of a request and its retry. Run by `cargo model`.
#![cfg(loom)]

use claimdb::backend::Mem;
use claimdb::{ManualClock, Steps, Store, SyncBy};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use model_checking::card::Cards;
use model_checking::{Answer, LEASE, careful, hasty};
use std::time::Duration;

type Pay = fn(&Store, &Cards, &str, u64) -> Answer;

const BOUND: usize = 3;

/// Runs `body` in every interleaving with at most [`BOUND`] preemptions, and prints how many there were.
fn model(name: &'static str, body: impl Fn() + Sync + Send + 'static) {
    // Counted outside of what loom explores: an atomic of std, which no interleaving depends on.
    let schedules = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = schedules.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(BOUND);
    builder.max_branches = 100_000;
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Steps::follow(); // if this run fails, it is shown step by step
        body();
    });
    let schedules = schedules.load(std::sync::atomic::Ordering::Relaxed);
    println!("model {name}: {schedules} schedules, at most {BOUND} preemptions");
}

fn open(mem: &Mem, clock: &ManualClock) -> Store {
    // Callers sync by themselves: one thread less to interleave.
    let store = Store::builder(mem.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
    store.open().expect("memory opens")
}

fn charged_once(cards: &Cards) {
    let charges = cards.charges("order-42");
    assert!(charges <= 1, "the card was charged {charges} times for one order");
}

/// A request is slow, its lease runs out, and the customer's retry comes.
fn slow_request_and_retry(pay: Pay) {
    let (mem, clock, cards) = (Mem::new(), ManualClock::new(), Arc::new(Cards::default()));
    let store = open(&mem, &clock);
    let slow = {
        let (store, cards) = (store.clone(), Arc::clone(&cards));
        thread::spawn(move || pay(&store, &cards, "order-42", 1999))
    };
    clock.advance(LEASE + Duration::from_secs(1));
    let retry = pay(&store, &cards, "order-42", 1999);
    let slow = slow.join().expect("the request does not panic");
    charged_once(&cards);
    if let (Answer::Paid(one), Answer::Paid(other)) = (&slow, &retry) {
        assert_eq!(one, other, "two receipts for one order");
    }
    let paid = [&slow, &retry].into_iter().any(|answer| matches!(answer, Answer::Paid(_)));
    assert!(paid, "nobody was told: {slow:?}, {retry:?}");
}

/// The power is cut at some moment of a request, and the customer's retry comes after the restart.
fn power_cut_and_retry(pay: Pay) {
    let (mem, clock, cards) = (Mem::with_power_cuts(), ManualClock::new(), Arc::new(Cards::default()));
    let store = open(&mem, &clock);
    let told = Arc::new(AtomicUsize::new(0));
    let request = {
        let (cards, told) = (Arc::clone(&cards), Arc::clone(&told));
        thread::spawn(move || {
            if let Answer::Paid(_) = pay(&store, &cards, "order-42", 1999) {
                told.store(1, Ordering::SeqCst);
            }
        })
    };
    let told_before = told.load(Ordering::SeqCst) == 1;
    mem.crash();
    let store = open(&mem, &clock);
    let charges = cards.charges("order-42");
    let retry = pay(&store, &cards, "order-42", 1999);
    assert!(matches!(retry, Answer::Paid(_)), "nobody else is there: {retry:?}");
    if told_before {
        assert_eq!(cards.charges("order-42"), charges, "what was told before the power cut was charged again");
    }
    request.join().expect("the request does not panic");
    charged_once(&cards);
}

#[test]
#[should_panic(expected = "the card was charged 2 times for one order")]
fn hasty_charges_twice() {
    model("hasty_charges_twice", || slow_request_and_retry(hasty::pay));
}

#[test]
fn careful_charges_once() {
    model("careful_charges_once", || slow_request_and_retry(careful::pay));
}

#[test]
fn careful_charges_once_after_a_power_cut() {
    model("careful_charges_once_after_a_power_cut", || power_cut_and_retry(careful::pay));
}
