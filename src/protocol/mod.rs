//! What may happen to a key: pure decisions, no clock, lock or I/O.
//!
//! [`decide`] looks at what was seen (the record, what memory knows of the key, the time, the request) and returns
//! the step to take. [`transition`] builds the record that each legal step leaves. Store, models and simulators run
//! this same code, and so can a driver over another database.
//!
//! The promises that tests and messages name:
//!
//! - **P1 one holder.** At most one fencing token is current for a key.
//! - **P2 ordered tokens.** A granted token is greater than every token granted before.
//! - **P3 fenced.** Renew, checkpoint, complete and release succeed only with the current token in a state that
//!   allows them; a stale holder gets a typed error and changes nothing.
//! - **P4 durable before told.** Nobody is told of a settling that a power cut could undo.
//! - **P5 no early takeover.** A live claim of this opening is taken over only after its lease has run out.
//! - **P6 never stuck.** After a holder ends in whatever way, the next claimant gets an answer without a cleaner.
//! - **P7 mismatch is harmless.** A claim with another fingerprint than the record, or the live claim that has the key in
//!   memory alone, is refused on every path and changes nothing.
//! - **P8 remembered.** A settled key is not run again before its retention ends.
//! - **P9 fail closed.** An error never grants a claim and never frees one.
//!
//! Two kinds of claims. A *durable* one ([`Durability::Full`], or any claim over a record that is pending) has a
//! pending record with its token; the record decides who is current. One *in memory* has no record until it
//! settles; its place in the lease table decides, and the record must still be absent or forgotten.

pub mod decide;
pub mod transition;

use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
#[cfg(doc)]
use crate::record::Durability;
use crate::token::Token;

/// What memory knows of the claim that has a key, or is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its token; `None` while it is only taking the key.
    pub token: Option<Token>,
    /// Which attempt it is; 0 while it is only taking the key.
    pub attempt: u32,
    /// Whether its claim is stored, so that the record tells what became of it.
    pub stored: bool,
    /// What it is there for.
    pub purpose: Purpose,
    /// When it took the key.
    pub since: Moment,
    /// When its lease ends; `None` while it is only taking the key, which does not expire, and once it settles.
    pub deadline: Option<Moment>,
}

/// What a key's place is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A claim, for work with this fingerprint.
    Work(Option<Fingerprint>),
    /// Removing or resolving the record, which says nothing of what the key is for.
    Upkeep,
    /// The same, and a live claim is ended by it (rule 19).
    Force,
}

/// What memory knows of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyView<'a> {
    /// The claim that has the key's place.
    pub place: Option<&'a Holder>,
    /// A claim whose settling write no finished sync covers yet.
    pub unsynced: Option<&'a Holder>,
}

/// The tokens of the opening that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// A pending record with a token below this belongs to an opening that has ended.
    pub first: Token,
    /// No token at or above this was handed out.
    pub ceiling: Token,
}
