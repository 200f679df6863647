//! fjall, whose syncs do not share work by themselves: its transactions with one writer, behind the queue.

use super::Level;
use super::embedded::{Embedded, Look, Queued, Readers};
use crate::job::{Result, System, VALUE};
use crate::queue::{Job, Queue, Step, Writer};
use fjall::{KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace};
use std::path::Path;

#[derive(Clone)]
struct Fjall {
    database: SingleWriterTxDatabase,
    claims: SingleWriterTxKeyspace,
}

pub fn open(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    let database = SingleWriterTxDatabase::builder(folder).open()?;
    let claims = database.keyspace("claims", KeyspaceCreateOptions::default)?;
    let fjall = Fjall { database, claims };
    Ok(Embedded::boxed(Queued { queue: Queue::new(fjall.clone())?, readers: fjall }, level))
}

impl Writer for Fjall {
    fn commit(&mut self, jobs: &[Job]) -> Result<Vec<bool>> {
        let mut transaction = self.database.write_tx().durability(Some(PersistMode::SyncData));
        let mut changed = Vec::with_capacity(jobs.len());
        for job in jobs {
            let key = job.key.as_str();
            changed.push(match job.step {
                Step::Claim => {
                    let absent = transaction.get(&self.claims, key)?.is_none();
                    if absent {
                        transaction.insert(&self.claims, key, []);
                    }
                    absent
                }
                Step::Store => {
                    transaction.insert(&self.claims, key, VALUE);
                    true
                }
            });
        }
        transaction.commit()?;
        Ok(changed)
    }
}

impl Readers for Fjall {
    fn reader(&self) -> Result<Look<'_>> {
        Ok(Box::new(|key| Ok(self.claims.contains_key(key)?)))
    }
}
