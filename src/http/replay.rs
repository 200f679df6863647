//! Responses as they are stored.
//!
//! ```text
//! version (1): 1 | bincode of `StoredV1`, in the configuration of all values (`docs/format.md`)
//! ```
//!
//! It outlives the build: `StoredV1` is frozen, and every version is read for ever.

use super::body::{Body, Whole};
use crate::value;
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;

const VERSION: u8 = 1;

/// What is stored for a request that was answered.
#[derive(Clone, PartialEq, Eq)]
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

#[derive(Serialize, Deserialize)]
enum StoredV1 {
    Whole { status: u16, headers: Vec<(ByteBuf, ByteBuf)>, body: ByteBuf, trailers: Vec<(ByteBuf, ByteBuf)> },
    Omitted { status: u16 },
}

impl StoredResponse {
    /// What to store of a response: its headers without those `not_stored`, nor those that concern one connection.
    pub(super) fn of(parts: &Parts, body: Whole, not_stored: &BTreeSet<String>) -> Self {
        let connection = per_connection(&parts.headers);
        // Without a capacity: one that counts the values of a name apart can be more than a map takes.
        let mut headers = HeaderMap::new();
        for (name, value) in &parts.headers {
            if !not_stored.contains(name.as_str()) && !connection.contains(name) {
                headers.append(name, value.clone());
            }
        }
        Self::Whole { status: parts.status, headers, body }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let stored = match self {
            Self::Omitted { status } => StoredV1::Omitted { status: status.as_u16() },
            Self::Whole { status, headers, body } => StoredV1::Whole {
                status: status.as_u16(),
                headers: pairs(headers),
                body: ByteBuf::from(body.data.to_vec()),
                trailers: body.trailers.as_ref().map(pairs).unwrap_or_default(),
            },
        };
        let mut bytes = vec![VERSION];
        bytes.extend(value::encode(&stored).expect("byte strings and numbers can be encoded"));
        bytes
    }

    /// `None` if the bytes are of a later version, or none of these.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        if version != VERSION {
            return None;
        }
        Some(match value::decode::<StoredV1>(rest).ok()? {
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

fn pairs(headers: &HeaderMap) -> Vec<(ByteBuf, ByteBuf)> {
    let bytes = |bytes: &[u8]| ByteBuf::from(bytes.to_vec());
    headers.iter().map(|(name, value)| (bytes(name.as_str().as_bytes()), bytes(value.as_bytes()))).collect()
}

fn map(pairs: Vec<(ByteBuf, ByteBuf)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let (name, value) = (HeaderName::from_bytes(&name).ok()?, HeaderValue::from_bytes(&value).ok()?);
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}
