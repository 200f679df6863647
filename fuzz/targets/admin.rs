//! Any bytes over an admin socket: what is no request is refused in words, and what is one is answered as a store of this
//! process answers it.
#![no_main]

use arbitrary::Arbitrary;
use claimdb::admin::{self, Answer, Code, Command, PROTOCOL};
use claimdb::backend::Mem;
use claimdb::{Claim, Durability, ManualClock, OnInterrupt, Outcome, Request, Store, SyncBy};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The longest request, in bytes, as docs/admin-socket.md has it.
const MAX_REQUEST: usize = 256 << 10;

#[derive(Debug, Arbitrary)]
struct Case<'a> {
    asked: Asked<'a>,
    /// Where its bytes are cut into writes.
    cuts: [u8; 3],
    /// Whether a newline ends it.
    ended: bool,
}

#[derive(Debug, Arbitrary)]
enum Asked<'a> {
    Bytes(&'a [u8]),
    /// What is asked for, in an envelope that is right.
    Ask(&'a [u8]),
    /// With so many spaces before it.
    Far(u32, &'a [u8]),
}

/// A request of which the version alone is read first.
#[derive(serde::Deserialize)]
struct Envelope<'a> {
    claimdb_admin: u64,
    #[serde(borrow)]
    ask: Option<&'a RawValue>,
}

fuzz_target!(|case: Case<'_>| {
    let mut sent = match case.asked {
        Asked::Bytes(bytes) => bytes.to_vec(),
        Asked::Ask(ask) => [b"{\"claimdb_admin\":1,\"ask\":", ask, b"}"].concat(),
        Asked::Far(spaces, bytes) => {
            [&vec![b' '; spaces as usize % (MAX_REQUEST + MAX_REQUEST / 2)], bytes].concat()
        }
    };
    if case.ended {
        sent.push(b'\n');
    }
    let (asked, twin) = (World::new(), World::new());
    let told = asked.ask(&sent, case.cuts);
    let line = sent.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.len() == sent.len() && line.len() <= MAX_REQUEST {
        assert!(told.is_empty(), "half a request was answered: {told:?}");
        return;
    }
    match understood(line) {
        Ok(command) => {
            let expected: Vec<Answer> = admin::ask(&twin.store, command).flatten().collect();
            assert_eq!(told, expected, "over the socket another answer was given");
        }
        Err(code) => {
            let refused = matches!(&told[..], [Answer::Refused { code: told, .. }] if *told == code);
            assert!(refused, "what is no request is to be refused as {code:?}: {told:?}");
        }
    }
});

/// What a request asks, read the plain way; or as what it is to be refused.
fn understood(line: &[u8]) -> Result<Command, Code> {
    if line.len() > MAX_REQUEST {
        return Err(Code::Invalid);
    }
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(|_| Code::Invalid)?;
    if envelope.claimdb_admin != PROTOCOL {
        return Err(Code::Version);
    }
    let ask = envelope.ask.ok_or(Code::Invalid)?;
    serde_json::from_str(ask.get()).map_err(|_| Code::Invalid)
}

/// A store with a key in each state, and what keeps some of them live.
struct World {
    store: Store,
    _claims: Vec<Claim>,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let builder = Store::builder(Mem::new()).clock(clock.clone()).sync_by(SyncBy::Caller);
        let store = builder.open().expect("memory opens");
        let claim = |request: Request| {
            let told = store.claim(request).expect("memory does not fail");
            told.granted().expect("nobody else has it")
        };
        claim("a".into()).complete("done").expect("it is settled");
        claim("b".into()).fail("no").expect("it is settled");
        drop(claim("c".into()));
        let once = || Request::new("d").on_interrupt(OnInterrupt::Quarantine);
        drop(claim(once()));
        assert!(matches!(store.claim(once()), Ok(Outcome::Interrupted(_))));
        clock.advance(Duration::from_secs(1));
        let claims = vec![claim("e".into()), claim(Request::new("f").durability(Durability::Result))];
        Self { store, _claims: claims }
    }

    /// Sends these bytes and no more; all that is answered.
    fn ask(&self, sent: &[u8], cuts: [u8; 3]) -> Vec<Answer> {
        let path = folder().join("s");
        let serving = self.store.serve_admin(&path).expect("the folder is its own");
        let mut stream = UnixStream::connect(&path).expect("it is served");
        let mut rest = sent;
        for cut in cuts {
            let (first, behind) = rest.split_at(usize::from(cut).min(rest.len()));
            // One that has heard enough closes.
            let _ = stream.write_all(first);
            rest = behind;
        }
        let _ = stream.write_all(rest);
        let _ = stream.shutdown(Shutdown::Write);
        let mut told = Vec::new();
        // If it closed before it had read all, that is an error behind the answer.
        let _ = stream.read_to_end(&mut told);
        drop(serving);
        let told = String::from_utf8(told).expect("answers are text");
        assert!(told.is_empty() || told.ends_with('\n'), "an answer was cut off: {told:?}");
        told.lines().map(|line| serde_json::from_str(line).expect("a line is an answer")).collect()
    }
}

/// A folder of this process's own.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("claimdb-fuzz-admin-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("it can be made");
        folder
    })
}
