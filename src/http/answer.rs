//! How a request is answered that has a key, or whose body may have one; what its claim is told if it is not granted.

use super::body::{Body, CutBy, read};
use super::key::{Asked, Presented};
use super::layer::{Config, NoClaim, Seen};
use super::problem::{Problem, ProblemCode};
use super::replay::{self, StoredResponse};
use super::tasks::Inline;
use super::work::{Work, free};
use crate::error::ClaimError;
use crate::key::Key;
use crate::store::{About, Claim, Next, Outcome, Request as ClaimRequest, Settled};
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use serde_bytes::ByteBuf;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;

/// What a claim has come to.
pub(super) enum Told<R: http_body::Body> {
    Granted(Box<Claim>),
    Replay(Response<Body<R>>),
}

impl Config {
    /// What the head of a request tells of its key.
    pub(super) fn asked(&self, parts: &Parts) -> Result<Asked, Problem> {
        match self.keys.of_head(parts, self.form)? {
            Asked::Nothing if self.required => Err(Problem::new(ProblemCode::KeyMissing)),
            asked => Ok(asked),
        }
    }

    fn scope_of(&self, parts: &Parts) -> Result<Vec<u8>, Problem> {
        self.scope.of(parts).ok_or(Problem::new(ProblemCode::OwnerUnknown))
    }

    /// Answers a request that has a key, or whose body may have one. The outer error is a refusal, the inner one the
    /// service's.
    pub(super) async fn answer<S, B, R>(
        self: Arc<Self>,
        service: S,
        request: Request<B>,
        presented: Option<Presented>,
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
        let mut key = match presented {
            Some(presented) => Some((self.scope_of(&parts)?, presented)),
            None => None,
        };
        let whole = match read(body, self.request_limit, pending()).await {
            Ok(whole) => whole,
            Err(cut) if cut.why == CutBy::Length => return Err(Problem::new(ProblemCode::BodyTooLarge)),
            Err(_) => return Err(Problem::new(ProblemCode::BodyUnreadable)),
        };
        if key.is_none()
            && let Some(presented) = self.keys.of_body(&parts, &whole.data)?
        {
            key = Some((self.scope_of(&parts)?, presented));
        }
        let Some((scope, presented)) = key else {
            if self.required {
                return Err(Problem::new(ProblemCode::KeyMissing));
            }
            let request = Request::from_parts(parts, Body::whole(whole));
            return Ok(self.unprotected(service, request, NoClaim::NoKey).await);
        };
        let name = presented.name(&scope, &parts);
        let overloaded = Problem::new(ProblemCode::Overloaded).retry_after(Duration::from_secs(1));
        // Before the claim, whose syncs an overload does not need.
        if self.tasks.is_full(self.max_tasks) && self.would_run(&name) {
            return Err(overloaded);
        }
        let mut claim = self.terms.for_key(Ok(name.clone()));
        if let Some(fingerprint) = self.fingerprint.of(&parts, &whole.data) {
            claim = claim.fingerprint(fingerprint);
        }
        let request = Request::from_parts(parts, Body::whole(whole));
        // Before the claim: if there is no runtime here, it is none that could be left behind.
        let spawn = self.spawn.here().unwrap_or_else(|| Arc::clone(&self.spawn));
        let told = self.ask(&claim).await;
        let claimed = match told {
            Ok(Told::Granted(claimed)) => *claimed,
            Ok(Told::Replay(response)) => return Ok(Ok(response)),
            Err(Refusal::Problem(problem)) => return Err(problem),
            Err(Refusal::Unavailable) if self.fail_open => {
                self.counters.unprotected.add(1);
                return Ok(self.unprotected(service, request, NoClaim::StoreDown).await);
            }
            Err(Refusal::Unavailable) => {
                return Err(Problem::unavailable());
            }
        };
        let Some(permit) = self.tasks.permit(self.max_tasks) else {
            free(claimed).await;
            return Err(overloaded);
        };
        let work = Work { config: Arc::clone(&self), key: name, claim, grpc };
        Inline::new(spawn, permit, work.run(service, request, claimed)).await
    }

    /// Whether a claim of the key would be granted, as far as one can tell without claiming it.
    pub(super) fn would_run(&self, key: &Key) -> bool {
        self.store.inspect(key).is_ok_and(|seen| seen.next == Next::Granted)
    }

    /// Lets a request pass that has no claim.
    async fn unprotected<S, B, R>(
        self: Arc<Self>,
        mut service: S,
        mut request: Request<Body<B>>,
        why: NoClaim,
    ) -> Result<Response<Body<R>>, S::Error>
    where
        S: Service<Request<Body<B>>, Response = Response<R>>,
        B: http_body::Body,
        R: http_body::Body,
    {
        request.extensions_mut().insert(Seen { why, config: self });
        Ok(service.call(request).await?.map(Body::passing))
    }

    /// Claims, and says what a claim that is not granted is told.
    pub(super) async fn ask<R: http_body::Body>(&self, claim: &ClaimRequest) -> Result<Told<R>, Refusal> {
        let outcome = match self.store.claim_async(claim).await {
            Ok(outcome) => outcome,
            // Its key was used, and what for cannot be read: running it unprotected is no choice.
            Err(ClaimError::Failed { fault, .. }) if fault.is_damage() => {
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
