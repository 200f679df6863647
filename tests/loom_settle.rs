//! Settling against expiry, takeover, readers and power cuts, model-checked. See `docs/testing.md`.
#![cfg_attr(loom, allow(missing_docs))]

#[cfg(loom)]
mod support;

#[cfg(loom)]
mod models {
    use crate::support::{model, twin};
    use claimdb::backend::Mem;
    use claimdb::{
        Break, Claim, Durability, ManualClock, Outcome, Request, SettleError, Settled, Store, SyncBy,
    };
    use loom::thread;
    use std::time::Duration;

    const LEASE_OVER: Duration = Duration::from_secs(31);

    struct World {
        mem: Mem,
        clock: ManualClock,
        store: Store,
    }

    impl World {
        fn new(sync_by: SyncBy) -> Self {
            let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
            let store = Store::builder(mem.clone()).clock(clock.clone()).sync_by(sync_by).open();
            Self { mem, clock, store: store.expect("memory opens") }
        }

        /// What is left after a power cut.
        fn after_power_cut(&self) -> Option<String> {
            self.mem.crash();
            let store = Store::builder(self.mem.clone()).clock(self.clock.clone()).sync_by(SyncBy::Caller);
            let found = store.open().expect("memory opens").get("k").expect("memory does not fail");
            found.and_then(Settled::completed).map(|stored| stored.decode().expect("a string was stored"))
        }
    }

    fn claim(store: &Store, durability: Durability) -> Outcome {
        store.claim(Request::new("k").durability(durability)).expect("memory does not fail")
    }

    fn granted(store: &Store, durability: Durability) -> Claim {
        claim(store, durability).granted().expect("nobody else is here")
    }

    fn value(settled: Settled) -> String {
        settled.completed().expect("it was completed").decode().expect("a string was stored")
    }

    /// The old holder completes late while another takes over and completes: at most one is acknowledged, and
    /// what is stored is that one's.
    fn reclaim_against_late_completion(durability: Durability) {
        let world = World::new(SyncBy::Caller);
        let old = granted(&world.store, durability);
        world.clock.advance(LEASE_OVER);
        let late = thread::spawn(move || old.complete("old").is_ok());
        let new = match claim(&world.store, durability) {
            Outcome::Granted(claim) => Some(claim.complete("new").is_ok()),
            Outcome::Settled(settled) => {
                assert_eq!(value(settled), "old");
                None
            }
            Outcome::InFlight(_) => None,
            other => panic!("a claimant was told {other:?}"),
        };
        let late = late.join().expect("the old holder panicked");
        assert!(
            !(late && new.is_some()),
            "P3 fenced: the old holder's completion was acknowledged although another was granted the key"
        );
        let acknowledged = usize::from(late) + usize::from(new == Some(true));
        assert!(acknowledged <= 1, "P3 fenced: {acknowledged} completions of one key were acknowledged");
        assert_eq!(acknowledged, 1, "P6 never stuck: both completions were refused");
        let stored = world.store.get("k").expect("memory does not fail").map(value);
        let expected = if late { "old" } else { "new" };
        assert_eq!(stored.as_deref(), Some(expected), "P3 fenced: the refused completion is stored");
    }

    /// A holder whose lease is over releases while another takes over: if it is told that it did, the other is the
    /// first attempt, else the next.
    fn release_against_takeover(durability: Durability) {
        let world = World::new(SyncBy::Caller);
        let old = granted(&world.store, durability);
        world.clock.advance(LEASE_OVER);
        let releasing = thread::spawn(move || match old.release() {
            Ok(()) => true,
            Err(SettleError::Lost(_)) => false,
            Err(error) => panic!("releasing: {error}"),
        });
        let taken = match claim(&world.store, durability) {
            Outcome::Granted(claim) => Some(claim.attempt()),
            Outcome::InFlight(_) => None,
            other => panic!("a claimant was told {other:?}"),
        };
        let released = releasing.join().expect("the old holder panicked");
        assert!(released || taken.is_some(), "P6 never stuck: both were refused");
        if let Some(attempt) = taken {
            let expected = if released { 1 } else { 2 };
            assert_eq!(attempt, expected, "rule 18: released {released}, and the next is attempt {attempt}");
        }
    }

