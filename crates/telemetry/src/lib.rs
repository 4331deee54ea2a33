//! Telemetry: what is sampled besides the requests. Each module is a source of values, or support for one.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod dcgm;
pub mod gpu;
pub mod host;
pub mod memory;
mod proc;
pub mod process;
pub mod prometheus;
pub mod sampler;
pub mod tree;

use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use std::time::Instant;

/// One value that a source reports; the sampler adds the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledValue<'a> {
    /// The name of a [`Signal`](llmscen_core::signal::Signal), or a name of the source. The sampler leaves out values
    /// that are not finite, and those under a name of the source that have not changed.
    pub name: &'a str,
    /// Labels that distinguish values of the same name; may be empty.
    pub labels: &'a str,
    /// The GPU, from 0.
    pub device: Option<u32>,
    /// The current value of the gauge or counter, in the unit of the signal.
    pub value: f64,
}

impl<'a> SampledValue<'a> {
    /// A value without labels or device.
    pub fn plain(name: &'a str, value: f64) -> SampledValue<'a> {
        SampledValue {
            name,
            labels: "",
            device: None,
            value,
        }
    }
}

/// A source that is read at an interval.
pub trait TelemetrySource: Send {
    /// The source in the telemetry table.
    fn kind(&self) -> Source;

    /// Interval of the samples.
    fn interval(&self) -> Nanos;

    /// Reads the current values, at `at`. It must not block for longer than the interval, because the other sources
    /// wait.
    ///
    /// # Errors
    /// Why this sample failed, for the report. The source is read again at the next interval; values that were
    /// emitted before the error are kept.
    fn sample(&mut self, at: Instant, emit: &mut dyn FnMut(SampledValue<'_>))
    -> Result<(), String>;

    /// Reports values of the round that are known only at its end. `since` is its time zero. Values of one series
    /// come in order.
    fn past_samples(&mut self, _since: Instant, _emit: &mut dyn FnMut(Instant, SampledValue<'_>)) {}

    /// Notes for the report, requested once at the end of the round.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}
