//! The commands over a store that nobody has open, used wrongly.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)]

#[path = "command/place.rs"]
#[allow(dead_code)] // each test file uses a part
mod place;

use place::{Place, stored};
use std::collections::BTreeMap;

#[test]
fn wrong_input_is_told_with_what_to_do() {
    let place = Place::new();
    std::fs::write(place.path("file"), "no folder").unwrap();
    std::fs::create_dir(place.path("empty")).unwrap();
    std::os::unix::fs::symlink("nowhere", place.path("dangling")).unwrap();
    let long = "k".repeat(1025);
    let migrate = ["migrate", "--from", "sled", "--to", "sled", "claims", "empty/../claims/copy"];
    let really = "key#0123456789ab".bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let cases: [(&[&str], i32, &str); 40] = [
        (&["inspect", "--store", "nowhere", "k"], 1, "give the folder of a store"),
        (&["inspect", "--store", "empty", "k"], 1, "give the folder of a store"),
        (&["list", "--store", "file"], 1, "this is not a folder; give the path of a store's folder"),
        (&["verify", "file"], 1, "this is not a folder; give the path of a store's folder"),
        (&["inspect", "--store", "file/below", "k"], 1, "give the folder of a store"),
        (&["stats", "--socket", "nowhere.sock"], 1, "see that its service runs"),
        (&["stats", "--socket", "file"], 1, "connecting to file: it is a file and not a socket; "),
        (&["stats", "--socket", "claims"], 1, "connecting to claims: it is a folder and not a socket; "),
        (&["stats", "--socket", "dangling"], 1, "see that its service runs"),
        (&["list", "--store", "dangling"], 1, "dangling is a symbolic link to what is not there"),
        (&["dedup", "--store", "dangling/below"], 1, "dangling is a symbolic link to what is not there"),
        (&["verify", "dangling"], 1, "dangling is a symbolic link to what is not there"),
        (
            &["bench", "--dir", "none"],
            1,
            "for the stores in none: No such file or directory (os error 2); name",
        ),
        (&["inspect", "--store", "claims", ""], 2, "the key is empty"),
        (&["inspect", "--store", "claims", &long], 2, "hash what is longer"),
        (&["inspect", "--store", "claims", "--hex", "abc"], 2, "odd number of hex digits"),
        (&["inspect", "--store", "claims", "--hex", "xy"], 2, "not hex"),
        (&["release", "--store", "claims", "--yes", "--token", "1", "order-42"], 7, "it has moved on"),
        (&["release", "--store", "claims", "--yes", "order-40"], 7, "it is settled"),
        (&["resolve", "--store", "claims", "--as", "completed", "order-42"], 2, "--text or --bytes"),
        (&["resolve", "--store", "claims", "--as", "omitted", "--text", "x", "order-42"], 2, "leave --text"),
        (
            &["resolve", "--store", "claims", "--as", "failed", "--bytes", "none", "order-42"],
            1,
            "give --bytes a file",
        ),
        (&["purge", "--store", "claims", "--key", "order-99", "--yes"], 6, "there is no such key"),
        (&["inspect", "--store", "claims", "order-44"], 6, "give the scope of a key that has one"),
        (&["release", "--store", "claims", "--yes", "order-44"], 6, "give the scope of a key that has one"),
        (&["backup", "--store", "claims", "claims"], 1, "give a place that is empty"),
        (&["backup", "--store", "claims", "file"], 1, "give a place that is empty"),
        (&["backup", "--store", "claims", "."], 1, "give a place that is empty"),
        (&["backup", "--store", "claims", "file/below"], 1, "making a copy in file: it is not a folder"),
        (&["backup", "--store", "claims", "none/below"], 1, "making a copy in none: there is no such folder"),
        (&["backup", "--store", "claims", "claims/sled/copy"], 2, "in the folder of the store /"),
        (&migrate, 2, "give a place outside of it"),
        (&["release", "--store", "claims", ""], 2, "error: releasing a key: the key is empty"),
        // What a listing shows in a key's stead would be told to be free.
        (&["inspect", "--store", "claims", "key#0123456789ab"], 2, "claimdb list --show-keys"),
        (&["release", "--store", "claims", "--yes", "key#0123456789ab"], 2, "claimdb list --show-keys"),
        (
            &["purge", "--store", "claims", "--yes", "--key", "key#0123456789ab"],
            2,
            "claimdb list --show-keys",
        ),
        (&["inspect", "--store", "claims", "--hex", &really], 6, "there is no such key"),
        (
            &["resolve", "--store", "claims", "--as", "failed", "--bytes", "/dev/zero", "order-42"],
            2,
            "/dev/zero has more than 67108864 bytes",
        ),
        (&["man", "nonsense"], 2, "there is no command"),
        (&["man", "--into", "file"], 1, "give --into a folder"),
    ];
    let before = stored(&place);
    for (args, code, told) in cases {
        let ended = place.run(args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
    }
    // What clap sees.
    let cases: [(&[&str], &str); 12] = [
        (
            &["release", "--store", "claims", "--yes", "--token", "abc", "order-42"],
            "a token is a number, as claimdb inspect tells it",
        ),
        (&["inspect", "k"], "--store"),
        (&["inspect", "--store", "a", "--socket", "b", "k"], "cannot be used with"),
        (&["list", "--store", "claims", "--older-than", "10"], "a unit is missing"),
        (&["list", "--store", "claims", "--state", "done"], "possible values"),
        (&["list", "--store", "claims", "--hex"], "--scope"),
        (&["purge", "--store", "claims"], "--forgotten"),
        (&["purge", "--store", "claims", "--forgotten", "--key", "k"], "cannot be used with"),
        (
            &["purge", "--store", "claims", "--yes", "--forgotten", "--scope", "refunds"],
            "cannot be used with",
        ),
        (
            &["purge", "--store", "claims", "--yes", "--whole-scope", "a", "--scope", "b"],
            "cannot be used with",
        ),
        (&["purge", "--store", "claims", "--yes", "--forgotten", "--force"], "cannot be used with"),
        (&["purge", "--store", "claims", "--yes", "--whole-scope", ""], "every key that has no scope"),
    ];
    for (args, told) in cases {
        let ended = place.run(args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{args:?}: {ended:?}");
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
    }
    // A store that is opened to be changed draws tokens, and notes that and the time.
    let own =
        |all: BTreeMap<Vec<u8>, Vec<u8>>| all.into_iter().filter(|(key, _)| key[0] != 0).collect::<Vec<_>>();
    assert!(own(stored(&place)) == own(before), "what was refused has changed the store");
    assert!(!place.path("nowhere").exists());
}
