//! Requests with odd keys through the HTTP layer.
//!
//! What counts as a key is judged a second time by `sfv`, a parser of structured fields, and a few lines for bare
//! keys. A request whose header is no key never reaches the handler; one whose header is a key runs once.
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use claimdb::backend::Mem;
use claimdb::http::{BoxTask, Idempotency, Protect, Scope};
use claimdb::{ManualClock, Store, SyncBy};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use tower_layer::Layer;
use tower_service::Service;

const KEY: &str = "idempotency-key";

#[derive(Debug, Arbitrary)]
struct Case<'a> {
    strict: bool,
    keys: Vec<&'a [u8]>,
    content_type: &'a [u8],
    path: &'a str,
    body: &'a [u8],
}

fuzz_target!(|case: Case<'_>| {
    let Some(keys) =
        case.keys.iter().map(|key| HeaderValue::from_bytes(key).ok()).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let Some(request) = request(&case, &keys) else { return };
    let mut world = World::new(case.strict);
    let told = world.call(request);
    let key = match &keys[..] {
        [] => {
            assert_eq!((told, world.runs()), (StatusCode::OK, 1), "without a key it passes through");
            return;
        }
        [key] => key_of(key.as_bytes(), case.strict),
        _ => None,
    };
    let Some(key) = key else {
        assert_eq!((told, world.runs()), (StatusCode::BAD_REQUEST, 0), "P9: it ran with {keys:?} for a key");
        return;
    };
    assert_eq!((told, world.runs()), (StatusCode::OK, 1), "{keys:?} was refused as a key");
    let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
    let quoted = HeaderValue::from_str(&quoted).expect("a key is visible ASCII");
    let again = request_with(&case, quoted);
    assert_eq!(world.call(again), StatusCode::OK);
    assert_eq!(world.runs(), 1, "P8: {key:?} in quotes is another key");
});

/// The key in a header's value, if it is one.
fn key_of(value: &[u8], strict: bool) -> Option<String> {
    let value = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let key = if value.starts_with('"') {
        let item: sfv::Item = sfv::Parser::new(value).parse().ok()?;
        // A parameter would be passed over, and whoever sent it meant something by it.
        if !item.params.is_empty() || !value.ends_with('"') {
            return None;
        }
        item.bare_item.as_string()?.as_str().to_owned()
    } else {
        if strict || value.contains(',') {
            return None;
        }
        value.to_owned()
    };
    ((1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())).then_some(key)
}

fn request(case: &Case<'_>, keys: &[HeaderValue]) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::post(case.path)
        .header("content-type", HeaderValue::from_bytes(case.content_type).ok()?)
        .body(Full::new(Bytes::copy_from_slice(case.body)))
        .ok()?;
    for key in keys {
        request.headers_mut().append(KEY, key.clone());
    }
    Some(request)
}

fn request_with(case: &Case<'_>, key: HeaderValue) -> Request<Full<Bytes>> {
    request(case, &[key]).expect("it could be made once")
}

struct World {
    service: Protect<Handler>,
    handler: Handler,
}

#[derive(Clone, Default)]
struct Handler {
    runs: Arc<AtomicUsize>,
}

impl Service<Request<claimdb::http::Body<Full<Bytes>>>> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<claimdb::http::Body<Full<Bytes>>>) -> Self::Future {
        self.runs.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Full::new(Bytes::from_static(b"done")))))
    }
}

impl World {
    fn new(strict: bool) -> Self {
        let store = Store::builder(Mem::new()).clock(ManualClock::new()).sync_by(SyncBy::Caller).open();
        let store = store.expect("memory opens");
        let no_task = |_: BoxTask| panic!("nobody hangs up");
        let layer = Idempotency::builder(&store, Scope::global(), no_task);
        let layer = if strict { layer.strict() } else { layer };
        let handler = Handler::default();
        let service = layer.build().expect("its settings are sound").layer(handler.clone());
        Self { service, handler }
    }

    fn runs(&self) -> usize {
        self.handler.runs.load(Ordering::Relaxed)
    }

    /// In one poll: nothing here waits for anything.
    fn call(&mut self, request: Request<Full<Bytes>>) -> StatusCode {
        let response = pin!(self.service.call(request));
        let Poll::Ready(Ok(response)) = response.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("P6 never stuck: no answer");
        };
        response.status()
    }
}
