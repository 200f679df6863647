//! Group commit for engines with one writer: one thread takes all requests that wait into one transaction.

use crate::job::Result;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

/// What a request wants of its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To be inserted if it is absent.
    Claim,
    /// To get its result.
    Store,
}

pub struct Job {
    pub step: Step,
    pub key: String,
    answer: SyncSender<std::result::Result<bool, String>>,
}

/// An engine's one writer.
pub trait Writer: Send + 'static {
    /// Does all of `jobs` in one transaction, which is synced when this returns, and tells of each whether it changed
    /// anything.
    fn commit(&mut self, jobs: &[Job]) -> Result<Vec<bool>>;
}

pub struct Queue {
    sender: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    pub fn new(writer: impl Writer) -> Result<Self> {
        let (sender, receiver) = channel();
        let thread = Builder::new().name("writer".to_owned()).spawn(move || write(writer, &receiver))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    pub fn caller(&self) -> Result<Caller> {
        let sender = self.sender.clone().ok_or("the queue is closed")?;
        let (answer, answers) = sync_channel(1);
        Ok(Caller { sender, answer, answers })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told where its answer was missing.
            let _ = thread.join();
        }
    }
}

fn write(mut writer: impl Writer, receiver: &Receiver<Job>) {
    while let Ok(first) = receiver.recv() {
        let mut jobs = vec![first];
        jobs.extend(receiver.try_iter());
        let done = writer.commit(&jobs).map_err(|error| error.to_string());
        for (number, job) in jobs.iter().enumerate() {
            let answer = done.as_ref().map(|done| done[number]).map_err(Clone::clone);
            // Who has gone away needs no answer.
            let _ = job.answer.send(answer);
        }
    }
}

/// One thread's way to the writer.
pub struct Caller {
    sender: Sender<Job>,
    answer: SyncSender<std::result::Result<bool, String>>,
    answers: Receiver<std::result::Result<bool, String>>,
}

impl Caller {
    pub fn ask(&self, step: Step, key: &str) -> Result<bool> {
        let job = Job { step, key: key.to_owned(), answer: self.answer.clone() };
        self.sender.send(job).map_err(|_| "the writer has ended")?;
        Ok(self.answers.recv()??)
    }
}
