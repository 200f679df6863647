//! A store by the manual clock, a layer around a script, and an executor that is driven by hand.

use crate::faults::Faulty;
use crate::script::{Broken, Frames, Handler, Script, collect, headers};
use claimdb::http::{BoxTask, Builder, Idempotency, Protect, Scope};
use claimdb::{ManualClock, Store, SyncBy};
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tower_layer::Layer;
use tower_service::Service;

/// Real time, for the test alone: what has not come about by then never will.
const IN_TIME: Duration = Duration::from_secs(20);

/// Runs tasks when it is told to. Clones are one.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<VecDeque<Task>>>);

struct Task {
    name: usize,
    task: BoxTask,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Pool {
    pub fn spawn(&self, name: usize, task: BoxTask) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.0.lock().unwrap().push_back(Task { name, task, woken });
    }

    /// Drops the tasks called `name`: outside the lock, since they may spawn.
    pub fn drop_tasks(&self, name: usize) {
        let gone: Vec<_> = {
            let mut tasks = self.0.lock().unwrap();
            let (gone, kept): (Vec<_>, Vec<_>) = tasks.drain(..).partition(|task| task.name == name);
            tasks.extend(kept);
            gone
        };
        drop(gone);
    }

    /// Polls every task that was woken until none is.
    pub fn turn(&self) {
        loop {
            let next = {
                let mut tasks = self.0.lock().unwrap();
                let position = tasks.iter().position(|task| task.woken.0.swap(false, Ordering::SeqCst));
                position.and_then(|position| tasks.remove(position))
            };
            let Some(mut next) = next else { return };
            let waker = Waker::from(Arc::clone(&next.woken));
            let poll = || next.task.as_mut().poll(&mut Context::from_waker(&waker));
            // A panic of a task is its own end, as in any runtime.
            if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(poll)) {
                self.0.lock().unwrap().push_back(next);
            }
        }
    }
}

/// What a client has seen of its response so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub head: Option<(StatusCode, HeaderMap)>,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
    pub ended: bool,
    /// The service failed.
    pub failed: bool,
    /// The service panicked.
    pub panicked: bool,
}

impl Seen {
    pub fn status(&self) -> u16 {
        self.head.as_ref().expect("there is a response").0.as_u16()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.head.as_ref().expect("there is a response").1.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of a problem; empty if it is none.
    pub fn code(&self) -> String {
        if self.header("content-type").as_deref() != Some("application/problem+json") {
            return self.header("idempotency-problem").unwrap_or_default();
        }
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("a problem is JSON");
        assert_eq!(problem["status"], self.status(), "a problem tells its status");
        for member in ["type", "title", "detail", "code"] {
            assert!(problem[member].is_string(), "a problem has a {member}");
        }
        problem["code"].as_str().unwrap().to_owned()
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed").as_deref() == Some("true")
    }
}

/// A request under way.
#[derive(Clone)]
pub struct Call {
    name: usize,
    seen: Arc<Mutex<Seen>>,
}

impl Call {
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

pub struct World {
    pub store: Store,
    pub clock: ManualClock,
    pub storage: Faulty,
    pub pool: Pool,
    pub script: Script,
    pub layer: Idempotency,
    pub service: Protect<Handler<Broken>>,
    calls: usize,
}

/// The owner in `x-owner`; `ann` if there is none, and nobody if it is empty.
pub fn owner() -> Scope {
    Scope::by(|parts: &Parts| match parts.headers.get("x-owner") {
        None => Some(b"ann".to_vec()),
        Some(owner) if owner.is_empty() => None,
        Some(owner) => Some(owner.as_bytes().to_vec()),
    })
}

impl World {
    pub fn new() -> Self {
        Self::with(|layer| layer)
    }

    pub fn with(settings: impl Fn(Builder) -> Builder) -> Self {
        Self::over(&ManualClock::new(), &Faulty::new(), |store| store, owner(), settings)
    }

