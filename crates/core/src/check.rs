//! Service-level objectives (checks) and their verdicts.

pub mod relative;

use crate::check::relative::Relative;
use crate::label::Labels;
use crate::metric::{Metric, Scope, Stat};
use crate::signal::Signal;
use crate::units::Unit;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// A comparison operator.
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
    /// The operator between the reciprocals of two positive numbers.
    pub fn reciprocal(self) -> Op {
        match self {
            Op::Less => Op::More,
            Op::AtMost => Op::AtLeast,
            Op::More => Op::Less,
            Op::AtLeast => Op::AtMost,
            Op::Equal | Op::Unequal => self,
        }
    }

    /// The operator as text.
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

    /// Whether `value op limit` is true. False for NaN with every operator.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Op::Less => value < limit,
            Op::AtMost => value <= limit,
            Op::More => value > limit,
            Op::AtLeast => value >= limit,
            Op::Equal => value == limit,
            Op::Unequal => value
                .partial_cmp(&limit)
                .is_some_and(std::cmp::Ordering::is_ne),
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

/// The turns that a `turn` tag selects, numbered from 1: `first`, `later`, `3`, `3..10` (both included) or `20..`.
pub fn parse_turns(value: &str) -> Option<RangeInclusive<u32>> {
    let turn = |text: &str| text.parse::<u32>().ok().filter(|turn| *turn > 0);
    let turns = match (value, value.split_once("..")) {
        ("first", _) => 1..=1,
        ("later", _) => 2..=u32::MAX,
        (_, Some((low, ""))) => turn(low)?..=u32::MAX,
        (_, Some((low, high))) => turn(low)?..=turn(high)?,
        (only, None) => turn(only)?..=turn(only)?,
    };
    (!turns.is_empty()).then_some(turns)
}

/// A limit on a single request, inside `goodput(…)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestLimit {
    /// A per-request metric; for `itl`, every gap of the request must meet the limit.
    pub metric: Metric,
    /// Operator.
    pub op: Op,
    /// Limit, in the metric's unit.
    pub limit: f64,
}

/// The left side of an objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Subject {
    /// A metric of the case, or a statistic of a distribution.
    Metric {
        /// The metric.
        metric: Metric,
        /// The statistic; None exactly where the metric has one value per case.
        stat: Option<Stat>,
        /// Only requests with these tags (`model`, `round`, `turn`, `group`, `endpoint`) count.
        tags: Vec<(String, String)>,
    },
    /// The share of scheduled requests that are ok and meet every limit.
    Goodput(Vec<RequestLimit>),
    /// The share of ok requests with this finish reason.
    Finish {
        /// The selector of the reason; see [`crate::finish_reason::matches`].
        reason: String,
        /// Only requests with these tags count.
        tags: Vec<(String, String)>,
    },
    /// A statistic of a telemetry signal; always compared as a point estimate.
    Signal {
        /// The signal.
        signal: Signal,
        /// The statistic.
        stat: Stat,
        /// Only the workers with this role count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<String>,
    },
    /// A metric of the server's page, by the name on the page; always compared as a point estimate.
    PageMetric(PageMetric),
}

/// A metric of the server's page, by the name on the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageMetric {
    /// The name; a counter may omit its suffix `_total`.
    pub name: String,
    /// Labels that a series must have; the series with these labels are combined.
    pub labels: Vec<(String, String)>,
    /// The statistic.
    pub stat: PageStat,
}

impl PageMetric {
    /// Whether a series with this name is meant.
    pub fn has_name(&self, name: &str) -> bool {
        name.strip_prefix(&self.name)
            .is_some_and(|end| end.is_empty() || end == "_total")
    }
}

/// A statistic of a metric of the server's page over the measured windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageStat {
    /// Increase per second; the sum over the series.
    Rate,
    /// Time-weighted mean; the mean over the series.
    Mean,
    /// Minimum over the series.
    Min,
    /// Maximum over the series.
    Max,
}

