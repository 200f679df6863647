//! What of gRPC the layer has to know: who speaks it, and where its status is.

use super::handle::Disposition;
use http::{HeaderMap, HeaderName, header};

pub(super) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether a request is a gRPC call. gRPC-Web, whose trailers are in the body, is not one.
pub(super) fn is_call(headers: &HeaderMap) -> bool {
    let rest = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("application/grpc"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// A message as it stands in `grpc-message`: percent-encoded where it is not visible ASCII or a blank.
pub(super) fn encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' => encoded.push_str("%25"),
            b' '..=b'~' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// What is done with a response that carries a status among `headers`, or among its trailers; `None` if it is not
/// there.
///
/// What a retry would be told again is stored: OK, invalid argument, not found, already exists, failed precondition
/// and out of range. Everything else can be another time another way.
pub(super) fn outcome(headers: &HeaderMap) -> Option<Disposition> {
    let status = headers.get(STATUS)?;
    Some(match status.as_bytes() {
        b"0" | b"3" | b"5" | b"6" | b"9" | b"11" => Disposition::Store,
        _ => Disposition::Release,
    })
}
