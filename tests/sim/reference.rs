//! What a store is, told in the plainest way: each key a state, each operation a step. What may come about in more
//! than one way (a crash, an answer that was never told) leaves a set of states.

/// Where one key stands. Times are in seconds; `was` is what a power cut may bring back.
#[rustfmt::skip]
#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    Absent { was: Option<Box<Key>> },
    /// Token 0 stands for one that nobody was told.
    Claimed { token: u64, work: u8, stored: bool, quarantine: bool, until: u64, was: Option<Box<Key>> },
    Interrupted { token: u64, work: u8 },
    Settled { token: u64, work: u8, value: String, until: u64, relaxed: bool, was: Option<Box<Key>> },
    /// A plain value, behind those that it may be after a power cut.
    Value(Vec<Option<String>>),
}

/// `by` is when it was answered at the latest; `until` when a record of it may be forgotten at the soonest.
#[rustfmt::skip]
#[derive(Debug, Clone)]
pub enum Op {
    Claim { work: u8, stored: bool, quarantine: bool, by: u64, until: u64 },
    Settle { token: u64, value: String, until: u64, relaxed: bool, by: u64 },
    Release { token: u64, by: u64 },
    Renew { token: u64 },
    /// Saving progress.
    Save { token: u64 },
    Drop { token: u64 },
    Get { by: u64 },
    Remove { force: bool, by: u64 },
    Resolve { token: u64 },
    PowerCut,
    Reopen,
    Put {
        value: Option<String>,
        relaxed: bool,
    },
    Read,
    Swap(Option<String>, Option<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Ret {
    Granted(u64),
    Settled(u64, String),
    InFlight,
    Mismatched,
    Interrupted(u64),
    Done,
    Refused,
    Nothing,
    Value(Option<String>),
    /// It was never told, or what was told leaves open whether it was done.
    Unclear,
}

/// The states in which a key may be.
#[derive(Debug, Clone)]
pub struct Reference(pub Vec<Key>);

impl Reference {
    /// Goes on by one operation and its answer; whether that can have been.
    pub fn goes_on(&mut self, op: &Op, ret: &Ret) -> bool {
        let mut next: Vec<Key> = Vec::new();
        for state in self.0.iter().flat_map(|key| step(key, op, ret)) {
            if !next.contains(&state) {
                next.push(state);
            }
        }
        self.0 = next;
        !self.0.is_empty()
    }
}

/// Where `key` may stand after `op` was answered with `ret`; nowhere if it cannot have been.
#[rustfmt::skip]
fn step(key: &Key, op: &Op, ret: &Ret) -> Vec<Key> {
    use Key::{Absent, Claimed, Interrupted, Settled, Value};
    let same = || vec![key.clone()];
    let when = |may: bool, next: Key| if may { vec![next] } else { Vec::new() };
    let both = |may: bool, next: Key| if may { vec![key.clone(), next] } else { same() };
    let now = || match key { Value(values) => values.last().unwrap_or(&None), _ => &None };
    match (op, ret) {
        (Op::Claim { work, stored, quarantine, by, until }, ret) => {
            let gone = is_gone(key, *by);
            let mine = match key { Claimed { work: w, .. } | Interrupted { work: w, .. } | Settled { work: w, .. } => w == work, _ => false };
            let (free, over) = match key {
                Claimed { token, work: w, stored: s, quarantine: q, .. } => (gone || !s || (w == work && (*token == 0 || !q && !quarantine)), *s && w == work),
                Absent { .. } => (true, false),
                _ => (gone, false),
            };
            let claimed = |token, over| Claimed { token, work: *work, stored: *stored || over, quarantine: *quarantine, until: *until, was: below(key) };
            let interrupts = |t: u64| match key { Interrupted { token, .. } => *token == t || *token == 0 || t == 0, Claimed { token, stored: true, quarantine: q, .. } => (*token == t || *token == 0 || t == 0) && (*q || *quarantine), _ => false };
            match ret {
                Ret::Granted(token) if free && over && gone => vec![claimed(*token, false), claimed(*token, true)],
                Ret::Granted(token) => when(free, claimed(*token, over)),
                Ret::Settled(t, v) => when(matches!(key, Settled { token, value, .. } if token == t && value == v) && mine, key.clone()),
                Ret::InFlight => same(),
                Ret::Mismatched => when(!mine && !matches!(key, Absent { .. }), key.clone()),
                Ret::Interrupted(t) => when(mine && interrupts(*t), Interrupted { token: *t, work: *work }),
                _ if mine && interrupts(0) => {
                    let mut may = vec![key.clone(), Interrupted { token: token_of(key), work: *work }];
                    may.extend(gone.then(|| claimed(0, false)));
                    may
                }
                _ => both(free, claimed(0, over)),
            }
        }
        (Op::Settle { token: t, value: v, until, relaxed, by }, ret) => {
            let (may, work) = match key {
                Claimed { token, work, .. } | Interrupted { token, work } => (token == t, *work),
                Settled { token, work, value, .. } => (token == t && value == v, *work),
                _ => (false, 0),
            };
            let next = Settled { token: *t, work, value: v.clone(), until: *until, relaxed: *relaxed, was: below(key) };
            let next = if matches!(key, Settled { .. }) { key.clone() } else { next };
            match ret { Ret::Done => when(may, next), Ret::Refused => when(!may || is_gone(key, *by), key.clone()), _ => both(may, next) }
        }
        (Op::Release { token: t, by }, ret) => {
            let may = matches!(key, Claimed { token, .. } if token == t);
            let was = below(key);
            // One in memory is told that it is lost once another is on its way to the key, and has ended then.
            let lost = matches!(key, Claimed { stored: false, .. });
            match ret {
                Ret::Done => when(may, Absent { was }),
                Ret::Refused if may && lost => vec![Absent { was }],
                Ret::Refused => when(!may || is_gone(key, *by), key.clone()),
                _ => both(may, Absent { was }),
            }
        }
        // The lease is in memory, and is there yet if a completion has landed and could not be told.
        (Op::Renew { token: t }, Ret::Done) => when(matches!(key, Claimed { token, .. } | Settled { token, .. } if token == t), key.clone()),
        (Op::Save { token: t }, Ret::Done) => when(matches!(key, Claimed { token, .. } if token == t), key.clone()),
        (Op::Drop { token: t }, _) => match key { Claimed { token, stored: false, was, .. } if token == t => vec![Absent { was: was.clone() }], _ => same() },
        (Op::Get { .. }, Ret::Settled(t, v)) => when(matches!(key, Settled { token, value, .. } if token == t && value == v), key.clone()),
        (Op::Get { by }, Ret::Nothing) => when(!matches!(key, Settled { .. }) || is_gone(key, *by), key.clone()),
        (Op::Remove { force, by }, ret) => {
            let there = matches!(key, Settled { .. } | Interrupted { .. } | Claimed { stored: true, .. });
            match ret {
                // A claim in memory is fenced, and what a power cut may bring back is not looked at.
                Ret::Done => when(there || *force, Absent { was: if there { None } else { below(key) } }),
                Ret::Nothing => when(!there || is_gone(key, *by), key.clone()),
                Ret::InFlight => same(),
                _ => both(true, Absent { was: None }),
            }
        }
        (Op::Resolve { token: t }, ret) => {
            let may = matches!(key, Interrupted { token, .. } if token == t);
            match ret { Ret::Done => when(may, Absent { was: None }), Ret::Nothing => when(!may, key.clone()), _ => both(may, Absent { was: None }) }
        }
        (Op::Reopen, _) => match key { Claimed { stored: false, .. } => vec![Absent { was: None }], _ => same() },
        (Op::PowerCut, _) => {
            let gone = |was: &Option<Box<Key>>| [Absent { was: None }].into_iter().chain(was.as_deref().cloned());
            match key {
                Absent { was } | Claimed { stored: false, was, .. } => gone(was).collect(),
                Settled { relaxed: true, was, .. } | Claimed { token: 0, was, .. } => gone(was).chain(same()).collect(),
                Value(values) => values.iter().map(|value| Value(vec![value.clone()])).collect(),
                _ => same(),
            }
        }
        (Op::Put { value, relaxed }, ret) => {
            let mut values = match key { Value(values) if *relaxed => values.clone(), _ => Vec::new() };
            values.push(value.clone());
            match ret { Ret::Done => vec![Value(values)], Ret::Refused => same(), _ => both(true, Value(values)) }
        }
        (Op::Read, Ret::Value(told)) => when(now() == told, key.clone()),
        (Op::Swap(old, new), Ret::Done) => when(now() == old, Value(vec![new.clone()])),
        (Op::Swap(old, _), Ret::Value(told)) => when(now() == told && told != old, key.clone()),
        (Op::Swap(old, new), _) => both(now() == old, Value(vec![new.clone()])),
        _ => same(),
    }
}

fn token_of(key: &Key) -> u64 {
    match key {
        Key::Claimed { token, .. } | Key::Interrupted { token, .. } | Key::Settled { token, .. } => *token,
        _ => 0,
    }
}

/// What is stored and synced under it.
fn below(key: &Key) -> Option<Box<Key>> {
    match key {
        Key::Absent { was }
        | Key::Claimed { stored: false, was, .. }
        | Key::Settled { relaxed: true, was, .. } => was.clone(),
        _ => Some(Box::new(key.clone())),
    }
}

/// Whether what is kept of it may be forgotten or swept by that time.
fn is_gone(key: &Key, by: u64) -> bool {
    match key {
        Key::Claimed { until, .. } | Key::Settled { until, .. } => by >= *until,
        _ => false,
    }
}