impl PageStat {
    /// Every statistic.
    pub const ALL: [PageStat; 4] = [PageStat::Rate, PageStat::Mean, PageStat::Min, PageStat::Max];

    /// The name in an objective.
    pub fn name(self) -> &'static str {
        match self {
            PageStat::Rate => "rate",
            PageStat::Mean => "mean",
            PageStat::Min => "min",
            PageStat::Max => "max",
        }
    }
}

/// The syntax of a scenario.
impl fmt::Display for PageMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = tags_text(&self.labels);
        write!(f, "server[\"{}\"]{labels}.{}", self.name, self.stat.name())
    }
}

/// `{a=1,b=2}`; empty without tags.
fn tags_text(tags: &[(String, String)]) -> String {
    let tags: Vec<String> = tags
        .iter()
        .map(|(tag, value)| format!("{tag}={value}"))
        .collect();
    if tags.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", tags.join(","))
    }
}

/// How certain a verdict must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Confidence {
    /// Compare the point estimate; the verdict is never inconclusive.
    Point,
    /// One-sided confidence level, 0.5 < level < 1.
    Level(f64),
}

/// Which requests a quantile is taken over.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RequestSet {
    /// Successful requests.
    #[default]
    Ok,
    /// All scheduled requests; a failed one counts as +∞.
    Scheduled,
}

/// The verdict of an objective without data.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NoData {
    /// FAIL.
    #[default]
    Fail,
    /// INCONCLUSIVE.
    Inconclusive,
    /// PASS; the report notes that there was no data.
    Pass,
}

/// When a case is aborted because an objective has already failed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Abort {
    /// Minimum number of requests before the case may be aborted.
    pub min_samples: u64,
    /// Maximum probability over all looks that a round is aborted although the limit is met, 0 < alpha < 1.
    pub alpha: f64,
}

/// One objective of the scenario's `slo` list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// As the scenario wrote it.
    pub expr: String,
    /// Left side of the comparison.
    pub subject: Subject,
    /// Operator.
    pub op: Op,
    /// Right side, in the metric's unit; goodput and error rate as shares 0..=1. For a relative limit the product,
    /// NaN if the reference does not exist.
    pub limit: f64,
    /// The reference of a relative limit; None for an absolute limit.
    #[serde(default)]
    pub relative: Option<Relative>,
    /// Required confidence.
    pub confidence: Confidence,
    /// Labels of the cases that it applies to; empty: all cases.
    pub when: Labels,
    /// Requests that it is computed over.
    pub of: RequestSet,
    /// Verdict without data.
    pub no_data: NoData,
    /// Whether and when its failure aborts the case.
    pub abort: Option<Abort>,
    /// The scenario did not write it: it limits failures where no other objective does.
    #[serde(default)]
    pub is_default: bool,
}

impl Check {
    /// Whether more load makes it easier to meet: a ceiling of a cost. A search for the largest load judges it at its
    /// result.
    pub fn is_easier_with_load(&self) -> bool {
        matches!(&self.subject, Subject::Metric { metric, .. } if metric.cost_basis().is_some())
            && self.op.is_ceiling()
    }

    /// The group of requests that it applies to; None: all groups.
    pub fn group(&self) -> Option<&str> {
        self.tag("group")
    }

