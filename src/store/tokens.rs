//! Drawing fencing tokens below the durable ceiling, and raising it (rule 8).

use super::Inner;
use super::engine::commit_one;
use super::own::ceiling_key;
use super::retention;
use crate::backend::{Commit, Swap};
use crate::error::Fault;
use crate::record;
use crate::sync::Break;
use crate::token::{Drawn, Token, ceiling_above};

impl Inner {
    /// Draws a token. Called while holding the key's place, after every wait (rule 13).
    pub(super) fn draw_token(&self) -> Result<Token, Fault> {
        match self.tokens.draw() {
            Drawn::Token(token) => Ok(token),
            Drawn::Low(token) => {
                // Early, and nobody needs it yet: if it fails, whoever does need it tries again and is told.
                let _ = self.raise_ceiling(token);
                Ok(token)
            }
            Drawn::Exhausted(token) => {
                self.raise_ceiling(token)?;
                Ok(token)
            }
        }
    }

    /// Makes a ceiling above `token` durable. Any number may do so at once; the greatest stands.
    fn raise_ceiling(&self, token: Token) -> Result<(), Fault> {
        let durable = self.write_ceiling(ceiling_above(token))?;
        // What was found may be another's unsynced raise, so this waits for a sync in either case.
        let ticket = self.commit.ticket(None)?;
        if !Break::CeilingUnsynced.is() {
            self.commit.wait(ticket, self.limit())?;
        }
        self.tokens.raised(durable);
        Ok(())
    }

    /// Writes the ceiling `wanted` unless a higher one is there, and gives the one that is there then.
    fn write_ceiling(&self, wanted: Token) -> Result<Token, Fault> {
        let raised = record::encode_ceiling(wanted);
        let key = ceiling_key();
        let engine = self.engine.get()?;
        let mut seen = engine.read(&key)?;
        loop {
            if let Some(bytes) = &seen {
                let found = record::decode_ceiling(bytes)?;
                if found >= wanted {
                    return Ok(found);
                }
            }
            let hints = [retention::high_water(self.wall())];
            let swap = Commit { hints: &hints, ..Commit::swap(&key, seen.as_deref(), Some(&raised)) };
            match commit_one(&*engine, &swap)? {
                Swap::Done => return Ok(wanted),
                Swap::Refused { current } => seen = current,
            }
        }
    }
}
