//! Telemetry: what is sampled during a run, the samples, and their statistics.

use crate::metric::Stat;
use crate::redact::Secret;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Telemetry settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetrySpec {
    /// Sampling interval; zero: no telemetry.
    pub interval: Nanos,
    /// Sample GPUs.
    pub gpu: bool,
    /// Sample CPU, memory, network and disk of the load generator, the managed server and the host.
    pub host: bool,
    /// The URL of a DCGM exporter, which replaces the local GPU libraries.
    pub dcgm: Option<String>,
}

impl Default for TelemetrySpec {
    fn default() -> TelemetrySpec {
        TelemetrySpec {
            interval: Nanos::from_millis(1000),
            gpu: true,
            host: true,
            dcgm: None,
        }
    }
}

/// An endpoint that is read at an interval: a metrics page, a DCGM exporter, or a Prometheus server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrape {
    /// URL.
    pub url: String,
    /// Time between two values.
    pub interval: Nanos,
    /// Request headers. Values may be secrets.
    pub headers: Vec<(String, Secret)>,
}

/// An item of `target.metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSource {
    /// The endpoint.
    pub scrape: Scrape,
    /// The role of its workers, such as `prefill`.
    pub role: Option<String>,
    /// Number of GPUs of its workers.
    pub gpus: Option<u32>,
    /// What is read there.
    pub kind: MetricsKind,
}

/// What is read at an endpoint of `target.metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsKind {
    /// A metrics page.
    Page {
        /// Every address of the host has a page of its own.
        all_addresses: bool,
    },
    /// The result of a query of a Prometheus server.
    Query {
        /// The name of the values.
        name: String,
        /// The query, in PromQL.
        promql: String,
        /// The place in the scenario: `chat.yaml:7`.
        place: String,
    },
}

impl MetricsSource {
    /// A page without a role.
    pub fn page(scrape: Scrape) -> MetricsSource {
        MetricsSource {
            scrape,
            role: None,
            gpus: None,
            kind: MetricsKind::Page {
                all_addresses: false,
            },
        }
    }

    /// Whether it is a page, or several.
    pub fn is_page(&self) -> bool {
        matches!(self.kind, MetricsKind::Page { .. })
    }
}

/// The labels of a worker, which are the first labels of its samples where a target has several metrics pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerLabels<'a> {
    /// Host and port of its page.
    pub worker: &'a str,
    /// Its role.
    pub role: Option<&'a str>,
}

impl<'a> WorkerLabels<'a> {
    /// Splits labels into those of the worker, if any, and all others.
    pub fn split(labels: &'a str) -> (Option<WorkerLabels<'a>>, &'a str) {
        let value = |text: &'a str, start: &str| text.strip_prefix(start)?.split_once('"');
        let Some((worker, rest)) = value(labels, "worker=\"") else {
            return (None, labels);
        };
        let (role, rest) =
            value(rest, ",role=\"").map_or((None, rest), |(role, rest)| (Some(role), rest));
        let rest = rest.strip_prefix(',').unwrap_or(rest);
        (Some(WorkerLabels { worker, role }), rest)
    }
}

impl std::fmt::Display for WorkerLabels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "worker=\"{}\"", self.worker)?;
        self.role
            .map_or(Ok(()), |role| write!(f, ",role=\"{role}\""))
    }
}

/// Peak performance of the target's hardware and cost per token, for MFU and MBU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Active parameters per token.
    pub parameters: f64,
    /// Bytes of weights read per decode step.
    pub weight_bytes: f64,
    /// Bytes of KV cache per context token; 0: not counted.
    pub kv_bytes_per_token: f64,
    /// Peak floating-point operations per second of one GPU.
    pub peak_flops: Option<f64>,
    /// Peak memory bandwidth of one GPU, bytes per second.
    pub peak_bandwidth: Option<f64>,
}

/// The source of a telemetry value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The target's /metrics endpoint.
    Prometheus,
    /// A DCGM exporter.
    Dcgm,
    /// NVIDIA's management library.
    Nvml,
    /// AMD's management command.
    Amd,
    /// The operating system, for the managed server.
    Process,
    /// The operating system, for the load generator.
    Tool,
    /// The operating system, for the host.
    Host,
    /// A query of a Prometheus server.
    Query,
}

impl Source {
    /// Every source.
    pub const ALL: [Source; 8] = [
        Source::Prometheus,
        Source::Dcgm,
        Source::Nvml,
        Source::Amd,
        Source::Process,
        Source::Tool,
        Source::Host,
        Source::Query,
    ];