    /// The value of a tag that restricts it to some requests.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.subject.tag(name)
    }

    /// The share of requests that may exceed the limit while the objective passes. None where no share decides the
    /// objective before the end: a mean, a throughput, an extreme that a single request can still change, an
    /// equality, or pooled gaps, which are correlated.
    pub fn allowed(&self) -> Option<f64> {
        let ceiling = self.op.is_ceiling();
        let share = match &self.subject {
            _ if matches!(self.op, Op::Equal | Op::Unequal) => return None,
            Subject::Signal { .. } | Subject::PageMetric(_) => return None,
            subject if subject.is_share() && ceiling => self.limit,
            subject if subject.is_share() => 1.0 - self.limit,
            Subject::Goodput(_) | Subject::Finish { .. } => return None,
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

/// The verdict on one objective of one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// The limit is met at the stated confidence.
    Pass,
    /// The limit is exceeded at the stated confidence.
    Fail,
    /// Too few samples.
    Inconclusive,
    /// The load generator was measured instead of the server, or the run did not happen as planned.
    Invalid,
}

impl Ruling {
    /// The word in results.json.
    pub fn name(self) -> &'static str {
        match self {
            Ruling::Pass => "pass",
            Ruling::Fail => "fail",
            Ruling::Inconclusive => "inconclusive",
            Ruling::Invalid => "invalid",
        }
    }
}

/// Version of the decision rules: 2 since decisions use the effective sample size, 3 since overloads and short
/// throughput windows leave an objective open.
pub const VERDICT_RULES: u64 = 3;

/// The verdict on one check of one case, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The check.
    pub check: Check,
    /// The verdict.
    pub ruling: Ruling,
    /// Point estimate, in the metric's unit; None without data.
    pub observed: Option<f64>,
    /// The one-sided confidence bound that decides: the upper one for `<` and `<=`, the lower one for `>` and `>=`.
    /// None for `point`, or with too few samples.
    pub bound: Option<f64>,
    /// Sample count.
    pub n: u64,
    /// Effective sample size: independent samples with the information of the `n` correlated ones; None if the rule
    /// does not use counts.
    #[serde(default)]
    pub effective_n: Option<f64>,
    /// Inconclusive: estimated total number of samples for a decision, if the observed share persists; None if unknown.
    pub need: Option<u64>,
    /// One line of explanation, if the numbers need one.
    pub note: Option<String>,
}

impl Subject {
    /// Its metric, if it is about one.
    pub fn metric(&self) -> Option<Metric> {
        match self {
            Subject::Metric { metric, .. } => Some(*metric),
            _ => None,
        }
    }

    /// The limits of a goodput.
    pub fn goodput_limits(&self) -> Option<&[RequestLimit]> {
        match self {
            Subject::Goodput(limits) => Some(limits),
            _ => None,
        }
    }

    /// The value of a tag that restricts it to some requests.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags()
            .iter()
            .find(|(tag, _)| tag == name)
            .map(|(_, value)| value.as_str())
    }

    /// The tags that restrict it to some requests.
    pub fn tags(&self) -> &[(String, String)] {
        match self {
            Subject::Metric { tags, .. } | Subject::Finish { tags, .. } => tags,
            Subject::Goodput(_) | Subject::Signal { .. } | Subject::PageMetric(_) => &[],
        }
    }

    /// Whether it is a share of the requests, which has exact binomial bounds.
    pub fn is_share(&self) -> bool {
        match self {
            Subject::Goodput(_) | Subject::Finish { .. } => true,
            Subject::Metric { metric, .. } => metric.is_request_share(),
            Subject::Signal { .. } | Subject::PageMetric(_) => false,
        }
    }

    /// Whether it is the share of expected answers over all requests.
    pub fn is_match_rate(&self) -> bool {
        matches!(self, Subject::Metric { metric: Metric::MatchRate, stat: None, tags } if tags.is_empty())
    }

    /// The unit of the values: a share for goodput, a plain count for `.count`.
    pub fn unit(&self) -> Unit {
        match self {
            Subject::Goodput(_) | Subject::Finish { .. } => Unit::Share,
            Subject::Metric {
                stat: Some(Stat::Count),
                ..
            }
            | Subject::Signal {
                stat: Stat::Count, ..
            } => Unit::Count,
            Subject::Metric { metric, .. } => metric.unit(),
            Subject::Signal { signal, .. } => signal.unit(),
            Subject::PageMetric(series) if series.stat == PageStat::Rate => Unit::PerSecond,
            Subject::PageMetric(_) => Unit::Count,
        }
    }
}

