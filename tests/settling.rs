//! Settles that come late, fail or are tried again: what the holder is told, and what its claim can do after that.
#![cfg(not(loom))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;
#[path = "support/hooks.rs"]
#[allow(dead_code)]
mod hooks;

use claimdb::backend::Backend;
use claimdb::{
    AlreadySettled, CheckpointError, Claim, Durability, ExpiredLease, LossCause, ManualClock, OnInterrupt,
    Outcome, Request, Resolution, RetryCause, SettleError, Store, Writes,
};
use faults::{Fault, Faulty};
use hooks::{At, Hooked, Woken, poll, until};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const ALL: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

fn world(place: &(impl Backend + Clone + 'static)) -> (Store, ManualClock) {
    let clock = ManualClock::new();
    let store = Store::builder(place.clone()).clock(clock.clone()).sweep_every(Duration::ZERO).open();
    (store.unwrap(), clock)
}

fn grant(store: &Store, request: impl Into<Request>) -> Claim {
    match store.claim(request).unwrap() {
        Outcome::Granted(claim) => claim,
        other => panic!("expected a grant, was told {other:?}"),
    }
}

#[test]
fn whoever_awaits_a_loss_is_woken_when_a_lease_that_was_shortened_meanwhile_ends() {
    let (store, clock) = world(&Faulty::new());
    let claim = grant(&store, "k");
    let (mut raised, woken) = (Box::pin(claim.lost().raised()), Woken::new());
    assert!(poll(raised.as_mut(), &woken).is_pending());
    claim.renew(20 * SEC).unwrap();
    until("it hears that the lease ends sooner", || woken.count() == 1);
    assert!(poll(raised.as_mut(), &woken).is_pending());
    claim.renew(30 * SEC).unwrap();
    clock.advance(20 * SEC);
    until("it looks when the lease was to end", || woken.count() == 2);
    assert!(poll(raised.as_mut(), &woken).is_pending(), "the lease was renewed");
    clock.advance(10 * SEC);
    until("the lease is over", || woken.count() == 3);
    assert_eq!(poll(raised.as_mut(), &woken), std::task::Poll::Ready(LossCause::LeaseOver));
}
