//! Copies of closed stores: what is in them, and what a copy that failed or was cut off leaves on either side.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{
    Claim, CopyError, Durability, ManualClock, Omission, OnInterrupt, OpenError, Outcome, Request,
    Resolution, Settled, StorageError, Store, SyncBy, Token, WallTime,
};
use faults::{FAULTS, Fault, Faulty};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// No copy here makes as many calls of one engine.
const MANY: u64 = 60;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn open(place: &(impl Backend + Clone + 'static), clock: &ManualClock) -> Store {
    try_open(place, clock).expect("without faults it opens")
}

fn try_open(place: &(impl Backend + Clone + 'static), clock: &ManualClock) -> Result<Store, OpenError> {
    // Nothing is swept beside the test.
    let builder = Store::builder(place.clone()).clock(clock.clone()).sync_by(SyncBy::Caller);
    builder.lock_wait(Duration::ZERO).open()
}

fn migrate(
    from: &(impl Backend + Clone + 'static),
    to: &dyn Backend,
    clock: &ManualClock,
) -> Result<claimdb::Copied, CopyError> {
    Store::builder(from.clone()).clock(clock.clone()).lock_wait(Duration::ZERO).migrate(to)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("P6 never stuck: expected a grant, was told {other:?}"),
    }
}

/// A closed store with something of everything, and the greatest token that it granted.
fn filled(clock: &ManualClock) -> (Faulty, Token) {
    let place = Faulty::new();
    let store = open(&place, clock);
    grant(&store, Request::new("forgotten").retention(HOUR)).complete("old").unwrap();
    clock.advance(2 * HOUR);
    for n in 0..200 {
        grant(&store, Request::new(format!("done-{n}")).durability(Durability::Result)).complete(&n).unwrap();
    }
    grant(&store, "failed").fail("declined").unwrap();
    grant(&store, "omitted").omit(Omission::OnPurpose).unwrap();
    let mut pending = grant(&store, "pending");
    pending.checkpoint("half").unwrap();
    drop(grant(&store, Request::new("case").on_interrupt(OnInterrupt::Quarantine)));
    assert!(matches!(store.claim("case"), Ok(Outcome::Interrupted(_))));
    for n in 0..100_u64 {
        store.kv("values").put_value(n.to_be_bytes(), &n).unwrap();
    }
    store.kv("large").put("k", vec![7; 3 << 20]).expect_err("it is above the limit of this store");
    let last = grant(&store, "released");
    let token = last.token();
    last.release().unwrap();
    drop(pending);
    store.close().unwrap();
    (place, token)
}

#[test]
fn a_copy_holds_what_is_remembered_as_it_was_and_nothing_else() {
    let clock = ManualClock::new();
    let ((source, _), target) = (filled(&clock), Faulty::new());
    let before = source.stored(&[]);
    let copied = migrate(&source, &target, &clock).unwrap();
    assert_eq!((copied.records, copied.values, copied.forgotten, copied.unreadable), (204, 100, 1, 0));
    assert_eq!(source.stored(&[]), before, "the source was changed");

    let is_forgotten = |key: &[u8]| key.ends_with(b"forgotten");
    let records: Pairs = source.stored(&[1]).into_iter().filter(|(key, _)| !is_forgotten(key)).collect();
    assert!(target.stored(&[1]) == records, "P8: records are not as they were");
    assert!(target.stored(&[3]) == source.stored(&[3]), "plain values are not as they were");
    let of_time =
        |place: &Faulty| place.stored(b"\0").into_iter().find(|(key, _)| key.ends_with(b"high-water"));
    assert!(
        of_time(&target).is_some() && of_time(&target) == of_time(&source),
        "P8: a clock that is set back brings to life in the copy what was forgotten"
    );
    // All but the interrupted one have an entry, and nothing else has.
    assert_eq!(target.stored(&[4]).len(), records.len() - 1, "the retention index was not made anew");

    let store = open(&target, &clock);
    let Some(Settled::Completed(stored)) = store.get("done-7").unwrap() else { panic!("P8 remembered") };
    assert_eq!(stored.decode::<i32>().unwrap(), 7);
    assert!(matches!(store.get("failed").unwrap(), Some(Settled::Failed(_))));
    assert!(matches!(store.get("omitted").unwrap(), Some(Settled::Omitted(_))));
    let Outcome::Interrupted(case) = store.claim("case").unwrap() else { panic!("it was interrupted") };
    assert!(store.resolve("case", case.token(), Resolution::omitted()).unwrap());
    let again = grant(&store, "pending");
    assert_eq!((again.attempt(), again.last_checkpoint()), (2, Some(&b"half"[..])));
    again.complete("done").unwrap();
    // The index that was made anew finds all of it when its time has come.
    clock.advance(48 * HOUR);
    while store.sweep(1000).unwrap().more {}
    assert_eq!((target.stored(&[1]).len(), target.stored(&[4]).len()), (0, 0), "rule 21: left behind");
}

#[test]
fn tokens_of_a_copy_are_above_all_that_were_granted_before_it() {
    let clock = ManualClock::new();
    let ((source, last), target) = (filled(&clock), Mem::new());
    migrate(&source, &target, &clock).unwrap();
    // With a clock that helps nothing: it is the ceiling that was copied.
    clock.set_wall(WallTime::from_unix_millis(0));
    let granted = grant(&open(&target, &clock), "new").token();
    assert!(granted > last, "P2 ordered tokens: the copy granted {granted}, after {last} before it was made");
}

/// Takes a copy through faults of one of its sides, and judges what is left: `judge` is told whether it failed.
fn at_every_call(side: usize, power_cut: bool, counts: &[u64]) {
    let clock = ManualClock::new();
    let (source, _) = filled(&clock);
    let before = source.stored(&[]);
    let whole = Faulty::new();
    migrate(&source, &whole, &clock).unwrap();
    let whole = whole.stored(&[]);
    let mut left = [0; 3];
    for (fault, count) in FAULTS.into_iter().flat_map(|fault| counts.iter().map(move |count| (fault, *count)))
    {
        let mut fired = 0;
        for n in 0.. {
            assert!(n < MANY, "the copy never ends");
            let name = format!("{count} {fault:?} at call {n} of side {side}, power cut: {power_cut}");
            let target = Faulty::new();
            let sides = [&source, &target];
            sides[side].arm(n, count, fault);
            let told = catch_unwind(AssertUnwindSafe(|| migrate(&source, &target, &clock)));
            let done = matches!(told, Ok(Ok(_)));
            if power_cut {
                target.crash();
            }
            let calls = sides[side].disarm();
            assert!(source.stored(&[]) == before, "a copy that failed changed its source: {name}");
            let found = target.stored(&[]);
            let opened = try_open(&target, &clock);
            if found == whole {
                opened.unwrap_or_else(|error| panic!("{name}: it is whole, and: {error}"));
                left[2] += 1;
            } else {
                assert!(!done, "a copy that was told of is not whole: {name}");
                // A place that was not begun is no copy, and a new store may be made there.
                left[usize::from(!found.is_empty())] += 1;
                let refused = matches!(opened, Err(OpenError::UnfinishedCopy { .. }));
                assert!(refused || found.is_empty(), "rule 8: an unfinished copy passes for a store: {name}");
            }
            if calls.is_empty() {
                assert!(done, "{name}: nothing went wrong: {told:?}");
                break;
            }
            fired += 1;
        }
        assert!(fired > 0, "{fault:?} never fired: the test tests nothing");
    }
    assert!(left[1] > 0 && left[2] > 0, "nothing was cut in the middle, or nothing was whole: {left:?}");
}

#[test]
fn at_every_fault_of_the_target_a_copy_is_whole_or_refused_and_the_source_is_as_it_was() {
    at_every_call(1, false, &[1, MANY]);
}

#[test]
fn at_every_power_cut_of_the_target_a_copy_is_whole_or_refused_and_the_source_is_as_it_was() {
    at_every_call(1, true, &[1, MANY]);
}

#[test]
fn at_every_fault_of_the_source_a_copy_is_whole_or_refused_and_the_source_is_as_it_was() {
    at_every_call(0, false, &[1, MANY]);
    at_every_call(0, true, &[1]);
}

#[test]
fn the_mark_of_an_unfinished_copy_is_the_documented_bytes() {
    let clock = ManualClock::new();
    let ((source, _), target) = (filled(&clock), Faulty::new());
    target.arm(4, 1, Fault::FailBefore);
    assert!(matches!(migrate(&source, &target, &clock), Err(CopyError::Storage(_))));
    target.disarm();
    let stored = target.stored(b"\0token-ceiling");
    let hex: Vec<_> = stored[0].1.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex.join(" "), include_str!("golden/unfinished_copy_v1.hex").trim());
    let error = try_open(&target, &clock).expect_err("it is not finished");
    assert!(error.to_string().contains("delete it and make the copy again"), "{error}");
}

#[test]
fn what_cannot_be_copied_or_copied_to_is_told_and_left_alone() {
    let clock = ManualClock::new();
    let (source, _) = filled(&clock);

    // A store, an unfinished copy, and anything else there is.
    let other = Faulty::new();
    grant(&open(&other, &clock), "mine").complete("kept").unwrap();
    let before = other.stored(&[]);
    let told = migrate(&source, &other, &clock);
    assert!(matches!(told, Err(CopyError::NotEmpty { .. })), "{told:?}");
    assert!(other.stored(&[]) == before, "a place that holds something was written to");
    let unfinished = Faulty::new();
    unfinished.arm(5, 1, Fault::FailBefore);
    assert!(migrate(&source, &unfinished, &clock).is_err());
    unfinished.disarm();
    assert!(matches!(migrate(&source, &unfinished, &clock), Err(CopyError::NotEmpty { .. })));
    let told = migrate(&unfinished, &Mem::new(), &clock);
    assert!(matches!(told, Err(CopyError::Open(OpenError::UnfinishedCopy { .. }))), "{told:?}");

    // In use, on either side, and onto itself.
    let store = open(&source, &clock);
    let told = migrate(&source, &Mem::new(), &clock);
    assert!(matches!(told, Err(CopyError::Open(OpenError::Locked { .. }))), "rule 9: {told:?}");
    let busy = Mem::new();
    let holder = open(&busy, &clock);
    store.close().unwrap();
    let told = migrate(&source, &busy, &clock);
    assert!(matches!(told, Err(CopyError::Open(OpenError::Locked { .. }))), "rule 9: {told:?}");
    holder.close().unwrap();
    let told = migrate(&source, &source, &clock);
    assert!(matches!(told, Err(CopyError::Open(OpenError::Locked { .. }))), "{told:?}");

    // No store, and one without its ceiling.
    let told = migrate(&Mem::new(), &Mem::new(), &clock);
    assert!(matches!(told, Err(CopyError::Open(OpenError::NoStore { .. }))), "{told:?}");
    source.put(b"\0token-ceiling", None);
    let (told, target) = (migrate(&source, &Mem::new(), &clock), Faulty::new());
    assert!(matches!(told, Err(CopyError::Open(OpenError::Damaged { .. }))), "P2: {told:?}");
    assert!(target.stored(&[]).is_empty());
}

/// A place that an engine does not open.
#[derive(Debug)]
struct Unopened(OpenError);

impl Backend for Unopened {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Err(self.0.clone())
    }
}

