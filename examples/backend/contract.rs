//! What an engine has to promise, as checks of an empty place that panic where it does not hold. Copy it beside an engine
//! of your own, and run each check as a test. What no check can show is what survives a power cut: see the documentation of
//! `claimdb::backend`, and cut it.
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)] // it plays the caller

use claimdb::OpenError;
use claimdb::backend::{Backend, Commit, Engine, Swap, Write};
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::thread;

/// Checks an empty place.
pub type Check = fn(&dyn Backend);

macro_rules! checks {
    ($($check:ident,)*) => {
        /// Each check with its name. Each wants a place of its own.
        pub const CHECKS: &[(&str, Check)] = &[$((stringify!($check), $check)),*];
    };
}

checks! {
    a_swap_is_done_where_the_expected_value_is_and_refused_with_the_current_one_elsewhere,
    each_commit_of_a_slice_is_judged_on_its_own_and_in_order,
    hints_land_whatever_becomes_of_the_swap_and_effects_with_it_or_not_at_all,
    a_scan_goes_through_the_keys_of_a_prefix_in_order,
    a_scan_may_write_to_what_it_walks_over,
    keys_and_values_are_any_bytes_of_any_length_that_a_record_has,
    of_many_threads_exactly_one_swaps_each_round,
    each_of_many_threads_gets_its_own_answers,
    effects_of_many_threads_are_those_of_the_swaps_that_landed,
    one_engine_of_a_place_is_open_at_a_time,
    bytes_survive_close_and_open,
}

fn open(place: &dyn Backend) -> Box<dyn Engine> {
    place.open().unwrap()
}

pub fn commit<'a>(key: &'a [u8], expected: Option<&'a [u8]>, new: Option<&'a [u8]>) -> Commit<'a> {
    Commit { key, expected, new, hints: &[], effects: &[] }
}

