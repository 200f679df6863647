//! What was found, for people and for scripts.

use super::diagram;
use super::model::Model;
use super::promise::Promise;
use super::search::{Explored, Run};
use super::story::{self, Line};
use crate::out::counted;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The run that is drawn, and what stands above it.
pub(super) struct Shown {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
}

impl Shown {
    /// The run that breaks `promise`; without one, the most telling of all.
    pub(super) fn of(model: &Model, explored: &Explored, promise: Option<Promise>) -> Option<Self> {
        let broken = match promise {
            Some(promise) => Some(explored.broken().find(|(broken, _)| *broken == promise)?),
            None => explored.most_telling(),
        };
        let (title, run) = match broken {
            Some((promise, run)) => (format!("The shortest way in which {}", promise.broken()), run),
            None => {
                ("All ask for one key, and the card is charged once".to_owned(), explored.example.as_ref()?)
            }
        };
        Some(Self { title, lines: story::tell(model, run) })
    }
}

// Writing to a string does not fail.
pub(super) fn text(model: &Model, explored: &Explored, shown: Option<&Shown>, width: usize) -> String {
    let Model { protocol, clients, crashes } = model;
    let mut text = String::new();
    let about = format!("{}: {}", protocol.name(), protocol.about());
    for line in diagram::wrap(&about, width) {
        let _ = writeln!(text, "{line}");
    }
    let bounds = format!(
        "Every order of the steps of {}, with power cuts (at most {crashes}) and failing reads (at most 1) \
         in between: {}, {}",
        counted(clients, "client", "clients"),
        counted(explored.states, "state", "states"),
        counted(explored.steps, "step", "steps")
    );
    let _ = writeln!(text);
    for line in diagram::wrap(&bounds, width) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text);
    for (promise, run) in &explored.verdicts {
        let verdict = match run {
            Some(run) => format!("BROKEN after {}", counted(length(run), "step", "steps")),
            None if promise.can_be_seen(*protocol) => "holds".to_owned(),
            None => "-, since there are no claims".to_owned(),
        };
        let _ = writeln!(text, "  {:<26}{verdict}", promise.name());
    }
    if let Some(shown) = shown {
        let _ = writeln!(text);
        for line in diagram::wrap(&format!("{}:", shown.title), width) {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(text);
        text.push_str(&diagram::draw(&shown.lines, width));
    }
    text.truncate(text.trim_end().len());
    text
}

pub(super) fn json(model: &Model, explored: &Explored) -> Value {
    let promises: Vec<_> = explored
        .verdicts
        .iter()
        .map(|(promise, run)| {
            let holds = match run {
                Some(_) => Some(false),
                None => promise.can_be_seen(model.protocol).then_some(true),
            };
            json!({
                "promise": promise.name(),
                "holds": holds,
                "trace": run.as_ref().map(|run| trace(model, run)),
            })
        })
        .collect();
    json!({
        "protocol": model.protocol.name(),
        "clients": model.clients,
        "crashes": model.crashes,
        "states": explored.states,
        "steps": explored.steps,
        "holds": explored.broken().next().is_none(),
        "promises": promises,
        "example": explored.example.as_ref().map(|run| trace(model, run)),
    })
}

fn trace(model: &Model, run: &Run) -> Vec<Value> {
    let step = |line: Line| {
        json!({
            "from": line.between.map(|(from, _)| from.to_string()),
            "to": line.between.map(|(_, to)| to.to_string()),
            "text": line.text,
            "breaks": line.breaks.iter().map(|promise| promise.name()).collect::<Vec<_>>(),
        })
    };
    story::tell(model, run).into_iter().map(step).collect()
}

/// How many steps a run has.
pub(super) fn length(run: &Run) -> usize {
    run.len().saturating_sub(1)
}
