//! What happened, and whether the promises held.

use crate::client::Seen;
use crate::ledger::Effect;
use std::collections::BTreeMap;
use std::time::Duration;

/// What each payment came to.
#[derive(Default)]
struct Payment<'a> {
    effects: Vec<&'a Effect>,
    /// The charges that clients were told.
    charges: Vec<u64>,
}

pub struct Report<'a> {
    payments: BTreeMap<&'a str, Payment<'a>>,
    seen: &'a [Seen],
    kills: usize,
}

impl<'a> Report<'a> {
    pub fn new(effects: &'a [Effect], seen: &'a [Seen], kills: usize) -> Self {
        let mut payments: BTreeMap<&str, Payment<'_>> = BTreeMap::new();
        for effect in effects {
            payments.entry(&effect.payment).or_default().effects.push(effect);
        }
        for answer in seen.iter().flat_map(|seen| &seen.answers) {
            payments.entry(&answer.payment).or_default().charges.push(answer.charge);
        }
        Self { payments, seen, kills }
    }

    /// Each promise that did not hold, in words. `expected` payments were asked for.
    pub fn broken_promises(&self, expected: usize) -> Vec<String> {
        let mut broken = Vec::new();
        if self.payments.len() != expected {
            broken.push(format!("{} payments of {expected} left a trace", self.payments.len()));
        }
        for (name, Payment { effects, charges }) in &self.payments {
            let Some(told) = charges.first() else {
                broken.push(format!("{name} was never answered"));
                continue;
            };
            if charges.iter().any(|charge| charge != told) {
                broken.push(format!("P8: {name} has several acknowledged results: {charges:?}"));
            }
            if effects.last().is_none_or(|last| last.token != *told) {
                broken.push(format!(
                    "P3: {name} was answered with {told}, which is not its last effect: {effects:?}"
                ));
            }
            for pair in effects.windows(2) {
                if pair[1].attempt < 2 || pair[1].attempt <= pair[0].attempt {
                    broken.push(format!(
                        "P4: {name} was paid again as attempt {}: {effects:?}",
                        pair[1].attempt
                    ));
                }
                if pair[1].token <= pair[0].token {
                    broken.push(format!("P2: {name} was paid again under an older token: {effects:?}"));
                }
            }
        }
        broken
    }

    fn sum(&self, of: impl Fn(&Seen) -> usize) -> usize {
        self.seen.iter().map(of).sum()
    }

    pub fn print(&self, took: Duration) {
        let mut times: Vec<_> = self.seen.iter().flat_map(|seen| &seen.times).collect();
        times.sort();
        let percentile = |percent: usize| match times.get(times.len().saturating_sub(1) * percent / 100) {
            Some(time) => format!("{:.1} ms", time.as_secs_f64() * 1e3),
            None => "none".to_owned(),
        };
        // A payment whose last effect was attempt 3 was reclaimed twice.
        let reclaims: u32 =
            self.payments.values().filter_map(|it| it.effects.last()).map(|effect| effect.attempt - 1).sum();
        let rows = [
            ("payments", self.payments.len().to_string()),
            ("kills", self.kills.to_string()),
            ("requests", self.sum(|seen| seen.requests).to_string()),
            ("reclaims", reclaims.to_string()),
            ("answers", self.sum(|seen| seen.answers.len()).to_string()),
            ("replays", self.sum(|seen| seen.replays).to_string()),
            ("409 in progress", self.sum(|seen| seen.in_progress).to_string()),
            ("503", self.sum(|seen| seen.unavailable).to_string()),
            ("no response", self.sum(|seen| seen.broken).to_string()),
            ("p50 of a response", percentile(50)),
            ("p99 of a response", percentile(99)),
            ("took", format!("{:.1} s", took.as_secs_f64())),
        ];
        for (what, value) in rows {
            println!("{what:<28} {value:>10}");
        }
        let mut by_effects: BTreeMap<usize, usize> = BTreeMap::new();
        for payment in self.payments.values() {
            *by_effects.entry(payment.effects.len()).or_default() += 1;
        }
        for (effects, payments) in by_effects {
            let what = format!("payments paid {effects} times");
            println!("{what:<28} {payments:>10}");
        }
    }
}
