//! `claimdb dedup`: each line the first time its key is seen.
//!
//! A batch goes through in steps: read its lines, find their keys, claim those, write the lines that won, complete
//! the claims. While one batch is completed, the next is read and claimed, but nothing of it is written before that
//! is done. So whatever stops the run, a completed key's line is out, and no more lines than one batch has are out
//! without being completed.

mod claims;
mod input;
mod keys;
mod options;
mod output;
mod parallel;
mod pointer;
mod summary;

pub(crate) use options::Args;

use crate::failure::Failure;
use crate::out::note;
use crate::place;
use claimdb::backend::{Sled, store_around};
use claimdb::{OpenError, Store, Token};
use claims::Claims;
use input::{Batch, Input};
use keys::{Found, Keyed, Keys};
use output::{Output, Written};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread::{Scope, ScopedJoinHandle, available_parallelism, scope};
use summary::Summary;

/// A thread for less than this many lines costs more than it brings.
const LINES_PER_THREAD: usize = 256;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut input = Input::open(args.file.as_deref(), args.batch)?;
    let output = Output::standard(&input)?;
    let rejects = match &args.rejects {
        Some(path) => {
            place::is_outside_stores("keeping rejected lines in", path, Some(&args.store))?;
            Some(Output::rejects(path, &input)?)
        }
        None => None,
    };
    let store = open(&args.store)?;
    let claims = Claims::new(&store, args.retain);
    let mut run = Run {
        keys: Keys::new(args.key.as_ref()),
        claims: &claims,
        output,
        rejects,
        threads: args.threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from)),
        summary: Summary::new(&input, args.batch),
    };
    let ended = scope(|scope| run.all(scope, &mut input));
    if !matches!(ended, Ok(Written::Closed)) {
        run.summary.tell(args.json);
    }
    let closed = store.close();
    ended.map(drop)?;
    closed.map_err(|error| {
        Failure::failed(
            "ending the run",
            error,
            "all lines were written; running again can write the last ones again",
        )
    })
}

/// The store in `folder`, which is made if there is none, but not the folders above it: in a path that is mistyped an empty
/// store would pass for one that has seen nothing.
fn open(folder: &Path) -> Result<Store, Failure> {
    let failed =
        |error: &OpenError| Failure::opening(error, "wait until that has ended, or use another store");
    let stood = fs::canonicalize(folder).is_ok_and(|real| store_around(&real) == Some(&real));
    let opened = match Store::builder(Sled::existing(folder)).open() {
        Err(OpenError::NoStore { .. }) => {
            has_place_for_store(folder)?;
            Store::open(folder)
        }
        opened => opened,
    };
    let store = opened.map_err(|error| failed(&error))?;
    // One that did not stand can have been made by another run since, or have been begun by one that failed at it: what it
    // holds tells.
    if !stood && holds_no_key(&store)? {
        let made = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        note(format_args!("new store: made {}; no line was seen before", made.display()));
    }
    Ok(store)
}

/// Refuses a place where a new store would be mistaken, or stand among what is not its own.
fn has_place_for_store(folder: &Path) -> Result<(), Failure> {
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above.filter(|above| !above.exists()) {
        return Err(Failure::failed(
            format_args!("opening the store {}", folder.display()),
            format_args!("there is none, and no folder {} to make one in", above.display()),
            "if the path is right, make that folder with mkdir",
        ));
    }
    place::is_outside_stores("making the store", folder, None)?;
    // One that is not there is made; one that cannot be read, the opening tells of.
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let strange = entries.flatten().map(|entry| entry.file_name()).find(|name| !is_of_begun_store(name));
    match strange {
        None => Ok(()),
        Some(name) => Err(Failure::Usage(format!(
            "opening the store {}: there is none, and the folder holds other things, such as {}, among which none is made; \
             give the folder of a store, or for a new one a folder that is empty or not there yet",
            folder.display(),
            name.display()
        ))),
    }
}

/// Whether a file or folder of a store's is named so while it is made: that may have been cut off, or go on in another
/// process, and be over in this moment.
fn is_of_begun_store(name: &OsStr) -> bool {
    ["lock", "sled", "reserve", "format.new", "format", "clean.new", "clean", "tail"]
        .iter()
        .any(|known| name == *known)
}

fn holds_no_key(store: &Store) -> Result<bool, Failure> {
    let first = store.keys(None).map(|mut keys| keys.next());
    first
        .map(|first| first.is_none())
        .map_err(|error| Failure::failed("looking whether the store is new", error, "run again"))
}

struct Run<'a> {
    keys: Keys,
    claims: &'a Claims<'a>,
    output: Output,
    rejects: Option<Output>,
    threads: usize,
    summary: Summary,
}

