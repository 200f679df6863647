//! Simulated histories: whole worlds from a seed, judged by the promises and against a reference. See
//! `docs/testing.md`.
#![cfg(shuttle)]
#![allow(missing_docs)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the harness has threads of its own

#[path = "support/schedules.rs"]
#[allow(dead_code)] // the other worlds use more of it
mod schedules;
mod sim;

use claimdb::Break;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How many histories there are to be: `CLAIMDB_SIM_HISTORIES`, else few.
fn wanted() -> u64 {
    let wanted =
        schedules::setting("CLAIMDB_SIM_HISTORIES", std::env::var_os("CLAIMDB_SIM_HISTORIES"), 20_000);
    assert!(wanted > 0, "CLAIMDB_SIM_HISTORIES is 0, and with no history nothing is looked at");
    wanted
}

#[test]
#[should_panic(expected = r#"CLAIMDB_SEED is "", and must be a number from 0 to 18446744073709551615"#)]
fn a_seed_that_is_no_number_is_told() {
    schedules::setting("CLAIMDB_SEED", Some("".into()), 1);
}

#[test]
fn the_last_seed_is_made_smaller_in_as_many_interleavings() {
    assert_eq!(
        sim::run::others(u64::MAX).count(),
        20,
        "what fails at the last seed is told as the smallest, untried"
    );
}

#[test]
fn simulated_histories() {
    let start = Instant::now();
    let (tally, found) = sim::run::search(schedules::seed(), wanted(), None);
    let of = |counted: &std::sync::atomic::AtomicU64| counted.load(Ordering::Relaxed);
    println!("simulated power cuts: {}", of(&tally.power_cuts));
    println!("simulated reopenings: {}", of(&tally.reopenings));
    println!("simulated faults: {}", of(&tally.faults));
    println!("simulated operations: {}", of(&tally.operations));
    println!("simulated histories: {}", of(&tally.histories));
    println!("seed {}, {:.1?}", schedules::seed(), start.elapsed());
    if let Some(found) = found {
        panic!("{}", found.told("simulated_histories"));
    }
}

/// With `rule` broken, some history shows it as `promise`.
fn twin(rule: Break, promise: &str) {
    let (tally, found) = sim::run::search(schedules::seed(), 200_000, Some((rule, promise)));
    let histories = tally.histories.load(Ordering::Relaxed) + 1;
    let Some(found) = found else {
        panic!("{rule:?} was broken, and {histories} histories did not show {promise}")
    };
    let test = std::thread::current();
    let told = found.told(test.name().expect("tests run in threads of their name"));
    println!("twin {rule:?}: found after {histories} histories, as: {told}");
}

#[test]
fn twin_ceiling_ignored() {
    twin(Break::CeilingIgnored, "P2 ordered tokens");
}

#[test]
fn twin_early_takeover() {
    twin(Break::EarlyTakeover, "P5 no early takeover");
}

#[test]
fn twin_no_wake() {
    twin(Break::EndWakesNobody, "P6 never stuck");
}

#[test]
fn twin_no_fingerprint_check() {
    twin(Break::NoFingerprintCheck, "P7 mismatch is harmless");
}

#[test]
fn twin_failed_sync_ignored() {
    twin(Break::FailedSyncIgnored, "P9 fail closed");
}

#[test]
fn twin_error_grants() {
    twin(Break::ErrorGrants, "P9 fail closed");
}

#[test]
fn twin_check_then_act() {
    twin(Break::CheckThenAct, "P1 one holder");
}

#[test]
fn twin_no_token_check() {
    twin(Break::NoTokenCheck, "P3 fenced");
}

#[test]
fn twin_check_before_read() {
    twin(Break::CheckBeforeRead, "P4 durable before told");
}

#[test]
fn twin_stale_look() {
    twin(Break::StaleLook, "P8 remembered");
}

#[test]
fn twin_recent_kept() {
    twin(Break::RecentKept, "linearizable");
}
