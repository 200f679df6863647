//! The moment of a backup, over storage that is slow: nobody waits for ever, and nothing is torn by those who do not.
#![cfg(not(loom))] // faults are played on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/hooks.rs"]
#[allow(dead_code)] // each test file uses a part
mod hooks;

use claimdb::backend::{Backend, Commit, Engine, Mem, Swap, Visit};
use claimdb::{ClaimError, CopyError, Fault, ManualClock, OpenError, Request, StorageError, Store, Writes};
use hooks::{At, Hooked, until};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// The thread whose reads hang, so that those of the store's own threads are not taken for the backup's.
const BACKUP: &str = "backup";

/// Memory whose reads, those of a backup, and commits hang while it is told so.
#[derive(Debug, Clone, Default)]
struct Slow {
    mem: Mem,
    hangs: Arc<AtomicBool>,
    hanging: Arc<AtomicUsize>,
    commits_hang: Arc<AtomicBool>,
    committing: Arc<AtomicUsize>,
    /// How often the backup read something while a commit hung.
    read_beside: Arc<AtomicUsize>,
    full: Arc<AtomicBool>,
}

#[derive(Debug)]
struct SlowEngine(Box<dyn Engine>, Slow);

impl Backend for Slow {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(SlowEngine(self.mem.open()?, self.clone())))
    }
}

impl Engine for SlowEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        if thread::current().name() == Some(BACKUP) {
            // One that does not hang is not to be seen: it would be taken for the one at the backup's moment.
            if self.1.hangs.load(Ordering::SeqCst) {
                self.1.hanging.fetch_add(1, Ordering::SeqCst);
                until("reads go on", || !self.1.hangs.load(Ordering::SeqCst));
                self.1.hanging.fetch_sub(1, Ordering::SeqCst);
            }
            if self.1.committing.load(Ordering::SeqCst) > 0 {
                self.1.read_beside.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.1.committing.fetch_add(1, Ordering::SeqCst);
        until("commits go on", || !self.1.commits_hang.load(Ordering::SeqCst));
        let landed = self.0.commit(commits);
        self.1.committing.fetch_sub(1, Ordering::SeqCst);
        landed
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.sync()
    }

    fn room(&self) -> Result<(), StorageError> {
        match self.1.full.load(Ordering::SeqCst) {
            true => Err(StorageError::new("taking room in", "slow memory", "on purpose")),
            false => Ok(()),
        }
    }
}

fn value(store: &Store, name: &str) -> Option<u64> {
    store.kv(name).get_value("x").unwrap()
}

fn both(n: u64) -> Writes {
    Writes::new().put_value("a", "x", &n).put_value("z", "x", &n)
}

fn open(source: &Slow, clock: &ManualClock) -> Store {
    let builder = Store::builder(source.clone()).clock(clock.clone());
    let store = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap();
    store.write(both(1)).unwrap();
    store
}

#[test]
fn what_lands_while_changed_keys_are_read_again_is_in_it_whole() {
    let (source, target, clock) = (Slow::default(), Hooked::new(), ManualClock::new());
    let store = open(&source, &clock);
    let (first, second) = (store.clone(), store.clone());
    // The mark, the page, and then the first of two keys that were changed while that was copied.
    target.on(At::Commit, || {});
    target.on(At::Commit, move || first.write(both(2)).unwrap());
    target.on(At::Commit, move || second.write(both(3)).unwrap());
    store.backup_to(&target).unwrap();
    let copy = Store::builder(target).clock(clock).open().unwrap();
    let found = (value(&copy, "a"), value(&copy, "z"));
    assert_eq!(found, (Some(3), Some(3)), "rule 25: a backup is of no one moment: it tore a batch of values");
}

#[test]
fn beside_a_backup_a_full_disk_refuses_new_work_as_ever() {
    let (source, target, clock) = (Slow::default(), Hooked::new(), ManualClock::new());
    let store = open(&source, &clock);
    let told = Arc::new(Mutex::new(None));
    {
        let (store, source, told) = (store.clone(), source.clone(), Arc::clone(&told));
        target.on(At::Commit, move || {
            source.full.store(true, Ordering::SeqCst);
            *told.lock().unwrap() = Some(store.claim("k").map(drop));
            source.full.store(false, Ordering::SeqCst);
        });
    }
    store.backup_to(&target).unwrap();
    let told = told.lock().unwrap().take().expect("the backup commits");
    let full = matches!(told, Err(ClaimError::Failed { fault: Fault::DiskFull(_), .. }));
    assert!(full, "P9 fail closed: on a full disk a claim was told {told:?}");
}

