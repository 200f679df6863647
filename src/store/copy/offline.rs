//! Copying a store that nobody has open: moving it to another engine, and compacting it.

use super::piece::Judge;
use super::staged::{is_outside, staged};
use super::{Copied, CopyError, Target, page, walk};
use crate::backend::{Backend, Engine};
#[cfg(any(feature = "sled", feature = "redb"))]
use crate::backend::{Old, replace};
use crate::clock::Clock;
use crate::error::OpenError;
use crate::store::Builder;
use crate::store::own::Own;
use std::path::Path;

impl Builder {
    /// Copies the store, which nobody may have open, into `target`, a place of any engine that holds nothing. The
    /// store is not changed, but for what every opening of its engine does.
    ///
    /// What is remembered is in the copy as it was, claims that were pending among it: their openings have ended.
    /// Results whose retention is over are left out, and the retention index is made anew. Tokens granted from the
    /// copy are greater than all that the store granted before (P2); if the store is used again afterwards, see
    /// [`token_floor`](Self::token_floor). Reads everything that is stored, and holds a page of it in memory.
    ///
    /// A copy that was cut off is refused by every opening as [`OpenError::UnfinishedCopy`]; delete it.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn migrate(&self, target: &dyn Backend) -> Result<Copied, CopyError> {
        is_outside(target)?;
        let source = self.open_to_look()?;
        let copy = target.open()?;
        copy_closed((&*source, &self.backend.place()), (&*copy, target.place()), &*self.clock)
    }

    /// Copies the store like [`migrate`](Self::migrate) into `folder`, which is not there yet, or empty. The copy is
    /// made in a folder beside it, whose name ends in `.partial`, and gets its name once it is whole; `backend` gives
    /// the engine for a folder.
    ///
    /// # Errors
    /// [`CopyError`]; `folder` is as it was then.
    pub fn migrate_into(
        &self,
        folder: impl AsRef<Path>,
        backend: impl FnOnce(&Path) -> Box<dyn Backend>,
    ) -> Result<Copied, CopyError> {
        let source = self.open_to_look()?;
        staged(folder.as_ref(), |partial| {
            let target = backend(partial);
            let copy = target.open()?;
            copy_closed((&*source, &self.backend.place()), (&*copy, target.place()), &*self.clock)
        })
    }
}

#[cfg(any(feature = "sled", feature = "redb"))]
impl crate::store::Store {
    /// Writes the store in the folder `path` anew, over the engine that made it, and gives back the space that it no
    /// longer needs, which sled never does by itself. Nobody may have it open: it takes the store's lock, and tries
    /// once. What is stored is as after [`Builder::migrate`], and the folder keeps its name, its lock and its tokens.
    ///
    /// Until it is done both are on the disk, so it needs room for what is remembered a second time. Killed or cut off
    /// at any point, the folder holds the one or the other, whole, and the next opening clears the rest away.
    ///
    /// # Errors
    /// [`CopyError`]; what was stored is as it was then.
    pub fn compact(path: impl AsRef<Path>) -> Result<Copied, CopyError> {
        let path = path.as_ref();
        let (place, clock) = (path.display().to_string(), crate::clock::SystemClock::new());
        let copied = replace(path, |old, new| {
            Ok((copy_closed((old, &place), (new, place.clone()), &clock)?, Old::Deleted))
        });
        copied.map_err(|error: CopyError| error.replacing("compacting", &place))
    }
}

/// Copies what a closed store's engine holds into another.
fn copy_closed(
    (source, place): (&dyn Engine, &str),
    (target, target_place): (&dyn Engine, String),
    clock: &dyn Clock,
) -> Result<Copied, CopyError> {
    // What is damaged and reads as if it were not would be sound in the copy.
    source.is_as_written()?;
    let own = Own::read(source, place)?;
    let Some(ceiling) = own.ceiling else {
        return Err(OpenError::NoStore { place: place.to_owned() }.into());
    };
    let wall = own.retention(clock).start();
    let judge = Judge { wall, ceiling: Some(ceiling) };
    let mut target = Target::begin(target, target_place)?;
    walk(|after| Ok(page(source, after)?), |pairs| target.add(&pairs, &judge))?;
    target.finish(ceiling, wall)
}
