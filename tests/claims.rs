//! What a claim answers, on memory and a manual clock.

use claimdb::backend::Mem;
use claimdb::{
    Durability, EndedBy, Fingerprint, ManualClock, OnInterrupt, Outcome, Request, Resolution, Run, RunError,
    SettleError, Settled, Store, SyncBy, WallTime,
};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

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
        Store::builder(mem.clone()).clock(clock.clone()).open().expect("memory opens")
    }

    fn reopen(&mut self) {
        self.store.close().expect("memory closes");
        self.store = Self::open(&self.mem, &self.clock);
    }

    fn power_cut(&mut self) {
        self.mem.crash();
        self.store = Self::open(&self.mem, &self.clock);
    }

    fn grant(&self, request: impl Into<Request>) -> claimdb::Claim {
        match self.store.claim(request).expect("memory does not fail") {
            Outcome::Granted(claim) => claim,
            other => panic!("expected a grant, was told {other:?}"),
        }
    }

    fn completed(&self, request: impl Into<Request>) -> String {
        match self.store.claim(request).expect("memory does not fail") {
            Outcome::Settled(Settled::Completed(stored)) => stored.decode().expect("a string was stored"),
            other => panic!("expected a replay, was told {other:?}"),
        }
    }
}

const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

#[test]
fn a_second_claim_is_told_in_flight_and_then_the_result() {
    for durability in ALL {
        let world = World::new();
        let request = Request::new("k").durability(durability);
        let claim = world.grant(&request);
        world.clock.advance(10 * SEC);
        match world.store.claim(&request).unwrap() {
            Outcome::InFlight(holder) => {
                assert_eq!(holder.token(), Some(claim.token()));
                assert_eq!((holder.attempt(), holder.age(), holder.remaining()), (1, 10 * SEC, 20 * SEC));
            }
            other => panic!("{other:?}"),
        }
        claim.complete("done").unwrap();
        assert_eq!(world.completed(&request), "done", "{durability:?}");
        assert_eq!(world.store.stats().entries, 0);
    }
}

#[test]
fn an_expired_lease_is_taken_over_and_the_old_holder_refused() {
    for durability in ALL {
        let world = World::new();
        let request = Request::new("k").durability(durability);
        let old = world.grant(&request);
        world.clock.advance(30 * SEC - Duration::from_nanos(1));
        assert!(matches!(world.store.claim(&request).unwrap(), Outcome::InFlight(_)), "P5 no early takeover");
        world.clock.advance(Duration::from_nanos(1));
        let new = world.grant(&request);
        assert!(new.token() > old.token(), "P2 ordered tokens");
        assert_eq!(new.attempt(), 2);
        assert_eq!(new.previous().map(|p| (p.token, p.ended_by)), Some((old.token(), EndedBy::LeaseOver)));
        assert!(old.renew(SEC).is_err());
        assert!(matches!(old.complete("late"), Err(SettleError::Lost(_))), "P3 fenced");
        new.complete("mine").unwrap();
        assert_eq!(world.completed(&request), "mine");
    }
}

#[test]
fn an_expired_holder_may_settle_while_nobody_else_was_granted_the_key() {
    for durability in ALL {
        let world = World::new();
        let request = Request::new("k").durability(durability);
        let claim = world.grant(&request);
        world.clock.advance(31 * SEC);
        assert!(claim.renew(SEC).is_err(), "expiry is final for renewing");
        claim.complete("slow").unwrap();
        assert_eq!(world.completed(&request), "slow");
    }
}

#[test]
fn a_dropped_claim_frees_the_key_at_once() {
    for (durability, attempt) in ALL.into_iter().zip([2, 1, 1]) {
        let world = World::new();
        let request = Request::new("k").durability(durability);
        let first = world.grant(&request);
        let token = first.token();
        drop(first);
        let second = world.grant(&request);
        assert_eq!(second.attempt(), attempt, "{durability:?}");
        if durability == Durability::Full {
            assert_eq!(second.previous().map(|p| (p.token, p.ended_by)), Some((token, EndedBy::Dropped)));
        }
    }
}

#[test]
fn a_released_key_starts_again_as_the_first_attempt() {
    for durability in ALL {
        let world = World::new();
        let request = Request::new("k").durability(durability);
        let first = world.grant(&request);
        let token = first.token();
        first.release().unwrap();
        let second = world.grant(&request);
        assert_eq!((second.attempt(), second.previous()), (1, None));
        assert!(second.token() > token);
        drop(second);
    }
}

