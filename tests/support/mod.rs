//! What the tests share.
#![allow(dead_code)] // each test file uses a part

#[cfg(loom)]
pub use models::{model, twin};

#[cfg(loom)]
mod models {
    use claimdb::Break;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    /// Runs `body` in every interleaving, with at most `bound` preemptions if given, and prints how many there
    /// were.
    pub fn model(name: &str, bound: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
        let schedules = std::sync::Arc::new(AtomicU64::new(0));
        let counted = schedules.clone();
        let start = Instant::now();
        check(bound, move || {
            counted.fetch_add(1, Ordering::Relaxed);
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
        let schedules = std::sync::Arc::new(AtomicU64::new(0));
        let counted = schedules.clone();
        let found = catch_unwind(AssertUnwindSafe(|| {
            rule.run(|| {
                check(Some(3), move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    body();
                });
            });
        }));
        let schedules = schedules.load(Ordering::Relaxed);
        let Err(panic) = found else {
            panic!("{rule:?} was broken, and {schedules} schedules did not show it")
        };
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_default();
        assert!(text.contains(promise), "{rule:?} was found, not as {promise:?} but as: {text}");
        println!("twin {rule:?}: found after {schedules} schedules, as: {text}");
    }

    fn check(bound: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = bound;
        builder.max_branches = 100_000;
        builder.check(body);
    }
}
