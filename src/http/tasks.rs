//! Where handlers run: in the response future of their client as long as that is there, which costs no way to another
//! thread and back, and in a task of their own from then on, so that a client that hangs up does not stop one halfway.

use crate::sync::{Mutex, Raised, Signal};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A task to be run.
pub type BoxTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How tasks are started: the layer's tie to a runtime. A closure will do.
///
/// It is called for a handler whose client has gone, by the drop of the response future, and so on whatever thread that
/// is dropped: also on one that no runtime knows, and also while it unwinds. It must not panic: the task would end like
/// one that is dropped.
///
/// ```
/// # #[derive(Clone)] struct Executor;
/// # impl Executor { fn spawn(&self, _: claimdb::http::BoxTask) {} }
/// # let executor = Executor;
/// let spawn = move |task: claimdb::http::BoxTask| executor.spawn(task);
/// # let _: &dyn claimdb::http::Spawn = &spawn;
/// ```
pub trait Spawn: Send + Sync + 'static {
    /// Runs `task` to its end. One that is dropped before its end ends its claim like a handler that has panicked.
    fn spawn(&self, task: BoxTask);

    /// What starts the task of a request should its client go, if that is not this: asked each time before a key is claimed,
    /// in the task that polls the request and inside the spans that are entered around it. For runtimes that are found by
    /// the thread, as tokio's is, and for what is to follow a handler into its task. One that wraps
    /// another has to hand this on.
    fn here(&self) -> Option<Arc<dyn Spawn>> {
        None
    }
}

impl<F: Fn(BoxTask) + Send + Sync + 'static> Spawn for F {
    fn spawn(&self, task: BoxTask) {
        self(task);
    }
}

/// How many handlers run, in their clients' futures or in tasks, and who waits until there is none.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    handlers: usize,
    waiting: Vec<Arc<Signal>>,
}

/// The right to run one handler.
#[derive(Debug)]
pub(super) struct Permit(Arc<Tasks>);

impl Tasks {
    /// `None` if there are `limit` already.
    pub(super) fn permit(self: &Arc<Self>, limit: usize) -> Option<Permit> {
        let mut running = self.0.lock();
        if running.handlers >= limit {
            return None;
        }
        running.handlers += 1;
        Some(Permit(Arc::clone(self)))
    }

    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.running() >= limit
    }

    pub(super) fn running(&self) -> usize {
        self.0.lock().handlers
    }

    pub(super) fn idle(self: &Arc<Self>) -> Idle {
        Idle { tasks: Arc::clone(self), raised: None }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let waiting = {
            let mut running = self.0.0.lock();
            running.handlers -= 1;
            if running.handlers > 0 { Vec::new() } else { std::mem::take(&mut running.waiting) }
        };
        for signal in waiting {
            signal.notify();
        }
    }
}

/// Ready when no handler of the layer runs any more. See [`Idempotency::idle`](super::Idempotency::idle).
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Idle {
    tasks: Arc<Tasks>,
    /// What it waits for, once it does.
    raised: Option<(Arc<Signal>, Raised)>,
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some((own, _)) = &self.raised {
            self.tasks.0.lock().waiting.retain(|signal| !Arc::ptr_eq(signal, own));
        }
    }
}

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some((_, raised)) = &mut self.raised {
                std::task::ready!(Pin::new(raised).poll(context));
                self.raised = None;
            }
            let signal = Arc::new(Signal::new());
            {
                let mut running = self.tasks.0.lock();
                if running.handlers == 0 {
                    return Poll::Ready(());
                }
                running.waiting.push(Arc::clone(&signal));
            }
            let raised = signal.raised();
            self.raised = Some((signal, raised));
        }
    }
}

/// Work that is under way, and is counted until it is gone: fields are dropped in their order.
struct Task<W> {
    work: Pin<Box<W>>,
    _permit: Permit,
}

/// Runs its work in whoever polls it, and in a task of its own once it is dropped. A panic of the work goes on in whoever
/// polls, and the work is gone by then; in a task it ends that.
pub(super) struct Inline<W: Future + Send + 'static> {
    /// `None` once it has ended.
    task: Option<Task<W>>,
    spawn: Arc<dyn Spawn>,
}

impl<W: Future + Send + 'static> Inline<W> {
    /// `spawn` starts its task should it be dropped before its end.
    pub(super) fn new(spawn: Arc<dyn Spawn>, permit: Permit, work: W) -> Self {
        Self { task: Some(Task { work: Box::pin(work), _permit: permit }), spawn }
    }
}

impl<W: Future + Send + 'static> Future for Inline<W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<W::Output> {
        // Out of its place while it is polled, so that one that panics is dropped and not handed over.
        let mut task = self.task.take().expect("a future is not polled again after its end");
        let polled = task.work.as_mut().poll(context);
        if polled.is_pending() {
            self.task = Some(task);
        }
        polled
    }
}

impl<W: Future + Send + 'static> Drop for Inline<W> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        // A panic here could meet another one, which ends the process. The task is dropped by it.
        let _ = catch_unwind(AssertUnwindSafe(|| self.spawn.spawn(Box::pin(task.run()))));
    }
}

impl<W: Future> Task<W> {
    /// To its end, which nobody waits for any more. What it waits for learns of the new task by its first poll.
    async fn run(mut self) {
        poll_fn(|context| {
            let poll = || self.work.as_mut().poll(context).map(drop);
            // The panic has been told by the hook, and is none of the executor's.
            catch_unwind(AssertUnwindSafe(poll)).unwrap_or(Poll::Ready(()))
        })
        .await;
    }
}

impl fmt::Debug for dyn Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawn")
    }
}
