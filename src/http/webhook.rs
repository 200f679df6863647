//! Keys of webhooks.
//!
//! Senders deliver an event again until it is acknowledged, under the same id. The id says nothing of who sent it:
//! verify the signature first, in a layer outside this one, else anybody can take an id before its event comes.

use super::key::{Found, KeySource, UnusableKey, one_header};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName};

impl KeySource {
    /// [Standard Webhooks](https://www.standardwebhooks.com): the message's id in `webhook-id`.
    #[must_use]
    pub fn standard_webhooks() -> Self {
        Self::from_fn(headers(["webhook-id"]))
    }

    /// GitHub: the delivery's GUID in `X-GitHub-Delivery`, with the hook's id in `X-GitHub-Hook-ID`. A redelivery
    /// has the GUID of the delivery that it repeats.
    #[must_use]
    pub fn github() -> Self {
        Self::from_fn(headers(["x-github-hook-id", "x-github-delivery"]))
    }

    /// CloudEvents in binary mode: `ce-source` and `ce-id`, which together name an event.
    ///
    /// An event in structured mode, and a batch of events, is refused with 400.
    #[must_use]
    pub fn cloud_events() -> Self {
        let of_headers = headers(["ce-source", "ce-id"]);
        Self::from_fn(move |request| match event_format(&request.headers)? {
            None => of_headers(request),
            Some(_) => Err(UnusableKey("the event is in structured mode, which is not taken here")),
        })
    }

    /// CloudEvents in structured mode as JSON (`application/cloudevents+json`): `source` and `id` of the body. Events
    /// in binary mode as [`cloud_events`](Self::cloud_events).
    ///
    /// Both are text that is not empty, and each is there once; an event of which that is not true is refused with
    /// 400. So are batches, and formats other than JSON. Nothing else of the event is looked at. Bodies are held in
    /// memory as [`from_body`](Self::from_body) says.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn cloud_events_json() -> Self {
        let of_headers = headers(["ce-source", "ce-id"]);
        Self::from_body(move |request, body| match event_format(&request.headers)?.as_deref() {
            None => of_headers(request),
            Some("application/cloudevents+json") => of_json(body),
            Some(_) => Err(UnusableKey("only single events as JSON are taken in structured mode")),
        })
    }
}

/// The media type of an event in structured mode, or of a batch of events; `None` if it is in binary mode.
fn event_format(headers: &HeaderMap) -> Result<Option<String>, UnusableKey> {
    let Some(value) = one_header(headers, &CONTENT_TYPE)? else { return Ok(None) };
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let essence = String::from_utf8_lossy(essence.trim_ascii()).to_ascii_lowercase();
    Ok(Some(essence).filter(|essence| essence.starts_with("application/cloudevents")))
}

#[cfg(feature = "json")]
fn of_json(body: &[u8]) -> Found {
    // A name that is there twice is refused: readers differ in which one they take.
    #[derive(serde::Deserialize)]
    struct Event {
        source: String,
        id: String,
    }
    // Without this a list of two texts would be an event as well.
    let object = body.trim_ascii_start().starts_with(b"{");
    match serde_json::from_slice(body) {
        Ok(Event { source, id }) if object && !source.is_empty() && !id.is_empty() => {
            Ok(Some(vec![source.into_bytes(), id.into_bytes()]))
        }
        _ => {
            Err(UnusableKey("the body is no JSON object with one source and one id, both text and not empty"))
        }
    }
}

/// The values of all `names`, each of which is there once; no key if none is there at all.
fn headers<const N: usize>(names: [&'static str; N]) -> impl Fn(&Parts) -> Found {
    let names = names.map(HeaderName::from_static);
    move |request| {
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
    }
}
