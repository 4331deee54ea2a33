//! `30s`, `1m30s`, `5ms`.

use crate::model::units::Nanos;
use crate::scenario::block::Leaf;
use crate::scenario::fault::{Mistake, Review};
use crate::scenario::leaf::expect;
use crate::scenario::shape::found;
use crate::scenario::tree::{Data, Node};
use serde_json::json;

const EXPECTED: &str = "a duration such as `30s`";

/// The units and their length in nanoseconds.
pub(crate) const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

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
        _ => parse(&node.text()?),
    }
}

/// One or more numbers, each with its unit, summed.
pub(crate) fn parse(text: &str) -> Option<Nanos> {
    let mut rest = text.trim();
    let mut sum = if rest.is_empty() { None } else { Some(Nanos::ZERO) };
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let number: f64 = number.parse().ok()?;
        sum = sum.map(|sum| sum + Nanos((number * scale as f64).round() as u64));
        rest = tail.trim_start();
    }
    sum
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
            assert_eq!(parse(text), nanos.map(Nanos), "{text:?}");
        }
    }
}
