//! Who runs a request, how often, and what becomes of one whose handler ended halfway.

use crate::script::{Answer, Fails, Gate};
use crate::world::{Call, Seen, World, post};
use claimdb::{LossCause, ManualClock};
use std::time::{Duration, Instant};

const SEC: Duration = Duration::from_secs(1);

fn finished(world: &World, calls: &[Call]) -> Vec<Seen> {
    calls.iter().map(|call| world.ended(call)).collect()
}

#[test]
fn of_many_requests_at_once_one_runs_and_the_others_are_told_so() {
    let mut world = World::new();
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let calls: Vec<_> = (0..100).map(|_| world.send(post("k", "body"))).collect();
    assert_eq!(world.script.runs(), 1, "P1: CR-01: one key ran at once");
    for seen in finished(&world, &calls[1..]) {
        assert_eq!(
            (seen.status(), seen.code().as_str()),
            (409, "in-progress"),
            "CR-14, HS-04: a loser is no fault"
        );
        assert!(seen.header("retry-after").is_some(), "HS-04");
    }
    gate.open();
    assert_eq!(world.ended(&calls[0]).text(), "run 1");
    for _ in 0..10 {
        let seen = world.ask(post("k", "body"));
        assert!(seen.is_replay() && seen.text() == "run 1", "P8: CR-01: {seen:?}");
    }
    assert_eq!(world.script.runs(), 1, "P1: CR-01");
    assert_eq!(world.store.stats().told_in_flight, 99, "each loser is counted once");
}

#[test]
fn those_that_wait_get_the_response() {
    let mut world = World::with(|layer| layer.wait(60 * SEC));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let calls: Vec<_> = (0..20).map(|_| world.send(post("k", "body"))).collect();
    assert!(calls.iter().all(|call| !call.seen().ended));
    assert_eq!(world.ask(post("k", "other")).code(), "key-reused", "P7: a mismatch does not wait");
    gate.open();
    for seen in finished(&world, &calls[1..]) {
        assert!(seen.is_replay() && seen.text() == "run 1", "P6: CR-01: {seen:?}");
    }
    assert_eq!((world.ended(&calls[0]).is_replay(), world.script.runs()), (false, 1), "P1: CR-01");
}

#[test]
fn a_wait_ends_at_its_time_with_409() {
    let mut world = World::with(|layer| layer.wait(5 * SEC));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let one = world.send(post("k", ""));
    let two = world.send(post("k", ""));
    world.advance(5 * SEC - Duration::from_millis(1));
    assert!(!two.seen().ended, "P5: it does not give up early");
    world.advance(Duration::from_millis(1));
    assert_eq!(world.ended(&two).code(), "in-progress", "P6: every wait keeps its deadline");
    gate.open();
    assert_eq!(world.ended(&one).status(), 200);
}

#[test]
fn a_hung_handler_blocks_its_key_for_its_lease_and_not_for_the_retention() {
    let mut world = World::with(|layer| layer.lease(10 * SEC).max_hold(10 * SEC).retention(24 * 3600 * SEC));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let hung = world.send(post("k", ""));
    world.advance(10 * SEC - Duration::from_millis(1));
    let busy = world.ask(post("k", ""));
    assert_eq!(
        (busy.code().as_str(), busy.header("retry-after").as_deref()),
        ("in-progress", Some("1")),
        "P5"
    );
    world.advance(Duration::from_millis(1));
    world.script.answer(Answer::default());
    assert_eq!(world.ask(post("k", "")).text(), "run 2", "P6: LE-01: the key is stuck for its retention");
    assert!(!hung.seen().ended);
}

#[test]
fn a_running_handler_is_renewed_up_to_its_bound() {
    let mut world = World::with(|layer| layer.lease(10 * SEC).max_hold(60 * SEC));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let slow = world.send(post("k", ""));
    let handle = world.script.last().handle.unwrap();
    for _ in 0..10 {
        // The timer renews at half of the lease, on its own thread.
        world.advance(5 * SEC);
        let start = Instant::now();
        while world.ask(post("k", "")).header("retry-after").unwrap().parse::<u64>().unwrap() <= 5 {
            assert!(start.elapsed() < 20 * SEC, "LE-04: the lease of a running handler is not renewed");
        }
        assert_eq!(handle.loss(), None, "P5: LE-04: a running handler lost its lease");
    }
    gate.open();
    assert_eq!(world.ended(&slow).text(), "run 1");
}

