//! Which request is which: keys, whom they belong to, and what they are for.

use crate::faults::{Fault, Faulty};
use crate::script::{Answer, Frames, Gate};
use crate::world::{Seen, World, owner, post, request};
use claimdb::http::{FingerprintBy, ProblemCode, RequestKeys, Scope};
use claimdb::{Durability, ManualClock};
use http::{Method, Request};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use tower_layer::Layer;
use tower_service::Service;

fn of(who: &str, key: &str, body: &str) -> Request<Frames> {
    request(Method::POST, "/orders", &[("idempotency-key", key), ("x-owner", who)], body)
}

#[test]
fn another_callers_key_shows_neither_bytes_nor_status_nor_that_it_is_there() {
    let mut world = World::new();
    world.script.answer(Answer { body: "ann's secret".to_owned(), ..Answer::status(418) });
    assert_eq!(world.ask(of("ann", "done", "body")).status(), 418);
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let flying = world.send(of("ann", "flying", "body"));
    world.script.answer(Answer { body: "bob's own".to_owned(), ..Answer::default() });
    for key in ["done", "flying"] {
        for body in ["body", "another"] {
            // A key that nobody has used is told the same.
            let told = [key, &format!("unused-{key}")].map(|key| {
                let seen = world.ask(of(&format!("bob {body}"), key, body));
                format!("{seen:?}")
            });
            assert_eq!(told[0], told[1], "HS-01: bob is told of ann's {key}");
        }
        let seen = world.ask(of("bob", key, "body"));
        assert_eq!((seen.status(), seen.text().as_str()), (200, "bob's own"), "HS-01, FP-10: {seen:?}");
    }
    // And ann is not blocked by what bob took first.
    world.script.answer(Answer::held(&Gate::default()));
    world.send(of("bob", "first", "body"));
    world.script.answer(Answer::default());
    assert_eq!(world.ask(of("ann", "first", "body")).status(), 200, "HS-01: bob blocked ann");
    gate.open();
    assert_eq!(world.ended(&flying).status(), 200);
}

#[test]
fn a_layer_has_no_scope_that_was_not_chosen() {
    // `Idempotency::builder` takes one; all callers being one has to be spelt out.
    let world = |scope| World::over(&ManualClock::new(), &Faulty::new(), |store| store, scope, |layer| layer);
    let mut global = world(Scope::global());
    global.ask(of("ann", "k", ""));
    assert!(global.ask(of("bob", "k", "")).is_replay(), "CF-01: that is what global means");
    let mut named = world(owner());
    named.ask(of("ann", "k", ""));
    assert!(!named.ask(of("bob", "k", "")).is_replay(), "CF-01");
    // An owner with an empty name is not everybody.
    let shared = (ManualClock::new(), Faulty::new());
    let empty = Scope::by(|_| Some(Vec::new()));
    World::over(&shared.0, &shared.1, |store| store, empty, |layer| layer).ask(post("k", ""));
    let mut global = World::over(&shared.0, &shared.1, |store| store, Scope::global(), |layer| layer);
    assert!(!global.ask(post("k", "")).is_replay(), "CF-01: a caller without a name is all callers");
}

#[test]
fn who_asks_can_be_more_than_one_name() {
    let scope = Scope::by(|parts| {
        let part = |name| parts.headers.get(name).map(|value| value.as_bytes().to_vec());
        let (user, team) = (part("x-owner")?, part("x-team")?);
        let mut both = u32::try_from(user.len()).ok()?.to_le_bytes().to_vec();
        both.extend([user, team].concat());
        Some(both)
    });
    let mut world = World::over(&ManualClock::new(), &Faulty::new(), |store| store, scope, |layer| layer);
    let mut ask = |user: &str, team: &str| {
        let headers = [("idempotency-key", "k"), ("x-owner", user), ("x-team", team)];
        world.ask(request(Method::POST, "/orders", &headers, "body"))
    };
    assert_eq!(ask("ann", "red").text(), "run 1");
    assert_eq!(ask("ann", "blue").text(), "run 2", "FP-10: the answer of another organisation");
    assert_eq!(ask("annr", "ed").text(), "run 3", "KE-01");
    assert!(ask("ann", "red").is_replay());
}

