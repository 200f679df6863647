//! Fingerprints: what was asked, to catch one key used for two things.

use std::fmt;

/// A 256-bit hash of what a claim is for.
///
/// It is set by the first claim of a key and compared on every later one, before waiting and before replaying. No
/// fingerprint matches only no fingerprint. Use a cryptographic hash of everything that makes the request what it
/// is; claimdb compares and does not compute.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint with these bytes.
    #[must_use]
    pub const fn new(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    /// Shows that there is one, not which: a hash of guessable content would give the content away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}
