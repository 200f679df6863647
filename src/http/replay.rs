//! Responses as they are stored.
//!
//! ```text
//! version (1): 1 | bincode of `StoredV1`, in the configuration of all values (`docs/format.md`)
//! ```
//!
//! It outlives the build: `StoredV1` is frozen, and every version is read for ever.

use super::body::{Body, Whole};
use crate::value::{self, AT_FIRST};
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes as Borrowed};
use std::collections::BTreeSet;

const VERSION: u8 = 1;

/// What is stored for a request that was answered, as it is read.
#[allow(clippy::large_enum_variant)] // there is one at a time, and it is short-lived
pub(super) enum StoredResponse {
    Whole {
        status: StatusCode,
        headers: HeaderMap,
        body: Whole,
    },
    /// It was answered, and its response is not kept.
    Omitted {
        status: StatusCode,
    },
}

/// With `B` as what holds bytes: borrowed to be written, owned when read.
#[derive(Serialize, Deserialize)]
enum StoredV1<B> {
    Whole { status: u16, headers: Vec<(B, B)>, body: B, trailers: Vec<(B, B)> },
    Omitted { status: u16 },
}

/// What to store of a response: its headers without those `not_stored`, nor those that concern one connection.
pub(super) fn whole(parts: &Parts, body: &Whole, not_stored: &BTreeSet<String>) -> Vec<u8> {
    let connection = per_connection(&parts.headers);
    let kept = |(name, _): &(&HeaderName, &HeaderValue)| {
        !not_stored.contains(name.as_str()) && !connection.contains(name)
    };
    encode(&StoredV1::Whole {
        status: parts.status.as_u16(),
        headers: pairs(parts.headers.iter().filter(kept)),
        body: Borrowed::new(&body.data),
        trailers: pairs(body.trailers.iter().flatten()),
    })
}

/// What to store of a response that is not kept.
pub(super) fn omitted(status: StatusCode) -> Vec<u8> {
    encode(&StoredV1::Omitted { status: status.as_u16() })
}

fn encode(stored: &StoredV1<&Borrowed>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(AT_FIRST);
    bytes.push(VERSION);
    value::encode_behind(&mut bytes, stored).expect("byte strings and numbers can be encoded");
    bytes
}

impl StoredResponse {
    /// `None` if the bytes are of a later version, or none of these.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        if version != VERSION {
            return None;
        }
        Some(match value::decode::<StoredV1<ByteBuf>>(rest).ok()? {
            StoredV1::Omitted { status } => Self::Omitted { status: StatusCode::from_u16(status).ok()? },
            StoredV1::Whole { status, headers, body, trailers } => Self::Whole {
                status: StatusCode::from_u16(status).ok()?,
                headers: map(headers)?,
                body: Whole {
                    data: Bytes::from(body.into_vec()),
                    trailers: if trailers.is_empty() { None } else { Some(map(trailers)?) },
                },
            },
        })
    }
}

/// A stored response as it was given the first time.
pub(super) fn response<B: http_body::Body>(
    status: StatusCode,
    headers: HeaderMap,
    body: Whole,
) -> Response<Body<B>> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Headers that are not stored unless the layer is told otherwise: those of one connection, of one caller's
/// authentication, and of the one response that carried them.
pub(super) const NOT_STORED: [&str; 32] = [
    "authentication-info",
    "authorization",
    "connection",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "ratelimit",
    "ratelimit-limit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "request-id",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
    "x-amzn-trace-id",
    "x-correlation-id",
    "x-csrf-token",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-request-id",
    "x-xsrf-token",
];

/// The headers that the `Connection` header names (RFC 9110, 7.6.1).
fn per_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

fn pairs<'a>(
    headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
) -> Vec<(&'a Borrowed, &'a Borrowed)> {
    let pair = |(name, value): (&'a HeaderName, &'a HeaderValue)| {
        (Borrowed::new(name.as_str().as_bytes()), Borrowed::new(value.as_bytes()))
    };
    headers.map(pair).collect()
}

fn map(pairs: Vec<(ByteBuf, ByteBuf)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let (name, value) = (HeaderName::from_bytes(&name).ok()?, HeaderValue::from_bytes(&value).ok()?);
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}
