//! A receiver of webhooks, whose sender delivers each event until it is acknowledged:
//! `cargo run --features axum --example webhook`.
//!
//! The signature is checked first, then the event is claimed by the id of its delivery, then the handler runs. Deliveries
//! that come together run it once, and all get its answer. Signatures and ids are those of Standard Webhooks, which signs
//! the id too; for GitHub take `KeySource::github()` and `x-hub-signature-256`, which signs the body alone.
// A program of its own: its threads and its clock are not the library's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use claimdb::Store;
use claimdb::http::{BuildError, ClaimHandle, Idempotency, KeySource, Scope};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

type Told<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What sender and receiver share. A service reads it from its settings.
const SECRET: &str = "whsec_Y2xhaW1kYi1leGFtcGxlLXNlY3JldC0wMDAwMDA=";
/// The longest event.
const MOST: usize = 256 << 10;
/// How long a delivery waits for another of the same event. Senders give up after some seconds; 409 would tell them to
/// come again.
const WAIT: Duration = Duration::from_secs(5);

/// The receiver: what is outermost comes first.
fn receiver(store: &Store, books: Books) -> Result<(Router, Idempotency), BuildError> {
    // One sender, whose signature was verified, so there is one scope.
    let claims = Idempotency::tokio(store, Scope::global());
    let claims = claims.key_from(KeySource::standard_webhooks()).required().wait(WAIT).build()?;
    let routes = Router::new()
        .route("/hooks", post(book))
        .with_state(books)
        .layer(claims.clone())
        .layer(from_fn_with_state(Arc::new(Webhook::new(SECRET).expect("it is one")), verify));
    Ok((routes, claims))
}

/// Refuses what is not signed by the sender, before it can take an event's id.
async fn verify(State(sender): State<Arc<Webhook>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MOST).await else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    if sender.verify(&body, &head.headers).is_err() {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    next.run(Request::from_parts(head, Body::from(body))).await
}

/// The handler, which runs once for each event, until it has answered with something that is kept. 5xx is not: the sender
/// delivers again, and the handler is tried again.
async fn book(
    State(books): State<Books>,
    claim: ClaimHandle,
    body: Bytes,
) -> Result<Json<Value>, StatusCode> {
    let event: Value = serde_json::from_slice(&body).map_err(|_| StatusCode::UNPROCESSABLE_ENTITY)?;
    let order = event["order"].as_str().ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
    let entry = books.enter(order).ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(json!({ "order": order, "entry": entry, "token": claim.token().get() })))
}

fn main() -> Told<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(deliver_all())
}

