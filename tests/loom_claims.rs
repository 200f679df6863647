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
    use crate::support::{Fault, Faulty, LEASE_OVER, World, claim, models, twin};
    use claimdb::{
        AllClaimed, Break, Durability, Fingerprint, KeyState, ManualClock, Outcome, Request, Store, SyncBy,
        Token,
    };
    use loom::thread;
    use std::sync::{Arc, Mutex};

    /// `claimants` threads claim one key once and keep what they get; exactly one is granted it.
    fn race(claimants: usize, durability: Durability) {
        let world = World::new(SyncBy::Caller);
        let claim = move |store: &Store| match store.claim(Request::new("k").durability(durability)) {
            Ok(Outcome::Granted(claim)) => Some(claim),
            Ok(Outcome::InFlight(_)) => None,
            Ok(other) => panic!("nothing was settled, and a claimant was told {other:?}"),
            Err(error) => panic!("rule 10: the place that a claimant was taking was taken from it: {error}"),
        };
        let others: Vec<_> = (1..claimants)
            .map(|_| {
                let store = world.store.clone();
                thread::spawn(move || claim(&store))
            })
            .collect();
        let mut held = Vec::from_iter(claim(&world.store));
        held.extend(others.into_iter().filter_map(|other| other.join().expect("a claimant panicked")));
        assert_eq!(held.len(), 1, "P1 one holder: {} claims of one key were granted at once", held.len());
    }

    /// Two claim one key and complete it at once when they are granted it: one of them runs.
    fn one_runs(durability: Durability) {
        let world = World::new(SyncBy::Caller);
        let run = move |store: &Store| match claim(store, durability) {
            Outcome::Granted(claim) => {
                // Refused or not, its work has run.
                drop(claim.complete("done"));
                true
            }
            _ => false,
        };
        let other = {
            let store = world.store.clone();
            thread::spawn(move || run(&store))
        };
        let ran = usize::from(run(&world.store)) + usize::from(other.join().expect("a claimant panicked"));
        assert_eq!(ran, 1, "P8 remembered: the work of one key ran {ran} times");
    }

    /// Two that take turns: who is granted the key later has the greater token.
    fn tokens_in_order(durability: Durability) {
        let world = World::new(SyncBy::Caller);
        // Written only by who has the key. Not loom's: the order in which it was granted is all there is to see.
        let last = Arc::new(Mutex::new(Token::new(0)));
        let turn = move |store: &Store, last: &Mutex<Token>| {
            if let Some(claim) = claim(store, durability).granted() {
                let token = claim.token();
                let before = std::mem::replace(&mut *last.lock().unwrap(), token);
                assert!(token > before, "P2 ordered tokens: {token} was granted after {before}");
            }
        };
        let other = {
            let (store, last) = (world.store.clone(), Arc::clone(&last));
            thread::spawn(move || turn(&store, &last))
        };
        turn(&world.store, &last);
        other.join().expect("a claimant panicked");
    }

    /// Two claim one key for different work: one is granted it, and the other told so from the first moment.
    fn mismatch(durability: Durability) {
        let world = World::new(SyncBy::Caller);
        let claim = move |store: &Store, work: &str| {
            let request = Request::new("k").durability(durability).fingerprint(Fingerprint::of_bytes(work));
            match store.claim(request).expect("the drive works") {
                Outcome::Granted(claim) => Some(claim),
                Outcome::Mismatched(_) => None,
                other => panic!("P7 mismatch is harmless: a claimant for other work was told {other:?}"),
            }
        };
        let other = {
            let store = world.store.clone();
            thread::spawn(move || claim(&store, "b"))
        };
        let mine = claim(&world.store, "a");
        let granted = [mine, other.join().expect("a claimant panicked")];
        let held = granted.iter().flatten().count();
        assert_eq!(held, 1, "P1 one holder: {held} were granted the key, for different work");
    }

    /// A claim is stored and never granted, since storage fails before it is told: it costs no attempt.
    fn never_granted_once() {
        let world = World::new(SyncBy::Caller);
        world.faulty.arm(Fault::Unheard("k"));
        let attempt = |store: &Store| {
            let granted = store.claim("k").ok().and_then(Outcome::granted);
            granted.map(|claim| (claim.attempt(), claim))
        };
        let other = {
            let store = world.store.clone();
            thread::spawn(move || attempt(&store))
        };
        let granted = [attempt(&world.store), other.join().expect("a claimant panicked")];
        let granted = Vec::from_iter(granted.into_iter().flatten());
        assert!(granted.len() <= 1, "P1 one holder: both were granted the key");
        world.faulty.disarm();
        let last = if granted.is_empty() { attempt(&world.store) } else { None };
        for (attempt, _) in granted.into_iter().chain(last) {
            assert_eq!(attempt, 1, "rule 15: attempt {attempt}, and nobody was granted the one before");
        }
    }

    /// The sync of a stored claim takes longer than the lease, which begins when it is over.
    fn slow_sync() {
        let (faulty, clock) = (Faulty::default(), ManualClock::new());
        let builder = Store::builder(faulty.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
        let store = builder.open().expect("a drive opens");
        faulty.arm(Fault::During(Box::new(move || clock.advance(LEASE_OVER))));
        let other = {
            let store = store.clone();
            thread::spawn(move || claim(&store, Durability::Full).granted())
        };
        let mine = claim(&store, Durability::Full).granted();
        let granted = [mine, other.join().expect("a claimant panicked")];
        let held = granted.iter().flatten().count();
        assert_eq!(
            held, 1,
            "P5 no early takeover: {held} were granted the key, and no lease had begun to run"
        );
        for claim in granted.iter().flatten() {
            assert!(!claim.lost().is_raised(), "P5 no early takeover: a lease was over when it was granted");
        }
    }

    /// A batch takes an expired key over and gives it back, since another of its keys fails, while the old holder
    /// completes: if that was refused, the record is the old holder's again.
    fn swapped_back() {
        let world = World::new(SyncBy::Caller);
        let old = world.late(Durability::Full);
        let token = old.token();
        world.faulty.arm(Fault::Commit("z"));
        let completer = thread::spawn(move || old.complete("late").is_ok());
        let claimed = world.store.claim_all(["k", "z"]);
        assert!(
            !matches!(claimed, Ok(AllClaimed::Granted(_))),
            "rule 24: a batch was granted, and one of its keys failed"
        );
        let completed = completer.join().expect("the old holder panicked");
        let found = world.store.inspect("k").expect("the drive works");
        let expected = if completed { KeyState::Settled } else { KeyState::Pending };
        assert_eq!(
            (found.state, found.token),
            (expected, Some(token)),
            "rule 24: a batch that failed left a record of its own"
        );
    }

    /// Two draw tokens at the ceiling, which they raise: after a power cut none of theirs is handed out again.
    fn ceiling(left: usize) {
        let world = World::new(SyncBy::Caller);
        let draw = |store: &Store, key: &str| {
            let request = Request::new(key).durability(Durability::Result);
            // Once the power is cut it is told an error.
            store.claim(request).ok()?.granted().map(|claim| claim.token())
        };
        // Models have eight tokens to a ceiling, and it is raised when half of them are left: that fails here.
        for number in 0..8 - left {
            if number == 4 {
                world.faulty.arm(Fault::Commit("token-ceiling"));
            }
            draw(&world.store, "k").expect("it is free");
        }
        let other = {
            let store = world.store.clone();
            thread::spawn(move || draw(&store, "b"))
        };
        let mine = draw(&world.store, "a");
        let cut = world.faulty.drive.cut_power();
        let told = [mine, other.join().expect("a claimant panicked")];
        for left in world.survivors(&cut) {
            let next = draw(&left.store, "k").expect("it is free");
            for told in told.into_iter().flatten() {
                assert!(next > told, "P2 ordered tokens: after a power cut {next} was granted after {told}");
            }
        }
    }

    models! {
        two_claimants_in_memory, None, || race(2, Durability::Result);
        two_claimants_durable, Some(5), || race(2, Durability::Full);
        three_claimants_in_memory, Some(4), || race(3, Durability::Result);
        one_runs_in_memory, Some(5), || one_runs(Durability::Relaxed);
        one_runs_durable, Some(5), || one_runs(Durability::Full);
        tokens_in_order_in_memory, Some(6), || tokens_in_order(Durability::Result);
        tokens_in_order_durable, Some(5), || tokens_in_order(Durability::Full);
        mismatch_in_memory, None, || mismatch(Durability::Result);
        mismatch_durable, Some(6), || mismatch(Durability::Full);
        never_granted, Some(5), never_granted_once;
        slow_sync_against_claimant, Some(4), slow_sync;
        swapped_back_against_late_completion, Some(4), swapped_back;
        ceiling_against_draws, Some(4), || ceiling(1);
        ceiling_reached_by_two, Some(3), || ceiling(0);
    }

    #[test]
    fn twin_check_then_act() {
        twin(Break::CheckThenAct, "P1 one holder", || race(2, Durability::Result));
    }

    #[test]
    fn twin_taking_expires() {
        twin(Break::TakingExpires, "rule 10", || race(2, Durability::Result));
    }

    #[test]
    fn twin_stale_look() {
        twin(Break::StaleLook, "P8 remembered", || one_runs(Durability::Relaxed));
    }

    #[test]
    fn twin_place_given_up() {
        twin(Break::PlaceGivenUp, "P2 ordered tokens", || tokens_in_order(Durability::Result));
    }

    #[test]
    fn twin_busy_before_mismatch() {
        twin(Break::BusyBeforeMismatch, "P7 mismatch is harmless", || mismatch(Durability::Result));
    }

    #[test]
    fn twin_never_granted_counts() {
        twin(Break::NeverGrantedCounts, "rule 15", never_granted_once);
    }

    #[test]
    fn twin_lease_from_take() {
        twin(Break::LeaseFromTake, "P5 no early takeover", slow_sync);
    }

    #[test]
    fn twin_not_swapped_back() {
        twin(Break::NotSwappedBack, "rule 24", swapped_back);
    }

    #[test]
    fn twin_ceiling_unsynced() {
        twin(Break::CeilingUnsynced, "P2 ordered tokens", || ceiling(0));
    }
}