#[test]
fn callers_without_a_name_are_refused_unless_they_were_given_one() {
    let mut world = World::with(|layer| layer.min_key_length(16));
    let seen = world.ask(of("", "0123456789abcdef", ""));
    assert_eq!((seen.status(), seen.code().as_str()), (403, "owner-unknown"), "HS-10");
    assert_eq!(
        world.ask(of("ann", "order-1", "")).code(),
        "key-invalid",
        "HS-10: a key that two can think of"
    );
    assert_eq!(world.script.runs(), 0, "HS-10");
}

#[test]
fn no_two_requests_that_differ_in_owner_method_path_or_key_are_one() {
    let mut world = World::with(|layer| layer.fingerprint(FingerprintBy::off()));
    let mut runs = 0;
    let words = ["a", "b", "ab", "ba", "a/b", "aab"];
    for owner in words {
        for path in words {
            for key in words {
                for method in [Method::POST, Method::PATCH] {
                    let headers = [("idempotency-key", key), ("x-owner", owner)];
                    let path = format!("/{path}");
                    let seen = world.ask(request(method, &path, &headers, ""));
                    runs += 1;
                    assert_eq!(world.script.runs(), runs, "KE-01, FP-07: {owner} {path} {key}: {seen:?}");
                }
            }
        }
    }
}

#[test]
fn a_key_belongs_to_one_path_and_one_method() {
    let mut world = World::new();
    let mut ask =
        |method, path: &str| world.ask(request(method, path, &[("idempotency-key", "k")], "body")).text();
    let told = [
        ask(Method::POST, "/a"),
        ask(Method::POST, "/b"),
        ask(Method::POST, "/a/1"),
        ask(Method::POST, "/a/2"),
        ask(Method::PATCH, "/a"),
        ask(Method::POST, "/a"),
    ];
    assert_eq!(told, ["run 1", "run 2", "run 3", "run 4", "run 5", "run 1"], "FP-07");
}

#[test]
fn every_path_to_a_stored_response_compares_what_it_was_for() {
    let secret = "of the first";
    let assert_refused = |seen: &Seen, state: &str| {
        assert_eq!(
            (seen.status(), seen.code().as_str()),
            (422, "key-reused"),
            "P7: FP-01: {state}: {seen:?}"
        );
        assert!(!format!("{seen:?} {}", seen.text()).contains(secret), "FP-08: {state}: it shows the first");
        assert_eq!(seen.header("idempotency-replayed"), None);
    };
    for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
        let settings = |layer: claimdb::http::Builder| layer.durability(durability);
        let mut world = World::with(settings);
        let gate = Gate::default();
        world.script.answer(Answer {
            body: secret.to_owned(),
            hold: Some(gate.clone()),
            ..Answer::default()
        });
        let first = world.send(post("k", secret));
        assert_refused(&world.ask(post("k", "other")), "in flight");
        gate.open();
        assert_eq!(world.ended(&first).text(), secret);
        assert_refused(&world.ask(post("k", "other")), "stored");
        assert!(world.ask(post("k", secret)).is_replay(), "P7: the record was changed");
        if durability == Durability::Full {
            world.script.answer(Answer::held(&Gate::default()));
            world.send(post("lost", secret));
            let mut world = world.restart(settings);
            assert_refused(&world.ask(post("k", "other")), "after a restart");
            assert_refused(&world.ask(post("lost", "other")), "its handler is gone");
        }
    }
}

