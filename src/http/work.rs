//! A request that runs: its handler, and what becomes of its claim.
//!
//! In this order: the response is there, the claim is settled and durable, the client is answered. So no client has
//! seen a success that a retry could run again.

use super::answer::{Refusal, Told};
use super::body::{Body, Cut, Whole, read};
use super::grpc;
use super::handle::{Disposition, Owned};
use super::layer::Config;
use super::problem::{Problem, ProblemCode};
use super::replay;
use crate::error::Fault;
use crate::key::Key;
use crate::record::Omission;
use crate::store::{Claim, Request as ClaimRequest, RetryCause, SettleError};
use crate::sync::Signal;
use http::response::Parts;
use http::{Request, Response, StatusCode};
use serde_bytes::Bytes;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;

/// How long it is waited until another that is on its way to the key has it, or not.
const MOMENT: Duration = Duration::from_millis(100);

/// What a handler runs under.
pub(super) struct Work {
    pub(super) config: Arc<Config>,
    pub(super) key: Key,
    /// The claim as it was asked for.
    pub(super) claim: ClaimRequest,
    pub(super) grpc: bool,
}

/// Why an outcome is not recorded.
enum Unrecorded {
    Lost,
    Unknown,
}

/// What is stored of a response.
enum Form<'a> {
    Whole(&'a Whole),
    /// That it was answered, and with which status.
    Omitted,
    Nothing,
}

impl Work {
    pub(super) async fn run<S, B, R>(
        self,
        mut service: S,
        mut request: Request<Body<B>>,
        claim: Claim,
    ) -> Result<Result<Response<Body<R>>, S::Error>, Problem>
    where
        S: Service<Request<Body<B>>, Response = Response<R>>,
        B: http_body::Body,
        R: http_body::Body,
    {
        // It may have run out already, which is told when the claim is settled.
        let _ = claim.keep_alive(self.config.max_hold);
        let (owned, handle) = Owned::new(claim);
        request.extensions_mut().insert(handle);
        let answered = service.call(request).await;
        let claim = owned.take().await;
        let response = match answered {
            Ok(response) => response,
            Err(error) => {
                // No outcome: a timeout inside cuts the handler off wherever it is.
                drop(claim);
                return Ok(Err(error));
            }
        };
        match claim {
            Some(claim) => self.settle(claim, response).await,
            None => self.unrecorded(Unrecorded::Lost).await,
        }
        .map(Ok)
    }

    async fn settle<R: http_body::Body>(
        &self,
        claim: Claim,
        response: Response<R>,
    ) -> Result<Response<Body<R>>, Problem> {
        let (mut parts, body) = response.into_parts();
        let asked = parts.extensions.remove::<Disposition>();
        let early = asked.or_else(|| self.by_headers(&parts));
        if early == Some(Disposition::Release) {
            match asked {
                // If this fails, dropping the claim frees the key as well, as the next attempt.
                Some(_) => drop(claim.release_async().await),
                None => free(claim).await,
            }
            return Ok(Response::from_parts(parts, Body::passing(body)));
        }
        let read = match body.size_hint().exact() {
            Some(_) => read(body, self.config.response_limit, pending()).await,
            None => read(body, self.config.response_limit, self.pause(self.config.patience)).await,
        };
        let whole = match &read {
            Ok(whole) => {
                // A call whose status is missing was cut short: it is not known to be done.
                let by_trailers = || whole.trailers.as_ref().and_then(grpc::outcome);
                if early.or_else(by_trailers).is_none_or(|early| early == Disposition::Release) {
                    free(claim).await;
                    return Ok(Response::from_parts(parts, body_of(read)));
                }
                // What a connection was switched to cannot be told again.
                Some(whole).filter(|_| !parts.status.is_informational())
            }
            Err(_) => None,
        };
        match self.record(claim, asked, &parts, whole).await {
            Ok(kept) => {
                self.config.counters.omitted.add(u64::from(!kept));
                Ok(Response::from_parts(parts, body_of(read)))
            }
            Err(unrecorded) => self.unrecorded(unrecorded).await,
        }
    }

    /// What is answered in place of a response that is not recorded.
    async fn unrecorded<R: http_body::Body>(&self, why: Unrecorded) -> Result<Response<Body<R>>, Problem> {
        self.config.counters.unrecorded.add(1);
        match why {
            Unrecorded::Lost => self.of_successor().await,
            Unrecorded::Unknown => Err(Problem::new(ProblemCode::OutcomeUnknown)),
        }
    }

