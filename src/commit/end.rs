//! How group commit ends: the last write, the last sync, and letting the engine go.

use super::{GroupCommit, SyncBy, Thread, Ticket, release};
use crate::backend::Engine;
use crate::clock::expired;
use crate::sync::current_thread;
use std::time::Duration;

impl<M: Send + 'static> GroupCommit<M> {
    /// Gives no more tickets out, and ends the syncing thread once it has covered those that it gave; waits for
    /// that for `limit` at most. Tells whether it has ended.
    pub(crate) fn stop(&self, limit: Duration) -> bool {
        {
            let mut state = self.state.lock();
            if state.thread == Thread::NotStarted {
                state.thread = Thread::Ended;
            }
            if state.thread == Thread::Running {
                state.thread = Thread::Stopping;
            }
        }
        self.work.notify();
        let deadline = self.clock.now().after(limit);
        loop {
            let now = self.clock.now();
            if self.state.lock().thread == Thread::Ended {
                // A signal wakes one, and there may be more who wait for the end.
                self.ended.notify();
                return true;
            }
            if expired(now, deadline) {
                self.ended.notify(); // the same for those who may wait longer
                return false;
            }
            self.clock.wait(&self.ended, deadline);
        }
    }

    /// Where callers sync, the last ticket, if no sync has covered it: it may be that of a caller who is gone. A thread
    /// covers it before it ends.
    pub(crate) fn uncovered(&self) -> Option<Ticket> {
        let state = self.state.lock();
        let owed = state.issued > state.synced && state.poisoned.is_none() && !state.closed;
        (owed && self.sync_by == SyncBy::Caller).then_some(Ticket(state.issued))
    }

    /// Leaves a write to whoever makes the last sync, which it goes before; it need not land.
    pub(crate) fn at_last(&self, write: impl FnOnce(&dyn Engine) + Send + 'static) {
        self.state.lock().last = Some(Box::new(write));
    }

    /// Whether this thread is in the middle of a sync, and so must not wait for one: it runs the wakers of tasks, and
    /// a task that was the last to hold the store lets go of it there.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.state.lock().syncing == Some(current_thread())
    }

    /// Whether the engine is let go without anybody's waiting for that, once the last sync is made.
    pub(crate) fn ends_by_itself(&self) -> bool {
        self.state.lock().thread == Thread::Stopping
    }

    /// Leaves the engine as it is, without dropping it: for a fork.
    pub(crate) fn forget_engine(&self) {
        std::mem::forget(self.engine.lock().take());
    }

    /// Lets the engine go, so that it can be dropped, and tells those who still wait.
    pub(crate) fn let_go(&self) {
        // In this order: whoever finds no engine to sync finds it closed, and no failed sync.
        let released = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        let engine = self.engine.lock().take();
        drop(engine);
        release(released);
    }
}