#[test]
fn at_its_moment_no_commit_is_under_way() {
    let (source, target, clock) = (Slow::default(), Hooked::new(), ManualClock::new());
    let store = open(&source, &clock);
    let claim = store.claim("k").unwrap().granted().unwrap();
    let writer = Arc::new(Mutex::new(None));
    {
        let (first, second, source, writer) =
            (store.clone(), store.clone(), source.clone(), Arc::clone(&writer));
        target.on(At::Commit, || {});
        target.on(At::Commit, move || first.write(both(2)).unwrap());
        target.on(At::Commit, || {});
        // The last key of the round: what is changed now is read at the moment, beside a commit that hangs.
        target.on(At::Commit, move || {
            second.write(both(3)).unwrap();
            source.commits_hang.store(true, Ordering::SeqCst);
            let settling = thread::spawn(move || claim.complete_with("done", both(4)));
            until("a commit hangs", || source.committing.load(Ordering::SeqCst) > 0);
            *writer.lock().unwrap() = Some(settling);
        });
    }
    let waiting = clock.waiting();
    let backing_up = {
        let (store, target) = (store.clone(), target.clone());
        thread::Builder::new().name(BACKUP.into()).spawn(move || store.backup_to(&target)).unwrap()
    };
    until("the backup waits for the commit, or does not", || {
        clock.waiting() > waiting && source.committing.load(Ordering::SeqCst) > 0 || backing_up.is_finished()
    });
    let read_beside = source.read_beside.load(Ordering::SeqCst);
    source.commits_hang.store(false, Ordering::SeqCst);
    backing_up.join().unwrap().unwrap();
    let settling = writer.lock().unwrap().take().unwrap();
    settling.join().unwrap().unwrap();
    assert_eq!(
        read_beside, 0,
        "rule 25: a backup is of no one moment: it looked while a commit was under way"
    );
    let copy = Store::builder(target).clock(clock).open().unwrap();
    assert_eq!((value(&copy, "a"), value(&copy, "z")), (Some(4), Some(4)));
    assert!(copy.get("k").unwrap().is_some());
}

#[test]
fn a_writer_waits_a_second_at_most_and_the_backup_is_made_again_of_what_it_wrote() {
    let (source, target, clock) = (Slow::default(), Hooked::new(), ManualClock::new());
    let store = open(&source, &clock);
    // Swapped without reading first, so that it meets the backup and not the slow read.
    let claim = store.claim("k").unwrap().granted().unwrap();
    {
        // The mark, the page: now something is changed for the round, and at its commit something for the moment.
        let (first, second, source) = (store.clone(), store.clone(), source.clone());
        target.on(At::Commit, || {});
        target.on(At::Commit, move || first.write(both(2)).unwrap());
        target.on(At::Commit, || {});
        target.on(At::Commit, move || {
            second.write(both(3)).unwrap();
            source.hangs.store(true, Ordering::SeqCst);
        });
    }
    let backing_up = {
        let (store, target) = (store.clone(), target.clone());
        thread::Builder::new().name(BACKUP.into()).spawn(move || store.backup_to(&target)).unwrap()
    };
    until("the backup reads at its moment", || source.hanging.load(Ordering::SeqCst) > 0);
    let before = clock.waiting();
    let settling = thread::spawn(move || claim.complete_with("done", both(4)));
    until("the writer waits", || clock.waiting() > before);
    assert!(!settling.is_finished());
    clock.advance(Duration::from_secs(1));
    // It goes on although the backup still hangs.
    until("the writer is done", || settling.is_finished());
    settling.join().unwrap().expect("P6 never stuck: a writer was kept by a backup");
    assert!(!backing_up.is_finished());
    source.hangs.store(false, Ordering::SeqCst);
    backing_up.join().unwrap().expect("it tries again");
    let copy = Store::builder(target).clock(clock).open().unwrap();
    assert_eq!(value(&copy, "a"), value(&copy, "z"), "rule 25: torn by a writer that did not wait");
    assert_eq!(
        (copy.get("k").unwrap().is_some(), value(&copy, "a")),
        (true, Some(4)),
        "rule 25: a backup is of no one moment: it took what a writer changed meanwhile for a moment"
    );
}

#[test]
fn beside_a_long_sweep_a_backup_begins() {
    let (source, target, clock) = (Hooked::new(), Hooked::new(), ManualClock::new());
    let builder = Store::builder(source.clone()).clock(clock.clone());
    let store = builder.sweep_every(Duration::ZERO).watch_every(Duration::ZERO).open().unwrap();
    let short = Duration::from_secs(1);
    for n in 0..3 {
        let request = Request::new(n.to_string()).retention(short);
        store.claim(request).unwrap().granted().unwrap().complete("x").unwrap();
    }
    clock.advance(short);
    let (beside, other, first, second) = (store.clone(), target.clone(), clock.clone(), target.clone());
    let (backup, backing_up) = mpsc::channel();
    source.on(At::Read, move || {
        let waiting = first.waiting();
        let making = thread::Builder::new().name(BACKUP.into()).spawn(move || beside.backup_to(&other));
        backup.send(making.unwrap()).unwrap();
        until("the backup waits for the call under way", || first.waiting() > waiting);
    });
    source.on(At::Read, move || {
        // Its own read may come first.
        if thread::current().name() != Some(BACKUP) {
            until("a backup begins beside a sweep that goes on", || second.calls() > 0);
        }
    });
    assert_eq!(store.sweep(usize::MAX).unwrap().deleted, 3);
    backing_up.recv().unwrap().join().unwrap().expect("P6 never stuck: a sweep kept a backup from beginning");
}

#[test]
fn a_backup_that_is_refused_beside_another_takes_nothing_from_it() {
    let (source, target, clock) = (Slow::default(), Hooked::new(), ManualClock::new());
    let store = open(&source, &clock);
    let (other, writer) = (store.clone(), store.clone());
    target.on(At::Commit, move || {
        let refused = other.backup_to(&Mem::new());
        assert!(matches!(refused, Err(CopyError::Busy { .. })), "two backups at once: {refused:?}");
    });
    // The page was read, and is changed before it is written.
    target.on(At::Commit, move || writer.write(both(2)).unwrap());
    store.backup_to(&target).unwrap();
    let copy = Store::builder(target).clock(clock).open().unwrap();
    let found = (value(&copy, "a"), value(&copy, "z"));
    assert_eq!(found, (Some(2), Some(2)), "rule 25: a backup is of no one moment: it watched no more");
}
