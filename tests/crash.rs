//! One fixed program, with each call of its storage going wrong in each way, and every state that a power cut may
//! leave: whatever the store has told before, it stands by afterwards.
//!
//! Everything is in memory and on one thread, so a case repeats exactly. `CLAIMDB_CRASH="..."` with what a failure
//! prints runs that case alone.
#![cfg(not(loom))] // one thread, real panics
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "crash/acts.rs"]
mod acts;
#[path = "crash/cases.rs"]
mod cases;
#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;
#[path = "crash/ledger.rs"]
mod ledger;
#[path = "crash/program.rs"]
mod program;
#[path = "crash/twins.rs"]
mod twins;
#[path = "crash/user.rs"]
mod user;
#[path = "crash/waiters.rs"]
mod waiters;

use cases::{Cases, quietly};
use claimdb::{ClaimError, Fault as Cause, Key, KvError, OpenError, Store, SyncBy};
use faults::drive::{Cut, Drive, Survivors};
use faults::{Fault, Faulty};
use ledger::Ledger;
use twins::{Broken, Shown};
use user::{Down, Step, User};

/// With at most so many commits that were not synced, every subset of them survives once.
const ALL_SUBSETS: usize = 4;
/// With more, so many that are drawn.
const DRAWN_SUBSETS: u64 = 12;

fn done(step: Step, what: &str) {
    assert!(step.is_ok(), "{what}: the machine went down, and was not to");
}

/// Runs the program until the `n`-th call goes wrong by taking the machine down. Gives what the drive held then and
/// what had been told; `None` if the program has no such call.
fn until_down(n: u64, fault: Fault, broken: Option<Broken>) -> Option<(Cut, Ledger)> {
    let mut user = User::new(Faulty::new(), Ledger::new(), broken, false);
    user.faulty.arm(n, 1, fault);
    let step = program::program(&mut user);
    let cut = user.faulty.down();
    assert_eq!(cut.is_some(), step.is_err());
    user.go_under();
    let mut ledger = user.ledger.clone();
    ledger.ended();
    cut.map(|cut| (cut, ledger))
}

/// Goes on over what survived. `in_order` if that is a beginning of what was written.
fn go_on(drive: Drive, ledger: Ledger, broken: Option<Broken>, in_order: bool) {
    // Once without asking for any key, since a claim writes an entry of its own.
    let mut nobody = User::new(Faulty::over(drive.cut().killed()), ledger.clone(), broken, false);
    done(nobody.open(), "opening");
    if !in_order {
        // A deletion of an entry that survives the one of its record is beyond what the index is made for.
        let _ = nobody.store().rebuild_index().unwrap();
    }
    done(nobody.forget_all(), "forgetting");
    let mut user = User::new(Faulty::over(drive), ledger, broken, false);
    done(user.recover(), "recovering");
    done(user.judge(), "judging");
    done(user.forget_all(), "forgetting");
}

/// The states that may survive `cut`, other than all prefixes.
fn subsets(cut: &Cut, seed: u64) -> Vec<u64> {
    let count = cut.unsynced();
    let is_prefix = |bits: &u64| (bits & (bits + 1)) == 0;
    if count <= ALL_SUBSETS {
        return (0..1_u64 << count).filter(|bits| !is_prefix(bits)).collect();
    }
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let draw = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & ((1 << count) - 1)
    });
    draw.filter(|bits| !is_prefix(bits)).take(DRAWN_SUBSETS as usize).collect()
}

/// Each call at which the machine can go down, before it landed and after. What leaves the drive and the ledger as
/// another call did is left out: it would be the same case.
fn at_every_crash(mut body: impl FnMut(&str, Cut, Ledger)) {
    let mut seen = Vec::new();
    for n in 0.. {
        for fault in [Fault::DownBefore, Fault::DownAfter] {
            let down = quietly(|| until_down(n, fault, None));
            let Some(down) = down.unwrap_or_else(|panic| panic!("until {n} {fault:?}: {panic}")) else {
                return;
            };
            if !seen.contains(&down) {
                seen.push(down.clone());
                body(&format!("{n} {fault:?}"), down.0, down.1);
            }
        }
    }
}

#[test]
fn the_program_runs_and_is_judged_without_any_fault() {
    let mut cases = Cases::new("whole");
    whole(&mut cases, "program", None);
    cases.end();
}

fn whole(cases: &mut Cases, name: &str, broken: Option<Broken>) {
    cases.case(name, || {
        let mut user = User::new(Faulty::new(), Ledger::new(), broken, false);
        done(program::program(&mut user), "the program");
        println!("\ncrash: the program makes {} calls", user.faulty.calls());
        done(user.judge(), "judging");
        done(user.forget_all(), "forgetting");
    });
}

