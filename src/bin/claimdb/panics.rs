//! Panics of the storage engines, which are no news where they are caught.

use crate::failure::Failure;
use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// Does the work of a command. A storage engine panics over a page that it cannot read; claimdb catches that, at each try, and
/// tells it as damage, so that what the engine itself says of it is left out. All other panics are told where they happen. One
/// that nobody has caught ends the command as a failure.
pub(crate) fn told(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // By the folders in which cargo puts what comes from a registry: a location has a path, and no crate's name. Of an engine
        // that lies elsewhere, such as one that is vendored, the panics are told, beside the error.
        let of_engine = |file: &str| file.contains("/sled-0.") || file.contains("/redb-4.");
        if !panic.location().is_some_and(|at| of_engine(at.file())) {
            tell(panic);
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Failure::failed(
            "running the command",
            format_args!("it panicked: {}", text(&*panic)),
            "report this",
        ))
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
