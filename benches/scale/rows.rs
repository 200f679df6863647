//! The rows of the table: what was measured, its floor, and the ratio.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

pub struct Rows {
    /// Everything once, and small.
    pub trial: bool,
    pub rounds: usize,
    json: String,
}

impl Rows {
    pub fn new(trial: bool) -> Self {
        println!("{:<58} {:>12} {:>12} {:>8}", "", "claimdb", "floor", "ratio");
        Self { trial, rounds: if trial { 1 } else { 5 }, json: String::new() }
    }

    /// So many, or as many as show that it works.
    pub fn many(&self, full: usize, trial: usize) -> usize {
        if self.trial { trial } else { full }
    }

    /// How long one round of calls is measured.
    pub fn span(&self) -> Duration {
        if self.trial { Duration::from_millis(20) } else { Duration::from_secs(1) }
    }

    /// `ours` and `floor` are of the same rounds; the ratio is the median of theirs.
    pub fn add(&mut self, what: &str, unit: &str, ours: &[f64], floor: &[f64]) {
        let ratio = median(ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect());
        self.add_ratio(what, unit, median(ours.to_vec()), median(floor.to_vec()), ratio);
    }

    pub fn add_ratio(&mut self, what: &str, unit: &str, ours: f64, floor: f64, ratio: f64) {
        println!("{:<58} {ours:>12.3} {floor:>12.3} {ratio:>8.2}", format!("{what} ({unit})"));
        write!(
            self.json,
            "\n  {{\"what\": \"{what}\", \"unit\": \"{unit}\", \"claimdb\": {ours:.3}, \"floor\": {floor:.3}, \
             \"ratio\": {ratio:.4}}},"
        )
        .unwrap();
    }

    /// Writes the rows of `part`, and begins the next one's.
    pub fn write(&mut self, part: &str) {
        let rows = std::mem::take(&mut self.json);
        if self.trial {
            return;
        }
        let text = format!(
            "{{\"value_bytes\": {}, \"rounds\": {}, \"measured\": [{}]}}",
            crate::VALUE.len(),
            self.rounds,
            rows.trim_end_matches(',')
        );
        let command = format!("cargo bench --bench scale -- {part}");
        crate::about::write(&format!("scale/{part}"), &command, &text);
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How many calls a second `call` makes in `span`.
pub fn rate(span: Duration, mut call: impl FnMut()) -> f64 {
    let (start, mut done) = (Instant::now(), 0_u64);
    while start.elapsed() < span {
        call();
        done += 1;
    }
    done as f64 / start.elapsed().as_secs_f64()
}

/// Calls a second of so many threads together in `span`; `prepare` is given a thread's number, and makes what it calls.
pub fn on_threads<S: FnMut() + Send>(threads: usize, span: Duration, prepare: impl Fn(usize) -> S) -> f64 {
    let calls: Vec<S> = (0..threads).map(prepare).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = calls.into_iter().map(|call| scope.spawn(move || rate(span, call))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Microseconds a call, over so many calls.
pub fn micros(calls: usize, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_secs_f64() * 1e6 / calls as f64
}
