//! A service in which everything happens, full of secrets; what it shows is collected.

use crate::faults::{Fault, Faulty, Syncs};
use crate::http_world;
use crate::script::{Answer, Gate};
use crate::secrets::{EFFECT, KEY, PROGRESS, REASON, SCOPE, Shown, VALUE, fingerprint};
use crate::world::{LEASE, SEC};
use claimdb::backend::Sled;
use claimdb::{
    Claim, Durability, Ending, Fingerprint, Key, ManualClock, OnInterrupt, Outcome, Request, Resolution,
    Settled, Store, SyncBy, Worked, Writes,
};
use http::Method;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn request() -> Request {
    Request::new(Key::scoped(SCOPE, KEY).unwrap()).fingerprint(fingerprint())
}

fn open(drive: &Faulty, clock: &ManualClock, name: &str) -> Store {
    let builder = Store::builder(drive.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).name(name);
    builder.sweep_every(Duration::ZERO).open().unwrap()
}

fn grant(shown: &mut Shown, store: &Store, request: &Request) -> Claim {
    shown.debug("Request", request);
    let told = store.claim(request.clone()).unwrap();
    shown.debug("Outcome", &told);
    told.granted().expect("the key is free")
}

/// Every outcome of a claim and every end of one, without HTTP.
pub fn play_store(shown: &mut Shown) {
    let (drive, clock) = (Faulty::new(), ManualClock::new());
    let store = open(&drive, &clock, "secrets");
    shown.debug("Store", &store);
    shown.debug("Scope", &store.scope(SCOPE).unwrap());

    // Fresh, busy, mismatched, replayed.
    let mut claim = grant(shown, &store, &request());
    claim.checkpoint(PROGRESS).unwrap();
    shown.debug("Claim", &claim);
    shown.debug("LossSignal", &claim.lost());
    shown.told("in flight", store.claim(request()));
    shown.told("mismatched", store.claim(request().fingerprint(Fingerprint::of_bytes(KEY))));
    shown.told("removal of a busy key", store.remove(Key::scoped(SCOPE, KEY).unwrap()));
    let effects = Writes::new().put(EFFECT, EFFECT.as_bytes(), VALUE.as_bytes());
    shown.debug("Writes", &effects);
    claim.complete_with(VALUE, effects).unwrap();
    let replay = store.claim(request()).unwrap();
    shown.debug("replay", &replay);
    let Outcome::Settled(Settled::Completed(stored)) = replay else { panic!("it was completed") };
    decode_as_others(shown, &stored);
    shown.told("inspection", store.inspect(Key::scoped(SCOPE, KEY).unwrap()));
    shown.told("get", store.get(Key::scoped(SCOPE, KEY).unwrap()));
    let values = store.kv(EFFECT);
    shown.debug("Kv", &values);
    shown.debug("scan", &store.scan(SCOPE, "").unwrap());
    shown.told("value that is too long", values.put(EFFECT, vec![7; 2 << 20]));
    shown.told("swap of a value", values.compare_and_swap(EFFECT, None, Some(VALUE.as_bytes())));

    // Bytes that are no value of ours, decoded.
    grant(shown, &store, &Request::new(VALUE)).complete_bytes(VALUE).unwrap();
    let Ok(Outcome::Settled(Settled::Completed(stored))) = store.claim(VALUE) else {
        panic!("it was completed")
    };
    decode_as_others(shown, &stored);

    // Run: fresh, failing, panicking, undecodable, failed for good, too large.
    let name = |name: &str| Request::new(format!("{KEY} {name}")).fingerprint(fingerprint());
    assert!(store.run(name("run"), |_| Ok::<_, std::io::Error>(VALUE.to_owned())).is_ok());
    shown.told("run of another type", store.run(name("run"), |_| Ok::<u8, std::io::Error>(7)));
    shown.told("run that fails", store.run(name("fails"), |_| Err::<u8, _>(std::io::Error::other("no"))));
    let rule = |worked: Worked<'_, u8, std::io::Error>| {
        let ending = match worked {
            Worked::Failed(_) => Ending::fail(REASON).unwrap(),
            other => other.default_ending(),
        };
        assert!(!format!("{ending:?}").contains(REASON));
        ending
    };
    for what in ["a failure for good", "its replay"] {
        shown.told(what, store.run_by(name("final"), rule, |_| Err(std::io::Error::other("no"))));
    }
    let panics = || store.run(name("panics"), |_| -> Result<(), std::io::Error> { panic!("on purpose") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    drive.arm(3, 100, Fault::FailBefore);
    shown.told(
        "run that is not recorded",
        store.run(name("lost"), |_| Ok::<_, std::io::Error>(VALUE.to_owned())),
    );
    drive.disarm();
    shown.told("nested claim", store.run(name("nested"), |_| store.claim(name("nested")).map(drop)));
    let large = grant(shown, &store, &name("large")).complete_bytes(VALUE.repeat(1 << 16));
    shown.told("a result that is too large", large);
    let failed = grant(shown, &store, &name("refused")).complete(&Refusing);
    shown.told("a result that is not encoded", failed);
    shown.told("no key", store.claim(Request::new(KEY.repeat(100))));

    // Reclaimed, late, interrupted, resolved.
    let slow = grant(shown, &store, &name("slow"));
    clock.advance(LEASE);
    let next = grant(shown, &store, &name("slow"));
    shown.told("a late renewal", slow.renew(LEASE));
    shown.told("a late completion", slow.complete(VALUE));
    drop(next);
    let quarantined = name("quarantined").on_interrupt(OnInterrupt::Quarantine);
    let mut claim = grant(shown, &store, &quarantined);
    claim.checkpoint(PROGRESS).unwrap();
    drop(claim);
    for what in ["becomes interrupted", "is interrupted"] {
        shown.told(what, store.claim(quarantined.clone()));
    }
    let cases: Vec<_> = store.interrupted().collect();
    shown.debug("the interrupted", &cases);
    let Ok(Outcome::Interrupted(case)) = store.claim(quarantined.clone()) else {
        panic!("it is interrupted")
    };
    let resolution = Resolution::completed(VALUE).unwrap();
    shown.debug("Resolution", &resolution);
    assert!(store.resolve(format!("{KEY} quarantined"), case.token(), resolution).unwrap());
    shown.debug("pending", &store.pending().collect::<Vec<_>>());
    let lock = store.lock(KEY, Duration::ZERO).unwrap().unwrap();
    shown.debug("Lock", &lock);
    clock.advance(LEASE);
    shown.told("renewal of a lock that is over", lock.renew(LEASE));
    drop(lock);
    let many = store.claim_many([request(), name("many"), Request::new("")]);
    shown.debug("many", &many);
    shown
        .debug("all", &store.claim_all([name("all"), request().fingerprint(Fingerprint::of_bytes("other"))]));

    // Swept, poisoned.
    clock.advance(Duration::from_secs(200_000));
    while store.sweep(100).unwrap().more {}
    let claim = grant(shown, &store, &name("poisoned"));
    drive.syncs(Syncs::Fail);
    shown.told("a completion whose sync fails", claim.complete(VALUE));
    shown.told("a claim after that", store.claim(name("after")));
    shown.told("a look after that", store.get(format!("{KEY} poisoned")));
    shown.debug("a poisoned Store", &store);
    shown.told("its close", store.close());
    shown.told("a claim after the close", store.claim(name("closed")));
}

/// Storage that fails at each of the first calls of a claim, a completion and a sweep.
pub fn play_faults(shown: &mut Shown) {
    for (fault, first) in
        [Fault::FailBefore, Fault::FailAfter].into_iter().flat_map(|f| (0..8).map(move |n| (f, n)))
    {
        let drive = Faulty::new();
        let store = open(&drive, &ManualClock::new(), "faults");
        drive.arm(first, 2, fault);
        let told = store.claim(request().durability(Durability::Result));
        if let Some(Outcome::Granted(claim)) = shown.told("a fault", told) {
            shown.told("a fault in completing", claim.complete(VALUE));
        }
        shown.told("a fault in removing", store.remove(Key::scoped(SCOPE, KEY).unwrap()));
        shown.told("a fault in sweeping", store.sweep(10));
        drive.disarm();
        shown.told("a close after faults", store.close());
    }
}

/// Each kind of damage, with secrets in it.
pub fn play_damage(shown: &mut Shown) {
    let framed = |version: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let checked = [&[version, 0], &length[..], payload].concat();
        let checksum = crc32fast::hash(&checked).to_le_bytes();
        [&[0xC1, 0xDB], &checked[..6], &checksum[..], payload].concat()
    };
    let (drive, clock) = (Faulty::new(), ManualClock::new());
    open(&drive, &clock, "damaged").close().unwrap();
    let secret = [VALUE, PROGRESS, VALUE].concat().into_bytes();
    let mut torn = framed(1, &secret);
    torn[12] ^= 1;
    let records = [secret.clone(), framed(1, &secret), framed(9, &secret), torn, framed(1, &[])];
    for (number, bytes) in records.iter().enumerate() {
        drive.put(format!("\x01\0{KEY}{number}").as_bytes(), Some(bytes));
    }
    drive.put(b"\x01\xffno key", Some(VALUE.as_bytes()));
    let store = open(&drive, &clock, "damaged");
    for number in 0..records.len() {
        let key = format!("{KEY}{number}");
        let Err(error) = store.claim(key.as_str()) else {
            panic!("P9 fail closed: a damaged record was granted")
        };
        shown.error("a damaged record", &error);
        shown.told("a damaged record that is read", store.get(key.as_str()));
        shown.told("a damaged record that is removed", store.remove(key.as_str()));
        shown.told("a damaged record that is inspected", store.inspect(key.as_str()));
    }
    for told in store.scan("", "").unwrap() {
        shown.told("a damaged record in a list", told);
    }
    shown.told("sweeping past damage", store.sweep(100));
    assert!(store.stats().damaged >= records.len() as u64);
}

