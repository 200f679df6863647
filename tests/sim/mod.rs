//! The simulator: whole worlds of threads and tasks, drawn from a seed, in interleavings drawn from the same seed.
//!
//! `program` says what the actors of a world do; `acts`, `settles` and `others` do it; `engine` is the storage under the
//! store; `world` opens and closes that, and lets time pass when nothing else can happen; `schedule` chooses who runs.
//! What is told is judged at once by the promises (`ledger`), and at the end, key by key (`history`), against a
//! `reference` of a page. `run` goes through seeds, and makes a program that fails smaller.

mod acts;
#[path = "../support/drive.rs"]
#[allow(dead_code)] // the crash harness uses more of it
mod drive;
mod engine;
mod history;
mod ledger;
mod others;
mod program;
#[path = "../support/random.rs"]
mod random;
mod reference;
pub mod run;
mod schedule;
mod settles;
mod world;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Polls `future` so often at most, then drops it. Threads see it through.
async fn within<T>(polls: Option<u8>, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == Some(0) {
            return Poll::Ready(None);
        }
        left = left.map(|left| left - 1);
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == Some(0) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// One call, as a task or as a thread makes it.
macro_rules! call {
    ($task:expr, $polls:expr, $future:expr, $blocking:expr) => {
        if $task { within($polls, $future).await } else { Some($blocking) }
    };
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

use call;
