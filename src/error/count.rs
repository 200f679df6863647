//! Counts in messages.

use std::fmt::Display;

/// A whole number with the noun for it, as in "1 byte" and "2 bytes".
pub(crate) fn counted(count: impl Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

/// [`counted`] for the noun that most messages count.
pub(crate) fn bytes(count: impl Display) -> String {
    counted(count, "byte", "bytes")
}