#[test]
fn at_every_call_that_fails_the_user_goes_on() {
    go_on_after("fail", [Fault::FailBefore, Fault::FailAfter]);
}

#[test]
fn at_every_call_that_panics_the_user_goes_on() {
    go_on_after("panic", [Fault::PanicBefore, Fault::PanicAfter]);
}

fn go_on_after(what: &'static str, faults: [Fault; 2]) {
    let mut cases = Cases::new(what);
    for fault in faults {
        let mut fired = vec!["the first"];
        for n in 0.. {
            if fired.is_empty() {
                break;
            }
            fired = goes_on(&mut cases, n, fault, false, None);
            if fired == ["sync"] {
                goes_on(&mut cases, n, fault, true, None);
            }
        }
    }
    cases.end();
}

/// Tells which calls went wrong. A drive whose sync failed may have lost what that was to cover.
fn goes_on(
    cases: &mut Cases,
    n: u64,
    fault: Fault,
    loses: bool,
    broken: Option<Broken>,
) -> Vec<&'static str> {
    let faulty = Faulty::new();
    faulty.arm(n, 1, fault);
    let mut user = User::new(faulty.clone(), Ledger::new(), broken, loses);
    let lost = if loses { ", and the drive loses" } else { "" };
    let twin = broken.map(|broken| format!("{broken:?} ")).unwrap_or_default();
    cases.case(&format!("{twin}{n} {fault:?}{lost}"), || {
        done(program::program(&mut user), "the program");
        done(user.judge(), "judging");
        done(user.forget_all(), "forgetting");
    });
    // One that was not asked for says nothing.
    if cases.only.is_some() && n < 2000 { vec!["unknown"] } else { faulty.fired() }
}

#[test]
fn after_a_power_cut_at_every_call_each_prefix_of_what_was_not_synced() {
    let mut cases = Cases::new("prefix");
    at_every_crash(|at, cut, ledger| {
        for first in 0..=cut.unsynced() {
            let survivors = [Survivors::Prefix(first), Survivors::Torn(first)];
            for survivors in survivors.into_iter().take(1 + usize::from(cut.has_hints(first))) {
                cases.case(&format!("{at} {survivors:?}"), || {
                    go_on(cut.after(survivors), ledger.clone(), None, true);
                });
            }
        }
    });
    cases.end();
}

#[test]
fn after_a_power_cut_at_every_call_other_subsets_of_what_was_not_synced() {
    let mut cases = Cases::new("subset");
    at_every_crash(|at, cut, ledger| {
        for bits in subsets(&cut, at.len() as u64 ^ cut.unsynced() as u64) {
            let survivors = Survivors::Subset(bits);
            cases.case(&format!("{at} {survivors:?}"), || {
                go_on(cut.after(survivors), ledger.clone(), None, false)
            });
        }
    });
    cases.end();
}

#[test]
fn after_a_kill_at_every_call_what_was_told_survives_a_power_cut() {
    let mut cases = Cases::new("kill");
    at_every_crash(|at, cut, ledger| {
        cases.case(at, || go_on(cut.killed(), ledger, None, true));
    });
    cases.end();
}

#[test]
fn after_a_second_power_cut_while_the_store_is_opened() {
    let mut cases = Cases::new("second");
    at_every_crash(|at, cut, ledger| {
        for survivors in [Survivors::Prefix(0), Survivors::Prefix(cut.unsynced())] {
            let mut before = None;
            for (m, fault) in (0..).flat_map(|m| [(m, Fault::DownBefore), (m, Fault::DownAfter)]) {
                let mut user = User::new(Faulty::over(cut.after(survivors)), ledger.clone(), None, false);
                user.faulty.arm(m, 1, fault);
                let Err(Down) = user.open() else { break };
                let again = user.faulty.down().expect("it went down");
                if before.replace(again.clone()).as_ref() == Some(&again) {
                    continue;
                }
                for first in 0..=again.unsynced() {
                    cases.case(&format!("{at} {survivors:?} then {m} {fault:?} Prefix({first})"), || {
                        go_on(again.after(Survivors::Prefix(first)), ledger.clone(), None, true);
                    });
                }
            }
        }
    });
    cases.end();
}

/// Beyond the contract: of the last commit half the bytes are there.
#[test]
fn bytes_that_a_power_cut_has_halved_are_damage_and_never_believed() {
    let mut cases = Cases::new("halved");
    at_every_crash(|at, cut, ledger| {
        for first in 1..=cut.unsynced() {
            let halved = cut.halved(first);
            let survivors = Survivors::Halved(first);
            for key in halved {
                let name = format!("{at} {survivors:?} {key:?}");
                cases.case(&name, || is_damage(&cut, survivors, &key, &ledger));
            }
        }
    });
    cases.end();
}

