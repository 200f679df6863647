//! Sweeps against claims and settles, model-checked. See `docs/testing.md`.
#![cfg_attr(loom, allow(missing_docs))]

#[cfg(loom)]
mod support;

#[cfg(loom)]
mod models {
    use crate::support::{Still, models, twin, value};
    use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
    use claimdb::{
        Break, Claim, Durability, ManualClock, OpenError, Outcome, Request, Settled, StorageError, Store,
        SyncBy,
    };
    use loom::thread;
    use std::ops::ControlFlow;
    use std::time::Duration;

    const RETENTION: Duration = Duration::from_secs(60);

    struct World {
        mem: Mem,
        clock: Still,
        store: Store,
    }

    impl World {
        fn new() -> Self {
            let (mem, clock) = (Mem::new(), Still::default());
            let builder = Store::builder(Broken(mem.clone())).clock(clock.clone()).sync_by(SyncBy::Caller);
            Self { mem, clock, store: builder.open().expect("memory opens") }
        }

        fn claim(&self, durability: Durability) -> Outcome {
            let request = Request::new("k").durability(durability).retention(RETENTION);
            self.store.claim(request).expect("memory does not fail")
        }

        fn grant(&self, durability: Durability) -> Claim {
            self.claim(durability).granted().expect("nobody else is here")
        }

        fn sweeping(&self) -> thread::JoinHandle<()> {
            let store = self.store.clone();
            thread::spawn(move || sweep(&store))
        }

        /// What is stored now; and once its retention is over, sweeps leave neither a record nor an entry.
        fn stored_and_then_swept(self) -> Option<String> {
            let found = self.store.get("k").expect("memory does not fail");
            let value = found.and_then(Settled::completed).map(|stored| stored.decode().expect("a string"));
            self.clock.advance(RETENTION);
            // An entry that came due before its record is moved first.
            sweep(&self.store);
            sweep(&self.store);
            self.store.close().expect("memory closes");
            let engine = self.mem.open().expect("it was closed");
            for (space, what) in [(1, "a record was left without an entry"), (4, "an entry was left behind")]
            {
                engine
                    .scan(&[space], None, &mut |_, _| -> ControlFlow<()> { panic!("rule 21: {what}") })
                    .expect("memory does not fail");
            }
            value
        }
    }

    /// Memory that takes no record of the key `broken`.
    #[derive(Debug)]
    struct Broken<T>(T);

