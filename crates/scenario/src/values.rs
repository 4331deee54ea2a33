//! Values with a notation of their own: what is expected, how it is parsed, its JSON Schema.

pub(crate) mod jsonpath;
pub(crate) mod load;
pub(crate) mod number;
pub(crate) mod target;
pub(crate) mod text;
pub(crate) mod time;

use crate::fault::{Mistake, Review};
use crate::tree::Node;
use crate::validate::found;
use serde_json::{Value, json};

/// Files that a value is not `noun` where it could not be read.
pub(crate) fn expect_some<T>(read: Option<T>, node: &Node, noun: &str, examples: &str, review: &mut Review) {
    if read.is_none() {
        expect(node, noun, examples, review);
    }
}

/// The JSON Schema of a mapping with these keys alone.
pub(crate) fn object_schema(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Files that a value is not `noun`, with examples of what is.
pub(crate) fn expect(node: &Node, noun: &str, examples: &str, review: &mut Review) {
    let mistake = Mistake::new(node.at, format!("`{}` must be {noun}", review.key), found(node, noun));
    review.push(if examples.is_empty() { mistake } else { mistake.help(format!("For example {examples}.")) });
}
