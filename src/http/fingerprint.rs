//! What a request asks for, to catch one key used for two requests.

use crate::error::InvalidSetting;
use crate::fingerprint::Fingerprint;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use std::fmt;
use std::sync::Arc;

/// What of a request is compared with the first one of its key. Method and path need not be: they are part of the
/// key's name.
#[derive(Clone)]
pub struct FingerprintBy(pub(super) Result<Kind, InvalidSetting>);

#[derive(Clone)]
pub(super) enum Kind {
    Whole,
    Off,
    Function(&'static str, Arc<Function>),
}

type Function = dyn Fn(&Parts, &Bytes) -> Fingerprint + Send + Sync;

impl FingerprintBy {
    /// Query, content type and body, byte by byte. The default.
    ///
    /// A retry has to repeat them exactly. `multipart/form-data` with a new boundary each time does not, nor does
    /// JSON that is written anew by a library that does not keep the order of names.
    #[must_use]
    pub fn whole() -> Self {
        Self(Ok(Kind::Whole))
    }

    /// Nothing: one key used for two requests is not found, and the second one is told of the first one's response.
    #[must_use]
    pub fn off() -> Self {
        Self(Ok(Kind::Off))
    }

    /// What `function` makes of the request and its body. [`Fingerprint::of_parts`] keeps several things apart.
    #[must_use]
    pub fn from_fn(function: impl Fn(&Parts, &Bytes) -> Fingerprint + Send + Sync + 'static) -> Self {
        Self::named("FingerprintBy::from_fn", function)
    }

    pub(super) fn named(
        name: &'static str,
        function: impl Fn(&Parts, &Bytes) -> Fingerprint + Send + Sync + 'static,
    ) -> Self {
        Self(Ok(Kind::Function(name, Arc::new(function))))
    }

    /// Refuses what makes no layer.
    pub(super) fn check(&self) -> Result<(), InvalidSetting> {
        self.0.as_ref().map(drop).map_err(InvalidSetting::clone)
    }

    pub(super) fn of(&self, request: &Parts, body: &Bytes) -> Option<Fingerprint> {
        match &self.0 {
            Ok(Kind::Off) => None,
            Ok(Kind::Function(_, function)) => Some(function(request, body)),
            // No layer is made of what is refused.
            Ok(Kind::Whole) | Err(_) => Some(of_whole(request, body)),
        }
    }
}

pub(super) fn of_whole(request: &Parts, body: &Bytes) -> Fingerprint {
    let types = || request.headers.get_all(CONTENT_TYPE).iter().map(|value| value.as_bytes());
    // A request without a type is one whose type is empty.
    let none = types().next().is_none().then_some(&b""[..]);
    let head = [&b"whole"[..], query(request)].into_iter();
    Fingerprint::of_parts(head.chain(types()).chain(none).chain([&body[..]]))
}

pub(super) fn query(request: &Parts) -> &[u8] {
    request.uri.query().unwrap_or_default().as_bytes()
}

impl fmt::Debug for FingerprintBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Ok(Kind::Whole) => "FingerprintBy::whole",
            Ok(Kind::Off) => "FingerprintBy::off",
            Ok(Kind::Function(name, _)) => name,
            Err(setting) => setting.setting,
        })
    }
}
