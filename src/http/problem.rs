//! Refusals: RFC 9457 problem details, or the form of gRPC.
//!
//! They are made of fixed text and numbers alone, so that none can show another request's data, or a key. Some of the text
//! is the user's ([`UnusableKey`](super::UnusableKey)), and may be of any characters.

use super::body::Body;
use super::grpc;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use std::fmt;
use std::time::Duration;

/// Why a request was refused, in a word that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemCode {
    /// 400: the request needs a key and has none.
    KeyMissing,
    /// 400: its key is none, or it has several.
    KeyInvalid,
    /// 400: its body ended before its end.
    BodyUnreadable,
    /// 403: it has a key, and nobody is known whom the key could belong to.
    OwnerUnknown,
    /// 409: the first request of this key is being worked on. Try again.
    InProgress,
    /// 409: an earlier attempt ended without telling how far it came, and nobody may run it again unasked.
    Interrupted,
    /// 409: it was done before, and its response is not kept.
    ResponseOmitted,
    /// 409: it took longer than it may, and another attempt took its place.
    LeaseLost,
    /// 413: its body is longer than a request with a key may be.
    BodyTooLarge,
    /// 422: its key was used for another request. Use a new key.
    KeyReused,
    /// 503: what was done before cannot be looked up now. Nothing ran. Try again.
    StoreUnavailable,
    /// 503: it ran, and its response could not be stored. Trying again may be told so, or run it again.
    OutcomeUnknown,
    /// 503: too many requests with keys are being worked on. Nothing ran. Try again.
    Overloaded,
}

