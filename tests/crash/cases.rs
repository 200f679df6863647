//! Cases that are run, counted and told apart.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

/// The cases of all tests so far.
static CASES: Mutex<u64> = Mutex::new(0);

thread_local!(static IN_A_CASE: Cell<bool> = const { Cell::new(false) });

pub struct Cases {
    what: &'static str,
    pub run: u64,
    pub failures: Vec<String>,
    /// The one case that was asked for.
    pub only: Option<String>,
}

impl Cases {
    pub fn new(what: &'static str) -> Self {
        static QUIET: Once = Once::new();
        QUIET.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // What a case panics with is told in the end, and what its faults panic with is on purpose.
                if !IN_A_CASE.get() {
                    tell(panic);
                }
            }));
        });
        Self { what, run: 0, failures: Vec::new(), only: std::env::var("CLAIMDB_CRASH").ok() }
    }

    /// Runs a case, unless another was asked for.
    pub fn case(&mut self, name: &str, body: impl FnOnce()) {
        let name = format!("{} {name}", self.what);
        if self.only.as_ref().is_some_and(|only| *only != name) {
            return;
        }
        self.run += 1;
        if let Err(panic) = quietly(body) {
            self.failures.push(format!("{panic}\n    CLAIMDB_CRASH=\"{name}\""));
        }
    }

    pub fn end(self) {
        let mut cases = CASES.lock().unwrap_or_else(PoisonError::into_inner);
        *cases += self.run;
        println!("\ncrash: {} cases of {}", self.run, self.what);
        println!("\ncrash: {cases} cases");
        drop(cases);
        let failed = self.failures.len();
        assert!(
            failed == 0,
            "{failed} of {} cases:\n{}",
            self.run,
            self.failures[..failed.min(12)].join("\n")
        );
        assert!(self.run > 0 || self.only.is_some(), "no case was run");
    }
}

/// Runs `body`, whose panics are told by nobody else.
pub fn quietly<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    IN_A_CASE.set(true);
    let ran = catch_unwind(AssertUnwindSafe(body));
    IN_A_CASE.set(false);
    ran.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}
