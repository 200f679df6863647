//! What is stored of a response, and what is given again.

use crate::faults::{FAULTS, Fault, Faulty};
use crate::script::{Answer, Fails, Gate};
use crate::world::{World, owner, post};
use claimdb::ManualClock;
use claimdb::http::{Disposition, FingerprintBy};
use std::path::Path;
use std::time::Duration;

fn with(headers: &[(&str, &str)]) -> Answer {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Answer { headers, ..Answer::status(201) }
}

#[test]
fn a_client_that_saw_a_success_is_never_run_again_whatever_fails_and_when() {
    let mut seen_success = 0;
    for fault in FAULTS {
        for call in 0.. {
            let (clock, storage) = (ManualClock::new(), Faulty::new());
            let mut world = World::over(&clock, &storage, |store| store, owner(), |layer| layer);
            storage.arm(call, 1, fault);
            let first = world.ask(post("k", "body"));
            let fired = storage.disarm();
            let runs = world.script.runs();
            storage.crash();
            drop(world);
            let mut world = World::over(&clock, &storage, |store| store, owner(), |layer| layer);
            let again = world.ask(post("k", "body"));
            if first.head.is_some() && first.status() == 200 {
                seen_success += 1;
                assert!(
                    again.is_replay(),
                    "P4 durable before told: RP-01: {fault:?} at call {call}: {again:?}"
                );
                assert_eq!((world.script.runs(), again.text().as_str()), (0, "run 1"), "RP-01");
            } else if first.head.is_some() {
                assert_eq!(first.status(), 503, "HS-02: {fault:?} at call {call}: {first:?}");
                // What is not told as done is done at most as the next attempt, or was stored after all.
                let attempt = world.script.runs() == 0 || world.script.last().handle.unwrap().attempt() > 1;
                assert!(runs == 0 || attempt, "P9: RP-02: {fault:?} at call {call}: silently free");
            }
            if fired.is_empty() {
                break;
            }
        }
    }
    assert!(seen_success >= 4, "only {seen_success} successes were looked at");
}

#[test]
fn a_response_that_could_not_be_recorded_is_no_success_and_its_key_is_not_silently_free() {
    for quarantine in [false, true] {
        let mut world = World::with(|layer| if quarantine { layer.quarantine() } else { layer });
        let gate = Gate::default();
        world.script.answer(Answer::held(&gate));
        let call = world.send(post("k", ""));
        world.storage.arm(0, 1000, Fault::FailBefore);
        gate.open();
        let seen = world.ended(&call);
        assert_eq!((seen.status(), seen.code().as_str()), (503, "outcome-unknown"), "RP-02: {seen:?}");
        assert!(!seen.text().contains("run 1"));
        world.storage.disarm();
        world.script.answer(Answer::default());
        let again = world.ask(post("k", ""));
        if quarantine {
            assert_eq!(
                (again.code().as_str(), world.script.runs()),
                ("interrupted", 1),
                "RP-02: it ran again"
            );
        } else {
            assert_eq!(again.text(), "run 2");
            let handle = world.script.last().handle.unwrap();
            assert!(
                handle.attempt() == 2 && handle.previous().is_some(),
                "RP-02: the next attempt is not told"
            );
        }
        assert_eq!(world.layer.stats().unrecorded, 1);
    }
}

#[test]
fn one_error_of_the_store_is_tried_again() {
    let mut world = World::new();
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let call = world.send(post("k", ""));
    world.storage.arm(0, 2, Fault::FailBefore);
    gate.open();
    assert_eq!(world.ended(&call).status(), 200, "RP-02: a passing error lost a response");
    assert!(world.ask(post("k", "")).is_replay());
}

#[test]
fn a_5xx_frees_the_key_unless_the_handler_or_the_layer_says_otherwise() {
    let failed = Answer::status(500);
    // By default it says that nothing was done, and the next attempt is a first one.
    let mut world = World::new();
    world.script.answer(failed.clone());
    for run in 1..=2 {
        assert_eq!(world.ask(post("k", "")).status(), 500);
        assert_eq!((world.script.runs(), world.script.last().handle.unwrap().attempt()), (run, 1), "RP-03");
    }
    // A handler that has noted an effect is not forgotten.
    world.script.answer(Answer { checkpoint: Some("charged".to_owned()), ..failed.clone() });
    world.ask(post("noted", ""));
    world.script.answer(failed.clone());
    world.ask(post("noted", ""));
    let next = world.script.last().handle.unwrap();
    assert_eq!(next.attempt(), 2, "RP-03: an effect that was noted is forgotten");
    assert_eq!(next.last_checkpoint(), Some(&b"charged"[..]), "RP-03: an effect that was noted is forgotten");
    // A handler that knows that it has acted says so.
    world.script.answer(Answer { disposition: Some(Disposition::Store), ..failed.clone() });
    world.ask(post("said", ""));
    assert!(world.ask(post("said", "")).is_replay(), "RP-03");
    // And so can the layer.
    let mut world = World::with(|layer| layer.store_server_errors());
    world.script.answer(failed);
    world.ask(post("k", ""));
    assert!(world.ask(post("k", "")).is_replay() && world.script.runs() == 1, "RP-03");
    // An error of the service has no response to store.
    world.script.answer(Answer { fails: Some(Fails::Error), ..Answer::default() });
    assert!(world.ask(post("e", "")).failed && world.ask(post("e", "")).failed);
    assert_eq!(world.script.runs(), 3, "RP-03");
}

