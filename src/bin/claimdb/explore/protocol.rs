//! The protocol, and ways to get it wrong.

use clap::ValueEnum;

/// A protocol to explore: claimdb's own, or one that leaves a rule out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// claimdb's own: look and take in one step, lease, token, sync before telling
    Claim,
    /// No claim at all: look into the store, find nothing, charge, write the result (breaks P1)
    Naive,
    /// Tokens are counted for each key, in its record; they start anew when that is gone (breaks P2)
    TokenPerKey,
    /// Nobody compares tokens: what a holder does too late is taken for good (breaks P3)
    Unfenced,
    /// Grants and results are told before a sync has made them durable (breaks P4)
    AckEarly,
    /// A claim is taken over while its lease still runs (breaks P5)
    Impatient,
    /// A claim has no lease: a key is in flight until its holder says otherwise (breaks P6)
    NoLease,
    /// What a key was used for is not compared (breaks P7)
    Unchecked,
    /// A lock alone: it is deleted once the work is done, and the result is not remembered (breaks P8)
    LockOnly,
    /// When the store cannot be read, the work goes ahead without it (breaks P9)
    FailOpen,
    /// claimdb's own, under work that never asks what the attempt before has done (breaks no promise)
    Careless,
}

impl Protocol {
    /// As it is called on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it does, in one line.
    pub(super) fn about(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// Whether a claim stands between a request and its work.
    pub(super) fn claims(self) -> bool {
        self != Self::Naive
    }
}
