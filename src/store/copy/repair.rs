//! Making a store whole again: what cannot be read is put aside, and the rest is written anew.

use super::around::{Gap, is_as_written, read, walk_around};
use super::piece::{Judge, Part, Piece};
use super::{Copied, CopyError, Pair, Target};
use crate::backend::{Engine, Old, make_openable, replace};
use crate::clock::{Clock, SystemClock};
use crate::error::{Damage, OpenError};
use crate::key::IndexEntry;
use crate::record;
use crate::store::Store;
use crate::store::own::{CEILING_END, ceiling_key};
use crate::store::retention::{RetentionClock, high_water_key};
use crate::sync::process_seed;
use crate::token::{Token, ceiling_above, first_of_opening};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::{Display, Write as _};
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher as _;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What a repair did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// What the store holds now.
    pub copied: Copied,
    /// How much was no sound record or value, and was put aside.
    pub aside: u64,
    /// How many stretches of the store the engine itself could not read, but for those of the index alone.
    pub unread: u64,
    /// How many of those lie behind the last record, so that there were plain values in them at most.
    pub unread_values: u64,
    /// How many records the retention index names in those. They are lost; what else was in them nobody knows.
    pub named: u64,
    /// How many stretches of the retention index the engine could not read. It was made anew, and nothing is lost by that, unless
    /// more than the index has changed: see [`altered`](Self::altered).
    pub unread_index: u64,
    /// How many records the retention index speaks of that are not there, though what they would lie in could be read. Counted
    /// where the engine's file is not what was written (by redb's checksums), which can take a key away without a trace; of
    /// claims that were released or removed such entries are left as well.
    pub missing: u64,
    /// Whether all but the retention index could be read and the engine's file is not what was written.
    pub altered: bool,
    /// The file that all this was put into; `None` if there was nothing.
    pub aside_in: Option<PathBuf>,
    /// The engine's files as they were, which are kept if it could not read some of them, or they are not what was written.
    pub kept_in: Option<PathBuf>,
    /// Where the file `tail` was put, if the log did not match the checksum in it. If it is the log that was changed,
    /// and not that file, results of the last opening may be gone: see the copy of the folder, or a backup.
    pub tail_in: Option<PathBuf>,
    /// The token ceiling that was set, if the one that was stored could not be believed. If the clock is behind the time
    /// at which the store was used last, open it once with
    /// [`Builder::token_floor`](crate::Builder::token_floor) above every token that is known.
    pub new_ceiling: Option<Token>,
}

impl Store {
    /// Writes the store in the folder `path` anew from all that can be read of it. Nobody may have it open: it takes
    /// the store's lock, and tries once. What cannot be read goes into a file `aside-1` (or the next number) in the
    /// folder, whose format is in `docs/format.md` and which claimdb never deletes; the retention index is made anew.
    ///
    /// What the engine itself cannot read, such as a damaged page with all that is on it, is walked around. The file
    /// then tells between which keys it lay, and which records the retention index knows of there; and the engine's
    /// files are kept as they were, beside that file. An engine that refuses everything since an error of the disk
    /// ends the repair.
    ///
    /// Where all but the retention index can be read and redb's file is not what was written by its checksums, the files are kept
    /// as well, and records that the retention index speaks of and that are not there are named: a key of which a bit has changed leaves such an
    /// entry.
    ///
    /// A store over sled that is refused because its log does not match the checksum of its last close (the file `tail`)
    /// is opened without: that file goes into a folder `aside-` and the date. One whose log is damaged in what sled's
    /// snapshot knows is opened by a snapshot that leads around that.
    ///
    /// **Keys whose records are put aside are free afterwards: their work can run again.** Look at the file first, or
    /// have a backup, if that must not happen. Plain values that are put aside read as absent.
    ///
    /// Killed or cut off at any point, what is stored is as it was or repaired, as in [`compact`](Store::compact),
    /// whose need for room it shares.
    ///
    /// # Errors
    /// [`CopyError`]; what was stored is as it was then. A store that its engine cannot open cannot be repaired by this:
    /// it fails as [`OpenError::Damaged`] with [`Remedy::Backup`](crate::Remedy::Backup), and nothing was changed, unless
    /// it is the engine itself that refuses.
    pub fn repair(path: impl AsRef<Path>) -> Result<Repaired, CopyError> {
        let path = path.as_ref();
        let place = path.display().to_string();
        let tail_in = make_openable(path)?;
        let repaired = replace(path, |old, new| repair(old, new, &place, path, &SystemClock::new()));
        match (repaired.map_err(|error: CopyError| error.replacing("repairing", &place)), tail_in) {
            (Ok(repaired), tail_in) => Ok(Repaired { tail_in, ..repaired }),
            (Err(source), Some(tail_in)) => {
                Err(CopyError::HalfRepaired { source: Box::new(source), tail_in })
            }
            (Err(error), None) => Err(error),
        }
    }
}

