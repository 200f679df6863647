//! The layer, its service, and how a request is answered that does not run.

use super::body::{Body, CutBy, read};
use super::builder::Builder;
use super::fingerprint::FingerprintBy;
use super::grpc;
use super::handle::ClaimHandle;
use super::key::{Form, KeySource, Presented};
use super::problem::{Problem, ProblemCode};
use super::replay::{self, StoredResponse};
use super::scope::Scope;
use super::tasks::{self, Idle, Spawn, Tasks};
use super::work::Work;
use crate::error::{ClaimError, Fault};
use crate::store::{About, Claim, Outcome, Request as ClaimRequest, Settled, Store};
use crate::sync::Counter;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, pending};
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

/// Remembers that a layer has let the request pass, and why it has no claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen;

impl Idempotency {
    /// Settings for a layer over `store`. `scope` says whom a key belongs to, and `spawn` starts tasks.
    pub fn builder(store: &Store, scope: Scope, spawn: impl Spawn) -> Builder {
        Builder::new(store, scope, Arc::new(spawn))
    }

    pub(super) fn new(config: Config) -> Self {
        Self(Arc::new(config))
    }

    /// Ready when no handler of a request with a key runs any more, and what they answered is durable. Await it
    /// after the server has stopped taking requests, and before the runtime ends.
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
        let presented = match self.config.methods.contains(&parts.method) && !nested {
            true => self.config.present(&parts),
            false => Ok(None),
        };
        let presented = match presented {
            Ok(Some(presented)) => presented,
            Ok(None) => {
                if !nested {
                    parts.extensions.insert(Seen);
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
            let (echo, grpc) = (config.echo_of(&presented), grpc::is_call(&parts.headers));
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

/// What a claim has come to.
pub(super) enum Told<R: http_body::Body> {
    Granted(Box<Claim>),
    Replay(Response<Body<R>>),
}

impl Config {
    fn present(&self, parts: &http::request::Parts) -> Result<Option<Presented>, Problem> {
        match self.keys.of(parts, self.form)? {
            None if self.required => Err(Problem::new(ProblemCode::KeyMissing)),
            presented => Ok(presented),
        }
    }

    fn echo_of(&self, presented: &Presented) -> Option<(HeaderName, HeaderValue)> {
        let super::key::Kind::Header(name) = &self.keys.0 else { return None };
        let value = presented.header.clone().filter(|_| self.echo)?;
        Some((name.clone(), value))
    }

    /// Answers a request that has a key. The outer error is a refusal, the inner one the service's.
    async fn answer<S, B, R>(
        self: Arc<Self>,
        mut service: S,
        request: Request<B>,
        presented: Presented,
        grpc: bool,
    ) -> Result<Result<Response<Body<R>>, S::Error>, Problem>
    where
        S: Service<Request<Body<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: http_body::Body + Send + 'static,
        B::Error: Send,
        R: http_body::Body + Send + 'static,
        R::Error: Send,
    {
        let (parts, body) = request.into_parts();
        let scope = self.scope.of(&parts).ok_or(Problem::new(ProblemCode::OwnerUnknown))?;
        let whole = match read(body, self.request_limit, pending()).await {
            Ok(whole) => whole,
            Err(cut) if cut.why == CutBy::Length => return Err(Problem::new(ProblemCode::BodyTooLarge)),
            Err(_) => return Err(Problem::new(ProblemCode::BodyUnreadable)),
        };
        let mut claim = self.terms.for_key(Ok(presented.name(&scope, &parts)));
        if let Some(fingerprint) = self.fingerprint.of(&parts, &whole.data) {
            claim = claim.fingerprint(fingerprint);
        }
        let request = Request::from_parts(parts, Body::whole(whole));
        let told = self.ask(&claim).await;
        let claimed = match told {
            Ok(Told::Granted(claimed)) => *claimed,
            Ok(Told::Replay(response)) => return Ok(Ok(response)),
            Err(Refusal::Problem(problem)) => return Err(problem),
            Err(Refusal::Unavailable) if self.fail_open => {
                self.counters.unprotected.add(1);
                let mut request = request;
                request.extensions_mut().insert(Seen);
                return Ok(service.call(request).await.map(|response| response.map(Body::passing)));
            }
            Err(Refusal::Unavailable) => {
                return Err(Problem::new(ProblemCode::StoreUnavailable).retry_after(Duration::from_secs(1)));
            }
        };
        let Some(permit) = self.tasks.permit(self.max_tasks) else {
            // If this fails, dropping the claim frees the key as well, as the next attempt.
            let _ = claimed.release_async().await;
            return Err(Problem::new(ProblemCode::Overloaded).retry_after(Duration::from_secs(1)));
        };
        let spawn = Arc::clone(&self.spawn);
        let work = Work { config: self, claim, grpc };
        let answer = tasks::run(&*spawn, permit, work.run(service, request, claimed));
        // A task that was dropped has ended its claim, and nobody knows how far its handler came.
        answer.await.unwrap_or(Err(Problem::new(ProblemCode::OutcomeUnknown)))
    }

    /// Claims, and says what a claim that is not granted is told.
    pub(super) async fn ask<R: http_body::Body>(&self, claim: &ClaimRequest) -> Result<Told<R>, Refusal> {
        let outcome = match self.store.claim_async(claim).await {
            Ok(outcome) => outcome,
            // Its key was used, and what for cannot be read: running it unprotected is no choice.
            Err(ClaimError::Failed { fault: Fault::Damaged(_), .. }) => {
                return Err(Problem::new(ProblemCode::StoreUnavailable).into());
            }
            Err(ClaimError::Nested { .. }) => return Err(Problem::new(ProblemCode::InProgress).into()),
            Err(_) => return Err(Refusal::Unavailable),
        };
        let omitted = |status| Problem::new(ProblemCode::ResponseOmitted).original(status);
        Err(Refusal::Problem(match outcome {
            Outcome::Granted(claim) => return Ok(Told::Granted(Box::new(claim))),
            Outcome::Settled(settled) => match self.stored(settled) {
                (Some(StoredResponse::Whole { status, headers, body }), about) => {
                    let mut response = replay::response(status, headers, body);
                    self.mark(&mut response, &about);
                    return Ok(Told::Replay(response));
                }
                (Some(StoredResponse::Omitted { status }), _) => omitted(Some(status)),
                (None, _) => omitted(None),
            },
            Outcome::InFlight(holder) => {
                let rest = holder.remaining().min(self.retry_after_limit);
                Problem::new(ProblemCode::InProgress).retry_after(rest)
            }
            Outcome::Mismatched(_) => Problem::new(ProblemCode::KeyReused),
            Outcome::Interrupted(_) => Problem::new(ProblemCode::Interrupted),
        }))
    }

    /// What is stored, if it is a response that can be read.
    fn stored(&self, settled: Settled) -> (Option<StoredResponse>, About) {
        let about = *settled.about();
        let bytes = match settled {
            Settled::Completed(stored) => Some(stored.into_bytes()),
            Settled::Failed(stored) => stored.decode::<ByteBuf>().ok().map(ByteBuf::into_vec),
            Settled::Omitted(_) => None,
        };
        (bytes.as_deref().and_then(StoredResponse::decode), about)
    }

    fn mark<B>(&self, response: &mut Response<B>, about: &About) {
        let headers = response.headers_mut();
        headers.insert(self.marker.clone(), HeaderValue::from_static("true"));
        if self.times {
            for (name, time) in [
                ("idempotency-settled-at", about.settled_at()),
                ("idempotency-expires-at", about.forgotten_at()),
            ] {
                let date = HeaderValue::try_from(format!("@{}", time.unix_seconds()));
                headers.insert(name, date.expect("digits make a header"));
            }
        }
    }
}

/// Why a request does not run.
pub(super) enum Refusal {
    Problem(Problem),
    /// The store could not be asked.
    Unavailable,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

type Answer<R, E> = Pin<Box<dyn Future<Output = Result<Response<Body<R>>, E>> + Send>>;

/// The response to come. Dropping it does not stop a handler that runs under a claim.
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
