//! The layer as a piece of tower: readiness, tasks, settings, and what a handler can do with its claim.

use crate::script::{Answer, Frames, Gate, Handler, Script};
use crate::world::{World, owner, post, request};
use claimdb::backend::Mem;
use claimdb::http::{
    BoxTask, BuildError, Builder, ClaimHandle, FingerprintBy, HandleError, Idempotency, KeySource, Protect,
    Scope, UnusableKey,
};
use claimdb::{CheckpointError, Durability, Store, SyncBy};
use http::{Method, Request};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

const SEC: Duration = Duration::from_secs(1);

fn build(settings: impl Fn(Builder) -> Builder) -> Result<Idempotency, BuildError> {
    let store = Store::builder(Mem::new()).sync_by(SyncBy::Caller).open().unwrap();
    settings(Idempotency::builder(&store, owner(), |_: BoxTask| {})).build()
}

#[test]
fn settings_out_of_bounds_are_refused_by_name() {
    type Change = fn(Builder) -> Builder;
    let long = Duration::from_secs(400 * 86_400);
    assert!(build(move |layer| layer.max_hold(long)).unwrap_err().to_string().contains("max_hold"));
    let changes: [(&str, Change); 17] = [
        ("json_fields", |layer| layer.fingerprint(FingerprintBy::json_fields(["/sum", "order"]))),
        ("json_fields", |layer| layer.fingerprint(FingerprintBy::json_fields(["/a~"]))),
        ("json_fields", |layer| layer.fingerprint(FingerprintBy::json_fields(["/a~2b"]))),
        ("methods", |layer| layer.methods([])),
        ("methods", |layer| layer.methods([Method::POST, Method::GET])),
        ("min_key_length", |layer| layer.min_key_length(0)),
        ("min_key_length", |layer| layer.min_key_length(256)),
        ("max_tasks", |layer| layer.max_tasks(0)),
        ("request_limit", |layer| layer.request_limit(0)),
        ("request_limit", |layer| layer.request_limit((64 << 20) + 1)),
        ("response_limit", |layer| layer.response_limit(0)),
        ("stream_after", |layer| layer.stream_after(61 * SEC)),
        ("problem_types", |layer| layer.problem_types("a\"b")),
        ("max_hold", |layer| layer.max_hold(Duration::ZERO)),
        ("lease", |layer| layer.lease(Duration::ZERO)),
        ("retention", |layer| layer.retention(Duration::ZERO)),
        ("wait", |layer| layer.wait(25 * 3600 * SEC)),
    ];
    for (name, change) in changes {
        let told = build(change).expect_err(name).to_string();
        assert!(told.contains(name), "{name}: {told}");
    }
    assert!(build(|layer| layer).is_ok());
}

#[test]
fn settings_that_exclude_each_other_are_refused_by_both_names() {
    type Change = fn(Builder) -> Builder;
    let changes: [(&str, &str, Change); 9] = [
        ("strict", "stripe", |layer| layer.strict().stripe()),
        ("strict", "key_from a function", |layer| layer.key_from(KeySource::github()).strict()),
        ("min_key_length", "key_from a function", |layer| {
            layer.key_from(KeySource::github()).min_key_length(2)
        }),
        ("echo_key", "key_from a function", |layer| layer.key_from(KeySource::github()).echo_key()),
        ("fail_open", "quarantine", |layer| layer.fail_open().quarantine()),
        ("fail_open", "max_attempts", |layer| layer.fail_open().max_attempts(3)),
        ("max_hold", "a longer lease", |layer| layer.lease(10 * SEC).max_hold(9 * SEC)),
        ("max_hold", "a longer lease", |layer| layer.max_hold(9 * SEC)), // the store's is 30 s
        ("marker", "key_from the same header", |layer| layer.marker("idempotency-key".parse().unwrap())),
    ];
    for (one, other, change) in changes {
        match build(change) {
            Err(BuildError::Conflict { one: a, other: b, .. }) => assert_eq!((a, b), (one, other)),
            told => panic!("{one} and {other}: {told:?}"),
        }
    }
    let told = build(|layer| layer.quarantine().durability(Durability::Result));
    assert!(matches!(told, Err(BuildError::Terms(_))), "quarantine needs a stored claim: {told:?}");
}

