//! The layer in axum, over a real listener on the loopback interface: with a client that speaks HTTP/1.1 by hand, and
//! with one of HTTP/2.

use crate::script::{Answer, Broken, Frames, Gate, Handler, Script, collect};
use crate::vectors::{answer, cases, check, request_of, settings};
use crate::world::{Seen, owner};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use claimdb::Store;
use claimdb::backend::Mem;
use claimdb::http::{ClaimHandle, Disposition, Idempotency, Scope};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_layer::Layer;
use tower_service::Service;

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn store() -> Store {
    Store::builder(Mem::new()).open().unwrap()
}

pub async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(tokio::spawn(async move { axum::serve(listener, router).await }));
    address
}

/// The bytes of a request whose body is `body`.
fn bytes_of(request: &Request<impl Sized>, body: &[u8]) -> Vec<u8> {
    let mut sent =
        format!("{} {} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n", request.method(), request.uri());
    sent.push_str(&format!("content-length: {}\r\n", body.len()));
    let mut sent = sent.into_bytes();
    for (name, value) in request.headers() {
        sent.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    sent.extend([b"\r\n", body].concat());
    sent
}

async fn send(address: SocketAddr, sent: &[u8]) -> Seen {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap();
    let end = got.windows(4).position(|window| window == b"\r\n\r\n").expect("a response has a head");
    let head = String::from_utf8_lossy(&got[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse::<StatusCode>().unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.map(|line| line.split_once(':').unwrap()) {
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value.trim()).unwrap());
    }
    let chunked = headers.remove("transfer-encoding").is_some();
    let body = if chunked { unchunk(&got[end + 4..]) } else { got[end + 4..].to_vec() };
    Seen { head: Some((status, headers)), body, ended: true, ..Seen::default() }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
}

/// A client that speaks HTTP/2 from the first byte on.
pub fn http2<B>() -> Client<HttpConnector, B>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

async fn send_http2(
    client: &Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    mut sent: Request<Full<Bytes>>,
) -> Seen {
    *sent.uri_mut() = format!("http://{address}{}", sent.uri()).parse().unwrap();
    let (parts, body) = client.request(sent).await.unwrap().into_parts();
    assert_eq!(parts.version, http::Version::HTTP_2);
    let (body, trailers) = collect(body).await;
    Seen { head: Some((parts.status, parts.headers)), body, trailers, ended: true, ..Seen::default() }
}

#[derive(Clone, Copy, PartialEq)]
enum Speaks {
    Http1,
    Http2,
}

/// Whether a case needs nothing that a socket cannot show: no clock, no pause, no broken handler; over HTTP/1.1 no
/// trailers, and over HTTP/2 no headers of the connection, which it does not have.
fn plays(case: &Value, speaks: Speaks) -> bool {
    let text = case.to_string();
    let steps = case["steps"].as_array().unwrap();
    let only_sends = steps.iter().all(|step| step["send"].is_object() && step["as"].is_null());
    let mut needs = vec!["\"fails\":", "\"retention_ms\":", "\"lease_ms\":", "\"show_times\":"];
    needs.push(match speaks {
        Speaks::Http1 => "\"trailers\":",
        Speaks::Http2 => "\"keep-alive\"",
    });
    only_sends && !needs.iter().any(|need| text.contains(need))
}

/// How many cases were played.
fn play_all(speaks: Speaks) -> usize {
    let cases: Vec<_> = cases().into_iter().filter(|(_, case)| plays(case, speaks)).collect();
    for (name, case) in &cases {
        println!("{name}"); // shown if it fails
        block_on(async {
            let script = Script::default();
            let layer = settings(Idempotency::tokio(&store(), owner()), case).build().unwrap();
            let service: Handler<Infallible> = Handler::new(&script);
            let address = serve(Router::new().fallback_service(service).layer(layer)).await;
            script.answer(answer(&case["handler"], &Gate::default()));
            for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
                if !step["handler"].is_null() {
                    script.answer(answer(&step["handler"], &Gate::default()));
                }
                let (parts, body) = request_of(&step["send"]).into_parts();
                let (body, _) = collect(body).await;
                let seen = match speaks {
                    Speaks::Http1 => send(address, &bytes_of(&Request::from_parts(parts, ()), &body)).await,
                    Speaks::Http2 => {
                        let sent = Request::from_parts(parts, Full::from(body));
                        send_http2(&http2(), address, sent).await
                    }
                };
                check(name, number, &step["expect"], &seen, script.runs());
            }
        });
    }
    assert!(cases.len() >= crate::vectors::AT_LEAST, "only {} cases", cases.len());
    cases.len()
}

#[test]
fn the_cases_are_told_the_same_over_a_listener() {
    println!("vectors over a listener: {}", play_all(Speaks::Http1));
}