    impl Backend for Broken<Mem> {
        fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
            Ok(Box::new(Broken(self.0.open()?)))
        }
    }

    impl Engine for Broken<Box<dyn Engine>> {
        fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
            self.0.read(key)
        }

        fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
            let one = |commit: &Commit<'_>| match commit.key.ends_with(b"broken") {
                true => Err(StorageError::new("writing to", "memory", "on purpose")),
                false => self.0.commit(std::slice::from_ref(commit)).remove(0),
            };
            commits.iter().map(one).collect()
        }

        fn scan(
            &self,
            prefix: &[u8],
            after: Option<&[u8]>,
            visit: &mut Visit<'_>,
        ) -> Result<(), StorageError> {
            self.0.scan(prefix, after, visit)
        }

        fn sync(&self) -> Result<(), StorageError> {
            self.0.sync()
        }
    }

    fn sweep(store: &Store) {
        store.sweep(10).expect("memory does not fail");
    }

    /// An abandoned record is swept while another claims its key and completes.
    fn sweep_against_reclaim_once(durability: Durability) {
        let world = World::new();
        drop(world.grant(Durability::Full));
        world.clock.advance(RETENTION);
        let sweeping = world.sweeping();
        let told = world.grant(durability).complete("new");
        assert!(told.is_ok(), "rule 21: a live claim was swept: {told:?}");
        sweeping.join().expect("the sweeper panicked");
        let stored = world.stored_and_then_swept();
        assert_eq!(stored.as_deref(), Some("new"), "P8 remembered: a sweep took what was just completed");
    }

    /// A holder whose lease and retention are over completes while its record is swept.
    fn sweep_against_late_completion_once() {
        let world = World::new();
        let late = world.grant(Durability::Full);
        world.clock.advance(RETENTION);
        let sweeping = world.sweeping();
        let told = late.complete("late").is_ok();
        sweeping.join().expect("the sweeper panicked");
        let stored = world.stored_and_then_swept();
        assert_eq!(stored.is_some(), told, "P8 remembered: told {told}, stored {stored:?}");
    }

    /// The entry of an older claim is swept while the key's next holder completes.
    fn sweep_against_successor_once() {
        let world = World::new();
        drop(world.grant(Durability::Full));
        world.clock.advance(RETENTION / 2);
        let successor = world.grant(Durability::Full);
        successor.renew(RETENTION).expect("nobody else has it");
        world.clock.advance(RETENTION / 2);
        let sweeping = world.sweeping();
        let told = successor.complete("new");
        assert!(told.is_ok(), "rule 21: a live claim was swept: {told:?}");
        sweeping.join().expect("the sweeper panicked");
        let stored = world.stored_and_then_swept();
        assert_eq!(stored.as_deref(), Some("new"), "P8 remembered: a sweep took what was just completed");
    }

    /// What is forgotten is swept while a claim in memory is granted over it, and comes to nothing.
    fn sweep_against_drop_once() {
        let world = World::new();
        world.grant(Durability::Result).complete("old").expect("nobody else is here");
        world.clock.advance(RETENTION);
        let sweeping = world.sweeping();
        drop(world.grant(Durability::Result));
        sweeping.join().expect("the sweeper panicked");
        assert_eq!(world.stored_and_then_swept(), None);
    }

    /// A key is asked for while its retention ends and it is swept: it is told, or granted anew and what that one stores
    /// stays.
    fn sweep_against_replay_once() {
        let (clock, request) =
            (ManualClock::new(), || Request::new("k").durability(Durability::Result).retention(RETENTION));
        let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller).open();
        let store = store.expect("memory opens");
        let claim = || store.claim(request()).expect("memory does not fail");
        claim().granted().expect("it is free").complete("old").expect("nobody else is here");
        let sweeping = {
            let store = store.clone();
            thread::spawn(move || {
                clock.advance(RETENTION);
                sweep(&store);
            })
        };
        let ran = match claim() {
            Outcome::Settled(settled) => {
                assert_eq!(value(settled), "old");
                None
            }
            Outcome::Granted(claim) => {
                claim.complete("new").expect("nobody took the key");
                Some("new")
            }
            other => panic!("P8 remembered: of a completed key a claimant was told {other:?}"),
        };
        sweeping.join().expect("the sweeper panicked");
        let stored = store.get("k").expect("memory does not fail").map(value);
        assert_eq!(stored.as_deref(), ran, "P8 remembered: a sweep took what was just completed");
    }

    /// What is forgotten is swept while the key's next result is stored by a claim in memory.
    fn sweep_against_next_completion_once() {
        let world = World::new();
        world.grant(Durability::Result).complete("old").expect("nobody else is here");
        world.clock.advance(RETENTION);
        let claim = world.grant(Durability::Result);
        let sweeping = world.sweeping();
        let told = claim.complete("new");
        assert!(told.is_ok(), "rule 21: a live claim was swept: {told:?}");
        sweeping.join().expect("the sweeper panicked");
        let stored = world.stored_and_then_swept();
        assert_eq!(stored.as_deref(), Some("new"), "P8 remembered: a sweep took what was just completed");
    }

    /// What is forgotten is swept while a claim is swapped in over it, and back since another key fails.
    fn sweep_against_swap_back_once() {
        let world = World::new();
        drop(world.grant(Durability::Full));
        world.clock.advance(RETENTION);
        let sweeping = world.sweeping();
        let request = |key: &str| Request::new(key).retention(RETENTION);
        world.store.claim_all(["k", "broken"].map(request)).expect_err("one of them fails");
        sweeping.join().expect("the sweeper panicked");
        assert_eq!(world.stored_and_then_swept(), None);
    }

    /// A store is opened again with a clock that is a year ahead, and swept while a retry asks for what was done.
    fn sweep_against_a_jump_once() {
        const MONTH: Duration = Duration::from_secs(30 * 86_400);
        let (mem, clock) = (Mem::new(), Still::default());
        let open = || Store::builder(mem.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open();
        let request = || Request::new("k").durability(Durability::Result).retention(MONTH);
        let store = open().expect("memory opens");
        let claim = store.claim(request()).expect("memory does not fail").granted().expect("it is free");
        claim.complete("done").expect("nobody else is here");
        store.close().expect("memory closes");
        clock.advance(12 * MONTH);
        let store = open().expect("memory opens");
        let sweeping = {
            let store = store.clone();
            thread::spawn(move || sweep(&store))
        };
        let told = store.claim(request()).expect("memory does not fail").settled().map(value);
        // What is asserted beside a thread that goes on ends the process, and is no twin's finding.
        sweeping.join().expect("the sweeper panicked");
        assert_eq!(
            told.as_deref(),
            Some("done"),
            "rule 23: one wrong jump of the clock, and a retry was told otherwise"
        );
        let stored = store.get("k").expect("memory does not fail").map(value);
        assert_eq!(stored.as_deref(), Some("done"), "rule 23: one wrong jump of the clock emptied the store");
    }

    models! {
        sweep_against_a_jump, Some(4), sweep_against_a_jump_once;
        sweep_against_swap_back, Some(4), sweep_against_swap_back_once;
        sweep_against_replay, Some(4), sweep_against_replay_once;
        sweep_against_reclaim, Some(4), || sweep_against_reclaim_once(Durability::Full);
        sweep_against_late_completion, Some(6), sweep_against_late_completion_once;
        sweep_against_next_completion, Some(6), sweep_against_next_completion_once;
        sweep_against_successor, Some(6), sweep_against_successor_once;
        sweep_against_drop, Some(6), sweep_against_drop_once;
    }

    #[test]
    fn twin_clock_believed() {
        twin(Break::ClockBelieved, "rule 23", sweep_against_a_jump_once);
    }

    #[test]
    fn twin_sweep_unasked() {
        twin(Break::SweepUnasked, "rule 21", sweep_against_swap_back_once);
    }

    #[test]
    fn twin_sweep_without_swap() {
        twin(Break::SweepWithoutSwap, "P8 remembered", sweep_against_late_completion_once);
    }
}
