//! Racing claimants of one key, model-checked. See `docs/testing.md` for the list and what loom cannot see.
#![cfg_attr(loom, allow(missing_docs))]

// For all the models: they are built and run together.
#[cfg(not(loom))]
#[test]
fn loom_cfg_took() {
    assert!(
        std::env::var_os("CLAIMDB_LOOM").is_none(),
        "`cargo loom` ran without cfg(loom): a RUSTFLAGS in the environment overrides the alias, and no model \
         was run; unset it"
    );
}

#[cfg(loom)]
mod support;

#[cfg(loom)]
mod models {
    use crate::support::model;
    use claimdb::backend::Mem;
    use claimdb::{Break, Durability, ManualClock, Outcome, Request, Store, SyncBy};
    use loom::thread;

    fn store(mem: Mem, clock: &ManualClock) -> Store {
        Store::builder(mem).clock(clock.clone()).sync_by(SyncBy::Caller).open().expect("memory opens")
    }

    /// `claimants` threads claim one key once and keep what they get; exactly one is granted it.
    fn race(claimants: usize, durability: Durability) {
        let clock = ManualClock::new();
        let store = store(Mem::new(), &clock);
        let claim = move |store: &Store| match store
            .claim(Request::new("k").durability(durability))
            .expect("memory does not fail")
        {
            Outcome::Granted(claim) => Some(claim),
            Outcome::InFlight(_) => None,
            other => panic!("nothing was settled, and a claimant was told {other:?}"),
        };
        let others: Vec<_> = (1..claimants)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || claim(&store))
            })
            .collect();
        let mut held = Vec::from_iter(claim(&store));
        held.extend(others.into_iter().filter_map(|other| other.join().expect("a claimant panicked")));
        assert_eq!(held.len(), 1, "P1 one holder: {} claims of one key were granted at once", held.len());
    }

    #[test]
    fn two_claimants_in_memory() {
        model("two_claimants_in_memory", Some(5), || race(2, Durability::Result));
    }

    #[test]
    fn two_claimants_durable() {
        model("two_claimants_durable", Some(5), || race(2, Durability::Full));
    }

    #[test]
    fn three_claimants_in_memory() {
        model("three_claimants_in_memory", Some(3), || race(3, Durability::Result));
    }

    /// Two claim one key and complete it at once when they are granted it: one of them runs.
    fn one_runs(durability: Durability) {
        let clock = ManualClock::new();
        let store = store(Mem::new(), &clock);
        let run = move |store: &Store| match store
            .claim(Request::new("k").durability(durability))
            .expect("memory does not fail")
        {
            Outcome::Granted(claim) => {
                // Refused or not, its work has run.
                drop(claim.complete("done"));
                true
            }
            _ => false,
        };
        let other = {
            let store = store.clone();
            thread::spawn(move || run(&store))
        };
        let ran = usize::from(run(&store)) + usize::from(other.join().expect("a claimant panicked"));
        assert_eq!(ran, 1, "P8 remembered: the work of one key ran {ran} times");
    }

    #[test]
    fn one_runs_in_memory() {
        model("one_runs_in_memory", Some(4), || one_runs(Durability::Relaxed));
    }

    #[test]
    fn one_runs_durable() {
        model("one_runs_durable", Some(3), || one_runs(Durability::Full));
    }

    #[test]
    fn twin_stale_look() {
        crate::support::twin(Break::StaleLook, "P8 remembered", || one_runs(Durability::Relaxed));
    }

    #[test]
    fn twin_check_then_act() {
        crate::support::twin(Break::CheckThenAct, "P1 one holder", || race(2, Durability::Result));
    }
}