    /// The name in `telemetry.parquet`.
    pub fn name(self) -> &'static str {
        match self {
            Source::Prometheus => "prometheus",
            Source::Dcgm => "dcgm",
            Source::Nvml => "nvml",
            Source::Amd => "amd",
            Source::Process => "process",
            Source::Tool => "tool",
            Source::Host => "host",
            Source::Query => "query",
        }
    }
}

/// One telemetry sample: a row of `telemetry.parquet`.
///
/// A gauge is stored as its value, and a counter ([`Form::Rate`](crate::signal::Form::Rate)) as its count. A ratio is
/// two counters, labelled `part` and `whole`, or one `value` if the source only has the quotient. A histogram is its
/// cumulative buckets, labelled `le=BOUND` in the signal's unit (the last is `le=+Inf`), with `sum` and `count`; some
/// sources only have these two. A value without a common name has the source's name and labels, and is stored when it
/// changes.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetrySample {
    /// Sample time, nanoseconds since the round's time zero; negative: before it.
    pub at_ns: i64,
    /// Source.
    pub source: Source,
    /// The name of a [`Signal`](crate::signal::Signal), or the source's metric name.
    pub name: Arc<str>,
    /// Labels that distinguish it from others with the same name, [those of a worker](WorkerLabels) first; may be
    /// empty.
    pub labels: Arc<str>,
    /// GPU index, from 0.
    pub device: Option<u32>,
    /// The value, in the unit of the signal, or as reported.
    pub value: f64,
}

/// All samples of one round of one case, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryRecord {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// The samples.
    pub readings: Vec<TelemetrySample>,
}

/// Statistics of one signal over the measured windows of a case, in the signal's unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignalStat {
    /// Number of samples; for a histogram, its count.
    pub n: u64,
    /// Mean; for a ratio, over the whole window.
    pub mean: Option<f64>,
    /// Minimum; None for a histogram.
    pub min: Option<f64>,
    /// Maximum; None for a histogram.
    pub max: Option<f64>,
    /// Sample standard deviation; None for a histogram.
    pub sd: Option<f64>,
    /// The samples, unordered; empty for a histogram.
    pub values: Vec<f64>,
    /// The buckets of a histogram as (upper bound, cumulative count), ascending; the last bound is infinite.
    pub buckets: Vec<(f64, f64)>,
}

/// A statistic, or a bound of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StatValue {
    /// The value.
    Value(f64),
    /// An upper bound: the value lies in the first bucket of a histogram.
    AtMost(f64),
    /// A lower bound: the value lies in the last bucket of a histogram.
    AtLeast(f64),
}

impl StatValue {
    /// The value, unless it is a bound.
    pub fn value(self) -> Option<f64> {
        match self {
            StatValue::Value(value) => Some(value),
            StatValue::AtMost(_) | StatValue::AtLeast(_) => None,
        }
    }

    /// The value or the bound.
    pub fn number(self) -> f64 {
        match self {
            StatValue::Value(number) | StatValue::AtMost(number) | StatValue::AtLeast(number) => {
                number
            }
        }
    }

    /// The sign before the number: nothing, `≤ ` or `≥ `.
    pub fn sign(self) -> &'static str {
        match self {
            StatValue::Value(_) => "",
            StatValue::AtMost(_) => "≤ ",
            StatValue::AtLeast(_) => "≥ ",
        }
    }
}

impl SignalStat {
    /// A statistic; None if the signal does not have it. Quantiles of samples are by nearest rank. Quantiles of a
    /// histogram are interpolated linearly within a bucket, like `histogram_quantile` of Prometheus; in the first and
    /// the last bucket only a bound is known.
    pub fn at(&self, stat: Stat) -> Option<StatValue> {
        match stat {
            Stat::Mean => self.mean.map(StatValue::Value),
            Stat::Min => self.min.map(StatValue::Value),
            Stat::Max => self.max.map(StatValue::Value),
            Stat::Sd => self.sd.map(StatValue::Value),
            Stat::Count => Some(StatValue::Value(self.n as f64)),
            Stat::Quantile(share) if self.buckets.is_empty() => {
                self.quantile_of_samples(share).map(StatValue::Value)
            }
            Stat::Quantile(share) => self.quantile_of_buckets(share),
        }
    }

