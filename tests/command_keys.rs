//! `claimdb inspect`, `list`, `stats`, `release`, `resolve`, `purge` and `backup` over a store that nobody has open.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "command/place.rs"]
#[allow(dead_code)] // each test file uses a part
mod place;

use claimdb::backend::{Backend as _, Commit, Sled, Swap};
use claimdb::{Key, KeyState, Settled, Store};
use place::{Ended, Place, granted, stored};
use serde_json::Value;
use std::process::{Command, Stdio};

/// The names that a listing tells, and their states.
fn listed(place: &Place, args: &[&str]) -> Vec<(String, String)> {
    let out = place.run(&[&["list", "--store", "claims", "--show-keys", "--json"], args].concat()).done();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (counts, keys) = lines.split_last().unwrap();
    assert_eq!(counts["keys"], keys.len(), "{counts}");
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    keys.iter().map(|key| (text(&key["name"]), text(&key["state"]))).collect()
}

#[test]
fn looking_changes_nothing() {
    let place = Place::new();
    let before = stored(&place);
    let looks: [&[&str]; 7] = [
        &["inspect", "--store", "claims", "order-43"],
        &["list", "--store", "claims"],
        &["stats", "--store", "claims"],
        &["backup", "--store", "claims", "copy"],
        &["verify", "claims"],
        // Those that were not agreed to.
        &["release", "--store", "claims", "order-42"],
        &["purge", "--store", "claims", "--forgotten"],
    ];
    for args in looks {
        let ended = place.run(args);
        let expected = if ["release", "purge"].contains(&args[0]) { 2 } else { 0 };
        assert_eq!(ended.code, Some(expected), "{ended:?}");
        assert!(stored(&place) == before, "rule 8, rule 23: {} has changed the store", args[0]);
    }
    let store = place.open();
    assert_eq!(granted(&store, "order-42").attempt(), 2, "its holder has ended, and nothing came between");
    store.close().unwrap();
}

