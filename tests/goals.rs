//! The goals of docs/performance.md beside what was measured: the table is made from the files that the benches wrote.
#![cfg(not(any(loom, shuttle)))]

use serde_json::Value;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/performance.md";

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
}

fn figures(name: &str) -> Value {
    serde_json::from_str(&read(&format!("docs/figures/{name}.json"))).expect("the benches write JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The one of `rows` that `is` it.
fn row<'a>(rows: &'a Value, what: &str, is: impl Fn(&Value) -> bool) -> &'a Value {
    let mut found = rows.as_array().expect("it is a list").iter().filter(|row| is(row));
    let first = found.next().unwrap_or_else(|| panic!("{what} was not measured"));
    assert!(found.next().is_none(), "{what} was measured twice");
    first
}

enum Goal {
    Least(f64),
    Most(f64),
    More(f64),
}

/// Rows as the page shows them.
#[derive(Default)]
struct Table(Vec<String>);

impl Table {
    fn add(&mut self, what: &str, goal: Goal, unit: &str, measured: f64) {
        let (goal, reached) = match goal {
            Goal::Least(bound) => (format!("at least {bound}{unit}"), measured >= bound),
            Goal::Most(bound) => (format!("at most {bound}{unit}"), measured <= bound),
            Goal::More(bound) => (format!("more than {bound}{unit}"), measured > bound),
        };
        let reached = if reached { "yes" } else { "**no**" };
        self.0.push(format!("| {what} | {goal} | {measured:.3}{unit} | {reached} |"));
    }
}

fn peers(table: &mut Table) {
    let peers = figures("peers");
    let at_64 = |rows: &Value, name: &str, way: &str| {
        let row = row(rows, name, |row| {
            row["name"] == name && row["way"].as_str().is_some_and(|text| text.contains(way))
        });
        number(&row["threads_64"])
    };
    let best = |rows: &Value, is: &dyn Fn(&str) -> bool| {
        let names = rows.as_array().expect("it is a list").iter();
        let rates = names
            .filter(|row| is(row["name"].as_str().expect("it is text")))
            .map(|row| number(&row["threads_64"]));
        rates.fold(0.0, f64::max)
    };
    let full = &peers["full"];
    let ours = at_64(full, "claimdb, sled", "");
    for (name, way, goal) in [
        ("Redis", "", Goal::Least(1.5)),
        ("PostgreSQL", "", Goal::Least(2.5)),
        ("SQLite", "each by itself", Goal::Least(10.0)),
    ] {
        let what = format!("`Full`, 64 threads, beside {name}");
        table.add(&what, goal, " ×", ours / at_64(full, name, way));
    }
    let queued = best(full, &|name| name.ends_with(", queued"));
    table.add("`Full`, 64 threads, beside the best queued engine", Goal::More(1.0), " ×", ours / queued);
    let result = &peers["result"];
    let ours = at_64(result, "claimdb, sled", "claim, complete");
    let postgres = at_64(result, "PostgreSQL", "");
    table.add("`Result`, 64 threads, beside PostgreSQL", Goal::Least(2.0), " ×", ours / postgres);
    let others = best(result, &|name| !name.starts_with("claimdb"));
    table.add("`Result`, 64 threads, beside the best peer", Goal::More(1.0), " ×", ours / others);
    let nanoseconds = |name: &str, way: &str| {
        let is =
            |row: &Value| row["name"] == name && row["way"].as_str().is_some_and(|text| text.contains(way));
        number(&row(&peers["memory"], name, is)["nanoseconds"])
    };
    let (cache, ours) = (nanoseconds("moka", ""), nanoseconds("claimdb, sled", "replay"));
    table.add(
        "replay of a recent completion, one thread, beside moka",
        Goal::Least(0.33),
        " ×",
        cache / ours,
    );
}

fn costs(table: &mut Table) {
    let costs = figures("claim-costs");
    let median = |group: &str, what: &str| {
        let is = |row: &Value| row["group"] == group && row["what"] == what;
        number(&row(&costs["nanoseconds_at_the_median"], what, is)["nanoseconds"])
    };
    let old = "replay of an old completion";
    let bare = median(old, "floor: bare sled, get");
    table.add(
        "replay of an old completion, one thread, beside a sled get",
        Goal::Least(0.7),
        " ×",
        bare / median(old, "claimdb"),
    );
    for (who, ours, floor) in [
        ("thread, beside a condvar", "claimdb", "floor: a bare condvar"),
        ("task, beside a waker", "claimdb, a task", "floor: a bare waker"),
    ] {
        let measured = median("wake-up", ours) / median("wake-up", floor);
        table.add(&format!("wake-up of a waiting {who}, over `Mem`"), Goal::Most(1.3), " ×", measured);
    }
}