#[test]
fn a_handler_that_lost_its_lease_is_told_and_so_is_its_client() {
    let mut world = World::with(|layer| layer.lease(SEC).max_hold(SEC));
    let (slow, fast) = (Gate::default(), Gate::default());
    world.script.answer(Answer::held(&slow));
    let first = world.send(post("k", ""));
    let handle = world.script.last().handle.unwrap();
    world.advance(3 * SEC / 2);
    assert_eq!(handle.loss(), Some(LossCause::LeaseOver), "LE-04: the holder is not told");
    world.script.answer(Answer::held(&fast));
    let second = world.send(post("k", ""));
    let rival = world.script.last().handle.unwrap();
    assert!(rival.token() > handle.token() && rival.attempt() == 2, "P2: LE-04");
    // While the rival is at it, the slow one's client is told 409, and its result is refused.
    slow.open();
    let told = world.ended(&first);
    assert_eq!((told.status(), told.code().as_str()), (409, "lease-lost"), "P3 fenced: LE-04: {told:?}");
    fast.open();
    assert_eq!(world.ended(&second).text(), "run 2");
    assert!(world.ask(post("k", "")).text() == "run 2", "P3 fenced: the slow one's result was stored");
    assert_eq!(world.layer.stats().unrecorded, 1, "LE-04: the overrun is counted");
    assert_eq!(world.store.stats().refused_late, 1, "LE-04: the overrun is counted");
}

#[test]
fn a_late_handler_whose_rival_is_done_answers_with_its_result() {
    let mut world = World::with(|layer| layer.lease(SEC).max_hold(SEC));
    let slow = Gate::default();
    world.script.answer(Answer::held(&slow));
    let first = world.send(post("k", ""));
    world.advance(SEC);
    world.script.answer(Answer::status(201));
    assert_eq!(world.ask(post("k", "")).text(), "run 2");
    slow.open();
    let told = world.ended(&first);
    assert_eq!((told.status(), told.text().as_str()), (201, "run 2"), "P3 fenced: LE-04: {told:?}");
    assert!(told.is_replay());
}

#[test]
fn a_request_whose_process_was_killed_is_run_again_at_once_and_told_that_it_is() {
    let mut world = World::new();
    world.script.answer(Answer::held(&Gate::default()));
    let lost = world.send(post("k", ""));
    let before = world.script.last().handle.unwrap();
    assert_eq!((before.attempt(), before.previous()), (1, None));
    let mut world = world.restart(|layer| layer);
    assert!(!lost.seen().ended);
    world.script.answer(Answer::default());
    let seen = world.ask(post("k", ""));
    assert_eq!((seen.status(), seen.text().as_str()), (200, "run 2"), "P6: CX-01, CX-13: the key is stuck");
    let after = world.script.last().handle.unwrap();
    assert_eq!(after.attempt(), 2, "CX-02: the handler is not told of the attempt before");
    assert_eq!(after.previous().unwrap().token, before.token(), "CX-02: nor which it was");
    assert!(after.token() > before.token(), "P2");
}

#[test]
fn what_may_not_run_twice_unseen_is_stopped_at() {
    let mut world = World::with(|layer| layer.quarantine());
    world.script.answer(Answer::held(&Gate::default()));
    world.send(post("k", "a"));
    let token = world.script.last().handle.unwrap().token();
    let mut world = world.restart(|layer| layer.quarantine());
    world.script.answer(Answer::default());
    for _ in 0..2 {
        let seen = world.ask(post("k", "a"));
        assert_eq!((seen.status(), seen.code().as_str()), (409, "interrupted"), "CX-02: {seen:?}");
        assert_eq!(seen.header("retry-after"), None, "CX-02: trying again does not help");
    }
    assert_eq!(world.ask(post("k", "b")).code(), "key-reused", "P7");
    assert_eq!(world.script.runs(), 1, "CX-02: it ran again unseen");
    // Somebody has looked: it was done.
    let case = world.store.interrupted().next().unwrap().unwrap();
    assert!(world.store.resolve(case.0, token, claimdb::Resolution::omitted()).unwrap());
    assert_eq!(world.ask(post("k", "a")).code(), "response-omitted");
}