#[test]
fn a_replay_is_what_the_first_client_got_without_what_was_its_own() {
    let mut world = World::new();
    world.script.answer(with(&[
        ("location", "/orders/1"),
        ("etag", "\"1\""),
        ("link", "</a>; rel=next"),
        ("content-type", "application/json"),
        ("content-language", "en"),
        ("x-twice", "a"),
        ("x-twice", "b"),
        ("set-cookie", "session=secret"),
        ("www-authenticate", "Bearer"),
        ("date", "now"),
        ("x-ratelimit-remaining", "1"),
        ("x-request-id", "1"),
        ("connection", "x-hop, close"),
        ("x-hop", "1"),
        ("transfer-encoding", "chunked"),
    ]));
    let first = world.ask(post("k", ""));
    assert_eq!(first.header("set-cookie").as_deref(), Some("session=secret"), "the first client gets all");
    let again = world.ask(post("k", ""));
    assert!(again.is_replay(), "RP-06: a replay looks like a fresh response");
    assert_eq!((again.status(), &again.body), (201, &first.body), "RP-07");
    let (mut wanted, found) = (first.head.unwrap().1, again.head.unwrap().1);
    for name in [
        "set-cookie",
        "www-authenticate",
        "date",
        "x-ratelimit-remaining",
        "x-request-id",
        "connection",
        "x-hop",
        "transfer-encoding",
    ] {
        assert!(!found.contains_key(name), "RP-09: {name} was replayed");
        wanted.remove(name);
    }
    wanted.insert("idempotency-replayed", "true".parse().unwrap());
    assert_eq!(found, wanted, "RP-07, RP-08: headers are missing or were added");
    let stored = world.storage.stored(&[1]);
    let shown = stored.iter().any(|(_, value)| value.windows(6).any(|window| window == b"secret"));
    assert!(!stored.is_empty() && !shown, "RP-09: it is in the store");
}

#[test]
fn a_response_with_as_many_headers_as_a_map_takes_is_replayed() {
    // More values than a map takes names, and as many names as it takes.
    for (names, values) in [(1, 40_000), (24_000, 1)] {
        let pairs =
            (0..names).flat_map(|name| (0..values).map(move |_| (format!("x-{name}"), String::new())));
        let mut world = World::new();
        world.script.answer(Answer { headers: pairs.collect(), ..Answer::default() });
        let (first, again) = (world.ask(post("k", "")), world.ask(post("k", "")));
        assert!(!first.panicked, "P8: {names} headers: the layer panicked after its handler had acted");
        let count = |seen: &crate::world::Seen| seen.head.as_ref().unwrap().1.len();
        assert_eq!((count(&first), count(&again)), (names * values, names * values + 1), "RP-08");
        assert!(again.is_replay() && world.script.runs() == 1, "P8: {names} headers: it ran again");
    }
}

#[test]
fn a_response_too_large_to_keep_is_told_as_done_and_never_run_again() {
    // By the layer's limit, and by the store's.
    let layer_limit = World::with(|layer| layer.response_limit(10));
    let storage = Faulty::new();
    let clock = ManualClock::new();
    let store_limit = World::over(&clock, &storage, |store| store.value_limit(40), owner(), |layer| layer);
    // And by one in which not even a status fits.
    let tiny = World::over(&clock, &Faulty::new(), |store| store.value_limit(1), owner(), |layer| layer);
    for (mut world, status) in [(layer_limit, Some(201)), (store_limit, Some(201)), (tiny, None)] {
        world.script.answer(Answer { body: "x".repeat(100), ..Answer::status(201) });
        assert_eq!(world.ask(post("k", "")).body.len(), 100, "SZ-01: the first client gets it");
        let again = world.ask(post("k", ""));
        assert_eq!(
            (again.status(), again.code().as_str()),
            (409, "response-omitted"),
            "P8: SZ-01: {again:?}"
        );
        let problem: serde_json::Value = serde_json::from_slice(&again.body).unwrap();
        assert_eq!(problem["original_status"].as_u64(), status, "SZ-01");
        assert_eq!((world.script.runs(), world.layer.stats().omitted), (1, 1), "P8: SZ-01: it ran again");
    }
}