fn scale(table: &mut Table) {
    let measured = |part: &str, begins: &str| {
        let is = |row: &Value| row["what"].as_str().is_some_and(|what| what.starts_with(begins));
        row(&figures(&format!("scale/{part}"))["measured"], begins, is).clone()
    };
    let ratio = |part: &str, begins: &str| number(&measured(part, begins)["ratio"]);
    let append = |durability: &str| ratio("append", &format!("one thread, {durability}"));
    table.add("`Full`, one thread, beside append and fdatasync", Goal::Least(0.45), " ×", append("Full"));
    table.add("`Result`, one thread, beside append and fdatasync", Goal::Least(0.8), " ×", append("Result"));
    for (durability, goal) in [("Full", 0.45), ("Result", 0.8)] {
        let what = format!("`{durability}`, one thread with `SyncBy::Caller`, beside append and fdatasync");
        table.add(&what, Goal::Least(goal), " ×", append(&format!("SyncBy::Caller, {durability}")));
    }
    for threads in [1, 2] {
        let pair = ratio("relaxed", &format!("claim and complete, Relaxed, {threads} threads"));
        table.add(
            &format!("`Relaxed`, threads: {threads}, beside sled's two writes"),
            Goal::Least(0.8),
            " ×",
            pair,
        );
    }
    for live in [1000, 1_000_000] {
        for threads in [1, 2] {
            let lost = ratio("losers", &format!("losing claims, {live} live keys, {threads} threads"));
            table.add(
                &format!("losing claim over `Mem`, live keys: {live}, threads: {threads}, beside dashmap and a clock"),
                Goal::Least(0.5),
                " ×",
                lost,
            );
        }
    }
    let lease = number(&measured("memory", "a live lease")["claimdb"]);
    table.add(
        "memory of a live `Result` lease with its guard and its key of 16 bytes",
        Goal::Most(176.0),
        " bytes",
        lease,
    );
    let growth = ratio("leases", "the same, 1000000 against 1000");
    table.add(
        "`Result` claim over `Mem`, one thread, beside a million leases: growth beside a map's",
        Goal::Most(1.2),
        " ×",
        growth,
    );
    for from in ["the disk", "the page cache"] {
        let opening =
            ratio("reopen", &format!("opening with 1000000 pending after a kill, sled's from {from}"));
        table.add(
            &format!("opening after a kill, beside sled's own from {from}"),
            Goal::Most(1.2),
            " ×",
            opening,
        );
    }
    let first = number(&measured("reopen", "the first claim after that")["claimdb"]);
    table.add("the first claim after that, its sync included", Goal::Most(1.0), " ms", first);
    table.add(
        "sweeping a record, one thread, beside sled's removes",
        Goal::Most(2.0),
        " ×",
        ratio("sweep", "sweeping a record"),
    );
    table.add(
        "p99 of `Relaxed` claims of one thread during a sweep, beside without",
        Goal::Most(2.0),
        " ×",
        ratio("sweep", "p99 of claim"),
    );
    let growth = ratio("stored", "the same, 5000000 against 100000");
    table.add(
        "`Relaxed`, one thread, five million keys against 100,000: growth beside sled's",
        Goal::Most(1.5),
        " ×",
        growth,
    );
}

fn commands(table: &mut Table) {
    let dedup = figures("dedup");
    let rate =
        |what: &str| number(&row(&dedup["measured"], what, |row| row["what"] == what)["lines_per_second"]);
    for (cache, what) in [("default", "its own cache"), ("large", "a cache of 1 GiB")] {
        let measured = rate("claimdb") / rate(cache);
        table.add(&format!("`dedup`, beside the sqlite3 shell, {what}"), Goal::Least(1.0), " ×", measured);
    }
    let http = figures("http");
    let is = |row: &Value| row["durability"] == "Relaxed" && row["way"] == "in memory";
    let over = number(&row(&http["microseconds_at_the_median"], "the layer", is)["over_bare"]);
    table.add("HTTP layer over the bare handler, in memory, `Relaxed`", Goal::Most(30.0), " µs", over);
}

#[test]
fn the_goals_are_shown_beside_what_was_measured() {
    let mut table = Table::default();
    for part in [peers, scale, costs, commands] {
        part(&mut table);
    }
    let page = read(PAGE);
    let part = page.split("<!-- goals -->\n").nth(1).expect("the page has its mark");
    let part = part.split("<!-- end -->").next().expect("split gives one part at least");
    let shown: Vec<&str> = part.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let measured = table.0.join("\n");
    assert!(shown == table.0, "{PAGE} does not show what was measured, which is\n{measured}\n");
}

#[test]
fn the_profile_is_the_one_that_the_bench_wrote() {
    let (profile, page) = (figures("profile"), read(PAGE));
    let rows = |field: &str, unit: &str| -> Vec<String> {
        let rows = profile[field].as_array().expect("it is a list").iter();
        rows.map(|row| format!("| {} | {}{unit} |", row["what"].as_str().expect("it is text"), row["value"]))
            .collect()
    };
    let mut expected = rows("percent_of_the_processors", " %");
    expected.extend(rows("milliseconds_at_the_median", " ms"));
    for (what, field) in [
        ("operations a second", "operations_per_second"),
        ("syncs a second", "syncs_per_second"),
        ("processors busy", "processors_busy"),
        ("microseconds of a processor an operation", "processor_microseconds_per_operation"),
        ("switches an operation", "switches_per_operation"),
    ] {
        expected.push(format!("| {what} | {} |", profile[field]));
    }
    for row in &expected {
        let all = expected.join("\n");
        assert!(page.contains(row.as_str()), "{PAGE} does not show what was measured, which is\n{all}\n");
    }
}
