//! Claiming the keys of a batch, and completing the claims once their lines are out.
//!
//! Equal keys are in one part, and each part is claimed by one thread in the order of the input: so the first line
//! with a key wins, however many threads there are.

use super::keys::Keyed;
use super::parallel;
use crate::failure::Failure;
use claimdb::{Claim, Durability, MAX_LEASE, Outcome, Request, SettleError, Store, Token};
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

impl<'a> Claims<'a> {
    pub(super) fn new(store: &'a Store, retain: Duration) -> Self {
        Self { store, retain }
    }

    /// Claims `keys`; `None` has none. `number` is that of the first line.
    pub(super) fn claim(&self, keys: &[Option<Keyed>], parts: usize, number: u64) -> Result<Won, Failure> {
        let parts = parallel::each(0..parts, |part| self.claim_part(keys, part, number))?;
        let mut won = Won { first_seen: vec![false; keys.len()], claims: Vec::with_capacity(parts.len()) };
        for part in parts {
            let (indexes, claims) = part?;
            for index in indexes {
                won.first_seen[index] = true;
            }
            won.claims.push(claims);
        }
        Ok(won)
    }

    fn claim_part(
        &self,
        keys: &[Option<Keyed>],
        part: usize,
        number: u64,
    ) -> Result<(Vec<usize>, Vec<Claim>), Failure> {
        let (mut indexes, mut claims) = (Vec::new(), Vec::new());
        // In the order in which they were drawn, which is that of their size.
        let mut tokens: Vec<Token> = Vec::new();
        for (index, keyed) in keys.iter().enumerate() {
            let Some(keyed) = keyed.as_ref().filter(|keyed| keyed.part == part) else { continue };
            // The claims are in memory alone and the store is this process's alone, so the lease keeps nobody out;
            // but it must not end while the process is stopped, or waits for the reader of its output.
            let request = Request::new(&keyed.key)
                .durability(Durability::Result)
                .lease(MAX_LEASE)
                .retention(self.retain);
            let line = number + index as u64;
            match self.store.claim(request).map_err(|error| Failure::claiming(line, &error))? {
                Outcome::Granted(claim) => {
                    tokens.push(claim.token());
                    indexes.push(index);
                    claims.push(claim);
                }
                Outcome::Settled(_) => {}
                // By an earlier line of this batch.
                Outcome::InFlight(holder)
                    if holder.token().is_some_and(|token| tokens.binary_search(&token).is_ok()) => {}
                other => {
                    return Err(Failure::failed(
                        format_args!("claiming the key of line {line}"),
                        format_args!("this run did not use it, and it is {}", described(&other)),
                        "nothing of this batch was written; see who else uses the store, then run again",
                    ));
                }
            }
        }
        Ok((indexes, claims))
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
        completed.into_iter().collect::<Result<(), SettleError>>().map_err(|error| {
            Failure::failed(
                "recording the lines of the last batch",
                error,
                "they were written, and running again can write them again",
            )
        })
    }
}

fn described(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::InFlight(_) => "in flight",
        Outcome::Mismatched(_) => "used for something else",
        Outcome::Interrupted(_) => "interrupted",
        Outcome::Granted(_) => "granted",
        Outcome::Settled(_) => "settled",
    }
}
