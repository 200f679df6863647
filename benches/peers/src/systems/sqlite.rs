//! SQLite in WAL mode, `synchronous` FULL: as its users write it, and with one writer for all.

use super::Level;
use super::embedded::{Embedded, Engine, Look, Queued, Readers, Rows};
use crate::job::{Result, System, VALUE};
use crate::queue::{Job, Queue, Step, Writer};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

const CLAIM: &str = "INSERT INTO claims (key) VALUES (?1) ON CONFLICT DO NOTHING";
const LOOK: &str = "SELECT 1 FROM claims WHERE key = ?1";

/// The claim's row gets its result; where the claim is in memory, the result is the row.
fn storing(level: Level) -> &'static str {
    match level {
        Level::Full => "UPDATE claims SET result = ?2 WHERE key = ?1",
        Level::Result => "INSERT INTO claims (key, result) VALUES (?1, ?2)",
    }
}

pub fn plain(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    Ok(Embedded::boxed(Plain::new(folder, level, "FULL")?, level))
}

pub fn queued(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    let plain = Plain::new(folder, level, "FULL")?;
    let queue = Queue::new(One { connection: plain.connect()?, store: storing(level) })?;
    Ok(Embedded::boxed(Queued { queue, readers: plain }, level))
}

pub fn unsynced(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    Ok(Embedded::boxed(Plain::new(folder, level, "OFF")?, level))
}

/// A connection for each thread, which waits for the others.
struct Plain {
    file: PathBuf,
    store: &'static str,
    synchronous: &'static str,
}

impl Plain {
    fn new(folder: &Path, level: Level, synchronous: &'static str) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let plain = Self { file: folder.join("db"), store: storing(level), synchronous };
        let table = "CREATE TABLE claims (key TEXT PRIMARY KEY, result BLOB) WITHOUT ROWID";
        plain.connect()?.execute_batch(table)?;
        Ok(plain)
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", self.synchronous)?;
        Ok(connection)
    }
}

impl Engine for Plain {
    fn rows(&self) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(Own { connection: self.connect()?, store: self.store }))
    }
}

impl Readers for Plain {
    fn reader(&self) -> Result<Look<'_>> {
        let mut own = self.rows()?;
        Ok(Box::new(move |key| own.has(key)))
    }
}

struct Own {
    connection: Connection,
    store: &'static str,
}

impl Rows for Own {
    fn insert(&mut self, key: &str) -> Result<bool> {
        Ok(self.connection.prepare_cached(CLAIM)?.execute([key])? == 1)
    }

    fn put(&mut self, key: &str) -> Result<()> {
        match self.connection.prepare_cached(self.store)?.execute((key, VALUE))? {
            1 => Ok(()),
            rows => Err(format!("{rows} rows got the result of {key}").into()),
        }
    }

    fn has(&mut self, key: &str) -> Result<bool> {
        let found = self.connection.prepare_cached(LOOK)?.query_row([key], |_| Ok(())).optional()?;
        Ok(found.is_some())
    }
}

/// The writer behind the queue.
struct One {
    connection: Connection,
    store: &'static str,
}

impl Writer for One {
    fn commit(&mut self, jobs: &[Job]) -> Result<Vec<bool>> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut changed = Vec::with_capacity(jobs.len());
        for job in jobs {
            let rows = match job.step {
                Step::Claim => transaction.prepare_cached(CLAIM)?.execute([&job.key])?,
                Step::Store => transaction.prepare_cached(self.store)?.execute((&job.key, VALUE))?,
            };
            changed.push(rows == 1);
        }
        transaction.commit()?;
        Ok(changed)
    }
}
