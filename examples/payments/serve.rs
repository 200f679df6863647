//! The service: axum, the store, and the layer between them.

use crate::ledger::Ledger;
use crate::service::raise_open_files;
use axum::extract::{Path, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use claimdb::Store;
use claimdb::http::{BuildError, ClaimHandle, Idempotency, Scope};
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

#[derive(clap::Args)]
pub struct Options {
    /// The folder of the store.
    #[arg(long)]
    store: PathBuf,
    /// The file of what was done to the world outside.
    #[arg(long)]
    ledger: PathBuf,
    /// Where to listen; with port 0 at a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,
    /// Milliseconds between a payment and its answer.
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Milliseconds for which a request waits while another with its key is being worked on; with 0 it is told 409.
    #[arg(long, default_value_t = 0)]
    wait: u64,
    /// Do not sync the ledger, which a power cut may then leave behind the store.
    #[arg(long)]
    unsynced_ledger: bool,
    /// Print the path and the key of each request, replays included.
    #[arg(long)]
    show_requests: bool,
}

/// What handlers share.
#[derive(Clone)]
struct Bank {
    ledger: Arc<Ledger>,
    pause: Duration,
}

impl Bank {
    /// Pays, and says under which claim. A bank that can be asked whether it has paid before would be asked here, from
    /// the second attempt on; this one cannot.
    ///
    /// # Panics
    /// If the ledger cannot be written. The money may have moved then, which no status would say; a panic ends the
    /// claim, and the next attempt is told.
    async fn pay(&self, payment: String, claim: &ClaimHandle) {
        let (ledger, token, attempt) = (Arc::clone(&self.ledger), claim.token(), claim.attempt());
        let paid = tokio::task::spawn_blocking(move || ledger.pay(&payment, token, attempt)).await;
        if let Err(error) = paid.map_err(std::io::Error::from).flatten() {
            panic!("the ledger cannot be written: {error}");
        }
        tokio::time::sleep(self.pause).await;
    }
}

/// `POST /payments` with `{"payment": .., "amount": ..}`.
async fn payments(
    State(bank): State<Bank>,
    claim: ClaimHandle,
    Json(order): Json<Value>,
) -> Result<(StatusCode, Json<Value>), StatusCode> {
    let Some(payment) = order["payment"].as_str() else { return Err(StatusCode::UNPROCESSABLE_ENTITY) };
    bank.pay(payment.to_owned(), &claim).await;
    let answer = json!({
        "payment": payment, "amount": order["amount"], "charge": claim.token().get(), "attempt": claim.attempt()
    });
    Ok((StatusCode::CREATED, Json(answer)))
}

/// What is paid for where a body does not say it: the key of the request, as its client made it.
fn key_of(headers: &HeaderMap) -> String {
    headers.get("idempotency-key").map(|key| key.to_str().unwrap_or("?").to_owned()).unwrap_or_default()
}

/// `POST /v1/payment_intents`, as far as Stripe's clients look.
async fn payment_intents(State(bank): State<Bank>, claim: ClaimHandle, headers: HeaderMap) -> Json<Value> {
    bank.pay(key_of(&headers), &claim).await;
    let id = format!("pi_{}", claim.token());
    Json(json!({ "id": id, "object": "payment_intent", "status": "succeeded" }))
}

/// `POST /api/v1/app/{app}/msg`, as far as Svix's clients look.
async fn messages(
    State(bank): State<Bank>,
    claim: ClaimHandle,
    Path(_app): Path<String>,
    headers: HeaderMap,
) -> (StatusCode, Json<Value>) {
    bank.pay(key_of(&headers), &claim).await;
    let id = format!("msg_{}", claim.token());
    let answer = json!({ "id": id, "eventType": "paid", "payload": {}, "timestamp": "2026-01-01T00:00:00Z" });
    (StatusCode::ACCEPTED, Json(answer))
}

/// Whom a key belongs to. Here the bearer token itself; a service puts what its authentication has found.
fn caller() -> Scope {
    Scope::by(|parts| parts.headers.get(AUTHORIZATION).map(|token| token.as_bytes().to_vec()))
}

async fn show(request: Request, next: Next) -> Response {
    println!("request {} {}", request.uri().path(), key_of(request.headers()));
    next.run(request).await
}

/// Both layers, which are over one store. Clients look again after a second rather than after a whole lease.
fn layers(store: &Store, wait: Duration) -> Result<[Idempotency; 2], BuildError> {
    let plain = Idempotency::tokio(store, caller());
    let plain = plain.required().retry_after_limit(Duration::from_secs(1)).wait(wait);
    Ok([plain.clone().build()?, plain.stripe().build()?])
}

pub async fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    raise_open_files(100)?;
    let store = Store::open(&options.store)?;
    let bank = Bank {
        ledger: Arc::new(Ledger::open(&options.ledger, !options.unsynced_ledger)?),
        pause: Duration::from_millis(options.pause),
    };
    let [ours, stripe] = layers(&store, Duration::from_millis(options.wait))?;
    let mut routes = Router::new()
        .route("/payments", post(payments))
        .route("/api/v1/app/{app}/msg", post(messages))
        .layer(ours.clone())
        .merge(Router::new().route("/v1/payment_intents", post(payment_intents)).layer(stripe.clone()))
        .with_state(bank);
    if options.show_requests {
        routes = routes.layer(from_fn(show));
    }
    let listener = TcpListener::bind(options.address).await?;
    println!("listening on {}", listener.local_addr()?);
    let interrupted = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("waiting for SIGINT: {error}; stopping");
        }
    };
    axum::serve(listener, routes).with_graceful_shutdown(interrupted).await?;
    // Nothing comes in any more. What still runs is answered and durable before the store is closed.
    ours.idle().await;
    stripe.idle().await;
    store.close()?;
    Ok(())
}
