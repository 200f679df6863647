//! What a request's work is called.
//!
//! ```text
//! 1 | method, path, parts of the key: each its length (u16, little endian) and its bytes
//! 2 | fingerprint (32) of those parts, if they take more than a key may have
//! ```
//!
//! It outlives the process: other bytes for the same request need another first byte.

use super::problem::{Problem, ProblemCode};
use crate::fingerprint::Fingerprint;
use crate::key::{Key, MAX_NAME};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::sync::Arc;

/// The longest key that a header may carry, in characters.
pub const MAX_KEY: usize = 255;

/// Where a request's key comes from.
#[derive(Clone)]
pub struct KeySource(pub(super) Kind);

#[derive(Clone)]
pub(super) enum Kind {
    Header(HeaderName),
    Function(Arc<Function>),
    Body(Arc<OfBody>),
}

type Function = dyn Fn(&Parts) -> Found + Send + Sync;
type OfBody = dyn Fn(&Parts, &Bytes) -> Found + Send + Sync;
/// The parts of a key, or that there is none.
pub(super) type Found = Result<Option<Vec<Vec<u8>>>, UnusableKey>;

/// A request has a key that cannot be used, and why, in a text that its client is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableKey(pub &'static str);

/// The key that a request presents.
pub(super) struct Presented {
    parts: Vec<Vec<u8>>,
    /// The header, as it came.
    pub(super) header: Option<HeaderValue>,
}

/// What the head of a request tells of its key.
pub(super) enum Asked {
    Nothing,
    Key(Presented),
    /// It is in the body.
    InBody,
}

/// What is asked of keys in a header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) strict: bool,
    pub(super) at_least: usize,
}

impl KeySource {
    /// The header `name`. It holds one key of 1 to [`MAX_KEY`] visible ASCII characters: a structured-field string
    /// in double quotes, or the bare characters, which must not be a comma then. `"k-1"` and `k-1` are one key.
    #[must_use]
    pub fn header(name: HeaderName) -> Self {
        Self(Kind::Header(name))
    }

    /// What `key` finds in a request: the parts of its key, which are joined so that no two lists are one, or `None`
    /// if it has none. A request whose key is unusable is refused with 400, and so is one whose parts are all empty.
    ///
    /// ```
    /// use claimdb::http::{KeySource, UnusableKey};
    /// let keys = KeySource::from_fn(|request| match request.headers.get("x-event-id") {
    ///     Some(id) if id.is_empty() => Err(UnusableKey("the event has no id")),
    ///     id => Ok(id.map(|id| vec![id.as_bytes().to_vec()])),
    /// });
    /// ```
    #[must_use]
    pub fn from_fn(
        key: impl Fn(&Parts) -> Result<Option<Vec<Vec<u8>>>, UnusableKey> + Send + Sync + 'static,
    ) -> Self {
        Self(Kind::Function(Arc::new(key)))
    }

    /// [`from_fn`](Self::from_fn) for keys that are in the body.
    ///
    /// The body of each request of the layer's methods is held in memory then, and refused with 413 if it is above
    /// [`request_limit`](super::Builder::request_limit), whether or not it turns out to have a key.
    #[must_use]
    pub fn from_body(
        key: impl Fn(&Parts, &Bytes) -> Result<Option<Vec<Vec<u8>>>, UnusableKey> + Send + Sync + 'static,
    ) -> Self {
        Self(Kind::Body(Arc::new(key)))
    }

    pub(super) fn of_head(&self, request: &Parts, form: Form) -> Result<Asked, Problem> {
        let found = match &self.0 {
            Kind::Header(name) => one_header(&request.headers, name).and_then(|header| {
                let Some(header) = header else { return Ok(None) };
                let parts = vec![parse(header.as_bytes(), form)?];
                Ok(Some(Presented { parts, header: Some(header.clone()) }))
            }),
            Kind::Function(key) => key(request).and_then(of_parts),
            Kind::Body(_) => return Ok(Asked::InBody),
        };
        Ok(found.map_err(refused)?.map_or(Asked::Nothing, Asked::Key))
    }

