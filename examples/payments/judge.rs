//! Whether the promises held under load.

use crate::ledger::Effect;
use std::collections::BTreeMap;
use std::time::Duration;

/// One request, and what came of it.
pub struct Asked {
    pub payment: u64,
    pub told: Told,
    pub took: Duration,
}

pub enum Told {
    /// The payment was made.
    Paid {
        charge: u64,
        /// Marked as a replay.
        replayed: bool,
        /// Headers and body, without what each response has of its own.
        text: String,
    },
    /// 409: another request with the key is being worked on.
    InProgress,
    /// What no client should have to hear.
    Else(String),
    /// There was no answer.
    Nothing(String),
}

/// What a payment came to.
#[derive(Default)]
struct Payment<'a> {
    /// The tokens under which it was paid.
    paid: Vec<u64>,
    /// Charge and text of each answer.
    told: Vec<(u64, &'a str)>,
    firsts: usize,
}

pub struct Judged<'a> {
    pub broken: Vec<String>,
    asked: &'a [Asked],
    runs: usize,
}

impl<'a> Judged<'a> {
    /// `issued` payments were asked for, from 0. Nobody may be told 409 if requests `wait`.
    pub fn new(effects: &'a [Effect], asked: &'a [Asked], issued: u64, wait: bool) -> Self {
        let mut payments: BTreeMap<String, Payment<'a>> =
            (0..issued).map(|number| (format!("payment-{number}"), Payment::default())).collect();
        let mut broken = Vec::new();
        if asked.is_empty() {
            broken.push("nothing was asked".to_owned());
        }
        for effect in effects {
            payments.entry(effect.payment.clone()).or_default().paid.push(effect.token);
        }
        for Asked { payment, told, .. } in asked {
            let name = format!("payment-{payment}");
            match told {
                Told::Paid { charge, replayed, text } => {
                    let payment = payments.entry(name).or_default();
                    payment.told.push((*charge, text));
                    payment.firsts += usize::from(!replayed);
                }
                Told::InProgress if wait => broken.push(format!("P6: {name} waits, and was told 409")),
                Told::InProgress => {}
                Told::Else(what) => broken.push(format!("{name} was told {what}")),
                Told::Nothing(why) => {
                    broken.push(format!("P6: {name} has a request without an answer: {why}"))
                }
            }
        }
        for (name, Payment { paid, told, firsts }) in &payments {
            if paid.len() != 1 {
                broken.push(format!("P1: {name} was run {} times, under {paid:?}", paid.len()));
            }
            let Some(first) = told.first() else {
                broken.push(format!("P8: {name} was never answered"));
                continue;
            };
            if let Some(other) = told.iter().find(|other| *other != first) {
                broken.push(format!("P8: {name} was told {first:?} and {other:?}"));
            }
            if paid.last() != Some(&first.0) {
                broken.push(format!("P3: {name} was told charge {}, and is paid under {paid:?}", first.0));
            }
            if *firsts != 1 {
                broken.push(format!("P1: {name} has {firsts} answers that are not marked as replays"));
            }
        }
        Self { broken, asked, runs: effects.len() }
    }

    fn count(&self, of: impl Fn(&Told) -> bool) -> usize {
        self.asked.iter().filter(|asked| of(&asked.told)).count()
    }

    pub fn print(&self, connections: u64, took: Duration) {
        let mut times: Vec<_> = self.asked.iter().map(|asked| asked.took).collect();
        times.sort();
        let percentile = |percent: usize| match times.get(times.len().saturating_sub(1) * percent / 100) {
            Some(time) => format!("{:.1} ms", time.as_secs_f64() * 1e3),
            None => "none".to_owned(),
        };
        let keys: std::collections::BTreeSet<_> = self.asked.iter().map(|asked| asked.payment).collect();
        let rate = self.asked.len() as f64 / took.as_secs_f64();
        let rows = [
            ("connections", connections.to_string()),
            ("requests", self.asked.len().to_string()),
            ("keys", keys.len().to_string()),
            ("duplicates", (self.asked.len() - keys.len()).to_string()),
            ("runs", self.runs.to_string()),
            ("replays", self.count(|told| matches!(told, Told::Paid { replayed: true, .. })).to_string()),
            ("409 in progress", self.count(|told| matches!(told, Told::InProgress)).to_string()),
            ("errors", self.count(|told| matches!(told, Told::Else(_))).to_string()),
            ("no response", self.count(|told| matches!(told, Told::Nothing(_))).to_string()),
            ("p50 of a response", percentile(50)),
            ("p99 of a response", percentile(99)),
            ("requests a second", format!("{rate:.0}")),
            ("took", format!("{:.1} s", took.as_secs_f64())),
        ];
        for (what, value) in rows {
            println!("{what:<28} {value:>10}");
        }
    }
}
