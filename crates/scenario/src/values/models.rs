//! `llama`, `[a, b]`, `[{ a: 3 }, { name: b, weight: 1 }]`, `{ a: 3, b: 1 }`.

use crate::fault::Review;
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::expect;
use llmscen_core::target::ModelShare;
use serde_json::json;

const EXAMPLES: &str = "`qwen2.5`, `[base, lora-a]` or `{ base: 3, lora-a: 1 }`";

/// The models that requests name.
pub(crate) static MODELS: Leaf = Leaf { expected: "a model's name, or several", sweepable: true, schema, check };

/// The models that a node holds, each with its weight; never empty.
pub(crate) fn models(node: &Node) -> Option<Vec<ModelShare>> {
    let shares = match &node.data {
        Data::List(items) => items.iter().map(entry).collect::<Option<Vec<_>>>()?.concat(),
        _ => entry(node)?,
    };
    let unique = shares.iter().enumerate().all(|(index, share)| shares[..index].iter().all(|other| other.name != share.name));
    (unique && !shares.is_empty() && shares.iter().all(|share| !share.name.is_empty())).then_some(shares)
}

fn entry(node: &Node) -> Option<Vec<ModelShare>> {
    if let Some(name) = node.text() {
        return Some(vec![ModelShare { name: name.into_owned(), weight: 1.0 }]);
    }
    if let Some(name) = node.get("name").and_then(Node::text) {
        let weight = node.get("weight").map_or(Some(1.0), weight)?;
        let known = node.entries().iter().all(|entry| ["name", "weight"].contains(&entry.key.as_str()));
        return known.then(|| vec![ModelShare { name: name.into_owned(), weight }]);
    }
    let shares = node.entries().iter().map(|e| weight(&e.value).map(|weight| ModelShare { name: e.key.clone(), weight }));
    shares.collect::<Option<Vec<_>>>().filter(|shares| !shares.is_empty())
}

fn weight(node: &Node) -> Option<f64> {
    node.number().filter(|weight| *weight > 0.0 && weight.is_finite())
}

fn check(node: &Node, review: &mut Review) {
    if models(node).is_none() {
        expect(node, "one or more different model names, weights above 0", EXAMPLES, review);
    }
}

fn schema() -> serde_json::Value {
    let weight = json!({ "type": "number", "exclusiveMinimum": 0 });
    let weights = json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": ["number", "string"] } });
    let named = json!({ "type": "object", "properties": { "name": { "type": "string" }, "weight": weight }, "required": ["name"], "additionalProperties": false });
    json!({ "anyOf": [{ "type": "string" }, weights, { "type": "array", "minItems": 1, "items": { "anyOf": [{ "type": "string" }, named, weights] } }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn read(text: &str) -> Option<Vec<(String, f64)>> {
        let node = parse(0, 0, text, &mut Review::default()).unwrap();
        models(&node).map(|shares| shares.into_iter().map(|share| (share.name, share.weight)).collect())
    }

    #[test]
    fn every_notation_gives_names_and_weights() {
        let pair = |a: f64, b: f64| Some(vec![("a".to_owned(), a), ("b".to_owned(), b)]);
        assert_eq!(read("a"), Some(vec![("a".to_owned(), 1.0)]));
        assert_eq!(read("[a, b]"), pair(1.0, 1.0));
        assert_eq!(read("{a: 3, b: 1}"), pair(3.0, 1.0));
        assert_eq!(read("[{a: 3}, {name: b, weight: 0.5}]"), pair(3.0, 0.5));
        for bad in ["[]", "{a: 0}", "{a: -1}", "[a, a]", "[{name: a, wait: 1}]", "7", "{}"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
