//! The other side: a client's requests get their keys.

use http::{HeaderName, HeaderValue, Method, Request};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// A layer for clients: gives each POST and PATCH that has no `Idempotency-Key` one.
///
/// It goes *outside* the layer that retries, so that a call and its retries have one key. Inside it each retry would
/// be an operation of its own. A key that the caller has set is left as it is.
#[derive(Clone)]
pub struct RequestKeys(Arc<dyn Fn() -> HeaderValue + Send + Sync>);

impl RequestKeys {
    /// Keys come from `make`, which must not give one twice: a UUID will do. It is called for each request that needs one, on
    /// the thread that calls the service.
    ///
    /// ```
    /// use claimdb::http::RequestKeys;
    /// # fn new_uuid() -> String { "6f1c3a6e-0000-4000-8000-000000000000".to_owned() }
    /// let keys = RequestKeys::new(|| new_uuid().parse().expect("a UUID makes a header"));
    /// ```
    #[must_use]
    pub fn new(make: impl Fn() -> HeaderValue + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl fmt::Debug for RequestKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestKeys")
    }
}

impl<S> Layer<S> for RequestKeys {
    type Service = KeyedRequests<S>;

    fn layer(&self, inner: S) -> KeyedRequests<S> {
        KeyedRequests { inner, keys: self.clone() }
    }
}

/// A client whose requests have keys. Made by [`RequestKeys`].
#[derive(Debug, Clone)]
pub struct KeyedRequests<S> {
    inner: S,
    keys: RequestKeys,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for KeyedRequests<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        const KEY: HeaderName = HeaderName::from_static("idempotency-key");
        if [Method::POST, Method::PATCH].contains(request.method()) && !request.headers().contains_key(KEY) {
            let key = (self.keys.0)();
            request.headers_mut().insert(KEY, key);
        }
        self.inner.call(request)
    }
}
