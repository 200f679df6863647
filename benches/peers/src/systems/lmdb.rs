//! LMDB, which has one writer: behind the queue.

use super::Level;
use super::embedded::{Embedded, Look, Queued, Readers};
use crate::job::{Result, System, VALUE};
use crate::queue::{Job, Queue, Step, Writer};
use heed::types::{Bytes, Str};
use heed::{Database, Env, EnvOpenOptions};
use std::path::Path;

/// The file is sparse: room for more keys than a run stores.
const MAP: usize = 32 << 30;

#[derive(Clone)]
struct Lmdb {
    env: Env,
    claims: Database<Str, Bytes>,
}

pub fn open(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    std::fs::create_dir_all(folder)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP).max_readers(512);
    // SAFETY: the folder is this run's own, so that nobody else changes the file that is mapped, nor opens it twice.
    #[allow(unsafe_code)]
    let env = unsafe { options.open(folder)? };
    let mut transaction = env.write_txn()?;
    let claims = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    let lmdb = Lmdb { env, claims };
    Ok(Embedded::boxed(Queued { queue: Queue::new(lmdb.clone())?, readers: lmdb }, level))
}

impl Writer for Lmdb {
    fn commit(&mut self, jobs: &[Job]) -> Result<Vec<bool>> {
        let mut transaction = self.env.write_txn()?;
        let mut changed = Vec::with_capacity(jobs.len());
        for job in jobs {
            changed.push(match job.step {
                Step::Claim => self.claims.get_or_put(&mut transaction, &job.key, &[])?.is_none(),
                Step::Store => {
                    self.claims.put(&mut transaction, &job.key, &VALUE)?;
                    true
                }
            });
        }
        transaction.commit()?;
        Ok(changed)
    }
}

impl Readers for Lmdb {
    fn reader(&self) -> Result<Look<'_>> {
        Ok(Box::new(|key| {
            let transaction = self.env.read_txn()?;
            Ok(self.claims.get(&transaction, key)?.is_some())
        }))
    }
}
