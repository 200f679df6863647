//! What the layer costs a request with a new key: behind it against the bare handler, and against a handler that claims
//! and completes by itself, in turn; in memory through tower, and over the loopback interface.
//!
//! `cargo bench --features axum --bench http` prints medians and writes them to `target/figures/http.json`. The stores are on the
//! file system of the temporary folder, so set `TMPDIR` to measure another.
#![allow(missing_docs)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures, from outside
#![allow(clippy::unwrap_used)] // a bench that fails has nothing to say

mod about;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::routing::post;
use claimdb::http::{Idempotency, Scope};
use claimdb::{Durability, Outcome, Store};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service;

/// The default first.
const DURABILITIES: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];
const BODY: [u8; 200] = [b'7'; 200];

async fn handler(body: Bytes) -> (StatusCode, Bytes) {
    (StatusCode::CREATED, body)
}

/// One that no call before has given, spread over the key space.
fn key() -> String {
    static KEY: AtomicU64 = AtomicU64::new(0);
    format!("{:016x}", KEY.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn request<B: From<Bytes>>() -> Request<B> {
    let request = Request::post("/orders").header(header::HOST, "here").header("idempotency-key", key());
    request.body(Bytes::from_static(&BODY).into()).unwrap()
}

/// What each of many calls took, in microseconds.
struct Times {
    until: Instant,
    times: Vec<f64>,
}

impl Times {
    fn for_span(span: Duration) -> Self {
        Self { until: Instant::now() + span, times: Vec::new() }
    }

    /// When the next call begins; `None` once the time is over.
    fn next(&self) -> Option<Instant> {
        Some(Instant::now()).filter(|now| *now < self.until)
    }

    fn add(&mut self, begun: Instant) {
        self.times.push(begun.elapsed().as_secs_f64() * 1e6);
    }

    fn median(self) -> f64 {
        middle(self.times)
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn in_memory(routes: Router, span: Duration) -> f64 {
    let mut service = routes.into_service::<Body>();
    let mut times = Times::for_span(span);
    while let Some(begun) = times.next() {
        poll_fn(|context| Service::<Request<Body>>::poll_ready(&mut service, context)).await.unwrap();
        let response = service.call(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), BODY.len());
        times.add(begun);
    }
    times.median()
}

/// A connection to a server of these routes.
async fn connected(routes: Router) -> SendRequest<Full<Bytes>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    drop(tokio::spawn(axum::serve(listener, routes).into_future()));
    let (sender, driven) = handshake(TokioIo::new(stream)).await.unwrap();
    drop(tokio::spawn(driven));
    sender
}

async fn over_loopback(sender: &mut SendRequest<Full<Bytes>>, span: Duration) -> f64 {
    let mut times = Times::for_span(span);
    while let Some(begun) = times.next() {
        sender.ready().await.unwrap();
        let response = sender.send_request(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), BODY.len());
        times.add(begun);
    }
    times.median()
}

/// What one would write without the layer: the floor, as it stores what the layer has to store.
fn claims_itself(store: &Store, durability: Durability) -> Router {
    let store = store.clone();
    let handler = async move |headers: HeaderMap, body: Bytes| {
        let key = headers["idempotency-key"].to_str().unwrap();
        let asked = claimdb::Request::new(key).durability(durability);
        let Outcome::Granted(claim) = store.claim_async(asked).await.unwrap() else { panic!("keys repeat") };
        claim.complete_bytes_async(body.as_ref()).await.unwrap();
        (StatusCode::CREATED, body)
    };
    Router::new().route("/orders", post(handler))
}

/// What was measured of one durability and way, a value a round.
#[derive(Default)]
struct Measured {
    bare: Vec<f64>,
    claims_itself: Vec<f64>,
    layer: Vec<f64>,
}

impl Measured {
    fn row(self, durability: Durability, way: &str, json: &mut String) {
        let more = |floor: &[f64]| {
            middle(self.layer.iter().zip(floor).map(|(layer, floor)| layer - floor).collect())
        };
        let (overhead, own) = (more(&self.bare), more(&self.claims_itself));
        let [bare, claims_itself, layer] = [self.bare, self.claims_itself, self.layer].map(middle);
        println!(
            "{durability:<10?} {way:<12} {bare:>10.1} {claims_itself:>14.1} {layer:>10.1} {overhead:>12.1} {own:>14.1}"
        );
        write!(
            json,
            "\n  {{\"durability\": \"{durability:?}\", \"way\": \"{way}\", \"bare\": {bare:.1}, \
             \"claims_itself\": {claims_itself:.1}, \"layer\": {layer:.1}, \"over_bare\": {overhead:.1}, \
             \"over_claims_itself\": {own:.1}}},"
        )
        .unwrap();
    }
}

async fn measure(rounds: usize, span: Duration) -> String {
    let mut rows = String::new();
    let bare = Router::new().route("/orders", post(handler));
    println!(
        "{:<10} {:<12} {:>10} {:>14} {:>10} {:>12} {:>14}",
        "", "", "bare", "claims itself", "layer", "over bare", "over the 2nd"
    );
    for durability in DURABILITIES {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let layer = Idempotency::tokio(&store, Scope::global()).durability(durability).build().unwrap();
        let (claiming, layered) = (claims_itself(&store, durability), bare.clone().layer(layer.clone()));
        let mut to_bare = connected(bare.clone()).await;
        let (mut to_claiming, mut to_layered) =
            (connected(claiming.clone()).await, connected(layered.clone()).await);
        let (mut memory, mut loopback) = (Measured::default(), Measured::default());
        for _ in 0..rounds {
            memory.bare.push(in_memory(bare.clone(), span).await);
            memory.claims_itself.push(in_memory(claiming.clone(), span).await);
            memory.layer.push(in_memory(layered.clone(), span).await);
            loopback.bare.push(over_loopback(&mut to_bare, span).await);
            loopback.claims_itself.push(over_loopback(&mut to_claiming, span).await);
            loopback.layer.push(over_loopback(&mut to_layered, span).await);
        }
        memory.row(durability, "in memory", &mut rows);
        loopback.row(durability, "loopback", &mut rows);
        layer.idle().await;
        store.close().unwrap();
    }
    rows
}

fn main() {
    let trial = std::env::args().any(|argument| argument == "--test");
    let (rounds, span) = if trial { (1, Duration::from_millis(20)) } else { (5, Duration::from_secs(1)) };
    println!("microseconds of a request at the median, median of {rounds} rounds of {span:?}:");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // In a task, as a server's connections are.
    let rows = runtime.block_on(async { tokio::spawn(measure(rounds, span)).await.unwrap() });
    if trial {
        return;
    }
    let text = format!(
        "{{\"body_bytes\": {}, \"rounds\": {rounds}, \"round_seconds\": {}, \
         \"microseconds_at_the_median\": [{}]}}",
        BODY.len(),
        span.as_secs(),
        rows.trim_end_matches(',')
    );
    about::write("http", "cargo bench --features axum --bench http", &text);
}
