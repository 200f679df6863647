//! Plain sled as a backend, set up as the real one and synced by sled's own flush alone: what the power-cut harness
//! must see lose data.

use claimdb::backend::{Backend, Commit, Engine, Swap, Visit, Write};
use claimdb::{OpenError, StorageError};
use sled::transaction::{TransactionError, abort};
use std::ops::ControlFlow;
use std::path::PathBuf;

#[derive(Debug)]
pub struct Twin(pub PathBuf);

#[derive(Debug)]
struct Flushed(sled::Db);

fn error(doing: &'static str) -> impl FnOnce(sled::Error) -> StorageError {
    move |error| StorageError::new(doing, "the twin", error)
}

impl Backend for Twin {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let config = sled::Config::new().path(&self.0).segment_size(8 << 20).flush_every_ms(None);
        let open = config.open().map_err(error("opening"));
        let db = open.map_err(|source| OpenError::Storage { place: "of the twin".to_owned(), source })?;
        Ok(Box::new(Flushed(db)))
    }
}

impl Flushed {
    fn swap(&self, commit: &Commit<'_>) -> Result<Swap, sled::Error> {
        for Write { key, value } in commit.hints {
            match value {
                Some(value) => self.0.insert(key, value.as_slice())?,
                None => self.0.remove(key)?,
            };
        }
        if commit.effects.is_empty() {
            return Ok(match self.0.compare_and_swap(commit.key, commit.expected, commit.new)? {
                Ok(()) => Swap::Done,
                Err(refused) => Swap::Refused { current: refused.current.map(|value| value.to_vec()) },
            });
        }
        let outcome = self.0.transaction(|tree| {
            let current = tree.get(commit.key)?;
            if current.as_deref() != commit.expected {
                return abort(current.map(|value| value.to_vec()));
            }
            let record = std::iter::once((commit.key, commit.new));
            let effects = commit.effects.iter().map(|w| (w.key.as_slice(), w.value.as_deref()));
            for (key, value) in record.chain(effects) {
                match value {
                    Some(value) => tree.insert(key, value)?,
                    None => tree.remove(key)?,
                };
            }
            Ok(())
        });
        match outcome {
            Ok(()) => Ok(Swap::Done),
            Err(TransactionError::Abort(current)) => Ok(Swap::Refused { current }),
            Err(TransactionError::Storage(error)) => Err(error),
        }
    }
}

impl Engine for Flushed {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.0.get(key).map_err(error("reading"))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        commits.iter().map(|commit| self.swap(commit).map_err(error("writing"))).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        for pair in self.0.scan_prefix(prefix) {
            let (key, value) = pair.map_err(error("scanning"))?;
            if after.is_none_or(|after| &*key > after) && visit(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.0.flush().map(drop).map_err(error("flushing"))
    }
}