#[test]
fn equal_json_is_another_request_unless_it_is_compared_by_what_it_means() {
    let ask = |world: &mut World, body: &str| {
        let headers = [("idempotency-key", "k"), ("content-type", "application/json; charset=utf-8")];
        world.ask(request(Method::POST, "/orders", &headers, body)).status()
    };
    let (one, same) = (r#"{"a": 1, "b": [true, null]}"#, r#"{"b":[true,null],"a":1.0}"#);
    let mut whole = World::new();
    assert_eq!(
        (ask(&mut whole, one), ask(&mut whole, same)),
        (200, 422),
        "FP-05: the default is byte by byte"
    );
    let mut json = World::with(|layer| layer.fingerprint(FingerprintBy::json()));
    assert_eq!((ask(&mut json, one), ask(&mut json, same)), (200, 200), "FP-05");
    for other in [
        r#"{"a": 1}"#,
        r#"{"a": 1, "b": [null, true]}"#,
        r#"{"a": "1", "b": [true, null]}"#,
        r#"{"a": 1, "a": 1, "b": [true, null]}"#,
        r#"{"a": 1.0000000000000000001, "b": [true, null]}"#,
        r#"{"a": -1, "b": [true, null]}"#,
        r#"{"a": 1, "b": [true, null]"#,
        r#"{"a": 1e99999999999999999999, "b": [true, null]}"#,
    ] {
        assert_eq!(ask(&mut json, other), 422, "P7: FP-05: {other}");
    }
    assert_eq!(json.script.runs(), 1);
}

#[test]
fn while_the_store_is_down_nothing_runs_unprotected_unless_that_was_asked_for() {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let mut world = World::new();
        world.storage.arm(0, 1_000_000, fault);
        for _ in 0..3 {
            let seen = world.ask(post("k", ""));
            assert_eq!((seen.status(), seen.code().as_str()), (503, "store-unavailable"), "P9: HS-02");
            assert_eq!(seen.header("retry-after").as_deref(), Some("1"), "HS-02");
        }
        assert_eq!(world.script.runs(), 0, "P9 fail closed: HS-02: it ran unprotected");
        let get = request(Method::GET, "/orders", &[], "");
        assert_eq!(world.ask(get).status(), 200, "HS-02: what needs no key goes on");

        let mut open = World::with(|layer| layer.fail_open());
        open.storage.arm(0, 1_000_000, fault);
        assert_eq!((open.ask(post("k", "")).status(), open.ask(post("k", "")).status()), (200, 200), "HS-02");
        assert_eq!((open.script.runs(), open.layer.stats().unprotected), (2, 2), "HS-02: nobody notices");
    }
    // What is damaged is not down: that it cannot be read is no reason to run, whatever was asked for.
    let mut open = World::with(|layer| layer.fail_open());
    open.storage.arm(0, 1_000_000, Fault::Damaged);
    let seen = open.ask(post("k", ""));
    assert_eq!(
        (seen.status(), seen.code().as_str()),
        (503, "store-unavailable"),
        "P9 fail closed: a damaged page"
    );
    assert_eq!(open.script.runs(), 0, "P9 fail closed: over a damaged page it ran unprotected");
    // A store that is poisoned or closed is down as well.
    let mut world = World::new();
    world.store.close().unwrap();
    assert_eq!(world.ask(post("k", "")).code(), "store-unavailable", "P9: HS-02");
    // A record that cannot be read is no reason to run, whatever was asked for.
    let storage = Faulty::new();
    let open =
        || World::over(&ManualClock::new(), &storage, |store| store, owner(), |layer| layer.fail_open());
    let mut world = open();
    world.ask(post("k", ""));
    let (key, _) = storage.stored(&[1]).remove(0);
    drop(world);
    storage.put(&key, Some(b"no record"));
    let mut world = open();
    assert_eq!((world.ask(post("k", "")).status(), world.script.runs()), (503, 0), "P9 fail closed: damaged");
}

#[test]
fn a_request_whose_key_was_stripped_on_the_way_is_refused_where_one_is_required() {
    let mut world = World::with(|layer| layer.required());
    let seen = world.ask(request(Method::POST, "/orders", &[], "body"));
    assert_eq!((seen.status(), seen.code().as_str()), (400, "key-missing"), "HS-07");
    assert_eq!(world.script.runs(), 0, "HS-07: it ran unprotected");
}

#[test]
fn a_clients_retries_have_one_key_and_the_callers_own_stays() {
    /// Sends each request three times, as a client that retries does.
    #[derive(Clone)]
    struct Retries<S>(S);
    impl<S> Service<Request<Frames>> for Retries<S>
    where
        S: Service<Request<Frames>, Response = http::Response<Frames>> + Clone + Send + 'static,
        S::Future: Send,
    {
        type Response = S::Response;
        type Error = S::Error;
        type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;
        fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
            self.0.poll_ready(context)
        }
        fn call(&mut self, request: Request<Frames>) -> Self::Future {
            let mut service = self.0.clone();
            let (parts, _) = request.into_parts();
            Box::pin(async move {
                for _ in 0..2 {
                    poll_fn(|context| service.poll_ready(context)).await?;
                    service.call(Request::from_parts(parts.clone(), Frames::default())).await?;
                }
                poll_fn(|context| service.poll_ready(context)).await?;
                service.call(Request::from_parts(parts, Frames::default())).await
            })
        }
    }
    /// Remembers the keys that it was sent.
    #[derive(Clone, Default)]
    struct Server(std::sync::Arc<std::sync::Mutex<Vec<Option<String>>>>);
    impl Service<Request<Frames>> for Server {
        type Response = http::Response<Frames>;
        type Error = crate::script::Broken;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: Request<Frames>) -> Self::Future {
            let key = request.headers().get("idempotency-key");
            self.0.lock().unwrap().push(key.map(|key| key.to_str().unwrap().to_owned()));
            std::future::ready(Ok(http::Response::new(Frames::default())))
        }
    }
    let (server, made) = (Server::default(), AtomicU32::new(0));
    let keys = RequestKeys::new(move || made.fetch_add(1, Ordering::SeqCst).to_string().parse().unwrap());
    let client = keys.layer(Retries(server.clone()));
    let bare = || request(Method::POST, "/orders", &[], "");
    for send in [bare(), bare(), post("mine", ""), request(Method::GET, "/orders", &[], "")] {
        let mut client = client.clone();
        let mut answer = Box::pin(async move {
            poll_fn(|context| client.poll_ready(context)).await?;
            client.call(send).await
        });
        let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(_))), "nothing here is waited for");
    }
    let sent: Vec<_> = server.0.lock().unwrap().iter().map(|key| key.clone().unwrap_or_default()).collect();
    let wanted = ["0", "0", "0", "1", "1", "1", "mine", "mine", "mine", "", "", ""];
    assert_eq!(sent, wanted, "HS-08: each call has one key, and the caller's wins");
}