#[test]
fn the_cases_are_told_the_same_over_http2_with_their_trailers() {
    println!("vectors over HTTP/2: {}", play_all(Speaks::Http2));
}

fn raw(path: &str, key: Option<&str>) -> Vec<u8> {
    let mut request = Request::post(path);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    bytes_of(&request.body(()).unwrap(), b"body")
}

#[test]
fn a_handler_asks_for_its_claim() {
    async fn needs(claim: ClaimHandle) -> String {
        format!("attempt {}", claim.attempt())
    }
    async fn takes(claim: Option<ClaimHandle>) -> String {
        format!("{}", claim.is_some())
    }
    async fn says(claim: ClaimHandle) -> (StatusCode, Disposition, String) {
        (StatusCode::BAD_GATEWAY, Disposition::Fail, format!("{}", claim.token()))
    }
    block_on(async {
        let layer = Idempotency::tokio(&store(), Scope::global()).build().unwrap();
        let routes = Router::new().route("/needs", post(needs)).route("/takes", post(takes));
        let routes = routes.route("/says", post(says)).layer(layer).route("/bare", post(needs));
        let address = serve(routes).await;
        assert_eq!(send(address, &raw("/needs", Some("k"))).await.text(), "attempt 1");
        assert!(send(address, &raw("/needs", Some("k"))).await.is_replay());
        let missing = send(address, &raw("/needs", None)).await;
        assert_eq!((missing.status(), missing.code().as_str()), (400, "key-missing"));
        assert_eq!(send(address, &raw("/takes", Some("k"))).await.text(), "true");
        assert_eq!(send(address, &raw("/takes", None)).await.text(), "false");
        assert_eq!(send(address, &raw("/bare", Some("k"))).await.status(), 500, "no layer is around it");
        let first = send(address, &raw("/says", Some("k"))).await;
        let again = send(address, &raw("/says", Some("k"))).await;
        assert_eq!((again.status(), again.text(), again.is_replay()), (502, first.text(), true));
    });
}

#[test]
fn one_key_under_two_nested_routers_is_two_keys() {
    block_on(async {
        let layer = Idempotency::tokio(&store(), Scope::global()).build().unwrap();
        let script = Script::default();
        let service: Handler<Infallible> = Handler::new(&script);
        let inner = Router::new().route_service("/pay", service).layer(layer);
        let address = serve(Router::new().nest("/v1", inner.clone()).nest("/v2", inner)).await;
        assert_eq!(send(address, &raw("/v1/pay", Some("k"))).await.text(), "run 1");
        assert_eq!(
            send(address, &raw("/v2/pay", Some("k"))).await.text(),
            "run 2",
            "FP-07: nesting hides a path"
        );
        assert!(send(address, &raw("/v1/pay", Some("k"))).await.is_replay());
    });
}

#[test]
fn a_client_that_closes_its_connection_stops_nothing() {
    block_on(async {
        let layer = Idempotency::tokio(&store(), Scope::global()).build().unwrap();
        let (script, gate) = (Script::default(), Gate::default());
        script.answer(Answer::held(&gate));
        let service: Handler<Infallible> = Handler::new(&script);
        let address = serve(Router::new().fallback_service(service).layer(layer.clone())).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&raw("/pay", Some("k"))).await.unwrap();
        while script.runs() == 0 {
            tokio::task::yield_now().await;
        }
        drop(stream);
        assert_eq!(send(address, &raw("/pay", Some("k"))).await.code(), "in-progress");
        gate.open();
        layer.idle().await;
        let again = send(address, &raw("/pay", Some("k"))).await;
        assert_eq!((again.text().as_str(), again.is_replay()), ("run 1", true), "CN-01: it was not recorded");
        assert_eq!(script.runs(), 1, "P8: CN-01: it ran again");
    });
}

#[test]
fn of_many_threads_that_send_one_request_one_runs_it() {
    const KEYS: usize = 200;
    let store = store();
    let layer = Idempotency::tokio(&store, Scope::global()).build().unwrap();
    let script = Script::default();
    let service = layer.layer(Handler::<Broken>::new(&script));
    let ask = async |key: usize| {
        let mut service = service.clone();
        poll_fn(|context| Service::<Request<Frames>>::poll_ready(&mut service, context)).await.unwrap();
        service.call(crate::world::post(&format!("k{key}"), "body")).await.unwrap().status().as_u16()
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                block_on(async {
                    for key in 0..KEYS {
                        let status = ask(key).await;
                        assert!(status == 200 || status == 409, "CR-14: a loser was told {status}");
                    }
                    layer.idle().await;
                });
            });
        }
    });
    assert_eq!(script.runs(), KEYS, "P1: CR-01: a key ran twice, or not at all");
}