#[test]
fn a_copy_that_could_not_be_begun_is_told_as_a_copy_and_by_the_folder_that_was_asked_for() {
    let clock = ManualClock::new();
    let (source, _) = filled(&clock);
    let above = tempfile::tempdir().unwrap();
    let copy = above.path().join("copy");
    let place = || "copy.partial".to_owned();
    let failed = |kind: io::ErrorKind| StorageError::new("writing to", "copy.partial", io::Error::from(kind));
    let full = failed(io::ErrorKind::StorageFull);
    for (error, advice) in [
        (OpenError::DiskFull { place: place(), source: full.clone() }, "make room on it"),
        (OpenError::Storage { place: place(), source: full }, "make room on it"),
        (
            OpenError::Storage { place: place(), source: failed(io::ErrorKind::PermissionDenied) },
            "mend the cause",
        ),
    ] {
        let store = open(&source, &clock);
        let backed_up = store.backup_into(&copy, |_| Box::new(Unopened(error.clone())));
        store.close().unwrap();
        let migrated = Store::builder(source.clone()).clock(clock.clone());
        let migrated = migrated.migrate_into(&copy, |_| Box::new(Unopened(error.clone())));
        for told in [backed_up, migrated] {
            let told = told.expect_err("there is no copy").to_string();
            let begins = format!("copying a store into {}: writing to copy.partial failed: ", copy.display());
            assert!(told.starts_with(&begins) && told.contains(advice), "{told}");
            assert!(!told.contains("opening"), "nobody has asked for that: {told}");
        }
        assert!(!copy.exists() && !above.path().join("copy.partial").exists());
    }
}

