//! `8/s`, `480/m`, `burst`; and how arrivals are spaced.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::validate::found;
use crate::values::expect;
use llmscen_core::load::Arrival;
use serde_json::json;

const RATES: &str = "a rate such as `8/s`, or `burst`";
const SPACINGS: &str = "`poisson`, `constant` or `{ gamma: burstiness }`";

/// The highest rate taken, requests a second: more than any one machine sends, so that a slip of the hand plans no flood.
const MOST: f64 = 1e6;

/// How often requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// So many a second.
    PerSecond(f64),
    /// All at once.
    Burst,
}

/// A rate of arrivals.
pub(crate) static RATE: Leaf = Leaf { expected: RATES, sweepable: true, schema: rate_schema, check: check_rate };

/// The spacing of arrivals.
pub(crate) static ARRIVALS: Leaf = Leaf { expected: SPACINGS, sweepable: true, schema: arrivals_schema, check: check_arrivals };

/// The rate that a node holds.
pub(crate) fn rate(node: &Node) -> Option<Rate> {
    let text = node.text()?;
    if text == "burst" {
        return Some(Rate::Burst);
    }
    per_second(&text).filter(|rate| *rate > 0.0).map(Rate::PerSecond)
}

/// A number over a unit of time, as a number a second; zero among them.
pub(crate) fn per_second(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once('/')?;
    let seconds = match unit.trim() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let rate = number.trim().parse::<f64>().ok()? / seconds;
    (0.0..=MOST).contains(&rate).then_some(rate)
}

/// The spacing that a node holds.
pub(crate) fn arrivals(node: &Node) -> Option<Arrival> {
    match (&node.data, node.text().as_deref()) {
        (_, Some("poisson")) => Some(Arrival::Poisson),
        (_, Some("constant")) => Some(Arrival::Constant),
        (Data::Map(entries), _) => match entries.as_slice() {
            [only] if only.key == "gamma" => {
                let burstiness = only.value.number().filter(|b| *b > 0.0 && b.is_finite())?;
                Some(Arrival::Gamma { burstiness })
            }
            _ => None,
        },
        _ => None,
    }
}

fn check_rate(node: &Node, review: &mut Review) {
    if rate(node).is_none() {
        let mistake = Mistake::new(node.at, format!("`{}` must be {RATES}", review.key), found(node, "a rate"));
        review.push(match node.number() {
            Some(number) if number > 0.0 => mistake.help(format!("Say per what: `{number}/s` or `{number}/m`.")),
            _ => mistake.help(format!("A rate is a number above 0 over `s`, `m` or `h`, at most {MOST} a second.")),
        });
    }
}

fn check_arrivals(node: &Node, review: &mut Review) {
    if arrivals(node).is_none() {
        expect(node, SPACINGS, "`{ gamma: 0.5 }` for clumps; the burstiness is above 0", review);
    }
}

fn rate_schema() -> serde_json::Value {
    json!({ "type": "string", "pattern": r"^(burst|\s*[0-9.]+\s*/\s*[smh]\s*)$" })
}

fn arrivals_schema() -> serde_json::Value {
    json!({ "oneOf": [
        { "enum": ["poisson", "constant"] },
        { "type": "object", "properties": { "gamma": { "type": "number", "exclusiveMinimum": 0 } }, "required": ["gamma"], "additionalProperties": false },
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Span;

    fn text(text: &str) -> Node {
        Node::new(Span { file: 0, start: 0, end: 0 }, Data::Text(text.into()))
    }

    #[test]
    fn rates_are_per_second() {
        for (written, value) in [
            ("8/s", Some(Rate::PerSecond(8.0))),
            ("480/m", Some(Rate::PerSecond(8.0))),
            ("0.5 / s", Some(Rate::PerSecond(0.5))),
            ("burst", Some(Rate::Burst)),
            ("1000000/s", Some(Rate::PerSecond(1e6))),
            ("1000001/s", None),
            ("1e12/s", None),
            ("8", None),
            ("0/s", None),
            ("-1/s", None),
            ("inf/s", None),
            ("8/d", None),
        ] {
            assert_eq!(rate(&text(written)), value, "{written}");
        }
    }
}
