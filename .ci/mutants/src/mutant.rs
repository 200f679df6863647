//! Laid into the woven tree as `crate::mutant`: which mutant this process is, from its environment.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

enum Mode {
    Original,
    Mutant(usize),
    /// Notes in a file which mutants are come to, and is none.
    Notes(std::path::PathBuf),
}

pub(crate) fn is(number: usize) -> bool {
    static MODE: OnceLock<Mode> = OnceLock::new();
    static SEEN: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];
    let mode = MODE.get_or_init(|| match (std::env::var("MUTANT"), std::env::var("MUTANT_NOTES")) {
        (Ok(number), _) => Mode::Mutant(number.parse().expect("MUTANT is a number")),
        (_, Ok(file)) => Mode::Notes(file.into()),
        _ => Mode::Original,
    });
    match mode {
        Mode::Original => false,
        Mode::Mutant(this) => *this == number,
        Mode::Notes(file) => {
            if !SEEN[number].swap(true, Ordering::Relaxed) {
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("notes");
                file.write_all(format!("{number}\n").as_bytes()).expect("notes");
            }
            false
        }
    }
}
