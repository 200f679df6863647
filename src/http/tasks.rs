//! The tasks in which handlers run, so that a client that hangs up does not stop one halfway.

use crate::sync::{Mutex, Raised, Signal};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A task to be run.
pub type BoxTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How tasks are started: the layer's tie to a runtime. A closure will do.
///
/// ```
/// # #[derive(Clone)] struct Executor;
/// # impl Executor { fn spawn(&self, _: claimdb::http::BoxTask) {} }
/// # let executor = Executor;
/// let spawn = move |task: claimdb::http::BoxTask| executor.spawn(task);
/// # let _: &dyn claimdb::http::Spawn = &spawn;
/// ```
pub trait Spawn: Send + Sync + 'static {
    /// Runs `task` to its end, whether or not anybody waits for it. A task that is dropped before its end ends its
    /// claim like a handler that has panicked, and its client is told 503.
    fn spawn(&self, task: BoxTask);
}

impl<F: Fn(BoxTask) + Send + Sync + 'static> Spawn for F {
    fn spawn(&self, task: BoxTask) {
        self(task);
    }
}

/// How many tasks there are, and who waits until there is none.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    tasks: usize,
    waiting: Vec<Arc<Signal>>,
}

/// The right to run one task.
#[derive(Debug)]
pub(super) struct Permit(Arc<Tasks>);

impl Tasks {
    /// `None` if there are `limit` already.
    pub(super) fn permit(self: &Arc<Self>, limit: usize) -> Option<Permit> {
        let mut running = self.0.lock();
        if running.tasks >= limit {
            return None;
        }
        running.tasks += 1;
        Some(Permit(Arc::clone(self)))
    }

    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.running() >= limit
    }

    pub(super) fn running(&self) -> usize {
        self.0.lock().tasks
    }

    pub(super) fn idle(self: &Arc<Self>) -> Idle {
        Idle { tasks: Arc::clone(self), raised: None }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let waiting = {
            let mut running = self.0.0.lock();
            running.tasks -= 1;
            if running.tasks > 0 { Vec::new() } else { std::mem::take(&mut running.waiting) }
        };
        for signal in waiting {
            signal.notify();
        }
    }
}

/// Ready when no task of the layer runs any more. See [`Idempotency::idle`](super::Idempotency::idle).
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Idle {
    tasks: Arc<Tasks>,
    raised: Option<Raised>,
}

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(raised) = &mut self.raised {
                std::task::ready!(Pin::new(raised).poll(context));
                self.raised = None;
            }
            let signal = Arc::new(Signal::new());
            {
                let mut running = self.tasks.0.lock();
                if running.tasks == 0 {
                    return Poll::Ready(());
                }
                running.waiting.push(Arc::clone(&signal));
            }
            self.raised = Some(signal.raised());
        }
    }
}

/// Runs `work` in a task. Gives what it returns; `None` if the task was dropped. A panic of the work goes on in
/// whoever awaits this.
pub(super) fn run<T: Send + 'static>(
    spawn: &dyn Spawn,
    permit: Permit,
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> + Send + 'static {
    let slot = Arc::new(Slot { answer: Mutex::new(None), ready: Arc::new(Signal::new()) });
    let answer = Answer(Arc::clone(&slot));
    let work = Caught(Some(Box::pin(work)));
    spawn.spawn(Box::pin(async move {
        let ended = work.await;
        *answer.0.answer.lock() = Some(ended);
        drop(answer);
        // Counted until the caller can have its answer.
        drop(permit);
    }));
    async move {
        slot.ready.raised().await;
        let ended = slot.answer.lock().take();
        match ended? {
            Ok(value) => Some(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

type Ended<T> = Result<T, Box<dyn Any + Send>>;

struct Slot<T> {
    answer: Mutex<Option<Ended<T>>>,
    ready: Arc<Signal>,
}

/// Tells that there is an answer, or never will be, when it is dropped.
struct Answer<T>(Arc<Slot<T>>);

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.0.ready.notify();
    }
}

/// A future whose panic is its answer. It is dropped with it, so that what it held is free before that is told.
struct Caught<F>(Option<Pin<Box<F>>>);

impl<F: Future> Future for Caught<F> {
    type Output = Ended<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let ended = match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(panic) => Err(panic),
        };
        self.0 = None;
        Poll::Ready(ended)
    }
}

impl fmt::Debug for dyn Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawn")
    }
}
