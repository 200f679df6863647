//! Runs worlds of many threads and tasks under shuttle's schedulers.

use claimdb::Break;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::any::Any;
use std::cell::Cell;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

/// How shuttle runs everything here. A failure is repeated from its seed, not from a printed schedule.
pub fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    // What is seen of a world that has failed says nothing.
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// The seed of this run: `CLAIMDB_SEED`, else always the same one, so that a run of CI can be repeated.
pub fn seed() -> u64 {
    setting("CLAIMDB_SEED", std::env::var_os("CLAIMDB_SEED"), 1)
}

/// The number that the environment gives for `name`, or `default`.
pub fn setting(name: &str, given: Option<OsString>, default: u64) -> u64 {
    let Some(given) = given else { return default };
    let number = given.to_str().and_then(|given| given.parse().ok());
    number.unwrap_or_else(|| panic!("{name} is {given:?}, and must be a number from 0 to {}", u64::MAX))
}

/// Runs `body` in `schedules` interleavings, most of them drawn by PCT with up to four preemptions placed where they
/// hurt, the rest at random, and prints how many there were.
pub fn world(name: &str, schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let (start, ran) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    in_all(schedules, &Arc::new(body), &ran);
    let (ran, seed) = (ran.load(Ordering::Relaxed), seed());
    println!("world {name}: {ran} schedules, seed {seed}, {:.1?}", start.elapsed());
}

/// Runs `body` with `rule` broken, in as many interleavings, and fails unless one of them panics with `promise`.
pub fn twin_world(
    name: &str,
    schedules: usize,
    rule: Break,
    promise: &str,
    body: impl Fn() + Send + Sync + 'static,
) {
    let (ran, body) = (Arc::new(AtomicU64::new(0)), Arc::new(body));
    let counted = Arc::clone(&ran);
    let said = first_panic(move || rule.run(|| in_all(schedules, &body, &counted)));
    let ran = ran.load(Ordering::Relaxed);
    let said = said.unwrap_or_else(|| panic!("{rule:?} was broken, and {ran} schedules did not show it"));
    assert!(said.contains(promise), "{rule:?} was found, not as {promise:?} but as: {said}");
    println!("twin world {name}: {rule:?} found after {ran} schedules, seed {}, as: {said}", seed());
}

fn in_all(schedules: usize, body: &Arc<impl Fn() + Send + Sync + 'static>, ran: &Arc<AtomicU64>) {
    let seed = seed();
    for depth in 1..=4 {
        run(PctScheduler::new_from_seed(seed.wrapping_add(depth as u64), depth, schedules / 5), body, ran);
    }
    run(RandomScheduler::new_from_seed(seed, schedules / 5), body, ran);
}

thread_local! {
    static PLAYING: Cell<bool> = const { Cell::new(false) };
    /// What the first panic said since then: shuttle keeps it to itself.
    static SAID: Cell<Option<String>> = const { Cell::new(None) };
}

/// What the first panic of `worlds` says, if there is one; it is not printed. On a thread of its own: what shuttle leaves
/// on the thread of a world that failed would spoil the next.
pub fn first_panic(worlds: impl FnOnce() + Send + 'static) -> Option<String> {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !PLAYING.get() {
                return before(info);
            }
            let first = SAID.take().unwrap_or_else(|| said(info.payload()));
            SAID.set(Some(first));
        }));
    });
    let played = move || {
        PLAYING.set(true);
        let panic = catch_unwind(AssertUnwindSafe(worlds)).err()?;
        Some(SAID.take().unwrap_or_else(|| said(&*panic)))
    };
    std::thread::spawn(played).join().expect("it catches panics")
}

fn run(
    scheduler: impl Scheduler + 'static,
    body: &Arc<impl Fn() + Send + Sync + 'static>,
    ran: &Arc<AtomicU64>,
) {
    let (body, ran) = (Arc::clone(body), Arc::clone(ran));
    Runner::new(scheduler, config()).run(move || {
        ran.fetch_add(1, Ordering::Relaxed);
        body();
    });
}

/// What a panic said. A deadlock is a wait that never ends.
pub fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let text = text.unwrap_or_else(|| "a panic without a text".to_owned());
    if text.starts_with("deadlock!") { format!("P6 never stuck: {text}") } else { text }
}
