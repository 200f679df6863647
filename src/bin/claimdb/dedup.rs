//! `claimdb dedup`: each line the first time its key is seen.
//!
//! A batch goes through in steps, and each step is over before the next begins: read its lines, find their keys,
//! claim those, write the lines that won, complete the claims. So whatever stops the run, a completed key's line
//! is out, and no more lines than one batch has are out without being completed.

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
use claimdb::Store;
use claims::Claims;
use input::{Batch, Input};
use keys::{Found, Keyed, Keys};
use output::{Output, Written};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::thread::available_parallelism;
use summary::Summary;

/// A thread for less than this many lines costs more than it brings.
const LINES_PER_THREAD: usize = 256;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut input = Input::open(args.file.as_deref(), args.batch)?;
    let output = Output::standard(&input)?;
    let rejects = match &args.rejects {
        Some(path) => Some(Output::rejects(path, &input)?),
        None => None,
    };
    let store = Store::open(&args.store).map_err(|error| Failure::opening(&args.store, &error))?;
    let mut run = Run {
        keys: Keys::new(args.key.as_ref()),
        claims: Claims::new(&store, args.retain),
        output,
        rejects,
        threads: args.threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from)),
        summary: Summary::new(&input, args.batch),
    };
    let ended = run.all(&mut input);
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

struct Run<'a> {
    keys: Keys,
    claims: Claims<'a>,
    output: Output,
    rejects: Option<Output>,
    threads: usize,
    summary: Summary,
}

impl Run<'_> {
    fn all(&mut self, input: &mut Input) -> Result<Written, Failure> {
        while let Some(batch) = input.next_batch()? {
            if let Written::Closed = self.one(batch)? {
                return Ok(Written::Closed);
            }
        }
        Ok(Written::Done)
    }

    fn one(&mut self, batch: Batch<'_>) -> Result<Written, Failure> {
        let parts = self.threads.min(batch.len().div_ceil(LINES_PER_THREAD));
        let Sorted { keys, rejected, stop } = self.sort(self.keys.find(batch, parts)?, batch.number);
        let won = self.claims.claim(&keys, parts, batch.number)?;

        let first_seen = won.first_seen.iter().enumerate().filter(|(_, first)| **first);
        let lines = first_seen.map(|(index, _)| batch.line(index));
        if let Written::Closed = self.summary.beside(|| self.output.write(lines))? {
            return Ok(Written::Closed);
        }
        if let Some(rejects) = &mut self.rejects {
            let lines = rejected.iter().map(|(index, _)| batch.line(*index));
            if let Written::Closed = rejects.write(lines)? {
                let what = format_args!("writing to the file for rejects");
                return Err(Failure::failed(what, "its reader is gone", "give a plain file and run again"));
            }
            self.report(&rejected, batch.number);
        }

        let count = won.first_seen.iter().filter(|first| **first).count() as u64;
        self.claims.complete(won)?;
        self.summary.first_seen += count;
        self.summary.duplicates += keys.iter().flatten().count() as u64 - count;
        self.summary.rejected += rejected.len() as u64 + u64::from(stop.is_some());
        self.summary.advance(batch.length);
        stop.map_or(Ok(Written::Done), Err)
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
                        "the lines before it are dealt with; mend it, or set such lines aside with --rejects FILE",
                    ));
                    break;
                }
            }
        }
        sorted
    }

    fn report(&self, rejected: &[(usize, String)], number: u64) {
        let mut text = String::new();
        for (index, reason) in rejected {
            let _ = writeln!(text, "line {} rejected: {reason}", number + *index as u64);
        }
        // With standard error gone, the file for rejects still has them.
        let _ = self.summary.beside(|| io::stderr().write_all(text.as_bytes()));
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
