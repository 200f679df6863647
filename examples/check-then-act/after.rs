//! Claim.

use crate::bank::Bank;
use claimdb::{Claim, Outcome, Request, Settled, Store};
use std::error::Error;
use std::io;
use std::time::Duration;

/// Charges for `order` once, however often and by whomever it is asked for.
pub fn pay(store: &Store, bank: &Bank, order: &str) -> Result<String, Box<dyn Error + Send + Sync>> {
    match store.claim(Request::new(order).wait(Duration::from_secs(5)))? {
        Outcome::Granted(claim) => {
            let receipt = receipt(bank, &claim, order)?;
            claim.complete(&receipt)?;
            Ok(receipt)
        }
        Outcome::Settled(Settled::Completed(stored)) => Ok(stored.decode()?),
        other => Err(format!("{order} cannot be paid now: {other:?}").into()),
    }
}

/// Of the charge that the attempt before has made, or of a new one: its process may have been killed in between.
fn receipt(bank: &Bank, claim: &Claim, order: &str) -> io::Result<String> {
    if claim.previous().is_some()
        && let Some(receipt) = bank.charged(order, claim.token())?
    {
        return Ok(receipt);
    }
    bank.charge(order, Some(claim.token()))
}
