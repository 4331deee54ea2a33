//! What was read beside the requests, and what becomes of it.

use crate::metric::Stat;
use crate::report::Series;
use crate::signal::Signal;
use crate::target::Secret;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is sampled, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetrySpec {
    /// Between two samples; zero: nothing is sampled.
    pub interval: Nanos,
    /// GPUs are looked for.
    pub gpu: bool,
    /// CPU, memory, network and disk of this tool, of the managed server and of the host are read.
    pub host: bool,
    /// The page of a DCGM exporter, which reports the GPUs instead of this machine's libraries.
    pub dcgm: Option<String>,
}

impl Default for TelemetrySpec {
    fn default() -> TelemetrySpec {
        TelemetrySpec { interval: Nanos::from_millis(1000), gpu: true, host: true, dcgm: None }
    }
}

/// Prometheus text that is read through the run: `target.metrics`, or a DCGM exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrape {
    /// Its URL.
    pub url: String,
    /// Between two readings.
    pub interval: Nanos,
    /// Headers of the requests for the page. Their values may be secrets.
    pub headers: Vec<(String, Secret)>,
}

/// What the target's hardware could do at most, and what a token costs it: for MFU and MBU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Parameters that work on each token.
    pub parameters: f64,
    /// Bytes of weights that are read for each decoding step.
    pub weight_bytes: f64,
    /// Bytes of KV cache that one token of context holds; 0: left out.
    pub kv_bytes_per_token: f64,
    /// Floating-point operations per second of one GPU at most.
    pub peak_flops: Option<f64>,
    /// Maximum number of bytes per second that one GPU reads from its memory.
    pub peak_bandwidth: Option<f64>,
}

/// Where a value was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The target's metrics page.
    Prometheus,
    /// A DCGM exporter.
    Dcgm,
    /// NVIDIA's management library.
    Nvml,
    /// AMD's management command.
    Amd,
    /// The operating system, of the managed server.
    Process,
    /// The operating system, of this tool.
    Tool,
    /// The operating system, of the whole machine.
    Host,
}

impl Source {
    /// Every source.
    pub const ALL: [Source; 7] =
        [Source::Prometheus, Source::Dcgm, Source::Nvml, Source::Amd, Source::Process, Source::Tool, Source::Host];

    /// The word in `telemetry.parquet`.
    pub fn name(self) -> &'static str {
        match self {
            Source::Prometheus => "prometheus",
            Source::Dcgm => "dcgm",
            Source::Nvml => "nvml",
            Source::Amd => "amd",
            Source::Process => "process",
            Source::Tool => "tool",
            Source::Host => "host",
        }
    }
}

/// One value that was read: a row of `telemetry.parquet`.
///
/// A gauge is its value. A count (of a [`Form::Rate`](crate::signal::Form::Rate)) is what it stood at; a ratio is two
/// counts, labelled `part` and `whole`, or, where the source has only the quotient, that, labelled `value`; a histogram is its
/// cumulated buckets, labelled `le=BOUND` in the signal's unit (`le=+Inf` the last), and `sum` and `count`, of which some
/// sources have these two alone. A value without a common name has the source's name and labels, and is kept where it changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// When it was read, in nanoseconds after the part's time zero; negative: before it.
    pub at_ns: i64,
    /// Where it was read.
    pub source: Source,
    /// The common name of a [`Signal`], or the source's own.
    pub name: Arc<str>,
    /// Labels that distinguish it from others of its name; empty: none.
    pub labels: Arc<str>,
    /// The GPU that it is about, from 0.
    pub device: Option<u32>,
    /// The value, in the unit of the signal, or as it was reported.
    pub value: f64,
}

/// All readings of one round of one case, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// The readings.
    pub readings: Vec<Reading>,
}

/// One signal over the measured windows of a case, in the signal's unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignalStat {
    /// Samples; of a histogram, what it counted.
    pub n: u64,
    /// Mean; of a ratio, over the whole window.
    pub mean: Option<f64>,
    /// Least; None for a histogram, which does not know it.
    pub min: Option<f64>,
    /// Greatest; likewise.
    pub max: Option<f64>,
    /// Sample standard deviation; likewise.
    pub sd: Option<f64>,
    /// The samples, in no order, of which quantiles are taken by nearest rank; empty for a histogram.
    pub values: Vec<f64>,
    /// Of a histogram, the bounds of its buckets and what fell below each, in order; the last bound is infinite.
    pub buckets: Vec<(f64, f64)>,
}

/// What is known of a statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen {
    /// It is this.
    Value(f64),
    /// It lies in the first bucket of a histogram, and is this at most: how far below is unknown.
    AtMost(f64),
    /// It lies in the last bucket of a histogram, which has no end, and is this at least.
    AtLeast(f64),
}

impl Seen {
    /// The figure, where there is one.
    pub fn value(self) -> Option<f64> {
        match self {
            Seen::Value(value) => Some(value),
            Seen::AtMost(_) | Seen::AtLeast(_) => None,
        }
    }

    /// The figure, or the bound that it does not pass.
    pub fn number(self) -> f64 {
        match self {
            Seen::Value(number) | Seen::AtMost(number) | Seen::AtLeast(number) => number,
        }
    }

