//! Durations, and counts of requests.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::{describe_actual, expect, expect_some};
use llmscen_core::load::Warmup;
use llmscen_core::units::{Nanos, parse_duration};
use serde_json::json;

const DURATION_EXPECTED: &str = "a duration such as `30s`";

/// A duration, which may be zero.
pub(crate) static DURATION: Leaf = Leaf {
    expected: DURATION_EXPECTED,
    sweepable: true,
    schema: duration_schema,
    check: |node, review| check_duration(node, true, review),
};

/// A duration above zero.
pub(crate) static SPAN: Leaf = Leaf {
    expected: DURATION_EXPECTED,
    sweepable: true,
    schema: duration_schema,
    check: |node, review| check_duration(node, false, review),
};

pub(crate) fn duration(node: &Node) -> Option<Nanos> {
    match &node.data {
        Data::Int(0) => Some(Nanos::ZERO),
        _ => parse_duration(&node.text()?),
    }
}

fn check_duration(node: &Node, zero: bool, review: &mut Review) {
    match duration(node) {
        Some(Nanos::ZERO) if !zero => expect(node, "a duration above zero", "", review),
        Some(_) => {}
        None => {
            let mistake = Mistake::new(
                node.at,
                format!("`{}` must be {DURATION_EXPECTED}", review.key),
                describe_actual(node, "a duration"),
            );
            review.push(match node.number() {
                Some(number) if number > 0.0 => mistake.help(format!(
                    "Add a unit: `{number}s` is seconds, `{number}ms` milliseconds."
                )),
                _ => mistake.help(
                    "Units are `ns`, `us`, `ms`, `s`, `m` and `h`; they can be combined: `1m30s`.",
                ),
            });
        }
    }
}

fn duration_schema() -> serde_json::Value {
    json!({ "type": ["string", "integer"], "pattern": r"^\s*([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h)\s*)+$", "maximum": 0 })
}

const REQUESTS: &str =
    "a number of requests, 1 or more, or a multiple of the concurrency such as `10x`";
const WARMUP: &str = "a number of requests, a multiple of the concurrency such as \
    `1x`, or a duration such as `10s`";

/// A count of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Times {
    Count(u64),
    /// A multiple of the concurrency, and a minimum.
    Concurrency {
        times: u64,
        least: u64,
    },
}

pub(crate) static REQUESTS_LEAF: Leaf = Leaf {
    expected: REQUESTS,
    sweepable: true,
    schema: || {
        json!({ "type": ["integer", "string"], "minimum": 1,
        "pattern": r"^([1-9][0-9]*x|max\([0-9]+, *[1-9][0-9]*x\))$" })
    },
    check: |node, review| {
        if !matches!(
            times(node),
            Some(Times::Count(1..) | Times::Concurrency { times: 1.., .. })
        ) {
            expect(
                node,
                "a number of requests, 1 or more",
                "200, `10x` for ten times the concurrency, or `max(200, 10x)`",
                review,
            );
        }
    },
};

pub(crate) static WARMUP_LEAF: Leaf = Leaf {
    expected: WARMUP,
    sweepable: true,
    schema: || {
        json!({ "type": ["integer", "string"], "minimum": 0,
        "pattern": r"^([0-9]+x|([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h)\s*)+)$" })
    },
    check: |node, review| {
        let examples = "16, `1x` for the concurrency, or `10s`";
        expect_some(
            warmup(node, Some(1)),
            node,
            "a number of requests, or a duration",
            examples,
            review,
        );
    },
};

/// The count; may be zero.
pub(crate) fn times(node: &Node) -> Option<Times> {
    match node.integer() {
        Some(count) => u64::try_from(count).ok().map(Times::Count),
        None => {
            let text = node.text()?;
            let (least, times) = match text.trim().strip_prefix("max(") {
                Some(both) => {
                    let (least, times) = both.strip_suffix(')')?.split_once(',')?;
                    (least.trim().parse().ok()?, times.trim())
                }
                None => (0, text.trim()),
            };
            let times = times.strip_suffix('x')?.parse().ok()?;
            Some(Times::Concurrency { times, least })
        }
    }
}

/// The warm-up for a number of users.
pub(crate) fn warmup(node: &Node, users: Option<u32>) -> Option<Warmup> {
    match times(node) {
        Some(times) => times.count(users).map(Warmup::Requests),
        None => duration(node).map(Warmup::Span),
    }
}

impl Times {
    /// The count; None if it needs a number of users that is not known.
    pub fn count(self, users: Option<u32>) -> Option<u64> {
        match self {
            Times::Count(count) => Some(count),
            Times::Concurrency { times, least } => {
                users.map(|users| times.saturating_mul(u64::from(users)).max(least))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Data, Span};
    use llmscen_core::units::Nanos;

    #[test]
    fn durations_with_several_units_are_summed() {
        for (text, nanos) in [
            ("30s", Some(30_000_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("1h 1ms", Some(3_600_001_000_000)),
            ("0.5ms", Some(500_000)),
            ("20us", Some(20_000)),
            ("20µs", Some(20_000)),
            ("0s", Some(0)),
            ("", None),
            ("30", None),
            ("s", None),
            ("30 sec", None),
            ("-5s", None),
            ("1.2.3s", None),
        ] {
            assert_eq!(parse_duration(text), nanos.map(Nanos), "{text:?}");
        }
    }

    #[test]
    fn multiples_need_a_concurrency() {
        let node = |text: &str| Node::new(Span::default(), Data::plain(text));
        assert_eq!(times(&node("200")).and_then(|t| t.count(None)), Some(200));
        assert_eq!(
            times(&node("10x")).and_then(|t| t.count(Some(16))),
            Some(160)
        );
        assert_eq!(times(&node("10x")).and_then(|t| t.count(None)), None);
        assert_eq!(warmup(&node("1x"), Some(8)), Some(Warmup::Requests(8)));
        assert_eq!(
            warmup(&node("10s"), None),
            Some(Warmup::Span(Nanos::from_millis(10_000)))
        );
        assert_eq!(times(&node("-1")), None);
        assert_eq!(times(&node("x")), None);
    }
}
