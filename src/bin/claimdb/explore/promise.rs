//! What is held against each run.

use super::protocol::Protocol;
use clap::ValueEnum;

/// A promise of `docs/protocol.md`, or what it is all for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(super) enum Promise {
    P1,
    P2,
    P3,
    P4,
    P5,
    P6,
    P7,
    P8,
    P9,
    /// No promise of the store's, which does not reach outside; what its promises are good for.
    Card,
}

impl Promise {
    pub(super) const ALL: [Self; 10] = [
        Self::P1,
        Self::P2,
        Self::P3,
        Self::P4,
        Self::P5,
        Self::P6,
        Self::P7,
        Self::P8,
        Self::P9,
        Self::Card,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::P1 => "P1 one holder",
            Self::P2 => "P2 ordered tokens",
            Self::P3 => "P3 fenced",
            Self::P4 => "P4 durable before told",
            Self::P5 => "P5 no early takeover",
            Self::P6 => "P6 never stuck",
            Self::P7 => "P7 mismatch is harmless",
            Self::P8 => "P8 remembered",
            Self::P9 => "P9 fail closed",
            Self::Card => "card charged once",
        }
    }

    /// What it means that it is broken.
    pub(super) fn broken(self) -> &'static str {
        match self {
            Self::P1 => "two are at work on one key at once",
            Self::P2 => "a token is not above those granted before",
            Self::P3 => "one that is too late is not refused",
            Self::P4 => "a power cut would undo what was told",
            Self::P5 => "a live claim is taken over before its lease has run out",
            Self::P6 => "the key is said to be in flight, and nobody is at work on it",
            Self::P7 => "a request for other work is taken for the same",
            Self::P8 => "work whose result was told is run again",
            Self::P9 => "an error of the disk lets the work go ahead",
            Self::Card => "the card is charged twice",
        }
    }

    /// What is told where it breaks.
    pub(super) fn alarm(self) -> String {
        match self {
            Self::Card => self.broken().to_owned(),
            _ => format!("{} is broken: {}", self.name(), self.broken()),
        }
    }

    /// Whether `protocol` has what this speaks of: without claims there are no tokens and no leases.
    pub(super) fn can_be_seen(self, protocol: Protocol) -> bool {
        protocol.claims() || !matches!(self, Self::P2 | Self::P3 | Self::P5)
    }
}

/// The promises that a run has broken so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Broken(u16);

impl Broken {
    pub(super) fn has(self, promise: Promise) -> bool {
        self.0 & 1 << promise as u16 != 0
    }

    pub(super) fn add(&mut self, promise: Promise) {
        self.0 |= 1 << promise as u16;
    }
}
