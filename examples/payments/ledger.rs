//! What the service did to the world outside: a file that only grows, one line for each effect.

use claimdb::Token;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Money that moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub payment: String,
    /// Under which claim.
    pub token: u64,
    /// As what the handler was started, from 1.
    pub attempt: u32,
}

/// The bank. It does not know of keys: asked twice, it pays twice.
pub struct Ledger {
    file: File,
    syncs: bool,
}

impl Ledger {
    /// `syncs` if what was paid has to outlive a power cut.
    pub fn open(path: &Path, syncs: bool) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, syncs })
    }

    /// Pays. When this returns the money has moved, whatever becomes of this process.
    pub fn pay(&self, payment: &str, token: Token, attempt: u32) -> io::Result<()> {
        // One write, so that a process that is killed leaves the whole line or none.
        (&self.file).write_all(format!("{payment} {token} {attempt}\n").as_bytes())?;
        if self.syncs { self.file.sync_data() } else { Ok(()) }
    }
}

/// All effects, in their order.
pub fn read(path: &Path) -> io::Result<Vec<Effect>> {
    let text = std::fs::read_to_string(path)?;
    text.lines()
        .map(|line| {
            parse(line).ok_or_else(|| io::Error::other(format!("{} holds no effect: {line}", path.display())))
        })
        .collect()
}

fn parse(line: &str) -> Option<Effect> {
    let mut words = line.split(' ');
    let payment = words.next()?.to_owned();
    Some(Effect { payment, token: words.next()?.parse().ok()?, attempt: words.next()?.parse().ok()? })
}
