//! Work that must never be repeated unseen: `cargo build --features cli && cargo run --features cli --example quarantine`.
//!
//! A transfer of money whose holder ends without settling is not run again: its key is interrupted until somebody has
//! found out what became of it. Here a rule finds out what it can, and the rest is looked at and resolved by hand, with the
//! command `claimdb` against the running service.

use claimdb::admin::Server;
use claimdb::backend::Sled;
use claimdb::{Claim, EndedBy, OnInterrupt, Outcome, Request, Resolution, Settled, Store};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

type Told<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is stored of a transfer. The bank's own number, as text: whoever resolves by hand can give text.
type Number = String;

/// What is saved before the bank is called, for whoever has to find out.
#[derive(Serialize, Deserialize)]
struct Intent {
    reference: String,
}

fn request(transfer: &str) -> Request {
    Request::new(transfer).on_interrupt(OnInterrupt::Quarantine)
}

/// What the service says to who asks for the transfer. `crash` ends it between the bank's doing and its own.
fn transfer(store: &Store, bank: &mut Bank, name: &str, crash: Crash) -> Told<Answer> {
    Ok(match store.claim(request(name))? {
        Outcome::Granted(mut claim) => {
            let reference = format!("{name}/{}", claim.token());
            claim.checkpoint(serde_json::to_vec(&Intent { reference: reference.clone() })?)?;
            if crash == Crash::BeforeTheBank {
                return Ok(Answer::Crashed(claim));
            }
            let number = bank.transfer(&reference);
            if crash == Crash::AfterTheBank {
                return Ok(Answer::Crashed(claim));
            }
            claim.complete(&number)?;
            Answer::Done(number)
        }
        Outcome::Settled(Settled::Completed(stored)) => Answer::Done(stored.decode()?),
        Outcome::Settled(_) => return Err("it has failed for good, or its number is not kept".into()),
        Outcome::InFlight(_) => return Err("another try is at it".into()),
        Outcome::Mismatched(_) => return Err("the name was used for something else".into()),
        // A client is told 409 or 503, and that somebody looks at it; an alert says so to those.
        Outcome::Interrupted(_) => Answer::BeingLookedAt,
    })
}

#[derive(Debug)]
enum Answer {
    Done(Number),
    BeingLookedAt,
    /// What a process that is gone leaves behind.
    Crashed(Claim),
}

#[derive(Clone, Copy, PartialEq)]
enum Crash {
    No,
    BeforeTheBank,
    AfterTheBank,
}

/// The rule, called now and then: asks the bank about each interrupted transfer. What the bank knows was done;
/// of the others only a person can say whether they are still under way. Gives how many are left for that.
fn resolve_by_rule(store: &Store, bank: &Bank) -> Told<usize> {
    let mut left = 0;
    for interrupted in store.interrupted() {
        let (key, case) = interrupted?;
        let Some(checkpoint) = case.checkpoint() else {
            left += 1; // it ended before it had noted what it was about to do
            continue;
        };
        let intent: Intent = serde_json::from_slice(checkpoint)?;
        match bank.find(&intent.reference) {
            // The token says which case was looked at: if the key has moved on since, nothing is changed.
            Some(number) => {
                store.resolve(&key, case.token(), Resolution::completed(&number)?)?;
            }
            None => left += 1,
        }
    }
    Ok(left)
}

