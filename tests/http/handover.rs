//! A handler runs in its client's response future, and is handed over to a task when that is dropped: wherever, whenever
//! and whoever drops it.

use crate::faults::{Faulty, Syncs};
use crate::script::{Answer, Broken, Fails, Frames, Gate, Handler, Script};
use crate::world::{World, post};
use claimdb::backend::Mem;
use claimdb::http::{BoxTask, Idempotency, Protect, ResponseFuture, Scope};
use claimdb::{Durability, ManualClock, Store, SyncBy};
use http::Request;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

const SEC: Duration = Duration::from_secs(1);

pub type Answering = Pin<Box<ResponseFuture<Frames, Broken>>>;

/// The response future of a request, not polled yet.
pub fn ask(service: &mut Protect<Handler<Broken>>, key: &str) -> Answering {
    let mut context = Context::from_waker(Waker::noop());
    assert!(Service::<Request<Frames>>::poll_ready(service, &mut context).is_ready());
    Box::pin(service.call(post(key, "")))
}

pub fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A store by the manual clock that syncs in its callers.
pub fn store() -> Store {
    let builder = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller);
    builder.sweep_every(Duration::ZERO).open().unwrap()
}

/// Keeps the tasks that it is given.
#[derive(Clone, Default)]
struct Given(Arc<Mutex<Vec<BoxTask>>>);

impl Given {
    fn take(&self) -> Vec<BoxTask> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A layer whose tasks are kept, around a script.
fn given(store: &Store) -> (Given, Idempotency, Script, Protect<Handler<Broken>>) {
    let (given, script) = (Given::default(), Script::default());
    let tasks = given.clone();
    let spawn = move |task: BoxTask| tasks.0.lock().unwrap().push(task);
    let layer = Idempotency::builder(store, Scope::global(), spawn).build().unwrap();
    let service = layer.layer(Handler::new(&script));
    (given, layer, script, service)
}

#[test]
fn a_handler_whose_client_stays_starts_no_task() {
    let (given, layer, script, mut service) = given(&store());
    let gate = Gate::default();
    script.answer(Answer::held(&gate));
    let mut answer = ask(&mut service, "k");
    assert!(poll(&mut answer).is_pending() && layer.stats().running == 1, "it is not counted");
    gate.open();
    assert!(matches!(poll(&mut answer), Poll::Ready(Ok(response)) if response.status() == 200));
    assert_eq!(layer.stats().running, 0);
    drop(answer);
    assert!(given.take().is_empty(), "what has ended is handed over");
}

#[test]
fn a_request_that_is_dropped_before_its_first_poll_does_nothing() {
    let store = store();
    let (given, layer, script, mut service) = given(&store);
    drop(ask(&mut service, "k"));
    assert!(given.take().is_empty(), "CN-01: a handler runs that nobody has asked for");
    assert_eq!((script.runs(), layer.stats().running, store.stats().granted), (0, 0, 0), "CN-01");
}

#[test]
fn dropped_while_its_thread_unwinds_a_handler_goes_on() {
    let (given, layer, script, mut service) = given(&store());
    let gate = Gate::default();
    script.answer(Answer::held(&gate));
    let mut answer = ask(&mut service, "k");
    assert!(poll(&mut answer).is_pending());
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _answer = answer;
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
    gate.open();
    assert!(given.take().iter_mut().all(|task| poll(task).is_ready()));
    assert_eq!(layer.stats().running, 0);
    assert!(
        matches!(poll(&mut ask(&mut service, "k")), Poll::Ready(Ok(response))
        if response.headers().contains_key("idempotency-replayed")),
        "P8: CN-01"
    );
}

#[test]
fn a_runtime_that_takes_no_task_ends_the_claim_and_panics_nowhere() {
    let (store, script) = (store(), Script::default());
    let refuses = |task: BoxTask| {
        drop(task);
        std::panic::resume_unwind(Box::new("there is no runtime"));
    };
    let layer = Idempotency::builder(&store, Scope::global(), refuses).build().unwrap();
    let mut service = layer.layer(Handler::new(&script));
    script.answer(Answer::held(&Gate::default()));
    for unwinds in [false, true] {
        let mut answer = ask(&mut service, if unwinds { "a" } else { "b" });
        assert!(poll(&mut answer).is_pending());
        // A panic out of a drop, while another one unwinds, would end the process.
        let dropped = catch_unwind(AssertUnwindSafe(move || {
            let _answer = answer;
            if unwinds {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        }));
        assert_eq!(dropped.is_err(), unwinds, "a drop panicked");
        assert_eq!((layer.stats().running, store.stats().live_claims), (0, 0), "P6 never stuck");
    }
}

#[test]
fn a_panic_in_the_clients_future_hands_nothing_over() {
    let store = store();
    let (given, layer, script, mut service) = given(&store);
    let gate = Gate::default();
    script.answer(Answer { fails: Some(Fails::Panic), ..Answer::held(&gate) });
    let mut answer = ask(&mut service, "k");
    assert!(poll(&mut answer).is_pending());
    gate.open();
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut answer).is_ready()));
    let told = polled.expect_err("the panic was swallowed");
    assert_eq!(told.downcast_ref(), Some(&"on purpose"), "another panic is told");
    // The script has a handle of the claim still.
    assert_eq!((layer.stats().running, store.stats().live_claims), (0, 0), "P6: it is not gone by then");
    drop(answer);
    assert!(given.take().is_empty(), "what has panicked is handed over");
}

