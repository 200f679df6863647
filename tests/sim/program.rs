//! What the actors of a simulated world do, drawn from a seed.

use super::random::Random;
use claimdb::Durability;
use std::fmt;

/// All that is to happen in one world.
#[derive(Debug, Clone)]
pub struct Program {
    /// Whether callers sync, or a thread of the store's own.
    pub callers_sync: bool,
    pub actors: Vec<Actor>,
}

#[derive(Debug, Clone)]
pub struct Actor {
    /// Whether it is a task; else it is a thread.
    pub task: bool,
    pub acts: Vec<Act>,
}

/// One act; a task drops it at the poll with that number, if it is not done by then.
#[derive(Debug, Clone)]
pub struct Act {
    pub what: What,
    pub polls: Option<u8>,
}

#[derive(Debug, Clone)]
pub enum What {
    Claim(Ask),
    ClaimAll(Ask, Ask),
    /// These are of the claim that the actor was granted last.
    Renew,
    Checkpoint,
    Complete,
    CompleteWith(u8),
    Fail,
    Omit,
    Release,
    Drop,
    /// These are of a key.
    Get(u8),
    Remove(u8),
    RemoveByForce(u8),
    Resolve(u8),
    /// These are of a plain value.
    Put(u8),
    Delete(u8),
    Read(u8),
    Swap(u8),
    Sweep,
    Sync,
    /// Moves the clock by so many seconds.
    Pass(u64),
    /// Cuts the power; the number says what survives.
    PowerCut(u64),
    Reopen(u64),
    /// The next such call of the drive fails.
    Fault(Call, Goes),
}

/// What a claim asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    pub key: u8,
    /// What the work is: its fingerprint.
    pub work: u8,
    pub durability: Durability,
    /// In seconds, as all times here.
    pub wait: u64,
    pub lease: u64,
    pub retention: u64,
    pub quarantine: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Read,
    Commit,
    Scan,
    Sync,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    /// And nothing was done.
    WrongBefore,
    /// And yet it was done.
    WrongAfter,
}

/// The keys of claims, and of plain values.
pub const KEYS: u8 = 2;
pub const VALUES: u8 = 2;

impl Program {
    pub fn draw(random: &mut Random) -> Self {
        let actors = 2 + random.below(7);
        let most = 2 + 24 / actors;
        let callers_sync = random.below(3) == 0;
        let actors = (0..actors).map(|_| Actor::draw(random, most)).collect();
        Self { callers_sync, actors }
    }

    /// Each program that lacks one actor or one act of this one, those that lack most first.
    pub fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for actor in 0..self.actors.len() {
            let mut program = self.clone();
            program.actors.remove(actor);
            found.push(program);
        }
        for actor in 0..self.actors.len() {
            for act in 0..self.actors[actor].acts.len() {
                let mut program = self.clone();
                program.actors[actor].acts.remove(act);
                found.push(program);
            }
        }
        found.retain(|program| {
            !program.actors.is_empty() && program.actors.iter().all(|actor| !actor.acts.is_empty())
        });
        found
    }
}

impl Actor {
    fn draw(random: &mut Random, most: usize) -> Self {
        let task = random.below(2) == 0;
        let acts = (0..1 + random.below(most)).map(|_| Act::draw(random, task)).collect();
        Self { task, acts }
    }
}

impl Act {
    fn draw(random: &mut Random, task: bool) -> Self {
        let what = What::draw(random);
        let polls = (task && random.below(8) == 0).then(|| 1 + random.below(3) as u8);
        Self { what, polls }
    }
}

impl What {
    fn draw(random: &mut Random) -> Self {
        let key = random.below(usize::from(KEYS)) as u8;
        let keep = random.next();
        match random.below(64) {
            0..20 => Self::Claim(Ask::draw(random, key)),
            20 | 21 => {
                let first = Ask { wait: 0, ..Ask::draw(random, 0) };
                Self::ClaimAll(first, Ask::draw(random, 1))
            }
            22..30 => Self::Complete,
            30 | 31 => Self::CompleteWith(key),
            32 => Self::Fail,
            33 => Self::Omit,
            34 | 35 => Self::Release,
            36 | 37 => Self::Drop,
            38 => Self::Renew,
            39 | 40 => Self::Checkpoint,
            41..43 => Self::Get(key),
            43 => Self::Remove(key),
            44 => Self::RemoveByForce(key),
            45 => Self::Resolve(key),
            46 | 47 => Self::Put(key),
            48 => Self::Delete(key),
            49 | 50 => Self::Read(key),
            51 => Self::Swap(key),
            52 | 53 => Self::Sweep,
            54 => Self::Sync,
            55..58 => Self::Pass([10, 30, 60][random.below(3)]),
            58 | 59 => Self::PowerCut(keep),
            60 | 61 => Self::Reopen(keep),
            _ => {
                let call = [Call::Read, Call::Commit, Call::Commit, Call::Scan, Call::Sync][random.below(5)];
                let goes = [Goes::WrongBefore, Goes::WrongAfter][random.below(2)];
                Self::Fault(call, goes)
            }
        }
    }
}

impl Ask {
    fn draw(random: &mut Random, key: u8) -> Self {
        let durability =
            [Durability::Full, Durability::Full, Durability::Result, Durability::Relaxed][random.below(4)];
        Self {
            key,
            work: u8::from(random.below(8) == 0),
            durability,
            wait: [0, 0, 20, 100][random.below(4)],
            lease: [10, 30][random.below(2)],
            retention: [50, 1_000][random.below(2)],
            quarantine: durability == Durability::Full && random.below(5) == 0,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "syncs by {}", if self.callers_sync { "callers" } else { "a thread" })?;
        for (number, actor) in self.actors.iter().enumerate() {
            writeln!(f, "  {number}, a {}:", if actor.task { "task" } else { "thread" })?;
            for Act { what, polls } in &actor.acts {
                match polls {
                    Some(polls) => writeln!(f, "    {what:?}, dropped at poll {polls}")?,
                    None => writeln!(f, "    {what:?}")?,
                }
            }
        }
        Ok(())
    }
}
