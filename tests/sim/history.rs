//! The history of each key, judged by stateright's linearizability tester against the reference.

use super::program::{KEYS, VALUES};
use super::reference::{Key, Op, Reference, Ret};
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

impl SequentialSpec for Reference {
    type Op = Op;
    type Ret = Ret;

    fn invoke(&mut self, op: &Op) -> Ret {
        self.is_valid_step(op, &Ret::Unclear);
        Ret::Unclear
    }

    fn is_valid_step(&mut self, op: &Op, ret: &Ret) -> bool {
        self.goes_on(op, ret)
    }
}

/// What an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Key(u8),
    Value(u8),
}

impl On {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..KEYS).map(Self::Key).chain((0..VALUES).map(Self::Value))
    }
}

/// One operation on one key.
#[derive(Debug, Clone)]
pub struct Event {
    pub call: usize,
    pub on: On,
    pub op: Op,
    pub begun: u64,
    /// When it was answered, and what; `None` if it never was, or it is unclear whether it was done.
    pub ended: Option<(u64, Ret)>,
}

impl Event {
    /// The clock showed `high` at most when it was answered.
    pub fn answered_by(&mut self, high: u64) {
        if let Op::Claim { by, .. }
        | Op::Get { by }
        | Op::Remove { by, .. }
        | Op::Settle { by, .. }
        | Op::Release { by, .. } = &mut self.op
        {
            *by = high;
        }
    }
}

/// Judges all that was done to `on`.
pub fn judge(events: &[Event], on: On) {
    let here: Vec<&Event> = events.iter().filter(|event| event.on == on).collect();
    let start = match on {
        On::Key(_) => Key::Absent { was: None },
        On::Value(_) => Key::Value(vec![None]),
    };
    let mut tester = LinearizabilityTester::new(Reference(vec![start]));
    let mut moments: Vec<(u64, usize, bool)> = Vec::new();
    for (number, event) in here.iter().enumerate() {
        moments.push((event.begun, number, false));
        moments.extend(event.ended.iter().map(|(ended, _)| (*ended, number, true)));
    }
    moments.sort_unstable();
    // The tester wants threads that do one thing at a time; whoever is free does the next. One whose call was never
    // answered does nothing any more.
    let (mut threads, mut idle) = (0_usize, Vec::new());
    let mut by = vec![0; here.len()];
    for (_, number, ends) in moments {
        let event = here[number];
        if ends {
            let ret = event.ended.as_ref().map_or(Ret::Unclear, |(_, ret)| ret.clone());
            tester.on_return(by[number], ret).expect("it was begun");
            idle.push(by[number]);
        } else {
            by[number] = idle.pop().unwrap_or_else(|| {
                threads += 1;
                threads
            });
            tester.on_invoke(by[number], event.op.clone()).expect("the thread is idle");
        }
    }
    if tester.serialized_history().is_none() {
        let lines = lines(here.into_iter());
        panic!("linearizable: no order of what was told of {on:?} is that of one key:{lines}");
    }
}

/// A line for each, for messages.
pub fn lines<'a>(events: impl Iterator<Item = &'a Event>) -> String {
    events.map(|event| format!("\n  {event:?}")).collect()
}
