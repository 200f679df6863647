//! Doing parts of a batch at once.

use crate::failure::Failure;
use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// Does `work` on each part, each on a thread of its own, the first on the caller's. Gives the results in order.
pub(super) fn each<P: Send, R: Send>(
    parts: impl IntoIterator<Item = P>,
    work: impl Fn(P) -> R + Sync,
) -> Result<Vec<R>, Failure> {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Ok(Vec::new()) };
    let work = &work;
    scope(|scope| {
        let threads = parts
            .map(|part| Builder::new().spawn_scoped(scope, move || work(part)))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(|error| Failure::failed("starting a thread", error, "give a smaller --threads"))?;
        let mut results = vec![work(first)];
        for thread in threads {
            results.push(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        Ok(results)
    })
}
