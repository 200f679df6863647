//! Keys of webhooks.
//!
//! Senders deliver an event again until it is acknowledged, under the same id. The id says nothing of who sent it:
//! verify the signature first, in a layer outside this one, else anybody can take an id before its event comes.

use super::key::{KeySource, UnusableKey, one_header};
use http::HeaderName;
use http::request::Parts;

impl KeySource {
    /// [Standard Webhooks](https://www.standardwebhooks.com): the message's id in `webhook-id`.
    #[must_use]
    pub fn standard_webhooks() -> Self {
        of_headers(["webhook-id"])
    }

    /// GitHub: the delivery's GUID in `X-GitHub-Delivery`, with the hook's id in `X-GitHub-Hook-ID`. A redelivery
    /// has the GUID of the delivery that it repeats.
    #[must_use]
    pub fn github() -> Self {
        of_headers(["x-github-hook-id", "x-github-delivery"])
    }

    /// CloudEvents in binary mode: `ce-source` and `ce-id`, which together name an event.
    #[must_use]
    pub fn cloud_events() -> Self {
        of_headers(["ce-source", "ce-id"])
    }
}

/// The values of all `names`, each of which is there once; no key if none is there at all.
fn of_headers<const N: usize>(names: [&'static str; N]) -> KeySource {
    let names = names.map(HeaderName::from_static);
    KeySource::from_fn(move |request: &Parts| {
        let mut key = Vec::with_capacity(N);
        for name in &names {
            if let Some(value) = one_header(&request.headers, name)? {
                let value = value.as_bytes().trim_ascii();
                if value.is_empty() {
                    return Err(UnusableKey("a header that names the event is empty"));
                }
                key.push(value.to_vec());
            }
        }
        match key.len() {
            0 => Ok(None),
            length if length == N => Ok(Some(key)),
            _ => Err(UnusableKey("one of the headers that name the event is missing")),
        }
    })
}
