//! Clients that wish the service ill, or are broken.

use crate::hooks::{At, Hooked};
use crate::world::{IN_TIME, SEC, World, answers, is_cut, on_key};
use claimdb::admin::Server;
use claimdb::{Durability, ManualClock, Store};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const STATS: &str = r#"{"claimdb_admin":1,"ask":{"stats":{"count":false}}}"#;

#[test]
fn garbage_is_refused_in_words() {
    let world = World::new();
    let deep = format!(r#"{{"claimdb_admin":1,"ask":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let cases: [(&str, &str, &str); 14] = [
        ("", "invalid", "EOF"),
        ("hello", "invalid", "expected"),
        ("{}", "invalid", "claimdb_admin"),
        ("[]", "invalid", "invalid length"),
        (r#"{"claimdb_admin":"1","ask":{}}"#, "invalid", "expected u64"),
        (r#"{"claimdb_admin":1}"#, "invalid", "it asks nothing"),
        (r#"{"claimdb_admin":1,"ask":{"explode":{}}}"#, "invalid", "unknown variant"),
        (r#"{"claimdb_admin":1,"ask":{"stats":{"count":false,"more":1}}}"#, "invalid", "unknown field"),
        (
            r#"{"claimdb_admin":1,"ask":{"inspect":{"key":{"scope_hex":"","key_hex":"x"},"show_keys":false}}}"#,
            "invalid",
            "not hex",
        ),
        (
            r#"{"claimdb_admin":1,"ask":{"inspect":{"key":{"scope_hex":"","key_hex":""},"show_keys":false}}}"#,
            "invalid",
            "empty",
        ),
        (r#"{"claimdb_admin":1,"ask":{"backup":{"folder":"here"}}}"#, "invalid", "from the root on"),
        (r#"{"claimdb_admin":2,"ask":{"explode":{}}}"#, "version", "this service speaks 1"),
        (r#"{"claimdb_admin":0}"#, "version", "it has version 0"),
        (&deep, "invalid", "reading a request"),
    ];
    for (request, code, words) in cases {
        let told = world.told(request);
        let shown: String = request.chars().take(80).collect();
        assert_eq!(told.len(), 1, "{shown}: {told:?}");
        let refused = &told[0]["refused"];
        assert_eq!(refused["code"], code, "{shown}: {told:?}");
        assert!(refused["message"].as_str().unwrap().contains(words), "{shown}: {told:?}");
    }
    let mut stream = world.connect();
    stream.write_all(b"\xff\x00\xfe\n").unwrap();
    assert_eq!(answers(stream)[0]["refused"]["code"], "invalid");
    world.goes_on("garbage");
}

#[test]
fn a_line_without_end_is_refused_at_its_bound() {
    let world = World::new();
    let mut stream = world.connect();
    let piece = [b'x'; 64 << 10];
    let mut sent = 0;
    // The service stops reading, so at some time it cannot be written to any more.
    while sent < 64 << 20 {
        match stream.write(&piece) {
            Ok(written) => sent += written,
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                    "{error}"
                );
                break;
            }
        }
    }
    assert!(sent < 8 << 20, "{sent} bytes of a line were taken");
    world.goes_on("a line without end");
    // Of one that is just too long it is told why.
    let mut stream = world.connect();
    let _ = stream.write_all(&vec![b'x'; (256 << 10) + 1]);
    let told = answers(stream);
    assert!(told[0]["refused"]["message"].as_str().unwrap().contains("longer than 262144 bytes"), "{told:?}");
}

#[test]
fn one_who_is_slow_is_cut_and_keeps_nobody_waiting() {
    let world = World::new();
    let silent = world.connect();
    let mut half = world.connect();
    half.write_all(&STATS.as_bytes()[..20]).unwrap();
    world.goes_on("one who says nothing, and half a line");
    // A byte now and then does not put the end off.
    for _ in 0..4 {
        world.clock.advance(SEC);
        half.write_all(b" ").unwrap();
        world.goes_on("a byte");
    }
    world.clock.advance(2 * SEC);
    assert!(is_cut(&silent) && is_cut(&half), "P6 never stuck: one who is slow stays for ever");
    world.goes_on("slow ones");
    // Half a line that ends is no request.
    let mut half = world.connect();
    half.write_all(&STATS.as_bytes()[..20]).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert!(is_cut(&half));
}

#[test]
fn one_who_takes_no_answer_is_cut_and_keeps_nobody_waiting() {
    let world = World::new();
    for n in 0..3000 {
        let request = claimdb::Request::new(format!("key-{n}")).durability(Durability::Relaxed);
        world.store.claim(request).unwrap().granted().unwrap().complete("x").unwrap();
    }
    let list = r#"{"claimdb_admin":1,"ask":{"list":{"scope_hex":null,"states":[],"older_than_ms":null,"limit":null,"show_keys":false}}}"#;
    let whole = world.told(list);
    assert_eq!((whole.len(), &whole.last().unwrap()["listed"]["keys"]), (3001, &3000.into()));
    let lazy = || {
        let mut lazy = world.connect();
        lazy.write_all(format!("{list}\n").as_bytes()).unwrap();
        for _ in 0..20 {
            world.goes_on("one who takes no answer");
        }
        lazy
    };
    // What comes late is in an answer that is made as it is taken.
    let slow = lazy();
    world.granted("zzz", Durability::Full).complete("late").unwrap();
    let told = answers(slow);
    assert_eq!(told.last().unwrap()["listed"]["keys"], 3001, "an answer is held in memory that nobody takes");
    let lazy = lazy();
    world.clock.advance(6 * SEC);
    let told = answers(lazy);
    assert!(told.len() < 3001, "all of an answer was made though nobody took it");
    assert!(told.iter().all(|line| line.get("listed").is_none()), "an answer that was cut off looks whole");
    world.goes_on("a lazy one");
}

#[test]
fn many_who_connect_and_say_nothing_keep_nobody_out() {
    let world = World::new();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let mut many: Vec<UnixStream> = Vec::new();
    for n in 0..200 {
        many.push(world.connect());
        if n % 20 == 19 {
            world.goes_on("many");
        }
    }
    // Each has one end here; of the others the service keeps a few.
    let here = many.len();
    assert!(descriptors() < here + 100, "the service keeps all who connect");
    let cut = many.iter().filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        let mut stream = *stream;
        !matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    assert!(cut.count() >= here - 16, "the oldest make room");
    drop(many);
    world.goes_on("many who are gone");
}

#[test]
fn those_who_ask_at_once_are_all_answered() {
    let world = World::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let told = world.told(STATS);
                    assert!(told.len() == 1 && told[0]["stats"].is_object(), "{told:?}");
                }
            });
        }
    });
}