fn repair(
    source: &dyn Engine,
    target: &dyn Engine,
    place: &str,
    folder: &Path,
    clock: &dyn Clock,
) -> Result<(Repaired, Old), CopyError> {
    // One that cannot be read is as good as lost.
    let stored = read(source, &ceiling_key()).unwrap_or_default();
    if stored.as_ref().is_some_and(|stored| *stored == record::unfinished_copy()) {
        return Err(OpenError::UnfinishedCopy { place: place.to_owned() }.into());
    }
    let ceiling = stored.as_deref().and_then(|bytes| record::decode_ceiling(bytes).ok());
    let ceiling = ceiling.filter(|ceiling| *ceiling < CEILING_END);
    let high_water = read(source, &high_water_key()).unwrap_or_default();
    let high_water = high_water.as_deref().and_then(|bytes| record::decode_high_water(bytes).ok());
    let wall = RetentionClock::starting(clock.wall(), high_water, clock.now()).start();
    let judge = Judge { wall, ceiling };
    let mut target = Target::begin(target, place.to_owned())?;
    let aside = RefCell::new(Aside::beside(folder));
    let damage = is_as_written(source).err();
    // By a hash of their keys. That two share one is as good as impossible.
    let known = damage.is_some().then(|| RefCell::new(HashSet::new()));
    let is_known = |key: &[u8]| known.as_ref().is_some_and(|known| !known.borrow_mut().insert(hash(key)));
    let (mut greatest, mut unread, mut unread_values, mut unread_index) = (Token::new(0), 0, 0, 0);
    walk_around(
        source,
        &mut |pairs| {
            let mut sound = Vec::with_capacity(pairs.len());
            for pair in pairs {
                let piece = judge.piece(&pair.0, &pair.1);
                if !matches!(piece, Ok(Piece::Entry) | Err((Part::Entry, _))) {
                    is_known(&pair.0);
                }
                match piece {
                    Ok(Piece::Entry) => {
                        let entry = IndexEntry::decode(&pair.0).filter(|entry| entry.end > wall);
                        let alone = |entry: &IndexEntry| damage.is_some() && !is_known(entry.key.encoded());
                        // A walk can have passed over what a search for it alone finds.
                        if let Some(entry) = entry.filter(alone) {
                            let key = entry.key.encoded();
                            let found = read(source, key).ok().flatten().map(|value| (key.to_vec(), value));
                            match found.filter(|(key, value)| judge.piece(key, value).is_ok()) {
                                Some(pair) => sound.push(pair),
                                None => aside.borrow_mut().put_missing(key)?,
                            }
                        }
                    }
                    Ok(piece) => {
                        if let Piece::Record { token, .. } = piece {
                            greatest = greatest.max(token);
                        }
                        sound.push(pair);
                    }
                    // An entry that is none stands for nothing, and the index is made anew.
                    Err((Part::Entry, _)) => {}
                    Err((part, damage)) => {
                        // Whatever is granted from now on is to be above it.
                        if let Damage::TokenAboveCeiling { token, .. } = damage {
                            greatest = greatest.max(token);
                        }
                        aside.borrow_mut().put(part, &pair, &damage)?;
                    }
                }
            }
            target.add(&sound, &judge)
        },
        &mut |gap| {
            // Nothing of it is copied, and the index is made anew.
            if gap.is_of_index() {
                unread_index += 1;
                return Ok(());
            }
            unread += 1;
            unread_values += u64::from(gap.is_behind_records());
            for key in &gap.records {
                is_known(key);
            }
            aside.borrow_mut().put_gap(&gap)
        },
    )?;
    // What lies where nothing can be read is told as that. Where that is the index alone, nobody knows whether it is all that
    // has changed.
    let altered = damage.filter(|_| unread == 0);
    if let Some(damage) = &altered {
        aside.borrow_mut().line(&"altered", [&[], &[]], &damage.without_advice())?;
    }
    let altered = altered.is_some();
    // Tokens of the upper half were never handed out: damage that looks like one must not use all of them up.
    let above = ceiling_above(greatest.min(Token::new(CEILING_END.get() >> 1)));
    let new_ceiling = match ceiling {
        Some(ceiling) if greatest < ceiling => None,
        Some(ceiling) => Some(above.max(ceiling)),
        None => Some(first_of_opening(above, Token::new(0), clock.wall())),
    };
    let aside = aside.into_inner();
    let (count, named, missing) = (aside.count, aside.named, aside.missing);
    let aside_in = aside.close()?;
    let kept =
        aside_in.as_ref().filter(|_| unread > 0 || altered).and_then(|path| path.file_name()).map(|name| {
            let mut name = name.to_owned();
            name.push("-files");
            name
        });
    let kept_in = kept.as_ref().map(|name| folder.join(name));
    let ceiling = new_ceiling.or(ceiling).unwrap_or(above);
    let copied = target.finish(ceiling, wall)?;
    let old = kept.map_or(Old::Deleted, Old::Kept);
    let tail_in = None;
    Ok((
        Repaired {
            copied,
            aside: count,
            unread,
            unread_values,
            named,
            unread_index,
            missing,
            altered,
            aside_in,
            kept_in,
            tail_in,
            new_ceiling,
        },
        old,
    ))
}

