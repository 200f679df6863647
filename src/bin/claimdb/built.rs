//! With which features this claimdb was built, and what to say where it lacks one.

#[cfg(not(feature = "explore"))]
use crate::failure::Failure;
use crate::failure::lacks;
use clap::ValueEnum;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use std::ffi::OsStr;

macro_rules! version {
    ($features:literal) => {
        concat!(env!("CARGO_PKG_VERSION"), "\nfeatures: ", $features)
    };
}

/// For `--version`: `-V` has the number alone.
pub(crate) const LONG_VERSION: &str = match (cfg!(feature = "explore"), cfg!(feature = "redb")) {
    (true, true) => version!("cli, explore, redb, sled"),
    (true, false) => version!("cli, explore, sled"),
    (false, true) => version!("cli, redb, sled"),
    (false, false) => version!("cli, sled"),
};

/// Takes the names of storage engines. One that was left out of the build is told as that, and not as a wrong name.
#[derive(Debug, Clone)]
pub(crate) struct EngineNames<T: ValueEnum + Clone + Send + Sync + 'static>(EnumValueParser<T>);

impl<T: ValueEnum + Clone + Send + Sync + 'static> EngineNames<T> {
    pub(crate) fn new() -> Self {
        Self(EnumValueParser::new())
    }
}

impl<T: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for EngineNames<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, given: &OsStr) -> Result<T, clap::Error> {
        if given == "redb" && !cfg!(feature = "redb") {
            let text = format!("choosing the storage engine redb: {}", lacks("redb"));
            return Err(command.clone().error(ErrorKind::InvalidValue, text));
        }
        self.0.parse_ref(command, arg, given)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// See how two retries both charge a card: not in this build
#[cfg(not(feature = "explore"))]
#[derive(Debug, clap::Args)]
#[command(hide = true, disable_help_flag = true)]
pub(crate) struct Explore {
    /// Whatever it was to explore
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    given: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "explore"))]
pub(crate) fn explore(_: &Explore) -> Result<(), Failure> {
    Err(Failure::Usage(format!("exploring: {}", lacks("explore"))))
}
