//! What hostile and unlucky clients, and careless authors of services, do to the layer.

use crate::faults::Syncs;
use crate::listener::{block_on, serve};
use crate::script::{Answer, Fails, Frames, Gate};
use crate::world::{World, post, request};
use axum::Router;
use axum::body::Body;
use axum::extract::Request as AxumRequest;
use axum::response::Response as AxumResponse;
use axum::routing::{post as post_to, put};
use claimdb::backend::Mem;
use claimdb::http::{ClaimHandle, Disposition, FingerprintBy, Idempotency, Scope};
use claimdb::{Durability, Store};
use http::{Method, Request, StatusCode};
use http_body::Body as _;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_service::Service;

const SEC: Duration = Duration::from_secs(1);

#[test]
fn json_nested_without_end_is_compared_byte_by_byte_and_takes_no_stack() {
    let json = [("idempotency-key", "k"), ("content-type", "application/json")];
    let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
    for fingerprint in [FingerprintBy::json(), FingerprintBy::json_fields([""])] {
        for (depth, told) in [(127, 200), (129, 422)] {
            let mut world = World::with(|layer| layer.fingerprint(fingerprint.clone()));
            let mut ask = |body: &str| world.ask(request(Method::POST, "/orders", &json, body)).status();
            assert_eq!(ask(&nested("[", "]", depth)), 200);
            let again = ask(&nested("[ ", "]", depth));
            assert_eq!(again, told, "P8: {fingerprint:?} at a depth of {depth}");
        }
        // What a stack has no room for ends the process.
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let body = nested(open, close, 20_000);
            let mut world = World::with(|layer| layer.fingerprint(fingerprint.clone()));
            for run in [false, true] {
                let seen = world.ask(request(Method::POST, "/orders", &json, &body));
                assert_eq!((seen.status(), seen.is_replay()), (200, run), "P6 never stuck");
            }
        }
    }
}

#[test]
fn an_index_in_a_json_pointer_is_written_in_one_way() {
    let json = [("idempotency-key", "k"), ("content-type", "application/json")];
    for (pointer, told) in [("/items/1", 422), ("/items/01", 200), ("/items/+1", 200), ("/items/-", 200)] {
        let mut world = World::with(|layer| layer.fingerprint(FingerprintBy::json_fields([pointer])));
        for (items, told) in [("[1,2]", 200), ("[1,3]", told)] {
            let body = format!("{{\"items\":{items}}}");
            let seen = world.ask(request(Method::POST, "/orders", &json, &body));
            assert_eq!(seen.status(), told, "RFC 6901, section 4: {pointer} finds what it does not name");
        }
    }
}

#[test]
fn a_body_in_many_small_pieces_takes_no_more_memory_than_its_bytes() {
    let mut world = World::with(|layer| layer.response_limit(1000));
    world.script.answer(Answer { body: "x".repeat(1001), piecewise: true, ..Answer::default() });
    // A response that turns out too long shows what was kept of it; requests are read in the same way.
    let (service, pool) = (&mut world.service, world.pool.clone());
    let kept = block_on(async {
        poll_fn(|context| Service::<Request<Frames>>::poll_ready(service, context)).await.unwrap();
        let answer = service.call(post("k", ""));
        let mut answer = pin!(answer);
        let response = poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            pool.turn();
            if polled.is_pending() {
                context.waker().wake_by_ref();
            }
            polled
        });
        let mut body = pin!(response.await.unwrap().into_body());
        let mut kept = Vec::new();
        while let Some(Ok(frame)) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
            kept.push(frame.into_data().unwrap().len());
        }
        kept
    });
    assert_eq!(kept.iter().sum::<usize>(), 1001, "the client gets it whole");
    assert!(kept.len() < 10, "ML-01: {} pieces were kept of 1001 bytes", kept.len());
}