    fn quantile_of_samples(&self, share: f64) -> Option<f64> {
        let mut values = self.values.clone();
        let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
        (rank <= values.len()).then(|| *values.select_nth_unstable_by(rank - 1, f64::total_cmp).1)
    }

    fn quantile_of_buckets(&self, share: f64) -> Option<StatValue> {
        let total = self
            .buckets
            .last()
            .map(|(_, count)| *count)
            .filter(|count| *count > 0.0)?;
        let rank = share * total;
        let index = self
            .buckets
            .iter()
            .position(|(_, below)| *below >= rank && *below > 0.0)?;
        let (upper, through) = *self.buckets.get(index)?;
        let Some((lower, before)) = index
            .checked_sub(1)
            .and_then(|before| self.buckets.get(before))
            .copied()
        else {
            return upper.is_finite().then_some(StatValue::AtMost(upper));
        };
        if upper.is_infinite() {
            return Some(StatValue::AtLeast(lower));
        }
        let inside = through - before;
        let part = if inside > 0.0 {
            (rank - before) / inside
        } else {
            1.0
        };
        Some(StatValue::Value(lower + (upper - lower) * part))
    }
}

/// Statistics of a metric without a common name, over the measured windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OtherStat {
    /// A gauge: each value is valid until the next one.
    Level {
        /// Number of values.
        n: u64,
        /// Time-weighted mean.
        mean: Option<f64>,
        /// Minimum.
        min: f64,
        /// Maximum.
        max: f64,
    },
    /// The increase of a counter, per second.
    Growth(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_of_a_worker_come_first() {
        for (role, rest) in [(None, ""), (Some("decode"), "le=100"), (Some("a"), "")] {
            let worker = WorkerLabels {
                worker: "h:1",
                role,
            };
            let comma = if rest.is_empty() { "" } else { "," };
            let labels = format!("{worker}{comma}{rest}");
            assert_eq!(WorkerLabels::split(&labels), (Some(worker), rest));
        }
        for labels in ["", "part", "engine=\"0\",worker=\"x\"", "worker=\"x"] {
            assert_eq!(WorkerLabels::split(labels), (None, labels));
        }
    }

    #[test]
    fn quantiles_of_samples_are_ranks_and_those_of_buckets_lie_inside_them() {
        let seen = SignalStat {
            n: 4,
            values: vec![4.0, 1.0, 3.0, 2.0],
            ..SignalStat::default()
        };
        let ranks = [0.0, 0.5, 0.75, 1.0].map(|share| seen.at(Stat::Quantile(share)));
        assert_eq!(
            ranks,
            [1.0, 2.0, 3.0, 4.0].map(|value| Some(StatValue::Value(value)))
        );
        let histogram = buckets(&[(10.0, 2.0), (20.0, 6.0), (f64::INFINITY, 8.0)]);
        let shares = [0.3125, 0.5, 0.75].map(|share| histogram.at(Stat::Quantile(share)));
        assert_eq!(
            shares,
            [11.25, 15.0, 20.0].map(|value| Some(StatValue::Value(value)))
        );
        assert_eq!(
            (
                histogram.at(Stat::Max),
                SignalStat::default().at(Stat::Quantile(0.5))
            ),
            (None, None)
        );
    }

    #[test]
    fn the_first_and_the_last_bucket_yield_bounds() {
        let histogram = buckets(&[(10.0, 2.0), (20.0, 6.0), (f64::INFINITY, 8.0)]);
        assert_eq!(
            [0.0, 0.1, 0.25].map(|share| histogram.at(Stat::Quantile(share))),
            [Some(StatValue::AtMost(10.0)); 3]
        );
        assert_eq!(
            [0.76, 1.0].map(|share| histogram.at(Stat::Quantile(share))),
            [Some(StatValue::AtLeast(20.0)); 2]
        );
        let late = buckets(&[(10.0, 0.0), (20.0, 6.0), (f64::INFINITY, 6.0)]);
        assert_eq!(
            late.at(Stat::Quantile(0.0)),
            Some(StatValue::Value(10.0)),
            "an empty bucket holds no rank"
        );
        let single = buckets(&[(f64::INFINITY, 6.0)]);
        assert_eq!(
            single.at(Stat::Quantile(0.5)),
            None,
            "a single bucket has no quantiles"
        );
    }

    fn buckets(buckets: &[(f64, f64)]) -> SignalStat {
        SignalStat {
            n: buckets.last().unwrap().1 as u64,
            buckets: buckets.to_vec(),
            ..SignalStat::default()
        }
    }
}
