//! What the threads of a model's run did, in its order, to be shown if the run fails.

use super::imp::{ThreadId, current_thread};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{Location, PanicHookInfo};
use std::sync::Once;

/// The run of a model that goes on, step by step: which thread claimed, settled, was told what, and where the threads
/// took turns.
///
/// Only under `cfg(loom)`. Nothing is kept, and nothing is shown, before the model's body calls
/// [`follow`](Steps::follow).
#[derive(Debug)]
pub struct Steps(());

struct Step {
    thread: ThreadId,
    does: Does,
    place: &'static Location<'static>,
}

enum Does {
    /// Something to be read.
    Noted(Cow<'static, str>),
    /// Takes a lock, or whatever else loom switches threads at: claimdb has dozens in each call.
    Switch(&'static str),
}

// A model's threads are coroutines of one system thread, so that this has the steps of them all, and of no other test's.
std::thread_local!(static RUN: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) });
// Whether the body of that run has ended: what panics then is another of its threads, or the test behind the model.
std::thread_local!(static ENDED: Cell<bool> = const { Cell::new(false) });

/// What loom drops once the body of a run has ended, and before the next one begins.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = ENDED.try_with(|ended| ended.set(true));
    }
}

loom::lazy_static! {
    static ref ENDING: Ending = Ending;
}

impl Steps {
    /// A run begins here. Until the next one begins, a panic of any of its threads shows what led to it, below the panic's
    /// own message; with `CLAIMDB_STEPS=all` in the environment each lock as well. Of what panics once the body has ended it is
    /// said that it has.
    pub fn follow() {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let others = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                others(panic);
                if !has_message(panic) {
                    return;
                }
                // Once for each run: what panics while the run is taken down is no finding.
                let steps = RUN.try_with(|run| run.try_borrow_mut().ok()?.take());
                if let Ok(Some(steps)) = steps
                    && !steps.is_empty()
                {
                    let all = std::env::var_os("CLAIMDB_STEPS").is_some_and(|steps| steps == "all");
                    let ended = ENDED.try_with(Cell::get).unwrap_or(false);
                    eprintln!("{}", Shown { steps: &steps, all, ended });
                }
            }));
        });
        let _: &Ending = &ENDING;
        ENDED.set(false);
        RUN.set(Some(Vec::new()));
    }

    /// Puts `what` among the steps, as done by the thread that calls.
    #[track_caller]
    pub fn note(what: impl Into<Cow<'static, str>>) {
        take(Does::Noted(what.into()));
    }
}

/// Loom ends what is left of a run by panics without one.
fn has_message(panic: &PanicHookInfo<'_>) -> bool {
    panic.payload().is::<String>() || panic.payload().is::<&str>()
}

/// The thread that calls is where loom may switch to another.
#[track_caller]
pub(super) fn switch(what: &'static str) {
    take(Does::Switch(what));
}

#[track_caller]
fn take(does: Does) {
    let place = Location::caller();
    // Of a thread that is ending nothing is kept.
    let _ = RUN.try_with(|run| {
        if let Some(run) = &mut *run.borrow_mut() {
            run.push(Step { thread: current_thread(), does, place });
        }
    });
}

struct Shown<'a> {
    steps: &'a [Step],
    all: bool,
    ended: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what =
            if self.ended { "what was done in the last run, whose body had ended" } else { "what led to it" };
        write!(f, "{what}, thread 0 being the model's own:")?;
        for turn in self.steps.chunk_by(|one, next| one.thread == next.thread) {
            let name = format!("{:?}", turn[0].thread);
            write!(f, "\n  thread {}", name.trim_start_matches("ThreadId(").trim_end_matches(')'))?;
            for alike in turn.chunk_by(|one, next| !self.all && one.is_switch() && next.is_switch()) {
                match alike {
                    [step] => write!(f, "\n    {step}")?,
                    [.., last] => write!(f, "\n    {last}, after {} more like it", alike.len() - 1)?,
                    [] => {}
                }
            }
        }
        Ok(())
    }
}

impl Step {
    fn is_switch(&self) -> bool {
        matches!(self.does, Does::Switch(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Where this crate lies: of its files only the path inside it is of interest, and of its notes not even that.
        let here = file!().strip_suffix("src/sync/steps.rs").unwrap_or_default();
        let file = self.place.file();
        let own = file.strip_prefix(here).filter(|_| here != "" || file.starts_with("src/"));
        match (&self.does, own) {
            (Does::Noted(what), None) => write!(f, "{what}, {}", self.place),
            (Does::Noted(what), Some(_)) => f.write_str(what),
            (Does::Switch(what), None) => write!(f, "{what}, {}", self.place),
            (Does::Switch(what), Some(file)) => write!(f, "{what}, claimdb/{file}:{}", self.place.line()),
        }
    }
}