async fn deliver_all() -> Told<()> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or_else(|| temporary.path().join("store"), PathBuf::from);
    if folder.exists() {
        return Err("this starts from nothing: name a folder that is not there".into());
    }
    let books = Books::default();
    let service = Service::start(&folder, books.clone()).await?;
    let sender = Sender::new(SECRET)?;

    // Somebody else, who knows the id of an event that is to come, is refused, and takes nothing.
    let forger = Sender::new("whsec_c29tZWJvZHktZWxzZS0wMDAwMDAwMDAwMDAwMDA=")?;
    let told = forger.deliver(service.address, "evt-1", "order-666").await?;
    assert_eq!(told.status, StatusCode::UNAUTHORIZED);
    println!("a forged evt-1: {}", told.status);

    // Eight deliveries of each event at once: one runs the handler, and all have its answer.
    let mut first = HashMap::new();
    for number in 1..=4 {
        let (id, order) = (format!("evt-{number}"), format!("order-{number}"));
        let mut deliveries = JoinSet::new();
        for _ in 0..8 {
            let (sender, address, id, order) = (sender.clone(), service.address, id.clone(), order.clone());
            deliveries.spawn(async move { sender.deliver(address, &id, &order).await });
        }
        let told = deliveries.join_all().await.into_iter().collect::<Told<Vec<_>>>()?;
        assert!(told.iter().all(|one| one.status == StatusCode::OK && one.body == told[0].body), "{told:?}");
        let replays = told.iter().filter(|told| told.replayed).count();
        assert_eq!(replays, 7, "one of 8 ran the handler");
        println!("{id}: 8 deliveries at once, 1 handled, {replays} replayed: {}", told[0].body);
        first.insert(id, (order, told[0].body.clone()));
    }
    assert_eq!(books.entries(), 4);
    let told = forger.deliver(service.address, "evt-1", "order-1").await?;
    assert_eq!(told.status, StatusCode::UNAUTHORIZED, "nor is anybody else shown an answer");

    // A handler that fails keeps nothing, and the next delivery runs it again.
    books.close_for_a_moment();
    let failed = sender.deliver(service.address, "evt-5", "order-5").await?;
    let again = sender.deliver(service.address, "evt-5", "order-5").await?;
    assert_eq!((failed.status, again.status), (StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK));
    assert!(!again.replayed, "what failed is not replayed");
    println!("evt-5: {}, delivered again: {}", failed.status, again.status);

    // One id for another event is told so, and changes nothing.
    let other = sender.deliver(service.address, "evt-5", "order-6").await?;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);

    // The acknowledgements were lost, and the service was started again: everything is delivered once more.
    service.stop().await?;
    let service = Service::start(&folder, books.clone()).await?;
    for (id, (order, body)) in &first {
        let told = sender.deliver(service.address, id, order).await?;
        assert!(told.replayed && told.body == *body, "P8: {id} was handled again: {told:?}");
    }
    println!("after a restart: 4 deliveries, 4 replayed");
    assert_eq!(books.entries(), 5, "each event was booked once");
    service.stop().await
}

/// The receiver as it runs.
struct Service {
    address: SocketAddr,
    store: Store,
    claims: Idempotency,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Service {
    async fn start(folder: &Path, books: Books) -> Told<Self> {
        let store = Store::open(folder)?;
        let (routes, claims) = receiver(&store, books)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let until = async move { stopped.await.unwrap_or_default() };
        let serving = tokio::spawn(axum::serve(listener, routes).with_graceful_shutdown(until).into_future());
        Ok(Self { address, store, claims, stop, serving })
    }

    /// Takes nothing more in, and waits until what runs is answered and durable.
    async fn stop(self) -> Told<()> {
        drop(self.stop);
        self.serving.await??;
        self.claims.idle().await;
        Ok(self.store.close()?)
    }
}

/// Stands for what the handler changes: the orders that were booked.
#[derive(Clone, Default)]
struct Books(Arc<Mutex<(Vec<String>, bool)>>);

impl Books {
    /// The number of the new entry; `None` if the books are closed, which they are for one entry.
    fn enter(&self, order: &str) -> Option<usize> {
        let mut books = self.0.lock().expect("nobody panics with it");
        if std::mem::take(&mut books.1) {
            return None;
        }
        books.0.push(order.to_owned());
        Some(books.0.len())
    }

    fn close_for_a_moment(&self) {
        self.0.lock().expect("nobody panics with it").1 = true;
    }

    fn entries(&self) -> usize {
        self.0.lock().expect("nobody panics with it").0.len()
    }
}

/// Stands for the sender.
#[derive(Clone)]
struct Sender {
    http: Client<HttpConnector, Full<Bytes>>,
    secret: Arc<Webhook>,
}

/// What the sender is told of a delivery.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    replayed: bool,
    body: String,
}

impl Sender {
    fn new(secret: &str) -> Told<Self> {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { http, secret: Arc::new(Webhook::new(secret)?) })
    }

    async fn deliver(&self, to: SocketAddr, id: &str, order: &str) -> Told<Answer> {
        let body = json!({ "type": "order.paid", "order": order }).to_string();
        let now = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())?;
        let request = Request::post(format!("http://{to}/hooks"))
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", self.secret.sign(id, now, body.as_bytes())?)
            .body(Full::from(body))?;
        let (head, body) = self.http.request(request).await?.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        Ok(Answer { status: head.status, replayed: head.headers.contains_key("idempotency-replayed"), body })
    }
}
