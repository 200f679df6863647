//! Making a store whole again: what cannot be read is put aside, and the rest is written anew.

use super::piece::{Judge, Part, Piece};
use super::{Copied, CopyError, Pair, Target, page, walk};
use crate::backend::{Backend as _, Engine, Sled};
use crate::clock::{Clock, SystemClock};
use crate::error::{Damage, OpenError};
use crate::record;
use crate::store::Store;
use crate::store::own::{CEILING_END, ceiling_key};
use crate::store::retention::{RetentionClock, high_water_key};
use crate::token::{Token, ceiling_above, first_of_opening};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What a repair did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// What the store holds now.
    pub copied: Copied,
    /// How much could not be read and was put aside.
    pub aside: u64,
    /// The file that it was put into; `None` if there was nothing.
    pub aside_in: Option<PathBuf>,
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
    /// A store over sled that is refused because its log does not match the checksum of its last close (the file `tail`)
    /// is opened without: that file goes into a folder `aside-` and the date.
    ///
    /// **Keys whose records are put aside are free afterwards: their work can run again.** Look at the file first, or
    /// have a backup, if that must not happen. Plain values that are put aside read as absent.
    ///
    /// Killed or cut off at any point, what is stored is as it was or repaired, as in [`compact`](Store::compact),
    /// whose need for room it shares.
    ///
    /// # Errors
    /// [`CopyError`]; what was stored is as it was then. A store that its engine cannot open cannot be repaired by
    /// this.
    pub fn repair(path: impl AsRef<Path>) -> Result<Repaired, CopyError> {
        let path = path.as_ref();
        let sled = Sled::existing(path);
        let place = sled.place();
        let tail_in = match sled.put_bad_tail_aside() {
            // The others have no such file.
            Err(OpenError::OtherEngine { .. }) => None,
            put => put?,
        };
        let repaired = sled.replace(|old, new| repair(old, new, &place, path, &SystemClock::new()));
        let repaired = repaired.map_err(|error: CopyError| error.replacing("repairing", &place))?;
        Ok(Repaired { tail_in, ..repaired })
    }
}

fn repair(
    source: &dyn Engine,
    target: &dyn Engine,
    place: &str,
    folder: &Path,
    clock: &dyn Clock,
) -> Result<Repaired, CopyError> {
    let stored = source.read(&ceiling_key())?;
    if stored.as_ref().is_some_and(|stored| *stored == record::unfinished_copy()) {
        return Err(OpenError::UnfinishedCopy { place: place.to_owned() }.into());
    }
    let ceiling = stored.as_deref().and_then(|bytes| record::decode_ceiling(bytes).ok());
    let ceiling = ceiling.filter(|ceiling| *ceiling < CEILING_END);
    let high_water = source.read(&high_water_key())?;
    let high_water = high_water.as_deref().and_then(|bytes| record::decode_high_water(bytes).ok());
    let wall = RetentionClock::starting(clock.wall(), high_water, clock.now()).start();
    let judge = Judge { wall, ceiling };
    let mut target = Target::begin(target, place.to_owned())?;
    let mut aside = Aside::beside(folder);
    let mut greatest = Token::new(0);
    walk(
        |after| Ok(page(source, after)?),
        |pairs| {
            let mut sound = Vec::with_capacity(pairs.len());
            for pair in pairs {
                match judge.piece(&pair.0, &pair.1) {
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
                        aside.put(part, &pair, &damage)?;
                    }
                }
            }
            target.add(&sound, &judge)
        },
    )?;
    let above = ceiling_above(greatest.min(Token::new(CEILING_END.get() >> 1)));
    let new_ceiling = match ceiling {
        Some(ceiling) if greatest < ceiling => None,
        Some(ceiling) => Some(above.max(ceiling)),
        None => Some(first_of_opening(above, Token::new(0), clock.wall())),
    };
    let (aside_in, count) = aside.close()?;
    let ceiling = new_ceiling.or(ceiling).unwrap_or(above);
    let copied = target.finish(ceiling, wall)?;
    Ok(Repaired { copied, aside: count, aside_in, tail_in: None, new_ceiling })
}

/// The file for what cannot be read; made when there is something.
struct Aside {
    folder: PathBuf,
    file: Option<(PathBuf, BufWriter<File>)>,
    count: u64,
}

/// The first line: what the file is, and the version of the rest.
const HEAD: &str = "claimdb aside 1";
const DOING: &str = "putting aside what cannot be read, in";

impl Aside {
    fn beside(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), file: None, count: 0 }
    }

    /// One line: what it is part of, the key, the bytes, and what is wrong with them.
    fn put(&mut self, part: Part, (key, bytes): &Pair, damage: &Damage) -> Result<(), CopyError> {
        let mut line = format!("{part} ");
        for bytes in [key, bytes] {
            line.reserve(2 * bytes.len() + 1);
            for byte in bytes {
                let _ = write!(line, "{byte:02x}"); // a String takes everything
            }
            line.push(' ');
        }
        let _ = writeln!(line, "{}", damage.to_string().replace('\n', " "));
        let (path, mut file) = match self.file.take() {
            Some(open) => open,
            None => create(&self.folder)?,
        };
        file.write_all(line.as_bytes()).map_err(CopyError::file(DOING, &path))?;
        self.file = Some((path, file));
        self.count += 1;
        Ok(())
    }

    /// Makes it durable, before anything that is in it goes.
    fn close(self) -> Result<(Option<PathBuf>, u64), CopyError> {
        let Some((path, mut file)) = self.file else { return Ok((None, 0)) };
        let synced = file.flush().and_then(|()| file.get_ref().sync_all());
        let synced = synced.and_then(|()| File::open(&self.folder)?.sync_all());
        synced.map_err(CopyError::file(DOING, &path))?;
        Ok((Some(path), self.count))
    }
}

/// A file with a name of its own: earlier ones stay.
fn create(folder: &Path) -> Result<(PathBuf, BufWriter<File>), CopyError> {
    let mut number = 1;
    loop {
        let path = folder.join(format!("aside-{number}"));
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
