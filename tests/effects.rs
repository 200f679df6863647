//! A completion and its effects: together or not at all, at every fault and every power cut.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::backend::{Backend, Mem};
use claimdb::{
    Claim, Durability, KvError, ManualClock, Outcome, Request, RetryCause, SettleError, Settled, Store,
    Writes,
};
use faults::{FAULTS, Fault, Faulty};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];
const HOUR: Duration = Duration::from_secs(3600);
/// No operation here makes as many calls of its engine.
const MANY: u64 = 20;

fn open(place: &(impl Backend + Clone + 'static), clock: &ManualClock) -> Store {
    Store::builder(place.clone()).clock(clock.clone()).open().expect("without faults it opens")
}

fn over_every_backend(check: impl Fn(&Store, &ManualClock)) {
    let clock = ManualClock::new();
    check(&open(&Mem::new(), &clock), &clock);
    check(&open(&Mem::with_power_cuts(), &clock), &clock);
    #[cfg(feature = "sled")]
    {
        let folder = tempfile::tempdir().unwrap();
        check(&open(&claimdb::backend::Sled::new(folder.path().join("store")), &clock), &clock);
    }
}

fn request(durability: Durability) -> Request {
    Request::new("k").durability(durability)
}

fn grant(store: &Store, request: Request) -> Claim {
    match store.claim(request.wait(HOUR)).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("P6 never stuck: expected a grant, was told {other:?}"),
    }
}

fn effects(value: &str) -> Writes {
    Writes::new().put("a", "x", value).put("b", "y", value).delete("a", "gone")
}

/// What is there of a completion with [`effects`]: the result, and the effects' one value.
fn landed(store: &Store) -> (Option<String>, Option<String>) {
    let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8(bytes).unwrap());
    let (x, y) = (text(store.kv("a").get("x").unwrap()), text(store.kv("b").get("y").unwrap()));
    assert_eq!(x, y, "rule 25: effects of one completion came apart");
    let gone = store.kv("a").get("gone").unwrap().is_none();
    assert_eq!(gone, x.is_some(), "rule 25: effects of one completion came apart");
    let settled = store.get("k").unwrap().and_then(Settled::completed);
    (settled.map(|stored| stored.decode().unwrap()), x)
}

/// The same, of which both must be there or neither.
fn landed_together(store: &Store, name: &str) -> Option<String> {
    let (completed, effect) = landed(store);
    assert_eq!(completed.is_some(), effect.is_some(), "rule 25: completion and effects came apart: {name}");
    effect
}

#[test]
fn effects_land_with_the_completion() {
    over_every_backend(|store, _| {
        for (n, durability) in ALL.into_iter().enumerate() {
            store.kv("a").put("gone", "").unwrap();
            let claim = grant(store, request(durability));
            claim.complete_with("done", effects(&n.to_string())).unwrap();
            assert_eq!(landed(store), (Some("done".to_owned()), Some(n.to_string())), "{durability:?}");
            assert_eq!(store.stats().entries, 0);
            assert!(store.remove("k").unwrap());
        }
        let claim = grant(store, request(Durability::Full));
        claim.complete_with("done", Writes::new()).expect("none is a number of effects as well");
        assert!(store.get("k").unwrap().is_some());
    });
}

#[test]
fn no_effect_of_a_lost_claim_lands() {
    over_every_backend(|store, clock| {
        store.kv("a").put("gone", "").unwrap();
        for durability in ALL {
            let lost = grant(store, request(durability));
            clock.advance(Duration::from_secs(31));
            let new = grant(store, request(durability));
            let told = lost.complete_with("late", effects("late"));
            assert!(matches!(told, Err(SettleError::Lost(_))), "P3 fenced: {told:?}");
            assert_eq!(landed(store), (None, None), "P3 fenced: a stale holder's effect landed");
            new.release().unwrap();
        }
        assert_eq!(store.stats().entries, 0);
    });
}

