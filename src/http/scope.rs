//! Who a key belongs to.

use crate::fingerprint::Fingerprint;
use http::request::Parts;
use std::fmt;
use std::sync::Arc;

/// What says who a request's key belongs to. Two callers that present one key never meet, unless they are one to the
/// scope.
///
/// There is no default: a scope that is too wide shows one caller another's responses.
#[derive(Clone)]
pub struct Scope(Kind);

#[derive(Clone)]
enum Kind {
    Global,
    By(Arc<Owner>),
}

type Owner = dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync;

impl Scope {
    /// Keys belong to whom `owner` names: the tenant, account or user that authentication found, and what else
    /// changes whose data a request is about, such as the active organisation. Any bytes; join several with their
    /// lengths, so that `ab`, `c` and `a`, `bc` differ.
    ///
    /// `None` says that nobody is known: a request with a key is refused with 403 then. For a service with anonymous
    /// callers that is a choice to be made: name them all alike, and they can meet each other's keys.
    #[must_use]
    pub fn by<O: Into<Vec<u8>>>(owner: impl Fn(&Parts) -> Option<O> + Send + Sync + 'static) -> Self {
        Self(Kind::By(Arc::new(move |parts| owner(parts).map(Into::into))))
    }

    /// All callers are one: whoever presents a key gets the response that is stored for it. Right only where there
    /// is one caller, or where keys come from a party that all trust, as those of one sender's webhooks.
    #[must_use]
    pub fn global() -> Self {
        Self(Kind::Global)
    }

    /// The scope of the store in which the request's key lies; `None` if nobody is known.
    ///
    /// ```text
    /// "http" | 0                     global
    /// "http" | 1 | owner             at most 250 bytes of it
    /// "http" | 2 | fingerprint (32)  of a longer one
    /// ```
    pub(super) fn of(&self, parts: &Parts) -> Option<Vec<u8>> {
        const LONGEST: usize = 250;
        Some(match &self.0 {
            Kind::Global => b"http\0".to_vec(),
            Kind::By(owner) => match owner(parts)? {
                owner if owner.len() <= LONGEST => [b"http\x01", &owner[..]].concat(),
                owner => [b"http\x02", &Fingerprint::of_bytes(owner).as_bytes()[..]].concat(),
            },
        })
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Global => "Scope::global",
            Kind::By(_) => "Scope::by",
        })
    }
}
