//! `slo_defaults`: the limit on failures of a case whose objectives look at successful requests alone.

use crate::schema_table::{Block, Kind, Leaf, field};
use crate::tree::{Data, Node};
use crate::values::expect_some;
use crate::values::number::{SHARE, share};
use llmscen_core::check::{Check, Confidence, NoData, Op, RequestSet, Subject, parse_turns};
use llmscen_core::label::{Labels, STAGE, Scalar};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::mix::is_in_group;
use llmscen_core::plan::Case;
use serde_json::json;

const SECTION: &str = "slo_defaults";
const ERROR_RATE: &str = "error_rate";
const OFF: &str = "off";

static LIMIT: Leaf = Leaf {
    expected: "a share such as `1%`, or `off`",
    sweepable: false,
    schema: || json!({ "anyOf": [{ "const": OFF }, (SHARE.schema)()] }),
    check: |node, review| {
        let is_valid = is_off(node) || limit(node).is_some();
        let expected = "a share above 0%, up to 100%, or `off`";
        expect_some(
            is_valid.then_some(()),
            node,
            expected,
            "`5%` or `off`",
            review,
        )
    },
};

pub(crate) static SLO_DEFAULTS: Block = Block {
    doc: "Objectives that a run has although `slo` does not list them.",
    short: None,
    fields: &[field(
        ERROR_RATE,
        Kind::Leaf(&LIMIT),
        "Limit on `error_rate` for cases whose objectives look at successful requests \
        alone, such as limits on latency or throughput. A limit on `error_rate`, \
        `goodput(…)` or a quantile with `of: scheduled` replaces it. Compared as a \
        point estimate; `off`: none.",
    )
    .default("1%")
    .example("5%")],
};

fn is_off(node: &Node) -> bool {
    node.text().is_some_and(|text| text == OFF)
}

fn limit(node: &Node) -> Option<f64> {
    share(node).filter(|share| *share > 0.0)
}

/// Gives a stored plan of an earlier version, which has objectives and no defaults, none: its verdicts stay as they
/// are.
pub(crate) fn keep_stored(root: &mut Node) {
    if root.get("slo").is_some() && root.get(SECTION).is_none() {
        let at = root.at.before();
        let off = Node::new(at, Data::Text(OFF.to_owned()));
        root.set(&format!("{SECTION}.{ERROR_RATE}"), at, off);
    }
}

/// Adds the default objective to the cases and stages that lack a limit on failures.
pub(crate) fn add(root: &Node, cases: &mut [Case]) {
    let path = format!("{SECTION}.{ERROR_RATE}");
    let Some(limit) = root.read(&path, limit) else {
        return;
    };
    for case in cases {
        let of_stages: Vec<(Option<Scalar>, Vec<Check>)> = case
            .stages()
            .into_iter()
            .map(|stage| {
                let number = stage.case.labels.get(STAGE).cloned();
                (number, default_checks(&stage.case.checks, limit))
            })
            .collect();
        let is_same = of_stages
            .iter()
            .all(|(_, checks)| *checks == of_stages[0].1);
        for (number, checks) in of_stages.iter().take(if is_same { 1 } else { usize::MAX }) {
            let number = number.clone().filter(|_| !is_same);
            let when = |check: &Check| match number.clone() {
                Some(number) => check.when.with(STAGE, number),
                None => check.when.clone(),
            };
            let checks = checks.iter().map(|check| Check {
                when: when(check),
                ..check.clone()
            });
            case.stage_checks.extend(checks);
        }
        let checks = default_checks(&case.checks, limit);
        case.checks.extend(checks);
    }
}

/// The default objectives beside these.
fn default_checks(checks: &[Check], limit: f64) -> Vec<Check> {
    let failures: Vec<&Check> = checks
        .iter()
        .filter(|check| limits_failures(check))
        .collect();
    let mut unlimited: Vec<Vec<(String, String)>> = Vec::new();
    for check in checks.iter().filter(|check| ignores_failures(check)) {
        let tags = check.subject.tags();
        if failures
            .iter()
            .any(|other| may_overlap(other.subject.tags(), tags))
        {
            continue;
        }
        // A failed request may have no response headers.
        let is_kept = |(tag, _): &&(String, String)| !failures.is_empty() && !tag.contains('-');
        let tags: Vec<_> = tags.iter().filter(is_kept).cloned().collect();
        if !unlimited.contains(&tags) {
            unlimited.push(tags);
        }
    }
    let check = |tags| {
        let check = Check {
            expr: String::new(),
            subject: Subject::Metric {
                metric: Metric::ErrorRate,
                stat: None,
                tags,
            },
            op: Op::Less,
            limit,
            relative: None,
            // At 95 % confidence, fewer than 299 requests without a failure would be inconclusive.
            confidence: Confidence::Point,
            when: Labels::default(),
            of: RequestSet::Ok,
            // Where the client cancelled every request, none failed.
            no_data: NoData::Pass,
            abort: None,
            is_default: true,
        };
        Check {
            expr: check.to_string(),
            ..check
        }
    };
    unlimited.into_iter().map(check).collect()
}

/// Whether failed requests count against a check.
fn limits_failures(check: &Check) -> bool {
    match &check.subject {
        Subject::Goodput(_) => true,
        Subject::Metric {
            metric: Metric::ErrorRate,
            ..
        } => true,
        // Among many gaps, the one value of a failed request has no weight.
        Subject::Metric { metric, stat, .. } => {
            check.of == RequestSet::Scheduled
                && metric.per() == Scope::Request
                && matches!(stat, Some(Stat::Quantile(_) | Stat::Max | Stat::Mean))
        }
        Subject::Finish { .. } | Subject::Signal { .. } | Subject::PageMetric(_) => false,
    }
}

/// Metrics of the load and of the server's start, which failures do not hide.
const OF_THE_RUN: [Metric; 9] = [
    Metric::Startup,
    Metric::Window,
    Metric::ThroughputWindow,
    Metric::RateOffered,
    Metric::RateAchieved,
    Metric::ConcurrencyMean,
    Metric::ConcurrencyMax,
    Metric::ScheduleLag,
    Metric::HeldTime,
];

/// Whether a check looks at successful requests alone.
fn ignores_failures(check: &Check) -> bool {
    match &check.subject {
        Subject::Metric { metric, .. } => !limits_failures(check) && !OF_THE_RUN.contains(metric),
        Subject::Finish { .. } => true,
        Subject::Goodput(_) | Subject::Signal { .. } | Subject::PageMetric(_) => false,
    }
}

/// Whether a request may have the tags of both.
fn may_overlap(one: &[(String, String)], other: &[(String, String)]) -> bool {
    let excludes = |tag: &str, a: &str, b: &str| match tag {
        "turn" => parse_turns(a)
            .zip(parse_turns(b))
            .is_some_and(|(a, b)| a.end() < b.start() || b.end() < a.start()),
        "group" => !is_in_group(a, b) && !is_in_group(b, a),
        _ => a != b,
    };
    !one.iter().any(|(tag, a)| {
        let same = other.iter().filter(|(name, _)| name == tag);
        same.into_iter().any(|(_, b)| excludes(tag, a, b))
    })
}