#[test]
fn effects_that_cannot_be_written_give_the_claim_back_and_change_nothing() {
    let store = Store::builder(Mem::new()).value_limit(100).open().unwrap();
    let refused = [
        Writes::new().put("a", "", "no key"),
        Writes::new().put("a", "x", [0; 101]),
        (0..=1024).fold(Writes::new(), |writes, n: u32| writes.put_value("a", n.to_le_bytes(), &n)),
    ];
    let mut claim = grant(&store, request(Durability::Full));
    for writes in refused {
        let Err(SettleError::Retry(retry)) = claim.complete_with("done", writes) else { panic!() };
        let invalid = matches!(
            retry.cause,
            RetryCause::Effects(
                KvError::InvalidKey { .. } | KvError::TooLarge { .. } | KvError::TooMany { .. }
            )
        );
        assert!(invalid, "{}", retry.cause);
        claim = retry.claim;
    }
    assert_eq!((store.get("k").unwrap(), store.kv("a").scan("").unwrap().count()), (None, 0));
    claim.complete_with("done", Writes::new().put("a", "x", [0; 100])).unwrap();
}

/// Runs `body` with the faults of one kind at the n-th call, for every n at which that makes a difference.
fn at_every_call(counts: &[u64], mut body: impl FnMut(&str, &dyn Fn(&Faulty)) -> bool) {
    for (&fault, &count) in FAULTS.iter().flat_map(|fault| counts.iter().map(move |count| (fault, count))) {
        let mut fired = 0;
        for n in 0.. {
            assert!(n < MANY, "the operation never ends");
            if !body(&format!("{count} {fault:?} at call {n}"), &|faulty| faulty.arm(n, count, fault)) {
                break;
            }
            fired += 1;
        }
        assert!(fired > 0, "{fault:?} never fired: the test tests nothing");
    }
}

#[test]
fn at_every_fault_completion_and_effects_land_together_or_not_at_all() {
    for durability in ALL {
        for again in ["first", "second"] {
            at_every_call(&[1, 2], |name, arm| {
                let name = &format!("{name}, {durability:?}, then {again}");
                let (faulty, clock) = (Faulty::new(), ManualClock::new());
                let mut store = open(&faulty, &clock);
                store.kv("a").put("gone", "").unwrap();
                let claim = grant(&store, request(durability));
                arm(&faulty);
                let told = catch_unwind(AssertUnwindSafe(|| claim.complete_with("done", effects("first"))));
                let fired = faulty.disarm();
                let _ = store.sync(); // a settle that failed asked for one, which may be at it still
                if store.stats().poisoned {
                    assert!(!matches!(told, Ok(Ok(()))), "P4 durable before told: {name}");
                    let read = store.kv("a").get("x");
                    assert!(matches!(read, Err(KvError::Failed { .. })), "P9 fail closed: {name}: {read:?}");
                    drop(told);
                    let _ = store.close();
                    faulty.crash();
                    store = open(&faulty, &clock);
                    landed_together(&store, name);
                    return true;
                }
                let before = landed_together(&store, name);
                match told {
                    Ok(Ok(())) => assert_eq!(before.as_deref(), Some("first"), "{name}"),
                    Ok(Err(SettleError::Retry(retry))) => {
                        match retry.claim.complete_with("done", effects(again)) {
                            Ok(()) => {
                                let now = landed_together(&store, name);
                                assert_eq!(
                                    now.as_deref(),
                                    Some(again),
                                    "rule 17: Ok to effects that did not land: {name}"
                                );
                            }
                            Err(SettleError::Retry(retry)) => {
                                let other = matches!(retry.cause, RetryCause::OtherEffects);
                                assert!(other && again == "second", "{name}: {}", retry.cause);
                                retry.claim.complete_with("done", effects("first")).unwrap();
                            }
                            Err(other) => panic!("{name}: {other:?}"),
                        }
                        assert!(landed_together(&store, name).is_some());
                    }
                    Ok(Err(other)) => panic!("{name}: {other:?}"),
                    Err(_) => {} // the claim went with the panic
                }
                let stats = store.stats();
                assert_eq!((stats.entries, stats.unsynced, stats.waiters), (0, 0, 0), "left behind: {name}");
                !fired.is_empty()
            });
        }
    }
}