#[test]
fn a_panic_after_the_handover_ends_the_claim_and_is_none_of_the_executors() {
    let store = store();
    let (given, layer, script, mut service) = given(&store);
    let gate = Gate::default();
    script.answer(Answer { fails: Some(Fails::Panic), ..Answer::held(&gate) });
    let mut answer = ask(&mut service, "k");
    assert!(poll(&mut answer).is_pending());
    drop(answer);
    gate.open();
    let mut tasks = given.take();
    assert_eq!(tasks.len(), 1);
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut tasks[0]).is_ready()));
    assert!(polled.expect("the executor is thrown a panic of a handler"));
    drop(tasks);
    assert_eq!((layer.stats().running, store.stats().live_claims), (0, 0), "P6 never stuck");
    script.answer(Answer::default());
    assert!(poll(&mut ask(&mut service, "k")).is_ready());
    assert_eq!(script.last().handle.unwrap().attempt(), 2, "rule 18: the attempt before is forgotten");
}

#[test]
fn handlers_count_wherever_they_run() {
    let mut world = World::with(|layer| layer.max_tasks(2));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let one = world.send(post("one", ""));
    let two = world.send(post("two", ""));
    assert_eq!(world.layer.stats().running, 2, "a handler in its client's future is not counted");
    let mut idle = Box::pin(world.layer.idle());
    assert!(poll(&mut idle).is_pending());
    world.hang_up(&two);
    assert_eq!(world.layer.stats().running, 2, "one that was handed over is counted twice, or not at all");
    assert_eq!(world.ask(post("three", "")).code(), "overloaded", "one more runs than may");
    gate.open();
    world.pool.turn();
    assert_eq!(world.ended(&one).status(), 200);
    assert_eq!(world.layer.stats().running, 0);
    assert!(poll(&mut idle).is_ready(), "P6 never stuck: nobody is told that all have ended");
    assert_eq!(world.ask(post("three", "")).status(), 200);
    assert!(world.ask(post("two", "")).is_replay(), "P8: CN-01");
}

#[test]
fn the_end_is_not_told_before_one_that_was_handed_over_is_stored() {
    let mut world = World::new();
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let call = world.send(post("k", ""));
    let mut idle = pin!(world.layer.idle());
    let mut context = Context::from_waker(Waker::noop());
    assert!(idle.as_mut().poll(&mut context).is_pending());
    // Woken between the drop and its task's first poll: the old task is woken, which is gone.
    world.drop_call(&call);
    gate.open();
    assert!(idle.as_mut().poll(&mut context).is_pending(), "P4: it was not stored by then");
    world.pool.turn();
    assert!(idle.as_mut().poll(&mut context).is_ready(), "P6 never stuck: a wake-up was lost");
    assert!(world.ask(post("k", "")).is_replay(), "P8: CN-01");
}

#[test]
fn a_client_that_hangs_up_while_its_response_is_being_stored_takes_nothing_back() {
    let (clock, storage) = (ManualClock::new(), Faulty::new());
    let by_thread = |store: claimdb::Builder| store.sync_by(SyncBy::Thread).durability(Durability::Result);
    let mut world = World::over(&clock, &storage, by_thread, Scope::global(), |layer| layer);
    world.storage.syncs(Syncs::Hang);
    let call = world.send(post("k", ""));
    world.storage.until_a_sync_hangs();
    let told = call.seen().ended;
    world.hang_up(&call);
    let running = world.layer.stats().running;
    world.storage.syncs(Syncs::Work);
    assert!(!told, "P4 durable before told");
    assert_eq!(running, 1, "CN-01: nobody stores it any more");
    world.until("the handler's response is stored", || world.layer.stats().running == 0);
    assert!(world.ask(post("k", "")).is_replay(), "P8: CN-01: it was not recorded");
}

