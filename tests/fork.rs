//! A process that was forked off has a copy of the store's memory, and must not use it (rule 9).
#![cfg(all(not(loom), unix))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::{Backend, Mem};
use claimdb::{Claim, Durability, LiveClaims, Omission, Request, Resolution, Store, SyncBy, Token, Writes};
use hooks::{Woken, comes_back, poll};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::future::Future;
use std::io::{Read, Write as _};
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Runs `body` in a fork of this process, and gives what it says. The fork ends without unwinding into the tests.
fn in_a_fork(body: impl FnOnce() -> String) -> String {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // Safety: this test is the only one of its program, so no other thread of it holds a lock that the fork needs.
    #[allow(unsafe_code)] // the library has none, and nothing offers this in a safe way
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "it cannot fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        drop(reader);
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        let said = said.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
        });
        let _ = writer.write_all(said.as_bytes());
        drop(writer);
        #[allow(unsafe_code)] // safety: it ends the process, and runs nothing of the tests on its way
        unsafe {
            libc::_exit(0)
        }
    }
    drop(writer);
    let said = comes_back("the fork ends", move || {
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        said
    });
    #[allow(unsafe_code)] // safety: a null status is allowed
    let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(waited, child);
    said
}

/// What a caller may hold when the process forks.
struct Held {
    store: Store,
    claims: BTreeMap<&'static str, Claim>,
    /// Has the key for which others wait.
    other: Option<Claim>,
}

const CLAIMS: [(&str, Durability); 13] = [
    ("complete", Durability::Full),
    ("complete in memory", Durability::Result),
    ("fail", Durability::Full),
    ("omit", Durability::Relaxed),
    ("release", Durability::Full),
    ("release in memory", Durability::Relaxed),
    ("complete with effects", Durability::Full),
    ("complete many", Durability::Full),
    ("complete as a task", Durability::Result),
    ("renew", Durability::Full),
    ("keep alive", Durability::Result),
    ("checkpoint", Durability::Full),
    ("removed by force", Durability::Result),
];

fn said<T, E: Debug + ToString>(told: Result<T, E>) -> String {
    told.map_or_else(|error| error.to_string(), |_| "done".to_owned())
}

/// What a task is told at its first poll.
fn now(future: impl Future<Output = String>) -> String {
    match poll(std::pin::pin!(future), &Woken::new()) {
        Poll::Ready(told) => told,
        Poll::Pending => "it waits".to_owned(),
    }
}

/// Tries everything that writes, or waits, or asks storage; one line for each, with what it was told.
fn tries_everything(mut held: Held, waiting: impl Future<Output = String>, lock: claimdb::Lock) -> String {
    let mut lines = String::new();
    let mut line = |what: &str, told: String| writeln!(lines, "{what}: {told}").unwrap();
    let store = held.store.clone();
    let mut claim = |name: &str| held.claims.remove(name).unwrap();
    let values = store.kv("values");
    let scope = store.scope("").unwrap();

    line("complete", said(claim("complete").complete("forked")));
    line("complete in memory", said(claim("complete in memory").complete("forked")));
    line("fail", said(claim("fail").fail("forked")));
    line("omit", said(claim("omit").omit(Omission::OnPurpose)));
    line("release", said(claim("release").release()));
    line("release in memory", said(claim("release in memory").release()));
    let effects = Writes::new().put("values", "k", "forked");
    line("complete with effects", said(claim("complete with effects").complete_with("forked", effects)));
    let many = store.complete_many([(claim("complete many"), "forked")]).pop().unwrap();
    line("complete many", said(many));
    let task = claim("complete as a task").complete_async("forked");
    line("complete as a task", now(async { said(task.await) }));
    line("renew", said(claim("renew").renew(DAY)));
    line("keep alive", said(claim("keep alive").keep_alive(DAY)));
    line("checkpoint", said(claim("checkpoint").checkpoint("forked")));
    line("remove by force", said(store.remove_by_force("removed by force")));
    line(
        "lose it by that",
        match claim("removed by force").lost().cause() {
            None => "is its fork's no less than before".to_owned(),
            cause => format!("{cause:?}"),
        },
    );

    for durability in [Durability::Full, Durability::Result] {
        line("claim", said(store.claim(Request::new("new").durability(durability))));
    }
    line("claim and wait", said(store.claim(Request::new("held").wait(DAY))));
    line("claim what is settled", said(store.claim("settled")));
    let task = store.claim_async("new");
    line("claim as a task", now(async { said(task.await) }));
    line("a claim that was waiting", now(waiting));
    line("claim many", said(store.claim_many(["new"]).pop().unwrap()));
    line("claim all", said(store.claim_all(["new", "newer"])));
    line("claim all and wait", said(store.claim_all([Request::new("held").wait(DAY)])));
    line("run", said(store.run("new", |_| Ok::<_, String>(1))));
    line("lock", said(store.lock("new", Duration::ZERO)));
    line("wait for a lock", said(store.lock("lock", DAY)));
    line("renew a lock", said(lock.renew(DAY)));

    line("get", said(store.get("settled")));
    line("inspect", said(store.inspect("settled")));
    line("remove", said(store.remove("settled")));
    line("resolve", said(store.resolve("settled", Token::new(1), Resolution::omitted())));
    line("scan", said(store.scan("", "").unwrap().next().transpose()));
    line("list pending", said(store.pending().next().transpose()));
    line("list interrupted", said(store.interrupted().next().transpose()));
    line("list scopes", said(store.scopes()));
    line("count", said(scope.count()));
    line("empty a scope", said(scope.empty(LiveClaims::Fence)));
    line("put", said(values.put("k", "forked")));
    line("read a value", said(values.get("k")));
    line("swap a value", said(values.compare_and_swap("k", None, Some(b"forked"))));
    line("scan values", said(values.scan("").unwrap().next().transpose()));
    line("write", said(store.write(Writes::new().put("values", "k", "forked"))));
    line("sweep", said(store.sweep(10)));
    line("rebuild the index", said(store.rebuild_index()));
    line("sync", said(store.sync()));
    line("close", said(store.close()));
    drop((store, values, scope, lock, held)); // what is left must not close the store either
    lines
}

