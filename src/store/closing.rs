//! What goes on beside a store without keeping it open, and is told when it closes.

use super::{Inner, Store};
use crate::clock::Clock;
use crate::sync::Mutex;
use std::sync::{Arc, Weak};

/// What is to be done when a store closes.
type OnClose = dyn Fn() + Send + Sync;

/// Who is told that the store closes. The lock is held for a look or a change.
#[derive(Default)]
pub(super) struct Closing(Mutex<Vec<Weak<OnClose>>>);

impl Closing {
    pub(super) fn tell(&self) {
        let told = std::mem::take(&mut *self.0.lock());
        for act in told {
            if let Some(act) = act.upgrade() {
                act();
            }
        }
    }
}

/// A store that is not kept open by this.
pub(crate) struct WeakStore(Weak<Inner>);

impl WeakStore {
    /// The store, if it is there.
    pub(crate) fn get(&self) -> Option<Store> {
        self.0.upgrade().map(Store)
    }
}

impl Store {
    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.0))
    }

    /// Logs what was asked for over an admin socket, by whom, and what became of it.
    pub(crate) fn changed_over_socket(&self, change: &dyn std::fmt::Display) {
        self.0.telemetry.changed_over_socket(change);
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.clock)
    }

    /// Whether it is closed, or this process is not the one that opened it.
    pub(crate) fn is_over(&self) -> bool {
        self.0.engine.get().is_err()
    }

    /// Does `act` when this store closes, as long as somebody keeps it.
    pub(crate) fn when_closing(&self, act: &Arc<OnClose>) {
        let mut told = self.0.closing.0.lock();
        told.retain(|other| other.strong_count() > 0);
        told.push(Arc::downgrade(act));
    }
}
