//! What is a key, and lines that have none.

use crate::place::{Place, assert_same};
use std::fs;

#[test]
fn keys_differ_by_type_and_are_compared_as_written() {
    let input = [
        r#"{"id":1}"#,
        r#"{"id":"1"}"#,
        r#"{"id":true}"#,
        r#"{"id":"true"}"#,
        r#"{"id":1.0}"#,
        r#"{"id":123456789012345678901234567890}"#,
        r#"{"id":123456789012345678901234567891}"#,
        r#"{"id":1e999}"#,
        r#"{"id":""}"#,
        r#"{"id":"n1"}"#,
    ];
    let again = [
        r#"{ "other": [1, {"id": 7}], "id" : 1 }"#,
        r#"{"id":"\u0031"}"#,
        r#"{"id":7,"id":true}"#,
        r#"{"\u0069d":123456789012345678901234567890}"#,
    ];
    let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let place = Place::new();
    let args = ["--key", "/id"];
    place.fed([text(&input), text(&again)].concat().as_bytes(), &args).wrote(text(&input).as_bytes());
    // Neither the keys of whole lines nor those of another pointer are these.
    place.fed(text(&input).as_bytes(), &[]).wrote(text(&input).as_bytes());
    place.fed(b"{\"no\":1}\n", &["--key", "/no"]).wrote(b"{\"no\":1}\n");
    place.fed(text(&again).as_bytes(), &args).wrote(b"");
}

#[test]
fn pointers_follow_the_standard() {
    let line = br#"{"a/b":{"m~n":[10,"x",{"":false}]},"a":{"b":1},"list":[5,6]}"#;
    let line = [line.as_slice(), b"\n"].concat();
    for pointer in ["/a~1b/m~0n/0", "/a~1b/m~0n/1", "/a~1b/m~0n/2/", "/a/b", "/list/1"] {
        let place = Place::new();
        place.fed(&line, &["--key", pointer]).wrote(&line);
        place.fed(&line, &["--key", pointer]).wrote(b"");
    }
    for pointer in
        ["/a~1b/m~0n/3", "/list/01", "/list/-", "/list/+1", "/a/b/c", "/nothing/there", "/a", "/list", ""]
    {
        let ended = Place::new().fed(&line, &["--key", pointer]);
        assert_eq!((ended.code, ended.out.len()), (Some(1), 0), "{pointer}: {}", ended.err);
    }
    Place::new().fed(b"5\n\"5\"\n 5\n", &["--key", ""]).wrote(b"5\n\"5\"\n");
    // Too long for a scope, and for a key.
    let (name, other) = ("n".repeat(300), "n".repeat(301));
    let (value, other_value) = ("v".repeat(5_000), "v".repeat(5_001));
    let line = |name: &str, value: &str| format!("{{\"{name}\":\"{value}\"}}\n");
    let place = Place::new();
    let input = [line(&name, &value), line(&name, &other_value)].concat();
    place
        .fed([input.as_str(), &input].concat().as_bytes(), &["--key", &format!("/{name}")])
        .wrote(input.as_bytes());
    let same_value = line(&other, &value);
    place.fed(same_value.as_bytes(), &["--key", &format!("/{other}")]).wrote(same_value.as_bytes());
}

/// Lines without a key, and what is said of them.
const KEYLESS: [(&[u8], &str); 9] = [
    (b"{\"id\":null}", "null"),
    (b"{\"di\":1}", "nothing at /id"),
    (b"not json", "not JSON"),
    (b"", "empty"),
    (b"{\"id\":{}}", "an object"),
    (b"{\"id\":[1]}", "an array"),
    (b"[1]", "nothing at /id"),
    (b"{\"id\":1} 2", "not JSON"),
    (b"{\"id\":\"\xff\"}", "not JSON"),
];

#[test]
fn a_line_without_a_key_ends_the_run_after_the_lines_before_it() {
    for (keyless, reason) in KEYLESS {
        for batch in ["1", "1000"] {
            let place = Place::new();
            let (before, after) = (b"{\"id\":1}\n{\"id\":2}\n", b"{\"id\":3}\n");
            let input = [before.as_slice(), keyless, b"\n", after].concat();
            let ended = place.fed(&input, &["--key", "/id", "--batch", batch, "--json"]);
            assert_eq!(ended.code, Some(1), "{}", ended.err);
            assert_same(&ended.out, before);
            assert!(ended.err.contains("line 3") && ended.err.contains(reason), "{reason}: {}", ended.err);
            let summary = ended.summary();
            assert_eq!((&summary["lines"], &summary["rejected"]), (&3.into(), &1.into()), "{summary}");
            // What was written is recorded, and nothing else is.
            place.fed(&[before.as_slice(), after].concat(), &["--key", "/id"]).wrote(after);
        }
    }
}

#[test]
fn lines_without_a_key_are_set_aside_when_asked() {
    for batch in ["1", "2", "1000"] {
        let place = Place::new();
        let mut input = Vec::new();
        let mut rejects = Vec::new();
        for (index, (keyless, _)) in KEYLESS.iter().enumerate() {
            input.extend_from_slice(format!("{{\"id\":{index}}}\n").as_bytes());
            input.extend_from_slice(&[*keyless, b"\n"].concat());
            rejects.extend_from_slice(&[*keyless, b"\n"].concat());
        }
        let good: Vec<u8> =
            (0..KEYLESS.len()).flat_map(|id| format!("{{\"id\":{id}}}\n").into_bytes()).collect();
        let aside = place.path("aside");
        let args = ["--key", "/id", "--batch", batch, "--json", "--rejects", aside.to_str().unwrap()];
        let ended = place.fed(&input, &args);
        ended.wrote(&good);
        assert_same(&fs::read(&aside).unwrap(), &rejects);
        for (index, (_, reason)) in KEYLESS.iter().enumerate() {
            let number = format!("line {} rejected: ", 2 * index + 2);
            let told = ended.err.lines().find(|line| line.starts_with(&number));
            assert!(told.is_some_and(|told| told.contains(reason)), "{number}{reason} in {}", ended.err);
        }
        let summary = ended.summary();
        assert_eq!((&summary["lines"], &summary["rejected"]), (&18.into(), &9.into()), "{summary}");
        // They are not recorded, so they come again, behind what the file had.
        place.fed(&input, &args).wrote(b"");
        assert_same(&fs::read(&aside).unwrap(), &rejects.repeat(2));
    }
}
