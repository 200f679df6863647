//! A service that charges for orders, once as check-then-act and once with a claim, each order asked for twice at once,
//! and killed (SIGKILL) again and again: `cargo run --example check-then-act -- before`, or `after`.
//!
//! It counts what the bank was asked for, and exits with 1 if an order was charged more than once.
//! docs/guides/check-then-act.md goes through it.
// A program of its own: its locks are not the library's.
#![allow(clippy::disallowed_types)]

mod after;
mod bank;
mod before;

use bank::Bank;
use claimdb::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type Pay = fn(&Store, &Bank, &str) -> Result<String, Box<dyn Error + Send + Sync>>;

const ORDERS: usize = 30;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let way: Pay = match words.first() {
        Some(&"before") => before::pay,
        Some(&"after") => after::pay,
        _ => return Err("say which: before, or after".into()),
    };
    match words.as_slice() {
        [_, "serve", folder] => serve(way, Path::new(folder)),
        [name] => drive(name),
        _ => Err("say which, and nothing else".into()),
    }
}

/// The service: for each order come a request and, at once, its retry. Each is answered with a line.
fn serve(pay: Pay, folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (store, bank) = (Store::open(folder.join("store"))?, Bank::open(&folder.join("bank"))?);
    for number in 1..=ORDERS {
        let order = format!("order-{number}");
        std::thread::scope(|scope| {
            let requests = [(), ()].map(|()| scope.spawn(|| pay(&store, &bank, &order)));
            for request in requests {
                match request.join().map_err(|_| "the request panicked")? {
                    Ok(receipt) => println!("told {receipt}"),
                    Err(error) => eprintln!("{error}"),
                }
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        })?;
    }
    Ok(())
}

/// Starts the service, kills it right after one of its next charges, and starts it again, until it has been through all
/// orders without a new charge.
fn drive(way: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = PathBuf::from("target/check-then-act").join(way);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut receipts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut kills: usize = 0;
    loop {
        let mut service = Command::new(env::current_exe()?)
            .args([way, "serve"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .spawn()?;
        let said = service.stdout.take().ok_or("it has no output")?;
        let mut left = 1 + kills % 4; // charges until then
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if let Some((order, receipt)) = line.strip_prefix("told ").and_then(|told| told.split_once(", "))
            {
                receipts.entry(order.to_owned()).or_default().insert(receipt.to_owned());
            } else if line.starts_with("charged ") {
                if left == 1 {
                    service.kill()?; // SIGKILL, which it cannot see coming
                }
                left = left.saturating_sub(1);
            }
        }
        let ended = service.wait()?;
        if ended.success() {
            break;
        } else if left > 0 {
            return Err(format!("the service has ended by itself: {ended}").into());
        }
        kills += 1;
    }
    judge(&folder, &receipts, kills)
}

/// Counts what happened to the cards, and what was told.
fn judge(
    folder: &Path,
    receipts: &BTreeMap<String, BTreeSet<String>>,
    kills: usize,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut charges: BTreeMap<String, usize> = BTreeMap::new();
    for asked in bank::read(&folder.join("bank"))?.into_iter().filter(|asked| asked.is_charge) {
        *charges.entry(asked.order).or_default() += 1;
    }
    let twice = charges.values().filter(|times| **times > 1).count();
    println!("{ORDERS} orders, each asked for twice at once; the service was killed {kills} times");
    println!("charged once           {}", charges.values().filter(|times| **times == 1).count());
    println!("charged more than once {twice}");
    println!("told one receipt       {}", receipts.values().filter(|told| told.len() == 1).count());
    println!("told several           {}", receipts.values().filter(|told| told.len() > 1).count());
    match charges.len() == ORDERS && receipts.len() == ORDERS && twice == 0 {
        true => Ok(()),
        false => Err("not every order was charged once".into()),
    }
}
