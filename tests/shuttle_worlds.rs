//! The kin of the loom models with up to eight threads and tasks, under shuttle. See `docs/testing.md`.
#![cfg_attr(shuttle, allow(missing_docs))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg(not(shuttle))]
#[test]
fn shuttle_cfg_took() {
    assert!(
        std::env::var_os("CLAIMDB_SHUTTLE").is_none(),
        "`cargo shuttle` ran without cfg(shuttle): a RUSTFLAGS in the environment overrides the alias, and nothing \
         was run; unset it"
    );
}

#[cfg(shuttle)]
#[path = "support/eight.rs"]
mod eight;
#[cfg(shuttle)]
#[path = "support/schedules.rs"]
#[allow(dead_code)]
mod schedules;

#[cfg(shuttle)]
mod worlds {
    use crate::eight::in_eight;
    use crate::schedules::{twin_world, world};
    use claimdb::backend::Mem;
    use claimdb::{
        Break, Claim, ClaimError, Durability, ManualClock, Outcome, Request, SettleError, Settled, Store,
        SyncBy,
    };
    use shuttle::thread;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    const LEASE_OVER: Duration = Duration::from_secs(31);
    const WAIT: Duration = Duration::from_secs(60);
    const SCHEDULES: usize = 2_000;

    #[derive(Clone)]
    struct World {
        mem: Mem,
        clock: ManualClock,
        store: Store,
    }

    impl World {
        fn new() -> Self {
            let (mem, clock) = (Mem::with_power_cuts(), ManualClock::new());
            let store = open(&mem, &clock);
            Self { mem, clock, store }
        }

        /// Cuts the power and opens the store again.
        fn after_power_cut(&self) -> Store {
            self.mem.crash();
            // The old opening's threads have nothing to end for but this.
            let _ = self.store.close();
            open(&self.mem, &self.clock)
        }
    }

    fn open(mem: &Mem, clock: &ManualClock) -> Store {
        Store::builder(mem.clone()).clock(clock.clone()).sync_by(SyncBy::Thread).open().expect("memory opens")
    }

    fn request(durability: Durability) -> Request {
        Request::new("k").durability(durability)
    }

    fn value(settled: Settled) -> String {
        settled.completed().expect("it was completed").decode().expect("a string was stored")
    }

    /// Eight claim one key once and keep what they get.
    fn claimants(durability: Durability) {
        let world = World::new();
        let held = |outcome: Result<Outcome, ClaimError>| match outcome.expect("memory does not fail") {
            Outcome::Granted(claim) => Some(claim),
            Outcome::InFlight(_) => None,
            other => panic!("nothing was settled, and a claimant was told {other:?}"),
        };
        let (store, tasks) = (world.store.clone(), world.store.clone());
        let told = in_eight(
            move |_| held(store.claim(request(durability))),
            move |_| {
                let told = tasks.claim_async(request(durability));
                async move { held(told.await) }
            },
        );
        let granted = told.iter().flatten().count();
        assert_eq!(granted, 1, "P1 one holder: {granted} claims of one key were granted at once");
        world.store.close().expect("memory closes");
    }

    #[test]
    fn eight_claimants() {
        world("eight_claimants_in_memory", SCHEDULES, || claimants(Durability::Result));
        world("eight_claimants_durable", SCHEDULES, || claimants(Durability::Full));
    }

    /// Eight claim one key, waiting for it, and complete it when they are granted it: one of them runs.
    fn one_runs(durability: Durability) {
        let world = World::new();
        let ran = Arc::new(AtomicU64::new(0));
        let wanted = move || request(durability).wait(WAIT);
        let (store, tasks) = (world.store.clone(), world.store.clone());
        let (by_thread, by_task) = (Arc::clone(&ran), Arc::clone(&ran));
        let told = in_eight(
            move |number| match store.claim(wanted()).expect("memory does not fail") {
                Outcome::Granted(claim) => {
                    by_thread.fetch_add(1, Ordering::Relaxed);
                    claim.complete(&number.to_string()).expect("nobody takes it over");
                    number.to_string()
                }
                outcome => value(outcome.settled().expect("P6 never stuck: a waiter was told nothing")),
            },
            move |number| {
                let (store, ran) = (tasks.clone(), Arc::clone(&by_task));
                async move {
                    match store.claim_async(wanted()).await.expect("memory does not fail") {
                        Outcome::Granted(claim) => {
                            ran.fetch_add(1, Ordering::Relaxed);
                            claim.complete_async(&number.to_string()).await.expect("nobody takes it over");
                            number.to_string()
                        }
                        outcome => {
                            value(outcome.settled().expect("P6 never stuck: a waiter was told nothing"))
                        }
                    }
                }
            },
        );
        let ran = ran.load(Ordering::Relaxed);
        assert_eq!(ran, 1, "P8 remembered: the work of one key ran {ran} times");
        assert!(told.iter().all(|value| *value == told[0]), "P8 remembered: {told:?} were told of one key");
        world.store.close().expect("memory closes");
    }