    /// Whoever is told of a completion finds it again after a power cut, at whatever moment that comes: the
    /// completer, a second claimant of a live or an expired lease, and a reader.
    fn told_survives(durability: Durability, expired: bool, sync_by: SyncBy, reader: bool) {
        let world = World::new(sync_by);
        let holder = granted(&world.store, durability);
        if expired {
            world.clock.advance(LEASE_OVER);
        }
        let completer = thread::spawn(move || holder.complete("done").is_ok());
        let told = if reader {
            world.store.get("k").expect("memory does not fail").map(value)
        } else {
            claim(&world.store, durability).settled().map(value)
        };
        if told.is_some() {
            assert_eq!(world.after_power_cut(), told, "P4 durable before told: a power cut undid it");
            completer.join().expect("the completer panicked");
        } else if completer.join().expect("the completer panicked") {
            let left = world.after_power_cut();
            assert_eq!(left.as_deref(), Some("done"), "P4 durable before told: a power cut undid it");
        }
    }

    #[test]
    fn reclaim_against_late_completion_durable() {
        model("reclaim_against_late_completion_durable", Some(5), || {
            reclaim_against_late_completion(Durability::Full);
        });
    }

    #[test]
    fn reclaim_against_late_completion_in_memory() {
        model("reclaim_against_late_completion_in_memory", Some(5), || {
            reclaim_against_late_completion(Durability::Result);
        });
    }

    #[test]
    fn release_against_takeover_durable() {
        model("release_against_takeover_durable", Some(6), || release_against_takeover(Durability::Full));
    }

    #[test]
    fn release_against_takeover_in_memory() {
        model("release_against_takeover_in_memory", None, || {
            release_against_takeover(Durability::Result);
        });
    }

    #[test]
    fn told_to_a_second_claimant() {
        model("told_to_a_second_claimant", Some(6), || {
            told_survives(Durability::Full, false, SyncBy::Caller, false);
        });
    }

    #[test]
    fn told_to_a_claimant_of_an_expired_lease() {
        model("told_to_a_claimant_of_an_expired_lease", Some(4), || {
            told_survives(Durability::Full, true, SyncBy::Caller, false);
        });
        model("told_to_a_claimant_of_an_expired_lease_in_memory", Some(5), || {
            told_survives(Durability::Result, true, SyncBy::Caller, false);
        });
    }

    #[test]
    fn told_to_a_reader() {
        model("told_to_a_reader", Some(7), || {
            told_survives(Durability::Result, false, SyncBy::Caller, true);
        });
    }

    #[test]
    fn told_by_the_syncing_thread() {
        model("told_by_the_syncing_thread", Some(4), || {
            told_survives(Durability::Result, false, SyncBy::Thread, true);
        });
    }

    /// A waiter is woken by whatever ends the claim it waits for. A wake-up that was lost would leave it waiting
    /// for ever, which loom reports as a deadlock: the manual clock does not move.
    fn waiter_against(end: fn(Claim)) {
        let world = World::new(SyncBy::Caller);
        let holder = granted(&world.store, Durability::Result);
        let ender = thread::spawn(move || end(holder));
        let request = Request::new("k").durability(Durability::Result).wait(Duration::from_secs(60));
        match world.store.claim(request).expect("memory does not fail") {
            Outcome::Granted(_) | Outcome::Settled(_) => {}
            other => panic!("P6 never stuck: a waiter was told {other:?}"),
        }
        ender.join().expect("the holder panicked");
    }

    #[test]
    fn waiter_against_completion() {
        model("waiter_against_completion", Some(4), || {
            waiter_against(|claim| claim.complete("done").expect("nobody took the key"));
        });
    }

    #[test]
    fn waiter_against_drop() {
        model("waiter_against_drop", None, || waiter_against(drop));
    }

    #[test]
    fn waiter_against_expiry() {
        model("waiter_against_expiry", None, || {
            let world = World::new(SyncBy::Caller);
            let holder = granted(&world.store, Durability::Result);
            let clock = world.clock.clone();
            let mover = thread::spawn(move || clock.advance(LEASE_OVER));
            let request = Request::new("k").durability(Durability::Result).wait(2 * LEASE_OVER);
            let taken = world.store.claim(request).expect("memory does not fail").granted();
            assert!(taken.is_some(), "P6 never stuck: the waiter was not granted an expired key");
            mover.join().expect("the clock panicked");
            drop(holder);
        });
    }

    #[test]
    fn twin_no_token_check() {
        twin(Break::NoTokenCheck, "P3 fenced", || reclaim_against_late_completion(Durability::Full));
    }

    #[test]
    fn twin_mark_after_swap() {
        twin(Break::MarkAfterSwap, "P4 durable before told", || {
            told_survives(Durability::Full, true, SyncBy::Caller, false);
        });
    }

    #[test]
    fn twin_check_before_read() {
        twin(Break::CheckBeforeRead, "P4 durable before told", || {
            told_survives(Durability::Result, false, SyncBy::Caller, true);
        });
    }
}
