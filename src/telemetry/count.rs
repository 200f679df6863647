//! What is counted: for [`Store::stats`](crate::Store::stats) always, and with the feature `metrics` for whatever recorder
//! was installed when the store was opened.
//!
//! A recorder is looked up once, when the store opens, and asked for a handle to each metric; after that an event costs a
//! call of its handle. With none installed, or without the feature, there is nothing to call.

use crate::sync::{Counter, Level};
use std::sync::Arc;
use std::time::Duration;

/// The label that tells stores of one process apart.
#[cfg(feature = "metrics")]
const STORE: &str = "store";

/// Asks the recorder for the metrics of one store.
pub(super) struct Meter<'a> {
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(super) store: &'a Arc<str>,
}

/// What a metric is measured in.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code))]
pub(super) enum Unit {
    Count,
    Seconds,
    Bytes,
}

/// Events of one kind.
#[derive(Debug)]
pub(crate) struct Count {
    count: Counter,
    #[cfg(feature = "metrics")]
    handle: metrics::Counter,
}

impl Count {
    pub(crate) fn add(&self, events: u64) {
        self.count.add(events);
        #[cfg(feature = "metrics")]
        super::tell(|| self.handle.increment(events));
    }

    pub(crate) fn get(&self) -> u64 {
        self.count.get()
    }
}

/// A state that is looked at now and then, and kept elsewhere.
#[derive(Debug)]
pub(crate) struct Gauge {
    #[cfg(feature = "metrics")]
    handle: metrics::Gauge,
}

impl Gauge {
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables))]
    pub(crate) fn set(&self, value: f64) {
        #[cfg(feature = "metrics")]
        super::tell(|| self.handle.set(value));
    }
}

/// How large what happened was, each time. Statistics keep how often, how much in all, and the most.
#[derive(Debug)]
pub(crate) struct Sizes {
    count: Counter,
    total: Counter,
    most: Level,
    #[cfg(feature = "metrics")]
    handle: metrics::Histogram,
}

impl Sizes {
    pub(crate) fn record(&self, size: u64) {
        self.note(size);
        #[cfg(feature = "metrics")]
        super::tell(|| self.handle.record(float(size)));
    }

    pub(crate) fn record_time(&self, took: Duration) {
        self.note(nanos(took));
        #[cfg(feature = "metrics")]
        super::tell(|| self.handle.record(took.as_secs_f64()));
    }

    fn note(&self, size: u64) {
        self.count.add(1);
        self.total.add(size);
        self.most.raise_to(size);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }

    pub(crate) fn total_time(&self) -> Duration {
        Duration::from_nanos(self.total.get())
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.get()
    }
}

/// Up to 584 years.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// As recorders take it: exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(not(feature = "metrics"))]
#[allow(clippy::unused_self)]
impl Meter<'_> {
    pub(super) fn counts<const N: usize>(
        &self,
        _name: &'static str,
        _label: &'static str,
        _values: [&'static str; N],
        _about: &'static str,
    ) -> [Count; N] {
        std::array::from_fn(|_| Count { count: Counter::default() })
    }

    pub(super) fn count(&self, _name: &'static str, _about: &'static str) -> Count {
        Count { count: Counter::default() }
    }

    pub(super) fn gauge(&self, _name: &'static str, _unit: Unit, _about: &'static str) -> Gauge {
        Gauge {}
    }

    pub(super) fn sizes(&self, _name: &'static str, _unit: Unit, _about: &'static str) -> Sizes {
        Sizes { count: Counter::default(), total: Counter::default(), most: Level::default() }
    }
}

#[cfg(feature = "metrics")]
impl Meter<'_> {
    /// One count for each of `values` of `label`.
    pub(super) fn counts<const N: usize>(
        &self,
        name: &'static str,
        label: &'static str,
        values: [&'static str; N],
        about: &'static str,
    ) -> [Count; N] {
        metrics::describe_counter!(name, metrics::Unit::Count, about);
        values.map(|value| Count {
            count: Counter::default(),
            handle: metrics::counter!(name, STORE => self.name(), label => value),
        })
    }

    pub(super) fn count(&self, name: &'static str, about: &'static str) -> Count {
        metrics::describe_counter!(name, metrics::Unit::Count, about);
        Count { count: Counter::default(), handle: metrics::counter!(name, STORE => self.name()) }
    }

    pub(super) fn gauge(&self, name: &'static str, unit: Unit, about: &'static str) -> Gauge {
        metrics::describe_gauge!(name, unit.into(), about);
        Gauge { handle: metrics::gauge!(name, STORE => self.name()) }
    }

    pub(super) fn sizes(&self, name: &'static str, unit: Unit, about: &'static str) -> Sizes {
        metrics::describe_histogram!(name, unit.into(), about);
        let handle = metrics::histogram!(name, STORE => self.name());
        Sizes { count: Counter::default(), total: Counter::default(), most: Level::default(), handle }
    }

    fn name(&self) -> metrics::SharedString {
        Arc::clone(self.store).into()
    }
}

#[cfg(feature = "metrics")]
impl From<Unit> for metrics::Unit {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Count => Self::Count,
            Unit::Seconds => Self::Seconds,
            Unit::Bytes => Self::Bytes,
        }
    }
}
