//! What was told of plain values, and how much was told in all.

use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub completions: u64,
    pub failures: u64,
    pub grants: u64,
    pub openings: u64,
    pub sweeps: u64,
    /// How often a settle told in an earlier opening was found again with its bytes.
    pub settles_found: u64,
    /// How often a durable grant told in an earlier opening was granted again as the next attempt.
    pub grants_found: u64,
    pub effects_found: u64,
    pub checkpoints_found: u64,
    pub values_found: u64,
    /// What was told in an earlier opening and not found as told.
    pub lost: u64,
    /// How many values of each class of length were told.
    pub lengths: [u64; 6],
    /// The longest that a child told nothing, an opening or a sync for the most part.
    pub silence: Duration,
}

/// The ends of the classes of lengths.
pub const CLASSES: [usize; 6] = [64, 1_000, 4 << 10, 64 << 10, 256 << 10, 1 << 20];

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.completions += other.completions;
        self.failures += other.failures;
        self.grants += other.grants;
        self.openings += other.openings;
        self.sweeps += other.sweeps;
        self.settles_found += other.settles_found;
        self.grants_found += other.grants_found;
        self.effects_found += other.effects_found;
        self.checkpoints_found += other.checkpoints_found;
        self.values_found += other.values_found;
        self.lost += other.lost;
        self.silence = self.silence.max(other.silence);
        for (count, more) in self.lengths.iter_mut().zip(other.lengths) {
            *count += more;
        }
    }

    pub fn length(&mut self, length: usize) {
        let class = CLASSES.iter().position(|end| length <= *end).unwrap_or(CLASSES.len() - 1);
        self.lengths[class] += 1;
    }

    /// What was told and found, for people; an error if that is too little to mean anything.
    pub fn summary(&self, crashes: u64) -> Result<String, String> {
        let Self { completions, failures, grants, openings, sweeps, lost, lengths, silence, .. } = self;
        let found = [
            self.settles_found,
            self.grants_found,
            self.effects_found,
            self.checkpoints_found,
            self.values_found,
        ];
        let [settles_found, grants_found, effects_found, checkpoints_found, values_found] = found;
        let text = format!(
            "{openings} openings, {sweeps} sweeps; told {completions} completions and {failures} failures (of up to \
             {CLASSES:?} bytes: {lengths:?}) and {grants} grants; found again {settles_found} settles, {grants_found} \
             grants, {effects_found} effects, {checkpoints_found} checkpoints, {values_found} values; the longest silence \
             {silence:.1?}; lost {lost}"
        );
        // A run that had nothing to lose shows nothing.
        let few =
            found[..3].iter().any(|found| *found < crashes) || found.contains(&0) || lengths.contains(&0);
        if few {
            Err(format!("too little was told and looked for again to mean anything: {text}"))
        } else {
            Ok(text)
        }
    }
}

/// The plain values that the children wrote.
#[derive(Debug, Default)]
pub struct Values(BTreeMap<String, Value>);

#[derive(Debug, Default)]
struct Value {
    /// The stamp of what was told last; zero for none.
    now: u64,
    /// That of a write that was begun and not told.
    begun: Option<u64>,
    told_in: u32,
    seen_in: u32,
}

impl Values {
    pub fn begun(&mut self, key: &str, stamp: u64) {
        self.0.entry(key.to_owned()).or_default().begun = Some(stamp);
    }

    pub fn told(&mut self, key: &str, stamp: u64, round: u32) {
        let value = self.0.entry(key.to_owned()).or_default();
        (value.now, value.begun, value.told_in) = (stamp, None, round);
    }

    /// What a reader found; the promise that this breaks, if it does.
    pub fn found(
        &mut self,
        key: &str,
        stamp: u64,
        same: bool,
        round: u32,
        counts: &mut Counts,
    ) -> Option<String> {
        let value = self.0.entry(key.to_owned()).or_default();
        let (now, begun, told_in) = (value.now, value.begun, value.told_in);
        let fits = same && (stamp == now || Some(stamp) == begun);
        counts.values_found += u64::from(fits && stamp != 0 && stamp == now && told_in < round);
        counts.lost += u64::from(!fits && told_in < round);
        *value = Value { now: stamp, begun: None, told_in: round, seen_in: round };
        (!fits).then(|| {
            format!(
                "P4 durable before told: round {round}: the value {key}, told in round {told_in} as {now}, is {stamp}"
            )
        })
    }

    pub fn told_of(&self) -> u64 {
        self.0.values().map(|value| u64::from(value.now != 0 && value.begun.is_none())).sum()
    }

    /// Those that nobody has looked at in `round`.
    pub fn unseen(&self, round: u32) -> Option<&String> {
        self.0.iter().find(|(_, value)| value.seen_in != round).map(|(key, _)| key)
    }
}