#[test]
fn a_claim_of_an_earlier_opening_is_taken_over_at_once() {
    let mut world = World::new();
    let old = world.grant("k");
    world.reopen();
    let new = world.grant("k");
    assert_eq!(new.attempt(), 2);
    assert_eq!(new.previous().map(|p| (p.token, p.ended_by)), Some((old.token(), EndedBy::Reopened)));
    assert!(old.complete("late").is_err(), "P3 fenced: close ends the claims of its opening");
    new.complete("new").unwrap();
    assert_eq!(world.completed("k"), "new");
}

#[test]
fn a_power_cut_forgets_what_each_durability_says() {
    for (durability, kept) in ALL.into_iter().zip([true, true, false]) {
        let mut world = World::new();
        let request = Request::new("k").durability(durability);
        world.grant(&request).complete("done").unwrap();
        world.power_cut();
        match world.store.claim(&request).unwrap() {
            Outcome::Settled(_) if kept => {}
            Outcome::Granted(claim) if !kept => assert_eq!(claim.attempt(), 1),
            other => panic!("{durability:?}: {other:?}"),
        }
    }
}

#[test]
fn tokens_rise_over_power_cuts_deletes_and_clocks_set_back() {
    let mut world = World::new();
    let mut last = claimdb::Token::new(0);
    for round in 0..5 {
        for _ in 0..3 {
            let claim = world.grant("k");
            assert!(claim.token() > last, "P2 ordered tokens");
            last = claim.token();
            claim.complete("x").unwrap();
            assert!(world.store.remove("k").unwrap());
        }
        world.clock.set_wall(claimdb::WallTime::from_unix_millis(1_000_000 * (5 - round)));
        if round % 2 == 0 { world.power_cut() } else { world.reopen() }
    }
}

#[test]
fn a_retention_that_is_over_reads_as_absent() {
    let world = World::new();
    let request = Request::new("k").retention(60 * SEC);
    world.grant(&request).complete("old").unwrap();
    world.clock.advance(60 * SEC - Duration::from_millis(1));
    assert_eq!(world.completed(&request), "old", "P8 remembered");
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(world.store.get("k").unwrap(), None);
    assert_eq!(world.store.scan("", "").unwrap().count(), 0);
    for durability in ALL {
        let request = Request::new("k").retention(60 * SEC).durability(durability);
        let claim = world.grant(&request);
        assert_eq!((claim.attempt(), claim.previous()), (1, None));
        claim.complete("new").unwrap();
        assert_eq!(world.completed(&request), "new");
        world.clock.advance(60 * SEC);
    }
}

#[test]
fn another_fingerprint_is_refused_on_every_path_and_changes_nothing() {
    let world = World::new();
    let (mine, other) = (Fingerprint::new([1; 32]), Fingerprint::new([2; 32]));
    let request = Request::new("k").fingerprint(mine);
    let wrong = [Request::new("k").fingerprint(other).wait(SEC), Request::new("k")];
    let refused = |state: &str| {
        for wrong in &wrong {
            let told = world.store.claim(wrong).unwrap();
            assert!(matches!(told, Outcome::Mismatched(_)), "P7 mismatch is harmless: {state}: {told:?}");
        }
    };
    let claim = world.grant(&request);
    refused("in flight");
    drop(claim);
    refused("dropped");
    let claim = world.grant(&request);
    world.clock.advance(31 * SEC);
    refused("expired");
    claim.complete("mine").unwrap();
    refused("settled");
    assert_eq!(world.completed(&request), "mine");
}

#[test]
fn a_quarantined_key_is_interrupted_until_it_is_resolved() {
    let mut world = World::new();
    let request = Request::new("k").on_interrupt(OnInterrupt::Quarantine);
    let token = world.grant(&request).token();
    for round in 0..2 {
        match world.store.claim("k").unwrap() {
            Outcome::Interrupted(case) => {
                assert_eq!((case.token(), case.attempt(), case.ended_by()), (token, 1, EndedBy::Dropped));
            }
            other => panic!("round {round}: {other:?}"),
        }
        world.power_cut();
    }
    let wrong = claimdb::Token::new(token.get() + 1);
    assert!(!world.store.resolve("k", wrong, Resolution::released()).unwrap());
    assert!(world.store.resolve("k", token, Resolution::completed("by hand").unwrap()).unwrap());
    assert_eq!(world.completed("k"), "by hand");
    assert!(world.store.get("k").unwrap().unwrap().about().by_hand());
}

