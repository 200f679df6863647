//! A run as a sequence diagram in SVG, which stands on its own.

use super::diagram;
use super::model::Model;
use super::story::{Line, Party};
use std::fmt::Write as _;

const APART: usize = 190;
const LEFT: usize = 90;
const TOP: usize = 110;
const ROW: usize = 44;
/// A letter's width at the font's size, on the safe side.
const LETTER: usize = 7;

/// Draws the steps of a run under `title`, and under what the protocol does.
pub(super) fn draw(model: &Model, lines: &[Line], title: &str) -> String {
    let parties = diagram::parties(lines);
    let (about, longest) = (model.protocol.about(), lines.iter().map(|line| line.text.chars().count()).max());
    let words = [about.chars().count(), title.chars().count(), longest.unwrap_or(0)].into_iter().max();
    let width = (LEFT * 2 + parties.len().saturating_sub(1) * APART).max(words.unwrap_or(0) * LETTER + 60);
    let rows: usize = lines.iter().map(|line| 1 + line.breaks.len()).sum();
    let height = TOP + rows * ROW + 40;
    let mut sheet = Sheet { parties, width, drawn: String::new() };
    sheet.text(24, 30, "title", title);
    sheet.text(24, 52, "about", &format!("{}: {about}", model.protocol.name()));
    sheet.heads(height);
    let mut y = TOP + ROW / 2;
    for (number, line) in lines.iter().enumerate() {
        y = sheet.line(number + 1, line, y);
    }
    format!("{}{}</svg>\n", head(width, height), sheet.drawn)
}

fn head(width: usize, height: usize) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">\n\
         <style>\n\
         .title {{ font-size: 16px; font-weight: bold }}\n\
         .about, .number {{ fill: #555 }}\n\
         .name {{ font-weight: bold; text-anchor: middle }}\n\
         .number {{ text-anchor: end }}\n\
         .broken {{ fill: #a40000; font-weight: bold }}\n\
         .band {{ font-weight: bold }}\n\
         .life {{ stroke: #bbb }}\n\
         .arrow {{ stroke: #204a87; stroke-width: 1.5 }}\n\
         .head {{ fill: #204a87 }}\n\
         </style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    )
}

struct Sheet {
    parties: Vec<Party>,
    width: usize,
    drawn: String,
}

// Writing to a string does not fail.
impl Sheet {
    fn column(&self, party: Party) -> usize {
        LEFT + self.parties.iter().position(|other| *other == party).unwrap_or(0) * APART
    }

    fn text(&mut self, x: usize, y: usize, class: &str, text: &str) {
        let _ = writeln!(self.drawn, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(text));
    }

    /// Words on white, so that the lines below do not run through them; further left where there is no room.
    fn words(&mut self, x: usize, y: usize, class: &str, text: &str) {
        let length = text.chars().count() * (LETTER + usize::from(class != "words"));
        let x = x.min(self.width.saturating_sub(length + 10)).max(36);
        let (left, top) = (x - 3, y - 12);
        let _ = writeln!(
            self.drawn,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{length}\" height=\"16\" fill=\"#ffffff\"/>"
        );
        self.text(x, y, class, text);
    }

    fn heads(&mut self, height: usize) {
        for party in self.parties.clone() {
            let x = self.column(party);
            let (left, top, end) = (x - 42, TOP - 34, height - 24);
            let _ = writeln!(
                self.drawn,
                "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{end}\" class=\"life\"/>"
            );
            let _ = writeln!(
                self.drawn,
                "<rect x=\"{left}\" y=\"{top}\" width=\"84\" height=\"26\" rx=\"4\" fill=\"#eef2f8\" stroke=\"#204a87\"/>"
            );
            self.text(x, TOP - 16, "name", &party.to_string());
        }
    }

    /// Draws a step at `y`, and gives the place of the next one.
    fn line(&mut self, number: usize, line: &Line, y: usize) -> usize {
        match line.between {
            Some((from, to)) => {
                let (from, to) = (self.column(from), self.column(to));
                self.words(from.min(to) + 10, y, "words", &line.text);
                if from != to {
                    self.arrow(from, to, y + 10);
                }
            }
            None => {
                let (top, width) = (y - 15, self.width - 48);
                let _ = writeln!(
                    self.drawn,
                    "<rect x=\"36\" y=\"{top}\" width=\"{width}\" height=\"24\" fill=\"#fce9c4\"/>"
                );
                self.text(46, y + 2, "band", &line.text);
            }
        }
        self.text(26, y, "number", &number.to_string());
        let mut y = y + ROW;
        for promise in &line.breaks {
            let text = format!("✗ {}", promise.alarm());
            self.words(46, y - 6, "broken", &text);
            y += ROW;
        }
        y
    }

    fn arrow(&mut self, from: usize, to: usize, y: usize) {
        let tip = if from < to { to - 7 } else { to + 7 };
        let (above, below) = (y - 4, y + 4);
        let _ =
            writeln!(self.drawn, "<line x1=\"{from}\" y1=\"{y}\" x2=\"{tip}\" y2=\"{y}\" class=\"arrow\"/>");
        let _ =
            writeln!(self.drawn, "<polygon points=\"{to},{y} {tip},{above} {tip},{below}\" class=\"head\"/>");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
