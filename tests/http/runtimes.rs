//! Handlers that are handed over to tokio: in its runtime, outside any, and while one ends.

use crate::handover::{Answering, ask, poll, store};
use crate::script::{Answer, Frames, Gate, Handler, Script};
use crate::world::post;
use claimdb::backend::Mem;
use claimdb::http::{ClaimHandle, Idempotency, Scope};
use claimdb::{Durability, Store};
use http::{Request, Response};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tower_layer::Layer;
use tower_service::Service;

/// A service whose handlers are polled `polls` times before they answer; counts how often they are.
#[derive(Clone)]
struct Stepping {
    polls: usize,
    polled: Arc<AtomicUsize>,
}

impl<B> Service<Request<B>> for Stepping {
    type Response = Response<Frames>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Frames>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let attempt = request.extensions().get::<ClaimHandle>().map_or(0, ClaimHandle::attempt);
        let Self { polls, polled } = self.clone();
        Box::pin(poll_fn(move |context| {
            if polled.fetch_add(1, Ordering::Relaxed) == polls {
                return Poll::Ready(Ok(Response::new(Frames::of(format!("attempt {attempt}")))));
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

/// Real time, for the test alone: a handler that has not ended by then never will.
async fn idle(layer: &Idempotency) {
    let ended = tokio::time::timeout(Duration::from_secs(20), layer.idle()).await;
    ended.expect("P6 never stuck: a handler that was handed over does not go on");
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn dropped_after_any_number_of_polls_a_handler_goes_on_where_it_was() {
    const POLLS: usize = 5;
    let runtime = runtime();
    for dropped_after in 1..=POLLS {
        let polled = Arc::<AtomicUsize>::default();
        let store = Store::builder(Mem::new()).open().unwrap();
        let layer = Idempotency::tokio(&store, Scope::global()).durability(Durability::Relaxed);
        let layer = layer.build().unwrap();
        let mut service = layer.layer(Stepping { polls: POLLS, polled: Arc::clone(&polled) });
        runtime.block_on(async {
            let mut answer = Box::pin(service.call(post("k", "")));
            for _ in 0..dropped_after {
                assert!(poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending())).await);
            }
            assert_eq!(polled.load(Ordering::Relaxed), dropped_after, "a handler has another task");
            drop(answer);
            idle(&layer).await;
            assert_eq!(polled.load(Ordering::Relaxed), POLLS + 1, "P8: CN-01: after {dropped_after} polls");
            let again = service.call(post("k", "")).await.unwrap();
            assert!(again.headers().contains_key("idempotency-replayed"), "P8: CN-01: it was not recorded");
            let (body, _) = crate::script::collect(again.into_body()).await;
            assert_eq!(body, b"attempt 1", "CN-01: after {dropped_after} polls");
        });
    }
}

/// A layer on tokio and the response future of a request whose handler waits for the gate.
fn under_way(runtime: &Runtime, store: &Store) -> (Idempotency, Script, Gate, Answering) {
    let (script, gate) = (Script::default(), Gate::default());
    script.answer(Answer::held(&gate));
    let layer = Idempotency::tokio(store, Scope::global()).build().unwrap();
    let mut service = layer.layer(Handler::new(&script));
    let mut answer = ask(&mut service, "k");
    runtime.block_on(async {
        assert!(poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending())).await);
    });
    assert_eq!(script.runs(), 1);
    (layer, script, gate, answer)
}

#[test]
fn dropped_on_a_thread_without_a_runtime_a_handler_goes_on_in_its_own() {
    let (runtime, store) = (runtime(), store());
    let (layer, script, gate, answer) = under_way(&runtime, &store);
    std::thread::spawn(move || drop(answer)).join().expect("CN-01: a drop panicked");
    assert_eq!(layer.stats().running, 1, "CN-01: the handler is gone");
    gate.open();
    runtime.block_on(idle(&layer));
    let again = runtime.block_on(ask(&mut layer.layer(Handler::new(&script)), "k")).unwrap();
    assert!(again.headers().contains_key("idempotency-replayed"), "P8: CN-01: it was not recorded");
}

#[test]
fn dropped_by_a_runtime_that_ends_or_after_it_a_handler_ends_with_its_claim() {
    for in_the_runtime in [true, false] {
        let (runtime, store) = (runtime(), store());
        let (layer, script, _gate, answer) = under_way(&runtime, &store);
        if in_the_runtime {
            drop(runtime.spawn(answer));
            drop(runtime);
        } else {
            drop(runtime);
            drop(answer);
        }
        assert_eq!((layer.stats().running, store.stats().live_claims), (0, 0), "P6 never stuck");
        script.answer(Answer::default());
        let runtime = self::runtime();
        let again = runtime.block_on(ask(&mut layer.layer(Handler::new(&script)), "k")).unwrap();
        assert_eq!((again.status().as_u16(), script.runs()), (200, 2), "P6 never stuck");
        assert_eq!(script.last().handle.unwrap().attempt(), 2, "rule 18: the attempt before is forgotten");
    }
}

#[test]
fn what_a_thread_knows_of_its_runtime_is_asked_when_a_handler_begins() {
    // Outside any runtime tokio's tasks cannot be: that is told at once, and not when a client goes.
    let (store, script) = (store(), Script::default());
    let layer = Idempotency::tokio(&store, Scope::global()).build().unwrap();
    let mut answer = ask(&mut layer.layer(Handler::new(&script)), "k");
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut answer).is_ready()));
    assert!(polled.is_err() && script.runs() == 0, "a handler runs that could not be handed over");
    drop(answer);
    assert_eq!((layer.stats().running, store.stats().live_claims), (0, 0), "P6 never stuck");
}