#[test]
fn attempts_used_up_interrupt_the_key() {
    let world = World::new();
    let request = Request::new("k").max_attempts(2);
    drop(world.grant(&request));
    let second = world.grant(&request);
    assert_eq!(second.attempt(), 2);
    drop(second);
    assert!(matches!(world.store.claim(&request).unwrap(), Outcome::Interrupted(_)));
}

#[test]
fn run_completes_replays_releases_and_omits() {
    let world = World::new();
    assert_eq!(world.store.run("a", |_| Ok::<_, String>(1)).unwrap(), Run::Fresh(1));
    assert_eq!(world.store.run("a", |_| Err::<i32, _>("ran twice")).unwrap(), Run::Replayed(1));
    let failed = world.store.run("b", |_| Err::<i32, _>("no"));
    assert!(matches!(failed, Err(RunError::Work("no"))));
    assert_eq!(world.store.run("b", |claim| Ok::<_, String>(claim.attempt())).unwrap(), Run::Fresh(1));
    let large = vec![7_u8; (1 << 20) + 1];
    assert_eq!(world.store.run("c", |_| Ok::<_, String>(large.clone())).unwrap(), Run::Fresh(large));
    let again =
        world.store.run("c", |_| -> Result<Vec<u8>, String> { panic!("P8 remembered: it ran twice") });
    assert!(matches!(again, Err(RunError::Refused(claimdb::Refused::Omitted(_)))));
    let other = world.store.run("a", |_| -> Result<String, String> { panic!("it ran twice") });
    assert!(matches!(other, Err(RunError::Refused(claimdb::Refused::Undecodable(_)))));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.store.run("d", |_| -> Result<(), String> { panic!("on purpose") })
    }));
    assert!(unwound.is_err());
    assert_eq!(world.store.run("d", |claim| Ok::<_, String>(claim.attempt())).unwrap(), Run::Fresh(2));
    assert_eq!(world.store.stats().entries, 0);
}

#[test]
fn many_claims_complete_under_one_sync() {
    // Callers sync, so the one sync is the one that is waited for; a thread may begin one after the first write.
    let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
    let store = Store::builder(mem.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open().unwrap();
    let world = World { mem, clock, store };
    let claims: Vec<_> =
        (0..100).map(|n| world.grant(Request::new(format!("k{n}")).durability(Durability::Result))).collect();
    let before = world.store.stats().syncs;
    let answers = world.store.complete_many(claims.into_iter().zip(0_u32..));
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(world.store.stats().syncs - before, 1);
    assert_eq!(world.store.scan("", "k").unwrap().count(), 100);
}

#[test]
fn a_clock_at_its_end_is_not_used_for_tokens() {
    const END: u64 = 1 << 33;
    for (seconds, first) in [(END - 1, (END - 1) << 20), (END, 1), (END + 1, 1)] {
        let clock = ManualClock::new();
        clock.set_wall(WallTime::from_unix_millis(seconds * 1000));
        let store = World::open(&Mem::new(), &clock);
        let claim = store.claim("k").unwrap().granted().unwrap();
        assert_eq!(claim.token().get(), first, "P2 ordered tokens: a clock of {seconds} s");
    }
}

#[test]
fn who_has_a_forgotten_key_says_what_it_is_for() {
    let clock = ManualClock::new();
    // What is forgotten stays stored.
    let builder = Store::builder(Mem::new()).clock(clock.clone()).sweep_every(Duration::ZERO);
    let store = builder.open().unwrap();
    let complete = |fingerprint, value: &str| {
        let request = Request::new("k").retention(60 * SEC).fingerprint(fingerprint);
        store.claim(&request).unwrap().granted().expect("it is forgotten").complete(value).unwrap();
        assert!(
            store.claim(request).unwrap().settled().is_some(),
            "P7: it is for the work of the one before"
        );
    };
    complete(Fingerprint::new([1; 32]), "old");
    clock.advance(60 * SEC);
    complete(Fingerprint::new([2; 32]), "new");
}
