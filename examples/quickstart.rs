//! A charge that must not happen twice, with its store on disk: `cargo run --example quickstart`.
//!
//! Run it again: the receipt is the stored one, and nothing is charged.

use claimdb::{Claim, Ending, Outcome, Request, Settled, Store, Token, Worked};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io;
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    order: String,
    cents: u64,
}

/// Stands for the payment provider, which remembers the greatest token it has seen and refuses lesser ones.
fn charge(order: &str, cents: u64, token: Token) -> io::Result<Receipt> {
    println!("charging {cents} cents for {order} under token {token}");
    Ok(Receipt { order: order.to_owned(), cents })
}

/// Asks the provider whether it has charged for `order`. This one keeps no books, so it cannot say that it has.
fn charged(order: &str) -> io::Result<Option<Receipt>> {
    println!("asking whether {order} was charged");
    Ok(None)
}

/// Of the charge that an attempt before this one has made, if it came that far, or of a new one.
fn charge_or_find(claim: &Claim, order: &str, cents: u64) -> io::Result<Receipt> {
    let made = if claim.previous().is_some() { charged(order)? } else { None };
    made.map_or_else(|| charge(order, cents, claim.token()), Ok)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/quickstart-claims".to_owned());
    let store = Store::open(folder)?;

    // A client that retries waits up to two seconds for the first try's result.
    let request = Request::new("order-42").wait(Duration::from_secs(2));
    let receipt: Receipt = match store.claim(request)? {
        Outcome::Granted(claim) => {
            let receipt = charge_or_find(&claim, "order-42", 1999)?;
            claim.complete(&receipt)?;
            receipt
        }
        Outcome::Settled(Settled::Completed(stored)) => {
            println!("already charged; nothing is done");
            stored.decode()?
        }
        Outcome::Settled(_) => return Err("this order failed before, or its receipt was not kept".into()),
        Outcome::InFlight(holder) => {
            return Err(format!("another try is at it, for {:?} at most", holder.remaining()).into());
        }
        Outcome::Mismatched(_) => return Err("this key was used for another order".into()),
        Outcome::Interrupted(case) => {
            return Err(format!("somebody must look at the attempt with token {}", case.token()).into());
        }
    };
    println!("{receipt:?}");

    // The same in one call. An error may come after the charge, so it drops the claim, and the next attempt is told.
    let rule = |worked: Worked<'_, Receipt, io::Error>| match worked {
        Worked::Returned(_) => Ending::Complete,
        Worked::Failed(_) | Worked::Panicked => Ending::Drop,
    };
    let receipt = store.run_by("order-43", rule, |claim| charge_or_find(claim, "order-43", 500))?;
    println!("{} {receipt:?}", if receipt.is_replayed() { "replayed" } else { "fresh" });
    store.close()?; // says so if something that was written is not durable
    Ok(())
}
