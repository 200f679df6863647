//! Those who wait for a key: futures that are polled by hand, at fixed points of the program, so that a case repeats
//! exactly. Whatever goes wrong, each of them is told the truth or an error.

use super::hooks::{Woken, poll, until};
use super::ledger::{Expected, Name};
use super::user::{Step, User, kept, unwound};
use claimdb::{ClaimError, Outcome, StoreFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

type Told = Result<Outcome, ClaimError>;

pub struct Waiter {
    name: Name,
    future: StoreFuture<Told>,
    woken: Arc<Woken>,
}

impl Waiter {
    /// `None` if a fault panics in it.
    fn poll(&mut self) -> Option<Poll<Told>> {
        unwound(|| poll(Pin::new(&mut self.future), &self.woken))
    }
}

impl User {
    /// Waits for `name`, which somebody has.
    pub fn wait(&mut self, name: Name, wait: Duration) -> Step {
        let asked = self.ask(&[name]);
        let future = self.store().claim_async(name.request().wait(wait));
        let mut waiter = Waiter { name, future, woken: Woken::new() };
        match waiter.poll() {
            Some(Poll::Pending) => {
                assert!(self.is_live(name), "P6 never stuck: {name:?} is waited for, and nobody has it");
                self.waiters.push(waiter);
            }
            // A fault has ended its holder.
            Some(Poll::Ready(Ok(outcome))) => self.told(name, outcome, &asked),
            Some(Poll::Ready(Err(error))) => self.check_error(&error),
            None => {}
        }
        self.after()
    }

    /// What has come about by now is what the first waiter of `name` waits for: it is woken and told.
    pub fn join(&mut self, name: Name) -> Step {
        let Some(first) = self.waiters.iter().position(|waiter| waiter.name == name) else { return Ok(()) };
        let mut waiter = self.waiters.remove(first);
        until("a waiter is woken", || waiter.woken.count() > 0);
        let asked = self.ask(&[name]);
        match waiter.poll() {
            Some(Poll::Ready(Ok(outcome))) => {
                self.told(name, outcome, &asked);
                self.after()
            }
            Some(Poll::Pending) => {
                panic!("P6 never stuck: a waiter of {name:?} was woken, and goes on waiting")
            }
            failed => {
                if let Some(Poll::Ready(Err(error))) = failed {
                    self.check_error(&error);
                }
                self.after()?;
                self.claim(name)
            }
        }
    }

    /// After a failed sync those are told who wait for what it was to cover; the others go on waiting for a holder.
    pub(super) fn waiters_are_refused(&mut self) {
        let now = self.wall();
        for mut waiter in std::mem::take(&mut self.waiters) {
            let name = waiter.name;
            assert!(
                waiter.woken.count() > 0,
                "P6 never stuck: a failed sync does not wake a waiter of {name:?}"
            );
            match waiter.poll() {
                Some(Poll::Pending) if self.is_live(name) => self.waiters.push(waiter),
                Some(Poll::Pending) => {
                    panic!("P6 never stuck: {name:?} is waited for after a failed sync, and nobody has it")
                }
                Some(Poll::Ready(Ok(outcome))) => {
                    let covered = match self.ledger.key(name).oldest().expected(name, now) {
                        Expected::Settled { result, .. } => Some(result),
                        _ => None,
                    };
                    let told = outcome.settled().map(kept);
                    assert!(
                        told.is_some() && told == covered,
                        "P9 fail closed: a waiter of {name:?} is told {told:?} after a failed sync"
                    );
                }
                Some(Poll::Ready(Err(_))) | None => {}
            }
        }
    }

    /// The store is closed: whoever still waits is told so.
    pub(super) fn waiters_are_sent_away(&mut self) {
        for mut waiter in std::mem::take(&mut self.waiters) {
            let name = waiter.name;
            assert!(waiter.woken.count() > 0, "P6 never stuck: closing does not wake a waiter of {name:?}");
            let told = waiter.poll();
            assert!(
                matches!(told, Some(Poll::Ready(Err(_))) | None),
                "P9 fail closed: a waiter of {name:?} is told {told:?} by a store that is closed"
            );
        }
    }

    /// The machine is down, and this process has not noticed: it closes its store, and leaves nobody waiting.
    pub fn go_under(&mut self) {
        self.held.clear();
        self.stale.clear();
        if self.has_store() {
            let _ = self.call(claimdb::Store::close);
        }
        self.waiters_are_sent_away();
    }
}
