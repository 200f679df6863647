//! What was measured, for people, for scripts and as a page.

use super::Args;
use super::load::{Latencies, Round, latencies};
use super::machine::Machine;
use super::options::Row;
use super::plots;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::fmt::Write;

/// A row's median round, and the latencies of all.
pub(super) struct Measured {
    pub(super) row: Row,
    median: Round,
    /// Operations a second of the slowest and the fastest round.
    range: [f64; 2],
    pub(super) fresh: Latencies,
    pub(super) duplicate: Latencies,
}

/// Which percentiles are told.
const TOLD: [(&str, f64); 4] = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

impl Round {
    fn operations(&self) -> u64 {
        self.fresh.len() + self.duplicate.len()
    }

    fn rate(&self) -> f64 {
        self.operations() as f64 / self.seconds
    }
}

impl Measured {
    pub(super) fn new(row: Row, mut rounds: Vec<Round>) -> Self {
        rounds.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
        let range = [rounds.first(), rounds.last()].map(|round| round.map_or(0.0, Round::rate));
        let (mut fresh, mut duplicate) = (latencies(), latencies());
        for round in &rounds {
            fresh += &round.fresh;
            duplicate += &round.duplicate;
        }
        // Of two in the middle the slower one.
        let median = rounds.swap_remove((rounds.len() - 1) / 2);
        Self { row, median, range, fresh, duplicate }
    }

    /// Operations a second.
    pub(super) fn rate(&self) -> f64 {
        self.median.rate()
    }

    fn syncs_per_second(&self) -> f64 {
        self.median.syncs as f64 / self.median.seconds
    }

    fn bytes_per_completion(&self) -> Option<f64> {
        let fresh = self.median.fresh.len();
        self.median.written.filter(|_| fresh > 0).map(|written| written as f64 / fresh as f64)
    }

    fn json(&self) -> Value {
        let latency = |of: &Latencies| {
            if of.is_empty() {
                return Value::Null;
            }
            let told =
                TOLD.map(|(name, percentile)| (name.to_owned(), of.value_at_percentile(percentile).into()));
            Value::Object(told.into_iter().chain([("count".to_owned(), of.len().into())]).collect())
        };
        json!({
            "backend": self.row.storage.name(),
            "durability": self.row.durability_name(),
            "threads": self.row.threads,
            "keys": self.row.keys,
            "operations_per_second": self.rate(),
            "slowest_round": self.range[0],
            "fastest_round": self.range[1],
            "fresh_latency_ns": latency(&self.fresh),
            "duplicate_latency_ns": latency(&self.duplicate),
            "in_flight": self.median.in_flight,
            "syncs_per_second": self.syncs_per_second(),
            "bytes_written_per_completion": self.bytes_per_completion(),
            "resident_bytes": self.median.resident,
        })
    }
}

pub(super) fn json(machine: &Machine, args: &Args, measured: &[Measured]) -> Value {
    json!({
        "machine": machine.json(),
        "duplicates": args.duplicates,
        "value_bytes": args.value,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "rows": measured.iter().map(Measured::json).collect::<Vec<_>>(),
    })
}

/// What the figures are of, in words.
fn about(args: &Args) -> String {
    format!(
        "Claim and complete with {} bytes; {} % of the claims for keys that were asked for before. Median of {} \
         rounds of {} s, one of each row in turn; latencies of all rounds. Each thread asks again once it is answered.",
        args.value,
        (args.duplicates * 100_000.0).round() / 1000.0,
        args.rounds,
        args.seconds,
    )
}

const HEADS: [&str; 14] = [
    "backend",
    "durability",
    "threads",
    "keys",
    "op/s",
    "syncs/s",
    "fresh p50",
    "p99",
    "p99.9",
    "max",
    "duplicate p50",
    "p99",
    "written/completion",
    "memory",
];

fn cells(measured: &Measured) -> [String; 14] {
    let Measured { row, fresh, duplicate, .. } = measured;
    let at = |of: &Latencies, percentile| {
        if of.is_empty() { "-".to_owned() } else { time(of.value_at_percentile(percentile)) }
    };
    let unknown = || "-".to_owned();
    [
        row.storage.name().to_owned(),
        row.durability_name().to_owned(),
        row.threads.to_string(),
        row.keys.to_string(),
        format!("{:.0}", measured.rate()),
        format!("{:.0}", measured.syncs_per_second()),
        at(fresh, 50.0),
        at(fresh, 99.0),
        at(fresh, 99.9),
        at(fresh, 100.0),
        at(duplicate, 50.0),
        at(duplicate, 99.0),
        measured.bytes_per_completion().map_or_else(unknown, |bytes| format!("{bytes:.0} B")),
        measured.median.resident.map_or_else(unknown, |bytes| format!("{} MiB", bytes >> 20)),
    ]
}

/// Nanoseconds, to three digits.
fn time(nanos: u64) -> String {
    let nanos = nanos as f64;
    let (value, unit) = match nanos {
        1e9.. => (nanos / 1e9, "s"),
        1e6.. => (nanos / 1e6, "ms"),
        1e3.. => (nanos / 1e3, "µs"),
        _ => (nanos, "ns"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

pub(super) fn text(machine: &Machine, args: &Args, measured: &[Measured]) -> String {
    let rows: Vec<_> = measured.iter().map(cells).collect();
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(HEADS[column].len())
    };
    let line = |cells: &[&str]| {
        let cell = |(column, cell): (usize, &&str)| match column {
            0 | 1 => format!("{cell:<0$}", width(column)),
            _ => format!("{cell:>0$}", width(column)),
        };
        cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = format!("{}\n\n{}\n\n{}", machine.text(), about(args), line(&HEADS));
    for row in &rows {
        text.push('\n');
        text.push_str(&line(&row.each_ref().map(String::as_str)));
    }
    text
}

pub(super) fn html(machine: &Machine, args: &Args, measured: &[Measured]) -> Result<String, Failure> {
    let mut table = String::new();
    for row in std::iter::once(HEADS.map(str::to_owned)).chain(measured.iter().map(cells)) {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        // Writing to a string cannot fail.
        let _ = write!(table, "<tr>{cells}</tr>");
    }
    let mut pictures = vec![plots::throughput(measured), plots::latencies(measured)];
    if measured.iter().any(|one| one.row.keys != measured[0].row.keys) {
        pictures.push(plots::cost_by_size(measured));
    }
    let pictures: Result<String, _> = pictures.into_iter().collect();
    let pictures = pictures.map_err(|error| {
        Failure::failed("drawing the plots", error, "the text above has the figures; leave --html out")
    })?;
    let style = "body{font:15px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}\
                 table{border-collapse:collapse;margin:1em 0}td{padding:.2em .6em;text-align:right}\
                 tr:first-child{font-weight:bold}svg{max-width:100%;height:auto;margin:1em 0}";
    let (machine, about) = (escaped(&machine.text()).replace('\n', "<br>"), escaped(&about(args)));
    Ok(format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>claimdb bench</title><style>{style}</style>\
         <h1>claimdb bench</h1><p>{machine}</p><p>{about}</p><table>{table}</table>{pictures}</html>\n"
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