impl ProblemCode {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::BodyUnreadable,
        Self::OwnerUnknown,
        Self::InProgress,
        Self::Interrupted,
        Self::ResponseOmitted,
        Self::LeaseLost,
        Self::BodyTooLarge,
        Self::KeyReused,
        Self::StoreUnavailable,
        Self::OutcomeUnknown,
        Self::Overloaded,
    ];

    /// The word, as it stands in `code`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The status of the refusal.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.row().1
    }

    /// The code in `grpc-status` of the refusal of a gRPC request.
    #[must_use]
    pub fn grpc_status(self) -> u8 {
        match self {
            Self::KeyMissing | Self::KeyInvalid | Self::BodyUnreadable => 3, // invalid argument
            Self::ResponseOmitted => 6,                                      // already exists
            Self::OwnerUnknown => 7,                                         // permission denied
            Self::BodyTooLarge => 8,                                         // resource exhausted
            Self::Interrupted | Self::KeyReused => 9,                        // failed precondition
            Self::InProgress | Self::LeaseLost => 10,                        // aborted
            Self::OutcomeUnknown => 2,                                       // unknown
            Self::StoreUnavailable | Self::Overloaded => 14,                 // unavailable
        }
    }

    fn title(self) -> &'static str {
        self.row().2
    }

    fn detail(self) -> &'static str {
        self.row().3
    }

    fn row(self) -> (&'static str, StatusCode, &'static str, &'static str) {
        match self {
            Self::KeyMissing => (
                "key-missing",
                StatusCode::BAD_REQUEST,
                "The idempotency key is missing",
                "This operation needs an idempotency key. Make one for each operation, and send it with every retry",
            ),
            Self::KeyInvalid => (
                "key-invalid",
                StatusCode::BAD_REQUEST,
                "The idempotency key is invalid",
                "Send one key of 1 to 255 visible ASCII characters",
            ),
            Self::BodyUnreadable => (
                "body-unreadable",
                StatusCode::BAD_REQUEST,
                "The request ended early",
                "The body could not be read to its end. Nothing was done",
            ),
            Self::OwnerUnknown => (
                "owner-unknown",
                StatusCode::FORBIDDEN,
                "The caller is not known",
                "An idempotency key belongs to a caller. Authenticate, or leave the key out",
            ),
            Self::InProgress => (
                "in-progress",
                StatusCode::CONFLICT,
                "The request is being worked on",
                "A request with this idempotency key is in progress. Try again later with the same key",
            ),
            Self::Interrupted => (
                "interrupted",
                StatusCode::CONFLICT,
                "The request was interrupted",
                "An earlier attempt ended without an outcome and may have taken effect. Somebody has to look at it",
            ),
            Self::ResponseOmitted => (
                "response-omitted",
                StatusCode::CONFLICT,
                "The request was done before",
                "A request with this idempotency key was done, and its response is not kept. It was not run again",
            ),
            Self::LeaseLost => (
                "lease-lost",
                StatusCode::CONFLICT,
                "Another attempt took over",
                "The request took longer than it may, and another attempt took its place. Try again with the same key",
            ),
            Self::BodyTooLarge => (
                "body-too-large",
                StatusCode::PAYLOAD_TOO_LARGE,
                "The request is too large",
                "A request with an idempotency key may not be this large. Nothing was done",
            ),
            Self::KeyReused => (
                "key-reused",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The idempotency key was used for another request",
                "A request with this idempotency key and other content was sent before. Use a new key",
            ),
            Self::StoreUnavailable => (
                "store-unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "Idempotency cannot be checked",
                "Whether this request was done before cannot be told now. Nothing was done. Try again with the same key",
            ),
            Self::OutcomeUnknown => (
                "outcome-unknown",
                StatusCode::SERVICE_UNAVAILABLE,
                "The outcome is not recorded",
                "The request was worked on and its outcome could not be recorded. It may have taken effect",
            ),
            Self::Overloaded => (
                "overloaded",
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many requests are being worked on",
                "Nothing was done. Try again with the same key",
            ),
        }
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Carries the code of a refused gRPC request, beside `grpc-status`.
const GRPC_CODE: HeaderName = HeaderName::from_static("idempotency-problem");

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Problem {
    code: ProblemCode,
    because: Option<&'static str>,
    retry_after: Option<Duration>,
    original: Option<StatusCode>,
}

impl Problem {
    pub(super) fn new(code: ProblemCode) -> Self {
        Self { code, because: None, retry_after: None, original: None }
    }

    /// The store cannot be asked.
    pub(super) fn unavailable() -> Self {
        Self::new(ProblemCode::StoreUnavailable).retry_after(Duration::from_secs(1))
    }

    pub(super) fn because(self, because: &'static str) -> Self {
        Self { because: Some(because), ..self }
    }

    pub(super) fn retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    pub(super) fn original(self, original: Option<StatusCode>) -> Self {
        Self { original, ..self }
    }

    pub(super) fn code(&self) -> ProblemCode {
        self.code
    }

    /// The response that tells of it, in the form that the caller reads. `types` is what the `type` of a problem
    /// begins with.
    pub(super) fn response<B: http_body::Body>(&self, grpc: bool, types: &str) -> Response<Body<B>> {
        let mut response = if grpc {
            self.grpc_response()
        } else {
            let mut response = Response::new(Body::of_bytes(self.json(types)));
            *response.status_mut() = self.code.status();
            let json = HeaderValue::from_static("application/problem+json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        };
        if let Some(retry_after) = self.retry_after {
            // Whole seconds, never early, and never none.
            let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        response
    }

    fn json(&self, types: &str) -> Bytes {
        let (code, title, detail) = (self.code.as_str(), self.code.title(), self.code.detail());
        let because = self.because.map(|because| format!(": {}", escaped(because))).unwrap_or_default();
        let original = self.original.map(|status| format!(r#","original_status":{}"#, status.as_u16()));
        let (status, original) = (self.code.status().as_u16(), original.unwrap_or_default());
        format!(
            r#"{{"type":"{types}{code}","title":"{title}","status":{status},"detail":"{detail}{because}.","code":"{code}"{original}}}"#
        )
        .into()
    }

    /// Trailers-only: the status is in the headers, and there is no body.
    fn grpc_response<B: http_body::Body>(&self) -> Response<Body<B>> {
        let because = self.because.map(|because| format!(": {because}")).unwrap_or_default();
        let message = format!("{}{because}.", self.code.detail());
        let mut response = Response::new(Body::default());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(grpc::STATUS, u16::from(self.code.grpc_status()).into());
        let message = HeaderValue::try_from(grpc::encoded(&message));
        headers.insert(grpc::MESSAGE, message.expect("what is encoded is visible ASCII and blanks"));
        headers.insert(GRPC_CODE, HeaderValue::from_static(self.code.as_str()));
        response
    }
}

/// The inside of a JSON string.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            control if control < ' ' => escaped.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => escaped.push(other),
        }
    }
    escaped
}
