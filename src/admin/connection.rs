//! One who is connected: a request, and its answers.

use super::PROTOCOL;
use super::answer::{Answer, Code};
use super::command::Command;
use super::perform::{Answers, ask};
use super::serve::{Audit, Peer, Server};
use super::wire::{Request, peer, push_line};
use crate::clock::{Moment, expired};
use crate::store::WeakStore;
use rustix::event::PollFlags;
use rustix::process::geteuid;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest request, in bytes.
pub(super) const MAX_REQUEST: usize = 256 << 10;
/// How long one may take for its request, and for taking anything of the answer.
pub(super) const STALL: Duration = Duration::from_secs(5);
/// How long one may take for all.
pub(super) const WHOLE: Duration = Duration::from_secs(60);
/// How much of an answer is held until it is taken.
const HELD: usize = 64 << 10;
/// How many steps an answer makes, and how much is read, before others have their turn.
const STEPS: usize = 256;
const READ_AT_ONCE: usize = 16 << 10;

/// What another user is told.
const NOT_FOR_OTHERS: &str = "this service answers its own user and root alone, and nothing was done; ask as one of them \
                              (runuser -u NAME -- claimdb ...)";

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    GoesOn,
    Ended,
}

pub(super) struct Connection {
    stream: UnixStream,
    peer: Option<Peer>,
    phase: Phase,
    /// Answers that were not taken yet.
    out: Vec<u8>,
    /// Ends it, unless it moves on before.
    stalled_at: Moment,
    ended_at: Moment,
}

enum Phase {
    /// What is there of its request.
    Asking(Vec<u8>),
    Answering {
        command: Command,
        answers: Box<Answers>,
    },
    /// All is said.
    Said,
}

impl Connection {
    /// Takes one on, if it may ask.
    pub(super) fn new(mut stream: UnixStream, now: Moment) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let peer = peer(&stream);
        let us = geteuid().as_raw();
        if peer.is_some_and(|peer| peer.uid != us && peer.uid != 0) {
            // Told without a place among those who are served. A line finds room in a socket in which nothing is yet.
            let mut line = Vec::new();
            push_line(&mut line, &Answer::refused(Code::Failed, NOT_FOR_OTHERS));
            let _ = stream.write(&line);
            return None;
        }
        let phase = Phase::Asking(Vec::new());
        let (stalled_at, ended_at) = (now.after(STALL), now.after(WHOLE));
        Some(Self { stream, peer, phase, out: Vec::new(), stalled_at, ended_at })
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(super) fn waits_for(&self) -> PollFlags {
        match self.phase {
            Phase::Asking(_) => PollFlags::IN,
            Phase::Answering { .. } | Phase::Said => PollFlags::OUT,
        }
    }

    /// Whether there is something to do though nothing has come.
    pub(super) fn has_work(&self) -> bool {
        matches!(self.phase, Phase::Answering { .. }) && self.out.len() < HELD
    }

    /// Whether its request is not there yet.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_))
    }

    /// Gives it as much more time: it was not its own.
    pub(super) fn put_off(&mut self, by: Duration) {
        self.stalled_at = self.stalled_at.after(by);
        self.ended_at = self.ended_at.after(by);
    }

    pub(super) fn refuse_busy(&mut self) {
        self.say(&Answer::refused(Code::Busy, "too many ask this service at once; try again in a moment"));
    }

    /// Goes on as far as it goes without waiting.
    pub(super) fn turn(&mut self, server: &Server, store: &WeakStore, now: Moment) -> Turn {
        if expired(now, self.stalled_at) || expired(now, self.ended_at) {
            return Turn::Ended;
        }
        if self.is_asking() {
            match self.read() {
                Ok(Some(line)) => self.begin(&line, server, store),
                Ok(None) => return Turn::GoesOn,
                Err(_) => return Turn::Ended,
            }
        }
        self.answer(server, store);
        match self.write(now) {
            Ok(()) if self.out.is_empty() && matches!(self.phase, Phase::Said) => Turn::Ended,
            Ok(()) => Turn::GoesOn,
            Err(_) => Turn::Ended, // it is gone
        }
    }

    /// Reads on; gives the request once it is whole, or as much as says that it is too long. What trickles in does not put
    /// the end off.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Phase::Asking(request) = &mut self.phase else { return Ok(None) };
        let mut bytes = [0; READ_AT_ONCE];
        let read = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => &bytes[..read],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let line = read.iter().position(|byte| *byte == b'\n');
        request.extend_from_slice(&read[..line.unwrap_or(read.len())]);
        let whole = line.is_some() || request.len() > MAX_REQUEST;
        Ok(whole.then(|| std::mem::take(request)))
    }

    fn begin(&mut self, line: &[u8], server: &Server, store: &WeakStore) {
        match (understood(line), store.get()) {
            (Ok(command), Some(store)) => {
                let answers = ask(&store, command.clone()).with_backups(server.backups.clone());
                self.phase = Phase::Answering { command, answers: Box::new(answers) };
            }
            (Ok(_), None) => self.say(&Answer::refused(Code::Failed, "the store is closed; open it again")),
            (Err(refused), _) => self.say(&refused),
        }
    }

    /// Makes steps of the answer, until enough is held.
    fn answer(&mut self, server: &Server, store: &WeakStore) {
        for _ in 0..STEPS {
            let Phase::Answering { command, answers } = &mut self.phase else { return };
            if self.out.len() >= HELD {
                return;
            }
            match answers.next() {
                Some(None) => {}
                Some(Some(answer)) => {
                    if command.changes() && answer.is_last() {
                        let change = Audit { peer: self.peer, command, answer: &answer };
                        if let Some(store) = store.get() {
                            store.changed_over_socket(&change);
                        }
                        if let Some(record) = &server.recorder {
                            record(&change);
                        }
                    }
                    if answer.is_last() {
                        self.say(&answer);
                    } else {
                        push_line(&mut self.out, &answer);
                    }
                }
                None => self.phase = Phase::Said,
            }
        }
    }

    /// Puts the last answer behind those that are held. The store is not kept any longer.
    fn say(&mut self, answer: &Answer) {
        push_line(&mut self.out, answer);
        self.phase = Phase::Said;
    }

    fn write(&mut self, now: Moment) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.out.drain(..written);
                    self.stalled_at = now.after(STALL);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The command in a request, or why there is none.
fn understood(line: &[u8]) -> Result<Command, Answer> {
    let invalid = |why: String| Answer::refused(Code::Invalid, format!("reading a request: {why}"));
    if line.len() > MAX_REQUEST {
        return Err(invalid(format!(
            "it is longer than {MAX_REQUEST} bytes; a value this long is given with the service stopped"
        )));
    }
    let request: Request<'_> = serde_json::from_slice(line).map_err(|error| invalid(error.to_string()))?;
    if request.claimdb_admin != PROTOCOL {
        let (found, here) = (request.claimdb_admin, PROTOCOL);
        let why = format!(
            "reading a request: it has version {found}, and this service speaks {here}; use its claimdb"
        );
        return Err(Answer::refused(Code::Version, why));
    }
    let ask = request.ask.ok_or_else(|| invalid("it asks nothing".to_owned()))?;
    serde_json::from_str(ask.get()).map_err(|error| invalid(error.to_string()))
}
