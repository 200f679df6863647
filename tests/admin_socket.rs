//! The admin socket: its file, who may use it, what is recorded, and clients that wish it ill.
#![cfg(all(feature = "admin", feature = "sled", target_os = "linux"))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "admin/golden.rs"]
mod golden;
#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;
#[path = "admin/hostile.rs"]
mod hostile;
#[path = "admin/world.rs"]
mod world;

use claimdb::admin::{self, Answer, Client, ClientError, Code, Command, Did, KeyName, ServeError, Server};
use claimdb::backend::Mem;
use claimdb::{Durability, KeyState, LossCause, OnInterrupt, Outcome, Request, Store};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use world::{World, on_key};

fn refused(told: Result<admin::Serving, ServeError>) -> String {
    match told {
        Err(error @ ServeError::Refused { .. }) => error.to_string(),
        other => panic!("what is not its own, or not safe, is to be refused: {other:?}"),
    }
}

#[test]
fn the_file_is_its_owners_alone_and_goes_with_the_guard_the_close_and_the_store() {
    let mut world = World::new();
    let there = || world.path().symlink_metadata().map(|file| file.mode() & 0o7777);
    assert_eq!(there().unwrap(), 0o600, "others can connect to the socket");
    world.goes_on("opening");
    world.serving = None;
    assert!(!world.path().exists(), "the file stays when the guard is dropped");
    let serving = world.server().serve(&world.store, world.path()).unwrap();
    world.goes_on("opening it again");
    world.store.close().unwrap();
    assert!(!world.path().exists(), "the file stays when the store is closed");
    assert!(UnixStream::connect(world.path()).is_err());
    drop(serving);
    refused(world.server().serve(&world.store, world.path()));

    // It does not keep the store open.
    let mem = Mem::new();
    let store = Store::builder(mem.clone()).open().unwrap();
    let serving = store.serve_admin(world.path()).unwrap();
    drop(store);
    assert!(!world.path().exists(), "the file stays when the last user of the store is gone");
    Store::builder(mem).open().expect("the socket does not keep the store open");
    drop(serving);
}

#[test]
fn whatever_the_umask_the_mode_is_the_same() {
    // A umask is the whole process's, so another one looks.
    let test = "the_file_is_its_owners_alone_and_goes_with_the_guard_the_close_and_the_store";
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "umask 000; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg(test);
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "others can connect to the socket: {said}");
}

#[test]
fn what_a_dead_process_left_is_replaced_and_nothing_else_is() {
    let world = World::new();
    let at = |name: &str| world.folder.path().join(name);
    let serve = |path: &Path| Server::new().serve(&world.store, path);

    // Nobody listens to one whose process is gone.
    drop(UnixListener::bind(at("dead")).unwrap());
    assert!(at("dead").exists());
    let serving = serve(&at("dead")).expect("P6 never stuck: a killed service cannot open its socket again");
    Client::connect(at("dead")).unwrap();
    drop(serving);

    let told = refused(serve(&world.path()));
    assert!(
        told.contains("a process listens there already") && told.contains("choose another path"),
        "{told}"
    );
    world.goes_on("another who wanted its path");

    fs::write(at("file"), "precious").unwrap();
    assert!(refused(serve(&at("file"))).contains("not a socket"));
    assert_eq!(fs::read(at("file")).unwrap(), b"precious", "a file was taken for a socket");
    fs::create_dir(at("folder")).unwrap();
    assert!(refused(serve(&at("folder"))).contains("not a socket"));
    drop(UnixListener::bind(at("target")).unwrap());
    for (link, target) in [("to-nothing", "nowhere"), ("to-file", "file"), ("to-socket", "target")] {
        symlink(at(target), at(link)).unwrap();
        assert!(refused(serve(&at(link))).contains("not a socket"), "a symbolic link was followed");
        assert_eq!(fs::read_link(at(link)).unwrap(), at(target), "a symbolic link was replaced");
    }
    assert!(!at("nowhere").exists() && at("target").exists());

    // What was put in its place is not its own.
    let serving = serve(&at("moved")).unwrap();
    fs::rename(at("moved"), at("elsewhere")).unwrap();
    fs::write(at("moved"), "another's").unwrap();
    drop(serving);
    let there = fs::read(at("moved")).ok();
    assert_eq!(there.as_deref(), Some(&b"another's"[..]), "what is another's was removed");

    assert!(serve(Path::new("")).is_err() && serve(Path::new("/")).is_err());
    assert!(matches!(serve(&at("none/admin.sock")), Err(ServeError::System { .. })));
    let long = refused(serve(&at(&"x".repeat(120))));
    assert!(long.contains("108 bytes") && long.contains("nearer to the root"), "{long}");
}

#[test]
fn no_socket_is_made_in_a_stores_folder() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(place.path().join("claims")).unwrap();
    for path in ["claims/admin.sock", "claims/sled/admin.sock"] {
        let path = place.path().join(path);
        let told = refused(store.serve_admin(&path));
        assert!(told.contains("in the folder of the store") && !path.exists(), "{told}");
    }
    store.close().unwrap();
}

