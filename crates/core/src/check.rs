//! Service-level objectives, and what was ruled about them.

use crate::baseline::Relative;
use crate::metric::{Metric, Scope, Stat};
use crate::plan::Labels;
use crate::signal::Signal;
use crate::units::Unit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
}

impl Op {
    /// How it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            Op::Less => "<",
            Op::AtMost => "<=",
            Op::More => ">",
            Op::AtLeast => ">=",
            Op::Equal => "==",
            Op::Unequal => "!=",
        }
    }

    /// Whether `value` op `limit` holds. False for NaN, whatever the comparison.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Op::Less => value < limit,
            Op::AtMost => value <= limit,
            Op::More => value > limit,
            Op::AtLeast => value >= limit,
            Op::Equal => value == limit,
            Op::Unequal => value.partial_cmp(&limit).is_some_and(std::cmp::Ordering::is_ne),
        }
    }

    /// Whether the limit is an upper bound (`<`, `<=`).
    pub fn is_ceiling(self) -> bool {
        matches!(self, Op::Less | Op::AtMost)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// One limit on a single request, inside `goodput(…)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestLimit {
    /// A per-request metric; for `itl`, every gap of the request must hold.
    pub metric: Metric,
    /// Comparison.
    pub op: Op,
    /// Limit, in the metric's unit.
    pub limit: f64,
}

/// What an assertion is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Subject {
    /// A metric of the case, or a statistic of a distribution.
    Metric {
        /// The metric.
        metric: Metric,
        /// The statistic; None exactly where the metric has one value per case.
        stat: Option<Stat>,
        /// Only rows with these tags (`model`, `round`, `turn`, `group`) count.
        tags: Vec<(String, String)>,
    },
    /// The share of scheduled requests that are ok and meet every limit.
    Goodput(Vec<RequestLimit>),
    /// A statistic of what was sampled beside the requests: always compared as a point.
    Signal {
        /// The signal.
        signal: Signal,
        /// The statistic.
        stat: Stat,
    },
}

/// How sure a ruling must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Confidence {
    /// Compare the point estimate; then nothing is inconclusive.
    Point,
    /// At this level, 0.5 < level < 1.
    Level(f64),
}

/// Which requests a quantile is taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// Those that succeeded.
    #[default]
    Ok,
    /// All that were scheduled; one that failed counts as +∞.
    Scheduled,
}

/// What no data means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoData {
    /// The limit is broken.
    #[default]
    Fail,
    /// Nothing can be said.
    Inconclusive,
    /// The limit holds; the report says that it did so without data.
    Pass,
}

/// When a case is given up because a limit is already lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Abort {
    /// Minimum number of requests that are judged before it may be.
    pub min_samples: u64,
    /// The greatest chance that a round is given up though the limit holds, over all looks, 0 < alpha < 1.
    pub alpha: f64,
}

/// One assertion of the scenario's `slo` list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// As the scenario wrote it.
    pub expr: String,
    /// Left side.
    pub subject: Subject,
    /// Comparison.
    pub op: Op,
    /// Right side, in the metric's unit; a goodput or rate of errors as a share 0..=1. Of a relative limit the product, NaN
    /// where what it is relative to is not there.
    pub limit: f64,
    /// What the limit is a multiple of; None where it is a number of its own.
    #[serde(default)]
    pub relative: Option<Relative>,
    /// Certainty wanted.
    pub confidence: Confidence,
    /// Cases it is about; empty: all.
    pub when: Labels,
    /// Rows it is about.
    pub of: Of,
    /// Ruling without data.
    pub no_data: NoData,
    /// Whether its loss ends the case.
    pub abort: Option<Abort>,
}

impl Check {
    /// The group of requests that it is about; None: all groups.
    pub fn group(&self) -> Option<&str> {
        match &self.subject {
            Subject::Metric { tags, .. } => tags.iter().find(|(tag, _)| tag == "group").map(|(_, value)| value.as_str()),
            Subject::Goodput(_) | Subject::Signal { .. } => None,
        }
    }

    /// The share of requests that may break the limit without losing it. None where no share loses it before the end: a mean,
    /// a throughput, an extreme that a single request can still mend, an equality, or a pool of gaps that are alike.
    pub fn allowed(&self) -> Option<f64> {
        let ceiling = self.op.is_ceiling();
        let share = match &self.subject {
            _ if matches!(self.op, Op::Equal | Op::Unequal) => return None,
            Subject::Signal { .. } => return None,
            Subject::Goodput(_) | Subject::Metric { metric: Metric::ErrorRate, .. } if ceiling => self.limit,
            Subject::Goodput(_) | Subject::Metric { metric: Metric::ErrorRate, .. } => 1.0 - self.limit,
            Subject::Metric { metric, stat, .. } => match (*stat)? {
                Stat::Max if ceiling => 0.0,
                Stat::Min if !ceiling => 0.0,
                Stat::Quantile(_) if metric.per() == Scope::Gap => return None,
                Stat::Quantile(p) if ceiling => 1.0 - p,
                Stat::Quantile(p) => p,
                Stat::Max | Stat::Min | Stat::Mean | Stat::Count | Stat::Sd => return None,
            },
        };
        (0.0..1.0).contains(&share).then_some(share)
    }
}

/// The four rulings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// The limit holds at the stated confidence.
    Pass,
    /// It is broken at the stated confidence.
    Fail,
    /// Too few samples to say.
    Inconclusive,
    /// The load generator, not the server, was measured; or the run did not happen as planned.
    Invalid,
}

impl Ruling {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Ruling::Pass => "pass",
            Ruling::Fail => "fail",
            Ruling::Inconclusive => "inconclusive",
            Ruling::Invalid => "invalid",
        }
    }
}

