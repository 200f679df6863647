//! What a run tells about itself, on standard error.

use super::input::Input;
use crate::out::{counted, note};
use claimdb::{Clock, Moment, SystemClock};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

/// Counts lines and shows how far the run is.
pub(super) struct Summary {
    first_seen: u64,
    duplicates: u64,
    rejected: u64,
    batch: usize,
    clock: SystemClock,
    began: Moment,
    bar: ProgressBar,
}

impl Summary {
    pub(super) fn new(input: &Input, batch: usize) -> Self {
        let clock = SystemClock::new();
        let began = clock.now();
        Self { first_seen: 0, duplicates: 0, rejected: 0, batch, clock, began, bar: bar(input) }
    }

    /// Counts a batch that is dealt with, which was `length` bytes of the input.
    pub(super) fn count(&mut self, first_seen: usize, duplicates: usize, rejected: usize, length: u64) {
        self.first_seen += first_seen as u64;
        self.duplicates += duplicates as u64;
        self.rejected += rejected as u64;
        self.bar.inc(length);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!(
                "{}, {} first seen",
                counted(self.lines(), "line", "lines"),
                self.first_seen
            ));
        }
    }

    /// Does what writes to the terminal without the bar in its way.
    pub(super) fn beside<R>(&self, write: impl FnOnce() -> R) -> R {
        self.bar.suspend(write)
    }

    pub(super) fn tell(&self, json: bool) {
        self.bar.finish_and_clear();
        let text = if json { self.json() } else { self.text() };
        note(text);
    }

    fn lines(&self) -> u64 {
        self.first_seen + self.duplicates + self.rejected
    }

    fn seconds(&self) -> f64 {
        self.clock.now().since(self.began).as_secs_f64()
    }

    fn text(&self) -> String {
        let (lines, seconds) = (self.lines(), self.seconds());
        let Self { first_seen, duplicates, rejected, batch, .. } = self;
        format!(
            "{}: {first_seen} first seen, {}, {rejected} rejected\n\
             {seconds:.2} s, {:.0} lines/s; at most {} in flight (--batch)",
            counted(lines, "line", "lines"),
            counted(duplicates, "duplicate", "duplicates"),
            rate(lines, seconds),
            counted(batch, "line", "lines")
        )
    }

    fn json(&self) -> String {
        let (lines, seconds) = (self.lines(), self.seconds());
        json!({
            "lines": lines,
            "first_seen": self.first_seen,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "seconds": seconds,
            "lines_per_second": rate(lines, seconds),
            "batch": self.batch,
        })
        .to_string()
    }
}

#[allow(clippy::cast_precision_loss)] // a rate is for people
fn rate(lines: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { lines as f64 / seconds } else { 0.0 }
}

/// A bar over the bytes of a file, or a count of those of a stream; nothing unless standard error is a terminal.
fn bar(input: &Input) -> ProgressBar {
    const FILE: &str = "{bar:30} {percent:>3} %  {msg}  {bytes_per_sec}, {eta} left";
    const STREAM: &str = "{bytes}  {msg}  {bytes_per_sec}";
    let (length, template) = match input.length() {
        Some(length) if length > 0 => (Some(length), FILE),
        _ => (None, STREAM),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // indicatif draws on a terminal alone.
    ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr()).with_style(style)
}
