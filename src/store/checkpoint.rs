//! Progress that a holder saves for its successor.

use super::caller::{Caller, on_this_thread};
use super::engine::commit_one;
use super::guard::Claim;
use super::settle_error::{AlreadySettled, KeyInterrupted, Lost, RetryCause};
use crate::backend::{Commit, Swap};
use crate::error::Fault;
use crate::key::KeyLabel;
use crate::protocol::decide::{self, Settling};
use crate::record::State;
use std::sync::Arc;

impl Claim {
    /// Saves `progress` with the claim's record, in place of what was saved before. When this returns, it is
    /// durable: if this holder ends without settling, its successor finds it in
    /// [`last_checkpoint`](Claim::last_checkpoint). At most as many bytes as a result, 1 MiB unless
    /// [`Builder::value_limit`](crate::Builder::value_limit) says otherwise.
    ///
    /// It does not renew the lease. A claim whose lease has run out may still save, as long as nobody else was
    /// granted the key.
    ///
    /// # Errors
    /// [`CheckpointError`]; the claim is as it was, except that after a fault the progress may be saved.
    pub fn checkpoint(&mut self, progress: impl AsRef<[u8]>) -> Result<(), CheckpointError> {
        on_this_thread(self.save(Caller::Thread, progress.as_ref()))
    }

    pub(super) async fn save(&mut self, caller: Caller, progress: &[u8]) -> Result<(), CheckpointError> {
        let saved = self.swap_in(progress);
        if let Err(CheckpointError::NotStored { .. } | CheckpointError::Failed { .. }) = saved {
            return saved;
        }
        // A refusal too: it tells of what the record says, which may have been written a moment ago (P4).
        let (key, store) = (self.0.key.label(), Arc::clone(&self.0.store));
        let synced = store.next_sync(caller).await;
        synced.map_err(|fault| CheckpointError::Failed { key, cause: RetryCause::Fault(fault) })?;
        saved
    }

    fn swap_in(&mut self, progress: &[u8]) -> Result<(), CheckpointError> {
        let (key, token) = (self.0.key.label(), self.token());
        let failed = |cause| CheckpointError::Failed { key, cause };
        let fault = |fault: Fault| failed(RetryCause::Fault(fault));
        let store = Arc::clone(&self.0.store);
        store.check_size(progress.len()).map_err(failed)?;
        let Some(stored) = &self.0.stored else { return Err(CheckpointError::NotStored { key }) };
        store.check_writable().map_err(fault)?;
        // A closed store has ended its claims, whatever their records say.
        store.is_unsynced(&self.0.key).map_err(fault)?;
        // Not before: that may have synced.
        let engine = store.engine.get().map_err(fault)?;
        let mut seen = Some(stored.clone());
        let (record, bytes) = loop {
            let record = store.decode(&self.0.key, seen.as_deref());
            let record = record.map_err(|damage| fault(damage.into()))?;
            let new = match decide::checkpoint(record.as_ref(), token, progress) {
                Settling::Swap(Some(new)) => new,
                Settling::Lost { by } => return Err(CheckpointError::Lost(Lost { key, token, by })),
                Settling::Interrupted => {
                    return Err(CheckpointError::Interrupted(KeyInterrupted { key, token }));
                }
                Settling::SettledOtherwise { by_hand } => {
                    return Err(CheckpointError::AlreadySettled(AlreadySettled { key, token, by_hand }));
                }
                Settling::Swap(None) | Settling::Confirmed => {
                    unreachable!("progress is saved in a pending record, and takes none away")
                }
            };
            let bytes = new.encode();
            match commit_one(&*engine, &Commit::swap(self.0.key.encoded(), seen.as_deref(), Some(&bytes))) {
                Ok(Swap::Done) => break (new, bytes),
                Ok(Swap::Refused { current }) => seen = current,
                // Its fate is unknown: look (P9).
                Err(error) => match engine.read(self.0.key.encoded()) {
                    Ok(found) if found.as_ref() == Some(&bytes) => break (new, bytes),
                    _ => return Err(fault(error.into())),
                },
            }
        };
        self.0.record = record;
        self.0.stored = Some(bytes);
        Ok(())
    }

    /// The progress that this attempt or the one before it saved last.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&[u8]> {
        match &self.0.record.state {
            State::Pending { checkpoint, .. } => checkpoint.as_deref(),
            State::Interrupted { .. } | State::Settled { .. } => None,
        }
    }
}

/// Progress could not be saved.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The claim is kept in memory alone, so there is nothing to save it with.
    #[error("saving progress of {key}: the claim is not stored; claim with Durability::Full")]
    NotStored {
        /// Stands for the key.
        key: KeyLabel,
    },
    /// The claim is no longer current; nothing was changed.
    #[error(transparent)]
    Lost(Lost),
    /// The key is settled under this claim's token, by an earlier try of it or by hand; nothing was changed.
    #[error(transparent)]
    AlreadySettled(AlreadySettled),
    /// The key became interrupted; nothing was changed.
    #[error(transparent)]
    Interrupted(KeyInterrupted),
    /// It is too large, or it went wrong underneath; try again.
    #[error("saving progress of {key}: {cause}")]
    Failed {
        /// Stands for the key.
        key: KeyLabel,
        /// Why.
        #[source]
        cause: RetryCause,
    },
}
