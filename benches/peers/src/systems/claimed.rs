//! claimdb itself, with its defaults but for the level.

use super::Level;
use crate::job::{Result, Session, System, VALUE};
use claimdb::backend::{Redb, Sled};
use claimdb::{Builder, Claim, Durability, Outcome, Request, Store};
use std::path::Path;

struct Claimdb {
    store: Store,
    durability: Durability,
}

pub fn sled(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    open(level, Store::builder(Sled::new(folder)))
}

pub fn redb(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    open(level, Store::builder(Redb::new(folder)))
}

fn open(level: Level, builder: Builder) -> Result<Box<dyn System>> {
    let durability = match level {
        Level::Full => Durability::Full,
        Level::Result => Durability::Result,
    };
    Ok(Box::new(Claimdb { store: builder.open()?, durability }))
}

impl System for Claimdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { of: self, held: None }))
    }
}

struct Thread<'a> {
    of: &'a Claimdb,
    held: Option<Claim>,
}

impl Session for Thread<'_> {
    fn claim(&mut self, key: &str) -> Result<bool> {
        self.held = match self.of.store.claim(Request::new(key).durability(self.of.durability))? {
            Outcome::Granted(claim) => Some(claim),
            Outcome::InFlight(_) | Outcome::Settled(_) => None,
            other => return Err(format!("the claim of {key} was told {other:?}").into()),
        };
        Ok(self.held.is_some())
    }

    fn store(&mut self, _key: &str) -> Result<()> {
        let claim = self.held.take().ok_or("nothing is claimed")?;
        Ok(claim.complete_bytes(VALUE.as_slice())?)
    }
}