#[test]
fn what_a_full_disk_ended_says_that_room_is_to_be_made() {
    let (place, path) = ("claims".to_owned(), "aside-1".to_owned());
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    let source = StorageError::new("writing to", "claims/fresh", full());
    for told in [
        CopyError::Storage(source.clone()),
        CopyError::Replacing { doing: "compacting", place, source },
        CopyError::File { doing: "writing", path, source: full().into() },
    ] {
        let told = told.to_string();
        let advice = told.contains("disk is full: make room on it") && told.contains("as it was");
        assert!(advice && !told.to_lowercase().contains("mend the cause"), "{told}");
    }
}

#[test]
fn what_cannot_be_read_is_copied_as_it_is_and_its_key_stays_taken() {
    let clock = ManualClock::new();
    let ((source, _), target) = (filled(&clock), Faulty::new());
    let (key, mut bytes) = source.stored(b"\x01\0done-7").remove(0);
    bytes[20] ^= 1;
    source.put(&key, Some(&bytes));
    let (value_key, _) = source.stored(&[3]).remove(0);
    source.put(&value_key, Some(b"scribble"));
    let copied = migrate(&source, &target, &clock).unwrap();
    let store = open(&target, &clock);
    assert!(store.claim("done-7").is_err(), "P9 fail closed: a copy freed the key of a damaged record");
    assert!(store.kv("values").get(0_u64.to_be_bytes()).is_err(), "P9: a damaged value reads as absent");
    assert_eq!(target.stored(&key)[0].1, bytes);
    assert_eq!((copied.records, copied.values, copied.unreadable), (203, 99, 2));
}