pub fn swap(engine: &dyn Engine, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Swap {
    let mut answers = engine.commit(&[commit(key, expected, new)]);
    assert_eq!(answers.len(), 1, "one answer for each commit");
    answers.remove(0).unwrap()
}

fn refused(current: Option<&[u8]>) -> Swap {
    Swap::Refused { current: current.map(<[u8]>::to_vec) }
}

fn put(key: &str, value: &str) -> Write {
    Write { key: key.into(), value: Some(value.into()) }
}

fn delete(key: &str) -> Write {
    Write { key: key.into(), value: None }
}

pub fn scan(engine: &dyn Engine, prefix: &[u8], after: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    engine
        .scan(prefix, after, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn scanned_keys(engine: &dyn Engine, prefix: &[u8], after: Option<&[u8]>) -> Vec<Vec<u8>> {
    scan(engine, prefix, after).into_iter().map(|(key, _)| key).collect()
}

pub fn a_swap_is_done_where_the_expected_value_is_and_refused_with_the_current_one_elsewhere(
    place: &dyn Backend,
) {
    let engine = &*open(place);
    assert_eq!(engine.read(b"k").unwrap(), None);
    assert_eq!(swap(engine, b"k", Some(b"a"), Some(b"b")), refused(None));
    assert_eq!(swap(engine, b"k", Some(b"a"), None), refused(None));
    assert_eq!(swap(engine, b"k", None, Some(b"a")), Swap::Done);
    assert_eq!(swap(engine, b"k", None, Some(b"b")), refused(Some(b"a")));
    assert_eq!(swap(engine, b"k", None, None), refused(Some(b"a")));
    assert_eq!(swap(engine, b"k", Some(b"x"), Some(b"b")), refused(Some(b"a")));
    assert_eq!(swap(engine, b"k", Some(b""), Some(b"b")), refused(Some(b"a")), "empty is not absent");
    assert_eq!(engine.read(b"k").unwrap().as_deref(), Some(&b"a"[..]), "a refused swap writes nothing");
    assert_eq!(swap(engine, b"k", Some(b"a"), Some(b"a")), Swap::Done);
    assert_eq!(swap(engine, b"k", Some(b"a"), Some(b"b")), Swap::Done);
    assert_eq!(engine.read(b"k").unwrap().as_deref(), Some(&b"b"[..]));
    assert_eq!(swap(engine, b"k", Some(b"a"), None), refused(Some(b"b")));
    assert_eq!(swap(engine, b"k", Some(b"b"), None), Swap::Done);
    assert_eq!(engine.read(b"k").unwrap(), None);
    assert_eq!(swap(engine, b"k", None, None), Swap::Done);
    assert_eq!(scan(engine, b"", None), []);
}

pub fn each_commit_of_a_slice_is_judged_on_its_own_and_in_order(place: &dyn Backend) {
    let engine = &*open(place);
    assert!(engine.commit(&[]).is_empty());
    let (a, b, c) = (&b"a"[..], &b"b"[..], &b"c"[..]);
    let answers = engine.commit(&[
        commit(b"k", None, Some(a)),
        commit(b"k", None, Some(b)),
        commit(b"k", Some(a), Some(c)),
        commit(b"other", Some(a), Some(b)),
        commit(b"last", None, Some(b)),
    ]);
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [Swap::Done, refused(Some(a)), Swap::Done, refused(None), Swap::Done]);
    let pairs = [("k", "c"), ("last", "b")].map(|(key, value)| (key.into(), value.into()));
    assert_eq!(scan(engine, b"", None), pairs);
}

pub fn hints_land_whatever_becomes_of_the_swap_and_effects_with_it_or_not_at_all(place: &dyn Backend) {
    let engine = &*open(place);
    let (hints, effects) = ([put("hint", "1"), delete("gone")], [put("effect", "1"), delete("old")]);
    for key in ["gone", "old"] {
        swap(engine, key.as_bytes(), None, Some(b"there"));
    }
    let with =
        |expected| Commit { expected, hints: &hints, effects: &effects, ..commit(b"k", None, Some(b"v")) };

    let answer = engine.commit(&[with(Some(&b"other"[..]))]).remove(0).unwrap();
    assert_eq!(answer, refused(None));
    assert_eq!(engine.read(b"hint").unwrap().as_deref(), Some(&b"1"[..]), "a hint lands without the swap");
    assert_eq!(engine.read(b"gone").unwrap(), None, "a hint lands without the swap");
    assert_eq!(engine.read(b"effect").unwrap(), None, "an effect never lands without the swap");
    assert_eq!(engine.read(b"old").unwrap().as_deref(), Some(&b"there"[..]), "nor does one that deletes");
    assert_eq!(engine.read(b"k").unwrap(), None);

    assert_eq!(engine.commit(&[with(None)]).remove(0).unwrap(), Swap::Done);
    assert_eq!(engine.read(b"effect").unwrap().as_deref(), Some(&b"1"[..]), "an effect lands with the swap");
    assert_eq!(engine.read(b"old").unwrap(), None, "an effect lands with the swap");
    assert_eq!(engine.read(b"k").unwrap().as_deref(), Some(&b"v"[..]));

    // A swap that deletes has effects as well.
    let effects = [put("effect", "2")];
    let leave = Commit { effects: &effects, ..commit(b"k", Some(b"v"), None) };
    assert_eq!(engine.commit(&[leave]).remove(0).unwrap(), Swap::Done);
    assert_eq!(engine.read(b"effect").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(engine.read(b"k").unwrap(), None);
}

pub fn a_scan_goes_through_the_keys_of_a_prefix_in_order(place: &dyn Backend) {
    let engine = &*open(place);
    assert_eq!(scan(engine, b"", None), []);
    assert_eq!(scan(engine, b"p", Some(b"q")), []);
    let keys: [&[u8]; 9] =
        [b"a", b"p", b"p\x00", b"p\x00\xff", b"p\x01", b"pa", b"p\xff", b"p\xff\xff", b"q"];
    for key in keys.iter().rev() {
        swap(engine, key, None, Some(key));
    }
    assert_eq!(scanned_keys(engine, b"", None), keys, "all, in the order of bytes");
    assert_eq!(scanned_keys(engine, b"p", None), keys[1..8], "those of the prefix, itself included");
    assert_eq!(scanned_keys(engine, b"p\xff", None), keys[6..8]);
    assert_eq!(scanned_keys(engine, b"p", Some(b"p\x00")), keys[3..8], "after, not from");
    assert_eq!(scanned_keys(engine, b"p", Some(b"p\x00\x00")), keys[3..8], "after need not be there");
    assert_eq!(scanned_keys(engine, b"p", Some(b"a")), keys[1..8], "after may lie before the prefix");
    assert_eq!(scanned_keys(engine, b"p", Some(b"p\xff\xff")), [] as [&[u8]; 0]);
    assert_eq!(scanned_keys(engine, b"p", Some(b"q")), [] as [&[u8]; 0], "and behind it");
    assert_eq!(scanned_keys(engine, b"pz", None), [] as [&[u8]; 0]);
    for (key, value) in scan(engine, b"", None) {
        assert_eq!(key, value, "each key with its own value");
    }
    let mut shown = 0;
    let mut three = |_: &[u8], _: &[u8]| {
        shown += 1;
        if shown < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    engine.scan(b"p", None, &mut three).unwrap();
    assert_eq!(shown, 3, "it ends where the visitor breaks");
}

pub fn a_scan_may_write_to_what_it_walks_over(place: &dyn Backend) {
    let engine = &*open(place);
    for n in 0..200_u8 {
        swap(engine, &[n], None, Some(b"v"));
    }
    let mut shown = Vec::new();
    engine
        .scan(b"", None, &mut |key, value| {
            shown.push(key[0]);
            assert_eq!(swap(engine, key, Some(value), None), Swap::Done);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(shown, (0..200).collect::<Vec<_>>());
    assert_eq!(scan(engine, b"", None), []);
}

pub fn keys_and_values_are_any_bytes_of_any_length_that_a_record_has(place: &dyn Backend) {
    let engine = &*open(place);
    let all: Vec<u8> = (0..=255).collect();
    let keys = [vec![0], vec![0; 1300], vec![255; 1300], all.repeat(5), all, vec![0, 255, 0], vec![255]];
    let values = [Vec::new(), vec![0], vec![255; 1 << 20], (0..=255).collect::<Vec<u8>>().repeat(4096)];
    let mut before: Option<&[u8]> = None;
    for value in &values {
        for key in &keys {
            assert_eq!(swap(engine, key, before, Some(value)), Swap::Done);
        }
        for key in &keys {
            let read = engine.read(key).unwrap();
            assert!(read.as_ref() == Some(value), "{} bytes came back otherwise", value.len());
        }
        assert_eq!(scan(engine, b"", None).len(), keys.len());
        before = Some(value);
    }
    let mut sorted = keys.to_vec();
    sorted.sort();
    assert_eq!(scanned_keys(engine, b"", None), sorted);
    engine.sync().unwrap();
}

pub fn of_many_threads_exactly_one_swaps_each_round(place: &dyn Backend) {
    const THREADS: u8 = 8;
    const ROUNDS: u32 = 200;
    let engine = &*open(place);
    let barrier = Barrier::new(usize::from(THREADS));
    let winners: Vec<u32> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|name| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut won = 0;
                    for round in 0..ROUNDS {
                        let mine = [&round.to_be_bytes()[..], &[name]].concat();
                        barrier.wait();
                        // The one expects nothing, the other what the round before left behind.
                        let fresh = swap(engine, &round.to_be_bytes(), None, Some(&mine));
                        won += u32::from(fresh == Swap::Done);
                        if let Swap::Refused { current } = fresh {
                            let current = current.expect("somebody has won");
                            assert_eq!(current[..4], round.to_be_bytes(), "the current value is a winner's");
                        }
                    }
                    won
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(winners.iter().sum::<u32>(), ROUNDS, "P1 one holder: one swap wins each round: {winners:?}");
    assert_eq!(scan(engine, b"", None).len(), usize::try_from(ROUNDS).unwrap());
}

pub fn each_of_many_threads_gets_its_own_answers(place: &dyn Backend) {
    let engine = &*open(place);
    thread::scope(|scope| {
        for name in 0..8_u8 {
            scope.spawn(move || {
                let mut before: Option<Vec<u8>> = None;
                for round in 0..200_u8 {
                    let next = [name, round];
                    let wrong = swap(engine, &[name], Some(b"wrong"), Some(b"never"));
                    let right = swap(engine, &[name], before.as_deref(), Some(&next));
                    assert_eq!(wrong, refused(before.as_deref()), "P1 one holder: another's answer");
                    assert_eq!(right, Swap::Done, "P1 one holder: another's answer");
                    before = Some(next.to_vec());
                }
            });
        }
    });
}

pub fn effects_of_many_threads_are_those_of_the_swaps_that_landed(place: &dyn Backend) {
    let engine = &*open(place);
    thread::scope(|scope| {
        for name in 0..4_u8 {
            scope.spawn(move || {
                for round in 0..50_u8 {
                    let effects = [Write { key: vec![2, round], value: Some(vec![name]) }];
                    let key = [1, round];
                    let value = [name];
                    let one = Commit { effects: &effects, ..commit(&key, None, Some(&value)) };
                    engine.commit(&[one]).remove(0).unwrap();
                }
            });
        }
    });
    for round in 0..50 {
        let (record, effect) = (engine.read(&[1, round]).unwrap(), engine.read(&[2, round]).unwrap());
        assert!(record.is_some() && record == effect, "an effect came with a swap that did not land");
    }
}

pub fn one_engine_of_a_place_is_open_at_a_time(backend: &dyn Backend) {
    let first = backend.open().unwrap();
    for _ in 0..2 {
        let second = backend.open();
        assert!(matches!(second, Err(OpenError::Locked { .. })), "rule 9: one opening at a time: {second:?}");
    }
    swap(&*first, b"k", None, Some(b"v"));
    drop(first);
    let second = backend.open().expect("dropping the engine gives the right back");
    assert!(matches!(backend.open(), Err(OpenError::Locked { .. })));
    drop(second);
}

pub fn bytes_survive_close_and_open(backend: &dyn Backend) {
    for round in 0..3_u8 {
        let engine = backend.open().unwrap();
        assert_eq!(scan(&*engine, b"", None).len(), usize::from(round));
        assert_eq!(swap(&*engine, &[round], None, Some(&[round])), Swap::Done);
        if round == 0 {
            engine.sync().unwrap();
        }
    }
    let engine = backend.open().unwrap();
    for round in 0..3_u8 {
        assert_eq!(engine.read(&[round]).unwrap(), Some(vec![round]));
    }
}
