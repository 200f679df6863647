//! Plain values and effects against readers and power cuts, model-checked. See `docs/testing.md`.
#![cfg_attr(loom, allow(missing_docs))]

#[cfg(loom)]
mod support;

#[cfg(loom)]
mod models {
    use crate::support::{model, twin};
    use claimdb::backend::Mem;
    use claimdb::{Break, Claim, Durability, ManualClock, Request, Store, SyncBy, Writes};
    use loom::thread;

    struct World {
        mem: Mem,
        clock: ManualClock,
        store: Store,
    }

    impl World {
        fn new() -> Self {
            let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
            let store = Self::open(&mem, &clock);
            Self { mem, clock, store }
        }

        fn open(mem: &Mem, clock: &ManualClock) -> Store {
            let builder = Store::builder(mem.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
            builder.open().expect("memory opens")
        }

        fn granted(&self) -> Claim {
            let claim = self.store.claim(Request::new("k").durability(Durability::Result));
            claim.expect("memory does not fail").granted().expect("nobody else is here")
        }

        /// Whether completion and effect are there after a power cut.
        fn after_power_cut(&self) -> (bool, Option<Vec<u8>>) {
            self.mem.crash();
            let store = Self::open(&self.mem, &self.clock);
            let completed = store.get("k").expect("memory does not fail").is_some();
            (completed, store.kv("values").get("a").expect("memory does not fail"))
        }
    }

    fn complete(claim: Claim) -> bool {
        claim.complete_with("done", Writes::new().put("values", "a", "1")).is_ok()
    }

    /// Whoever is told of an effect finds it again after a power cut, and its completion with it.
    fn effect_told_to_a_reader() {
        let world = World::new();
        let holder = world.granted();
        let completer = thread::spawn(move || complete(holder));
        let told = world.store.kv("values").get("a").expect("memory does not fail");
        if told.is_some() {
            let left = world.after_power_cut();
            assert_eq!(left, (true, told), "P4 durable before told: a power cut undid an effect");
            completer.join().expect("the completer panicked");
        } else if completer.join().expect("the completer panicked") {
            let left = world.after_power_cut();
            assert_eq!(
                left,
                (true, Some(b"1".into())),
                "P4 durable before told: a power cut undid an effect"
            );
        }
    }

    /// At whatever moment the power is cut, completion and effect are there together or not at all.
    fn effect_against_power_cut() {
        let world = World::new();
        let holder = world.granted();
        let completer = thread::spawn(move || complete(holder));
        let (completed, effect) = world.after_power_cut();
        assert_eq!(completed, effect.is_some(), "rule 25: a completion and its effect came apart");
        let told = completer.join().expect("the completer panicked");
        assert!(completed || !told, "P4 durable before told: a power cut undid a completion");
    }

    /// Of two that swap the same value one is told that it did, and the other what that one put there.
    fn two_swap_one_value() {
        let world = World::new();
        let other = world.store.clone();
        let swap = |store: &Store, mine: &'static [u8]| {
            // The power may be cut before this one is told.
            store.kv("values").compare_and_swap("a", None, Some(mine)).ok()
        };
        let second = thread::spawn(move || swap(&other, b"2"));
        let first = swap(&world.store, b"1").expect("the power is on until this one was told");
        if first.is_swapped() {
            let second = second.join().expect("the other panicked").expect("the power is on");
            assert!(!second.is_swapped(), "both were told that they swapped");
            assert_eq!(world.after_power_cut().1, Some(b"1".into()), "P4 durable before told");
        } else {
            let left = world.after_power_cut().1;
            assert_eq!(
                left,
                Some(b"2".into()),
                "P4 durable before told: a power cut undid what a refused swap told of"
            );
            second.join().expect("the other panicked");
        }
    }

    #[test]
    fn effect_told_to_a_reader_survives() {
        model("effect_told_to_a_reader", Some(6), effect_told_to_a_reader);
    }

    #[test]
    fn effect_and_completion_survive_together() {
        model("effect_against_power_cut", None, effect_against_power_cut);
    }

    #[test]
    fn one_swap_of_two_lands() {
        model("two_swap_one_value", Some(4), two_swap_one_value);
    }

    #[test]
    fn twin_effects_unmarked() {
        twin(Break::EffectsUnmarked, "P4 durable before told", effect_told_to_a_reader);
    }
}
