//! A store that serves a socket, and those who connect to it.

use claimdb::admin::{Server, Serving};
use claimdb::backend::Mem;
use claimdb::{Claim, Durability, ManualClock, Request, Store};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

pub const SEC: Duration = Duration::from_secs(1);
/// Real time, for the test alone: what has not come about by then never will.
pub const IN_TIME: Duration = Duration::from_secs(20);

pub struct World {
    pub folder: TempDir,
    pub clock: ManualClock,
    pub store: Store,
    pub serving: Option<Serving>,
    /// What was recorded of changes.
    pub log: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn new() -> Self {
        Self::over(Mem::new())
    }

    pub fn over(mem: Mem) -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        // Whatever the umask.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let store = Store::builder(mem).clock(clock.clone()).open().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut world = Self { folder, clock, store, serving: None, log };
        world.serving = Some(world.server().serve(&world.store, world.path()).unwrap());
        world
    }

    pub fn server(&self) -> Server {
        let log = Arc::clone(&self.log);
        Server::new().audit(move |change| log.lock().unwrap().push(change.to_string()))
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(IN_TIME)).unwrap();
        stream.set_write_timeout(Some(IN_TIME)).unwrap();
        stream
    }

    /// The lines that a request is answered with.
    pub fn told(&self, request: &str) -> Vec<Value> {
        let mut stream = self.connect();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        answers(stream)
    }

    /// The same, as it comes.
    pub fn told_as_text(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap();
        told
    }

    /// Asks something harmless, as everybody may at any time, and sees that claims go on.
    #[track_caller]
    pub fn goes_on(&self, after: &str) {
        let told = self.told(r#"{"claimdb_admin":1,"ask":{"stats":{"count":false}}}"#);
        assert!(
            told.len() == 1 && told[0]["stats"]["opening"]["granted"].is_u64(),
            "P6 never stuck: after {after}: {told:?}"
        );
        let key = format!("after {after}");
        self.store.claim(&*key).unwrap().granted().expect("nobody else has it").complete("x").unwrap();
        self.store.remove(&*key).unwrap();
    }

    pub fn granted(&self, name: &str, durability: Durability) -> Claim {
        self.store.claim(Request::new(name).durability(durability)).unwrap().granted().unwrap()
    }
}

/// What comes until the other side closes.
pub fn answers(stream: UnixStream) -> Vec<Value> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.map(|line| serde_json::from_str(&line).unwrap_or(Value::String(line))).collect()
}

/// Whether the other side closes the connection, and has said nothing.
pub fn is_cut(mut stream: &UnixStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A request for `command` on the key `name`.
pub fn on_key(command: &str, name: &str, rest: &str) -> String {
    let hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!(
        r#"{{"claimdb_admin":1,"ask":{{"{command}":{{"key":{{"scope_hex":"","key_hex":"{hex}"}}{rest}}}}}}}"#
    )
}
