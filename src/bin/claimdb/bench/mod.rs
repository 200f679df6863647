//! `claimdb bench`: what claims cost on this machine.
//!
//! Each row of the report is one configuration. Its rounds are spread over the whole run, one of each row in turn, so that
//! a disturbance of the machine meets all rows alike; a row tells its median round.

mod load;
mod machine;
mod options;
mod plots;
mod report;

pub(crate) use options::Args;

use crate::failure::Failure;
use crate::out::write_line;
use crate::place;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::{Load, Round};
use machine::Machine;
use options::Row;
use report::Measured;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let rows = args.rows()?;
    if let Some(file) = &args.html {
        place::is_outside_stores("writing", file, None)?;
        place::may_become_a_file("writing", file)?;
    }
    place::is_outside_stores("making stores in", &args.dir.join("store"), None)?;
    let not_made = |dir: &Path, error| {
        let doing = format!("making a folder for the stores in {}", dir.display());
        Failure::failed(doing, error, "name a folder on the disk to be measured with --dir")
    };
    let dir = fs::canonicalize(&args.dir).map_err(|error| not_made(&args.dir, error))?;
    let folder = TempDir::with_prefix_in("claimdb-bench-", &dir).map_err(|error| not_made(&dir, error))?;
    let bar = bar(rows.len() * args.rounds.get());
    bar.set_message("the disk alone");
    let machine = Machine::look(folder.path(), args.value).map_err(|error| {
        let doing = format!("measuring how fast the disk of {} syncs", folder.path().display());
        Failure::failed(doing, error, "name a folder on another disk with --dir")
    })?;
    let rounds = measure(args, &rows, folder.path(), &bar)?;
    bar.finish_and_clear();
    let measured: Vec<_> =
        rows.into_iter().zip(rounds).map(|(row, rounds)| Measured::new(row, rounds)).collect();
    write_line(match args.json {
        true => report::json(&machine, args, &measured).to_string(),
        false => report::text(&machine, args, &measured),
    })?;
    // Last, so that nothing that was measured is lost if it cannot be written.
    if let Some(file) = &args.html {
        let page = report::html(&machine, args, &measured)?;
        place::write_file(file, page.as_bytes()).map_err(|error| {
            Failure::failed(format!("writing {}", file.display()), error, "name another file with --html")
        })?;
    }
    Ok(())
}

/// The rounds of each row, in the order of the rows.
fn measure(args: &Args, rows: &[Row], folder: &Path, bar: &ProgressBar) -> Result<Vec<Vec<Round>>, Failure> {
    let mut loads = Vec::with_capacity(rows.len());
    for (number, row) in rows.iter().enumerate() {
        bar.set_message(format!("storing {} keys for {row}", row.keys));
        loads.push(Load::new(*row, args, &folder.join(number.to_string()))?);
    }
    let mut rounds: Vec<_> = rows.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds.get() {
        for ((row, load), rounds) in rows.iter().zip(&mut loads).zip(&mut rounds) {
            bar.set_message(row.to_string());
            rounds.push(load.round(args)?);
            bar.inc(1);
        }
    }
    Ok(rounds)
}

/// Nothing unless standard error is a terminal.
fn bar(rounds: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}, {eta} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(rounds as u64), ProgressDrawTarget::stderr()).with_style(style)
}
