//! The contract of `claimdb::backend`, over every engine there is.
#![cfg(not(loom))] // real threads and real files
#![allow(clippy::unwrap_used)] // tests play the caller

#[path = "../examples/backend/contract.rs"]
mod contract;

use claimdb::backend::{Backend, Mem};
use contract::{commit, scan, swap};

/// Runs `check` over an empty place of every kind.
fn over_every_backend(check: impl Fn(&dyn Backend)) {
    check(&Mem::new());
    check(&Mem::with_power_cuts());
    #[cfg(feature = "sled")]
    {
        let folder = tempfile::tempdir().unwrap();
        check(&claimdb::backend::Sled::new(folder.path().join("store")));
    }
    #[cfg(feature = "redb")]
    {
        let folder = tempfile::tempdir().unwrap();
        check(&claimdb::backend::Redb::new(folder.path().join("store")));
    }
}

/// A test for each check.
macro_rules! over_every_backend {
    ($($check:ident,)*) => {
        $(
            #[test]
            fn $check() {
                over_every_backend(contract::$check);
            }
        )*

        #[test]
        fn every_check_is_a_test() {
            let checks: Vec<_> = contract::CHECKS.iter().map(|(name, _)| *name).collect();
            assert_eq!([$(stringify!($check)),*], *checks);
        }
    };
}

over_every_backend! {
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

#[test]
fn memory_is_shared_by_its_clones_and_by_nobody_else() {
    let mem = Mem::new();
    swap(&*mem.open().unwrap(), b"k", None, Some(b"v"));
    assert_eq!(mem.clone().open().unwrap().read(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(Mem::new().open().unwrap().read(b"k").unwrap(), None);
}

#[test]
fn a_power_cut_takes_from_memory_what_no_sync_covers() {
    let mem = Mem::with_power_cuts();
    let engine = mem.open().unwrap();
    swap(&*engine, b"synced", None, Some(b"1"));
    swap(&*engine, b"gone", None, Some(b"1"));
    engine.sync().unwrap();
    swap(&*engine, b"synced", Some(b"1"), Some(b"2"));
    swap(&*engine, b"gone", Some(b"1"), None);
    swap(&*engine, b"new", None, Some(b"1"));
    mem.crash();
    assert!(engine.read(b"synced").is_err(), "the opening has ended");
    assert!(engine.sync().is_err(), "the opening has ended");
    assert!(engine.commit(&[commit(b"k", None, None)])[0].is_err(), "the opening has ended");
    let second = mem.open().unwrap();
    drop(engine);
    assert!(mem.open().is_err(), "a ghost does not free the lock of another");
    let pairs = [("gone", "1"), ("synced", "1")].map(|(key, value)| (key.into(), value.into()));
    assert_eq!(scan(&*second, b"", None), pairs);
}
