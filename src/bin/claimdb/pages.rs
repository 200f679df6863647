//! `claimdb completions` and `claimdb man`: what a shell and a manual are told of the others.

use crate::failure::Failure;
use crate::out::{write, write_done};
use crate::place;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Write a completion script for a shell
///
/// To standard output; where a shell looks for it is in its manual.
#[derive(Debug, clap::Args)]
#[command(after_long_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  For bash and for fish, for oneself:
    claimdb completions bash > ~/.local/share/bash-completion/completions/claimdb
    claimdb completions fish > ~/.config/fish/completions/claimdb.fish";

/// Write the manual page of claimdb, or of one of its commands
///
/// To standard output, in roff, as man(1) reads it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MAN)]
pub(crate) struct Man {
    /// The command; without it, claimdb itself
    #[arg(value_name = "COMMAND", conflicts_with = "into")]
    command: Option<String>,

    /// Write the pages of claimdb and of all its commands into this folder, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

const MAN: &str = "\
Examples:
  Read a page:
    claimdb man release | man -l -

  Install all of them:
    claimdb man --into /usr/local/share/man/man1";

pub(crate) fn complete(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "claimdb", &mut script);
    write(&script)
}

pub(crate) fn man(args: &Man) -> Result<(), Failure> {
    let mut whole = crate::Cli::command().disable_help_subcommand(true);
    whole.build();
    let commands = || whole.get_subcommands().filter(|command| !command.is_hide_set());
    if let Some(folder) = &args.into {
        place::is_outside_stores("writing manual pages into", &folder.join("claimdb.1"), None)?;
        fs::create_dir_all(folder).map_err(|error| not_written(folder, &error))?;
        let mut written = 0;
        for command in std::iter::once(&whole).chain(commands()) {
            let name = if command.get_name() == "claimdb" {
                "claimdb".to_owned()
            } else {
                format!("claimdb-{}", command.get_name())
            };
            write_page(command, &folder.join(format!("{name}.1")))?;
            written += 1;
        }
        return write_done(format_args!("{written} pages written into {}", folder.display()));
    }
    let command = match &args.command {
        None => &whole,
        Some(name) => whole.find_subcommand(name).ok_or_else(|| {
            let names: Vec<_> = commands().map(Command::get_name).collect();
            Failure::Usage(format!(
                "writing a manual page: there is no command {name:?}; there are {}",
                names.join(", ")
            ))
        })?,
    };
    write(&page(command)?)
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    // By itself it would name the command alone there, and no version.
    let source = concat!("claimdb ", env!("CARGO_PKG_VERSION"));
    let rendered = clap_mangen::Man::new(command.clone()).source(source).render(&mut page);
    rendered.map_err(|error| Failure::failed("writing a manual page", error, "report this"))?;
    Ok(page)
}

fn write_page(command: &Command, file: &Path) -> Result<(), Failure> {
    place::write_file(file, &page(command)?).map_err(|error| not_written(file, &error))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(
        format_args!("writing {}", path.display()),
        error,
        "give --into a folder that can be written",
    )
}
