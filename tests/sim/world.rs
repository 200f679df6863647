//! A world: one store at a time over one drive, the clock, and who is told what.

use super::acts::{Hand, act};
use super::engine::Storage;
use super::ledger::Ledger;
use super::program::{Act, Ask, KEYS, Program, VALUES, What};
use super::schedule::idle;
use super::{history, history::On};
use claimdb::{Durability, KeyState, ManualClock, Store, SyncBy};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{future, thread};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

pub struct World {
    pub storage: Storage,
    clock: ManualClock,
    callers_sync: bool,
    /// `None` while it is closed; whoever opens it again takes it out.
    store: Mutex<Option<Store>>,
    opened: Condvar,
    ledger: std::sync::Mutex<Ledger>,
    active: AtomicUsize,
}

/// What was done, over all worlds.
#[derive(Debug, Default)]
pub struct Tally {
    pub histories: AtomicU64,
    pub operations: AtomicU64,
    pub power_cuts: AtomicU64,
    pub reopenings: AtomicU64,
    pub faults: AtomicU64,
}

/// Lets a program happen once, in the interleaving that shuttle chooses, and judges it.
pub fn play(program: &Program, tally: &Tally) {
    let storage = Storage::new();
    let world = Arc::new(World {
        storage,
        clock: ManualClock::new(),
        callers_sync: program.callers_sync,
        store: Mutex::new(None),
        opened: Condvar::new(),
        ledger: std::sync::Mutex::default(),
        active: AtomicUsize::new(program.actors.len()),
    });
    world.open();
    for (number, actor) in program.actors.iter().enumerate() {
        let (world, acts, task) = (Arc::clone(&world), actor.acts.clone(), actor.task);
        let body = async move {
            let mut hand = Hand::default();
            for (step, what) in acts.iter().enumerate() {
                act(&world, task, number, step, what, &mut hand).await;
            }
            while hand.is_holding() {
                act(&world, task, number, acts.len(), &just(What::Drop), &mut hand).await;
            }
            world.active.fetch_sub(1, Ordering::Relaxed);
        };
        match task {
            true => drop(future::spawn(body)),
            false => drop(thread::spawn(move || future::block_on(body))),
        }
    }
    world.watch();
    future::block_on(world.look_at_last());
    let ledger = world.ledger();
    On::all().for_each(|on| history::judge(&ledger.events, on));
    tally.histories.fetch_add(1, Ordering::Relaxed);
    tally.operations.fetch_add(ledger.calls() as u64, Ordering::Relaxed);
    tally.power_cuts.fetch_add(ledger.power, Ordering::Relaxed);
    tally.reopenings.fetch_add(ledger.opening - ledger.power, Ordering::Relaxed);
    tally.faults.fetch_add(world.storage.failed(), Ordering::Relaxed);
}

fn just(what: What) -> Act {
    Act { what, polls: None }
}

impl World {
    /// Never held while others run.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        let sync_failed = self.storage.sync_failed();
        let mut ledger = self.ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ledger.note(sync_failed);
        ledger
    }

    /// The open store, once there is one; `with` is done before it can be closed.
    pub fn store<T>(&self, with: impl FnOnce() -> T) -> (Store, T) {
        let mut store = self.store.lock().expect("nobody panics with it");
        loop {
            if let Some(store) = &*store {
                let with = with();
                return (store.clone(), with);
            }
            store = self.opened.wait(store).expect("nobody panics with it");
        }
    }

    pub fn pass(&self, seconds: u64) {
        self.ledger().high += seconds;
        self.clock.advance(Duration::from_secs(seconds));
        self.ledger().low += seconds;
    }

    /// Time passes by itself when nothing else can happen.
    fn watch(&self) {
        for _ in 0..200 {
            idle();
            if self.active.load(Ordering::Relaxed) == 0 {
                return;
            }
            self.ledger().stands_still();
            self.pass(10);
        }
        panic!("P6 never stuck: somebody still waits after 2,000 s in which nothing ran");
    }

    /// Cuts the power and opens the store again; the number says what survives.
    pub fn cut_power(&self, keep: u64) {
        let Some(store) = self.take() else { return };
        // All in one moment: who was told before was told, and nobody is told afterwards.
        let cut = self.storage.kill();
        self.ledger().ended(true);
        // Its threads end with the process, and here with this.
        let _ = store.close();
        drop(store);
        self.storage.restore(&cut, keep);
        self.open();
    }

    /// Closes the store and opens it again. After a failed sync nobody knows what the drive holds, so the number says.
    pub fn reopen(&self, keep: u64) {
        let Some(store) = self.take() else { return };
        let _ = store.close();
        drop(store);
        let lossy = self.storage.sync_failed();
        let cut = lossy.then(|| self.storage.kill());
        self.ledger().ended(lossy);
        if let Some(cut) = cut {
            self.storage.restore(&cut, keep);
        }
        self.open();
    }

    fn take(&self) -> Option<Store> {
        self.store.lock().expect("nobody panics with it").take()
    }

    fn open(&self) {
        let sync_by = if self.callers_sync { SyncBy::Caller } else { SyncBy::Thread };
        self.storage.disarm();
        let builder = Store::builder(self.storage.clone()).clock(self.clock.clone()).sync_by(sync_by);
        let store = builder.lock_wait(Duration::from_secs(3_600)).open();
        let store = store.expect("P6 never stuck: a store that was closed does not open");
        self.stands_by(&store);
        *self.store.lock().expect("nobody panics with it") = Some(store);
        self.opened.notify_all();
    }

    /// What was told is there.
    fn stands_by(&self, store: &Store) {
        let facts = self.ledger().facts();
        for (key, settled, stored) in facts {
            let name = key.to_string();
            if let Some(fact) = settled {
                let found = store.get(&name).expect("the drive works");
                let found = found.map(|settled| (settled.about().token().get(), Hand::value_of(&settled)));
                let (promise, wanted) = (fact.promise(), Some((fact.token, fact.value)));
                // Time may have passed meanwhile.
                let there = found == wanted || !self.ledger().is_certain(key, fact.token);
                assert!(there, "{promise}, and gone: key {key} is {found:?} and not {wanted:?}");
            }
            if let Some(stored) = stored {
                let found = store.inspect(&name).expect("the drive works");
                let there =
                    found.state != KeyState::Absent && found.token.is_some_and(|t| t.get() >= stored.token);
                let there = there || !self.ledger().is_certain(key, stored.token);
                let (promise, token, state) = (stored.promise(), stored.token, found.state);
                let history = if there { String::new() } else { self.ledger().history(key) };
                assert!(there, "{promise}, and gone: the claim {token} of key {key} is {state:?}:{history}");
            }
        }
    }

    /// Once all are done: the power is cut with nothing more surviving than has to, and every key is looked at and can
    /// be had.
    async fn look_at_last(&self) {
        self.cut_power(0);
        let mut hand = Hand::default();
        let me = usize::MAX;
        for key in 0..KEYS {
            let ask = Ask {
                key,
                work: 0,
                durability: Durability::Full,
                wait: 0,
                lease: 10,
                retention: 50,
                quarantine: false,
            };
            for what in [What::Get(key), What::Claim(ask), What::Complete] {
                act(self, false, me, usize::from(key), &just(what), &mut hand).await;
            }
        }
        for value in 0..VALUES {
            act(self, false, me, usize::from(value), &just(What::Read(value)), &mut hand).await;
        }
        let store = self.take().expect("it was opened");
        store.close().expect("the drive works");
    }
}