#[test]
fn until_a_key_can_be_had_a_retry_is_told_when() {
    let mut world = World::with(|layer| layer.lease(30 * SEC).max_hold(30 * SEC));
    world.script.answer(Answer::held(&Gate::default()));
    let hung = world.send(post("k", ""));
    for (passed, rest) in [(0, "30"), (10, "20"), (19, "1")] {
        world.advance(Duration::from_secs(passed));
        let seen = world.ask(post("k", ""));
        assert_eq!(seen.header("retry-after").as_deref(), Some(rest), "CX-13: it is told another time");
    }
    world.advance(SEC);
    world.script.answer(Answer::default());
    assert_eq!(world.ask(post("k", "")).text(), "run 2", "CX-13: at that time it cannot be had");
    drop(hung);
}

#[test]
fn a_client_that_hangs_up_at_any_moment_leaves_a_result_or_nothing() {
    for moment in 0..4 {
        let mut world = World::new();
        let (gate, stall) = (Gate::default(), Gate::default());
        world.script.answer(Answer { hold: Some(gate.clone()), ..Answer::default() });
        let mut request = post("k", "body");
        match moment {
            // Before its body was sent: nothing is claimed.
            0 => request.body_mut().then = Some(stall.clone()),
            // While the handler runs.
            1 => {}
            // When the handler has answered, and before anybody has looked.
            2 | 3 => gate.open(),
            _ => unreachable!(),
        }
        let call = world.send(request);
        if moment == 3 {
            assert!(call.seen().ended);
        }
        world.hang_up(&call);
        gate.open();
        world.pool.turn();
        let runs = world.script.runs();
        assert_eq!(runs, usize::from(moment > 0), "CN-01");
        world.script.answer(Answer::default());
        let seen = world.ask(post("k", "body"));
        assert_eq!(seen.text(), "run 1", "CN-01: moment {moment}: {seen:?}");
        assert_eq!((seen.is_replay(), world.script.runs()), (moment > 0, 1), "P8: CN-01: it ran again");
        assert_eq!(world.layer.stats().running, 0);
    }
}

#[test]
fn a_panic_ends_the_claim_and_goes_on_unwinding() {
    let mut world = World::new();
    world.script.answer(Answer { fails: Some(Fails::Panic), ..Answer::default() });
    let seen = world.ask(post("k", ""));
    assert!(seen.panicked, "the panic was swallowed: {seen:?}");
    assert_eq!((world.layer.stats().running, world.store.stats().live_claims), (0, 0), "P6");
    // The script keeps a handle of the claim, as a handler's own tasks may: that holds nothing.
    let handle = world.script.last().handle.unwrap();
    world.script.answer(Answer::default());
    assert_eq!(world.ask(post("k", "")).text(), "run 2", "P6 never stuck");
    assert_eq!(world.script.last().handle.unwrap().attempt(), 2);
    assert!(handle.checkpoint("late").is_err());
}

#[test]
fn nothing_is_kept_in_memory_for_a_key_that_is_not_in_flight() {
    let mut world = World::over(
        &ManualClock::new(),
        &crate::faults::Faulty::new(),
        |store| store.durability(claimdb::Durability::Relaxed),
        crate::world::owner(),
        |layer| layer,
    );
    for n in 0..10_000 {
        assert_eq!(world.ask(post(&format!("key-{n}"), "")).status(), 200, "ML-01: {n} keys fill the layer");
    }
    let stats = world.store.stats();
    assert_eq!((stats.entries, stats.waiters, world.layer.stats().running), (0, 0, 0), "ML-01");
}
