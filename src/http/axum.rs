//! The layer in axum 0.8: handlers that ask for their claim, and tokio's tasks.

use super::handle::{ClaimHandle, Disposition};
use super::layer::{Idempotency, Seen};
use super::problem::{Problem, ProblemCode};
use super::scope::Scope;
use super::tasks::{BoxTask, Spawn};
use super::{Body, Builder};
use crate::store::Store;
use ::axum::body::Body as AxumBody;
use ::axum::extract::{FromRequestParts, OptionalFromRequestParts};
use ::axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::StatusCode;
use http::request::Parts;
use std::convert::Infallible;

/// Starts tasks on the tokio runtime in which the request is served.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokio;

impl Spawn for Tokio {
    /// # Panics
    /// Outside a tokio runtime.
    fn spawn(&self, task: BoxTask) {
        drop(tokio::spawn(task));
    }
}

impl Idempotency {
    /// [`builder`](Self::builder) with the tasks of tokio.
    pub fn tokio(store: &Store, scope: Scope) -> Builder {
        Self::builder(store, scope, Tokio)
    }
}

/// A handler that asks for its claim needs a request with a key: one without is told 400. 500 if no layer is around
/// the handler. `Option<ClaimHandle>` takes both.
impl<S: Sync> FromRequestParts<S> for ClaimHandle {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        if let Some(handle) = parts.extensions.get::<Self>() {
            return Ok(handle.clone());
        }
        if parts.extensions.get::<Seen>().is_some() {
            return Err(Problem::new(ProblemCode::KeyMissing).into_response());
        }
        let text = "the handler asks for its claim, and no idempotency layer is around it";
        Err((StatusCode::INTERNAL_SERVER_ERROR, text).into_response())
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for ClaimHandle {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

/// Beside a response: `(StatusCode::ACCEPTED, Disposition::Release, "later")`.
impl IntoResponseParts for Disposition {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let response = self.response::<AxumBody>(false, super::builder::PROBLEM_TYPES);
        response.map(|body: Body<AxumBody>| AxumBody::new(body))
    }
}