    #[test]
    fn one_of_eight_runs() {
        world("one_of_eight_runs_relaxed", SCHEDULES, || one_runs(Durability::Relaxed));
        world("one_of_eight_runs_durable", SCHEDULES, || one_runs(Durability::Full));
    }

    /// The old holder completes late while seven wait for the key, of whom each that is granted it completes.
    fn reclaim(durability: Durability) {
        let world = World::new();
        let old = world.store.claim(request(durability)).expect("memory does not fail");
        let old = Mutex::new(Some(old.granted().expect("nobody else is here")));
        world.clock.advance(LEASE_OVER);
        let (store, tasks) = (world.store.clone(), world.store.clone());
        let wanted = move || request(durability).wait(WAIT);
        let granted = Arc::new(AtomicBool::new(false));
        let (by_thread, by_task) = (Arc::clone(&granted), granted);
        let told = in_eight(
            move |number| {
                if number == 0 {
                    let late = old.lock().expect("nobody panicked").take()?;
                    let granted = by_thread.load(Ordering::Relaxed);
                    let done = complete(late, number);
                    assert!(!(granted && done), "P3 fenced: a holder completed when its key was another's");
                    return Some((number, done));
                }
                let claim = store.claim(wanted()).expect("memory does not fail").granted()?;
                by_thread.store(true, Ordering::Relaxed);
                Some((number, complete(claim, number)))
            },
            move |number| {
                let (told, granted) = (tasks.claim_async(wanted()), Arc::clone(&by_task));
                async move {
                    let claim = told.await.expect("memory does not fail").granted()?;
                    granted.store(true, Ordering::Relaxed);
                    let told = claim.complete_async(&number.to_string()).await;
                    Some((number, told.is_ok()))
                }
            },
        );
        let done: Vec<_> =
            told.iter().flatten().filter(|(_, done)| *done).map(|(number, _)| *number).collect();
        let [one] = done.as_slice() else {
            panic!("P3 fenced: the completions of {done:?} were acknowledged, of one key");
        };
        let stored = world.store.get("k").expect("memory does not fail").map(value);
        assert_eq!(stored, Some(one.to_string()), "P3 fenced: a refused completion is stored");
        world.store.close().expect("memory closes");
    }

    fn complete(mut claim: Claim, number: usize) -> bool {
        loop {
            match claim.complete(&number.to_string()) {
                Ok(()) => return true,
                // Another is on its way to the key.
                Err(SettleError::Retry(retry)) => claim = retry.claim,
                Err(_) => return false,
            }
            thread::yield_now();
        }
    }

    #[test]
    fn reclaim_by_seven_against_late_completion() {
        world("reclaim_by_seven_durable", SCHEDULES, || reclaim(Durability::Full));
        world("reclaim_by_seven_in_memory", SCHEDULES, || reclaim(Durability::Result));
    }

    /// Eight wait for one key, one after another is granted it and frees it: a lost wake-up would be a deadlock.
    fn waiters(free: fn(Claim)) {
        let world = World::new();
        let holder = world.store.claim(request(Durability::Result)).expect("memory does not fail");
        let holder = holder.granted().expect("nobody else is here");
        let (store, tasks) = (world.store.clone(), world.store.clone());
        let wanted = || request(Durability::Result).wait(WAIT);
        let ender = thread::spawn(move || free(holder));
        let granted = in_eight(
            move |_| store.claim(wanted()).expect("memory does not fail").granted().map(free).is_some(),
            move |_| {
                let told = tasks.claim_async(wanted());
                async move { told.await.expect("memory does not fail").granted().map(free).is_some() }
            },
        );
        ender.join().expect("the holder panicked");
        assert!(
            granted.iter().all(|granted| *granted),
            "P6 never stuck: {granted:?} were granted a free key"
        );
        world.store.close().expect("memory closes");
    }

    #[test]
    fn eight_waiters() {
        world("eight_waiters_dropped", SCHEDULES, || waiters(drop));
        world("eight_waiters_released", SCHEDULES, || {
            waiters(|claim| claim.release().expect("nobody takes it over"));
        });
    }

    /// Eight complete keys of their own under shared syncs, and the power is cut: what was told before is there.
    fn group_commit() {
        let world = World::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let off = Arc::new(AtomicBool::new(false));
        let note = {
            let (told, off) = (Arc::clone(&told), Arc::clone(&off));
            // Nothing runs in between, so whoever finds the power on was told before it was cut.
            move |number: usize| {
                if !off.load(Ordering::Relaxed) {
                    told.lock().expect("nobody panicked").push(number);
                }
            }
        };
        let cutter = {
            let (world, off) = (world.clone(), Arc::clone(&off));
            thread::spawn(move || {
                world.store.sync().expect("the power is on");
                world.mem.crash();
                off.store(true, Ordering::Relaxed);
            })
        };
        let (store, tasks, note_task) = (world.store.clone(), world.store.clone(), note.clone());
        in_eight(
            move |number| {
                let Ok(outcome) = store.claim(number.to_string().as_str()) else { return };
                let claim = outcome.granted().expect("it is this one's own key");
                if claim.complete(&number).is_ok() {
                    note(number);
                }
            },
            move |number| {
                let (store, note) = (tasks.clone(), note_task.clone());
                async move {
                    let request = Request::new(number.to_string()).durability(Durability::Result);
                    let Ok(outcome) = store.claim_async(request).await else { return };
                    let claim = outcome.granted().expect("it is this one's own key");
                    if claim.complete_async(&number).await.is_ok() {
                        note(number);
                    }
                }
            },
        );
        cutter.join().expect("it panicked");
        let store = world.after_power_cut();
        for number in told.lock().expect("nobody panicked").iter() {
            let found = store.get(number.to_string()).expect("memory does not fail");
            assert!(found.is_some(), "P4 durable before told: a power cut undid {number}");
        }
        store.close().expect("memory closes");
    }

