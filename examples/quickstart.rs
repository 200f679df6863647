//! A charge that must not happen twice, with its store on disk: `cargo run --example quickstart`.
//!
//! Run it again: the receipt is the stored one, and nothing is charged.

use claimdb::{Outcome, Request, Settled, Store, Token};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    order: String,
    cents: u64,
}

/// Stands for the payment provider, which remembers the greatest token it has seen and refuses lesser ones.
fn charge(order: &str, cents: u64, token: Token) -> Receipt {
    println!("charging {cents} cents for {order} under token {token}");
    Receipt { order: order.to_owned(), cents }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/quickstart-claims".to_owned());
    let store = Store::open(folder)?;

    // A client that retries waits up to two seconds for the first try's result.
    let request = Request::new("order-42").wait(Duration::from_secs(2));
    let receipt: Receipt = match store.claim(request)? {
        Outcome::Granted(claim) => {
            if let Some(previous) = claim.previous() {
                println!("attempt {} with token {} may have charged", claim.attempt() - 1, previous.token);
            }
            let receipt = charge("order-42", 1999, claim.token());
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
            return Err(format!("somebody must look at attempt {}", case.token()).into());
        }
    };
    println!("{receipt:?}");

    // The whole dance in one call.
    let work = |claim: &claimdb::Claim| Ok::<_, std::io::Error>(charge("order-43", 500, claim.token()));
    let receipt = store.run("order-43", work)?;
    println!("{} {receipt:?}", if receipt.is_replayed() { "replayed" } else { "fresh" });
    Ok(())
}
