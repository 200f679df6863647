//! What was measured, as JSON, and the tables of a page that are made from it.

use crate::job::{Result, VALUE};
use crate::measure::{Plan, THREADS, median};
use crate::systems::Level;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// A line of a table.
pub struct Row {
    pub table: Table,
    pub name: &'static str,
    pub way: &'static str,
    /// The rates of all rounds, by threads.
    pub rates: [Vec<f64>; THREADS.len()],
    /// How often one operation of one thread was seen to sync; nothing if it was not counted.
    pub syncs_per_operation: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Durable(Level),
    Memory,
}

impl Table {
    pub const ALL: [Self; 3] = [Self::Durable(Level::Full), Self::Durable(Level::Result), Self::Memory];

    /// In the JSON, and in the page's marks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable(Level::Full) => "full",
            Self::Durable(Level::Result) => "result",
            Self::Memory => "memory",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Durable(Level::Full) => "Claim and result synced before they are told, operations a second",
            Self::Durable(Level::Result) => "The result synced before it is told, operations a second",
            Self::Memory => "Losers and replays, answers a second",
        }
    }
}

impl Row {
    fn json(&self) -> Value {
        let mut row = Map::new();
        row.insert("name".to_owned(), self.name.into());
        row.insert("way".to_owned(), self.way.into());
        for (threads, rates) in THREADS.iter().zip(&self.rates) {
            let whole = |rate: f64| Value::from(rate.round() as u64);
            row.insert(format!("threads_{threads}"), whole(median(rates)));
            row.insert(format!("rounds_{threads}"), rates.iter().copied().map(whole).collect());
        }
        if self.table == Table::Memory {
            let nanoseconds = 1e9 / median(&self.rates[0]).max(1.0);
            row.insert("nanoseconds".to_owned(), (nanoseconds.round() as u64).into());
        } else {
            let rounded = self.syncs_per_operation.map(|syncs| (syncs * 100.0).round() / 100.0);
            row.insert("syncs_per_operation".to_owned(), rounded.into());
        }
        row.into()
    }
}

/// All figures; `machine` and `versions` say what of.
pub fn json(
    plan: Plan,
    machine: Value,
    versions: Value,
    rows: &[Row],
    skipped: &[(String, Level, String)],
) -> Value {
    let table =
        |table: Table| -> Value { rows.iter().filter(|row| row.table == table).map(Row::json).collect() };
    let skipped = skipped.iter().map(|(name, level, reason)| {
        json!({ "table": Table::Durable(*level).name(), "name": name, "reason": reason })
    });
    json!({
        "command": "benches/peers/run.sh",
        "commit": crate::commit::commit(),
        "rounds": plan.rounds,
        "round_seconds": plan.span.as_secs_f64(),
        "warm_up_seconds": plan.warm_up.as_secs_f64(),
        "key_bytes": crate::job::key(0).len(),
        "value_bytes": VALUE.len(),
        "machine": machine,
        "versions": versions,
        "full": table(Table::Durable(Level::Full)),
        "result": table(Table::Durable(Level::Result)),
        "memory": table(Table::Memory),
        "skipped": skipped.collect::<Vec<_>>(),
    })
}

/// A table of `figures` in Markdown, as it stands in the page.
fn table(figures: &Value, table: Table) -> Result<String> {
    let rows = figures[table.name()].as_array().ok_or_else(|| format!("no table {}", table.name()))?;
    let last = if table == Table::Memory { "ns from 1 thread" } else { "syncs seen" };
    let mut text =
        format!("| | how | 1 thread | 8 threads | 64 threads | {last} |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let plain = |name: &str| match &row[name] {
            Value::String(text) => text.clone(),
            Value::Null => "not counted".to_owned(),
            number => number.to_string(),
        };
        let last = plain(if table == Table::Memory { "nanoseconds" } else { "syncs_per_operation" });
        let [name, way] = ["name", "way"].map(plain);
        let [one, some, many] = ["threads_1", "threads_8", "threads_64"].map(plain);
        writeln!(text, "| {name} | {way} | {one} | {some} | {many} | {last} |")?;
    }
    for row in figures["skipped"].as_array().into_iter().flatten().filter(|row| row["table"] == table.name())
    {
        let [name, reason] =
            ["name", "reason"].map(|field| row[field].as_str().unwrap_or_default().to_owned());
        writeln!(text, "| {name} | skipped: {reason} | | | | |")?;
    }
    Ok(text)
}

/// What the figures are of, as a paragraph.
fn about(figures: &Value) -> String {
    let machine = &figures["machine"];
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "unknown".to_owned(),
        other => other.to_string(),
    };
    let gib = machine["memory_bytes"].as_u64().unwrap_or(0) as f64 / f64::from(1 << 30);
    let versions = figures["versions"].as_object().into_iter().flatten();
    let versions: Vec<_> = versions.map(|(name, version)| format!("{name} {}", plain(version))).collect();
    format!(
        "Medians of {} rounds of {} s. {}, {} cores, {gib:.1} GiB, {}, {}; appending to a file alone was synced {:.0} times a second. \
         {}. Commit {}.\n",
        figures["rounds"],
        figures["round_seconds"],
        plain(&machine["processor"]),
        machine["cores"],
        plain(&machine["system"]),
        plain(&machine["file_system"]),
        machine["disk_syncs_per_second"].as_f64().unwrap_or(0.0),
        versions.join(", "),
        plain(&figures["commit"]),
    )
}

/// The tables for people, on a terminal.
pub fn text(figures: &Value) -> Result<String> {
    let mut text = about(figures);
    for one in Table::ALL {
        write!(text, "\n{}\n\n{}", one.title(), table(figures, one)?)?;
    }
    Ok(text)
}

/// `page` with its tables replaced by those of `figures`.
pub fn page(mut page: String, figures: &Value) -> Result<String> {
    let parts = Table::ALL.map(|one| table(figures, one).map(|text| (one.name(), text)));
    let parts: Result<Vec<_>> = parts.into_iter().chain([Ok(("machine", about(figures)))]).collect();
    for (name, text) in parts? {
        let (mark, end) = (format!("<!-- peers: {name} -->\n"), "<!-- peers: end -->");
        let missing = || format!("the page has no part between '{}' and '{end}'", mark.trim_end());
        let start = page.find(&mark).ok_or_else(missing)? + mark.len();
        let stop = start + page[start..].find(end).ok_or_else(missing)?;
        page.replace_range(start..stop, &format!("\n{text}\n"));
    }
    Ok(page)
}

/// The pictures of the durable tables: their file names and what is in them.
pub fn pictures(figures: &Value) -> Result<Vec<(String, String)>> {
    let durable = Table::ALL.into_iter().filter(|table| *table != Table::Memory);
    durable
        .map(|table| {
            let rows = figures[table.name()].as_array().map_or([].as_slice(), Vec::as_slice);
            let called = |row: &Value| {
                let [name, way] = ["name", "way"].map(|field| row[field].as_str().unwrap_or_default());
                let alone = rows.iter().filter(|other| other["name"] == name).count() == 1;
                if alone { name.to_owned() } else { format!("{name}: {way}") }
            };
            let lines = rows.iter().map(|row| {
                let rate = |threads: &usize| row[format!("threads_{threads}")].as_f64().unwrap_or(0.0);
                let points = THREADS.iter().map(|threads| (*threads as f64, rate(threads)));
                (called(row), points.collect())
            });
            let picture = crate::plots::draw(table.title(), &lines.collect::<Vec<_>>())?;
            Ok((format!("peers-{}.svg", table.name()), picture))
        })
        .collect()
}
