//! `claimdb explore`: the protocol and broken ones, in every order of steps.
//!
//! A model of one key, of the clients that ask for it, of the disk, and of the card that the work charges. Its steps are
//! those of `docs/architecture.md`; what is decided in them is decided by claimdb itself (`claimdb::protocol`). The
//! checker is stateright.

mod diagram;
mod model;
mod promise;
mod protocol;
mod report;
mod search;
mod serve;
mod steps;
mod story;
mod svg;
mod world;

use crate::failure::Failure;
use crate::out::{note, write, write_line};
use crate::place;
use clap::builder::RangedU64ValueParser;
use model::Model;
use promise::Promise;
use protocol::Protocol;
use report::Shown;
use search::Explored;
use std::path::{Path, PathBuf};

/// How wide what is told is where nothing says how wide the terminal is.
const WIDTH: usize = 80;

/// See how two retries both charge a card, and why a claim stops it
///
/// Takes every order in which the steps of a few clients, that all ask for the work of one key, can come, with power
/// cuts, slow and failing clients and a failing read in between; tells which promises hold, and draws the shortest run
/// that breaks one. The work of the key charges a card.
///
/// Nothing is stored; all of it happens in memory. Not modelled: time beyond leases running out, waiting, retention,
/// checkpoints, quarantine, failing syncs, claims that are kept in memory alone.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which protocol the clients follow
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Protocol::Claim)]
    protocol: Protocol,

    /// How many clients ask for the key, 2 to 4; the last one may ask for something else under it
    #[arg(long, value_name = "N", default_value = "2", value_parser = RangedU64ValueParser::<usize>::new().range(2..=4))]
    clients: usize,

    /// How often the power may be cut, 0 to 3
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=3))]
    crashes: u8,

    /// Draw the run that breaks this one; without it, the one that charges the card twice, if one does
    #[arg(long, value_name = "NAME", value_enum, ignore_case = true)]
    promise: Option<Promise>,

    /// Write what is drawn to this file, as SVG; to standard output, and no text, if it is -
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// How many columns the drawing has [default: those of the terminal, or 80]
    #[arg(long, value_name = "COLUMNS", value_parser = RangedU64ValueParser::<usize>::new().range(60..=400))]
    width: Option<usize>,

    /// Give all that was found as JSON, in one line
    #[arg(long, conflicts_with = "width")]
    json: bool,

    /// Look around by hand: serve stateright's explorer on the loopback interface, until it is interrupted; at port
    /// 3000 if none is given, and at a free one, which is told, if PORT is 0
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "3000", conflicts_with_all = ["svg", "json", "promise", "width"])]
    serve: Option<u16>,
}

const EXAMPLES: &str = "\
Exit code 0 says that everything holds, 5 that something is broken.

Examples:
  How two retries both charge a card, and what stops it:
    claimdb explore --protocol naive
    claimdb explore --protocol claim

  A picture of what a power cut undoes:
    claimdb explore --protocol ack-early --svg ack-early.svg";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let model = Model { protocol: args.protocol, clients: args.clients, crashes: args.crashes };
    if let Some(port) = args.serve {
        return serve::run(model, port);
    }
    let picture = args.svg.as_deref();
    let picture_alone = picture == Some(Path::new("-"));
    if picture_alone && args.json {
        let why = "drawing to standard output: what was found goes there as well, as JSON";
        return Err(Failure::Usage(format!("{why}; give --svg a file, or leave --json out")));
    }
    // Before the search, which may take minutes.
    if let Some(file) = picture.filter(|_| !picture_alone) {
        place::is_outside_stores("drawing", file, None)?;
        place::may_become_a_file("drawing", file)?;
    }
    let explored = Explored::of(&model);
    let shown = Shown::of(&model, &explored, args.promise);
    if args.json {
        write_line(report::json(&model, &explored))?;
    } else if !picture_alone {
        write_line(report::text(&model, &explored, shown.as_ref(), args.width.unwrap_or_else(width)))?;
    }
    // After the text, so that nothing that was found is lost if the picture cannot be written.
    if let Some(file) = picture {
        draw(&model, shown.as_ref(), file)?;
    } else if let (Some(promise), None) = (args.promise, &shown) {
        note(format_args!("nothing breaks {} here, so nothing is drawn", promise.name()));
    }
    let broken: Vec<_> = explored.broken().map(|(promise, _)| promise.name()).collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err(Failure::Broken(format!("exploring {}: broken: {}", args.protocol.name(), broken.join(", "))))
}

fn draw(model: &Model, shown: Option<&Shown>, file: &Path) -> Result<(), Failure> {
    let doing = format!("drawing {}", file.display());
    let Some(shown) = shown else {
        let why = "there is no run to draw, since nothing breaks that promise";
        return Err(Failure::Usage(format!("{doing}: {why}; leave --promise out")));
    };
    let drawn = svg::draw(model, &shown.lines, &shown.title);
    if file == Path::new("-") {
        return write(drawn.as_bytes());
    }
    place::write_file(file, drawn.as_bytes())
        .map_err(|error| Failure::failed(doing, error, "give --svg a file that can be written"))
}

/// How wide the terminal is, within bounds.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map_or(WIDTH, |size| usize::from(size.ws_col)).clamp(diagram::MIN_WIDTH, 120)
}
