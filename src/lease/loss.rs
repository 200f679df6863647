//! Telling a holder that its claim is no longer its own.

use crate::sync::{Mutex, Signal};
use std::fmt;
use std::sync::Arc;

/// Why a claim is no longer its holder's. What ended it is told whenever it is asked for; that its lease ran out,
/// once that was noticed or as long as nothing else has ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// Its lease ran out, or was [ended](crate::Store::end_lease). It may still settle, unless another is granted the key
    /// first.
    LeaseOver,
    /// Another was given the key after the lease had run out.
    TakenOver,
    /// The key was removed by force, or removed or resolved after the lease had run out.
    Removed,
    /// The store was closed.
    Closed,
    /// The holder itself settled or dropped it.
    Ended,
}

/// What the table and the holder's signals share. The first cause stands.
#[derive(Default)]
pub(crate) struct Loss(Mutex<State>);

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loss").field(&self.cause()).finish()
    }
}

#[derive(Default)]
struct State {
    cause: Option<LossCause>,
    /// Of those who await it; each takes its own out.
    waiting: Vec<Arc<Signal>>,
}

impl Loss {
    pub(crate) fn raise(&self, cause: LossCause) {
        let waiting = {
            let mut state = self.0.lock();
            if state.cause.is_some() {
                return;
            }
            state.cause = Some(cause);
            std::mem::take(&mut state.waiting)
        };
        for signal in waiting {
            signal.notify();
        }
    }

    /// Tells those who await it that the lease ends sooner than they were told.
    pub(super) fn moved(&self) {
        let waiting = self.0.lock().waiting.clone();
        for signal in waiting {
            signal.notify();
        }
    }

    pub(crate) fn cause(&self) -> Option<LossCause> {
        self.0.lock().cause
    }

    /// The cause, or else `signal` is raised when there is one.
    pub(crate) fn cause_or_tell(&self, signal: &Arc<Signal>) -> Option<LossCause> {
        let mut state = self.0.lock();
        if state.cause.is_none() && !state.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, signal)) {
            state.waiting.push(Arc::clone(signal));
        }
        state.cause
    }

    /// Takes back what [`cause_or_tell`](Self::cause_or_tell) asked for.
    pub(crate) fn forget(&self, signal: &Arc<Signal>) {
        self.0.lock().waiting.retain(|waiting| !Arc::ptr_eq(waiting, signal));
    }
}
