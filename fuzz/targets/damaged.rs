//! A store in which bytes are not what claimdb wrote: each way to look at it ends with an answer or an error, never a
//! panic, and a key whose record is damaged is not free (P9).
#![no_main]

mod framed;

use arbitrary::Arbitrary;
use claimdb::backend::{Backend, Commit, Engine, Mem};
use claimdb::{LiveClaims, ManualClock, Omission, Outcome, Record, Request, Store, SyncBy, Writes};
use framed::framed;
use libfuzzer_sys::fuzz_target;
use std::ops::ControlFlow;
use std::time::Duration;

#[derive(Debug, Arbitrary)]
struct Change<'a> {
    /// Which of the pairs that are there.
    pair: u8,
    to: To<'a>,
}

#[derive(Debug, Arbitrary)]
enum To<'a> {
    Bytes(&'a [u8]),
    /// In a frame that is right.
    Payload(&'a [u8]),
    Cut(u8),
    Flipped(u16),
    Removed,
    /// Another pair, whose key begins as this one's does.
    Beside(&'a [u8], &'a [u8]),
}

const DONE: &str = "done";
const RESULT: &[u8] = b"the result that only this record holds";

fuzz_target!(|changes: Vec<Change<'_>>| {
    let (place, clock) = (Mem::new(), ManualClock::new());
    let store = open(&place, &clock).expect("memory opens");
    fill(&store);
    store.close().expect("memory closes");
    drop(store);

    let engine = place.open().expect("the store is closed");
    let done = pairs(&*engine).into_iter().find(|(_, value)| has_result(value));
    let (done, _) = done.expect("it was completed");
    for change in &changes {
        apply(&*engine, change);
    }
    let record = engine.read(&done).expect("memory does not fail");
    let damaged = record.is_some_and(|record| Record::decode(&record).is_err());
    drop(engine);

    let builder = Store::builder(place.clone()).clock(clock.clone());
    let mut flaws = 0;
    let sound = builder.verify(&mut |_| flaws += 1).expect("memory does not fail").is_sound();
    assert_eq!(sound, flaws == 0, "flaws were told and not counted");
    assert!(!(sound && damaged), "a damaged record is no flaw");
    let Ok(store) = open(&place, &clock) else { return };
    if damaged {
        let told = store.claim(DONE);
        assert!(!matches!(told, Ok(Outcome::Granted(_))), "P9 fail closed: a damaged record freed its key");
    }
    use_all(&store, &clock);
});

fn open(place: &Mem, clock: &ManualClock) -> Result<Store, claimdb::OpenError> {
    Store::builder(place.clone()).clock(clock.clone()).sync_by(SyncBy::Caller).open()
}

fn claim(store: &Store, key: &str) -> claimdb::Claim {
    store.claim(key).expect("memory does not fail").granted().expect("nobody else has it")
}

fn fill(store: &Store) {
    claim(store, DONE).complete_bytes(RESULT).expect("it is settled");
    claim(store, "failed").fail("no").expect("it is settled");
    claim(store, "omitted").omit(Omission::TooLarge).expect("it is settled");
    let effects = Writes::new().put("values", "effect", "1");
    claim(store, "effects").complete_with("2", effects).expect("it is settled");
    let mut pending = claim(store, "pending");
    pending.checkpoint("half").expect("it is checkpointed");
    let _ = store.close();
    drop(pending);
}

fn pairs(engine: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    let mut take = |key: &[u8], value: &[u8]| {
        pairs.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    engine.scan(&[], None, &mut take).expect("memory does not fail");
    pairs
}

fn has_result(value: &[u8]) -> bool {
    value.windows(RESULT.len()).any(|part| part == RESULT)
}

fn apply(engine: &dyn Engine, change: &Change<'_>) {
    let pairs = pairs(engine);
    let Some((key, value)) = pairs.get(usize::from(change.pair) % pairs.len().max(1)) else { return };
    let put = |key: &[u8], value: Option<&[u8]>| {
        let before = engine.read(key).expect("memory does not fail");
        let commit = Commit::swap(key, before.as_deref(), value);
        engine.commit(&[commit]).remove(0).expect("memory does not fail");
    };
    let mut new = value.clone();
    match change.to {
        To::Bytes(bytes) => new = bytes.to_vec(),
        To::Payload(payload) => new = framed(payload),
        To::Cut(length) => new.truncate(usize::from(length)),
        To::Flipped(bit) if !new.is_empty() => {
            let bit = usize::from(bit) % (8 * new.len());
            new[bit / 8] ^= 1 << (bit % 8);
        }
        To::Flipped(_) => {}
        To::Removed => return put(key, None),
        To::Beside(rest, value) => {
            let prefix = key.get(..1).unwrap_or_default();
            return put(&[prefix, rest].concat(), Some(value));
        }
    }
    put(key, Some(&new));
}

/// Every verb once; answers and errors are both right here.
fn use_all(store: &Store, clock: &ManualClock) {
    for key in [DONE, "failed", "omitted", "effects", "pending", "fresh"] {
        let _ = store.get(key);
        let _ = store.inspect(key);
        let _ = store.claim(Request::new(key).wait(Duration::ZERO)).map(Outcome::granted);
    }
    let values = store.kv("values");
    let _ = (values.get("effect"), values.put("effect", "3"));
    let _ = values.scan("").map(|pairs| pairs.take(100).filter(Result::is_ok).count());
    let _ = store.pending().take(100).count();
    let _ = store.interrupted().take(100).count();
    let _ = store.scopes();
    let _ = store.backup_to(&Mem::new());
    clock.advance(Duration::from_secs(400 * 86_400));
    let _ = (store.sweep(100), store.rebuild_index(), store.sweep(100));
    for key in [DONE, "pending"] {
        let _ = store.remove(key);
        let _ = store.remove_by_force(key);
    }
    if let Ok(scope) = store.scope("") {
        let _ = (scope.count(), scope.empty(LiveClaims::Refuse));
    }
    let _ = store.close();
}
