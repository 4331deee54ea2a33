//! Counts that may be multiples of the concurrency: `200` or `10x`; and the warm-up, which may be a span too.

use crate::fault::Review;
use crate::schema_table::Leaf;
use crate::tree::Node;
use crate::values::{duration, expect};
use llmscen_core::load::Warmup;
use serde_json::json;

const REQUESTS: &str = "a number of requests, 1 or more, or a multiple of the concurrency such as `10x`";
const WARMUP: &str = "a number of requests, a multiple of the concurrency such as `1x`, or a duration such as `10s`";

/// A count of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Times {
    /// That many.
    Count(u64),
    /// That many times the concurrency.
    Concurrency(u64),
}

/// The number of measured requests.
pub(crate) static REQUESTS_LEAF: Leaf =
    Leaf { expected: REQUESTS, sweepable: true, schema: requests_schema, check: check_requests };

/// The warm-up.
pub(crate) static WARMUP_LEAF: Leaf = Leaf { expected: WARMUP, sweepable: true, schema: warmup_schema, check: check_warmup };

/// The count that a node holds; zero among them.
pub(crate) fn times(node: &Node) -> Option<Times> {
    match node.whole() {
        Some(count) => u64::try_from(count).ok().map(Times::Count),
        None => node.text()?.trim().strip_suffix('x')?.parse().ok().map(Times::Concurrency),
    }
}

/// The warm-up that a node holds, for so many users.
pub(crate) fn warmup(node: &Node, users: Option<u32>) -> Option<Warmup> {
    match times(node) {
        Some(times) => times.of(users).map(Warmup::Requests),
        None => duration::duration(node).map(Warmup::Span),
    }
}

impl Times {
    /// The count, where the number of users is known or not needed.
    pub fn of(self, users: Option<u32>) -> Option<u64> {
        match self {
            Times::Count(count) => Some(count),
            Times::Concurrency(times) => users.map(|users| times.saturating_mul(u64::from(users))),
        }
    }
}

fn check_requests(node: &Node, review: &mut Review) {
    if !matches!(times(node), Some(Times::Count(1..) | Times::Concurrency(1..))) {
        expect(node, "a number of requests, 1 or more", "200, or `10x` for ten times the concurrency", review);
    }
}

fn check_warmup(node: &Node, review: &mut Review) {
    if warmup(node, Some(1)).is_none() {
        expect(node, "a number of requests, or a duration", "16, `1x` for the concurrency, or `10s`", review);
    }
}

fn requests_schema() -> serde_json::Value {
    json!({ "type": ["integer", "string"], "minimum": 1, "pattern": "^[1-9][0-9]*x$" })
}

fn warmup_schema() -> serde_json::Value {
    json!({ "type": ["integer", "string"], "minimum": 0, "pattern": r"^([0-9]+x|([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h)\s*)+)$" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Data, Span};
    use llmscen_core::units::Nanos;

    #[test]
    fn multiples_need_a_concurrency() {
        let node = |text: &str| Node::new(Span { file: 0, start: 0, end: 0 }, Data::plain(text));
        assert_eq!(times(&node("200")).and_then(|t| t.of(None)), Some(200));
        assert_eq!(times(&node("10x")).and_then(|t| t.of(Some(16))), Some(160));
        assert_eq!(times(&node("10x")).and_then(|t| t.of(None)), None);
        assert_eq!(warmup(&node("1x"), Some(8)), Some(Warmup::Requests(8)));
        assert_eq!(warmup(&node("10s"), None), Some(Warmup::Span(Nanos::from_millis(10_000))));
        assert_eq!(times(&node("-1")), None);
        assert_eq!(times(&node("x")), None);
    }
}
