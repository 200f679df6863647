//! Who calls: a thread, which blocks where it has to wait, or a task, which awaits.
//!
//! Both take the same steps, which are written once, as `async`. A thread runs them in one poll and waits inside it.
//! Nothing of the engine is held across a wait: a task that is never polled again must not keep a store from closing.

use super::Inner;
use crate::clock::Moment;
use crate::commit::Ticket;
use crate::error::Fault;
use crate::sync::{Break, Signal};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    Thread,
    Task,
}

/// Takes steps that wait as a [`Caller::Thread`] does.
pub(super) fn on_this_thread<T>(steps: impl Future<Output = T>) -> T {
    match pin!(steps).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("Caller::Thread waits inside the poll"),
    }
}

impl Inner {
    /// Waits for `signal`, until `deadline` at most. In a fork nobody would raise it.
    pub(super) async fn pause(
        &self,
        caller: Caller,
        signal: &Arc<Signal>,
        deadline: Moment,
    ) -> Result<(), Fault> {
        match caller {
            Caller::Thread => {
                self.check_process()?;
                self.clock.wait(signal, deadline);
            }
            Caller::Task => {
                let late = Arc::clone(signal);
                let _alarm = self.timer.set(deadline, move || late.notify())?;
                let mut raised = signal.raised();
                poll_fn(|context| match self.check_process() {
                    Ok(()) => Pin::new(&mut raised).poll(context).map(Ok),
                    Err(fault) => Poll::Ready(Err(fault)),
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Waits for a sync that covers `ticket`, for the sync limit at most.
    pub(super) async fn synced(&self, caller: Caller, ticket: Ticket) -> Result<(), Fault> {
        if Break::ToldUnsynced.is() {
            return Ok(());
        }
        let waiting = self.commit.waiting(ticket, self.limit());
        loop {
            if let Some(covered) = waiting.look() {
                return covered;
            }
            let (signal, deadline) = waiting.signal();
            self.pause(caller, signal, deadline).await?;
        }
    }

    /// Waits for a sync that covers the write that has just returned.
    pub(super) async fn next_sync(&self, caller: Caller) -> Result<(), Fault> {
        let ticket = self.commit.ticket(None)?;
        self.synced(caller, ticket).await
    }
}