    pub fn over(
        clock: &ManualClock,
        storage: &Faulty,
        store: impl Fn(claimdb::Builder) -> claimdb::Builder,
        scope: Scope,
        settings: impl Fn(Builder) -> Builder,
    ) -> Self {
        let builder = Store::builder(storage.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
        let store = store(builder.sweep_every(Duration::ZERO)).open().unwrap();
        let (pool, script) = (Pool::default(), Script::default());
        let tasks = pool.clone();
        let builder = Idempotency::builder(&store, scope, move |task: BoxTask| tasks.spawn(0, task));
        let layer = settings(builder).build().unwrap();
        let service = layer.layer(Handler::new(&script));
        let (clock, storage) = (clock.clone(), storage.clone());
        Self { store, clock, storage, pool, script, layer, service, calls: 0 }
    }

    /// Sends a request, and runs everything as far as it goes.
    pub fn send(&mut self, request: Request<Frames>) -> Call {
        self.calls += 1;
        let call = Call { name: self.calls, seen: Arc::default() };
        let (mut service, seen) = (self.service.clone(), Arc::clone(&call.seen));
        let mut answer = Box::pin(async move {
            poll_fn(|context| Service::<Request<Frames>>::poll_ready(&mut service, context)).await?;
            service.call(request).await
        });
        let task = async move {
            let answered = poll_fn(|context| {
                let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
                polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
            });
            match answered.await {
                None => seen.lock().unwrap().panicked = true,
                Some(Err(Broken)) => seen.lock().unwrap().failed = true,
                Some(Ok(response)) => {
                    let (parts, body) = response.into_parts();
                    seen.lock().unwrap().head = Some((parts.status, parts.headers));
                    let (data, trailers) = collect(body).await;
                    let mut seen = seen.lock().unwrap();
                    (seen.body, seen.trailers) = (data, trailers);
                }
            }
            seen.lock().unwrap().ended = true;
        };
        self.pool.spawn(call.name, Box::pin(task));
        self.pool.turn();
        call
    }

    /// Sends a request and gives the whole response.
    #[track_caller]
    pub fn ask(&mut self, request: Request<Frames>) -> Seen {
        let call = self.send(request);
        self.ended(&call)
    }

    /// The whole response, which other threads may still be at.
    #[track_caller]
    pub fn ended(&self, call: &Call) -> Seen {
        self.until("a request is answered", || call.seen().ended);
        call.seen()
    }

    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let start = Instant::now();
        loop {
            self.pool.turn();
            if holds() {
                return;
            }
            assert!(start.elapsed() < IN_TIME, "P6 never stuck: never came about: {what}");
            std::thread::yield_now();
        }
    }

    /// The client goes away.
    pub fn hang_up(&self, call: &Call) {
        self.drop_call(call);
        self.pool.turn();
    }

    /// The client goes away, and nothing else is run yet.
    pub fn drop_call(&self, call: &Call) {
        self.pool.drop_tasks(call.name);
    }

    /// Moves the clock, and lets everything go on.
    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
        self.pool.turn();
    }

    /// Ends the process and starts it anew over the same storage. The handler is the same, and so are its runs.
    pub fn restart(self, settings: impl Fn(Builder) -> Builder) -> Self {
        let Self { store, clock, storage, pool, script, .. } = self;
        store.close().unwrap();
        let former: Vec<_> = pool.0.lock().unwrap().drain(..).collect();
        drop(former);
        let mut world = Self::over(&clock, &storage, |store| store, owner(), settings);
        world.service = world.layer.layer(Handler::new(&script));
        world.script = script;
        world
    }
}

/// A POST to `/orders` with `key`.
pub fn post(key: &str, body: &str) -> Request<Frames> {
    request(Method::POST, "/orders", &[("idempotency-key", key)], body)
}

pub fn request(method: Method, path: &str, fields: &[(&str, &str)], body: &str) -> Request<Frames> {
    let mut request = Request::new(Frames::of(body.to_owned()));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    let pairs: Vec<_> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    *request.headers_mut() = headers(&pairs);
    request
}