/// The HTTP layer, with secrets in keys, bodies and responses.
pub fn play_http(shown: &mut Shown) {
    let (drive, clock) = (Faulty::new(), ManualClock::new());
    let mut world = http_world::World::over(
        &clock,
        &drive,
        |store| store.name("http"),
        http_world::owner(),
        |layer| layer.lease(LEASE).max_hold(LEASE),
    );
    let post = |key: &str, body: &str| {
        let fields = [("idempotency-key", key), ("x-owner", SCOPE), ("x-card", VALUE)];
        http_world::request(Method::POST, "/orders", &fields, body)
    };
    world.script.answer(Answer {
        body: VALUE.to_owned(),
        checkpoint: Some(PROGRESS.to_owned()),
        ..Answer::default()
    });
    assert!(!world.ask(post(KEY, VALUE)).is_replay());
    assert!(world.ask(post(KEY, VALUE)).is_replay());
    shown.debug("ClaimHandle", &world.script.last().handle);
    shown.problem("another body", &world.ask(post(KEY, REASON)));
    shown.problem("a key that is none", &world.ask(post(&format!("\"{KEY}"), VALUE)));
    shown.problem("a long key", &world.ask(post(&KEY.repeat(100), VALUE)));
    let gate = Gate::default();
    world.script.answer(Answer::held(&gate));
    let slow = world.send(post(&format!("{KEY}-slow"), VALUE));
    let handle = world.script.last().handle.unwrap();
    shown.problem("a busy key", &world.ask(post(&format!("{KEY}-slow"), VALUE)));
    // Its lease runs out, another takes the key over, and it comes back.
    world.advance(LEASE + SEC);
    world.script.answer(Answer { body: VALUE.to_owned(), ..Answer::default() });
    assert!(!world.ask(post(&format!("{KEY}-slow"), VALUE)).is_replay());
    shown.error("a late checkpoint", &handle.checkpoint(PROGRESS).unwrap_err());
    gate.open();
    let late = world.ended(&slow);
    assert!(late.status() == 200 || !late.code().is_empty(), "{late:?}");
    for first in 0..6 {
        drive.arm(first, 100, Fault::FailBefore);
        let seen = world.ask(post(&format!("{KEY}-faulty{first}"), VALUE));
        if !seen.code().is_empty() {
            shown.problem("a fault", &seen);
        }
        drive.disarm();
    }
    drive.syncs(Syncs::Fail);
    shown.problem("a failed sync", &world.ask(post(&format!("{KEY}-last"), VALUE)));
    shown.debug("Idempotency", &world.layer);
}

