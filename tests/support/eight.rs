//! Four threads and four tasks at once, under shuttle.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use shuttle::{future, thread};
use std::sync::Arc;

/// Does `act` in eight at once, four of them threads and four tasks, each with its number.
pub fn in_eight<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    by_thread: impl Fn(usize) -> T + Send + Sync + 'static,
    by_task: impl Fn(usize) -> F,
) -> Vec<T> {
    let by_thread = Arc::new(by_thread);
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let act = Arc::clone(&by_thread);
            thread::spawn(move || act(number))
        })
        .collect();
    let tasks: Vec<_> = (4..8).map(|number| future::spawn(by_task(number))).collect();
    let mut told: Vec<T> = threads.into_iter().map(|thread| thread.join().expect("it panicked")).collect();
    told.extend(tasks.into_iter().map(|task| future::block_on(task).expect("it panicked")));
    told
}
