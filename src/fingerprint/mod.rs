//! Fingerprints: what was asked, to catch one key used for two things.
//!
//! All are blake3, 256 bits, over a prefix of four bytes and then what is hashed:
//!
//! ```text
//! C1 DB | version (1) | domain (1) | bytes, parts or the canonical form of a value
//! ```
//!
//! Records outlive the build that wrote them, so what is hashed never changes under one version
//! (`docs/format.md`).

mod canonical;
mod serializer;

use canonical::Form;
use serde::Serialize;
use std::fmt;

/// The version of everything that is hashed here.
const VERSION: u8 = 1;

/// What a fingerprint is of. Each has a prefix of its own, so that none collides with another.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Domain {
    Bytes = 0,
    Parts = 1,
    Value = 2,
}

/// A 256-bit hash of what a claim is for.
///
/// It is set by the first claim of a key and never changed, and compared on every later claim, before waiting and
/// before replaying. No fingerprint matches only no fingerprint. Take it of everything that makes the request what
/// it is, and of nothing else: a time of sending or a trace id would make each retry another request.
///
/// ```
/// use claimdb::{Fingerprint, Outcome, Request, Store, backend::Mem};
/// #[derive(serde::Serialize)]
/// struct Order { article: String, cents: u64 }
///
/// let store = Store::builder(Mem::new()).open()?;
/// let order = Order { article: "tea".to_owned(), cents: 450 };
/// let request = Request::new("order-42").fingerprint(Fingerprint::of_value(&order)?);
/// assert!(store.run(request, |_| Ok::<_, std::io::Error>("receipt 7".to_owned())).is_ok());
///
/// let other = Order { cents: 4500, ..order };
/// let request = Request::new("order-42").fingerprint(Fingerprint::of_value(&other)?);
/// assert!(matches!(store.claim(request)?, Outcome::Mismatched(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint with these bytes, from a cryptographic hash of the caller's own.
    #[must_use]
    pub const fn new(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// The fingerprint of a string of bytes, such as a request's body as it came.
    #[must_use]
    pub fn of_bytes(bytes: impl AsRef<[u8]>) -> Self {
        let mut hasher = hasher(Domain::Bytes);
        hasher.update(bytes.as_ref());
        Self(hasher.finalize().into())
    }

    /// The fingerprint of several strings of bytes, such as a method, a path and a body. Each is hashed with its
    /// length, so `["ab", "c"]` and `["a", "bc"]` differ.
    #[must_use]
    pub fn of_parts(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let mut hasher = hasher(Domain::Parts);
        for part in parts {
            let part = part.as_ref();
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The fingerprint of what a value means: what it is as JSON, and not how it is laid out in Rust or in text.
    ///
    /// These have one fingerprint:
    ///
    /// - a struct, a map and a JSON object with the same names and values, in any order;
    /// - numbers of one value: `7_u8`, `7_i64` and `7.0`; `0.0` and `-0.0`; any two NaNs. (`0.1_f32` is another
    ///   number than `0.1_f64`);
    /// - lists, tuples, arrays and byte strings with the same items; a `char` and the string of it;
    /// - `None`, `()` and a JSON null, so also `Some(None)`; `Some(x)` and `x`; a newtype and what is in it;
    /// - an enum's variant and the JSON that serde makes of it, by default `"Name"` or `{"Name": ...}`.
    ///
    /// Everything else differs: text and bytes, `1` and `"1"` (as a map's key as well), a field that is null and one
    /// that is missing (`skip_serializing_if`), two spellings of a letter in Unicode. The names of types do not
    /// count, those of fields and variants do.
    ///
    /// Two things to know. To serde a `HashSet` is a list in whatever order it has, which changes from run to run:
    /// use a `BTreeSet`. And a new field changes the fingerprint, so a retry that meets a key claimed before the
    /// upgrade is told [`Mismatched`](crate::Outcome::Mismatched), unless the field is left out while it has its
    /// default.
    ///
    /// It takes memory for the value's canonical form, about that of its JSON.
    ///
    /// # Errors
    /// [`FingerprintError`] if a map has one key twice, if lists, maps, options and newtypes lie more than 256 deep in
    /// each other, or if the value's own `Serialize` fails.
    pub fn of_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, FingerprintError> {
        let mut form = Form::default();
        value.serialize(&mut form).map_err(|refused| FingerprintError {
            type_name: std::any::type_name::<T>(),
            reason: refused.reason,
        })?;
        let mut hasher = hasher(Domain::Value);
        hasher.update(form.bytes());
        Ok(Self(hasher.finalize().into()))
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

fn hasher(domain: Domain) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[0xC1, 0xDB, VERSION, domain as u8]);
    hasher
}

impl fmt::Debug for Fingerprint {
    /// Shows that there is one, not which: a hash of guessable content would give the content away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}

/// A value has no canonical form.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "a value of type {type_name} could not be fingerprinted: {reason}. Change the value, or take the fingerprint of \
     its bytes with Fingerprint::of_bytes"
)]
pub struct FingerprintError {
    type_name: &'static str,
    reason: String,
}