#[test]
fn a_handler_gets_its_body_as_it_was_sent_or_nothing_is_claimed() {
    let mut world = World::with(|layer| layer.request_limit(5));
    let mut sent = post("k", "");
    let frames = ["a", "bc", "\u{0}d"].map(|data| Ok(http_body::Frame::data(data.into())));
    *sent.body_mut() = Frames { frames: frames.into(), unknown_length: true, ..Frames::default() };
    assert_eq!(world.ask(sent).status(), 200);
    assert_eq!(world.script.last().body, b"abc\0d", "HS-11");
    // Of known length and of unknown.
    for unknown_length in [false, true] {
        let mut sent = post("long", "123456");
        sent.body_mut().unknown_length = unknown_length;
        assert_eq!(world.ask(sent).code(), "body-too-large", "HS-11");
    }
    // One that breaks off, and one whose client goes away.
    let mut sent = post("broken", "12");
    sent.body_mut().frames.push_back(Err(crate::script::Broken));
    assert_eq!(world.ask(sent).code(), "body-unreadable", "HS-11");
    let mut sent = post("gone", "12");
    sent.body_mut().then = Some(Gate::default());
    let call = world.send(sent);
    world.hang_up(&call);
    assert_eq!(world.script.runs(), 1, "HS-11");
    assert_eq!(world.store.stats().granted, 1, "HS-11: a claim was made before the body was there");
}

#[test]
fn each_conflict_has_a_code_of_its_own_that_the_documentation_lists() {
    let document = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/http.md");
    let document = std::fs::read_to_string(document).unwrap();
    let codes: BTreeSet<_> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(codes.len(), ProblemCode::ALL.len(), "HS-05: two refusals have one code");
    for code in ProblemCode::ALL {
        let row = format!("| `{code}` | {} | {} |", code.status().as_u16(), code.grpc_status());
        assert!(document.contains(&row), "HS-05: docs/http.md has no row {row}");
    }
    let listed = document.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 6);
    assert_eq!(listed.count(), codes.len(), "HS-05: docs/http.md lists others");
}

#[test]
fn no_key_shows_in_messages_problems_or_debug() {
    let secret = "jane.doe-4711";
    let mut world = World::new();
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let held = world.send(of("owner-4711", secret, secret));
    let handle = world.script.last().handle.unwrap();
    let mut shown = format!("{:?} {:?} {handle:?} {:?}", world.layer, world.service, world.layer.stats());
    let mut add = |seen: Seen| shown.push_str(&format!("{:?} {}", seen.head, seen.text()));
    add(world.ask(of("owner-4711", secret, secret)));
    add(world.ask(of("owner-4711", secret, "other")));
    add(world.ask(of("owner-4711", &format!("{secret},"), "")));
    world.storage.arm(0, 1000, Fault::FailBefore);
    add(world.ask(of("owner-4711", secret, secret)));
    gate.open();
    add(world.ended(&held));
    world.storage.disarm();
    shown.push_str(&format!("{:?}", handle.checkpoint("late").unwrap_err()));
    assert!(shown.len() > 1000 && shown.contains("in-progress") && shown.contains("outcome-unknown"));
    assert!(!shown.contains("4711"), "OB-05: {shown}");
}
