//! Results that are told again from memory against those that change them, model-checked. See `docs/testing.md`.
#![cfg_attr(loom, allow(missing_docs))]

#[cfg(loom)]
mod support;

#[cfg(loom)]
mod models {
    use crate::support::{World, models, twin, value};
    use claimdb::{AdminError, Break, Durability, Outcome, SyncBy};
    use loom::thread;

    fn settled() -> World {
        let world = World::new(SyncBy::Caller);
        world.grant(Durability::Result).complete("first").expect("nobody else is here");
        world
    }

    /// A retry is told the result, which is kept to be told again, while the key is removed.
    fn retry_against_removal_once() {
        let world = settled();
        let store = world.store.clone();
        let retry = thread::spawn(move || drop(crate::support::claim(&store, Durability::Result)));
        let removed = world.store.remove("k");
        if let Ok(true) = removed {
            let told = world.claim(Durability::Result);
            assert!(
                !matches!(told, Outcome::Settled(_)),
                "rule 22: what was removed is told again from memory: {told:?}"
            );
        } else {
            let by_the_retry = matches!(removed, Ok(false) | Err(AdminError::InFlight { .. }));
            assert!(by_the_retry, "P6 never stuck: removing was told {removed:?}");
        }
        retry.join().expect("the retry panicked");
    }

    /// The same, and the work is done once more.
    fn retry_against_successor_once() {
        let world = settled();
        let store = world.store.clone();
        let retry = thread::spawn(move || match crate::support::claim(&store, Durability::Result) {
            Outcome::Settled(settled) => Some(value(settled)),
            _ => None,
        });
        let mut completed = false;
        if let Ok(true) = world.store.remove("k")
            && let Outcome::Granted(claim) = world.claim(Durability::Result)
        {
            claim.complete("second").expect("nobody took the key");
            completed = true;
            // The retry may have the key for a moment, on its way to be told.
            if let Outcome::Settled(settled) = world.claim(Durability::Result) {
                assert_eq!(value(settled), "second", "P8 remembered, rule 22: told from memory");
            }
        }
        let retried = retry.join().expect("the retry panicked");
        let known = [None, Some("first"), Some("second")].contains(&retried.as_deref());
        assert!(known, "P3 fenced: a retry was told {retried:?}");
        if completed {
            let last = world.claim(Durability::Result).settled().map(value);
            assert_eq!(last.as_deref(), Some("second"), "P8 remembered, rule 22: told from memory");
        }
    }

    models! {
        retry_against_removal, Some(4), retry_against_removal_once;
        retry_against_successor, Some(4), retry_against_successor_once;
    }

    #[test]
    fn twin_recent_kept() {
        twin(Break::RecentKept, "rule 22", retry_against_removal_once);
    }

    #[test]
    fn twin_recent_filled_late() {
        twin(Break::RecentFilledLate, "rule 22", retry_against_successor_once);
    }
}