/// Version of the rules that verdicts follow: 2 since samples count by their effective number.
pub const VERDICT_RULES: u64 = 2;

/// What was ruled about one check of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The check.
    pub check: Check,
    /// The ruling.
    pub ruling: Ruling,
    /// Point estimate, in the metric's unit; None without data.
    pub observed: Option<f64>,
    /// The end of the one-sided confidence interval that the ruling rests on: the upper end for `<` and `<=`, the lower
    /// for `>` and `>=`. None for `point`, or where the samples are too few for it to exist.
    pub bound: Option<f64>,
    /// Samples behind it.
    pub n: u64,
    /// Independent samples that carry as much information as the `n` correlated ones; None where the rule is not one on counts.
    #[serde(default)]
    pub effective_n: Option<f64>,
    /// Inconclusive: samples needed in all if what was seen so far goes on, where that can be said.
    pub need: Option<u64>,
    /// One line of reason where the numbers need an explanation.
    pub note: Option<String>,
}

impl Subject {
    /// The unit of its values: a share for goodput, a plain count for `.count`.
    pub fn unit(&self) -> Unit {
        match self {
            Subject::Goodput(_) => Unit::Share,
            Subject::Metric { stat: Some(Stat::Count), .. } | Subject::Signal { stat: Stat::Count, .. } => Unit::Count,
            Subject::Metric { metric, .. } => metric.unit(),
            Subject::Signal { signal, .. } => signal.unit(),
        }
    }
}

impl Check {
    /// The name of what is compared, in a baseline.
    pub fn figure_name(&self) -> String {
        let scheduled = if self.of == Of::Scheduled { " of scheduled" } else { "" };
        format!("{}{scheduled}", self.subject)
    }
}

/// As a scenario has it: the text parses to an equal check.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.subject, self.op)?;
        match self.relative {
            Some(relative) if relative.factor == 1.0 => f.write_str(relative.to.name()),
            Some(relative) => write!(f, "{} * {}", relative.factor, relative.to.name()),
            None => f.write_str(&self.subject.unit().threshold(self.limit)),
        }
    }
}

/// As a scenario has it: the text parses to an equal subject.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Metric { metric, stat, tags } => {
                let tags: Vec<String> = tags.iter().map(|(tag, value)| format!("{tag}={value}")).collect();
                let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
                let stat = stat.map_or(String::new(), |stat| format!(".{stat}"));
                write!(f, "{metric}{tags}{stat}")
            }
            Subject::Signal { signal, stat } => write!(f, "{signal}.{stat}"),
            Subject::Goodput(limits) => {
                let limits: Vec<String> = limits
                    .iter()
                    .map(|own| format!("{} {} {}", own.metric, own.op, own.metric.unit().threshold(own.limit)))
                    .collect();
                write!(f, "goodput({})", limits.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_holds_for_nan() {
        for op in [Op::Less, Op::AtMost, Op::More, Op::AtLeast, Op::Equal, Op::Unequal] {
            assert!(!op.holds(f64::NAN, 1.0) && !op.holds(1.0, f64::NAN), "{op}");
        }
        assert!(Op::AtMost.holds(1.0, 1.0) && !Op::Less.holds(1.0, 1.0));
        assert!(Op::Less.is_ceiling() && !Op::AtLeast.is_ceiling());
    }

    fn check(subject: Subject, op: Op, limit: f64) -> Check {
        let (confidence, when) = (Confidence::Level(0.95), Labels::default());
        Check {
            expr: "x".into(),
            subject,
            op,
            limit,
            relative: None,
            confidence,
            when,
            of: Of::Ok,
            no_data: NoData::Fail,
            abort: None,
        }
    }

    #[test]
    fn shares_and_quantiles_can_be_lost_early_and_nothing_else() {
        let metric = |metric, stat| Subject::Metric { metric, stat, tags: Vec::new() };
        let p = |share| Some(Stat::Quantile(share));
        for (subject, op, limit, share) in [
            (metric(Metric::Ttft, p(0.75)), Op::Less, 5.0, Some(0.25)),
            (metric(Metric::Ttft, p(1.0)), Op::Less, 5.0, Some(0.0)),
            (metric(Metric::DecodeTps, p(0.05)), Op::AtLeast, 5.0, Some(0.05)),
            (metric(Metric::ErrorRate, None), Op::Less, 0.01, Some(0.01)),
            (metric(Metric::ErrorRate, None), Op::More, 0.75, Some(0.25)),
            (Subject::Goodput(Vec::new()), Op::AtLeast, 0.75, Some(0.25)),
            (Subject::Goodput(Vec::new()), Op::AtLeast, 1.0, Some(0.0)),
            (metric(Metric::Itl, Some(Stat::Max)), Op::Less, 5.0, Some(0.0)),
            (metric(Metric::E2e, Some(Stat::Min)), Op::More, 5.0, Some(0.0)),
            (metric(Metric::E2e, Some(Stat::Min)), Op::Less, 5.0, None),
            (metric(Metric::E2e, Some(Stat::Mean)), Op::Less, 5.0, None),
            (metric(Metric::OutputTps, None), Op::AtLeast, 5.0, None),
            (metric(Metric::Itl, p(0.99)), Op::Less, 5.0, None),
            (metric(Metric::Ttft, p(0.95)), Op::Equal, 5.0, None),
            (metric(Metric::Ttft, p(0.0)), Op::Less, 5.0, None),
            (metric(Metric::ErrorRate, None), Op::Less, 1.0, None),
        ] {
            let wanted = check(subject, op, limit);
            assert_eq!(wanted.allowed(), share, "{wanted:?}");
        }
    }
}