/// A change waits for its sync on the socket's thread. Meanwhile the time of the others stands still.
#[test]
fn those_who_waited_for_anothers_change_have_their_time_nevertheless() {
    let (hooked, clock) = (Hooked::new(), ManualClock::new());
    let folder = tempfile::tempdir().unwrap();
    let store = Store::builder(hooked.clone()).clock(clock.clone()).open().unwrap();
    let path = folder.path().join("admin.sock");
    let _serving = Server::new().serve(&store, &path).unwrap();
    drop(store.claim("k").unwrap().granted().unwrap());
    let connect = || {
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(IN_TIME)).unwrap();
        stream
    };
    let mut half = connect();
    half.write_all(&STATS.as_bytes()[..20]).unwrap();
    // It is taken on before the other asks.
    let mut first = connect();
    first.write_all(format!("{STATS}\n").as_bytes()).unwrap();
    assert_eq!(answers(first).len(), 1);
    hooked.on(At::Sync, move || clock.advance(20 * SEC));
    let mut release = connect();
    release
        .write_all(format!("{}\n", on_key("release", "k", r#","token":null,"force":false"#)).as_bytes())
        .unwrap();
    assert_eq!(answers(release)[0]["changed"]["did"], "released");
    half.write_all(format!("{}\n", &STATS[20..]).as_bytes()).unwrap();
    assert_eq!(answers(half).len(), 1, "a request was cut because another's change took long");
}

#[test]
fn a_service_that_closes_in_the_middle_ends_its_connections() {
    let world = World::new();
    let silent = world.connect();
    world.goes_on("one who says nothing");
    world.store.close().unwrap();
    assert!(is_cut(&silent), "P6 never stuck: a connection outlives the store");
}
