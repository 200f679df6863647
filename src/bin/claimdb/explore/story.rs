//! A run in words: who says what to whom.

use super::model::{Act, Model};
use super::promise::Promise;
use super::protocol::Protocol;
use super::search::Run;
use super::world::{End, Found, Step, Work, World, is_settled};
use claimdb::{Kept, Record, State};
use std::fmt;

/// Somebody that a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Client(usize),
    /// The store's memory.
    Store,
    Disk,
    Card,
}

impl Party {
    /// A letter for each client.
    pub(super) fn letter(client: usize) -> char {
        char::from(b'A' + u8::try_from(client).unwrap_or(25))
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(client) => write!(f, "client {}", Self::letter(*client)),
            Self::Store => f.write_str("store"),
            Self::Disk => f.write_str("disk"),
            Self::Card => f.write_str("card"),
        }
    }
}

/// One step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Who to whom; `None` if it happens to everybody.
    pub(super) between: Option<(Party, Party)>,
    pub(super) text: String,
    /// What is broken from here on.
    pub(super) breaks: Vec<Promise>,
}

/// The steps of a run, in words.
pub(super) fn tell(model: &Model, run: &Run) -> Vec<Line> {
    let steps = run.windows(2);
    steps
        .filter_map(|step| match step {
            [(before, Some(act)), (after, _)] => Some(line(model, before, *act, after)),
            _ => None,
        })
        .collect()
}

fn line(model: &Model, before: &World, act: Act, after: &World) -> Line {
    let (between, text) = words(model, before, act, after);
    let breaks = Promise::ALL.into_iter();
    let breaks =
        breaks.filter(|promise| after.broken.has(*promise) && !before.broken.has(*promise)).collect();
    Line { between, text, breaks }
}

fn words(model: &Model, before: &World, act: Act, after: &World) -> (Option<(Party, Party)>, String) {
    use Party::{Card, Client, Disk, Store};
    let (between, text) = match act {
        Act::Look { client, other } if !model.protocol.claims() => {
            let whose = if other { ", for other work" } else { "" };
            ((Client(client), Disk), format!("reads order-42{whose}: {}", found(before.found())))
        }
        Act::Look { client, other } => {
            let what = if other { "asks for other work under order-42" } else { "asks for order-42" };
            let answer = match after.clients[client].step {
                Step::Looked => "nobody is at it",
                Step::Done(_) => "refused, that is for something else",
                _ => "in flight, try again later",
            };
            ((Client(client), Store), format!("{what}: {answer}"))
        }
        Act::Read(client) => {
            let whose = Party::letter(client);
            ((Store, Disk), format!("reads order-42 for {whose}: {}", found(before.found())))
        }
        Act::ReadFails(client) => match after.clients[client].step {
            Step::Working(_) => {
                ((Disk, Client(client)), "the read fails: goes ahead all the same".to_owned())
            }
            _ => ((Disk, Client(client)), "the read fails: an error, and nothing is granted".to_owned()),
        },
        Act::Tell(client) => ((Store, Client(client)), answered(model, before, client, after)),
        Act::Take(client) => ((Client(client), Store), taken(before, client, after)),
        Act::Swap(client) => ((Store, Disk), swapped(before, client, after)),
        Act::Grant(client) => {
            let text = match &after.clients[client].step {
                Step::Working(work) => format!("granted: {}", attempt(work)),
                _ => String::new(),
            };
            ((Store, Client(client)), text)
        }
        Act::Ask(client) => {
            let answer = if before.card.charges > 0 { "yes" } else { "no" };
            ((Client(client), Card), format!("did an earlier attempt charge? {answer}"))
        }
        Act::Charge(client) => ((Client(client), Card), charged(model, before, client, after)),
        Act::Complete(client) => ((Client(client), Store), "done: here is the receipt".to_owned()),
        Act::Settle(client) => return settled(model, before, client, after),
        Act::Drop(client) => ((Client(client), Store), "fails, and drops its claim".to_owned()),
        Act::Release(client) => {
            let text = match after.clients[client].step {
                Step::Done(End::Lost) => "gives the key back: refused, the claim is lost",
                _ => "gives the key back; it has not charged",
            };
            ((Client(client), Disk), text.to_owned())
        }
        Act::Expire => {
            let client = before.place.map_or(0, |place| place.client);
            ((Client(client), Client(client)), "is slow: its lease runs out".to_owned())
        }
        Act::Sync => ((Store, Disk), "sync: what was written outlives a power cut".to_owned()),
        Act::Crash { kept } => {
            let text = match before.disk.len() - kept {
                1 => "POWER CUT: what was written is there all the same",
                _ => "POWER CUT: what no sync covers is gone",
            };
            return (None, text.to_owned());
        }
        Act::Reopen => return (None, format!("the store opens again, and finds {}", found(after.found()))),
    };
    (Some(between), text)
}

