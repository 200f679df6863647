//! The load: many connections that ask at once, for payments of their own and for each other's, and never kill anything.

use crate::client::Random;
use crate::judge::{Asked, Judged, Told};
use crate::ledger;
use crate::service::{Service, fresh_folder, raise_open_files};
use axum::body::Bytes;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What is not answered by then never will be.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(clap::Args, Clone)]
pub struct Options {
    /// How many connections are open, each with one request after another.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    connections: u64,
    /// For how long, in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How many of a hundred requests are for a payment that somebody has asked for before.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=100))]
    duplicates: u64,
    /// Milliseconds for which a request waits for the one that is being worked on; with 0 it is told 409 at once.
    #[arg(long, default_value_t = 0)]
    wait: u64,
    /// Of what is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder of the store and the ledger, which must not be there; `target/payments-load` and emptied if not set.
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// One connection, which stays open.
struct Connection {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    random: Random,
    asked: Vec<Asked>,
}

pub async fn load(options: Options) -> Result<(), Box<dyn Error>> {
    raise_open_files(options.connections + 100)?;
    let folder = fresh_folder(options.folder.as_deref(), "target/payments-load")?;
    // It is killed once all was answered, and what is written outlives that.
    let serves = ["--wait".to_owned(), options.wait.to_string(), "--unsynced-ledger".to_owned()];
    let (service, address) = Service::start(&folder, &serves)?;
    let all_are_open = Arc::new(Barrier::new(usize::try_from(options.connections)?));
    let issued = Arc::new(AtomicU64::new(0));
    let mut connections = JoinSet::new();
    for number in 0..options.connections {
        let (options, issued) = (options.clone(), Arc::clone(&issued));
        let all_are_open = Arc::clone(&all_are_open);
        connections.spawn(async move {
            let random = Random(options.seed.wrapping_mul(1_000_003).wrapping_add(number));
            let mut connection = Connection::open(address, random).await?;
            all_are_open.wait().await;
            let until = Instant::now() + Duration::from_secs(options.seconds);
            while Instant::now() < until && connection.ask_one(&options, &issued).await {}
            Ok::<_, String>(connection.asked)
        });
    }
    let begun = Instant::now();
    let mut asked = Vec::new();
    while let Some(ended) = connections.join_next().await {
        asked.extend(ended??);
    }
    let took = begun.elapsed();
    drop(service);
    let effects = ledger::read(&folder.join("ledger"))?;
    let judged = Judged::new(&effects, &asked, issued.load(Ordering::SeqCst), options.wait > 0);
    judged.print(options.connections, took);
    if judged.broken.is_empty() {
        return Ok(());
    }
    for promise in judged.broken.iter().take(20) {
        eprintln!("BROKEN: {promise}");
    }
    Err(format!("{} promises were broken; what is left is in {}", judged.broken.len(), folder.display())
        .into())
}

impl Connection {
    async fn open(address: SocketAddr, random: Random) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("connecting to {address}: {error}");
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let (sender, driven) = handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        // If it breaks, so does the request that is under way, which says so.
        drop(tokio::spawn(driven));
        Ok(Self { address, sender, random, asked: Vec::new() })
    }

    /// Asks for one payment, and notes what it was told. Whether the connection is still good.
    async fn ask_one(&mut self, options: &Options, issued: &AtomicU64) -> bool {
        let payment = self.draw(options, issued);
        let begun = Instant::now();
        let told = match timeout(PATIENCE, self.told(payment)).await {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => Told::Nothing(error.to_string()),
            Err(_) => Told::Nothing(format!("no answer within {PATIENCE:?}")),
        };
        let good = !matches!(told, Told::Nothing(_));
        self.asked.push(Asked { payment, told, took: begun.elapsed() });
        good
    }

    /// A new payment, or one that was asked for before: half of these are among the last, which may well be in flight.
    fn draw(&mut self, options: &Options, issued: &AtomicU64) -> u64 {
        let so_far = issued.load(Ordering::SeqCst);
        if so_far == 0 || self.random.below(100) >= options.duplicates {
            return issued.fetch_add(1, Ordering::SeqCst);
        }
        let last = if self.random.below(2) == 0 { so_far } else { so_far.min(options.connections) };
        so_far - 1 - self.random.below(last)
    }

    async fn told(&mut self, payment: u64) -> Result<Told, Box<dyn Error + Send + Sync>> {
        let name = format!("payment-{payment}");
        let body = json!({ "payment": name, "amount": payment }).to_string();
        let request = Request::post("/payments")
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, "Bearer the-shop")
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", name)
            .body(Full::from(body))?;
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let said = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        Ok(match (head.status, said["charge"].as_u64(), said["code"].as_str()) {
            (StatusCode::CREATED, Some(charge), _) => Told::Paid {
                charge,
                replayed: head.headers.contains_key("idempotency-replayed"),
                text: format!("{} {}", shown(&head.headers), String::from_utf8_lossy(&body)),
            },
            (StatusCode::CONFLICT, _, Some("in-progress")) => Told::InProgress,
            (other, ..) => Told::Else(format!("{other}: {}", String::from_utf8_lossy(&body))),
        })
    }
}

/// The headers that a replay has to repeat.
fn shown(headers: &HeaderMap) -> String {
    let own = ["date", "idempotency-replayed"];
    let mut shown: Vec<_> = headers
        .iter()
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .map(|(n, v)| format!("{n}: {v:?}"))
        .collect();
    shown.sort();
    shown.join(", ")
}
