//! Values with their own notation: expected form, parser, JSON Schema.

pub(crate) mod command;
pub(crate) mod distribution;
pub(crate) mod jsonpath;
pub(crate) mod load;
pub(crate) mod number;
pub(crate) mod remote_data;
pub(crate) mod target;
pub(crate) mod text;
pub(crate) mod time;

use crate::fault::{Mistake, Review};
use crate::tree::{Data, Node};
use serde_json::{Value, json};

/// Reports that a value is not `noun`, if `read` is None.
pub(crate) fn expect_some<T>(
    read: Option<T>,
    node: &Node,
    noun: &str,
    examples: &str,
    review: &mut Review,
) {
    if read.is_none() {
        expect(node, noun, examples, review);
    }
}

/// The JSON Schema of a mapping without further keys.
pub(crate) fn object_schema(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Reports that a value is not `noun`; the help has examples.
pub(crate) fn expect(node: &Node, noun: &str, examples: &str, review: &mut Review) {
    let mistake = Mistake::new(
        node.at,
        format!("`{}` must be {noun}", review.key),
        describe_actual(node, noun),
    );
    review.push(if examples.is_empty() {
        mistake
    } else {
        mistake.help(format!("For example {examples}."))
    });
}

/// Describes the actual value, for the label.
pub(crate) fn describe_actual(node: &Node, expected: &str) -> String {
    match &node.data {
        Data::Text(text) if ["yes", "no", "on", "off"].contains(&text.as_str()) => {
            format!("`{text}` is text in YAML 1.2")
        }
        Data::Float(_) if expected.contains("whole") => "this is not a whole number".to_owned(),
        Data::Int(_) | Data::Float(_) if expected.contains("number") => "out of range".to_owned(),
        Data::Text(text) if expected.contains("share") && text.ends_with('%') => {
            "out of range".to_owned()
        }
        _ => format!("this is {}", node.noun()),
    }
}
