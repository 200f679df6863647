//! Keys, for people.

use crate::span;
use claimdb::admin::{self, KeyTold};

/// How the key is given on a command line, or what stands for it.
pub(crate) fn name(told: &KeyTold) -> String {
    let (Some(scope_hex), Some(name_hex)) = (&told.scope_hex, &told.name_hex) else {
        return told.key.clone();
    };
    match (&told.scope, &told.name) {
        (Some(scope), Some(name)) if !name.starts_with('-') && !scope.starts_with('-') => {
            if scope.is_empty() {
                quoted(name)
            } else {
                format!("{} --scope {}", quoted(name), quoted(scope))
            }
        }
        // Behind what a shell takes for a comment, so that it can be read, and found.
        _ if scope_hex.is_empty() => format!("{name_hex} --hex  # {}", escaped(name_hex)),
        _ => {
            let (scope, name) = (escaped(scope_hex), escaped(name_hex));
            format!("{name_hex} --scope {scope_hex} --hex  # {name} in {scope}")
        }
    }
}

/// What is behind `hex`, with `\x00` for what is no text.
fn escaped(hex: &str) -> String {
    admin::from_hex(hex).unwrap_or_default().escape_ascii().to_string()
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Above the lines of [`row`].
pub(crate) const HEAD: &str = "STATE        HOLDER   ATTEMPT   FOR  TOKEN             KEY";

/// One line of a listing.
pub(crate) fn row(told: &KeyTold) -> String {
    format!(
        "{:<12} {:<8} {:>7} {:>5}  {:<17} {}",
        told.state,
        told.holder.as_deref().unwrap_or("-"),
        told.attempt,
        told.for_ms.map_or_else(|| "-".to_owned(), span::text),
        told.token.as_deref().unwrap_or("-"),
        name(told)
    )
}

/// Everything, in a line for each thing that there is to tell.
pub(crate) fn whole(told: &KeyTold) -> String {
    let span = |millis: Option<u64>| millis.map(span::text);
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let by_hand = told.by_hand.then(|| "yes".to_owned());
    let attempt = Some(told.attempt).filter(|attempt| *attempt > 0).map(|attempt| attempt.to_string());
    let waiters = Some(told.waiters).filter(|waiters| *waiters > 0).map(|waiters| waiters.to_string());
    let lines = [
        ("key", Some(name(told))),
        ("state", Some(told.state.clone())),
        ("for", span(told.for_ms)),
        ("holder", told.holder.clone()),
        ("lease left", span(told.lease_left_ms)),
        ("token", told.token.clone()),
        ("attempt", attempt),
        ("waiters", waiters),
        ("claimed at", told.claimed_at.clone()),
        ("settled at", told.settled_at.clone()),
        ("forgotten at", told.forgotten_at.clone()),
        ("result", told.result.clone()),
        ("result bytes", number(told.result_bytes)),
        ("not kept", told.omitted.clone()),
        ("by hand", by_hand),
        ("ended by", told.ended_by.clone()),
        ("checkpoint", number(told.checkpoint_bytes).map(|bytes| format!("{bytes} bytes"))),
        ("on interrupt", told.on_interrupt.clone()),
        ("max attempts", told.max_attempts.map(|attempts| attempts.to_string())),
        ("next claim", Some(told.next_claim.clone())),
    ];
    let lines = lines.into_iter().filter_map(|(what, told)| Some(format!("{what:<13} {}", told?)));
    lines.collect::<Vec<_>>().join("\n")
}