#[test]
fn what_an_earlier_attempt_may_have_done_is_not_forgotten_by_one_that_did_nothing() {
    let again = |mut world: World, what: &str| {
        world.script.answer(Answer::default());
        assert_eq!(world.ask(post("k", "")).status(), 200);
        let handle = world.script.last().handle.unwrap();
        assert!(
            handle.attempt() > 1 && handle.previous().is_some(),
            "rule 18: {what}: the attempt before is forgotten"
        );
    };
    let killed = |settings: fn(claimdb::http::Builder) -> claimdb::http::Builder| {
        let mut world = World::with(settings);
        world.script.answer(Answer::held(&Gate::default()));
        world.send(post("k", ""));
        world.restart(settings)
    };
    // One that answers 500 says of itself that nothing was done.
    let mut world = killed(|layer| layer);
    world.script.answer(Answer::status(500));
    assert_eq!(world.ask(post("k", "")).status(), 500);
    again(world, "after a 500");
    // One that does not run, because too many do.
    let mut world = killed(|layer| layer.max_tasks(1));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let other = world.send(post("other", ""));
    assert_eq!(world.ask(post("k", "")).code(), "overloaded");
    assert_eq!(world.store.inspect(claim_of("k")).unwrap().attempt, 1, "one that did not run counts");
    gate.open();
    world.ended(&other);
    again(world, "after one that did not run");
    // One that ends while its successor, which did nothing, has come and gone.
    let mut world = World::with(|layer| layer.lease(SEC).max_hold(SEC));
    let slow = Gate::default();
    world.script.answer(Answer::held(&slow));
    let first = world.send(post("k", ""));
    world.advance(SEC);
    world.script.answer(Answer::status(500));
    assert_eq!(world.ask(post("k", "")).status(), 500);
    slow.open();
    let told = world.ended(&first);
    assert_eq!((told.status(), told.code().as_str()), (409, "lease-lost"));
    assert_eq!(
        world.store.inspect(claim_of("k")).unwrap().attempt,
        2,
        "rule 15: one that ran nothing counts"
    );
    again(world, "after a late one");
    // A handler that was told of it, and knows that nothing was done, says so.
    let mut world = killed(|layer| layer);
    world.script.answer(Answer { disposition: Some(Disposition::Release), ..Answer::status(500) });
    world.ask(post("k", ""));
    world.script.answer(Answer::default());
    world.ask(post("k", ""));
    assert_eq!(world.script.last().handle.unwrap().attempt(), 1);
}

/// The store's key of a POST to `/orders`.
fn claim_of(key: &str) -> claimdb::Key {
    let name = [&b"\x01\x04\0POST\x07\0/orders"[..], &[key.len() as u8, 0], key.as_bytes()].concat();
    claimdb::Key::scoped(b"http\x01ann", &name).unwrap()
}

#[test]
fn an_error_of_the_service_is_no_outcome() {
    // A timeout between layer and handler cuts the handler off wherever it is.
    let mut world = World::new();
    world.script.answer(Answer { fails: Some(Fails::Error), ..Answer::default() });
    assert!(world.ask(post("k", "")).failed);
    world.script.answer(Answer::default());
    assert_eq!(world.ask(post("k", "")).text(), "run 2", "P6 never stuck");
    assert_eq!(
        world.script.last().handle.unwrap().attempt(),
        2,
        "rule 18: it may have acted, and nobody is told"
    );
}

#[test]
fn one_whose_key_is_just_being_taken_is_told_what_became_of_that() {
    let memory = |layer: claimdb::http::Builder| layer.durability(Durability::Result);
    let mut world =
        World::with(|layer| memory(layer).lease(SEC).max_hold(SEC).fingerprint(FingerprintBy::off()));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let call = world.send(post("k", ""));
    world.advance(SEC);
    world.storage.syncs(Syncs::Hang);
    let store = world.store.clone();
    let taker = std::thread::spawn(move || store.claim(claim_of("k")).unwrap().granted());
    world.storage.until_a_sync_hangs();
    gate.open();
    world.pool.turn();
    assert!(!call.seen().ended, "it is not known yet whether another has the key");
    world.storage.syncs(Syncs::Work);
    let successor = taker.join().unwrap();
    world.advance(SEC / 10);
    let seen = world.ended(&call);
    assert!(successor.is_some());
    assert_eq!((seen.status(), seen.code().as_str()), (409, "lease-lost"), "P3 fenced: another has it");
}

#[test]
fn requests_that_are_too_many_write_nothing() {
    let mut world = World::with(|layer| layer.max_tasks(1));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let one = world.send(post("one", ""));
    let granted = world.store.stats().granted;
    for n in 0..100 {
        assert_eq!(world.ask(post(&format!("k{n}"), "")).code(), "overloaded");
    }
    assert_eq!(world.store.stats().granted, granted, "an overload is made worse by syncs");
    assert_eq!(world.ask(post("one", "other")).code(), "key-reused", "P7");
    assert_eq!(world.ask(post("one", "")).code(), "in-progress");
    gate.open();
    assert_eq!(world.ended(&one).status(), 200);
}

#[test]
fn while_too_many_run_a_request_that_would_not_run_is_told_why() {
    let quarantine = |layer: claimdb::http::Builder| layer.quarantine().max_tasks(1);
    let mut world = World::with(quarantine);
    world.script.answer(Answer::held(&Gate::default()));
    world.send(post("k", ""));
    let mut world = world.restart(quarantine);
    world.script.answer(Answer::held(&Gate::default()));
    world.send(post("other", ""));
    let seen = world.ask(post("k", ""));
    let told = (seen.status(), seen.code());
    assert_eq!(told, (409, "interrupted".to_owned()), "rule 18: it runs when others have ended, or does not");
}

