//! Asking a person before something is changed.

use crate::failure::Failure;
use std::io::{self, IsTerminal as _, Write as _};

/// Asks whether to go on with what `doing` names and `change` tells, which needs a terminal.
pub(crate) fn agreed(doing: &str, change: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "{doing}: this asks first, and there is no terminal to ask on; if that is what you want, give --yes"
        )));
    }
    let _ = write!(io::stderr(), "{change} Go on? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::Failed(format!("{doing}: not agreed to; nothing was changed")))
}
