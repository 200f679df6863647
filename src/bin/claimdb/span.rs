//! Spans of time, as people write and read them.

use std::time::Duration;

/// A span of time with a unit; a bare number is refused, because it would be taken for the wrong one.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "" => return Err("a unit is missing: s, m, h or d, as in 24h".to_owned()),
        _ => return Err("it must be a whole number and a unit, s, m, h or d, as in 24h".to_owned()),
    };
    let seconds = number.parse().ok().and_then(|number: u64| number.checked_mul(seconds));
    match seconds.map(Duration::from_secs) {
        Some(span) if !span.is_zero() && span <= claimdb::MAX_RETENTION => Ok(span),
        _ => Err("it must be from 1s to 36525d".to_owned()),
    }
}

/// `millis` in the largest unit of which it has one at least.
pub(crate) fn text(millis: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    match units.iter().find(|(_, length)| millis >= *length) {
        Some((unit, length)) => format!("{}{unit}", millis / length),
        None => format!("{millis}ms"),
    }
}
