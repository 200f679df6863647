//! Doing parts of a batch at once.

use crate::failure::Failure;
use std::panic::resume_unwind;
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};

/// Does `work` on each part, each on a thread of its own, the first on the caller's. Gives the results in order.
pub(super) fn each<P: Send, R: Send>(
    parts: impl IntoIterator<Item = P>,
    work: impl Fn(P) -> R + Sync,
) -> Result<Vec<R>, Failure> {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Ok(Vec::new()) };
    let work = &work;
    scope(|scope| {
        let threads = parts.map(|part| start(scope, move || work(part))).collect::<Result<Vec<_>, _>>()?;
        let mut results = vec![work(first)];
        results.extend(threads.into_iter().map(result));
        Ok(results)
    })
}

/// Does `work` on a thread of its own.
pub(super) fn start<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>, Failure> {
    Builder::new().spawn_scoped(scope, work).map_err(|error| {
        Failure::failed("starting a thread", error, "give a smaller --threads, and run again")
    })
}

/// Waits for what a thread was started for. A panic there is one here.
pub(super) fn result<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