#[test]
fn a_handler_holds_its_claim_for_a_lease_at_least_wherever_the_lease_is_set() {
    let leases = [(None, 30 * SEC), (Some(5 * SEC), 5 * SEC), (Some(3600 * SEC), 3600 * SEC)];
    for (of_store, lease) in leases {
        let store = Store::builder(Mem::new()).sync_by(SyncBy::Caller);
        let store = of_store.map_or(store.clone(), |lease| store.lease(lease)).open().unwrap();
        let build = |settings: &dyn Fn(Builder) -> Builder| {
            settings(Idempotency::builder(&store, owner(), |_: BoxTask| {})).build()
        };
        let told = build(&|layer| layer.max_hold(lease - Duration::from_millis(1)));
        assert!(
            matches!(told, Err(BuildError::Conflict { one: "max_hold", other: "a longer lease", .. })),
            "P5: a handler is held for less than its lease of {lease:?}: {told:?}"
        );
        for settings in [
            (&|layer: Builder| layer) as &dyn Fn(Builder) -> Builder,
            &|layer| layer.max_hold(lease),
            &|layer| layer.lease(SEC).max_hold(2 * SEC),
            &|layer| layer.lease(86_400 * SEC),
        ] {
            build(settings).unwrap_or_else(|error| panic!("a lease of {lease:?}: {error}"));
        }
    }
}

#[test]
fn the_service_that_was_asked_whether_it_is_ready_is_the_one_that_is_called() {
    // The handler asserts it; here once more through one service for many requests.
    let mut world = World::new();
    for n in 0..3 {
        let mut context = Context::from_waker(Waker::noop());
        let service = &mut world.service;
        assert!(Service::<Request<Frames>>::poll_ready(service, &mut context).is_ready());
        let mut answer = Box::pin(service.call(post(&format!("k{n}"), "")));
        assert!(
            matches!(answer.as_mut().poll(&mut context), Poll::Ready(Ok(response)) if response.status() == 200)
        );
        // And for one that passes through.
        assert!(Service::<Request<Frames>>::poll_ready(&mut world.service, &mut context).is_ready());
        let mut answer = Box::pin(world.service.call(request(Method::GET, "/", &[], "")));
        assert!(answer.as_mut().poll(&mut context).is_ready());
    }
    assert_eq!(world.script.runs(), 6);
}

#[test]
fn a_layer_inside_another_lets_the_claim_of_the_outer_one_be() {
    let world = World::new();
    let script = Script::default();
    let mut service: Protect<Protect<Handler<crate::script::Broken>>> =
        world.layer.layer(world.layer.layer(Handler::new(&script)));
    let mut context = Context::from_waker(Waker::noop());
    let mut answer = Box::pin(async move {
        std::future::poll_fn(|context| Service::<Request<Frames>>::poll_ready(&mut service, context)).await?;
        service.call(post("k", "")).await
    });
    let Poll::Ready(Ok(response)) = answer.as_mut().poll(&mut context) else {
        panic!("P6: it waits for itself")
    };
    assert_eq!((response.status().as_u16(), script.runs()), (200, 1));
}

#[test]
fn why_a_key_is_unusable_may_be_said_in_any_text() {
    let why = "no \"id\"\\ in \u{1}100 %\nSchlüssel";
    let mut world = World::with(|layer| layer.key_from(KeySource::from_fn(move |_| Err(UnusableKey(why)))));
    let seen = world.ask(post("k", ""));
    assert_eq!((seen.status(), seen.code().as_str()), (400, "key-invalid"));
    let problem: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert!(problem["detail"].as_str().unwrap().ends_with(&format!(": {why}.")), "{problem}");
    let seen = world.ask(request(Method::POST, "/", &[("content-type", "application/grpc")], ""));
    assert!(!seen.panicked, "a refusal panicked");
    let told = seen.header("grpc-message").expect("a refused call is told why");
    assert!(told.ends_with(": no \"id\"\\ in %01100 %25%0ASchl%C3%BCssel."), "{told}");
}

#[test]
fn a_function_that_finds_nothing_has_found_no_key() {
    type Found = fn() -> Vec<Vec<u8>>;
    for parts in [Vec::new as Found, || vec![Vec::new()], || vec![Vec::new(), Vec::new()]] {
        for keys in [
            KeySource::from_fn(move |_| Ok(Some(parts()))),
            KeySource::from_body(move |_, _| Ok(Some(parts()))),
        ] {
            let mut world = World::with(|layer| layer.key_from(keys.clone()));
            assert_eq!(world.ask(post("k", "")).code(), "key-invalid", "P1: all requests have one key");
            assert_eq!(world.script.runs(), 0);
        }
    }
}

#[test]
fn the_end_of_all_handlers_can_be_awaited() {
    let mut world = World::new();
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(world.layer.idle()).poll(&mut context).is_ready());
    let call = world.send(post("k", ""));
    world.hang_up(&call);
    let mut idle = pin!(world.layer.idle());
    assert!(idle.as_mut().poll(&mut context).is_pending());
    assert_eq!(world.layer.stats().running, 1);
    gate.open();
    world.pool.turn();
    assert!(idle.as_mut().poll(&mut context).is_ready());
    assert_eq!(world.layer.stats().running, 0);
    assert!(world.ask(post("k", "")).is_replay(), "what it waited for is stored");
}