#[test]
fn a_store_that_is_closed_while_handlers_run_leaves_no_client_waiting() {
    for (answer, told) in [
        (Answer::held(&Gate::default()), (503, "outcome-unknown")),
        (Answer { stall: Some(Gate::default()), ..Answer::default() }, (503, "outcome-unknown")),
    ] {
        let mut world = World::new();
        world.script.answer(answer.clone());
        let call = world.send(post("k", ""));
        assert!(!call.seen().ended);
        world.store.close().unwrap();
        if let Some(gate) = &answer.hold {
            gate.open();
        }
        let seen = world.ended(&call);
        assert_eq!((seen.status(), seen.code().as_str()), told, "P6 never stuck: {answer:?}");
    }
    // And one that begins to stream when it is closed already.
    let mut world = World::new();
    let gate = Gate::default();
    world.script.answer(Answer { stall: Some(Gate::default()), ..Answer::held(&gate) });
    let call = world.send(post("k", ""));
    world.store.close().unwrap();
    gate.open();
    assert_eq!(world.ended(&call).code(), "outcome-unknown", "P6 never stuck");
}

#[test]
fn a_handler_that_has_no_claim_is_told_why() {
    async fn needs(claim: ClaimHandle) -> String {
        format!("attempt {}", claim.attempt())
    }
    block_on(async {
        let store = Store::builder(Mem::new()).open().unwrap();
        let layer = Idempotency::tokio(&store, Scope::global());
        let layer = layer.fail_open().problem_types("https://example.com/").build().unwrap();
        let mut routes = Router::new().route("/", post_to(needs)).route("/put", put(needs)).layer(layer);
        let mut ask = async |request: http::request::Builder| {
            let response = Service::call(&mut routes, request.body(Body::empty()).unwrap()).await.unwrap();
            let (head, body) = response.into_parts();
            let (body, _) = crate::script::collect(body).await;
            (head.status.as_u16(), head.headers, String::from_utf8_lossy(&body).into_owned())
        };
        let keyless = ask(Request::post("/")).await;
        assert!(keyless.2.contains(r#""type":"https://example.com/key-missing""#), "HS-05: {keyless:?}");
        let call = ask(Request::post("/").header("content-type", "application/grpc")).await;
        assert_eq!((call.0, call.1["grpc-status"].as_bytes()), (200, &b"3"[..]), "HS-05: {call:?}");
        let other = ask(Request::put("/put").header("idempotency-key", "k")).await;
        assert!(other.0 == 500 && other.2.contains("PUT"), "the key is there: {other:?}");
        store.close().unwrap();
        let down = ask(Request::post("/").header("idempotency-key", "k")).await;
        assert!(down.0 == 503 && down.2.contains("store-unavailable"), "HS-02: the key is there: {down:?}");
    });
}

#[test]
fn an_upgrade_passes_through_over_a_listener_with_a_key_and_without() {
    async fn upgrade(mut request: AxumRequest) -> AxumResponse {
        let upgrade = hyper::upgrade::on(&mut request);
        drop(tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut said = [0; 4];
            stream.read_exact(&mut said).await.unwrap();
            said.reverse();
            stream.write_all(&said).await.unwrap();
        }));
        let response = AxumResponse::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let mut response = response.header("connection", "upgrade").header("upgrade", "echo");
        if request.headers().contains_key("x-store") {
            response = response.extension(Disposition::Store);
        }
        response.body(Body::empty()).unwrap()
    }
    block_on(async {
        let store = Store::builder(Mem::new()).open().unwrap();
        let layer = Idempotency::tokio(&store, Scope::global()).build().unwrap();
        let address = serve(Router::new().route("/", post_to(upgrade).get(upgrade)).layer(layer)).await;
        let ask = async |head: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = format!("{head}host: here\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut told = Vec::new();
            while !told.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return "none".to_owned() };
                told.push(byte);
            }
            let status = String::from_utf8_lossy(&told[9..12]).into_owned();
            if status == "101" {
                stream.write_all(b"abcd").await.unwrap();
                let mut heard = [0; 4];
                stream
                    .read_exact(&mut heard)
                    .await
                    .expect("RP-10: what was switched to does not come through");
                assert_eq!(&heard, b"dcba");
            }
            status
        };
        for head in ["GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nidempotency-key: k\r\n"]
        {
            assert_eq!((ask(head).await, ask(head).await), ("101".to_owned(), "101".to_owned()), "{head}");
        }
        // A connection cannot be replayed, whatever the handler asks for.
        let stored = "POST / HTTP/1.1\r\nidempotency-key: s\r\nx-store: 1\r\n";
        assert_eq!((ask(stored).await, ask(stored).await), ("101".to_owned(), "409".to_owned()), "RP-10");
    });
}
