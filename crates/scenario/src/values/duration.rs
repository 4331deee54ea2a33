//! `30s`, `1m30s`, `5ms`.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::validate::found;
use crate::values::expect;
use llmscen_core::units::{Nanos, parse_duration};
use serde_json::json;

const EXPECTED: &str = "a duration such as `30s`";

/// A span, zero among them.
pub(crate) static DURATION: Leaf =
    Leaf { expected: EXPECTED, sweepable: true, schema, check: |node, review| check(node, true, review) };

/// A span above zero.
pub(crate) static SPAN: Leaf =
    Leaf { expected: EXPECTED, sweepable: true, schema, check: |node, review| check(node, false, review) };

/// The span that a node holds.
pub(crate) fn duration(node: &Node) -> Option<Nanos> {
    match &node.data {
        Data::Int(0) => Some(Nanos::ZERO),
        _ => parse_duration(&node.text()?),
    }
}

fn check(node: &Node, zero: bool, review: &mut Review) {
    match duration(node) {
        Some(Nanos::ZERO) if !zero => expect(node, "a duration above zero", "", review),
        Some(_) => {}
        None => {
            let mistake = Mistake::new(node.at, format!("`{}` must be {EXPECTED}", review.key), found(node, "a duration"));
            review.push(match node.number() {
                Some(number) if number > 0.0 => {
                    mistake.help(format!("Say the unit: `{number}s` is seconds, `{number}ms` milliseconds."))
                }
                _ => mistake.help("Units are `ns`, `us`, `ms`, `s`, `m` and `h`; `1m30s` is fine, too."),
            });
        }
    }
}

fn schema() -> serde_json::Value {
    json!({ "type": ["string", "integer"], "pattern": r"^\s*([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h)\s*)+$", "maximum": 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_summed() {
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
}
