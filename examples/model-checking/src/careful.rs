//! Mended: an attempt that is not the first asks what the one before has done.

use crate::card::{Cards, TooOld};
use crate::{Answer, request};
use claimdb::{Claim, Outcome, SettleError, Settled, Store};

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
    let receipt = match receipt(cards, &claim, order, cents) {
        Ok(receipt) => receipt,
        Err(TooOld) => return Answer::TooLate,
    };
    match claim.complete(&receipt) {
        Ok(()) => Answer::Paid(receipt),
        Err(SettleError::Lost(_)) => Answer::TooLate,
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// Of the charge that an attempt before has made, or of a new one. The question has this claim's token, so that the
/// attempt before is refused from then on, should it only be slow.
fn receipt(cards: &Cards, claim: &Claim, order: &str, cents: u64) -> Result<String, TooOld> {
    if claim.previous().is_some()
        && let Some(receipt) = cards.charged(order, claim.token())?
    {
        return Ok(receipt);
    }
    cards.charge(order, cents, claim.token())
}
