//! Objectives on the virtual servers, and their long-run truths.

use super::{Kind, Served, Server};
use llmscen_core::check::{Check, Confidence, NoData, Op, RequestLimit, RequestSet, Subject};
use llmscen_core::label::Labels;
use llmscen_core::metric::{Metric, Stat};

/// An objective without its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    Quantile(Metric, f64),
    Mean(Metric),
    Throughput,
    ErrorRate,
    /// TTFT and E2E of a request both within their p95.
    Goodput,
}

use Objective::{ErrorRate, Goodput, Mean, Quantile, Throughput};

const MEAN_TTFT: Objective = Mean(Metric::Ttft);

const TTFT: [Objective; 3] = [
    Quantile(Metric::Ttft, 0.5),
    Quantile(Metric::Ttft, 0.95),
    Quantile(Metric::Ttft, 0.99),
];
const E2E: [Objective; 2] = [Quantile(Metric::E2e, 0.95), Quantile(Metric::E2e, 0.99)];
const ITL: [Objective; 3] = [
    Quantile(Metric::Itl, 0.5),
    Quantile(Metric::Itl, 0.95),
    Quantile(Metric::Itl, 0.99),
];

/// The objectives that apply to a server.
pub fn objectives(server: &Server) -> Vec<Objective> {
    // Those without a long-run value.
    if server.overloaded() {
        let others = [Goodput, MEAN_TTFT, Mean(Metric::E2e)];
        return [&TTFT[..], &E2E, &others].concat();
    }
    let own: &[Objective] = match server.kind {
        Kind::Batch(_) => &[Quantile(Metric::Tpot, 0.95), Goodput, MEAN_TTFT, Throughput],
        Kind::Queue(_) => &[Goodput, MEAN_TTFT, Throughput],
        Kind::Series(_) => &[ErrorRate, MEAN_TTFT],
    };
    let gaps = if matches!(server.kind, Kind::Queue(_)) {
        &[][..]
    } else {
        &ITL
    };
    let ends = if matches!(server.kind, Kind::Series(_)) {
        &[][..]
    } else {
        &E2E
    };
    [&TTFT, ends, gaps, own].concat()
}

impl Objective {
    /// As a scenario names it.
    pub fn name(self) -> String {
        match self {
            Quantile(metric, p) => format!("{metric}.p{}", (p * 100.0).round()),
            Mean(metric) => format!("{metric}.mean"),
            Throughput => "output_tps".to_owned(),
            ErrorRate => "error_rate".to_owned(),
            Goodput => "goodput".to_owned(),
        }
    }

    /// The objective with a limit that is this factor easier than the truth.
    pub fn check(self, server: &Server, easier: f64) -> Check {
        let truth = |name: &str| server.truth(name).unwrap_or(f64::NAN);
        let of = |metric, stat| Subject::Metric {
            metric,
            stat,
            tags: Vec::new(),
        };
        let (subject, op, limit) = match self {
            Quantile(metric, p) => (
                of(metric, Some(Stat::Quantile(p))),
                Op::Less,
                truth(&self.name()) * easier,
            ),
            Mean(metric) => (
                of(metric, Some(Stat::Mean)),
                Op::Less,
                truth(&self.name()) * easier,
            ),
            Throughput => (
                of(Metric::OutputTps, None),
                Op::AtLeast,
                truth(&self.name()) / easier,
            ),
            ErrorRate => (
                of(Metric::ErrorRate, None),
                Op::AtMost,
                truth(&self.name()) * easier,
            ),
            Goodput => {
                let limit = |metric, name| RequestLimit {
                    metric,
                    op: Op::Less,
                    limit: truth(name) * easier,
                };
                let limits = vec![
                    limit(Metric::Ttft, "ttft.p95"),
                    limit(Metric::E2e, "e2e.p95"),
                ];
                (Subject::Goodput(limits), Op::AtLeast, truth(&self.name()))
            }
        };
        Check {
            expr: self.name(),
            subject,
            op,
            limit,
            confidence: Confidence::Level(0.95),
            when: Labels::default(),
            of: RequestSet::Ok,
            no_data: NoData::Fail,
            relative: None,
            abort: None,
            is_default: false,
        }
    }

    /// Its truth, by very many requests without their start and their end.
    pub fn truth(self, served: &[Served], known: impl Fn(&str) -> f64) -> f64 {
        let ok = || served.iter().filter(|row| row.ok);
        let share = |count: usize| count as f64 / served.len() as f64;
        match self {
            Quantile(Metric::Ttft, p) => quantile(ok().map(|row| row.ttft_ms), p),
            Quantile(Metric::E2e, p) => quantile(ok().map(|row| row.e2e_ms), p),
            Quantile(Metric::Tpot, p) => quantile(
                ok().filter(|row| row.tokens > 1)
                    .map(|row| (row.e2e_ms - row.ttft_ms) / f64::from(row.tokens - 1)),
                p,
            ),
            Quantile(_, p) => quantile(ok().flat_map(|row| row.gaps.iter().copied()), p),
            Mean(_) => ok().map(|row| row.ttft_ms).sum::<f64>() / ok().count() as f64,
            ErrorRate => share(served.iter().filter(|row| !row.ok).count()),
            Goodput => {
                let (ttft, e2e) = (known("ttft.p95"), known("e2e.p95"));
                share(
                    ok().filter(|row| row.ttft_ms < ttft && row.e2e_ms < e2e)
                        .count(),
                )
            }
            Throughput => {
                let span = served.last().map_or(0.0, |row| row.scheduled_s)
                    - served.first().map_or(0.0, |row| row.scheduled_s);
                served.iter().map(|row| f64::from(row.tokens)).sum::<f64>() / span
            }
        }
    }
}

fn quantile(values: impl Iterator<Item = f64>, p: f64) -> f64 {
    let mut values: Vec<f32> = values.map(|value| value as f32).collect();
    let place = ((p * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1;
    f64::from(*values.select_nth_unstable_by(place, f32::total_cmp).1)
}
