//! The cases of `vectors/`: requests, and what each is told. They name no language; the harness here plays them over
//! tower, and those that need neither clock nor pause over a real listener (`listener.rs`).

use crate::script::{Answer, Fails, Frames, Gate};
use crate::world::{Call, Seen, World, request};
use claimdb::http::{Builder, Disposition, FingerprintBy, KeySource};
use http::{HeaderName, Method, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// As many cases as there must be, so that a list that was not read is noticed.
pub const AT_LEAST: usize = 60;

/// All cases, each with its name.
pub fn cases() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/vectors");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let topic = file.file_stem().unwrap().to_string_lossy().into_owned();
        for case in list.as_array().unwrap() {
            cases.push((format!("{topic}: {}", case["name"].as_str().unwrap()), case.clone()));
        }
    }
    cases
}

/// The settings that a case asks for. A word that means nothing is a mistake in the case.
pub fn settings(mut layer: Builder, case: &Value) -> Builder {
    for (name, value) in case["layer"].as_object().into_iter().flatten() {
        let number = || usize::try_from(value.as_u64().unwrap()).unwrap();
        let millis = || Duration::from_millis(value.as_u64().unwrap());
        let text = || value.as_str().unwrap();
        let names = || value.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        let headers = || names().map(|name| name.parse::<HeaderName>().unwrap());
        layer = match name.as_str() {
            "required" => layer.required(),
            "strict" => layer.strict(),
            "stripe" => layer.stripe(),
            "store_server_errors" => layer.store_server_errors(),
            "echo_key" => layer.echo_key(),
            "show_times" => layer.show_times(),
            "quarantine" => layer.quarantine(),
            "min_key_length" => layer.min_key_length(number()),
            "request_limit" => layer.request_limit(number()),
            "response_limit" => layer.response_limit(number()),
            "max_tasks" => layer.max_tasks(number()),
            "lease_ms" => layer.lease(millis()).max_hold(millis()),
            "retention_ms" => layer.retention(millis()),
            "retry_after_limit_ms" => layer.retry_after_limit(millis()),
            "marker" => layer.marker(text().parse().unwrap()),
            "problem_types" => layer.problem_types(text()),
            "key_header" => layer.key_from(KeySource::header(text().parse().unwrap())),
            "methods" => layer.methods(names().map(|name| name.parse::<Method>().unwrap())),
            "store_headers" => layer.store_headers(headers()),
            "do_not_store_headers" => layer.do_not_store_headers(headers()),
            "fingerprint" => layer.fingerprint(match text() {
                "off" => FingerprintBy::off(),
                "json" => FingerprintBy::json(),
                "amount" => FingerprintBy::json_fields(["/amount"]),
                other => panic!("no fingerprint is called {other}"),
            }),
            "keys" => layer.key_from(match text() {
                "standard-webhooks" => KeySource::standard_webhooks(),
                "github" => KeySource::github(),
                "cloud-events" => KeySource::cloud_events(),
                "cloud-events-json" => KeySource::cloud_events_json(),
                other => panic!("no keys are called {other}"),
            }),
            other => panic!("no setting is called {other}"),
        };
    }
    layer
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    value.as_array().into_iter().flatten().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// How the handler answers from this step on.
pub fn answer(handler: &Value, gate: &Gate) -> Answer {
    let mut answer = Answer::default();
    for (name, value) in handler.as_object().into_iter().flatten() {
        let text = || value.as_str().unwrap().to_owned();
        match name.as_str() {
            "status" => answer.status = u16::try_from(value.as_u64().unwrap()).unwrap(),
            "headers" => answer.headers = pairs(value),
            "body" => answer.body = text(),
            "body_of" => answer.body = "x".repeat(usize::try_from(value.as_u64().unwrap()).unwrap()),
            "trailers" => answer.trailers = pairs(value),
            "unknown_length" => answer.unknown_length = true,
            "hold" => answer.hold = Some(gate.clone()),
            "stall" => answer.stall = Some(gate.clone()),
            "checkpoint" => answer.checkpoint = Some(text()),
            "disposition" => {
                answer.disposition = Some(match value.as_str().unwrap() {
                    "store" => Disposition::Store,
                    "release" => Disposition::Release,
                    "fail" => Disposition::Fail,
                    other => panic!("no disposition is called {other}"),
                });
            }
            "fails" => {
                answer.fails = Some(match value.as_str().unwrap() {
                    "error" => Fails::Error,
                    "panic" => Fails::Panic,
                    "body" => Fails::Body,
                    other => panic!("no failure is called {other}"),
                });
            }
            other => panic!("a handler does nothing called {other}"),
        }
    }
    answer
}

/// Compares what a client was told with what it should be.
pub fn check(name: &str, step: usize, expect: &Value, seen: &Seen, runs: usize) {
    let told = seen.head.as_ref().map_or(0, |_| seen.status());
    let at = format!("{name}, step {step}, was told {told} {}", seen.text());
    for (what, value) in expect.as_object().unwrap_or_else(|| panic!("{at}: it expects nothing")) {
        match what.as_str() {
            "status" => assert_eq!(u64::from(seen.status()), value.as_u64().unwrap(), "{at}"),
            "body" => assert_eq!(seen.text(), value.as_str().unwrap(), "{at}"),
            "body_length" => assert_eq!(seen.body.len() as u64, value.as_u64().unwrap(), "{at}"),
            "code" => assert_eq!(seen.code(), value.as_str().unwrap(), "{at}"),
            "replayed" => assert_eq!(seen.is_replay(), value.as_bool().unwrap(), "{at}"),
            "runs" => assert_eq!(runs as u64, value.as_u64().unwrap(), "P1: so often it ran: {at}"),
            "failed" => assert!(seen.failed, "{at}"),
            "panicked" => assert!(seen.panicked, "{at}"),
            "headers" => {
                for (header, wanted) in value.as_object().unwrap() {
                    assert_eq!(seen.header(header).as_deref(), wanted.as_str(), "{header}: {at}");
                }
            }
            "trailers" => {
                for (header, wanted) in value.as_object().unwrap() {
                    let found = seen.trailers.as_ref().and_then(|trailers| trailers.get(header));
                    assert_eq!(found.map(|found| found.to_str().unwrap()), wanted.as_str(), "{at}");
                }
            }
            "problem" => {
                let problem: Value = serde_json::from_slice(&seen.body).expect("a problem is JSON");
                for (member, wanted) in value.as_object().unwrap() {
                    assert_eq!(&problem[member], wanted, "{member}: {at}");
                }
            }
            "hides" => assert!(!format!("{seen:?}").contains(value.as_str().unwrap()), "it shows: {at}"),
            other => panic!("{name}: nothing is called {other}"),
        }
    }
}

pub fn request_of(send: &Value) -> Request<Frames> {
    let headers = pairs(&send["headers"]);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let method = send["method"].as_str().unwrap_or("POST").parse().unwrap();
    let body = match send["body_of"].as_u64() {
        Some(length) => "x".repeat(usize::try_from(length).unwrap()),
        None => send["body"].as_str().unwrap_or_default().to_owned(),
    };
    request(method, send["path"].as_str().unwrap_or("/orders"), &headers, &body)
}

fn play(name: &str, case: &Value) {
    let mut world = World::with(|layer| settings(layer, case));
    let mut gates = vec![Gate::default()];
    world.script.answer(answer(&case["handler"], &gates[0]));
    let mut calls: BTreeMap<String, Call> = BTreeMap::new();
    for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        if !step["handler"].is_null() {
            let gate = Gate::default();
            world.script.answer(answer(&step["handler"], &gate));
            gates.push(gate);
        }
        if let Some(millis) = step["advance_ms"].as_u64() {
            world.advance(Duration::from_millis(millis));
        } else if step["restart"] == true {
            world = world.restart(|layer| settings(layer, case));
        } else if step["open"] == true {
            gates.iter().for_each(Gate::open);
            world.pool.turn();
        } else if let Some(call) = step["hang_up"].as_str() {
            world.hang_up(&calls[call]);
        } else if let Some(call) = step["finish"].as_str() {
            gates.iter().for_each(Gate::open);
            let seen = world.ended(&calls[call]);
            check(name, number, &step["expect"], &seen, world.script.runs());
        } else if let Some(label) = step["as"].as_str() {
            let call = world.send(request_of(&step["send"]));
            assert!(!call.seen().ended, "{name}, step {number}: it should be in flight");
            calls.insert(label.to_owned(), call);
        } else {
            let seen = world.ask(request_of(&step["send"]));
            check(name, number, &step["expect"], &seen, world.script.runs());
        }
    }
}

#[test]
fn each_case_is_told_what_it_should() {
    let cases = cases();
    for (name, case) in &cases {
        println!("{name}"); // shown if it fails
        play(name, case);
    }
    println!("vectors over tower: {}", cases.len());
    assert!(cases.len() >= AT_LEAST, "only {} cases", cases.len());
}
