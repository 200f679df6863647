//! Why a command did not do what it was asked, and its exit code.

use claimdb::admin::NO_SUCH_KEY;
use claimdb::{ClaimError, CopyError, OpenError, RetryCause, SettleError};
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// For `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  used wrongly
  3  the store is locked by another process
  4  the store is damaged
  5  a promise is broken (explore)
  6  there is no such key
  7  the key's state does not allow it";

/// That this build lacks a feature, and how to come by one that has it.
pub(crate) fn lacks(feature: &str) -> String {
    format!(
        "this claimdb was built without the feature {feature}; install one that has all, from its \
         sources: cargo install --path . --features cli,redb,explore"
    )
}

/// What went wrong, in words for a person, by what a script may want to do about it.
#[derive(Debug)]
pub(crate) enum Failure {
    Failed(String),
    /// Only what clap cannot see: it ends the process itself on the rest.
    Usage(String),
    Locked(String),
    Damaged(String),
    #[cfg(feature = "explore")]
    Broken(String),
    NoSuchKey(String),
    State(String),
    /// No failure: nobody reads on, so nothing more is looked for.
    Unread,
}

impl Failure {
    /// `doing` says what was tried on what, `error` what went wrong, `advice` what to do.
    pub(crate) fn failed(doing: impl Display, error: impl Display, advice: &str) -> Self {
        Self::Failed(format!("{doing}: {error}; {advice}"))
    }

    /// `if_locked` says what to do if another process has the store open, and names no option that the command lacks.
    pub(crate) fn opening(error: &OpenError, if_locked: &str) -> Self {
        match error {
            OpenError::Locked { place, holder } => Self::Locked(format!(
                "opening the store {place}: it is locked by another process{holder}; {if_locked}"
            )),
            OpenError::OtherEngine { place, found, .. } if found == "redb" && !cfg!(feature = "redb") => {
                let lacks = lacks("redb");
                Self::Failed(format!("opening the store {place}: it was made with redb, and {lacks}"))
            }
            OpenError::Damaged { .. } | OpenError::UnfinishedCopy { .. } => Self::Damaged(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }

    pub(crate) fn copying(error: &CopyError) -> Self {
        match error {
            CopyError::Open(error) => Self::opening(error, "wait until that has ended, or stop it first"),
            CopyError::InStore { .. } => Self::Usage(error.to_string()),
            error if error.is_damage() => Self::Damaged(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }

    /// `doing` says what was tried, and on which key.
    pub(crate) fn no_such_key(doing: impl Display) -> Self {
        Self::NoSuchKey(format!("{doing}: {NO_SUCH_KEY}"))
    }

    pub(crate) fn claiming(line: u64, error: &ClaimError) -> Self {
        let text = format!("line {line}: {error}");
        match error {
            ClaimError::Failed { fault, .. } if fault.is_damage() => Self::Damaged(text),
            _ => Self::Failed(text),
        }
    }

    /// Of claims whose lines are out.
    pub(crate) fn completing(error: &SettleError) -> Self {
        let text = format!(
            "recording the lines of the last batch: {error}; they were written, and running again can write them again"
        );
        match error {
            SettleError::Retry(retry) if matches!(&retry.cause, RetryCause::Fault(fault) if fault.is_damage()) => {
                Self::Damaged(text)
            }
            _ => Self::Failed(text),
        }
    }

    /// With what was to be done, where it failed at what comes before that.
    pub(crate) fn before(mut self, doing: &str) -> Self {
        let text = match &mut self {
            Self::Failed(text)
            | Self::Usage(text)
            | Self::Locked(text)
            | Self::Damaged(text)
            | Self::NoSuchKey(text)
            | Self::State(text) => text,
            #[cfg(feature = "explore")]
            Self::Broken(text) => text,
            Self::Unread => return self,
        };
        // A name that is none is told as what the look was told.
        *text = format!("{doing} a key: {}", text.strip_prefix("inspecting a key: ").unwrap_or(text));
        self
    }

    /// Tells it and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, text) = match self {
            Self::Failed(text) => (1, text),
            Self::Usage(text) => (2, text),
            Self::Locked(text) => (3, text),
            Self::Damaged(text) => (4, text),
            #[cfg(feature = "explore")]
            Self::Broken(text) => (5, text),
            Self::NoSuchKey(text) => (6, text),
            Self::State(text) => (7, text),
            Self::Unread => return ExitCode::SUCCESS,
        };
        // With standard error gone there is nobody left to tell; the exit code still does.
        let _ = writeln!(std::io::stderr(), "error: {text}");
        ExitCode::from(code)
    }
}