#[test]
fn a_stream_goes_to_its_client_and_is_told_as_done() {
    let mut world = World::new();
    let stall = Gate::default();
    world.script.answer(Answer { stall: Some(stall.clone()), ..Answer::default() });
    let call = world.send(post("k", ""));
    assert!(call.seen().head.is_none(), "within its 100 ms it may still be a short one");
    assert_eq!(world.ask(post("k", "")).code(), "in-progress");
    world.advance(Duration::from_millis(99));
    assert!(call.seen().head.is_none());
    world.clock.advance(Duration::from_millis(1));
    world.until("the stream begins", || call.seen().head.is_some());
    // Durable before the client sees anything of it.
    let again = world.ask(post("k", ""));
    assert_eq!((again.status(), again.code().as_str()), (409, "response-omitted"), "P4: RP-10: {again:?}");
    stall.open();
    let seen = world.ended(&call);
    assert_eq!((seen.status(), seen.text().as_str()), (200, "run 1"), "RP-10: the first client's stream");
    assert_eq!(world.script.runs(), 1, "P8: RP-10: it ran again");
    // One that ends in time is stored whole.
    world.script.answer(Answer { unknown_length: true, ..Answer::default() });
    world.ask(post("short", ""));
    let again = world.ask(post("short", ""));
    assert_eq!((again.is_replay(), again.text().as_str()), (true, "run 2"), "RP-10: an empty replay");
}

#[test]
fn a_response_is_replayed_for_its_retention_and_a_later_retry_is_a_fresh_run_that_counts() {
    let day = Duration::from_secs(86_400);
    let mut world = World::with(|layer| layer.retention(day).show_times());
    assert_eq!(world.ask(post("k", "")).text(), "run 1");
    world.advance(day - Duration::from_secs(1));
    let replay = world.ask(post("k", ""));
    assert!(replay.is_replay(), "P8: TL-04");
    let time = |name| replay.header(name).unwrap().trim_start_matches('@').parse::<u64>().unwrap();
    assert_eq!(time("idempotency-expires-at") - time("idempotency-settled-at"), 86_400, "TL-04, RP-06");
    world.advance(Duration::from_secs(1));
    let late = world.ask(post("k", ""));
    assert!(!late.is_replay() && late.text() == "run 2", "TL-04");
    assert_eq!(world.store.stats().granted, 2, "TL-04: a fresh run is counted");
}

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let digits: Vec<_> = text.chars().filter(char::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// The bytes that are stored for the only key, as `Store::get` gives them.
fn stored(world: &World) -> (claimdb::Key, Vec<u8>) {
    let scope = world.store.scopes().unwrap().remove(0);
    let (key, settled) = world.store.scan(&scope, "").unwrap().next().unwrap().unwrap();
    (key, settled.completed().unwrap().into_bytes())
}

#[test]
fn stored_responses_and_names_of_keys_are_the_golden_ones() {
    for (name, limit) in [("http_v1_whole.hex", 1000), ("http_v1_omitted.hex", 1)] {
        let mut world = World::with(|layer| layer.response_limit(limit));
        let trailers = vec![("x-sum".to_owned(), "7".to_owned())];
        world.script.answer(Answer { trailers, ..with(&[("location", "/orders/1"), ("x-a", "b")]) });
        world.ask(post("k", "body"));
        let (key, bytes) = stored(&world);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&bytes), hex(&golden(name)), "{name}: a response is stored as something else");
        assert_eq!(hex(key.scope()), hex(b"http\x01ann"), "a scope is called something else");
        assert_eq!(
            hex(key.name()),
            hex(b"\x01\x04\0POST\x07\0/orders\x01\0k"),
            "a key is called something else, so that upgrading forgets it"
        );
    }
}

#[test]
fn golden_responses_are_read() {
    for (name, damaged) in
        [("http_v1_whole.hex", false), ("http_v1_omitted.hex", false), ("http_v1_whole.hex", true)]
    {
        let mut world = World::with(|layer| layer.fingerprint(FingerprintBy::off()));
        let key = claimdb::Key::scoped(b"http\x01ann", b"\x01\x04\0POST\x07\0/orders\x01\0k").unwrap();
        let mut bytes = golden(name);
        if damaged {
            bytes[0] = 200; // a later version
        }
        world.store.claim(&key).unwrap().granted().unwrap().complete_bytes(bytes).unwrap();
        let seen = world.ask(post("k", "body"));
        if name.contains("omitted") || damaged {
            assert_eq!(seen.code(), "response-omitted", "P8: what cannot be read is not run again");
        } else {
            assert_eq!((seen.status(), seen.text().as_str()), (201, "run 1"));
            assert_eq!(seen.header("location").as_deref(), Some("/orders/1"));
            assert_eq!(seen.trailers.unwrap()["x-sum"], "7");
        }
        assert_eq!(world.script.runs(), 0);
    }
}