#[test]
fn at_every_power_cut_completion_and_effects_are_there_together_or_not_at_all() {
    for durability in ALL {
        let mut kept = [0, 0];
        // From some call on everything fails, and then the power is cut.
        at_every_call(&[1, 2, MANY], |name, arm| {
            let (faulty, clock) = (Faulty::new(), ManualClock::new());
            let store = open(&faulty, &clock);
            store.kv("a").put("gone", "").unwrap();
            let claim = grant(&store, request(durability));
            arm(&faulty);
            let told = catch_unwind(AssertUnwindSafe(|| claim.complete_with("done", effects("1"))));
            let told = matches!(told, Ok(Ok(())));
            faulty.crash();
            let fired = faulty.disarm();
            drop(store);
            let left = landed_together(&open(&faulty, &clock), name);
            kept[usize::from(left.is_some())] += 1;
            let may_forget = durability == Durability::Relaxed;
            assert!(left.is_some() || !told || may_forget, "P4 durable before told: {name}, {durability:?}");
            !fired.is_empty()
        });
        assert!(
            kept[0] > 0 && (kept[1] > 0 || durability == Durability::Relaxed),
            "cut at one side: {kept:?}"
        );
    }
}

#[test]
fn at_every_fault_several_writes_land_together_or_not_at_all() {
    at_every_call(&[1, 2], |name, arm| {
        let (faulty, clock) = (Faulty::new(), ManualClock::new());
        let mut store = open(&faulty, &clock);
        let old = Writes::new().put("a", "x", "old").put("b", "y", "old").put("a", "gone", "");
        store.write(old).unwrap();
        arm(&faulty);
        let told = catch_unwind(AssertUnwindSafe(|| store.write(effects("new"))));
        let fired = faulty.disarm();
        let _ = store.sync();
        if store.stats().poisoned {
            assert!(!matches!(told, Ok(Ok(()))), "P4 durable before told: {name}");
            let _ = store.close();
            faulty.crash();
            store = open(&faulty, &clock);
        }
        let text = |name, key| String::from_utf8(store.kv(name).get(key).unwrap().unwrap()).unwrap();
        let (x, y, gone) = (text("a", "x"), text("b", "y"), store.kv("a").get("gone").unwrap().is_none());
        assert_eq!((y.as_str(), gone), (x.as_str(), x == "new"), "writes came apart: {name}");
        if let Ok(Ok(())) = told {
            assert_eq!(x, "new", "P4 durable before told: {name}");
        }
        assert_eq!(store.stats().entries, 0, "left behind: {name}");
        !fired.is_empty()
    });
}

#[test]
fn a_fault_of_a_swap_leaves_its_fate_open_and_is_never_told_as_swapped() {
    for (fault, landed) in [(Fault::FailBefore, false), (Fault::FailAfter, true)] {
        let (faulty, clock) = (Faulty::new(), ManualClock::new());
        let store = open(&faulty, &clock);
        let values = store.kv("v");
        faulty.arm(1, 1, fault);
        let told = values.compare_and_swap("k", None, Some(b"1"));
        assert_eq!(faulty.disarm(), ["commit"]);
        assert!(matches!(told, Err(KvError::Failed { .. })), "P9 fail closed: {told:?}");
        assert_eq!(values.get("k").unwrap().is_some(), landed);
        assert_eq!(store.stats().entries, 0);
    }
}

#[test]
fn completions_that_share_effects_do_not_wait_for_each_other_or_mix() {
    over_every_backend(|store, _| {
        let keys = ["x", "y", "z"];
        let write = |from: u64| {
            for n in (0..25).map(|n| from + n) {
                let claim = store.claim(Request::new(&n.to_le_bytes()).durability(Durability::Result));
                let claim = claim.unwrap().granted().unwrap();
                let writes = keys.iter().fold(Writes::new(), |writes, key| writes.put_value("v", key, &n));
                claim.complete_with(&n, writes).unwrap();
                let mine = store.kv("v").get_value::<u64>("x").unwrap();
                assert!(mine.is_some(), "an effect that was told of is not there");
            }
        };
        std::thread::scope(|scope| {
            let writers = [0, 1000, 2000].map(|from| scope.spawn(move || write(from)));
            while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                let seen = store.kv("v").get_value::<u64>("x").unwrap();
                let Some(seen) = seen else { continue };
                assert!(
                    store.get(&seen.to_le_bytes()).unwrap().is_some(),
                    "an effect was told before its completion"
                );
            }
        });
        let found: Vec<_> = store.kv("v").scan("").unwrap().map(|pair| pair.unwrap().1).collect();
        assert!(found.len() == 3 && found.iter().all(|value| *value == found[0]), "effects mixed: {found:?}");
        assert_eq!(store.stats().entries, 0);
    });
}