fn is_damage(cut: &Cut, survivors: Survivors, key: &[u8], ledger: &Ledger) {
    let drive = cut.after(survivors);
    let builder = Store::builder(drive.clone()).sync_by(SyncBy::Caller).clock(claimdb::ManualClock::new());
    let store = match builder.open() {
        Ok(store) => store,
        Err(OpenError::Damaged { .. }) if key[0] == 0 => return,
        Err(error) => panic!("halved bytes under {key:?} keep the store from opening: {error}"),
    };
    assert!(key[0] != 0, "P2 ordered tokens: a store opened on half a ceiling or half a time");
    match key[0] {
        1 => {
            let name =
                ledger.keys.keys().find(|name| stored_as(&name.key()) == key).expect("it is the program's");
            let told = store.claim(name.request());
            let damaged = matches!(&told, Err(ClaimError::Failed { fault: Cause::Damaged(_), .. }));
            assert!(damaged, "P9 fail closed: half a record is told as {told:?}");
            assert!(store.get(name.key()).is_err(), "P9 fail closed: half a record is told as nothing");
        }
        3 => {
            let value = std::str::from_utf8(&key[3..]).unwrap();
            let told = store.kv("v").get(value);
            assert!(
                matches!(told, Err(KvError::Damaged { .. })),
                "P9 fail closed: half a value is told as {told:?}"
            );
        }
        _ => panic!("the harness: {key:?} is nothing that has bytes to lose"),
    }
    let left = drive.stored(key);
    assert!(!left.is_empty(), "P9 fail closed: damage was wiped");
}

/// The bytes under which a record is kept.
fn stored_as(key: &Key) -> Vec<u8> {
    let scope = key.scope();
    [&[1, scope.len() as u8], scope, key.name()].concat()
}

/// Runs the cases of a broken backend until one is found, which must be by the promise that it breaks.
fn twin(broken: Broken, promise: &str, run: impl Fn(&mut Cases)) {
    let mut cases = Cases::new("twin");
    run(&mut cases);
    let Some(found) = cases.failures.first() else {
        panic!("{broken:?} was broken, and {} cases did not show it", cases.run)
    };
    assert!(found.contains(promise), "{broken:?} was found, not as {promise:?} but as: {found}");
    println!("\ncrash: twin {broken:?} was found after {} cases as {promise:?}", cases.run);
    cases.failures.clear();
    cases.end();
}

fn twin_cases(cases: &mut Cases, broken: Broken) {
    match broken.shown_by() {
        Shown::TheProgram => whole(cases, &format!("{broken:?} program"), Some(broken)),
        Shown::Failures => {
            for n in 0.. {
                let fired = goes_on(cases, n, Fault::FailBefore, false, Some(broken));
                if fired.is_empty() || !cases.failures.is_empty() {
                    return;
                }
            }
        }
        Shown::Crashes => crash_cases(cases, broken),
    }
}

/// A power cut at each call, after which nothing survives that was not synced, or all; or a kill.
fn crash_cases(cases: &mut Cases, broken: Broken) {
    for n in 0.. {
        let mut down = None;
        cases.case(&format!("{broken:?} {n}"), || down = until_down(n, Fault::DownAfter, Some(broken)));
        let Some((cut, ledger)) = down else { break };
        let all = Survivors::Prefix(cut.unsynced());
        for (name, drive) in
            [("none", cut.after(Survivors::Prefix(0))), ("all", cut.after(all)), ("killed", cut.killed())]
        {
            cases
                .case(&format!("{broken:?} {n} {name}"), || go_on(drive, ledger.clone(), Some(broken), true));
            if !cases.failures.is_empty() {
                return;
            }
        }
    }
}

#[test]
fn a_backend_that_breaks_a_rule_is_found_by_the_promise_that_it_breaks() {
    let twins = [
        (Broken::SyncUndone, "P4 durable before told"),
        (Broken::NoBarrier, "P4 durable before told"),
        (Broken::EffectsApart, "rule 25"),
        (Broken::CeilingDropped, "P2 ordered tokens"),
        (Broken::HintsLost, "rule 21"),
        (Broken::SwapsBlind, "P3 fenced"),
        (Broken::FingerprintsAlike, "P7 mismatch is harmless"),
        (Broken::ResultsEvicted, "P8 remembered"),
        (Broken::FailedSyncsHidden, "P9 fail closed"),
        (Broken::AttemptsForgotten, "rule 18"),
        (Broken::TermsForgotten, "rule 18"),
    ];
    for (broken, promise) in twins {
        twin(broken, promise, |cases| twin_cases(cases, broken));
    }
}
