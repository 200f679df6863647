//! Clients that want payments made, and ask until they are told that they were.

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a client waits for an answer before it asks again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it rests between two tries, at most, in milliseconds.
const REST: u64 = 20;

/// A small generator (splitmix64), whose runs can be repeated.
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}

/// What a client was told of a payment that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub payment: String,
    pub charge: u64,
    pub attempt: u64,
}

/// What a client has seen.
#[derive(Default)]
pub struct Seen {
    pub answers: Vec<Answer>,
    pub requests: usize,
    pub replays: usize,
    /// Told 409: another request with the key is being worked on.
    pub in_progress: usize,
    /// Told 503: try again.
    pub unavailable: usize,
    /// Not told anything, as the service was gone.
    pub broken: usize,
    /// From request to response, of the requests that had one.
    pub times: Vec<Duration>,
}

pub struct Client {
    http: Http<HttpConnector, Full<axum::body::Bytes>>,
    /// Where the service is, which changes each time it is started.
    service: watch::Receiver<SocketAddr>,
    random: Random,
    pub seen: Seen,
}

impl Client {
    pub fn new(service: watch::Receiver<SocketAddr>, seed: u64) -> Self {
        let http = Http::builder(TokioExecutor::new()).build_http();
        Self { http, service, random: Random(seed), seen: Seen::default() }
    }

    /// Asks for `payment` until it was made.
    ///
    /// # Errors
    /// If the service says something that no client of it should have to hear.
    pub async fn pay(&mut self, payment: &str) -> Result<(), String> {
        let body = json!({ "payment": payment, "amount": 1999 }).to_string();
        loop {
            self.seen.requests += 1;
            let asked = Instant::now();
            let told = tokio::time::timeout(PATIENCE, self.ask(payment, &body)).await;
            if let Ok(Ok((status, replayed, body))) = told {
                self.seen.times.push(asked.elapsed());
                match status {
                    StatusCode::CREATED => {
                        self.seen.replays += usize::from(replayed);
                        let answer = parse(&body).ok_or_else(|| format!("{payment}: told {body}"))?;
                        self.seen.answers.push(answer);
                        return Ok(());
                    }
                    StatusCode::CONFLICT => self.seen.in_progress += 1,
                    StatusCode::SERVICE_UNAVAILABLE => self.seen.unavailable += 1,
                    other => return Err(format!("{payment}: told {other}: {body}")),
                }
            } else {
                self.seen.broken += 1;
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(REST) + 1)).await;
        }
    }

    /// One request: its status, whether it is marked as a replay, and its body.
    async fn ask(
        &self,
        payment: &str,
        body: &str,
    ) -> Result<(StatusCode, bool, Value), Box<dyn Error + Send + Sync>> {
        let address = *self.service.borrow();
        let request = Request::post(format!("http://{address}/payments"))
            .header(AUTHORIZATION, "Bearer the-shop")
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", payment)
            .body(Full::from(body.to_owned()))?;
        let response = self.http.request(request).await?;
        let (head, body) = response.into_parts();
        let replayed = head.headers.contains_key("idempotency-replayed");
        let body = body.collect().await?.to_bytes();
        Ok((head.status, replayed, serde_json::from_slice(&body)?))
    }
}

fn parse(body: &Value) -> Option<Answer> {
    Some(Answer {
        payment: body["payment"].as_str()?.to_owned(),
        charge: body["charge"].as_u64()?,
        attempt: body["attempt"].as_u64()?,
    })
}
