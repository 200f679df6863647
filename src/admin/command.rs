//! What can be asked.

use crate::key::{Key, KeyError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Something that is asked of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Command {
    /// Everything about one key.
    Inspect {
        /// Which.
        key: KeyName,
        /// Whether the key is told in full.
        show_keys: bool,
    },
    /// The keys that are stored, and those that a live claim has in memory alone.
    List {
        /// The scope in hex; `None` for all.
        scope_hex: Option<String>,
        /// In which states; empty for all.
        states: Vec<Wanted>,
        /// Only keys that have been in their state for as many milliseconds.
        older_than_ms: Option<u64>,
        /// How many at most; `None` for all.
        limit: Option<u64>,
        /// Whether keys are told in full.
        show_keys: bool,
    },
    /// What the store has done since it was opened.
    Stats {
        /// Whether what is stored is counted as well, which reads all of it.
        count: bool,
    },
    /// Frees a key whose work is not settled, so that it can run again.
    Release {
        /// Which.
        key: KeyName,
        /// The claim that was looked at, as text; `None` for whichever is there.
        token: Option<String>,
        /// Whether the lease of a live claim is ended for it.
        force: bool,
    },
    /// Settles a key in its holder's stead.
    Resolve {
        /// Which.
        key: KeyName,
        /// The claim that was looked at, as text; `None` for whichever is there.
        token: Option<String>,
        /// How.
        settle: Settle,
        /// Whether the lease of a live claim is ended for it.
        force: bool,
    },
    /// Copies the store into a folder that is not there yet, on the machine of the store.
    Backup {
        /// The folder, from the root on.
        folder: String,
    },
}

impl Command {
    /// A listing of `scope`, or of all scopes; see [`Command::List`].
    #[must_use]
    pub fn list(
        scope: Option<&[u8]>,
        states: Vec<Wanted>,
        older_than: Option<Duration>,
        limit: Option<u64>,
        show_keys: bool,
    ) -> Self {
        let older_than_ms = older_than.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        Self::List { scope_hex: scope.map(to_hex), states, older_than_ms, limit, show_keys }
    }

    /// Whether it changes the store, or writes something.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self {
            Self::Inspect { .. } | Self::List { .. } | Self::Stats { .. } => false,
            Self::Release { .. } | Self::Resolve { .. } | Self::Backup { .. } => true,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Inspect { .. } => "inspect",
            Self::List { .. } => "list",
            Self::Stats { .. } => "stats",
            Self::Release { .. } => "release",
            Self::Resolve { .. } => "resolve",
            Self::Backup { .. } => "backup",
        }
    }

    /// The key that it is about.
    #[must_use]
    pub fn key(&self) -> Option<&KeyName> {
        match self {
            Self::Inspect { key, .. } | Self::Release { key, .. } | Self::Resolve { key, .. } => Some(key),
            Self::List { .. } | Self::Stats { .. } | Self::Backup { .. } => None,
        }
    }
}

/// Names a key, whatever bytes it has.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyName {
    scope_hex: String,
    key_hex: String,
}

impl KeyName {
    /// The key `name` in `scope`, which is empty for none.
    #[must_use]
    pub fn new(scope: &[u8], name: &[u8]) -> Self {
        Self { scope_hex: to_hex(scope), key_hex: to_hex(name) }
    }

    /// The key.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn key(&self) -> Result<Key, String> {
        let key = Key::scoped(from_hex(&self.scope_hex)?, from_hex(&self.key_hex)?);
        key.map_err(|error: KeyError| error.to_string())
    }
}

impl fmt::Debug for KeyName {
    /// Shows what stands for the key: keys do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            Ok(key) => fmt::Debug::fmt(&key, f),
            Err(_) => f.write_str("no key"),
        }
    }
}

/// A state that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wanted {
    /// Claimed and not settled, also in memory alone.
    Pending,
    /// Interrupted.
    Interrupted,
    /// Settled.
    Settled,
}

/// How a key is settled by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Settle {
    /// As completed, with this value.
    Completed(Value),
    /// As failed for good, with this as the reason.
    Failed(Value),
    /// As done, with no result kept.
    Omitted,
}

/// A value that is given by hand.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Value {
    /// For code that decodes it as a `String`.
    Text(String),
    /// Bytes, as [`Claim::complete_bytes`](crate::Claim::complete_bytes) takes them, in hex.
    Hex(String),
}

impl Value {
    /// These bytes.
    #[must_use]
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::Hex(to_hex(bytes))
    }
}

impl fmt::Debug for Value {
    /// Shows no values: they do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Text(given) | Self::Hex(given)) = self;
        write!(f, "{} bytes", given.len())
    }
}

/// `bytes` in hex.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that `text` is the hex of, as names and values are in requests.
///
/// # Errors
/// Why it is none, in words.
pub fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        Some(_) => Err("it has an odd number of hex digits; give two for each byte".to_owned()),
        None => Err("it is not hex; give two digits, 0-9 and a-f, for each byte".to_owned()),
    }
}