    /// What is written before the number: nothing, `≤ ` or `≥ `.
    pub fn sign(self) -> &'static str {
        match self {
            Seen::Value(_) => "",
            Seen::AtMost(_) => "≤ ",
            Seen::AtLeast(_) => "≥ ",
        }
    }
}

impl SignalStat {
    /// A statistic; None where the signal has none such. Quantiles of samples are by nearest rank. Of a histogram, a rank in its
    /// first bucket is known by that bucket's bound alone, one in its last by the bound before it; in between, the rank is
    /// interpolated from the bucket's lower bound to its upper one, as Prometheus' `histogram_quantile` has it, and good to its
    /// width.
    pub fn at(&self, stat: Stat) -> Option<Seen> {
        match stat {
            Stat::Mean => self.mean.map(Seen::Value),
            Stat::Min => self.min.map(Seen::Value),
            Stat::Max => self.max.map(Seen::Value),
            Stat::Sd => self.sd.map(Seen::Value),
            Stat::Count => Some(Seen::Value(self.n as f64)),
            Stat::Quantile(share) if self.buckets.is_empty() => self.ranked(share).map(Seen::Value),
            Stat::Quantile(share) => self.within(share),
        }
    }

    fn ranked(&self, share: f64) -> Option<f64> {
        let mut values = self.values.clone();
        let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
        (rank <= values.len()).then(|| *values.select_nth_unstable_by(rank - 1, f64::total_cmp).1)
    }

    fn within(&self, share: f64) -> Option<Seen> {
        let total = self.buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let rank = share * total;
        let place = self.buckets.iter().position(|(_, below)| *below >= rank && *below > 0.0)?;
        let (upper, through) = *self.buckets.get(place)?;
        let Some((lower, before)) = place.checked_sub(1).and_then(|before| self.buckets.get(before)).copied() else {
            return upper.is_finite().then_some(Seen::AtMost(upper));
        };
        if upper.is_infinite() {
            return Some(Seen::AtLeast(lower));
        }
        let inside = through - before;
        let part = if inside > 0.0 { (rank - before) / inside } else { 1.0 };
        Some(Seen::Value(lower + (upper - lower) * part))
    }
}

/// What has no common name, over the measured windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Other {
    /// A value that stands until the next one.
    Level {
        /// Values that it had.
        n: u64,
        /// Weighted with time.
        mean: Option<f64>,
        /// Least.
        min: f64,
        /// Greatest.
        max: f64,
    },
    /// What a count grew by, per second.
    Growth(f64),
}

/// What a case's telemetry says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// The signals that exist.
    pub signals: BTreeMap<Signal, SignalStat>,
    /// The first round's samples over its time: `(seconds after its start, value)`. Histograms have none.
    pub series: BTreeMap<Signal, Series>,
    /// What has no common name: its name with labels, and what it was over the measured windows.
    pub others: BTreeMap<String, Other>,
    /// Why what could be expected is missing.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_samples_are_ranks_and_those_of_buckets_lie_inside_them() {
        let seen = SignalStat { n: 4, values: vec![4.0, 1.0, 3.0, 2.0], ..SignalStat::default() };
        let ranks = [0.0, 0.5, 0.75, 1.0].map(|share| seen.at(Stat::Quantile(share)));
        assert_eq!(ranks, [1.0, 2.0, 3.0, 4.0].map(|value| Some(Seen::Value(value))));
        let told = buckets(&[(10.0, 2.0), (20.0, 6.0), (f64::INFINITY, 8.0)]);
        let shares = [0.3125, 0.5, 0.75].map(|share| told.at(Stat::Quantile(share)));
        assert_eq!(shares, [11.25, 15.0, 20.0].map(|value| Some(Seen::Value(value))));
        assert_eq!((told.at(Stat::Max), SignalStat::default().at(Stat::Quantile(0.5))), (None, None));
    }

    #[test]
    fn the_first_bucket_has_no_begin_and_the_last_no_end() {
        let told = buckets(&[(10.0, 2.0), (20.0, 6.0), (f64::INFINITY, 8.0)]);
        assert_eq!([0.0, 0.1, 0.25].map(|share| told.at(Stat::Quantile(share))), [Some(Seen::AtMost(10.0)); 3]);
        assert_eq!([0.76, 1.0].map(|share| told.at(Stat::Quantile(share))), [Some(Seen::AtLeast(20.0)); 2]);
        let late = buckets(&[(10.0, 0.0), (20.0, 6.0), (f64::INFINITY, 6.0)]);
        assert_eq!(late.at(Stat::Quantile(0.0)), Some(Seen::Value(10.0)), "an empty bucket holds no rank");
        let blind = buckets(&[(f64::INFINITY, 6.0)]);
        assert_eq!(blind.at(Stat::Quantile(0.5)), None, "one bucket for all says nothing");
    }

    fn buckets(own: &[(f64, f64)]) -> SignalStat {
        SignalStat { n: own.last().unwrap().1 as u64, buckets: own.to_vec(), ..SignalStat::default() }
    }
}