/// Looks at a store when it is woken: how many claims are live.
struct Looks(Store, AtomicUsize);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0.stats().live_claims, Ordering::SeqCst);
    }
}

#[test]
fn the_end_is_told_when_nothing_is_left_of_a_handler() {
    let store = store();
    let (given, layer, script, mut service) = given(&store);
    let ends = ["ends", "panics", "ends in a task", "panics in a task", "is dropped with its task"];
    for (number, end) in ends.into_iter().enumerate() {
        let gate = Gate::default();
        let fails = Some(Fails::Panic).filter(|_| end.starts_with("panics"));
        script.answer(Answer { fails, ..Answer::held(&gate) });
        let mut answer = Some(ask(&mut service, &format!("k{number}")));
        assert!(answer.as_mut().is_some_and(|answer| poll(answer).is_pending()));
        let looks = Arc::new(Looks(store.clone(), AtomicUsize::new(usize::MAX)));
        let (mut idle, waker) = (pin!(layer.idle()), Waker::from(Arc::clone(&looks)));
        assert!(idle.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if end.ends_with("task") {
            answer = None;
        }
        let mut tasks = given.take();
        if !end.starts_with("is dropped") {
            gate.open();
            let ended = catch_unwind(AssertUnwindSafe(|| match &mut answer {
                Some(answer) => poll(answer).is_ready(),
                None => poll(&mut tasks[0]).is_ready(),
            }));
            assert!(ended.unwrap_or(true), "P6 never stuck: {end}");
        }
        drop(tasks);
        assert_eq!(looks.1.load(Ordering::SeqCst), 0, "P6: when it {end}, its claim is live");
    }
}

#[test]
fn a_future_that_is_kept_and_not_polled_stands_still_and_loses_its_key_in_time() {
    let mut world = World::with(|layer| layer.lease(10 * SEC).max_hold(10 * SEC));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let mut kept = ask(&mut world.service, "k");
    assert!(poll(&mut kept).is_pending());
    gate.open();
    world.pool.turn();
    assert_eq!((world.script.runs(), world.layer.stats().running), (1, 1));
    assert_eq!(world.ask(post("k", "")).code(), "in-progress", "P5 no early takeover");
    world.advance(10 * SEC);
    world.script.answer(Answer::status(201));
    assert_eq!(world.ask(post("k", "")).text(), "run 2", "P6 never stuck");
    // Polled after all, it is one that was too slow.
    let Poll::Ready(Ok(response)) = poll(&mut kept) else { panic!("P6 never stuck") };
    assert_eq!(response.status(), 201, "P3 fenced: {response:?}");
    // And one that is forgotten is counted for ever, since it may be polled for ever.
    world.script.answer(Answer::held(&Gate::default()));
    let mut forgotten = ask(&mut world.service, "other");
    assert!(poll(&mut forgotten).is_pending());
    std::mem::forget(forgotten);
    world.advance(10 * SEC);
    world.script.answer(Answer::default());
    assert_eq!(world.ask(post("other", "")).status(), 200, "P6 never stuck");
    assert_eq!(world.layer.stats().running, 1);
}

#[test]
fn layers_of_one_builder_count_by_themselves() {
    let (store, script, gate) = (store(), Script::default(), Gate::default());
    let builder = Idempotency::builder(&store, Scope::global(), drop::<BoxTask>).max_tasks(1);
    let (one, other) = (builder.clone().build().unwrap(), builder.build().unwrap());
    script.answer(Answer::held(&gate));
    let mut held = ask(&mut one.layer(Handler::new(&script)), "k");
    assert!(poll(&mut held).is_pending());
    assert_eq!((one.stats().running, other.stats().running), (1, 0), "another layer's handlers are counted");
    assert!(poll(&mut Box::pin(other.idle())).is_ready(), "it waits for another layer's handlers");
    script.answer(Answer::default());
    let Poll::Ready(Ok(answered)) = poll(&mut ask(&mut other.layer(Handler::new(&script)), "l")) else {
        panic!("it was not answered")
    };
    assert_eq!(answered.status(), 200, "another layer's handlers use this one's limit up");
    gate.open();
}
