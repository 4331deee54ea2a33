//! Writes values as YAML that reads back equal.

use serde_json::Value;

/// YAML 1.1 and 1.2 disagree on whether these end a line, so texts with one are written as JSON, which is also YAML.
const DISPUTED: [char; 4] = ['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'];

pub(crate) fn write(value: &Value) -> String {
    let plain = (!disputed(value))
        .then(|| serde_yaml::to_string(value).ok())
        .flatten();
    plain.unwrap_or_else(|| format!("{value:#}\n"))
}

fn disputed(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(DISPUTED),
        Value::Array(items) => items.iter().any(disputed),
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| key.contains(DISPUTED) || disputed(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Review;
    use crate::parse::parse;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn ordinary_values_are_block_yaml_and_disputed_text_is_json() {
        assert_eq!(
            write(&json!({ "a": [1, "x y"], "b": { "c": "12" } })),
            "a:\n- 1\n- x y\nb:\n  c: '12'\n"
        );
        assert_eq!(
            write(&json!({ "a": "x\u{2028}y" })),
            "{\n  \"a\": \"x\u{2028}y\"\n}\n"
        );
    }

    fn values() -> impl Strategy<Value = Value> {
        let texts = "[0-9a-fxoXOeE+._~:/-]{0,6}|[tT][rR][uU][eE]|[nN]ull|\\.(inf|nan)|[ \\PC\\n\\t#&*!|>'\"%@`{}\\[\\],?-]{0,16}";
        let leaves = prop_oneof![
            texts.prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from)
        ];
        leaves.prop_recursive(3, 24, 4, move |inner| {
            let map = proptest::collection::btree_map(texts, inner.clone(), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()));
            prop_oneof![
                proptest::collection::vec(inner, 0..4).prop_map(Value::from),
                map
            ]
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
