//! Settling against expiry, takeover, readers and power cuts, model-checked. See `docs/testing.md`.
#![cfg_attr(loom, allow(missing_docs))]

#[cfg(loom)]
mod support;

#[cfg(loom)]
mod models {
    use crate::support::{LEASE_OVER, World, claim, models, twin, value};
    use claimdb::backend::Mem;
    use claimdb::{Break, Claim, Durability, ManualClock, Outcome, Request, SettleError, Store, SyncBy};
    use loom::thread;
    use std::time::Duration;

    /// The old holder completes late while another takes over and completes: at most one is acknowledged, and
    /// what is stored is that one's.
    fn reclaim_against_late_completion(durability: Durability) {
        let world = World::new(SyncBy::Caller);
        let old = world.late(durability);
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
        let stored = world.stored();
        let expected = if late { "old" } else { "new" };
        assert_eq!(stored.as_deref(), Some(expected), "P3 fenced: the refused completion is stored");
    }

    /// A holder whose lease is over releases while another takes over: if it is told that it did, the other is the
    /// first attempt, else the next.
    fn release_against_takeover(durability: Durability) {
        let world = World::new(SyncBy::Caller);
        let old = world.late(durability);
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
        let holder = if expired { world.late(durability) } else { world.grant(durability) };
        let completer = thread::spawn(move || holder.complete("done").is_ok());
        let told = if reader { world.stored() } else { world.claim(durability).settled().map(value) };
        let cut = world.faulty.drive.cut_power();
        let completed = completer.join().expect("the completer panicked");
        for left in world.survivors(&cut) {
            let left = left.stored();
            let survives = left.is_some() || !(completed || told.is_some());
            assert!(survives, "P4 durable before told: completed {completed}, told {told:?}, left {left:?}");
        }
    }

    /// An old holder's completion is refused while its successor's is not synced yet: what was refused takes away no
    /// mark but its own.
    fn refused_against_settle_once() {
        let world = World::new(SyncBy::Caller);
        let old = world.late(Durability::Full);
        let new = world.grant(Durability::Full);
        let completer = thread::spawn(move || new.complete("new").is_ok());
        assert!(old.complete("old").is_err(), "P3 fenced: another was granted the key");
        let told = world.stored();
        let cut = world.faulty.drive.cut_power();
        completer.join().expect("the completer panicked");
        for left in world.survivors(&cut) {
            let left = left.stored();
            assert!(told.is_none() || left == told, "P4 durable before told: told {told:?}, left {left:?}");
        }
    }

    models! {
        refused_against_settle, Some(5), refused_against_settle_once;
        reclaim_against_late_completion_durable, Some(5), || {
            reclaim_against_late_completion(Durability::Full);
        };
        reclaim_against_late_completion_in_memory, Some(6), || {
            reclaim_against_late_completion(Durability::Result);
        };
        release_against_takeover_durable, Some(6), || release_against_takeover(Durability::Full);
        release_against_takeover_in_memory, None, || {
            release_against_takeover(Durability::Result);
        };
        told_to_a_second_claimant, None, || {
            told_survives(Durability::Full, false, SyncBy::Caller, false);
        };
        told_to_a_claimant_of_an_expired_lease, Some(5), || {
            told_survives(Durability::Full, true, SyncBy::Caller, false);
        };
        told_to_a_claimant_of_an_expired_lease_in_memory, Some(6), || {
            told_survives(Durability::Result, true, SyncBy::Caller, false);
        };
        told_to_a_reader, None, || {
            told_survives(Durability::Result, false, SyncBy::Caller, true);
        };
        told_by_the_syncing_thread, Some(4), || {
            told_survives(Durability::Result, false, SyncBy::Thread, true);
        };
        waiter_against_completion, Some(5), || {
            waiter_against(|claim| claim.complete("done").expect("nobody took the key"));
        };
        waiter_against_drop, None, || waiter_against(drop);
        waiter_against_expiry, None, || {
            let clock = ManualClock::new();
            let store = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller).open();
            let store = store.expect("memory opens");
            let holder = claim(&store, Durability::Result).granted().expect("nobody else is here");
            let mover = thread::spawn(move || clock.advance(LEASE_OVER));
            let request = Request::new("k").durability(Durability::Result).wait(2 * LEASE_OVER);
            let taken = store.claim(request).expect("memory does not fail").granted();
            assert!(taken.is_some(), "P6 never stuck: the waiter was not granted an expired key");
            mover.join().expect("the clock panicked");
            drop(holder);
        };
    }

    /// A waiter is woken by whatever ends the claim it waits for. A wake-up that was lost would leave it waiting
    /// for ever, which loom reports as a deadlock: the clock does not move.
    fn waiter_against(end: fn(Claim)) {
        let world = World::new(SyncBy::Caller);
        let holder = world.grant(Durability::Result);
        let ender = thread::spawn(move || end(holder));
        let request = Request::new("k").durability(Durability::Result).wait(Duration::from_secs(60));
        match world.store.claim(request).expect("the drive works") {
            Outcome::Granted(_) | Outcome::Settled(_) => {}
            other => panic!("P6 never stuck: a waiter was told {other:?}"),
        }
        ender.join().expect("the holder panicked");
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
    fn twin_refused_clears_all() {
        twin(Break::RefusedClearsAll, "P4 durable before told", refused_against_settle_once);
    }

    #[test]
    fn twin_check_before_read() {
        twin(Break::CheckBeforeRead, "P4 durable before told", || {
            told_survives(Durability::Result, false, SyncBy::Caller, true);
        });
    }
}