#[test]
fn a_folder_in_which_others_can_put_theirs_is_refused() {
    let world = World::new();
    let folder = world.folder.path().join("shared");
    fs::create_dir(&folder).unwrap();
    let serve = |mode| {
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        Server::new().serve(&world.store, folder.join("admin.sock"))
    };
    assert!(refused(serve(0o777)).contains("everybody may write to its folder"));
    assert!(!folder.join("admin.sock").exists());
    drop(serve(0o1777).expect("in a folder like /tmp nobody can touch another's"));
    if rustix::process::geteuid().is_root() {
        drop(UnixListener::bind(folder.join("theirs")).unwrap());
        std::os::unix::fs::chown(folder.join("theirs"), Some(65534), None).unwrap();
        let told = refused(Server::new().serve(&world.store, folder.join("theirs")));
        assert!(told.contains("user with the id 65534"), "another's socket was replaced: {told}");
    }
}

#[test]
fn another_user_is_not_answered_though_the_file_would_let_him() {
    if !rustix::process::geteuid().is_root() {
        println!("only root can be another user");
        return;
    }
    let world = World::new();
    fs::set_permissions(world.folder.path(), Permissions::from_mode(0o755)).unwrap();
    // What a process does that std has started is not asked of it, so it asks with a shell's means: python's or perl's.
    let ask = |uid| {
        let script = "use IO::Socket::UNIX; $SIG{PIPE} = 'IGNORE'; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit 3; \
                      print $s '{\"claimdb_admin\":1,\"ask\":{\"stats\":{\"count\":false}}}', \"\\n\"; print <$s>;";
        let mut perl = std::process::Command::new("perl");
        let output = perl.args(["-e", script]).arg(world.path()).uid(uid).gid(uid).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, answer) = ask(0);
    assert!(code == Some(0) && answer.contains("live_claims"), "{answer}");
    assert_eq!(ask(65534), (Some(3), String::new()), "the file's mode lets everybody connect");
    fs::set_permissions(world.path(), Permissions::from_mode(0o666)).unwrap();
    let (_, answer) = ask(65534);
    assert!(!answer.contains("live_claims"), "another user was answered: {answer}");
    let refused =
        "{\"refused\":{\"code\":\"failed\",\"message\":\"this service answers its own user and root alone";
    assert!(answer.starts_with(refused), "another user is not told why nothing comes: {answer:?}");
    world.goes_on("another user");
}

#[test]
fn a_fork_that_drops_the_guard_removes_nothing() {
    let world = World::new();
    let mut serving = Some(world.server().serve(&world.store, world.folder.path().join("forked")).unwrap());
    let mut command = std::process::Command::new("true");
    #[allow(unsafe_code)]
    // between the fork and its own program nothing else runs there; the parent's guard is another copy
    unsafe {
        command.pre_exec(move || {
            serving.take();
            Ok(())
        });
    }
    assert!(command.status().unwrap().success());
    Client::connect(world.folder.path().join("forked"))
        .expect("rule 9: a fork has closed another process's socket");
    drop(command);
    assert!(!world.folder.path().join("forked").exists());
}