    pub(super) fn of_body(&self, request: &Parts, body: &Bytes) -> Result<Option<Presented>, Problem> {
        match &self.0 {
            Kind::Body(key) => key(request, body).and_then(of_parts).map_err(refused),
            Kind::Header(_) | Kind::Function(_) => Ok(None),
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Header(name) => f.debug_tuple("KeySource::header").field(name).finish(),
            Kind::Function(_) => f.write_str("KeySource::from_fn"),
            Kind::Body(_) => f.write_str("KeySource::from_body"),
        }
    }
}

fn of_parts(parts: Option<Vec<Vec<u8>>>) -> Result<Option<Presented>, UnusableKey> {
    let Some(parts) = parts else { return Ok(None) };
    // It would be one key of all requests that have nothing where the function looks.
    if parts.iter().all(Vec::is_empty) {
        return Err(UnusableKey("it is empty"));
    }
    Ok(Some(Presented { parts, header: None }))
}

fn refused(unusable: UnusableKey) -> Problem {
    Problem::new(ProblemCode::KeyInvalid).because(unusable.0)
}

/// The only value of a header; `None` if there is none.
pub(super) fn one_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, UnusableKey> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    match values.next() {
        None => Ok(first),
        Some(_) => Err(UnusableKey("the header is there more than once")),
    }
}

/// The key in a header's value.
fn parse(value: &[u8], form: Form) -> Result<Vec<u8>, UnusableKey> {
    let value = value.trim_ascii();
    let key = match value.strip_prefix(b"\"") {
        Some(quoted) => unquote(quoted)?,
        None if form.strict => return Err(UnusableKey("it is not a string in double quotes")),
        None if value.contains(&b',') => {
            return Err(UnusableKey("it has a comma outside double quotes, as a list of keys would"));
        }
        None => value.to_vec(),
    };
    if !key.iter().all(u8::is_ascii_graphic) {
        return Err(UnusableKey("it has characters other than visible ASCII ones"));
    }
    match key.len() {
        0 => Err(UnusableKey("it is empty")),
        length if length > MAX_KEY => Err(UnusableKey("it has more than 255 characters")),
        length if length < form.at_least => Err(UnusableKey("it is too short to be unique")),
        _ => Ok(key),
    }
}

/// The content of a structured-field string (RFC 9651, 3.3.3), from behind its first quote.
fn unquote(quoted: &[u8]) -> Result<Vec<u8>, UnusableKey> {
    let (mut key, mut rest) = (Vec::with_capacity(quoted.len()), quoted.iter());
    while let Some(&byte) = rest.next() {
        match byte {
            b'"' if rest.as_slice().is_empty() => return Ok(key),
            b'"' => return Err(UnusableKey("something follows its closing quote")),
            b'\\' => match rest.next() {
                Some(&escaped @ (b'"' | b'\\')) => key.push(escaped),
                _ => return Err(UnusableKey("it has a backslash that escapes no quote or backslash")),
            },
            byte => key.push(byte),
        }
    }
    Err(UnusableKey("its closing quote is missing"))
}

impl Presented {
    /// The store's key for this request.
    pub(super) fn name(&self, scope: &[u8], request: &Parts) -> Key {
        let head = [request.method.as_str().as_bytes(), original_path(request).as_bytes()];
        let parts = || head.into_iter().chain(self.parts.iter().map(Vec::as_slice));
        let mut name = Vec::with_capacity(1 + parts().map(|part| 2 + part.len()).sum::<usize>());
        name.push(1);
        for part in parts() {
            // A part that is longer makes the whole longer than a key may be.
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            name.extend_from_slice(&length.to_le_bytes());
            name.extend_from_slice(part);
        }
        if name.len() > MAX_NAME {
            name = vec![2];
            name.extend_from_slice(Fingerprint::of_parts(parts()).as_bytes());
        }
        Key::scoped(scope, &name).expect("Scope::of and the line above keep both within bounds")
    }
}

/// The path as the client sent it: axum's nesting takes the front of it away.
fn original_path(request: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(original) = request.extensions.get::<::axum::extract::OriginalUri>() {
        return original.0.path();
    }
    request.uri.path()
}
