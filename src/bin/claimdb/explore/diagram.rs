//! A run as a sequence diagram in text.

use super::story::{Line, Party};

/// The least width in which the arrows between six parties can be told apart.
pub(super) const MIN_WIDTH: usize = 60;
/// Room for the number of a step.
const MARGIN: usize = 5;
/// Wider apart, arrows only become longer.
const MAX_APART: usize = 22;

/// Draws the steps of a run, no wider than `width` columns.
pub(super) fn draw(lines: &[Line], width: usize) -> String {
    let parties = parties(lines);
    let width = width.max(MIN_WIDTH);
    let apart = (width - MARGIN - 10) / (parties.len().max(2) - 1);
    let sheet = Sheet { parties, apart: apart.min(MAX_APART), width };
    let mut rows = vec![sheet.heads()];
    for (number, line) in lines.iter().enumerate() {
        rows.push(sheet.bare());
        sheet.line(number + 1, line, &mut rows);
    }
    rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
}

/// Those who have a part in it, in their order from left to right.
pub(super) fn parties(lines: &[Line]) -> Vec<Party> {
    let mut parties: Vec<_> =
        lines.iter().filter_map(|line| line.between).flat_map(<[Party; 2]>::from).collect();
    parties.sort_unstable();
    parties.dedup();
    parties
}

struct Sheet {
    parties: Vec<Party>,
    apart: usize,
    width: usize,
}

impl Sheet {
    /// The column of a party's line.
    fn column(&self, party: Party) -> usize {
        let index = self.parties.iter().position(|other| *other == party).unwrap_or(0);
        MARGIN + 4 + index * self.apart
    }

    fn heads(&self) -> Vec<char> {
        let mut row = vec![' '; self.width];
        for party in &self.parties {
            let name = party.to_string();
            put(&mut row, self.column(*party).saturating_sub(name.len() / 2), &name);
        }
        row
    }

    /// Nothing but the parties' lines.
    fn bare(&self) -> Vec<char> {
        let mut row = vec![' '; self.width];
        for party in &self.parties {
            row[self.column(*party)] = '│';
        }
        row
    }

    fn line(&self, number: usize, line: &Line, rows: &mut Vec<Vec<char>>) {
        let first = rows.len();
        match line.between {
            Some((from, to)) => {
                let (from, to) = (self.column(from), self.column(to));
                self.text(from.min(to) + 2, &line.text, rows);
                if from != to {
                    rows.push(self.arrow(from, to));
                }
            }
            None => rows.push(self.band(&line.text)),
        }
        put(&mut rows[first], 0, &format!("{number:>3}"));
        for promise in &line.breaks {
            let text = format!("✗ {}", promise.alarm());
            self.text(MARGIN + 6, &text, rows);
        }
    }

    /// Words from `column` on, further left where there is no room, in several rows if need be.
    fn text(&self, column: usize, text: &str, rows: &mut Vec<Vec<char>>) {
        let room = self.width - MARGIN - 1;
        for part in wrap(text, room) {
            let mut row = self.bare();
            let length = part.chars().count();
            let column = column.min(self.width - length);
            put(&mut row, column - 1, &format!(" {part}"));
            // A line that would touch the last letter.
            if let Some(after @ '│') = row.get_mut(column + length) {
                *after = ' ';
            }
            rows.push(row);
        }
    }

    fn arrow(&self, from: usize, to: usize) -> Vec<char> {
        let mut row = self.bare();
        let (left, right) = (from.min(to), from.max(to));
        row[left + 1..right].fill('─');
        if from < to {
            row[right - 1] = '▶';
        } else {
            row[left + 1] = '◀';
        }
        row
    }

    fn band(&self, text: &str) -> Vec<char> {
        let right = self.parties.last().map_or(self.width - 1, |last| self.column(*last) + 4);
        let mut row = vec![' '; self.width];
        let right = right.max(MARGIN + text.chars().count() + 4).min(self.width);
        row[MARGIN..right].fill('═');
        put(&mut row, MARGIN + 3, &format!(" {text} "));
        row
    }
}

fn put(row: &mut [char], column: usize, text: &str) {
    for (place, letter) in row.iter_mut().skip(column).zip(text.chars()) {
        *place = letter;
    }
}

/// Cuts `text` between words so that no part is longer than `room`; a longer word is cut itself.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in text.split(' ') {
        let last = parts.len() - 1;
        let length = parts[last].chars().count();
        if length > 0 && length + 1 + word.chars().count() > room {
            parts.push(word.to_owned());
        } else {
            if length > 0 {
                parts[last].push(' ');
            }
            parts[last].push_str(word);
        }
    }
    parts
}
