//! A time that may differ from turn to turn: `2s`, `{ uniform: [1s, 3s] }`, `{ exponential: 2s }`.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::suggest::near;
use crate::tree::Node;
use crate::values::duration::{DURATION, duration};
use crate::values::expect;
use llmscen_core::dataset::Wait;
use llmscen_core::units::Nanos;
use serde_json::json;

const EXPECTED: &str = "a duration, or a distribution of it";
const EXAMPLES: &str = "`2s`, `{ uniform: [1s, 3s] }` or `{ exponential: 2s }`";
const SHAPES: [&str; 2] = ["uniform", "exponential"];

/// A time that may differ from turn to turn.
pub(crate) static WAIT: Leaf = Leaf { expected: EXPECTED, sweepable: true, schema, check };

/// The time that a node holds.
pub(crate) fn wait(node: &Node) -> Option<Wait> {
    if let Some(span) = duration(node) {
        return Some(Wait::Fixed(span));
    }
    let [only] = node.entries() else { return None };
    match (only.key.as_str(), only.value.items()) {
        ("uniform", [low, high]) => {
            let (low, high) = (duration(low)?, duration(high)?);
            (low <= high).then_some(Wait::Uniform(low, high))
        }
        ("exponential", _) => duration(&only.value).filter(|mean| *mean > Nanos::ZERO).map(Wait::Exponential),
        _ => None,
    }
}

fn check(node: &Node, review: &mut Review) {
    if wait(node).is_some() {
        return;
    }
    let [only] = node.entries() else {
        return if node.number().is_some() { (DURATION.check)(node, review) } else { expect(node, EXPECTED, EXAMPLES, review) };
    };
    let takes = match only.key.as_str() {
        "uniform" => "`uniform` takes `[low, high]`, two durations with low ≤ high",
        "exponential" => "`exponential` takes its mean, a duration above zero",
        key => {
            let label = near(key, SHAPES).map_or("does not exist".to_owned(), |meant| format!("did you mean `{meant}`?"));
            let mistake = Mistake::new(only.key_at, format!("unknown distribution `{key}`"), label);
            return review.push(mistake.help(format!("For example {EXAMPLES}.")));
        }
    };
    review.push(Mistake::new(only.value.at, takes, "does not fit"));
}

fn schema() -> serde_json::Value {
    let span = (DURATION.schema)();
    let one = |name: &str, value: serde_json::Value| json!({ "type": "object", "properties": { name: value }, "required": [name], "additionalProperties": false });
    let pair = json!({ "type": "array", "items": span, "minItems": 2, "maxItems": 2 });
    json!({ "anyOf": [span, one("uniform", pair), one("exponential", span.clone())] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn every_notation_is_read() {
        let read = |text: &str| wait(&parse(0, 0, text, &mut Review::default()).unwrap());
        let seconds = |n: u64| Nanos::from_millis(n * 1000);
        assert_eq!(read("2s"), Some(Wait::Fixed(seconds(2))));
        assert_eq!(read("0"), Some(Wait::Fixed(Nanos::ZERO)));
        assert_eq!(read("{uniform: [1s, 3s]}"), Some(Wait::Uniform(seconds(1), seconds(3))));
        assert_eq!(read("{exponential: 2s}"), Some(Wait::Exponential(seconds(2))));
        for bad in ["2", "{uniform: [3s, 1s]}", "{uniform: 1s}", "{exponential: 0s}", "{normal: 1s}", "[1s, 2s]", "{}"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
