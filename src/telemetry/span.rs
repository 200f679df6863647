//! What the store is at, as spans; nothing at all without the feature `tracing`.

use super::Telemetry;
use crate::key::KeyLabel;
use crate::sync::note;
use crate::token::Token;
use std::fmt::Display;
use std::future::Future;

/// A piece of the store's work. Fields that are known at its end are recorded then.
#[derive(Debug)]
pub(crate) struct Span(#[cfg(feature = "tracing")] tracing::Span);

#[cfg(not(feature = "tracing"))]
#[allow(clippy::unused_self, unused_variables)]
impl Span {
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn opening(store: &str) -> Self {
        note("opens the store", "");
        Self()
    }

    pub(crate) fn around<F: Future>(&self, steps: F) -> F {
        steps
    }

    pub(crate) fn within<T>(&self, step: impl FnOnce() -> T) -> T {
        step()
    }

    pub(crate) fn state(&self, state: &'static str, attempt: Option<u32>) {
        note("is told", state);
    }

    pub(crate) fn error(&self, error: &dyn Display) {}

    pub(crate) fn count(&self, field: &'static str, count: usize) {}
}

#[cfg(not(feature = "tracing"))]
#[allow(clippy::unused_self, unused_variables)]
impl Telemetry {
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn claim_span(&self, key: impl FnOnce() -> Option<KeyLabel>) -> Span {
        note("claims", "");
        Span()
    }

    pub(crate) fn claims_span(&self, keys: usize) -> Span {
        Span()
    }

    pub(crate) fn settle_span(
        &self,
        key: impl FnOnce() -> KeyLabel,
        token: Token,
        attempt: u32,
        doing: &'static str,
    ) -> Span {
        Span()
    }

    pub(crate) fn settles_span(&self, keys: usize) -> Span {
        Span()
    }

    pub(crate) fn sync_span(&self, writes: u64) -> Span {
        Span()
    }

    pub(crate) fn sweep_span(&self) -> Span {
        Span()
    }
}

#[cfg(feature = "tracing")]
use super::TARGET;
#[cfg(feature = "tracing")]
use tracing::field::{Empty, display};
#[cfg(feature = "tracing")]
use tracing::{Instrument as _, debug_span, info_span};

#[cfg(feature = "tracing")]
impl Span {
    /// An opening, of a store that is to be called `store`.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn opening(store: &str) -> Self {
        note("opens the store", "");
        Self(info_span!(target: TARGET, "open", store, error = Empty))
    }

    /// Takes `steps` within it, whenever they are polled.
    pub(crate) fn around<F: Future>(&self, steps: F) -> impl Future<Output = F::Output> + use<F> {
        steps.instrument(self.0.clone())
    }

    pub(crate) fn within<T>(&self, step: impl FnOnce() -> T) -> T {
        self.0.in_scope(step)
    }

    /// What has become of it.
    pub(crate) fn state(&self, state: &'static str, attempt: Option<u32>) {
        note("is told", state);
        self.0.record("state", state);
        if let Some(attempt) = attempt {
            self.0.record("attempt", attempt);
        }
    }

    pub(crate) fn error(&self, error: &dyn Display) {
        self.0.record("error", display(error));
    }

    pub(crate) fn count(&self, field: &'static str, count: usize) {
        self.0.record(field, count);
    }
}

// Not one is above debug: of a busy store there are many thousands a second, and that somebody lost a claim is no news.
#[cfg(feature = "tracing")]
impl Telemetry {
    /// A claim of one key.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn claim_span(&self, key: impl FnOnce() -> Option<KeyLabel>) -> Span {
        note("claims", "");
        Span(debug_span!(
            target: TARGET, "claim", store = &*self.store, key = key().map(display),
            state = Empty, attempt = Empty, error = Empty
        ))
    }

    /// A claim of many keys.
    pub(crate) fn claims_span(&self, keys: usize) -> Span {
        Span(debug_span!(target: TARGET, "claim", store = &*self.store, keys, granted = Empty))
    }

    /// A settle of one claim.
    pub(crate) fn settle_span(
        &self,
        key: impl FnOnce() -> KeyLabel,
        token: Token,
        attempt: u32,
        doing: &'static str,
    ) -> Span {
        Span(debug_span!(
            target: TARGET, "settle", store = &*self.store, key = display(key()), token = token.get(), attempt, doing,
            state = Empty, error = Empty
        ))
    }

    /// A settle of many claims.
    pub(crate) fn settles_span(&self, keys: usize) -> Span {
        Span(debug_span!(target: TARGET, "settle", store = &*self.store, keys, settled = Empty))
    }

    /// A sync that will cover so many writes.
    pub(crate) fn sync_span(&self, writes: u64) -> Span {
        Span(debug_span!(target: TARGET, "sync", store = &*self.store, writes, error = Empty))
    }

    /// A step of a sweep.
    pub(crate) fn sweep_span(&self) -> Span {
        Span(debug_span!(
            target: TARGET, "sweep", store = &*self.store, deleted = Empty, kept = Empty, dropped = Empty, error = Empty
        ))
    }
}
