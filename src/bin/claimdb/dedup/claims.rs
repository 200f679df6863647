//! Claiming the keys of a batch, and completing the claims once their lines are out.
//!
//! Equal keys are in one part, which is one thread's, and of equal keys the first in the order of the input is
//! claimed: so the first line with a key wins, however many threads there are.

use super::keys::Keyed;
use super::parallel;
use crate::failure::Failure;
use claimdb::{Claim, ClaimError, Durability, Key, MAX_LEASE, Outcome, Request, SettleError, Store, Token};
use std::time::Duration;

pub(super) struct Claims<'a> {
    store: &'a Store,
    retain: Duration,
}

/// The lines of a batch that won their keys.
pub(super) struct Won {
    /// For each line, whether it did.
    pub(super) first_seen: Vec<bool>,
    claims: Vec<Vec<Claim>>,
}

impl Won {
    /// The tokens of the claims, in order.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = self.claims.iter().flatten().map(Claim::token).collect();
        tokens.sort_unstable();
        tokens
    }
}

impl<'a> Claims<'a> {
    pub(super) fn new(store: &'a Store, retain: Duration) -> Self {
        Self { store, retain }
    }

    /// Claims `keys`; `None` has none. `number` is that of the first line, and `in_flight` are the tokens, in order,
    /// of the claims that this run has and may still be completing.
    pub(super) fn claim(
        &self,
        keys: &[Option<Keyed>],
        parts: usize,
        number: u64,
        in_flight: &[Token],
    ) -> Result<Won, Failure> {
        let parts = parallel::each(0..parts, |part| self.claim_part(keys, part, number, in_flight))?;
        let mut won = Won { first_seen: vec![false; keys.len()], claims: Vec::with_capacity(parts.len()) };
        for part in parts {
            let part = part?;
            for index in part.lines {
                won.first_seen[index] = true;
            }
            won.claims.push(part.claims);
        }
        Ok(won)
    }

    /// Claims the keys of one part, each once: a later line with the key of an earlier one is a duplicate, whether
    /// that one won it or not. Sorted, because neighbours in the store are cheaper to get at together.
    fn claim_part(
        &self,
        keys: &[Option<Keyed>],
        part: usize,
        number: u64,
        in_flight: &[Token],
    ) -> Result<Part, Failure> {
        let mine = keys.iter().zip(0..).filter_map(|(keyed, index)| match keyed {
            Some(keyed) if keyed.part == part => Some((&keyed.key, index)),
            _ => None,
        });
        let mut mine: Vec<(&Key, usize)> = mine.collect();
        mine.sort_unstable();
        mine.dedup_by_key(|(key, _)| *key);

        // The claims are in memory alone and the store is this process's alone, so the lease keeps nobody out; but
        // it must not end while the process is stopped, or waits for the reader of its output.
        let request =
            |key| Request::new(key).durability(Durability::Result).lease(MAX_LEASE).retention(self.retain);
        let told = self.store.claim_many(mine.iter().map(|(key, _)| request(*key)));
        let mut won = Part { lines: Vec::new(), claims: Vec::new() };
        for ((_, index), told) in mine.into_iter().zip(told) {
            if let Some(claim) = judge(told, number + index as u64, in_flight)? {
                won.lines.push(index);
                won.claims.push(claim);
            }
        }
        Ok(won)
    }

    /// Records that the lines are out. When this returns, that is durable.
    pub(super) fn complete(&self, won: Won) -> Result<(), Failure> {
        let completed =
            parallel::each(won.claims.into_iter().filter(|claims| !claims.is_empty()), |claims| {
                let results = claims.into_iter().map(|claim| (claim, ()));
                self.store
                    .complete_many(results)
                    .into_iter()
                    .collect::<Result<Vec<()>, SettleError>>()
                    .map(drop)
            })?;
        completed
            .into_iter()
            .collect::<Result<(), SettleError>>()
            .map_err(|error| Failure::completing(&error))
    }
}

/// The lines of one part that won their keys, and the claims.
struct Part {
    lines: Vec<usize>,
    claims: Vec<Claim>,
}

/// The claim of a line, if it won its key; `None` for a duplicate.
fn judge(
    told: Result<Outcome, ClaimError>,
    line: u64,
    in_flight: &[Token],
) -> Result<Option<Claim>, Failure> {
    let state = match told.map_err(|error| Failure::claiming(line, &error))? {
        Outcome::Granted(claim) => return Ok(Some(claim)),
        Outcome::Settled(_) => return Ok(None),
        Outcome::InFlight(holder) => match holder.token() {
            Some(token) if in_flight.binary_search(&token).is_ok() => return Ok(None),
            _ => "in flight",
        },
        Outcome::Mismatched(_) => "used for something else",
        Outcome::Interrupted(_) => "interrupted",
    };
    Err(Failure::failed(
        format_args!("claiming the key of line {line}"),
        format_args!("this run did not claim it before, and it is {state}"),
        "its line was not written; see who else uses the store, then run again",
    ))
}
