//! The JSON Schema of the format (2020-12), read from the same tables that a file is held against.

use crate::scenario::block::{Block, Default, Field, Kind};
use crate::scenario::fill;
use crate::scenario::sections::scenario::SCENARIO;
use crate::scenario::tree::Span;
use serde_json::{Map, Value, json};

/// The schema of a scenario file, for editors: every key with its meaning, its default and an example; no others.
pub fn json_schema() -> Value {
    let mut schema = block(&SCENARIO);
    if let Value::Object(map) = &mut schema {
        map.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("title".to_owned(), json!("llmscen scenario"));
        let variable = json!({ "type": "string", "pattern": r"\$\{|\{\{", "description": "A variable: ${ENV}, ${ENV:-default} or {{ vars.x }}." });
        map.insert("$defs".to_owned(), json!({ "variable": variable }));
        // A file that extends another one may leave anything to it.
        let required = map.remove("required").unwrap_or(json!([]));
        map.insert("anyOf".to_owned(), json!([{ "required": ["extends"] }, { "required": required }]));
    }
    schema
}

fn block(table: &'static Block) -> Value {
    let fields = table.fields.iter().filter(|field| !matches!(field.kind, Kind::Planned));
    let properties: Map<String, Value> = fields.clone().map(|own| (own.name.to_owned(), field(own))).collect();
    let mut schema =
        json!({ "description": table.doc, "type": "object", "properties": properties, "additionalProperties": false });
    let required: Vec<&str> = fields.filter(|field| field.required).map(|field| field.name).collect();
    // Inner blocks of a file that extends another one may be incomplete, so only the outermost says what it needs.
    if std::ptr::eq(table, &SCENARIO) {
        schema["required"] = json!(required);
    }
    schema
}

fn field(field: &'static Field) -> Value {
    let mut schema = kind(&field.kind);
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(field.doc));
        match field.default {
            Default::Yaml(yaml) | Default::With(_, yaml) => _ = map.insert("default".to_owned(), yaml_value(yaml)),
            Default::None | Default::Empty => {}
        }
        if let Some(example) = field.example {
            map.insert("examples".to_owned(), json!([yaml_value(example)]));
        }
    }
    schema
}

fn yaml_value(yaml: &str) -> Value {
    fill::value(yaml, Span { file: 0, start: 0, end: 0 }).json()
}

fn kind(kind: &'static Kind) -> Value {
    match kind {
        Kind::Block(table) => match table.short.and_then(|key| table.field(key)) {
            Some(short) => json!({ "anyOf": [scalar(&short.kind), block(table)] }),
            None => block(table),
        },
        Kind::List(inner) => json!({ "type": "array", "items": self::kind(inner) }),
        Kind::Map(inner) => json!({ "type": "object", "additionalProperties": self::kind(inner) }),
        Kind::Template => json!({ "type": ["string", "object"] }),
        Kind::Json => json!({}),
        Kind::Matrix => matrix(),
        Kind::Planned => json!(false),
        _ => json!({ "anyOf": [scalar(kind), { "$ref": "#/$defs/variable" }] }),
    }
}

fn scalar(kind: &'static Kind) -> Value {
    match kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Whole(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::Number(low, high) => {
            let mut schema = json!({ "type": "number" });
            if *low == f64::MIN_POSITIVE {
                schema["exclusiveMinimum"] = json!(0);
            } else if low.is_finite() {
                schema["minimum"] = json!(low);
            }
            if high.is_finite() {
                schema["maximum"] = json!(high);
            }
            schema
        }
        Kind::Choice(words, _) => {
            let words = words.iter().map(|(word, doc)| json!({ "const": word, "description": doc }));
            json!({ "oneOf": words.collect::<Vec<_>>() })
        }
        Kind::Leaf(leaf) => (leaf.schema)(),
        Kind::Text | Kind::Secret | Kind::File | Kind::Template => json!({ "type": "string" }),
        _ => json!({}),
    }
}

/// Any path of a value, with a list of what may stand there.
fn matrix() -> Value {
    let paths = SCENARIO.scalar_paths();
    let list =
        |field: &'static Field| json!({ "type": "array", "minItems": 1, "items": kind(&field.kind), "description": field.doc });
    let axes: Map<String, Value> = paths.iter().map(|(path, field)| (path.clone(), list(field))).collect();
    let cells: Map<String, Value> = paths.iter().map(|(path, field)| (path.clone(), kind(&field.kind))).collect();
    let free = r"^(vars|request\.extra|request\.template)\.";
    let row = json!({ "type": "object", "minProperties": 1, "properties": cells, "patternProperties": { free: {} }, "additionalProperties": false });
    let group = json!({ "type": "object", "properties": axes, "patternProperties": { free: { "type": "array" } }, "additionalProperties": false });
    let mut properties = axes;
    properties.insert(
        "zip".to_owned(),
        json!({ "description": "Lists of equal length that go in step.", "anyOf": [group, { "type": "array", "items": group }] }),
    );
    properties.insert(
        "include".to_owned(),
        json!({ "description": "Rows that extend matching cases, or are cases of their own.", "type": "array", "items": row }),
    );
    properties
        .insert("exclude".to_owned(), json!({ "description": "Rows whose cases are left out.", "type": "array", "items": row }));
    json!({ "type": "object", "properties": properties, "patternProperties": { free: { "type": "array" } }, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::fault::Review;
    use crate::scenario::parse::parse;

    fn valid(yaml: &str) -> bool {
        let tree = parse(0, 0, yaml, &mut Review::default()).unwrap().json();
        jsonschema::validator_for(&json_schema()).unwrap().is_valid(&tree)
    }

    const SMALLEST: &str =
        "version: 1\nname: chat\ntarget: {url: simulator}\ndataset: openqa\nload: {concurrency: 8, requests: 100}\n";

    #[test]
    fn every_shipped_scenario_is_valid() {
        for entry in std::fs::read_dir("scenarios").unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let tree = parse(0, 0, &text, &mut Review::default()).unwrap().json();
            let schema = json_schema();
            let errors: Vec<String> = jsonschema::validator_for(&schema)
                .unwrap()
                .iter_errors(&tree)
                .map(|e| format!("{} {e}", e.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        }
    }

    #[test]
    fn what_does_not_exist_is_not_valid() {
        assert!(valid(SMALLEST));
        for bad in [
            "lod: {}",
            "target: {url: simulator, modle: a}",
            "load: {concurrency: 0}",
            "load: {concurrency: many}",
            "seed: -1",
            "pause: 5",
            "search: {}",
            "matrix: {load.concurency: [1]}",
            "matrix: {load.concurrency: 1}",
            "slo: [{expr: \"ttft.p95 < 5ms\", wen: {}}]",
            "request: {max_tokens: {uniform: [1]}}",
        ] {
            let key = bad.split(':').next().unwrap();
            let rest: Vec<&str> = SMALLEST.lines().filter(|line| !line.starts_with(&format!("{key}:"))).collect();
            assert!(!valid(&format!("{}\n{bad}\n", rest.join("\n"))), "{bad}");
        }
    }

    #[test]
    fn variables_may_stand_for_any_value() {
        assert!(valid(&SMALLEST.replace("concurrency: 8", "concurrency: \"${N:-8}\"")));
        assert!(valid("extends: base.yaml\nload: {duration: 5s}\n"));
        assert!(valid(&format!(
            "{SMALLEST}matrix: {{load.rate: [8/s, burst], zip: {{dataset.tokens: [1, 2], vars.x: [a, b]}}}}\n"
        )));
    }
}
