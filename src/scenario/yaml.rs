//! Values to YAML, in block style. Text is plain where it cannot be taken for anything else and a JSON string, which YAML reads
//! too, everywhere else; so every text reads back equal, U+2028 and U+0085 among them, on which YAML 1.1 and 1.2 disagree.

use crate::scenario::tree::Data;
use serde_json::Value;

/// The YAML of a value, a line for each of its leaves.
pub(crate) fn write(value: &Value) -> String {
    let mut lines = Vec::new();
    block(value, 0, &mut lines);
    lines.iter().map(|line| line.clone() + "\n").collect()
}

fn block(value: &Value, indent: usize, lines: &mut Vec<String>) {
    let space = " ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                match inline(value) {
                    Some(leaf) => lines.push(format!("{space}{}: {leaf}", text(key))),
                    None => {
                        lines.push(format!("{space}{}:", text(key)));
                        block(value, indent + 2, lines);
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let first = lines.len();
                block(item, indent + 2, lines);
                // The dash takes the place of the item's own indent.
                if let Some(line) = lines.get_mut(first) {
                    *line = format!("{space}- {}", &line[indent + 2..]);
                }
            }
        }
        leaf => lines.push(format!("{space}{}", inline(leaf).unwrap_or_default())),
    }
}

/// What fits behind a key: leaves, and collections with nothing in them.
fn inline(value: &Value) -> Option<String> {
    match value {
        Value::Object(map) => map.is_empty().then(|| "{}".to_owned()),
        Value::Array(items) => items.is_empty().then(|| "[]".to_owned()),
        Value::String(value) => Some(text(value)),
        leaf => Some(leaf.to_string()),
    }
}

fn text(text: &str) -> String {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "/$_".contains(c));
    let calm = |c: char| c.is_ascii_alphanumeric() || "_-./ $%<>=(),;+*@&?:{}".contains(c);
    let plain = first && text.chars().all(calm) && !text.contains(": ") && !text.ends_with([':', ' ']);
    if plain && matches!(Data::plain(text), Data::Text(_)) { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::fault::Review;
    use crate::scenario::parse::parse;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn blocks_are_indented_and_leaves_as_plain_as_can_be() {
        let value = json!({ "a": [{ "b": 1, "c": [] }, [2, "x y"], {}], "d": { "e": "8/s", "f": "12", "g": "", "h": "a: b", "i": null, "j": "1e3" } });
        let yaml = "a:\n  - b: 1\n    c: []\n  - - 2\n    - x y\n  - {}\nd:\n  e: 8/s\n  f: \"12\"\n  g: \"\"\n  h: \"a: b\"\n  i: null\n  j: \"1e3\"\n";
        assert_eq!(write(&value), yaml);
    }

    fn values() -> impl Strategy<Value = Value> {
        let texts = "[0-9a-fxoXOeE+._~:/-]{0,6}|[tT][rR][uU][eE]|[nN]ull|\\.(inf|nan)|[ \\PC\\n\\t#&*!|>'\"%@`{}\\[\\],?-]{0,16}";
        let leaves =
            prop_oneof![texts.prop_map(Value::from), any::<i64>().prop_map(Value::from), any::<bool>().prop_map(Value::from)];
        leaves.prop_recursive(3, 24, 4, move |inner| {
            let map = proptest::collection::btree_map(texts, inner.clone(), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()));
            prop_oneof![proptest::collection::vec(inner, 0..4).prop_map(Value::from), map]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_value_reads_back_equal(value in values()) {
            let yaml = write(&value);
            let read = parse(0, 0, &yaml, &mut Review::default()).map(|node| node.json());
            prop_assert_eq!(read, Some(value), "{}", yaml);
        }
    }
}