#[test]
fn the_states_of_keys_are_told_and_filtered() {
    let place = Place::new();
    let all = [
        ("order-40", "settled"),
        ("order-41", "settled"),
        ("order-42", "pending"),
        ("order-43", "pending"),
        ("?", "settled"),
        ("order-44", "interrupted"),
    ];
    let owned = |keys: &[(&str, &str)]| -> Vec<(String, String)> {
        keys.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
    };
    assert_eq!(listed(&place, &[]), owned(&all));
    assert_eq!(listed(&place, &["--state", "pending"]), owned(&all[2..4]));
    let both = ["--state", "interrupted", "--state", "pending"];
    assert_eq!(listed(&place, &both), owned(&[all[2], all[3], all[5]]));
    assert_eq!(listed(&place, &["--scope", "refunds"]), owned(&all[4..]));
    assert_eq!(listed(&place, &["--scope", "726566756e6473", "--hex"]), owned(&all[4..]));
    assert_eq!(listed(&place, &["--scope", "none"]), []);
    assert_eq!(listed(&place, &["--older-than", "1d"]), []);
    assert_eq!(listed(&place, &["--limit", "2"]), owned(&all[..2]));

    let inspect = |args: &[&str]| place.run(&[&["inspect", "--store", "claims", "--json"], args].concat());
    let told = inspect(&["order-43"]).json();
    let expected = [
        ("state", "pending"),
        ("holder", "ended"),
        ("next_claim", "interrupted"),
        ("on_interrupt", "quarantine"),
    ];
    for (field, value) in expected {
        assert_eq!(told[field], value, "{told}");
    }
    assert!(told["token"].is_string() && told["key"].as_str().unwrap().starts_with("key#"), "{told}");
    assert_eq!(inspect(&["order-42"]).json()["checkpoint_bytes"], 14);
    assert_eq!(inspect(&["order-41"]).json()["result"], "failed");
    let stats = place.run(&["stats", "--store", "claims", "--json"]).json();
    assert_eq!(
        stats.to_string(),
        r#"{"opening":null,"stored":{"damaged":0,"ended":2,"interrupted":1,"pending":2,"settled":3}}"#
    );
    let absent = inspect(&["order-99"]);
    assert_eq!((absent.code, absent.out.contains(r#""state":"absent""#)), (Some(6), true), "{absent:?}");
}

#[test]
fn keys_are_hidden_unless_asked_for_and_shown_as_they_are_given() {
    let place = Place::new();
    let names: [&[u8]; 8] = [
        b"-x",
        b"it's",
        "na\u{ef}ve key".as_bytes(),
        b"\x1b[31mred",
        "\u{202e}drow".as_bytes(),
        b"\xff\x00",
        b"a\nb",
        b"$(id)",
    ];
    let scopes: [&[u8]; 4] = [b"", b"a b", b"-s", b"\x07"];
    let store = place.open();
    for scope in scopes {
        for name in names {
            granted(&store, Key::scoped(scope, name).unwrap()).complete(&1).unwrap();
        }
    }
    store.close().unwrap();
    for json in [&[][..], &["--json"]] {
        let hidden = place.run(&[&["list", "--store", "claims"], json].concat()).done();
        // Nor in hex.
        for part in ["order", "drow", "refunds", "6f72646572"] {
            assert!(!hidden.contains(part), "a key is shown unasked: {hidden}");
        }
    }
    let shown = place.run(&["list", "--store", "claims", "--show-keys", "--state", "settled"]).done();
    assert!(
        shown.chars().all(|c| !c.is_control() || c == '\n') && !shown.contains('\u{202e}'),
        "a key can steer the terminal: {shown:?}"
    );
    let column = shown.lines().next().unwrap().find("KEY").unwrap();
    let given: Vec<&str> = shown.lines().skip(1).map(|line| &line[column..]).collect();
    assert_eq!(given.len(), 3 + scopes.len() * names.len());
    // Pasted behind a command as they are, each is found.
    let claimdb = env!("CARGO_BIN_EXE_claimdb");
    let commands: String =
        given.iter().map(|key| format!("{claimdb} inspect --store claims --show-keys {key}\n")).collect();
    let ended = Ended::of(Command::new("sh").current_dir(place.0.path()).args(["-ec", &commands]));
    let found = ended.done();
    for key in given {
        assert!(found.contains(&format!("key           {key}\n")), "{key} in {found}");
    }
    assert!(shown.contains(r"--hex  # \x1b[31mred in a b"), "what is no text cannot be read: {shown}");
    // Nor do errors show them.
    for args in [&["release", "--yes"][..], &["inspect"], &["resolve", "--as", "omitted", "--yes"]] {
        let ended =
            place.run(&[args, &["--store", "claims", "secret-key", "--scope", "secret-scope"]].concat());
        assert_eq!(ended.code, Some(6), "{ended:?}");
        assert!(!ended.err.contains("secret") && ended.err.contains("key#"), "{}", ended.err);
    }
}

#[test]
fn a_key_is_released_or_resolved_and_nothing_else() {
    let place = Place::new();
    let out = place.run(&["release", "--store", "claims", "--yes", "--json", "order-42"]).json();
    assert_eq!((&out["did"], &out["before"]["state"]), (&"released".into(), &"pending".into()), "{out}");
    let resolve =
        |args: &[&str]| place.run(&[&["resolve", "--store", "claims", "--yes"], args].concat()).done();
    std::fs::write(place.path("value"), b"\x00\x01raw").unwrap();
    resolve(&["--as", "completed", "--text", "receipt 43", "order-43"]);
    resolve(&["--as", "failed", "--bytes", "value", "--scope", "refunds", "order-44"]);
    let store = place.open();
    assert_eq!(store.inspect("order-42").unwrap().state, KeyState::Absent);
    let by_hand = store.get("order-43").unwrap().unwrap();
    assert!(by_hand.about().by_hand());
    assert_eq!(by_hand.completed().unwrap().decode::<String>().unwrap(), "receipt 43");
    let Some(Settled::Failed(stored)) = store.get(Key::scoped("refunds", "order-44").unwrap()).unwrap()
    else {
        panic!("it is failed")
    };
    assert_eq!(stored.bytes(), b"\x00\x01raw");
    let untouched = store.get("order-40").unwrap().unwrap();
    assert!(!untouched.about().by_hand());
    store.close().unwrap();
}

#[test]
fn what_is_purged_is_gone_and_nothing_else() {
    let place = Place::new();
    let purge = |args: &[&str]| {
        place.run(&[&["purge", "--store", "claims", "--yes", "--json"], args].concat()).json()
    };
    assert_eq!(purge(&["--forgotten"])["deleted"], 0, "P8 remembered: nothing here is forgotten");
    assert_eq!(listed(&place, &[]).len(), 6);
    assert_eq!(purge(&["--key", "order-44", "--scope", "refunds"])["deleted"], 1);
    assert_eq!(purge(&["--key", "6f726465722d3432", "--hex"])["deleted"], 1);
    assert_eq!(purge(&["--whole-scope", "refunds"])["deleted"], 1);
    let names: Vec<_> = listed(&place, &[]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["order-40", "order-41", "order-43"]);
}

#[test]
fn a_scope_with_a_damaged_record_is_purged_of_the_others_and_their_number_is_told() {
    let place = Place::new();
    scribble(&place, b"\x01\x07refundsorder-44");
    let told = place.run(&["purge", "--store", "claims", "--yes", "--whole-scope", "refunds"]).failed(4);
    let counts = "1 key was removed for good; 1 record was skipped";
    assert!(told.contains(counts), "it does not say what became of the scope: {told}");
    let left = place.run(&["list", "--store", "claims", "--json"]);
    assert_eq!(left.out.lines().count(), 6, "four keys, the damaged one, and the counts: {left:?}");
}

/// Writes over the record of an encoded key.
fn scribble(place: &Place, key: &[u8]) {
    let engine = Sled::existing(place.path("claims")).open().unwrap();
    let seen = engine.read(key).unwrap();
    assert!(seen.is_some());
    let swap = engine.commit(&[Commit::swap(key, seen.as_deref(), Some(b"scribble"))]).remove(0).unwrap();
    assert_eq!(swap, Swap::Done);
    engine.sync().unwrap();
}

#[test]
fn a_damaged_record_is_told_and_goes_by_force_alone() {
    let place = Place::new();
    scribble(&place, b"\x01\0order-41");
    let list = place.run(&["list", "--store", "claims", "--json", "--state", "interrupted"]);
    assert_eq!((list.code, list.out.lines().count()), (Some(4), 3), "{list:?}");
    assert!(list.out.contains(r#""state":"damaged""#) && list.err.contains("claimdb verify"), "{list:?}");
    let stats = place.run(&["stats", "--store", "claims", "--json"]).json();
    assert_eq!((&stats["stored"]["damaged"], &stats["stored"]["settled"]), (&1.into(), &2.into()));
    let told = place.run(&["inspect", "--store", "claims", "order-41"]).failed(4);
    assert!(told.contains("damaged"), "{told}");
    // Made all the same, but not so that a script takes it for one that the others may go for.
    let backup = place.run(&["backup", "--store", "claims", "copy"]);
    assert_eq!(backup.code, Some(4), "{backup:?}");
    assert!(
        backup.out.starts_with("backed up: 5 records") && backup.err.contains("keep the backups"),
        "{backup:?}"
    );
    assert_eq!(place.run(&["verify", "copy"]).code, Some(4));
    for (command, doing) in [(&["release"][..], "releasing"), (&["resolve", "--as", "omitted"], "resolving")]
    {
        let on = ["--store", "claims", "order-41"];
        let told = place.run(&[command, &["--yes"], &on].concat()).failed(4);
        assert!(told.contains(&format!("{doing} key#")), "it does not say what was tried: {told}");
        let told = place.run(&[command, &on].concat()).failed(4);
        assert!(told.contains(&format!("{doing} a key: ")), "it does not say what was tried: {told}");
    }
    let purge = ["purge", "--store", "claims", "--yes", "--key", "order-41"];
    let told = place.run(&purge).failed(4);
    assert!(told.contains("--force"), "P9 fail closed: {told}");
    place.run(&[&purge[..], &["--force"]].concat()).done();
    assert_eq!(listed(&place, &[]).len(), 5);
}

#[test]
fn a_backup_is_a_store_of_the_same_engine_with_the_same_keys() {
    let place = Place::new();
    place.run(&["backup", "--store", "claims", "copy"]).done();
    let copy = Store::open(place.path("copy")).unwrap();
    assert_eq!(copy.keys(None).unwrap().count(), 6);
    copy.close().unwrap();
    #[cfg(feature = "redb")]
    {
        place.run(&["migrate", "--from", "sled", "--to", "redb", "claims", "other"]).done();
        place.run(&["backup", "--store", "other", "other-copy"]).done();
        assert!(place.path("other-copy/redb").exists(), "a backup of a store over redb is over redb");
        assert_eq!(place.run(&["list", "--store", "other-copy"]).done().lines().count(), 7);
    }
}

#[test]
fn a_reader_that_has_had_enough_ends_it_quietly() {
    let place = Place::new();
    for args in ["list --store claims --json", "completions bash", "man list", "stats --store claims"] {
        let command = format!("\"$0\" {args} | true; echo ${{PIPESTATUS[0]}}");
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &command, env!("CARGO_BIN_EXE_claimdb")])
            .current_dir(place.0.path())
            .stdin(Stdio::null());
        let ended = Ended::of(&mut shell);
        assert_eq!((ended.out.trim(), ended.err.contains("error")), ("0", false), "{args}: {ended:?}");
    }
}

#[cfg(feature = "redb")]
#[test]
fn a_source_of_another_engine_than_was_said_is_told_with_its_own() {
    let place = Place::new();
    let told = place.run(&["migrate", "--from", "redb", "--to", "sled", "claims", "copy"]).failed(1);
    assert!(told.contains("it was made with sled; give --from sled"), "{told}");
    assert!(!place.path("copy").exists());
}
