//! Sources of telemetry.

use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use std::time::Instant;

/// One value that a source reports; the sampler adds the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledValue<'a> {
    /// The common name of a [`Signal`](llmscen_core::signal::Signal), or the source's own. The sampler leaves out a value
    /// under an own name that is what it was, and every value that is no finite number.
    pub name: &'a str,
    /// Labels that distinguish it from others of its name; empty: none.
    pub labels: &'a str,
    /// The GPU that it is about, from 0.
    pub device: Option<u32>,
    /// The value: a gauge as it is, a count as it stands, in the unit of the signal.
    pub value: f64,
}

impl<'a> SampledValue<'a> {
    /// A value with no labels and of no device.
    pub fn plain(name: &'a str, value: f64) -> SampledValue<'a> {
        SampledValue { name, labels: "", device: None, value }
    }
}

/// A source that is read at an interval.
pub trait TelemetrySource: Send {
    /// Which source it is.
    fn kind(&self) -> Source;

    /// Between two samples.
    fn interval(&self) -> Nanos;

    /// Reads the values now, at `at`. It may block no longer than its interval: the other sources wait meanwhile.
    ///
    /// # Errors
    /// Why it cannot be read this time, in words for the report. It is read again at the next interval; values before the
    /// failure are kept.
    fn sample(&mut self, at: Instant, emit: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String>;

    /// Findings that are not numbers, once at the end of the round.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}
