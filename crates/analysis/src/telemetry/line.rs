//! The readings of one signal in one round, instant by instant.

use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Recorded, Source};
use std::collections::BTreeMap;

/// What tells the readings of one signal apart: labels, and the GPU.
pub(super) type Key<'a> = (&'a str, Option<u32>);

/// What was read at one instant. A source reads all of its values at one and the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moment<'a> {
    pub at: i64,
    pub values: BTreeMap<Key<'a>, f64>,
}

/// The instants in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line<'a>(pub Vec<Moment<'a>>);

impl<'a> Line<'a> {
    /// The readings of a signal that this source made. What is no number is none of them.
    pub fn of(recorded: &'a Recorded, signal: Signal, source: Source) -> Line<'a> {
        let own = recorded.readings.iter().filter(|own| own.source == source && *own.name == *signal.name());
        let mut by_instant: BTreeMap<i64, BTreeMap<Key<'a>, f64>> = BTreeMap::new();
        for reading in own.filter(|own| own.value.is_finite()) {
            by_instant.entry(reading.at_ns).or_default().insert((&reading.labels, reading.device), reading.value);
        }
        Line(by_instant.into_iter().map(|(at, values)| Moment { at, values }).collect())
    }

    /// The instants at which everything was told that this round tells at any: a sum without one of its parts is none.
    pub fn whole(&self) -> Vec<&Moment<'a>> {
        let parts = self.0.iter().map(|instant| instant.values.len()).max().unwrap_or(0);
        self.0.iter().filter(|instant| instant.values.len() == parts).collect()
    }
}

impl Moment<'_> {
    /// The value under a label.
    pub fn labelled(&self, label: &str) -> Option<f64> {
        self.values.iter().find(|((own, _), _)| *own == label).map(|(_, value)| *value)
    }
}