fn found(found: &Found) -> String {
    match found {
        None => "nothing there".to_owned(),
        Some(record) if is_settled(record) => format!("paid by {}", payer(record)),
        Some(record) => format!("pending, {}", numbers(record)),
    }
}

/// Whose receipt a settled record holds, by its first letter.
fn payer(record: &Record) -> char {
    match &record.state {
        State::Settled { result: Kept::Completed(receipt), .. } => {
            receipt.first().map_or('?', |letter| char::from(*letter))
        }
        _ => '?',
    }
}

fn numbers(record: &Record) -> String {
    format!("token {}, attempt {}", record.token, record.attempt)
}

fn attempt(work: &Work) -> String {
    work.claim.as_deref().map_or_else(String::new, numbers)
}

fn answered(model: &Model, before: &World, client: usize, after: &World) -> String {
    let own = matches!(before.clients[client].step, Step::Written { .. });
    match &after.clients[client].step {
        Step::Done(End::Told) if own && model.protocol == Protocol::LockOnly => {
            "paid, and unlocked".to_owned()
        }
        Step::Done(End::Told) if own => "paid, and remembered".to_owned(),
        Step::Done(End::Told) => match &before.clients[client].step {
            Step::Read(Some(record)) => format!("was paid before: here is {}'s receipt", payer(record)),
            _ => "was paid before: here is the receipt".to_owned(),
        },
        Step::Done(_) => "refused, that is for something else".to_owned(),
        _ => "in flight, try again later".to_owned(),
    }
}

fn taken(before: &World, client: usize, after: &World) -> String {
    match (&after.clients[client].step, before.place) {
        (Step::Storing { record, .. }, None) => format!("takes its place, with token {}", record.token),
        (Step::Storing { record, .. }, Some(place)) => {
            let other = Party::letter(place.client);
            format!("takes the place of {other}'s claim, with token {}", record.token)
        }
        (Step::Done(_), _) => "refused, that is for something else".to_owned(),
        _ => "in flight, try again later".to_owned(),
    }
}

fn swapped(before: &World, client: usize, after: &World) -> String {
    let whose = Party::letter(client);
    match (&before.clients[client].step, &after.clients[client].step) {
        (Step::Storing { record, .. }, Step::Stored { .. }) => {
            format!("writes for {whose}: pending, {}", numbers(record))
        }
        _ => format!("writes nothing for {whose}: it says {} by now", found(before.found())),
    }
}

fn charged(model: &Model, before: &World, client: usize, after: &World) -> String {
    let token = match &before.clients[client].step {
        Step::Working(work) if work.claim.is_some() && model.protocol != Protocol::Unfenced => {
            format!(" with token {}", work.token())
        }
        _ => String::new(),
    };
    if after.clients[client].step == Step::Done(End::Lost) {
        return format!("wants to charge{token}: refused, {} was here", before.card.greatest);
    }
    let again = if before.card.charges > 0 { " AGAIN" } else { "" };
    let whose = if before.clients[client].other { ", for other work" } else { "" };
    format!("charges{again}{token}{whose}")
}

fn settled(model: &Model, before: &World, client: usize, after: &World) -> (Option<(Party, Party)>, String) {
    let from = if model.protocol.claims() { Party::Store } else { Party::Client(client) };
    if after.clients[client].step == Step::Done(End::Lost) {
        let current =
            before.found().as_ref().map_or_else(String::new, |record| format!(", {} has it", record.token));
        return (Some((Party::Store, Party::Client(client))), format!("refused: the claim is lost{current}"));
    }
    let whose = Party::letter(client);
    let text = match after.found() {
        None => format!("deletes the lock for {whose}"),
        Some(record) if record.token.get() == 0 => format!("writes: {}", found(after.found())),
        Some(record) => format!("writes for {whose}: {}, token {}", found(after.found()), record.token),
    };
    (Some((from, Party::Disk)), text)
}