/// A batch whose lines are out, while its claims are being completed.
struct Out<'scope> {
    completing: ScopedJoinHandle<'scope, Result<(), Failure>>,
    /// Those of its claims, in order.
    tokens: Vec<Token>,
    first_seen: usize,
    duplicates: usize,
    rejected: usize,
    length: u64,
}

impl<'a> Run<'a> {
    fn all<'s>(&mut self, scope: &'s Scope<'s, 'a>, input: &mut Input) -> Result<Written, Failure> {
        let mut last = None;
        let ended = loop {
            let batch = match input.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break Ok(Written::Done),
                Err(failure) => break Err(failure),
            };
            match self.one(scope, batch, &mut last) {
                Ok(Written::Done) => {}
                ended => break ended,
            }
        };
        let completed = self.completed(last);
        ended.and_then(|written| completed.map(|()| written))
    }

    /// Takes one batch through, as far as to begin to complete it; `last` is the batch before.
    fn one<'s>(
        &mut self,
        scope: &'s Scope<'s, 'a>,
        batch: Batch<'_>,
        last: &mut Option<Out<'s>>,
    ) -> Result<Written, Failure> {
        let parts = self.threads.min(batch.len().div_ceil(LINES_PER_THREAD));
        let Sorted { keys, rejected, stop } = self.sort(self.keys.find(batch, parts)?, batch.number);
        let in_flight = last.as_ref().map_or(&[][..], |last| &last.tokens);
        let won = self.claims.claim(&keys, parts, batch.number, in_flight)?;
        self.completed(last.take())?;

        let first_seen = won.first_seen.iter().enumerate().filter(|(_, first)| **first);
        let lines = first_seen.map(|(index, _)| batch.line(index));
        if let Written::Closed = self.summary.beside(|| self.output.write(lines))? {
            return Ok(Written::Closed);
        }
        if let Some(rejects) = &mut self.rejects {
            let lines = rejected.iter().map(|(index, _)| batch.line(*index));
            if let Written::Closed = self.summary.beside(|| rejects.write(lines))? {
                let what = format_args!("writing to the file for rejects");
                return Err(Failure::failed(what, "its reader is gone", "give a plain file and run again"));
            }
            self.report(&rejected, batch.number);
        }

        let (claims, tokens) = (self.claims, won.tokens());
        let keyed = keys.iter().flatten().count();
        *last = Some(Out {
            first_seen: tokens.len(),
            duplicates: keyed - tokens.len(),
            rejected: rejected.len() + usize::from(stop.is_some()),
            length: batch.length,
            tokens,
            completing: parallel::start(scope, move || claims.complete(won))?,
        });
        stop.map_or(Ok(Written::Done), Err)
    }

    /// Waits until a batch is completed, and counts it.
    fn completed(&mut self, out: Option<Out<'_>>) -> Result<(), Failure> {
        let Some(out) = out else { return Ok(()) };
        parallel::result(out.completing)?;
        self.summary.count(out.first_seen, out.duplicates, out.rejected, out.length);
        Ok(())
    }

    /// Tells lines that have a key from those that have none. If these are not to be kept, the first ends the
    /// run, and the lines from it on are left out.
    fn sort(&self, found: Vec<Found>, number: u64) -> Sorted {
        let mut sorted = Sorted { keys: Vec::with_capacity(found.len()), rejected: Vec::new(), stop: None };
        for (index, found) in found.into_iter().enumerate() {
            match found {
                Ok(keyed) => sorted.keys.push(Some(keyed)),
                Err(reason) if self.rejects.is_some() => {
                    sorted.keys.push(None);
                    sorted.rejected.push((index, reason));
                }
                Err(reason) => {
                    sorted.stop = Some(Failure::failed(
                        format_args!("line {} has no key", number + index as u64),
                        reason,
                        "the lines before it are dealt with; mend it, set such lines aside with --rejects FILE, or compare whole \
                         lines, without --key",
                    ));
                    break;
                }
            }
        }
        sorted
    }

    fn report(&self, rejected: &[(usize, String)], number: u64) {
        if rejected.is_empty() {
            return;
        }
        let line =
            |(index, reason): &(usize, String)| format!("line {} rejected: {reason}", number + *index as u64);
        let lines: Vec<_> = rejected.iter().map(line).collect();
        self.summary.beside(|| note(lines.join("\n")));
    }
}

/// The lines of a batch by whether they have a key.
struct Sorted {
    /// For each line that is dealt with; `None` for those that are rejected.
    keys: Vec<Option<Keyed>>,
    /// Their indexes and what is wrong with them.
    rejected: Vec<(usize, String)>,
    stop: Option<Failure>,
}
