//! The layer, its settings and its service.

use super::body::Body;
use super::builder::Builder;
use super::fingerprint::FingerprintBy;
use super::grpc;
use super::handle::ClaimHandle;
use super::key::{Asked, Form, KeySource, Presented};
use super::scope::Scope;
use super::tasks::{Idle, Spawn, Tasks};
use crate::store::{Request as ClaimRequest, Store};
use crate::sync::Counter;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// A layer that runs a request with a key once, and replays its response to every retry. Cheap to clone; clones
/// share their store, their tasks and their statistics.
///
/// Inside authentication, directly outside the handler.
#[derive(Clone)]
pub struct Idempotency(Arc<Config>);

/// What a layer goes by.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) store: Store,
    pub(super) scope: Scope,
    pub(super) spawn: Arc<dyn Spawn>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) counters: Arc<Counters>,
    /// A claim on the terms of all claims.
    pub(super) terms: ClaimRequest,
    pub(super) methods: Vec<Method>,
    pub(super) keys: KeySource,
    pub(super) form: Form,
    pub(super) required: bool,
    pub(super) fingerprint: FingerprintBy,
    pub(super) max_hold: Duration,
    pub(super) max_tasks: usize,
    pub(super) request_limit: usize,
    pub(super) response_limit: usize,
    pub(super) patience: Duration,
    pub(super) store_5xx: bool,
    pub(super) fail_open: bool,
    pub(super) marker: HeaderName,
    pub(super) echo: bool,
    pub(super) times: bool,
    pub(super) retry_after_limit: Duration,
    pub(super) not_stored: BTreeSet<String>,
    pub(super) types: String,
}

/// What is counted where it is decided; what claims are told is counted by the store.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) unprotected: Counter,
    pub(super) omitted: Counter,
    pub(super) unrecorded: Counter,
}

/// What a layer has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Handlers that run now, or whose response is being stored.
    pub running: usize,
    /// Requests that ran although the store could not be asked ([`Builder::fail_open`]).
    pub unprotected: u64,
    /// Responses that were too long or took too long to be kept.
    pub omitted: u64,
    /// Requests that ran and whose outcome was not recorded: their lease was lost, or the store failed.
    pub unrecorded: u64,
}

/// Remembers in a request that a layer has let it pass without a claim, and why: for a handler that asks for one.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "axum"), allow(dead_code))] // only axum's handlers ask
pub(super) struct Seen {
    pub(super) why: NoClaim,
    pub(super) config: Arc<Config>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum NoClaim {
    /// Its method is not protected.
    Method,
    NoKey,
    /// The store could not be asked, and the layer fails open.
    StoreDown,
}

impl Idempotency {
    /// Settings for a layer over `store`. `scope` says whom a key belongs to, and `spawn` starts tasks, on any runtime.
    /// With the feature `axum`, `Idempotency::tokio` is the same on tokio.
    ///
    /// ```
    /// use claimdb::http::{BoxTask, Idempotency, Scope};
    /// use claimdb::{Store, backend::Mem};
    /// # #[derive(Clone)] struct Executor;
    /// # impl Executor { fn spawn(&self, _: BoxTask) {} }
    /// # let executor = Executor;
    /// let store = Store::builder(Mem::new()).open()?;
    /// let start = move |task: BoxTask| executor.spawn(task);
    /// let layer = Idempotency::builder(&store, Scope::global(), start).required().build()?;
    /// assert_eq!(layer.stats().running, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(store: &Store, scope: Scope, spawn: impl Spawn) -> Builder {
        Builder::new(store, scope, Arc::new(spawn))
    }

    pub(super) fn new(config: Config) -> Self {
        Self(Arc::new(config))
    }

    /// Ready when no handler of a request with a key runs any more, and what they answered is as durable as the layer asks
    /// for. Await it after the server has ended its connections (`with_graceful_shutdown`: to drop `axum::serve` ends none),
    /// in the runtime that served them, before that ends, and with a bound: a handler that hangs never ends. A response future
    /// that is kept and not polled keeps this waiting; one that is dropped does not.
    pub fn idle(&self) -> Idle {
        self.0.tasks.idle()
    }

    /// What the layer has done since it was made.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters = &self.0.counters;
        Stats {
            running: self.0.tasks.running(),
            unprotected: counters.unprotected.get(),
            omitted: counters.omitted.get(),
            unrecorded: counters.unrecorded.get(),
        }
    }
}

impl Config {
    fn echo_of(&self, presented: &Presented) -> Option<(HeaderName, HeaderValue)> {
        let super::key::Kind::Header(name) = &self.keys.0 else { return None };
        let value = presented.header.clone().filter(|_| self.echo)?;
        Some((name.clone(), value))
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<S> Layer<S> for Idempotency {
    type Service = Protect<S>;

    fn layer(&self, inner: S) -> Protect<S> {
        Protect { inner, config: Arc::clone(&self.0) }
    }
}

/// A service that runs each request with a key once. Made by [`Idempotency`].
#[derive(Debug, Clone)]
pub struct Protect<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S, B, R> Service<Request<B>> for Protect<S>
where
    S: Service<Request<Body<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: http_body::Body + Send + 'static,
    B::Error: Send,
    R: http_body::Body + Send + 'static,
    R::Error: Send,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<R, S::Error> {
        let (mut parts, body) = request.into_parts();
        // A request that has a claim came through a layer like this one before.
        let nested = parts.extensions.get::<ClaimHandle>().is_some();
        let protected = self.config.methods.contains(&parts.method);
        let asked = match protected && !nested {
            true => self.config.asked(&parts),
            false => Ok(Asked::Nothing),
        };
        let presented = match asked {
            Ok(Asked::Key(presented)) => Some(presented),
            Ok(Asked::InBody) => None,
            Ok(Asked::Nothing) => {
                if !nested {
                    let why = if protected { NoClaim::NoKey } else { NoClaim::Method };
                    parts.extensions.insert(Seen { why, config: Arc::clone(&self.config) });
                }
                let response = self.inner.call(Request::from_parts(parts, Body::passing(body)));
                return ResponseFuture(Box::pin(async move { Ok(response.await?.map(Body::passing)) }));
            }
            Err(problem) => {
                let response = problem.response(grpc::is_call(&parts.headers), &self.config.types);
                return ResponseFuture(Box::pin(async move { Ok(response) }));
            }
        };
        // The service that is ready is the one to be called; its clone is not ready yet.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let config = Arc::clone(&self.config);
        ResponseFuture(Box::pin(async move {
            let echo = presented.as_ref().and_then(|presented| config.echo_of(presented));
            let grpc = grpc::is_call(&parts.headers);
            let request = Request::from_parts(parts, body);
            let response = match config.clone().answer(service, request, presented, grpc).await {
                Ok(answered) => answered?,
                Err(problem) => problem.response(grpc, &config.types),
            };
            Ok(with(response, echo))
        }))
    }
}

fn with<B>(mut response: Response<B>, header: Option<(HeaderName, HeaderValue)>) -> Response<B> {
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, value);
    }
    response
}

type Answer<R, E> = Pin<Box<dyn Future<Output = Result<Response<Body<R>>, E>> + Send>>;

/// The response to come. It runs the handler in its polls. Dropping it does not stop a handler that runs under a claim:
/// that goes on in a task. Keeping it without polling it does, as with any future.
#[must_use = "futures do nothing unless they are awaited"]
pub struct ResponseFuture<R: http_body::Body, E>(Answer<R, E>);

impl<R: http_body::Body, E> Future for ResponseFuture<R, E> {
    type Output = Result<Response<Body<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<R: http_body::Body, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
