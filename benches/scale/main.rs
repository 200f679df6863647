//! What claimdb costs when a store is large, or full of live leases, each beside its floor: the bare engine, a bare map, a
//! bare file. Everything is measured in turn with its floor, and the median of the rounds is told.
//!
//! `cargo bench --bench scale` does everything and writes a file for each part into `target/figures/scale`;
//! `cargo bench --bench scale -- sweep leases` does those parts only. It needs some gigabytes on the file system of the
//! temporary folder, so set `TMPDIR` to choose another, and takes about half an hour.
#![allow(missing_docs)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures, from outside
#![allow(clippy::unwrap_used)] // a bench that fails has nothing to say

#[path = "../about/mod.rs"]
mod about;
mod append;
mod leases;
mod losers;
mod memory;
mod relaxed;
mod reopen;
mod rows;
mod stored;
mod sweep;
mod written;

use rows::Rows;

/// As large as a small JSON receipt.
pub const VALUE: [u8; 200] = [7; 200];

/// A part: its name, and what it measures.
type Part = (&'static str, fn(&mut Rows));

/// The default configuration first.
const PARTS: [Part; 8] = [
    ("append", append::measure),
    ("relaxed", relaxed::measure),
    ("losers", losers::measure),
    ("leases", leases::measure),
    ("memory", memory::measure),
    ("sweep", sweep::measure),
    ("reopen", reopen::measure),
    ("stored", stored::measure),
];

/// A fresh key for each call, spread over the key space.
pub struct Keys(u64);

impl Keys {
    pub fn new(start: u64) -> Self {
        Self(start.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    pub fn fresh(&mut self) -> String {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        format!("{:016x}", self.0)
    }
}

/// sled as claimdb sets it up, without claimdb.
pub fn bare_sled(folder: &std::path::Path) -> sled::Db {
    let config = sled::Config::new().path(folder).flush_every_ms(None).segment_size(8 << 20);
    config.cache_capacity(128 << 20).open().unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if reopen::is_child(&arguments) {
        return;
    }
    let trial = arguments.iter().any(|argument| argument == "--test");
    let named = |part: &Part| arguments.iter().any(|argument| argument == part.0);
    let all = !PARTS.iter().any(named);
    let mut rows = Rows::new(trial);
    for part in PARTS.iter().filter(|part| all || named(part)) {
        part.1(&mut rows);
        rows.write(part.0);
    }
}
