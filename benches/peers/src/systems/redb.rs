//! redb without claimdb, which has one writer: behind the queue.

use super::Level;
use super::embedded::{Embedded, Look, Queued, Readers};
use crate::job::{Result, System, VALUE};
use crate::queue::{Job, Queue, Step, Writer};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;
use std::sync::Arc;

const CLAIMS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("claims");

#[derive(Clone)]
struct Redb(Arc<Database>);

pub fn open(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    std::fs::create_dir_all(folder)?;
    let database = Database::create(folder.join("db"))?;
    let transaction = database.begin_write()?;
    transaction.open_table(CLAIMS)?;
    transaction.commit()?;
    let redb = Redb(Arc::new(database));
    Ok(Embedded::boxed(Queued { queue: Queue::new(redb.clone())?, readers: redb }, level))
}

impl Writer for Redb {
    fn commit(&mut self, jobs: &[Job]) -> Result<Vec<bool>> {
        let transaction = self.0.begin_write()?;
        let mut changed = Vec::with_capacity(jobs.len());
        {
            let mut claims = transaction.open_table(CLAIMS)?;
            for job in jobs {
                let key = job.key.as_str();
                changed.push(match job.step {
                    Step::Claim => {
                        let absent = claims.get(key)?.is_none();
                        if absent {
                            claims.insert(key, [].as_slice())?;
                        }
                        absent
                    }
                    Step::Store => {
                        claims.insert(key, VALUE.as_slice())?;
                        true
                    }
                });
            }
        }
        // Synced by default.
        transaction.commit()?;
        Ok(changed)
    }
}

impl Readers for Redb {
    fn reader(&self) -> Result<Look<'_>> {
        Ok(Box::new(|key| Ok(self.0.begin_read()?.open_table(CLAIMS)?.get(key)?.is_some())))
    }
}