fn main() -> Told<()> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or_else(|| temporary.path().join("store"), PathBuf::from);
    if folder.exists() {
        return Err("this starts from nothing: name a folder that is not there".into());
    }
    let open = || Store::builder(Sled::new(&folder)).open();
    let (mut store, mut bank) = (open()?, Bank::default());

    assert!(matches!(transfer(&store, &mut bank, "rent", Crash::No)?, Answer::Done(_)));
    // Three whose process ends: two after the bank had them, and one before.
    let mut crashed = Vec::new();
    for (name, crash) in
        [("wages", Crash::AfterTheBank), ("tax", Crash::BeforeTheBank), ("gift", Crash::BeforeTheBank)]
    {
        let Answer::Crashed(claim) = transfer(&store, &mut bank, name, crash)? else {
            return Err("it was to crash".into());
        };
        crashed.push(claim);
    }
    store.close()?;
    drop(crashed);
    store = open()?;

    for name in ["wages", "tax", "gift"] {
        let answer = transfer(&store, &mut bank, name, Crash::No)?;
        assert!(matches!(answer, Answer::BeingLookedAt), "{name} was run again unseen: {answer:?}");
    }
    assert_eq!(bank.transfers.len(), 2, "rent and wages; nothing was repeated");
    println!("3 transfers are interrupted, and none is repeated");

    let left = resolve_by_rule(&store, &bank)?;
    assert_eq!(left, 2);
    let Answer::Done(number) = transfer(&store, &mut bank, "wages", Crash::No)? else {
        return Err("wages were resolved".into());
    };
    assert_eq!(bank.find_by(&number), Some("wages"), "what is replayed is what the bank did");
    println!("wages: the bank knows it, resolved by a rule");

    // By the interface: looked at, found not to have happened, and freed, so that it can run.
    let seen = store.inspect("tax")?;
    let Outcome::Interrupted(case) = store.claim(request("tax"))? else {
        return Err("tax is interrupted".into());
    };
    assert_eq!(case.ended_by(), EndedBy::Reopened);
    assert_eq!(seen.token, Some(case.token()));
    assert!(store.resolve("tax", case.token(), Resolution::released())?);
    let stale = store.resolve("tax", case.token(), Resolution::omitted())?;
    assert!(!stale, "the case is no longer there, so nothing is changed");
    assert!(matches!(transfer(&store, &mut bank, "tax", Crash::No)?, Answer::Done(_)));
    println!("tax: it has not happened, released by the interface and run");

    // By the command, against the running service: what an operator types. It was done by telephone meanwhile.
    let socket = folder.with_extension("socket");
    let serving = Server::new().audit(|change| println!("recorded: {change}")).serve(&store, &socket)?;
    let listed = claimdb(&["list", "--state", "interrupted", "--show-keys"], &socket)?;
    assert!(listed.contains("gift") && !listed.contains("tax"), "one is left: {listed}");
    claimdb(&["resolve", "--yes", "--as", "completed", "--text", "by-telephone-7", "gift"], &socket)?;
    drop(serving);
    let Answer::Done(number) = transfer(&store, &mut bank, "gift", Crash::No)? else {
        return Err("the gift was resolved".into());
    };
    assert_eq!(number, "by-telephone-7");
    println!("gift: resolved by the command, and answered with {number}");

    assert_eq!(store.interrupted().count(), 0, "nothing is left to look at");
    assert_eq!(bank.transfers.len(), 3, "rent, wages and tax, each once");
    store.close()?;
    Ok(())
}

/// Runs the command `claimdb`, which is built beside the examples, and shows what an operator sees.
fn claimdb(arguments: &[&str], socket: &Path) -> Told<String> {
    let examples = std::env::current_exe()?;
    let command = examples.ancestors().nth(2).ok_or("it lies in target/debug/examples")?.join("claimdb");
    let mut command = Command::new(command);
    let output = command.args(arguments).arg("--socket").arg(socket).output();
    let output = output
        .map_err(|error| format!("{command:?}: {error}; build it first: cargo build --features cli"))?;
    let (told, why) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    println!("$ claimdb {}\n{}", arguments.join(" "), told.trim_end());
    if output.status.success() { Ok(told) } else { Err(format!("{}: {why}", output.status).into()) }
}

/// Stands for a bank that cannot refuse by token, and can be asked what it did under a reference.
#[derive(Default)]
struct Bank {
    transfers: Vec<(String, Number)>,
}

impl Bank {
    fn transfer(&mut self, reference: &str) -> Number {
        let number = format!("number-{}", self.transfers.len() + 1);
        self.transfers.push((reference.to_owned(), number.clone()));
        number
    }

    fn find(&self, reference: &str) -> Option<&Number> {
        self.transfers.iter().find(|(known, _)| known == reference).map(|(_, number)| number)
    }

    fn find_by(&self, number: &str) -> Option<&str> {
        let (reference, _) = self.transfers.iter().find(|(_, known)| known == number)?;
        reference.split('/').next()
    }
}