#[test]
fn a_task_that_is_dropped_ends_its_claim() {
    let mut world = World::new();
    world.script.answer(Answer::held(&Gate::default()));
    let call = world.send(post("k", ""));
    world.hang_up(&call);
    assert_eq!((world.layer.stats().running, world.store.stats().live_claims), (1, 1));
    world.pool.drop_tasks(0);
    assert_eq!((world.layer.stats().running, world.store.stats().live_claims), (0, 0), "P6");
    world.script.answer(Answer::default());
    assert_eq!(world.ask(post("k", "")).text(), "run 2", "P6 never stuck");
    assert_eq!(world.script.last().handle.unwrap().attempt(), 2);
}

#[test]
fn a_handler_can_save_progress_until_it_has_answered() {
    let mut world = World::new();
    world.script.answer(Answer { checkpoint: Some("half".to_owned()), ..Answer::status(503) });
    world.ask(post("k", ""));
    let handle = world.script.last().handle.unwrap();
    assert!(matches!(handle.checkpoint("more"), Err(HandleError::Answered)), "P3 fenced: it is too late");
    world.script.answer(Answer::default());
    world.ask(post("k", ""));
    let next = world.script.last().handle.unwrap();
    assert_eq!((next.attempt(), next.last_checkpoint()), (2, Some(&b"half"[..])));
    assert!(next.token() > handle.token() && next.previous().unwrap().token == handle.token());

    let mut world = World::with(|layer| layer.durability(Durability::Result));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let call = world.send(post("k", ""));
    let handle: ClaimHandle = world.script.last().handle.unwrap();
    let told = handle.checkpoint("half");
    assert!(matches!(told, Err(HandleError::Checkpoint(CheckpointError::NotStored { .. }))), "{told:?}");
    gate.open();
    assert_eq!(world.ended(&call).status(), 200, "a claim that was lent came back");
}

#[test]
fn a_handler_that_answers_while_its_progress_is_being_saved_waits_for_that() {
    use crate::faults::Syncs;
    let mut world = World::new();
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let call = world.send(post("k", ""));
    let handle = world.script.last().handle.unwrap();
    world.storage.syncs(Syncs::Hang);
    let other = handle.clone();
    let saving = std::thread::spawn(move || other.checkpoint("half").is_ok());
    world.storage.until_a_sync_hangs();
    assert!(matches!(handle.checkpoint("more"), Err(HandleError::Busy)));
    gate.open();
    world.pool.turn();
    assert!(!call.seen().ended, "P4: it answered while its claim was elsewhere");
    world.storage.syncs(Syncs::Work);
    assert!(saving.join().unwrap());
    assert_eq!(world.ended(&call).status(), 200);
    assert!(world.ask(post("k", "")).is_replay());
}

#[test]
fn progress_that_is_half_saved_is_waited_for_no_longer_than_the_claim_lasts() {
    use crate::faults::Syncs;
    let mut world = World::with(|layer| layer.lease(SEC).max_hold(SEC));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let call = world.send(post("k", ""));
    let handle = world.script.last().handle.unwrap();
    // Another syncs, so that saving waits for that. It is polled once, and kept.
    world.storage.syncs(Syncs::Hang);
    let store = world.store.clone();
    let other = std::thread::spawn(move || store.claim("other").map(drop));
    world.storage.until_a_sync_hangs();
    let mut saving = Box::pin(handle.checkpoint_async("half"));
    assert!(saving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    world.storage.syncs(Syncs::Work);
    other.join().unwrap().unwrap();
    gate.open();
    world.pool.turn();
    assert!(!call.seen().ended, "P4: it answered while its claim was elsewhere");
    world.advance(SEC);
    let seen = world.ended(&call);
    assert_eq!((seen.status(), seen.code().as_str()), (409, "lease-lost"));
    world.script.answer(Answer::default());
    assert_eq!(world.ask(post("k", "")).text(), "run 2", "P6 never stuck");
    drop(saving);
}

#[test]
fn the_layer_and_its_parts_can_be_cloned_shown_and_sent() {
    fn is<T: Clone + std::fmt::Debug + Send + Sync>(_: &T) {}
    let world = World::new();
    is(&world.layer);
    is(&world.service);
    is(&Scope::global());
    fn future<T: Send>(_: &T) {}
    let mut service = world.service.clone();
    let _ = Service::<Request<Frames>>::poll_ready(&mut service, &mut Context::from_waker(Waker::noop()));
    future(&service.call(post("k", "")));
}

#[test]
fn a_layer_can_be_built_inside_work_of_any_key() {
    let store = Store::builder(Mem::new()).sync_by(SyncBy::Caller).open().unwrap();
    let build = || Idempotency::builder(&store, owner(), |_: BoxTask| {}).build().map(drop);
    store.run("idempotency", |_| build()).expect("building a layer claims no key");
}
