//! With a mistake: it charges as if each attempt were the first.

use crate::card::{Cards, TooOld};
use crate::{Answer, request};
use claimdb::{Outcome, SettleError, Settled, Store};

/// Pays `order`.
pub fn pay(store: &Store, cards: &Cards, order: &str, cents: u64) -> Answer {
    let claim = match store.claim(request(order, cents)) {
        Ok(Outcome::Granted(claim)) => claim,
        Ok(Outcome::Settled(Settled::Completed(stored))) => {
            return stored.decode().map_or_else(|error| Answer::Failed(error.to_string()), Answer::Paid);
        }
        Ok(Outcome::Mismatched(_)) => return Answer::OtherOrder,
        Ok(_) => return Answer::Busy,
        Err(error) => return error.into(),
    };
    // The mistake: there may have been an attempt before, and it may have charged; `claim.previous()` would tell.
    let receipt = match cards.charge(order, cents, claim.token()) {
        Ok(receipt) => receipt,
        Err(TooOld) => return Answer::TooLate,
    };
    match claim.complete(&receipt) {
        Ok(()) => Answer::Paid(receipt),
        Err(SettleError::Lost(_)) => Answer::TooLate,
        Err(error) => Answer::Failed(error.to_string()),
    }
}
