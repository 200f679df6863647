//! Texts of engines, in words for people.

use std::any::Any;

/// `text` without what only those who wrote the engine can use: Rust's way of showing an error of the system, an empty
/// backtrace, and how an error came to be a panic.
pub(super) fn readable(text: &str) -> String {
    let text = text.replace("called `Result::unwrap()` on an `Err` value: ", "").replace(" backtrace ()", "");
    // As in `Os { code: 5, kind: Uncategorized, message: "Input/output error" }`.
    let mut pieces = text.split("Os { code: ");
    let mut told = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let message = piece.split_once("message: \"").and_then(|(head, rest)| {
            let (message, behind) = rest.split_once("\" }")?;
            Some((head.split(',').next()?, message, behind))
        });
        match message {
            Some((code, message, behind)) => told += &format!("{message} (os error {code}){behind}"),
            None => told += piece,
        }
    }
    told
}

/// What `engine` said when it panicked.
pub(super) fn panic_text(engine: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("{engine} panicked: {}", readable(text.unwrap_or("without a message")))
}

/// The system's number of the error that `text` shows, and nothing else.
#[cfg(feature = "sled")]
pub(super) fn code_in(text: &str) -> Option<i32> {
    text.strip_prefix("Os { code: ")?.split(',').next()?.parse().ok()
}