fn hash(key: &[u8]) -> u64 {
    process_seed().hash_one(key)
}

/// The file for what cannot be read; made when there is something.
struct Aside {
    folder: PathBuf,
    file: Option<(PathBuf, BufWriter<File>)>,
    /// What is in it with its bytes.
    count: u64,
    /// Records whose keys alone are, since they lie where nothing could be read.
    named: u64,
    /// The same, since there is nothing where they would lie.
    missing: u64,
}

/// The first line: what the file is, and the version of the rest.
const HEAD: &str = "claimdb aside 1";
const DOING: &str = "putting aside what cannot be read, in";

impl Aside {
    fn beside(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), file: None, count: 0, named: 0, missing: 0 }
    }

    fn put(&mut self, part: Part, (key, bytes): &Pair, damage: &Damage) -> Result<(), CopyError> {
        self.count += 1;
        self.line(&part, [key, bytes], damage)
    }

    fn put_gap(&mut self, gap: &Gap) -> Result<(), CopyError> {
        self.line(
            &"unread",
            [&gap.after, gap.until.as_deref().unwrap_or_default()],
            &gap.reason.without_advice(),
        )?;
        for key in &gap.records {
            self.named += 1;
            self.line(
                &Part::Record,
                [key, &[]],
                &"its page cannot be read; the retention index speaks of it",
            )?;
        }
        Ok(())
    }

    fn put_missing(&mut self, key: &[u8]) -> Result<(), CopyError> {
        self.missing += 1;
        self.line(&Part::Record, [key, &[]], &"it is not there; the retention index speaks of it")
    }

    /// One line: what it is, two fields of bytes, and what is wrong.
    fn line(&mut self, what: &dyn Display, fields: [&[u8]; 2], wrong: &dyn Display) -> Result<(), CopyError> {
        let mut line = format!("{what} ");
        for bytes in fields {
            line.reserve(2 * bytes.len() + 1);
            for byte in bytes {
                let _ = write!(line, "{byte:02x}"); // a String takes everything
            }
            line.push(' ');
        }
        let _ = writeln!(line, "{}", wrong.to_string().replace('\n', " "));
        let (path, mut file) = match self.file.take() {
            Some(open) => open,
            None => create(&self.folder)?,
        };
        file.write_all(line.as_bytes()).map_err(CopyError::file(DOING, &path))?;
        self.file = Some((path, file));
        Ok(())
    }

    /// Makes it durable, before anything that is in it goes.
    fn close(self) -> Result<Option<PathBuf>, CopyError> {
        let Some((path, mut file)) = self.file else { return Ok(None) };
        let synced = file.flush().and_then(|()| file.get_ref().sync_all());
        let synced = synced.and_then(|()| File::open(&self.folder)?.sync_all());
        synced.map_err(CopyError::file(DOING, &path))?;
        Ok(Some(path))
    }
}

/// A file with a name of its own, and with one free for the files that may be kept beside it: earlier ones stay.
fn create(folder: &Path) -> Result<(PathBuf, BufWriter<File>), CopyError> {
    let mut number = 1;
    loop {
        let path = folder.join(format!("aside-{number}"));
        if folder.join(format!("aside-{number}-files")).symlink_metadata().is_ok() {
            number += 1;
            continue;
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            opened => {
                let mut file = BufWriter::new(opened.map_err(CopyError::file(DOING, &path))?);
                writeln!(file, "{HEAD}").map_err(CopyError::file(DOING, &path))?;
                return Ok((path, file));
            }
        }
    }
}
