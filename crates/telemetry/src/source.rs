//! What can be sampled.

use llmscen_core::telemetry::Teller;
use llmscen_core::units::Nanos;
use std::time::Instant;

/// One value that a source tells; the sampler adds when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// The common name of a [`Signal`](llmscen_core::signal::Signal), or the source's own. The sampler leaves out a value
    /// under an own name that is what it was, and every value that is no finite number.
    pub name: &'a str,
    /// Labels that tell it from others of its name; empty: none.
    pub labels: &'a str,
    /// The GPU that it is about, from 0.
    pub device: Option<u32>,
    /// The value: a gauge as it is, a count as it stands, in the unit of the signal.
    pub value: f64,
}

impl<'a> Told<'a> {
    /// A value with no labels and of no device.
    pub fn plain(name: &'a str, value: f64) -> Told<'a> {
        Told { name, labels: "", device: None, value }
    }
}

/// Something that tells values whenever it is asked.
pub trait Source: Send {
    /// Who tells.
    fn teller(&self) -> Teller;

    /// Between two samples.
    fn interval(&self) -> Nanos;

    /// Tells what is to be read now, at `at`. It may block no longer than its interval: the other sources wait meanwhile.
    ///
    /// # Errors
    /// Why it cannot be read this time, in words for the report. It is asked again at the next interval; what it told before it
    /// failed is kept.
    fn sample(&mut self, at: Instant, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), String>;

    /// What it found out that no number says, once at the end of the round.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}