/// The default engine, opened after it was not closed. What sled logs by itself is looked at apart.
pub fn play_sled(shown: &mut Shown) {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let store = Store::builder(Sled::new(folder.path())).name("sled").open().unwrap();
        shown.debug("a Store on disk", &store);
        grant(shown, &store, &Request::new(format!("{KEY}{round}")).fingerprint(fingerprint()))
            .complete(VALUE)
            .unwrap();
        assert!(!store.sweep(10).unwrap().more);
        store.close().unwrap();
        std::fs::remove_file(folder.path().join("clean")).unwrap();
    }
    shown.debug("Sled", &Sled::new(folder.path()));
    let error = Store::open(folder.path().join("lock")).unwrap_err();
    shown.error("opening what is none", &error);
}

struct Refusing;

impl serde::Serialize for Refusing {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it cannot be"))
    }
}

#[derive(Debug, serde::Deserialize)]
#[allow(dead_code)]
enum Choice {
    One(u64),
    Two { name: String },
}

/// Types that the value is none of; what serde finds wrong shows the value if it is let.
fn decode_as_others(shown: &mut Shown, stored: &claimdb::Stored) {
    fn decode<T: Debug + DeserializeOwned>(shown: &mut Shown, stored: &claimdb::Stored) {
        shown.told(std::any::type_name::<T>(), stored.decode::<T>().map(drop));
    }
    decode::<u8>(shown, stored);
    decode::<bool>(shown, stored);
    decode::<char>(shown, stored);
    decode::<Choice>(shown, stored);
    decode::<Option<u64>>(shown, stored);
    decode::<Result<u8, u16>>(shown, stored);
    decode::<Vec<String>>(shown, stored);
    decode::<(u64, String)>(shown, stored);
    decode::<std::num::NonZeroU64>(shown, stored);
    decode::<Duration>(shown, stored);
    decode::<std::net::IpAddr>(shown, stored);
    decode::<std::ops::Bound<u8>>(shown, stored);
    decode::<std::collections::BTreeMap<String, u8>>(shown, stored);
    decode::<serde_json::Value>(shown, stored);
}
