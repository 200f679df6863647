//! The twin of the system faults.

use claimdb::backend::{Backend, Commit, Engine, Sled, Swap, Visit};
use claimdb::{OpenError, StorageError};

/// An engine that keeps failed syncs to itself.
#[derive(Debug)]
pub struct Deaf(pub Sled);

#[derive(Debug)]
struct DeafEngine(Box<dyn Engine>);

impl Backend for Deaf {
    fn open(&self) -> Result<Box<dyn Engine>, OpenError> {
        Ok(Box::new(DeafEngine(self.0.open()?)))
    }
}

impl Engine for DeafEngine {
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(key)
    }

    fn commit(&self, commits: &[Commit<'_>]) -> Vec<Result<Swap, StorageError>> {
        self.0.commit(commits)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(prefix, after, visit)
    }

    fn sync(&self) -> Result<(), StorageError> {
        let _ = self.0.sync();
        Ok(())
    }
}