    #[test]
    fn group_commit_against_power_cut() {
        world("group_commit_of_eight", SCHEDULES, group_commit);
    }

    /// Two sweep what is forgotten while six claim it anew and complete it.
    fn sweep() {
        let world = World::new();
        let short = || request(Durability::Full).retention(WAIT);
        drop(world.store.claim(short()).expect("memory does not fail"));
        world.clock.advance(WAIT);
        let (store, tasks) = (world.store.clone(), world.store.clone());
        let told = in_eight(
            move |number| {
                if number < 2 {
                    store.sweep(10).expect("memory does not fail");
                    return false;
                }
                let claim = store.claim(short().wait(WAIT)).expect("memory does not fail").granted();
                claim.map(|claim| claim.complete("new").expect("rule 21: a live claim was swept")).is_some()
            },
            move |_| {
                let told = tasks.claim_async(short().wait(WAIT));
                async move {
                    let Some(claim) = told.await.expect("memory does not fail").granted() else {
                        return false;
                    };
                    claim.complete_async("new").await.expect("rule 21: a live claim was swept");
                    true
                }
            },
        );
        let ran = told.iter().filter(|ran| **ran).count();
        assert_eq!(ran, 1, "P8 remembered: the work of one key ran {ran} times");
        let stored = world.store.get("k").expect("memory does not fail");
        assert!(stored.is_some(), "P8 remembered: a sweep took what was just completed");
        world.store.close().expect("memory closes");
    }

    #[test]
    fn sweeps_against_claims() {
        world("sweeps_against_claims", SCHEDULES, sweep);
    }

    /// Seven claim and complete while the store is closed and opened again: tokens rise, what was told is there, the
    /// old opening's claims are fenced, and nobody waits for ever.
    fn reopen() {
        let world = World::new();
        let kept = world.store.claim("kept").expect("memory does not fail").granted().expect("it is free");
        let (store, tasks) = (world.store.clone(), world.store.clone());
        let closing = thread::spawn({
            let world = world.clone();
            move || {
                world.store.close().expect("memory closes");
                open(&world.mem, &world.clock)
            }
        });
        let wanted = || request(Durability::Full).wait(WAIT);
        let told = in_eight(
            move |number| {
                let claim = store.claim(wanted()).ok()?.granted()?;
                let token = claim.token();
                Some((number, token, claim.complete(&number.to_string()).is_ok()))
            },
            move |number| {
                let told = tasks.claim_async(wanted());
                async move {
                    let claim = told.await.ok()?.granted()?;
                    let token = claim.token();
                    Some((number, token, claim.complete_async(&number.to_string()).await.is_ok()))
                }
            },
        );
        let store = closing.join().expect("it panicked");
        let old = kept.token();
        assert!(
            kept.complete("late").is_err(),
            "P3 fenced: a claim of an opening that has ended was completed"
        );
        let new = store.claim("kept").expect("memory does not fail").granted();
        let new = new.expect("P5: a claim of an earlier opening is taken over at once");
        let greatest = told.iter().flatten().map(|(_, token, _)| *token).max().max(Some(old));
        assert!(Some(new.token()) > greatest, "P2 ordered tokens: {:?} after {greatest:?}", new.token());
        let done: Vec<_> = told.iter().flatten().filter(|(_, _, done)| *done).collect();
        assert!(done.len() <= 1, "P8 remembered: the work of one key was completed {} times", done.len());
        if let Some((number, _, _)) = done.first() {
            let stored = store.get("k").expect("memory does not fail").map(value);
            assert_eq!(stored, Some(number.to_string()), "P4 durable before told: closing undid it");
        }
        drop(new);
        store.close().expect("memory closes");
    }

    #[test]
    fn close_and_reopen_under_eight() {
        world("close_and_reopen_under_eight", SCHEDULES, reopen);
    }

    #[test]
    fn twins() {
        let found = |name, rule, promise, body: fn()| twin_world(name, SCHEDULES, rule, promise, body);
        found("eight_claimants", Break::CheckThenAct, "P1 one holder", || claimants(Durability::Result));
        found("reclaim_by_seven", Break::NoTokenCheck, "P3 fenced", || reclaim(Durability::Full));
        found("group_commit", Break::CoversTooMuch, "P4 durable before told", group_commit);
        found("eight_waiters", Break::EndWakesNobody, "P6 never stuck", || waiters(drop));
    }
}
