//! Asking a store that nobody has open, or the service that has it open: the same commands, the same answers.

use crate::failure::Failure;
use crate::out::note;
use claimdb::admin::{self, Answer, Client, ClientError, Code, Command, KeyName};
use claimdb::{Builder, Store, backend};
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// After how long without an answer a person is told what is waited for.
const SLOW: Duration = Duration::from_secs(3);

/// Where to ask.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Place {
    /// The folder of a store that no process has open
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,

    /// The admin socket of the service that has the store open
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

/// Which key.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,

    /// Its scope, if it has one
    #[arg(long, value_name = "SCOPE")]
    scope: Option<OsString>,

    /// KEY and SCOPE are given in hex: two digits for each byte
    #[arg(long)]
    hex: bool,
}

impl KeyArgs {
    pub(crate) fn name(&self) -> Result<KeyName, Failure> {
        let scope = self.scope.as_ref().map(|scope| bytes_of(scope, self.hex, "--scope")).transpose()?;
        Ok(KeyName::new(&scope.unwrap_or_default(), &name_of(&self.key, self.hex, "KEY")?))
    }
}

/// The bytes of a key that an argument names. Whoever gives what stands for a key would be told that it is free.
pub(crate) fn name_of(given: &OsString, hex: bool, what: &str) -> Result<Vec<u8>, Failure> {
    let hash = given.to_str().filter(|_| !hex).and_then(|given| given.strip_prefix("key#"));
    if hash.is_some_and(|hash| hash.len() == 12 && hash.bytes().all(|digit| digit.is_ascii_hexdigit())) {
        return Err(Failure::Usage(format!(
            "reading {what}: {} stands for a key, and is none; claimdb list --show-keys shows the keys themselves. One that is \
             really called so is given with --hex",
            given.display()
        )));
    }
    bytes_of(given, hex, what)
}

/// The bytes that an argument stands for.
pub(crate) fn bytes_of(given: &OsString, hex: bool, what: &str) -> Result<Vec<u8>, Failure> {
    if !hex {
        return Ok(given.clone().into_vec());
    }
    let bytes = given.to_str().ok_or_else(|| "it is not hex".to_owned()).and_then(admin::from_hex);
    bytes.map_err(|why| Failure::Usage(format!("reading {what} with --hex: {why}")))
}

impl Place {
    /// Asks, shows `tell` each answer but the last, and gives that, which may be that it was refused. A store that nobody
    /// has open is opened for a change only if the command makes one.
    pub(crate) fn ask(
        &self,
        command: &Command,
        tell: &mut dyn FnMut(Answer) -> Result<(), Failure>,
    ) -> Result<Answer, Failure> {
        match (&self.store, &self.socket) {
            (Some(folder), _) => ask_folder(folder, ASK_IT, command, tell),
            (None, Some(socket)) => {
                let mut waiting = tell_if_slow(socket);
                let client = Client::connect(socket).map_err(|error| failed(&error))?;
                let answers = client.ask(command).map_err(|error| failed(&error))?;
                let answers = answers.inspect(|_| waiting = None);
                last_of(answers.map(|answer| answer.map_err(|error| failed(&error))), tell)
            }
            (None, None) => {
                Err(Failure::Usage("asking a store: give --store DIR or --socket SOCKET".to_owned()))
            }
        }
    }

    /// Asks what has one answer.
    pub(crate) fn ask_once(&self, command: &Command) -> Result<Answer, Failure> {
        self.ask(command, &mut |_| Ok(())).and_then(not_refused)
    }

    /// The folder, if the store is not a service's.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.store.as_deref()
    }
}

/// Asks the store in `folder`, which no process may have open; `if_locked` says what to do if one has.
pub(crate) fn ask_in(
    folder: &Path,
    if_locked: &str,
    command: &Command,
    tell: &mut dyn FnMut(Answer) -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    ask_folder(folder, if_locked, command, tell).and_then(not_refused)
}

fn ask_folder(
    folder: &Path,
    if_locked: &str,
    command: &Command,
    tell: &mut dyn FnMut(Answer) -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    let opened = if command.changes() { opened_to_change } else { opened_to_look };
    let store = opened(folder, if_locked)?;
    let answers = admin::ask(&store, command.clone()).flatten().map(Ok);
    let last = last_of(answers, tell)?;
    if !matches!(last, Answer::Refused { .. }) {
        closed(&store)?;
    }
    // What an opening has done that was made for this says nothing.
    Ok(match last {
        Answer::Stats { stored, .. } => Answer::Stats { opening: None, stored },
        other => other,
    })
}

fn last_of(
    answers: impl Iterator<Item = Result<Answer, Failure>>,
    tell: &mut dyn FnMut(Answer) -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    for answer in answers {
        match answer? {
            last if last.is_last() => return Ok(last),
            answer => tell(answer)?,
        }
    }
    Err(Failure::failed("asking a store", "it gave no last answer", "report this"))
}

fn not_refused(last: Answer) -> Result<Answer, Failure> {
    match last {
        Answer::Refused { code, message } => Err(refused(code, message)),
        last => Ok(last),
    }
}

pub(crate) fn refused(code: Code, message: String) -> Failure {
    match code {
        Code::Invalid => Failure::Usage(message),
        Code::NoSuchKey => Failure::NoSuchKey(message),
        Code::State => Failure::State(message),
        Code::Damaged => Failure::Damaged(format!("{message}. claimdb verify tells what else is damaged")),
        _ => Failure::Failed(message),
    }
}

/// Tells a person who waits for the service's first answer why nothing comes, until what this gives is dropped.
fn tell_if_slow(socket: &Path) -> Option<Sender<()>> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let (waiting, ended) = channel();
    let socket = socket.display().to_string();
    // Without a thread it is not told, and no less done.
    let started = thread::Builder::new().spawn(move || {
        if ended.recv_timeout(SLOW) == Err(RecvTimeoutError::Timeout) {
            note(format_args!(
                "waiting for the service at {socket}, which has not answered yet: it may be making a backup, be busy with \
                 what another asked for, or be stopped"
            ));
        }
    });
    started.is_ok().then_some(waiting)
}

fn failed(error: &ClientError) -> Failure {
    Failure::Failed(error.to_string())
}

/// What to do if another process has the store open: for commands that have a [`Place`].
pub(crate) const ASK_IT: &str =
    "ask that process itself over its admin socket, if it serves one (--socket SOCKET), or stop it first";

/// A store that is looked at: nothing in it changes. `if_locked` says what to do if another process has it open.
pub(crate) fn opened_to_look(folder: &Path, if_locked: &str) -> Result<Store, Failure> {
    open(folder, if_locked, Builder::read_only)
}

/// A store in which something is to be changed. Nothing else goes on in it.
pub(crate) fn opened_to_change(folder: &Path, if_locked: &str) -> Result<Store, Failure> {
    open(folder, if_locked, |builder| builder.sweep_every(Duration::ZERO))
}

fn open(folder: &Path, if_locked: &str, settings: impl FnOnce(Builder) -> Builder) -> Result<Store, Failure> {
    let opened = settings(Store::builder(backend::existing(folder))).open();
    opened.map_err(|error| Failure::opening(&error, if_locked))
}

pub(crate) fn closed(store: &Store) -> Result<(), Failure> {
    store.close().map_err(|error| Failure::failed("ending", error, "what was told before is done"))
}

/// What an answer should not be.
pub(crate) fn unexpected(answer: &Answer) -> Failure {
    Failure::failed(
        "asking a store",
        format_args!("it answered {answer:?}"),
        "use the claimdb of the service",
    )
}
