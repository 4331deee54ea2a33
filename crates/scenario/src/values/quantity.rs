//! A length in tokens: `256`, `{ uniform: [64, 256] }`, `{ normal: { mean: 128, sd: 32 } }`, `{ from: item.output_tokens }`.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::suggest::near;
use crate::tree::{Data, Entry, Node};
use crate::values::expect;
use llmscen_core::request::Quantity;
use serde_json::json;

const EXPECTED: &str = "a number of tokens, or a distribution of it";
const EXAMPLES: &str =
    "256, `{ uniform: [64, 256] }`, `{ normal: { mean: 128, sd: 32 } }`, `lognormal` likewise, `{ from: item.output_tokens }`";
const SHAPES: [&str; 4] = ["uniform", "normal", "lognormal", "from"];

/// A length that may differ from request to request.
pub(crate) static QUANTITY: Leaf = Leaf { expected: EXPECTED, sweepable: true, schema, check };

/// The length that a node holds.
pub(crate) fn quantity(node: &Node) -> Option<Quantity> {
    if let Data::Int(value) = node.data {
        return u64::try_from(value).ok().filter(|n| *n > 0).map(Quantity::Fixed);
    }
    let [only] = node.entries() else { return None };
    match only.key.as_str() {
        "uniform" => uniform(&only.value),
        "normal" => moments(&only.value).map(|(mean, sd)| Quantity::Normal { mean, sd }),
        "lognormal" => moments(&only.value).map(|(mean, sd)| Quantity::Lognormal { mean, sd }),
        "from" => field(&only.value),
        _ => None,
    }
}

fn uniform(node: &Node) -> Option<Quantity> {
    let [low, high] = node.items() else { return None };
    let (low, high) = (u64::try_from(low.whole()?).ok()?, u64::try_from(high.whole()?).ok()?);
    (0 < low && low <= high).then_some(Quantity::Uniform { low, high })
}

fn moments(node: &Node) -> Option<(f64, f64)> {
    let (mean, sd) = (node.get("mean")?.number()?, node.get("sd")?.number()?);
    let known = node.entries().len() == 2;
    (known && mean > 0.0 && sd >= 0.0 && mean.is_finite() && sd.is_finite()).then_some((mean, sd))
}

fn field(node: &Node) -> Option<Quantity> {
    let text = node.text()?;
    let name = text.strip_prefix("item.").filter(|name| !name.is_empty())?;
    Some(Quantity::Item(name.to_owned()))
}

fn check(node: &Node, review: &mut Review) {
    if quantity(node).is_some() {
        return;
    }
    match node.entries() {
        [only] => review.push(shape_mistake(only)),
        _ if node.number().is_some() => expect(node, "a whole number of tokens, 1 or more", "", review),
        _ => expect(node, EXPECTED, EXAMPLES, review),
    }
}

fn shape_mistake(only: &Entry) -> Mistake {
    let takes = match only.key.as_str() {
        "uniform" => "`uniform` takes `[low, high]`, two whole numbers above 0 with low ≤ high",
        "normal" | "lognormal" => "this takes `{ mean: …, sd: … }`, a mean above 0 and a standard deviation of 0 or more",
        "from" => "`from` takes a field of the dataset's rows, such as `item.output_tokens`",
        key => {
            let label = near(key, SHAPES).map_or("does not exist".to_owned(), |meant| format!("did you mean `{meant}`?"));
            return Mistake::new(only.key_at, format!("unknown distribution `{key}`"), label)
                .help(format!("For example {EXAMPLES}."));
        }
    };
    Mistake::new(only.value.at, takes, "does not fit")
}

fn schema() -> serde_json::Value {
    let one = |name: &str, value: serde_json::Value| json!({ "type": "object", "properties": { name: value }, "required": [name], "additionalProperties": false });
    let moments = json!({ "type": "object", "properties": { "mean": { "type": "number", "exclusiveMinimum": 0 }, "sd": { "type": "number", "minimum": 0 } },
        "required": ["mean", "sd"], "additionalProperties": false });
    json!({ "oneOf": [
        { "type": "integer", "minimum": 1 },
        one("uniform", json!({ "type": "array", "items": { "type": "integer", "minimum": 1 }, "minItems": 2, "maxItems": 2 })),
        one("normal", moments.clone()),
        one("lognormal", moments),
        one("from", json!({ "type": "string", "pattern": "^item\\..+" })),
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn read(text: &str) -> (Option<Quantity>, Vec<String>) {
        let mut review = Review::default();
        review.key = "max_tokens".to_owned();
        let file = review.sources.add("t", text, Default::default());
        let node = parse(file, 0, text, &mut review).unwrap();
        check(&node, &mut review);
        let faults = review.faults().iter().map(|f| format!("{} {f}", f.column())).collect();
        (quantity(&node), faults)
    }

    #[test]
    fn every_shape_is_read() {
        for (text, value) in [
            ("256", Quantity::Fixed(256)),
            ("{uniform: [1, 9]}", Quantity::Uniform { low: 1, high: 9 }),
            ("{normal: {mean: 128, sd: 32.5}}", Quantity::Normal { mean: 128.0, sd: 32.5 }),
            ("{lognormal: {sd: 0, mean: 2}}", Quantity::Lognormal { mean: 2.0, sd: 0.0 }),
            ("{from: item.output_tokens}", Quantity::Item("output_tokens".into())),
        ] {
            assert_eq!(read(text), (Some(value), vec![]), "{text}");
        }
    }

    #[test]
    fn each_mistake_is_pointed_at() {
        for (text, fault) in [
            ("0", "1 `max_tokens` must be a whole number of tokens, 1 or more"),
            ("{uniform: [9, 1]}", "11 `uniform` takes `[low, high]`, two whole numbers above 0 with low ≤ high"),
            ("{unifrom: [1, 9]}", "2 unknown distribution `unifrom`"),
            ("{from: output_tokens}", "8 `from` takes a field of the dataset's rows, such as `item.output_tokens`"),
        ] {
            assert_eq!(read(text), (None, vec![fault.to_owned()]), "{text}");
        }
    }
}