#[test]
fn who_changed_what_is_recorded_and_keys_are_not() {
    let world = World::new();
    let live = world.granted("secret-42", Durability::Full);
    let key = claimdb::Key::new("secret-42").unwrap();
    world.told(&on_key("inspect", "secret-42", r#","show_keys":true"#));
    world.told(&on_key("release", "secret-42", r#","token":null,"force":false"#));
    world.told(&on_key("release", "secret-42", r#","token":null,"force":true"#));
    let target = world.folder.path().join("copy");
    let backup = format!(r#"{{"claimdb_admin":1,"ask":{{"backup":{{"folder":{target:?}}}}}}}"#);
    world.told(&backup);
    let log = world.log.lock().unwrap().clone();
    let (uid, pid) = (rustix::process::getuid().as_raw(), std::process::id());
    let who = format!("admin: uid {uid}, process {pid}: ");
    assert_eq!(log.len(), 3, "a look is no change, and each change is recorded: {log:?}");
    assert!(log.iter().all(|line| line.starts_with(&who) && !line.contains("secret")), "{log:?}");
    assert!(log[0].contains(&format!("release {key}: refused: ")), "{log:?}");
    assert!(
        log[1].ends_with(&format!("release {key} (was pending, token {}): released", live.token())),
        "{log:?}"
    );
    assert!(log[2].contains("backup into ") && log[2].ends_with("records, 0 values"), "{log:?}");
}

#[test]
fn a_recorder_that_panics_harms_nobody() {
    let world = World::new();
    let path = world.folder.path().join("other.sock");
    let server = Server::new().audit(|_| panic!("the recorder panics, as it should here"));
    let _serving = server.serve(&world.store, &path).unwrap();
    drop(world.granted("k", Durability::Full));
    let ask = |command: &Command| Client::connect(&path).unwrap().ask(command).unwrap().last().unwrap();
    let release = Command::Release { key: KeyName::new(b"", b"k"), token: None, force: false };
    assert!(matches!(ask(&release), Err(ClientError::Asking { .. })));
    assert_eq!(world.store.inspect("k").unwrap().state, KeyState::Absent, "the change stands");
    assert!(matches!(ask(&Command::Stats { count: false }), Ok(Answer::Stats { .. })), "P6 never stuck");
}

#[test]
fn a_holder_that_hangs_is_told_and_its_key_is_freed() {
    for durability in [Durability::Full, Durability::Result] {
        let world = World::new();
        let (claim, other) = (world.granted("k", durability), world.granted("other", durability));
        let lost = claim.lost();
        let release = |token: &str, force: bool| {
            let told = world.told(&on_key("release", "k", &format!(r#","token":{token},"force":{force}"#)));
            told.last().unwrap().clone()
        };
        assert_eq!(release("null", false)["refused"]["code"], "state", "P5 no early takeover");
        let wrong = format!("\"{}\"", claim.token().get() + 100);
        assert_eq!(
            release(&wrong, true)["refused"]["code"],
            "state",
            "another claim was released than was looked at"
        );
        assert_eq!((lost.cause(), world.store.inspect("k").unwrap().token), (None, Some(claim.token())));
        let right = format!("\"{}\"", claim.token());
        assert_eq!(release(&right, true)["changed"]["did"], "released");
        assert!(lost.is_raised(), "its holder is not told");
        let next = world.granted("k", durability);
        assert!(claim.complete("late").is_err(), "P3 fenced");
        next.complete("in time").unwrap();
        other.complete("as ever").expect("another key's claim was ended");
    }
}

#[test]
fn a_result_that_was_settled_a_moment_before_is_not_taken_away() {
    let world = World::new();
    let claim = world.granted("k", Durability::Full);
    let token = claim.token().to_string();
    let seen = admin::ask(&world.store, Command::Inspect { key: KeyName::new(b"", b"k"), show_keys: false });
    assert!(matches!(seen.flatten().last(), Some(Answer::Inspected(told)) if told.state == "pending"));
    claim.complete("a moment before").unwrap();
    for command in ["release", "resolve"] {
        let settle = if command == "resolve" { r#","settle":"omitted""# } else { "" };
        let rest = format!(r#","token":"{token}","force":true{settle}"#);
        let told = world.told(&on_key(command, "k", &rest));
        assert_eq!(told.last().unwrap()["refused"]["code"], "state", "P8 remembered: {told:?}");
    }
    let stored = world.store.get("k").unwrap().expect("P8 remembered").completed().unwrap();
    assert_eq!(stored.decode::<String>().unwrap(), "a moment before");
}

#[test]
fn who_waits_for_a_key_has_it_when_the_lease_is_ended() {
    let world = World::new();
    let claim = world.granted("k", Durability::Full);
    let store = world.store.clone();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let claim = store.claim(Request::new("k").wait(3600 * world::SEC)).unwrap().granted().unwrap();
        let _ = tell.send(claim.attempt());
        claim.complete("after all").unwrap();
    });
    while world.store.stats().waiters == 0 {
        std::thread::yield_now();
    }
    let key = KeyName::new(b"", b"k");
    let release = Command::Release { key, token: Some(claim.token().to_string()), force: true };
    let released = admin::ask(&world.store, release).flatten().last();
    let attempt = told.recv_timeout(world::IN_TIME).expect("P6 never stuck: who waits is not woken");
    // Whoever changes the record first: the release frees it, the waiter takes it over.
    match released {
        Some(Answer::Changed { did: Did::Released, .. }) => {
            assert_eq!(attempt, 1, "what is released was never there")
        }
        Some(Answer::Changed { did: Did::TakenOver, .. } | Answer::Refused { code: Code::State, .. }) => {
            assert_eq!(attempt, 2, "rule 18: the attempt before is told");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        claim.lost().cause(),
        Some(LossCause::TakenOver | LossCause::Removed | LossCause::LeaseOver)
    ));
}

#[test]
fn a_key_is_resolved_over_the_socket_whether_anybody_asked_for_it_or_not() {
    let world = World::new();
    for (name, asked_for) in [("asked", true), ("unasked", false)] {
        drop(world.store.claim(Request::new(name).on_interrupt(OnInterrupt::Quarantine)).unwrap());
        if asked_for {
            assert!(matches!(world.store.claim(name).unwrap(), Outcome::Interrupted(_)));
        }
        let rest = r#","token":null,"force":false,"settle":{"completed":{"text":"by hand"}}"#;
        let told = world.told(&on_key("resolve", name, rest));
        assert_eq!(told.last().unwrap()["changed"]["did"], "completed", "{told:?}");
        let stored = world.store.claim(name).unwrap().settled().unwrap().completed().unwrap();
        assert_eq!(stored.decode::<String>().unwrap(), "by hand");
    }
    let live = world.granted("in memory", Durability::Result);
    let told =
        world.told(&on_key("resolve", "in memory", r#","token":null,"force":true,"settle":"omitted""#));
    assert_eq!(told.last().unwrap()["refused"]["code"], "state", "there is no record to settle: {told:?}");
    assert!(!live.lost().is_raised(), "a refused resolution ended a lease");
}