#[test]
fn large_values_are_copied_a_few_at_a_time() {
    let calls = |length: usize| {
        let (place, clock) = (Faulty::new(), ManualClock::new());
        let store = open(&place, &clock);
        for n in 0..4 {
            store.kv("values").put([n], vec![7; length]).unwrap();
        }
        store.close().unwrap();
        place.arm(0, 0, Fault::FailBefore);
        assert_eq!(migrate(&place, &Mem::new(), &clock).unwrap().values, 4);
        place.calls()
    };
    assert!(calls(600 << 10) > calls(600), "a copy holds what it copies in memory at once");
}

/// A place in which somebody else writes as well: what comes after the mark is refused.
#[derive(Debug)]
struct Shared;

#[derive(Debug)]
struct SharedEngine(Box<dyn Engine>, AtomicBool);

impl Backend for Shared {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(SharedEngine(Mem::new().open()?, AtomicBool::new(false))))
    }
}

impl Engine for SharedEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        if !self.1.swap(true, Ordering::SeqCst) {
            return self.0.commit(commits);
        }
        commits.iter().map(|_| Ok(Swap::Refused { current: Some(b"another's".to_vec()) })).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
    }
}

#[test]
fn a_copy_into_which_somebody_else_writes_is_none() {
    let clock = ManualClock::new();
    let (source, _) = filled(&clock);
    let told = migrate(&source, &Shared, &clock);
    assert!(
        matches!(told, Err(CopyError::NotEmpty { .. })),
        "P9: what was refused was told as copied: {told:?}"
    );
}
