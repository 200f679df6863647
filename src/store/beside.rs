//! What the HTTP layer needs beside the public interface.

use super::{Request, Store};
use crate::error::{ClaimError, StorageError};
use crate::record::Terms;
use crate::sync::Signal;
use crate::timer::Alarm;
use std::sync::Arc;
use std::time::Duration;

impl Store {
    /// The terms of such a claim, with the store's defaults filled in; an error if none can be made. Asked for by work of
    /// whatever key: nothing is claimed.
    pub(crate) fn check(&self, request: &Request) -> Result<Terms, ClaimError> {
        request.resolve(&self.0.settings.terms).map(|request| request.terms)
    }

    /// Raises `signal` once `span` has passed on the store's clock, or once the store is closed, which cancels alarms.
    pub(crate) fn ring(&self, span: Duration, signal: &Arc<Signal>) -> Result<Alarm, StorageError> {
        let raised = Raised(Arc::clone(signal));
        self.0.timer.set(self.0.clock.now().after(span), move || drop(raised))
    }
}

/// Raises its signal when it is dropped.
struct Raised(Arc<Signal>);

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.notify();
    }
}
