//! What is checked out, as `benches/commit.sh` tells.

use std::process::Command;

pub fn commit() -> String {
    // Of the package that is built, which is claimdb's or one within it.
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let told = here.ancestors().map(|folder| folder.join("benches/commit.sh")).find(|script| script.exists());
    let output = told.and_then(|script| Command::new(script).output().ok());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
