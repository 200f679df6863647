//! Whether the log is what was left of it, before sled sees it; and if not, whether a repair gets past that.

use super::log;
use super::messages::Refusal;
use super::recovery::{self, Plan};
use crate::backend::folder::Folder;
use crate::error::{OpenError, StoreDamage};
use std::path::PathBuf;

/// What was found. Nothing was changed.
pub(super) enum Examined {
    /// Nothing is wrong. Without a plan if the store has had no sync: nothing was told of it, and there is nothing that
    /// sled could lose.
    Sound(Option<Plan>),
    /// What a repair gets past.
    Mendable { damage: StoreDamage, mend: Mend },
    /// What none does.
    Lost(StoreDamage),
}

/// What makes the store openable.
pub(super) struct Mend {
    around: Option<Plan>,
    without_tail: bool,
}

pub(super) fn examine(folder: &Folder) -> Result<Examined, OpenError> {
    let failed = || folder.failed("reading sled's log in");
    let tail = log::damage_in_tail(folder).map_err(failed())?;
    let without_tail = tail.is_some();
    let plan = folder.existed().then(|| recovery::plan(folder)).transpose();
    let (damage, opens) = match (plan, tail) {
        (Ok(plan), None) => return Ok(Examined::Sound(plan)),
        (Ok(_), Some(damage)) => (damage, true),
        (Err(Refusal::Damaged(damage)), tail) => (tail.unwrap_or(damage), false),
        (Err(Refusal::Failed(error)), _) => return Err(failed()(error)),
    };
    // Also of a log that would open without `tail`: of the damaged segment sled would leave out what comes later.
    let around = match recovery::plan_around(folder) {
        Ok(plan) => Some(plan),
        Err(Refusal::Damaged(_)) if opens => None,
        Err(Refusal::Damaged(_)) => return Ok(Examined::Lost(damage)),
        Err(Refusal::Failed(error)) => return Err(failed()(error)),
    };
    Ok(Examined::Mendable { damage, mend: Mend { around, without_tail } })
}

impl Mend {
    /// Makes the store openable; tells where the file `tail` is, if that had to be put aside.
    pub(super) fn carry_out(self, folder: &Folder) -> Result<Option<PathBuf>, OpenError> {
        if let Some(plan) = self.around {
            plan.carry_out(folder).map_err(folder.failed("writing a snapshot for sled in"))?;
        }
        // Last: without it the next opening believes what it finds.
        let aside = self.without_tail.then(|| log::put_tail_aside(folder)).transpose();
        aside.map_err(folder.failed("putting the file `tail` aside in"))
    }
}