impl Check {
    /// The name of the statistic in a baseline file.
    pub fn figure_name(&self) -> String {
        let scheduled = if self.of == RequestSet::Scheduled {
            " of scheduled"
        } else {
            ""
        };
        format!("{}{scheduled}", self.subject)
    }
}

/// The syntax of a scenario: the text parses to an equal check.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.subject, self.op)?;
        match &self.relative {
            Some(relative) if relative.factor == 1.0 => f.write_str(&relative.name()),
            Some(relative) => write!(f, "{} * {}", relative.factor, relative.name()),
            None => f.write_str(&self.subject.unit().threshold(self.limit)),
        }
    }
}

/// The syntax of a scenario: the text parses to an equal subject.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Metric { metric, stat, tags } => {
                let tags = tags_text(tags);
                let stat = stat.map_or(String::new(), |stat| format!(".{stat}"));
                write!(f, "{metric}{tags}{stat}")
            }
            Subject::Signal {
                signal,
                stat,
                role: Some(role),
            } => {
                let name = signal.name().strip_prefix(signal.scope());
                write!(
                    f,
                    "{}{{role={role}}}{}.{stat}",
                    signal.scope(),
                    name.unwrap_or_default()
                )
            }
            Subject::Signal { signal, stat, .. } => write!(f, "{signal}.{stat}"),
            Subject::PageMetric(series) => write!(f, "{series}"),
            Subject::Finish { reason, tags } => {
                let tags = tags.iter().map(|(tag, value)| format!(",{tag}={value}"));
                write!(f, "finish{{{reason}{}}}.share", tags.collect::<String>())
            }
            Subject::Goodput(limits) => {
                let limits: Vec<String> = limits
                    .iter()
                    .map(|limit| {
                        format!(
                            "{} {} {}",
                            limit.metric,
                            limit.op,
                            limit.metric.unit().threshold(limit.limit)
                        )
                    })
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
    fn no_comparison_with_nan_is_true() {
        for op in [
            Op::Less,
            Op::AtMost,
            Op::More,
            Op::AtLeast,
            Op::Equal,
            Op::Unequal,
        ] {
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
            of: RequestSet::Ok,
            no_data: NoData::Fail,
            abort: None,
            is_default: false,
        }
    }

    #[test]
    fn only_shares_and_quantiles_can_fail_early() {
        let metric = |metric, stat| Subject::Metric {
            metric,
            stat,
            tags: Vec::new(),
        };
        let p = |share| Some(Stat::Quantile(share));
        let finish = |reason: &str| Subject::Finish {
            reason: reason.into(),
            tags: Vec::new(),
        };
        for (subject, op, limit, share) in [
            (metric(Metric::Ttft, p(0.75)), Op::Less, 5.0, Some(0.25)),
            (metric(Metric::Ttft, p(1.0)), Op::Less, 5.0, Some(0.0)),
            (
                metric(Metric::DecodeTps, p(0.05)),
                Op::AtLeast,
                5.0,
                Some(0.05),
            ),
            (metric(Metric::ErrorRate, None), Op::Less, 0.01, Some(0.01)),
            (metric(Metric::ErrorRate, None), Op::More, 0.75, Some(0.25)),
            (finish("length"), Op::AtMost, 0.05, Some(0.05)),
            (finish("stop"), Op::AtLeast, 0.75, Some(0.25)),
            (Subject::Goodput(Vec::new()), Op::AtLeast, 0.75, Some(0.25)),
            (Subject::Goodput(Vec::new()), Op::AtLeast, 1.0, Some(0.0)),
            (
                metric(Metric::Itl, Some(Stat::Max)),
                Op::Less,
                5.0,
                Some(0.0),
            ),
            (
                metric(Metric::E2e, Some(Stat::Min)),
                Op::More,
                5.0,
                Some(0.0),
            ),
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