/// The bytes of all files below `folder`.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    found
}

fn forks(place: &(impl Backend + Clone + 'static), sync_by: SyncBy, folder: Option<&Path>) {
    let builder = || Store::builder(place.clone()).sync_by(sync_by).sweep_every(Duration::ZERO).lease(DAY);
    let store = builder().open().unwrap();
    let grant = |name: &str, durability| {
        store.claim(Request::new(name).durability(durability)).unwrap().granted().unwrap()
    };
    grant("settled", Durability::Full).complete("settled").unwrap();
    let _ = (store.claim("settled"), store.claim("settled")); // told from memory from now on
    let other = Some(grant("held", Durability::Full));
    let lock = store.lock("lock", Duration::ZERO).unwrap().unwrap();
    let claims = || CLAIMS.map(|(name, durability)| (name, grant(name, durability)));
    let claims = claims().into();
    let task = store.claim_async(Request::new("held").wait(DAY));
    let mut waiting = Box::pin(async move { said(task.await) });
    assert!(poll(waiting.as_mut(), &Woken::new()).is_pending());
    store.sync().unwrap();
    // Nothing else keeps the store: the fork drops it as well.
    let held = Held { store, claims, other };

    let before = folder.map(files);
    // The fork has all of it as a copy: what it takes is still here.
    let mut kept = Some((held, waiting, lock));
    let told = in_a_fork(|| {
        let (held, waiting, lock) = kept.take().unwrap();
        tries_everything(held, waiting, lock)
    });
    assert!(folder.map(files) == before, "rule 9: a fork wrote to the folder");
    assert!(told.lines().count() > 40, "the fork did not get through: {told}");
    let done: Vec<_> = told.lines().filter(|line| !line.contains("is its fork")).collect();
    assert!(done.is_empty(), "rule 9: a fork was not refused: {done:#?}");

    // This process goes on as if nothing had been.
    let (mut held, waiting, lock) = kept.unwrap();
    let store = held.store.clone();
    assert!(builder().lock_wait(Duration::ZERO).open().is_err(), "rule 9: the fork gave the lock away");
    lock.renew(SEC).unwrap();
    assert!(held.claims["keep alive"].remaining() > SEC);
    held.claims.get_mut("checkpoint").unwrap().checkpoint("half").unwrap();
    for (_, claim) in std::mem::take(&mut held.claims) {
        claim.renew(DAY).unwrap();
        claim.complete("done").unwrap();
    }
    held.other.take().unwrap().complete("done").unwrap();
    assert_eq!(hooks::block_on(waiting), "done");
    drop(held);
    store.close().unwrap();
    let store = builder().open().unwrap();
    assert!(store.get("settled").unwrap().is_some(), "P8 remembered");
    assert!(store.get("held").unwrap().is_some(), "P8 remembered");
    assert_eq!(store.kv("values").get("k").unwrap(), None, "rule 9: a fork wrote a value");
    assert_eq!(store.claim("new").unwrap().granted().unwrap().attempt(), 1, "rule 9: a fork claimed a key");
}

#[test]
fn a_fork_is_refused_and_changes_nothing() {
    for sync_by in [SyncBy::Caller, SyncBy::Thread] {
        forks(&Mem::new(), sync_by, None);
        #[cfg(feature = "sled")]
        {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store");
            forks(&claimdb::backend::Sled::new(&path), sync_by, Some(&path));
        }
    }
}
