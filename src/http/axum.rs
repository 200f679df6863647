//! The layer in axum 0.8: handlers that ask for their claim, and tokio's tasks.

use super::Builder;
use super::grpc;
use super::handle::{ClaimHandle, Disposition};
use super::layer::{Idempotency, NoClaim, Seen};
use super::problem::{Problem, ProblemCode};
use super::scope::Scope;
use super::tasks::{BoxTask, Spawn};
use crate::store::Store;
use ::axum::body::Body as AxumBody;
use ::axum::extract::{FromRequestParts, OptionalFromRequestParts};
use ::axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::StatusCode;
use http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Starts tasks on the tokio runtime in which the request is served.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokio;

impl Spawn for Tokio {
    /// # Panics
    /// Outside a tokio runtime.
    fn spawn(&self, task: BoxTask) {
        drop(tokio::spawn(task));
    }

    /// # Panics
    /// Outside a tokio runtime.
    fn here(&self) -> Option<Arc<dyn Spawn>> {
        Some(Arc::new(On(Handle::current())))
    }
}

/// Starts tasks on one runtime, from any thread. One that has ended drops them.
struct On(Handle);

impl Spawn for On {
    fn spawn(&self, task: BoxTask) {
        drop(self.0.spawn(task));
    }
}

impl Idempotency {
    /// [`builder`](Self::builder) with the tasks of tokio.
    ///
    /// # Panics
    /// A request with a key panics outside of a tokio runtime.
    pub fn tokio(store: &Store, scope: Scope) -> Builder {
        Self::builder(store, scope, Tokio)
    }
}

/// A handler that asks for its claim needs a request that has one. One without a key is told 400, and one that passes
/// because the store is down ([`Builder::fail_open`]) 503, as by the layer. 500 if the layer does not protect the method,
/// or none is around the handler. `Option<ClaimHandle>` takes all of them.
impl<S: Sync> FromRequestParts<S> for ClaimHandle {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        if let Some(handle) = parts.extensions.get::<Self>() {
            return Ok(handle.clone());
        }
        let wrong = |text: String| (StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
        let Some(Seen { why, config }) = parts.extensions.get() else {
            return Err(wrong(
                "the handler asks for its claim, and no idempotency layer is around it".to_owned(),
            ));
        };
        let problem = match why {
            NoClaim::NoKey => Problem::new(ProblemCode::KeyMissing),
            NoClaim::StoreDown => Problem::unavailable(),
            NoClaim::Method => {
                let method = &parts.method;
                return Err(wrong(format!(
                    "the handler asks for its claim, and the idempotency layer does not protect {method}"
                )));
            }
        };
        Err(problem
            .response(grpc::is_call(&parts.headers), &config.types)
            .map(AxumBody::new::<super::Body<AxumBody>>))
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
