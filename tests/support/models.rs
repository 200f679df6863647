//! Running models and their twins.

use claimdb::{Break, Clock, Moment, Signal, Steps, WallTime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many preemptions a twin may need.
const TWINS: usize = 3;
/// Set for the process of a twin that hangs.
const CHILD: &str = "CLAIMDB_TWIN";

/// A test for each model, which has the model's name: `name, bound, body;`, with what [`model`] is given. What one run does
/// on its own has the name with `_once`.
macro_rules! models {
    ($($name:ident, $bound:expr, $body:expr;)+) => {
        $(
            #[test]
            fn $name() {
                $crate::support::model(stringify!($name), $bound, $body);
            }
        )+
    };
}
pub(crate) use models;

/// Runs `body` in every interleaving, with at most `bound` preemptions if given, and prints how many there
/// were.
pub fn model(name: &str, bound: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
    let schedules = Arc::new(AtomicU64::new(0));
    let counted = schedules.clone();
    let start = Instant::now();
    check(bound, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Steps::follow();
        body();
    });
    let bound = bound.map_or("exhaustive".to_owned(), |bound| format!("at most {bound} preemptions"));
    println!(
        "model {name}: {} schedules, {bound}, {:.1?}",
        schedules.load(Ordering::Relaxed),
        start.elapsed()
    );
}

/// Runs `body` with `rule` broken, and fails unless some interleaving is found that panics with `promise`.
pub fn twin(rule: Break, promise: &str, body: impl Fn() + Sync + Send + 'static) {
    find(&format!("{rule:?}"), promise, |body| rule.run(body), body);
}

/// The same of a `body` that is broken by itself, by what its store is opened over.
pub fn broken(name: &str, promise: &str, body: impl Fn() + Sync + Send + 'static) {
    find(name, promise, |body| body(), body);
}

fn find(
    name: &str,
    promise: &str,
    run: impl FnOnce(Box<dyn FnOnce()>),
    body: impl Fn() + Sync + Send + 'static,
) {
    let schedules = Arc::new(AtomicU64::new(0));
    let counted = schedules.clone();
    let found = catch_unwind(AssertUnwindSafe(|| {
        run(Box::new(move || {
            check(Some(TWINS), move || {
                counted.fetch_add(1, Ordering::Relaxed);
                body();
            });
        }));
    }));
    let schedules = schedules.load(Ordering::Relaxed);
    let Err(panic) = found else { panic!("{name} was broken, and {schedules} schedules did not show it") };
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let text = text.unwrap_or_default();
    assert!(text.contains(promise), "{name} was found, not as {promise:?} but as: {text}");
    println!("twin {name}: found after {schedules} schedules, as: {text}");
}

/// Runs `body` with `rule` broken, and fails unless some interleaving is found in which everybody waits for ever. Loom
/// ends the process over that, so it is another one, which runs this test alone.
pub fn hanging_twin(rule: Break, body: impl Fn() + Sync + Send + 'static) {
    if std::env::var_os(CHILD).is_some() {
        let schedules = AtomicU64::new(0);
        return rule.run(|| {
            check(Some(TWINS), move || {
                eprintln!("schedule {}", schedules.fetch_add(1, Ordering::Relaxed) + 1);
                body();
            });
        });
    }
    let thread = std::thread::current();
    let test = thread.name().expect("tests run in threads of their name");
    let mut child = Command::new(std::env::current_exe().expect("this test is a file"));
    let child = child.args(["--exact", test, "--nocapture"]).env(CHILD, "").env("RUST_BACKTRACE", "0");
    let ended = child.output().expect("this test can be started again");
    let told = String::from_utf8_lossy(&ended.stderr);
    let schedules = told.lines().filter(|line| line.starts_with("schedule ")).count();
    assert!(!ended.status.success(), "{rule:?} was broken, and {schedules} schedules did not show it");
    let found = told.lines().find(|line| line.starts_with("deadlock"));
    let found = found.unwrap_or_else(|| panic!("{rule:?} was found, not as a deadlock but as: {told}"));
    println!("twin {rule:?}: found after {schedules} schedules, as: P6 never stuck: {found}");
}

fn check(bound: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 100_000;
    builder.check(body);
}

/// A clock that stands still while threads race. Asking one that may move is a point to switch at, and most models
/// have no use for those.
#[derive(Debug, Clone, Default)]
pub struct Still(Arc<AtomicU64>);

impl Still {
    /// Moves both clocks. Only while nothing races: loom sees nothing of it.
    pub fn advance(&self, span: Duration) {
        let millis = u64::try_from(span.as_millis()).expect("tests move it by moments");
        self.0.fetch_add(millis, Ordering::Relaxed);
    }

    fn passed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment::new(self.passed())
    }

    fn wall(&self) -> WallTime {
        WallTime::from_unix_millis(1_735_689_600_000).after(self.passed())
    }

    fn wait(&self, signal: &Arc<Signal>, _deadline: Moment) {
        // Nothing comes due.
        signal.wait();
    }
}