    /// What is done with a response of these headers; `None` if that is for the trailers to tell.
    fn by_headers(&self, parts: &Parts) -> Option<Disposition> {
        if self.grpc && parts.status == StatusCode::OK {
            return grpc::outcome(&parts.headers);
        }
        Some(match parts.status.as_u16() {
            401 | 403 | 408 | 425 | 429 => Disposition::Release,
            200..500 => Disposition::Store,
            500..600 if self.config.store_5xx => Disposition::Store,
            _ => Disposition::Release,
        })
    }

    /// Ready once `span` has passed.
    async fn pause(&self, span: Duration) {
        let late = Arc::new(Signal::new());
        // Without a timer it is ready at once: what is waited for may never come.
        let Ok(_alarm) = self.config.store.ring(span, &late) else { return };
        late.raised().await;
    }

    /// Settles the claim with the response, `whole` if that is to be kept and the store takes it; without a value if it
    /// takes none. Tells whether the response is kept.
    async fn record(
        &self,
        mut claim: Claim,
        asked: Option<Disposition>,
        parts: &Parts,
        whole: Option<&Whole>,
    ) -> Result<bool, Unrecorded> {
        let mut form = whole.map_or(Form::Omitted, Form::Whole);
        let (mut tried_again, mut waited) = (false, false);
        loop {
            let bytes = match form {
                Form::Whole(body) => Some(replay::whole(parts, body, &self.config.not_stored)),
                Form::Omitted => Some(replay::omitted(parts.status)),
                Form::Nothing => None,
            };
            let settled = match bytes {
                Some(bytes) if asked == Some(Disposition::Fail) => claim.fail_async(Bytes::new(&bytes)).await,
                Some(bytes) => claim.complete_bytes_async(bytes).await,
                None => claim.omit_async(Omission::TooLarge).await,
            };
            let retry = match settled {
                Ok(()) => return Ok(matches!(form, Form::Whole(_))),
                Err(SettleError::Retry(retry)) => retry,
                Err(SettleError::Lost(_)) => return Err(Unrecorded::Lost),
                Err(_) => return Err(Unrecorded::Unknown),
            };
            match retry.cause {
                RetryCause::TooLarge { .. } => {
                    form = if matches!(form, Form::Whole(_)) { Form::Omitted } else { Form::Nothing };
                    tried_again = false;
                }
                // Under the same token, trying again confirms what had landed.
                RetryCause::Fault(ref fault) if !tried_again && !matches!(fault, Fault::Closed) => {
                    tried_again = true;
                }
                // Who is on the way to the key is there in a moment, or has failed: trying again tells which.
                RetryCause::BeingTaken if !waited => {
                    waited = true;
                    self.pause(MOMENT).await;
                }
                // Dropping the claim tells the next attempt that this one may have acted.
                _ => return Err(Unrecorded::Unknown),
            }
            claim = retry.claim;
        }
    }

    /// What a retry would be told: the result of whoever took the key over, or that there is none.
    async fn of_successor<R: http_body::Body>(&self) -> Result<Response<Body<R>>, Problem> {
        let told = [ProblemCode::ResponseOmitted, ProblemCode::Interrupted];
        // A successor that has given the key back is no reason to claim it: that would count as an attempt. Nor is one that
        // runs waited for: the client may be gone.
        if !self.config.would_run(&self.key) {
            match self.config.ask(&self.claim.clone().wait(Duration::ZERO)).await {
                Ok(Told::Replay(response)) => return Ok(response),
                // It was given back in between.
                Ok(Told::Granted(claim)) => free(*claim).await,
                Err(Refusal::Problem(problem)) if told.contains(&problem.code()) => return Err(problem),
                Err(_) => {}
            }
        }
        Err(Problem::new(ProblemCode::LeaseLost).retry_after(Duration::from_secs(1)))
    }
}

/// The body as it was read, with what is left of it.
fn body_of<R: http_body::Body>(read: Result<Whole, Cut<R>>) -> Body<R> {
    read.map_or_else(|cut| cut.body, Body::whole)
}

/// Frees the key of a claim whose work is to be done again: as a first attempt, or as the next one if there is something
/// to be told: progress, or an attempt before it that may have acted.
pub(super) async fn free(claim: Claim) {
    if claim.last_checkpoint().is_some() || claim.previous().is_some() {
        return drop(claim);
    }
    // If this fails, dropping the claim frees the key as well, as the next attempt.
    let _ = claim.release_async().await;
}
