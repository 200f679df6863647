//! Plain values and effects against readers and power cuts, model-checked. See `docs/testing.md`.
#![cfg_attr(loom, allow(missing_docs))]

#[cfg(loom)]
mod support;

#[cfg(loom)]
mod models {
    use crate::support::drive::Survivors;
    use crate::support::{Fault, World, broken, hanging_twin, models, twin};
    use claimdb::{Break, Claim, Durability, Store, SyncBy, Writes};
    use loom::thread;
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// Whether completion and effect are there in a store.
    fn left(world: &World) -> (bool, Option<Vec<u8>>) {
        (world.stored().is_some(), world.store.kv("values").get("a").expect("the drive works"))
    }

    fn complete(claim: Claim) -> bool {
        claim.complete_with("done", Writes::new().put("values", "a", "1")).is_ok()
    }

    /// Whoever is told of an effect finds it again after a power cut, and its completion with it.
    fn effect_told_to_a_reader_once() {
        let world = World::new(SyncBy::Caller);
        let holder = world.grant(Durability::Result);
        let completer = thread::spawn(move || complete(holder));
        let read = world.store.kv("values").get("a").expect("the drive works");
        let cut = world.faulty.drive.cut_power();
        let told = completer.join().expect("the completer panicked") || read.is_some();
        for survivor in world.survivors(&cut) {
            let left = left(&survivor);
            let survives = !told || left == (true, Some(b"1".into()));
            assert!(survives, "P4 durable before told: a power cut undid an effect: {left:?}");
        }
    }

    /// At whatever moment the power is cut, completion and effect are there together or not at all.
    fn effect_against_power_cut_once(fault: Option<Fault>) {
        let world = World::new(SyncBy::Caller);
        fault.into_iter().for_each(|fault| world.faulty.arm(fault));
        let holder = world.grant(Durability::Result);
        let completer = thread::spawn(move || complete(holder));
        let cut = world.faulty.drive.cut_power();
        let told = completer.join().expect("the completer panicked");
        for survivor in world.survivors(&cut) {
            let (completed, effect) = left(&survivor);
            assert_eq!(completed, effect.is_some(), "rule 25: a completion and its effect came apart");
            assert!(completed || !told, "P4 durable before told: a power cut undid a completion");
        }
    }

    /// Of two that swap the same value one is told that it did, and the other what that one put there.
    fn two_swap_one_value_once() {
        let world = World::new(SyncBy::Caller);
        let other = world.store.clone();
        let swap = |store: &Store, mine: &'static [u8]| {
            // The power may be cut before this one is told.
            store.kv("values").compare_and_swap("a", None, Some(mine)).ok()
        };
        let second = thread::spawn(move || swap(&other, b"2"));
        let first = swap(&world.store, b"1").expect("the power is on until this one was told");
        let cut = world.faulty.drive.cut_power();
        let second = second.join().expect("the other panicked");
        let both = first.is_swapped() && second.is_some_and(|second| second.is_swapped());
        assert!(!both, "P1 one holder: both were told that they swapped");
        let expected: &[u8] = if first.is_swapped() { b"1" } else { b"2" };
        for survivor in world.survivors(&cut) {
            let left = left(&survivor).1;
            assert_eq!(left.as_deref(), Some(expected), "P4 durable before told: a power cut undid a swap");
        }
    }

    /// A value is swapped, and its swapper told of an error: nobody but the reader, who may wait already, can sync it.
    fn abandoned_swap_against_reader_once() {
        let world = World::new(SyncBy::Caller);
        world.faulty.arm(Fault::Unheard("a"));
        let other = world.store.clone();
        let swapper = thread::spawn(move || {
            let swapped = other.kv("values").compare_and_swap("a", None, Some(b"1"));
            assert!(swapped.is_err(), "P9 fail closed: {swapped:?}");
        });
        // It may be the one that hears the other error of the drive's.
        let _ = world.store.kv("values").get("a");
        swapper.join().expect("the swapper panicked");
    }

    /// A task writes, waits for the sync of another and is dropped: after that sync nobody but the reader can sync it.
    fn cancelled_write_against_reader_once() {
        let world = World::new(SyncBy::Caller);
        let (other, cancelled) = (world.store.clone(), world.store.clone());
        let writer = thread::spawn(move || other.kv("values").put("b", "1").expect("the drive works"));
        let task = thread::spawn(move || {
            let values = cancelled.kv("values");
            let task = pin!(values.put_async("a", "1"));
            drop(task.poll(&mut Context::from_waker(Waker::noop())));
        });
        let read = world.store.kv("values").get("a").expect("the drive works");
        writer.join().expect("the writer panicked");
        task.join().expect("the task panicked");
        if read.is_some() {
            let left = world.on(world.faulty.drive.cut_power().after(Survivors::Prefix(0)));
            assert!(
                left.store.kv("values").get("a").expect("the drive works").is_some(),
                "P4 durable before told"
            );
        }
    }

    models! {
        abandoned_swap_against_reader, Some(5), abandoned_swap_against_reader_once;
        cancelled_write_against_reader, Some(3), cancelled_write_against_reader_once;
        effect_told_to_a_reader, Some(6), effect_told_to_a_reader_once;
        effect_against_power_cut, None, || effect_against_power_cut_once(None);
        two_swap_one_value, Some(5), two_swap_one_value_once;
    }

    #[test]
    fn twin_abandoned_untold() {
        hanging_twin(Break::AbandonedUntold, abandoned_swap_against_reader_once);
    }

    #[test]
    fn twin_effects_apart() {
        broken("EffectsApart", "rule 25", || effect_against_power_cut_once(Some(Fault::Apart)));
    }

    #[test]
    fn twin_effects_unmarked() {
        twin(Break::EffectsUnmarked, "P4 durable before told", effect_told_to_a_reader_once);
    }
}
