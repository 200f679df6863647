//! Walking over plain values.

use super::Store;
use super::caller::{Caller, on_this_thread};
use super::engine::{Pair, page};
use super::kv_error::{KvError, ValueKey};
use crate::error::Fault;
use crate::key::Key;
use crate::record;
use std::collections::VecDeque;
use std::fmt;

/// The plain values of one name, one by one: key and value.
///
/// A value that is damaged gives [`KvError::Scanned`], which names its key, and the scan goes on behind it. If storage
/// fails, it gives that error and ends.
pub struct KvScan {
    store: Store,
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    /// What was read and not given yet.
    page: VecDeque<Result<Pair, KvError>>,
    done: bool,
}

impl KvScan {
    /// How many values are read at a time.
    pub const PAGE: usize = 128;
    /// After how many bytes of values a page ends before that.
    pub const PAGE_BYTES: usize = 1 << 20;

    pub(super) fn new(store: Store, prefix: Vec<u8>) -> Self {
        Self { store, prefix, after: None, page: VecDeque::new(), done: false }
    }

    /// Reads the next page, and then waits for the marks that stand anywhere in it (rule 2): also on keys that it
    /// does not show, since their deletion is told as well.
    async fn turn_page(&mut self, caller: Caller) -> Result<(), Fault> {
        let inner = &self.store.0;
        let most = (Self::PAGE, Self::PAGE_BYTES);
        let (found, full) = page(&*inner.engine.get()?, &self.prefix, self.after.as_deref(), most)?;
        let last = found.last().map(|(key, _)| key.clone()).filter(|_| full);
        let marked = inner.table.all_marked(&self.prefix, self.after.as_deref(), last.as_deref())?;
        for (key, stamp) in marked {
            inner.until_synced(caller, &key, stamp).await?;
        }
        inner.check_relaxed_values()?;
        // Not before all waits: a task that is dropped in one has turned no page.
        self.done = !full;
        self.after = last;
        for (key, bytes) in found {
            let Some(key) = Key::decode_value(&key) else { continue };
            match record::decode_value(&bytes) {
                Ok(value) => self.page.push_back(Ok((key.name().to_vec(), value))),
                Err(damage) => {
                    self.page.push_back(Err(KvError::Scanned { key: ValueKey::new(&key), damage }));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn give(&mut self, caller: Caller) -> Option<Result<Pair, KvError>> {
        while self.page.is_empty() && !self.done {
            if let Err(fault) = self.turn_page(caller).await {
                self.done = true;
                return Some(Err(KvError::Failed { doing: "scanning", on: "the values".to_owned(), fault }));
            }
        }
        self.page.pop_front()
    }
}

impl fmt::Debug for KvScan {
    /// Shows how far it is, not where: keys do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvScan")
            .field("ready", &self.page.len())
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Iterator for KvScan {
    type Item = Result<(Vec<u8>, Vec<u8>), KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        on_this_thread(self.give(Caller::Thread))
    }
}
