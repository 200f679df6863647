//! Copying a store that is open and goes on: its state at one moment.
//!
//! All commits are watched. The walk shows each pair as of some time; then the keys that commits changed meanwhile
//! are read again, until few are left; and the last of them are read while commits stand still. What the copy then
//! holds is what the engine held at that moment, every commit whole: a completion with its effects, a batch of values
//! with all of them. The copy is ended only after a sync of the store that began after the moment, so that it tells of
//! nothing that a power cut could still take from the store (P4).

use super::piece::Judge;
use super::staged::{is_outside, staged};
use super::{Copied, CopyError, Target, page, walk};
use crate::backend::{Backend, Engine};
use crate::clock::WallTime;
use crate::error::Fault;
use crate::store::caller::{Caller, on_this_thread};
use crate::store::recording::{PATIENCE, Recording, Touched};
use crate::store::{Inner, Store};
use std::path::Path;
use std::sync::Arc;

/// With so few keys left, commits are made to stand still.
const FEW: usize = 128;
/// How often changed keys are read again before commits stand still for what is left.
const ROUNDS: usize = 16;
/// How often they are asked to.
const TRIES: usize = 3;

impl Store {
    /// Copies this store into `target`, a place of any engine that holds nothing, while it goes on. The copy is the
    /// store as it stood at one moment during the call:
    ///
    /// - everything that was told before the call is in it;
    /// - of a completion and its effects, or a batch of values, it has all or nothing;
    /// - it tells of nothing that is not durable in this store.
    ///
    /// Claims that are pending at that moment are, in the copy, those of an opening that has ended; claims kept in
    /// memory are not in it. Results whose retention is over are left out.
    ///
    /// Tokens granted from the copy are greater than all in it. This store goes on granting: once the copy is put in
    /// its stead, P2 holds if the clock is past the time at which this store stopped; otherwise open it with
    /// [`Builder::token_floor`](crate::Builder::token_floor).
    ///
    /// It reads everything that is stored and holds in memory a page of it, and the keys that are written meanwhile.
    /// Writers are held back once, for the time of reading what was written last, a second at most. If they
    /// write faster than can be followed, it fails as [`CopyError::Busy`].
    ///
    /// # Errors
    /// [`CopyError`]; what was written to `target` is then refused by every opening, unless nothing was.
    pub fn backup_to(&self, target: &dyn Backend) -> Result<Copied, CopyError> {
        // Before anything is made of the target.
        self.0.check_process()?;
        self.0.check_writable()?;
        is_outside(target)?;
        let copy = target.open()?;
        self.0.back_up(&*copy, target.place())
    }

    /// Copies this store like [`backup_to`](Self::backup_to) into `folder`, which is not there yet, or empty. The copy
    /// is made in a folder beside it, whose name ends in `.partial`, and gets its name once it is whole. It is a
    /// store of the same engine, or of the default one if this store has no files: to restore it, close this one and
    /// put the folder in its place.
    ///
    /// ```
    /// # let place = tempfile::tempdir()?;
    /// # let (live, copy) = (place.path().join("live"), place.path().join("copy"));
    /// let store = claimdb::Store::open(live)?;
    /// store.claim("order-42")?.granted().expect("it is free").complete("receipt 7")?;
    /// assert_eq!(store.backup(&copy)?.records, 1);
    /// assert!(claimdb::Store::open(copy)?.get("order-42")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CopyError`]; `folder` is as it was then.
    #[cfg(any(feature = "sled", feature = "redb"))]
    pub fn backup(&self, folder: impl AsRef<Path>) -> Result<Copied, CopyError> {
        // Of a store without files no engine is known, as of the place of the copy: that gets the default one.
        let own = |partial: &Path| {
            crate::backend::same_engine(self.0.settings.folder.as_deref().unwrap_or(partial), partial)
        };
        self.backup_into(folder, own)
    }

    /// Copies this store like [`backup_to`](Self::backup_to) into `folder`, which is not there yet, or empty, and gets
    /// its name once it is whole; `backend` gives the engine for a folder.
    ///
    /// # Errors
    /// [`CopyError`]; `folder` is as it was then.
    pub fn backup_into(
        &self,
        folder: impl AsRef<Path>,
        backend: impl FnOnce(&Path) -> Box<dyn Backend>,
    ) -> Result<Copied, CopyError> {
        self.0.check_process()?;
        staged(folder.as_ref(), |partial| self.backup_to(&*backend(partial)))
    }
}

/// Watches the commits of a store until it is dropped.
struct Watching<'a> {
    store: &'a Inner,
    recording: Arc<Recording>,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.store.engine.unwatch(&self.recording);
    }
}

impl Inner {
    fn back_up(&self, copy: &dyn Engine, place: String) -> Result<Copied, CopyError> {
        let watch = Watching { store: self, recording: Recording::new(Arc::clone(&self.clock)) };
        let limit = self.limit();
        let busy = || CopyError::Busy { waited: limit };
        if !self.engine.watch(&watch.recording, &*self.clock, limit)? {
            return Err(busy());
        }
        // Told by one that was opened to look; of one that is written to its engine knows nothing.
        self.engine()?.is_as_written()?;
        let wall = self.wall();
        let mut target = Target::begin(copy, place)?;
        let turn_page = |after: Option<&[u8]>| Ok(page(&*self.engine()?, after)?);
        walk(turn_page, |pairs| target.add(&pairs, &self.judge(wall)))?;
        for _ in 0..ROUNDS {
            let changed = watch.recording.take();
            let few = changed.len() <= FEW;
            for key in changed {
                let now = self.engine()?.read(&key)?;
                target.change(&key, now, &self.judge(wall))?;
            }
            if few {
                break;
            }
        }
        self.bring_to_one_moment(&mut target, &watch.recording, wall)?.ok_or_else(busy)?;
        drop(watch);
        // After the moment: a record in the copy has a token below it, and is durable once this sync has ended.
        let ceiling = self.tokens.ceiling();
        on_this_thread(self.next_sync(Caller::Thread))?;
        target.finish(ceiling, self.wall())
    }

    /// Reads what is left while commits stand still; `None` if they would not.
    fn bring_to_one_moment(
        &self,
        target: &mut Target<'_>,
        recording: &Recording,
        wall: WallTime,
    ) -> Result<Option<()>, CopyError> {
        for _ in 0..TRIES {
            let engine = self.engine()?;
            let look = |touched: Touched| -> Vec<_> {
                touched.into_iter().map(|key| (engine.read(&key), key)).collect()
            };
            let Some((seen, of_one_moment)) = recording.still(PATIENCE, look) else { continue };
            for (now, key) in seen {
                target.change(&key, now?, &self.judge(wall))?;
            }
            if of_one_moment {
                return Ok(Some(()));
            }
        }
        Ok(None)
    }

    fn engine(&self) -> Result<Arc<dyn Engine>, Fault> {
        self.engine.get()
    }

    /// By one time for all of a copy, and by the ceiling as it is now: it is raised meanwhile.
    fn judge(&self, wall: WallTime) -> Judge {
        Judge { wall, ceiling: Some(self.tokens.ceiling()) }
    }
}
