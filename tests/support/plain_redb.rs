//! Plain redb as a backend: a transaction for each caller's commit, and syncs only if it is told to make any. Without
//! them it is what the power-cut harness must see lose data; with them, what the queue is measured against.
#![allow(dead_code)] // each user reads a part

use claimdb::backend::{Backend, Commit, Engine, Swap, Visit};
use claimdb::{OpenError, StorageError};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition};
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;

type Bytes = &'static [u8];

const TABLE: TableDefinition<'_, Bytes, Bytes> = TableDefinition::new("plain");

#[derive(Debug, Clone)]
pub struct PlainRedb {
    pub file: PathBuf,
    pub syncs: bool,
    pub two_phases: bool,
}

#[derive(Debug)]
struct Plain(Database, PlainRedb);

fn error(doing: &'static str) -> impl FnOnce(redb::Error) -> StorageError {
    move |error| StorageError::new(doing, "plain redb", error)
}

impl Backend for PlainRedb {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        let open = || -> Result<_, redb::Error> {
            let database = Database::create(&self.file)?;
            let transaction = database.begin_write()?;
            transaction.open_table(TABLE)?;
            transaction.commit()?;
            Ok(database)
        };
        let storage = |source| OpenError::Storage { place: "of plain redb".to_owned(), source };
        let database = open().map_err(error("opening")).map_err(storage)?;
        Ok(Box::new(Plain(database, self.clone())))
    }
}

impl Plain {
    fn swap(&self, commit: &Commit<'_>) -> Result<Swap, redb::Error> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let swap = {
            let mut table = transaction.open_table(TABLE)?;
            for hint in commit.hints {
                put(&mut table, &hint.key, hint.value.as_deref())?;
            }
            let current = table.get(commit.key)?.map(|value| value.value().to_vec());
            if current.as_deref() == commit.expected {
                put(&mut table, commit.key, commit.new)?;
                for effect in commit.effects {
                    put(&mut table, &effect.key, effect.value.as_deref())?;
                }
                Swap::Done
            } else {
                Swap::Refused { current }
            }
        };
        transaction.commit()?;
        Ok(swap)
    }
}

fn put(table: &mut Table<'_, Bytes, Bytes>, key: &[u8], value: Option<&[u8]>) -> Result<(), redb::Error> {
    match value {
        Some(value) => table.insert(key, value).map(drop)?,
        None => table.remove(key).map(drop)?,
    }
    Ok(())
}

impl Engine for Plain {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let read = || -> Result<_, redb::Error> {
            let table = self.0.begin_read()?.open_table(TABLE)?;
            Ok(table.get(key)?.map(|value| value.value().to_vec()))
        };
        read().map_err(error("reading"))
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        commits.iter().map(|commit| self.swap(commit).map_err(error("writing"))).collect()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let scan = || -> Result<Vec<_>, redb::Error> {
            let from = match after {
                Some(after) if after >= prefix => Bound::Excluded(after),
                _ => Bound::Included(prefix),
            };
            let table = self.0.begin_read()?.open_table(TABLE)?;
            let mut pairs = Vec::new();
            for pair in table.range::<&[u8]>((from, Bound::Unbounded))? {
                let (key, value) = pair?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                pairs.push((key.value().to_vec(), value.value().to_vec()));
            }
            Ok(pairs)
        };
        for (key, value) in scan().map_err(error("scanning"))? {
            if visit(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        let sync = || -> Result<(), redb::Error> {
            let mut transaction = self.0.begin_write()?;
            transaction.set_two_phase_commit(self.1.two_phases);
            Ok(transaction.commit()?)
        };
        if self.1.syncs { sync().map_err(error("syncing")) } else { Ok(()) }
    }
}
