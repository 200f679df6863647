//! Many threads, one key, on disk.
#![cfg(all(not(loom), feature = "sled"))] // real threads and real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::backend::Sled;
use claimdb::{Durability, Outcome, Request, Settled, Store};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const THREADS: usize = 64;
const ROUNDS: u64 = 1000;
/// Far beyond what a round takes: a waiter that gets that far was forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// What a round is about.
#[derive(Clone, Copy)]
struct Round {
    number: u64,
    durability: Durability,
    wait: bool,
}

impl Round {
    fn request(self) -> Request {
        let wait = if self.wait { FORGOTTEN } else { Duration::ZERO };
        Request::new(format!("round {}", self.number)).durability(self.durability).wait(wait)
    }

    fn result(self, token: u64) -> Vec<u8> {
        format!("the bytes of round {} and token {token}", self.number).into_bytes()
    }
}

/// One thread's arrival at a barrier, which must come once and come even if the thread panics: the others wait.
struct Arrival<'a>(Option<&'a Barrier>);

impl Arrival<'_> {
    fn arrive(&mut self) {
        if let Some(barrier) = self.0.take() {
            barrier.wait();
        }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.arrive();
    }
}

/// What the threads of one round were told.
#[derive(Default)]
struct Told {
    granted: AtomicU64,
    in_flight: AtomicU64,
    replayed: AtomicU64,
    token: AtomicU64,
}

impl Told {
    /// Takes part in a round. The winner settles only after everyone was told, unless the others wait for that.
    fn take_part(&self, store: &Store, round: Round, told_at: &Barrier) {
        let mut everyone_was_told = Arrival(Some(told_at));
        let told = store
            .claim(round.request())
            .expect("P1 one holder: one is granted the key, the others are told so");
        match told {
            Outcome::Granted(claim) => {
                self.granted.fetch_add(1, Ordering::SeqCst);
                self.token.store(claim.token().get(), Ordering::SeqCst);
                if !round.wait {
                    everyone_was_told.arrive();
                }
                let result = round.result(claim.token().get());
                claim.complete_bytes(result).expect("P1 one holder: the winner is the only one");
            }
            Outcome::InFlight(_) => {
                assert!(!round.wait, "P6 never stuck: a waiter was forgotten for {FORGOTTEN:?}");
                self.in_flight.fetch_add(1, Ordering::SeqCst);
            }
            Outcome::Settled(settled) => {
                assert!(round.wait, "nobody has settled yet");
                let winner = self.token.load(Ordering::SeqCst);
                assert_eq!(settled.about().token().get(), winner, "P1 one holder");
                let stored = settled.completed().expect("the winner completed it");
                assert_eq!(stored.bytes(), round.result(winner), "a loser gets the winner's own bytes");
                self.replayed.fetch_add(1, Ordering::SeqCst);
            }
            other => panic!("round {}: {other:?}", round.number),
        }
    }

    fn check(&self, round: Round) {
        let [granted, in_flight, replayed] =
            [&self.granted, &self.in_flight, &self.replayed].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(granted, 1, "P1 one holder: round {}", round.number);
        let losers = THREADS as u64 - 1;
        let expected = if round.wait { (0, losers) } else { (losers, 0) };
        assert_eq!((in_flight, replayed), expected, "round {}", round.number);
    }
}

#[test]
fn of_64_threads_exactly_one_is_granted_each_of_1000_keys() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::builder(Sled::new(folder.path())).open().unwrap();
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|number| {
            let durability = if number % 8 == 0 { Durability::Full } else { Durability::Result };
            (Round { number, durability, wait: number / 8 % 2 == 1 }, Told::default())
        })
        .collect();
    let (start, everyone_was_told) = (Barrier::new(THREADS), Barrier::new(THREADS));
    // A thread that panics would leave the others at the barrier, so panics are kept until the end.
    let failures = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for (round, told) in &rounds {
                    start.wait();
                    if !failures.lock().unwrap().is_empty() {
                        return;
                    }
                    let part =
                        std::panic::AssertUnwindSafe(|| told.take_part(&store, *round, &everyone_was_told));
                    if let Err(panic) = std::panic::catch_unwind(part) {
                        failures.lock().unwrap().push(panic);
                    }
                    // So that all see a failure, or none does.
                    start.wait();
                }
            });
        }
    });
    if let Some(panic) = failures.into_inner().unwrap().pop() {
        std::panic::resume_unwind(panic);
    }
    for (round, told) in &rounds {
        told.check(*round);
    }
    let stats = store.stats();
    assert_eq!((stats.granted, stats.settled), (ROUNDS, ROUNDS));
    assert_eq!(
        (stats.entries, stats.waiters, stats.unsynced, stats.live_claims),
        (0, 0, 0, 0),
        "left behind"
    );
    let tokens: Vec<_> = rounds.iter().map(|(_, told)| told.token.load(Ordering::SeqCst)).collect();
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "P2 ordered tokens");

    store.close().unwrap();
    let store = Store::builder(Sled::new(folder.path())).open().unwrap();
    for (round, told) in &rounds {
        let stored = store.get(format!("round {}", round.number)).unwrap().and_then(Settled::completed);
        let winner = told.token.load(Ordering::SeqCst);
        assert_eq!(stored.unwrap().bytes(), round.result(winner), "P8 remembered: round {}", round.number);
    }
}
