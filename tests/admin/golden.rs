//! The protocol as it was released: requests and answers of version 1.

use crate::world::World;
use claimdb::admin::{Command, KeyName, Settle, Value, Wanted};
use claimdb::{Durability, OnInterrupt, Request};
use std::time::Duration;

/// What the requests of the golden file are, as the client says them.
fn commands(folder: &str) -> Vec<Command> {
    let key = |name: &str| KeyName::new(b"", name.as_bytes());
    let (token, force, show_keys) = (None, false, true);
    let text = |text: &str| Value::Text(text.to_owned());
    let resolve = |name, settle| Command::Resolve { key: key(name), token: token.clone(), settle, force };
    vec![
        Command::Inspect { key: key("done"), show_keys },
        Command::Inspect { key: key("none"), show_keys: false },
        Command::list(
            Some(b"shop"),
            vec![Wanted::Pending, Wanted::Interrupted, Wanted::Settled],
            None,
            Some(2),
            show_keys,
        ),
        Command::list(None, vec![Wanted::Pending], Some(Duration::from_millis(1)), None, false),
        Command::Stats { count: true },
        Command::Release { key: key("pending"), token: Some("1".to_owned()), force: true },
        Command::Release { key: key("pending"), token: token.clone(), force },
        resolve("a", Settle::Completed(text("by hand"))),
        resolve("b", Settle::Failed(Value::bytes(b"\x00\xff"))),
        resolve("c", Settle::Omitted),
        resolve("c", Settle::Omitted),
        Command::Backup { folder: folder.to_owned() },
    ]
}

#[test]
fn the_protocol_is_as_it_was_released() {
    let world = World::new();
    world.granted("done", Durability::Full).complete("x").unwrap();
    drop(world.granted("pending", Durability::Full));
    for name in ["a", "b", "c"] {
        let request = Request::new(name).on_interrupt(OnInterrupt::Quarantine).max_attempts(3);
        drop(world.store.claim(request).unwrap().granted().unwrap());
    }
    for n in 0..3 {
        let scope = world.store.scope("shop").unwrap();
        scope.claim(format!("order-{n}")).unwrap().granted().unwrap().fail("no").unwrap();
    }
    world.clock.advance(Duration::from_secs(10));
    let mut played = String::new();
    let folder = world.folder.path().join("copy").display().to_string();
    for command in commands(&folder) {
        let request = format!(r#"{{"claimdb_admin":1,"ask":{}}}"#, serde_json::to_string(&command).unwrap());
        played += &format!("→ {request}\n");
        for answer in world.told_as_text(&request).lines() {
            // What counts calls and sizes of memory is not the protocol's, nor are words for people.
            let answer = match serde_json::from_str::<serde_json::Value>(answer).unwrap() {
                told if told["stats"]["opening"].is_object() => {
                    let names: Vec<_> =
                        told["stats"]["opening"].as_object().unwrap().keys().cloned().collect();
                    format!(
                        r#"{{"stats":{{"opening":{{{}}},"stored":{}}}}}"#,
                        names.join(","),
                        told["stats"]["stored"]
                    )
                }
                told if told["refused"].is_object() => {
                    assert!(told["refused"]["message"].as_str().is_some_and(|words| words.contains("; ")));
                    format!(r#"{{"refused":{{"code":{},"message":"…"}}}}"#, told["refused"]["code"])
                }
                _ => answer.to_owned(),
            };
            played += &format!("← {answer}\n");
        }
    }
    let played = played.replace(&folder, "/copy");
    let mut parts = played.split("key#");
    let first = parts.next().unwrap_or_default().to_owned();
    let told = parts.fold(first, |told, part| told + "key#" + &part[12..]);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/admin_v1.txt");
    if std::env::var("SNAPSHOTS").is_ok_and(|how| how == "overwrite") {
        std::fs::write(golden, &told).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(golden).unwrap(),
        told,
        "version 1 is released: a change wants version 2"
    );
}
