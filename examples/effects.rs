//! A balance kept in the store, and credited once by each request however often that is retried:
//! `cargo run --example effects`.
//!
//! Run it again: every credit is replayed, and the balance stays.

use claimdb::{Outcome, Request, Settled, Store, Writes};
use std::error::Error;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(5);

/// Credits `account`, unless the request `id` has done so before. Gives the balance right after the credit.
fn credit(store: &Store, id: &str, account: &str, cents: u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
    match store.claim(Request::new(id).wait(WAIT))? {
        Outcome::Granted(claim) => {
            // Effects are unconditional, so no other credit may come between reading the balance and writing it. The
            // lock has a lease, 30 s here; work that may take longer renews it.
            let Some(_lock) = store.lock(account, WAIT)? else {
                return Err("other credits keep the account; try again".into());
            };
            let balance = store.kv("balances").get_value(account)?.unwrap_or(0) + cents;
            // One atomic step: the request is done and the balance is new, or neither.
            claim.complete_with(&balance, Writes::new().put_value("balances", account, &balance))?;
            println!("{id}: credited {cents}, balance {balance}");
            Ok(balance)
        }
        Outcome::Settled(Settled::Completed(stored)) => Ok(stored.decode()?),
        Outcome::InFlight(_) => Err("another try is still at it; try again".into()),
        other => Err(format!("{id} cannot be credited: {other:?}").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/effects-store".to_owned());
    let store = Store::open(folder)?;
    // Three requests, each sent three times at once by an impatient client.
    std::thread::scope(|scope| {
        for (id, cents) in [("credit-1", 100), ("credit-2", 200), ("credit-3", 300)] {
            for _ in 0..3 {
                let store = &store;
                scope.spawn(move || {
                    if let Err(error) = credit(store, id, "alice", cents) {
                        eprintln!("{id}: {error}");
                    }
                });
            }
        }
    });
    let balance: Option<u64> = store.kv("balances").get_value("alice")?;
    println!("balance {}", balance.unwrap_or(0));
    store.close()?;
    Ok(())
}
