//! The JSON Schema (2020-12) of the format, generated from the schema tables.

use crate::defaults;
use crate::patch_names::PATCHES;
use crate::schema_table::{Block, Default, Field, Kind};
use crate::sections::patch::PATCH;
use crate::sections::scenario::{SCENARIO, section_of};
use crate::tree::Span;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The schema of a scenario file: every key with description, default and example.
pub fn json_schema() -> Value {
    let mut schema = block_schema(&SCENARIO);
    if let Value::Object(map) = &mut schema {
        map.insert(
            "$schema".to_owned(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        map.insert("title".to_owned(), json!("llmscen scenario"));
        map.insert("$defs".to_owned(), definitions());
        // A file that extends another one may omit any key, and one with variants or workloads may have the keys there.
        let needs = [
            required_keys(|_| None),
            required_keys(|field| field.instead),
        ];
        let needs = needs.iter().map(|keys| json!({ "required": keys }));
        let elsewhere = ["extends"]
            .into_iter()
            .chain(PATCHES.each_ref().map(|kind| kind.section));
        let needs: Vec<Value> = elsewhere
            .map(|key| json!({ "required": [key] }))
            .chain(needs)
            .collect();
        map.insert("anyOf".to_owned(), json!(needs));
    }
    share_repeated(schema)
}

/// Minimum length of a schema that is not repeated, in bytes of JSON. A shorter one is as readable as a reference.
const SHARED_BYTES: usize = 200;

/// Replaces schemas that occur several times by references to a definition.
fn share_repeated(mut schema: Value) -> Value {
    let mut counts = HashMap::new();
    let mut sharing = Sharing {
        shared: HashMap::new(),
        defs: Map::new(),
    };
    let defs = schema.as_object_mut().and_then(|map| map.remove("$defs"));
    let Some(Value::Object(defs)) = defs else {
        return schema;
    };
    for definition in defs.values().chain([&schema]) {
        count_repeated(definition, &mut counts);
    }
    counts.retain(|text, count| *count > 1 && text.len() >= SHARED_BYTES);
    // A definition keeps its name, and the first of several equal ones is that of the others.
    for (name, definition) in &defs {
        let text = definition.to_string();
        if counts.contains_key(&text) {
            sharing.shared.entry(text).or_insert_with(|| name.clone());
        }
    }
    sharing.defs = defs.clone();
    for (name, mut definition) in defs {
        match sharing.shared.get(&definition.to_string()) {
            Some(other) if *other != name => definition = reference(other),
            _ => sharing.replace_in(&mut definition, &counts, &name),
        }
        sharing.defs.insert(name, definition);
    }
    sharing.replace_in(&mut schema, &counts, "");
    if let Value::Object(map) = &mut schema {
        map.insert("$defs".to_owned(), Value::Object(sharing.defs));
    }
    schema
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Schemas that became definitions.
struct Sharing {
    /// The name of each by its JSON.
    shared: HashMap<String, String>,
    defs: Map<String, Value>,
}

impl Sharing {
    /// Replaces the repeated ones inside a schema; `path` names new definitions.
    fn replace_in(&mut self, schema: &mut Value, counts: &HashMap<String, usize>, path: &str) {
        for (key, inner) in inner_schemas(schema) {
            let path = match (key, path) {
                (None, _) => path.to_owned(),
                (Some(key), "") => key,
                (Some(key), _) => format!("{path}.{key}"),
            };
            let text = inner.to_string();
            if !counts.contains_key(&text) {
                self.replace_in(inner, counts, &path);
                continue;
            }
            if let Some(name) = self.shared.get(&text) {
                *inner = reference(name);
                continue;
            }
            let mut names = (1..).map(|number| format!("{path}.{number}"));
            let is_new = |name: &String| !self.defs.contains_key(name);
            let name = names.find(is_new).unwrap_or_default();
            self.defs.insert(name.clone(), Value::Null);
            self.shared.insert(text, name.clone());
            self.replace_in(inner, counts, &path);
            let definition = std::mem::replace(inner, reference(&name));
            self.defs.insert(name, definition);
        }
    }
}

/// Counts equal schemas. Those inside of equal ones count once.
fn count_repeated(schema: &Value, counts: &mut HashMap<String, usize>) {
    let count = counts.entry(schema.to_string()).or_default();
    *count += 1;
    if *count == 1 {
        for (_, inner) in inner_schemas(&mut schema.clone()) {
            count_repeated(inner, counts);
        }
    }
}

/// The schemas directly inside a schema, with the key that each describes.
fn inner_schemas(schema: &mut Value) -> Vec<(Option<String>, &mut Value)> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object_mut().into_iter().flatten() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(map)) => {
                found.extend(
                    map.iter_mut()
                        .map(|(key, inner)| (Some(key.clone()), inner)),
                );
            }
            ("patternProperties", Value::Object(map)) => {
                found.extend(map.values_mut().map(|inner| (None, inner)));
            }
            ("anyOf" | "oneOf", Value::Array(list)) => {
                found.extend(list.iter_mut().map(|inner| (None, inner)));
            }
            ("items" | "additionalProperties", inner @ Value::Object(_)) => {
                found.push((None, inner));
            }
            _ => {}
        }
    }
    found
}

/// The required keys, some of them replaced by their alternatives.
fn required_keys(instead: impl Fn(&Field) -> Option<&'static str>) -> Vec<&'static str> {
    let required = SCENARIO.fields.iter().filter(|field| field.required);
    required
        .map(|field| instead(field).unwrap_or(field.name))
        .collect()
}

fn block_schema(table: &'static Block) -> Value {
    let fields = table
        .fields
        .iter()
        .filter(|field| !matches!(field.kind, Kind::Planned));
    let properties: Map<String, Value> = fields
        .map(|field| {
            (
                field.name.to_owned(),
                section_reference(table, field).unwrap_or_else(|| field_schema(field)),
            )
        })
        .collect();
    // With `extends` inner blocks may be incomplete, so only the top level has required keys.
    json!({ "description": table.doc, "type": "object", "properties": properties, "additionalProperties": false })
}

/// A reference where a block is a section of the scenario.
fn section_reference(table: &'static Block, field: &'static Field) -> Option<Value> {
    let Kind::Block(block) = field.kind else {
        return None;
    };
    let section = section_of(block).filter(|_| !std::ptr::eq(table, &SCENARIO))?;
    Some(json!({ "$ref": format!("#/properties/{section}"), "description": field.doc }))
}

/// A block without its defaults.
fn over_schema(table: &'static Block) -> Value {
    let mut schema = block_schema(table);
    if let Some(Value::Object(keys)) = schema.get_mut("properties") {
        keys.values_mut()
            .filter_map(Value::as_object_mut)
            .for_each(|key| _ = key.remove("default"));
    }
    schema
}

fn field_schema(field: &'static Field) -> Value {
    let mut schema = kind_schema(&field.kind);
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(field.doc));
        match field.default {
            Default::Yaml(yaml)
            | Default::With(_, yaml)
            | Default::WithIn(_, _, yaml)
            | Default::Where(_, _, yaml) => _ = map.insert("default".to_owned(), yaml_value(yaml)),
            Default::None | Default::Empty => {}
        }
        if let Some(example) = field.example {
            map.insert("examples".to_owned(), json!([yaml_value(example)]));
        }
    }
    schema
}

fn yaml_value(yaml: &str) -> Value {
    defaults::value(yaml, Span::default()).json()
}

fn kind_schema(kind: &'static Kind) -> Value {
    match kind {
        Kind::Block(table) => short_or_block(table),
        Kind::OneOrMore(table) => {
            let one = short_or_block(table);
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
        }
        Kind::SecretOr(table) => json!({ "anyOf": [{ "type": "string" }, block_schema(table)] }),
        Kind::Over(table) if std::ptr::eq(*table, &PATCH) => json!({ "$ref": "#/$defs/patch" }),
        Kind::Over(table) => over_schema(table),
        Kind::List(inner) => json!({ "type": "array", "items": kind_schema(inner) }),
        Kind::Map(inner) => json!({ "type": "object", "additionalProperties": kind_schema(inner) }),
        Kind::Template => json!({ "type": ["string", "object"] }),
        Kind::Json => json!({}),
        Kind::Matrix => json!({ "$ref": "#/$defs/matrix" }),
        Kind::Planned => json!(false),
        Kind::Text | Kind::Secret | Kind::File | Kind::Data | Kind::Hub => scalar_schema(kind),
        _ => json!({ "anyOf": [scalar_schema(kind), { "$ref": "#/$defs/variable" }] }),
    }
}

fn short_or_block(table: &'static Block) -> Value {
    match table.short.and_then(|key| table.field(key)) {
        Some(short) => json!({ "anyOf": [scalar_schema(&short.kind), block_schema(table)] }),
        None => block_schema(table),
    }
}

fn scalar_schema(kind: &'static Kind) -> Value {
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
            let words = words
                .iter()
                .map(|(word, doc)| json!({ "const": word, "description": doc }));
            json!({ "oneOf": words.collect::<Vec<_>>() })
        }
        Kind::Leaf(leaf) => (leaf.schema)(),
        Kind::Text | Kind::Secret | Kind::File | Kind::Data | Kind::Hub | Kind::Template => {
            json!({ "type": "string" })
        }
        _ => json!({}),
    }
}

/// Free keys that a matrix may sweep.
const FREE: &str = r"^(vars|mix|request\.extra|request\.template|target\.server\.args)\.";

/// Paths with lists of values.
fn matrix_schema() -> Value {
    let mut properties = axes();
    let list = |doc: &str, items: &str| json!({ "description": doc, "type": "array", "items": { "$ref": items } });
    let group = json!({ "$ref": "#/$defs/group" });
    let groups = json!([group, { "type": "array", "items": group }]);
    properties.insert(
        "zip".to_owned(),
        json!({ "description": "Lists of equal length whose values are combined one by one.", "anyOf": groups }),
    );
    properties.insert(
        "include".to_owned(),
        list(
            "Rows that extend matching cases, or add cases.",
            "#/$defs/row",
        ),
    );
    properties.insert(
        "exclude".to_owned(),
        list("Rows whose cases are removed.", "#/$defs/filter"),
    );
    properties.insert(
        "only".to_owned(),
        list(
            "Rows of cases that run: of the variant and workload that a row names, only the cases that match it.",
            "#/$defs/filter",
        ),
    );
    for kind in &PATCHES {
        properties.insert(kind.axis.to_owned(), json!({ "type": ["string", "array"] }));
    }
    paths_schema(properties, axis(json!({})))
}

fn axes() -> Map<String, Value> {
    let list = |path: &str| (path.to_owned(), axis(cell(path)));
    SCENARIO
        .scalar_paths()
        .iter()
        .map(|(path, _)| list(path))
        .collect()
}

/// A list of values, or a ladder.
fn axis(items: Value) -> Value {
    json!({ "anyOf": [{ "type": "array", "minItems": 1, "items": items }, { "$ref": "#/$defs/ladder" }] })
}

/// The paths that a row of the matrix may have.
fn row_paths(value: impl Fn(&str) -> Value) -> Map<String, Value> {
    let names = PATCHES
        .each_ref()
        .map(|kind| (kind.axis.to_owned(), json!({ "type": "string" })));
    let paths = SCENARIO.scalar_paths().into_iter().map(|(path, _)| {
        let value = value(&path);
        (path, value)
    });
    paths.chain(names).collect()
}

/// A part of the scenario, with sections or paths as keys.
fn patch_schema() -> Value {
    let sections = PATCH.fields.iter().map(|field| {
        let schema =
            json!({ "$ref": format!("#/properties/{}", field.name), "description": field.doc });
        (field.name.to_owned(), schema)
    });
    let names: Vec<&str> = PATCH.names().collect();
    json!({
        "description": PATCH.doc,
        "type": ["object", "null"],
        "properties": Value::Object(sections.collect()),
        "patternProperties": { format!("^({})\\.", names.join("|")): {} },
        "additionalProperties": false,
    })
}

fn cell(path: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{path}") })
}

fn paths_schema(properties: Map<String, Value>, other: Value) -> Value {
    json!({ "type": "object", "properties": properties, "patternProperties": { FREE: other },
        "additionalProperties": false })
}

/// Definitions that are used more than once: a variable, the value at each path, rows and groups of a matrix.
fn definitions() -> Value {
    let paths = SCENARIO.scalar_paths();
    let mut defs: Map<String, Value> = paths
        .iter()
        .map(|(path, field)| (path.clone(), kind_schema(&field.kind)))
        .collect();
    let doc = "A variable: ${ENV}, ${ENV:-default} or {{ vars.x }}.";
    defs.insert(
        "variable".to_owned(),
        json!({ "type": "string", "pattern": r"\$\{|\{\{", "description": doc }),
    );
    defs.insert("row".to_owned(), paths_schema(row_paths(cell), json!({})));
    // Bands and patterns are possible for each path.
    defs.insert(
        "filter".to_owned(),
        paths_schema(row_paths(|_| json!({})), json!({})),
    );
    let names = PATCHES
        .each_ref()
        .map(|kind| (kind.axis.to_owned(), json!({ "type": "array" })));
    defs.insert(
        "group".to_owned(),
        paths_schema(axes().into_iter().chain(names).collect(), axis(json!({}))),
    );
    let numbers = |count: usize| json!({ "type": "array", "minItems": count, "maxItems": count });
    defs.insert(
        "ladder".to_owned(),
        json!({
            "description": "A ladder of numbers: each twice the previous one, or a count of \
            evenly or geometrically spaced ones.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "properties": { "doubling": numbers(2), "linear": numbers(3), "log": numbers(3) },
            "additionalProperties": false,
        }),
    );
    defs.insert("matrix".to_owned(), matrix_schema());
    defs.insert("patch".to_owned(), patch_schema());
    Value::Object(defs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Review;
    use crate::parse::parse;

    fn valid(yaml: &str) -> bool {
        let tree = parse(0, 0, yaml, &mut Review::default()).unwrap().json();
        jsonschema::validator_for(&json_schema())
            .unwrap()
            .is_valid(&tree)
    }

    const SMALLEST: &str = "version: 1\nname: chat\ntarget: {url: simulator}\ndataset: \
    openqa\nload: {concurrency: 8, requests: 100}\n";

    #[test]
    fn scenario_with_unknown_keys_is_invalid() {
        assert!(!valid(
            &std::fs::read_to_string("tests/faults/unknown-keys.yaml").unwrap()
        ));
        assert!(!valid(
            &std::fs::read_to_string("tests/faults/six.yaml")
                .unwrap()
                .replace("  requests: 100\n", "")
        ));
    }

    #[test]
    fn every_shipped_scenario_matches_the_schema() {
        let files = ["../../scenarios", "../../scenarios/ci"]
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap())
            .map(|entry| entry.unwrap().path());
        for path in files.filter(|path| path.is_file()) {
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
    fn unknown_keys_and_wrong_types_are_invalid() {
        assert!(valid(SMALLEST));
        for bad in [
            "lod: {}",
            "target: {url: simulator, modle: a}",
            "load: {concurrency: 0}",
            "load: {concurrency: many}",
            "seed: -1",
            "pause: 5",
            "search: {vary: load.concurrency, rnge: [1, 8]}",
            "matrix: {load.concurency: [1]}",
            "matrix: {load.concurrency: 1}",
            "slo: [{expr: \"ttft.p95 < 5ms\", wen: {}}]",
            "request: {max_tokens: {uniform: [1]}}",
        ] {
            let key = bad.split(':').next().unwrap();
            let rest: Vec<&str> = SMALLEST
                .lines()
                .filter(|line| !line.starts_with(&format!("{key}:")))
                .collect();
            assert!(!valid(&format!("{}\n{bad}\n", rest.join("\n"))), "{bad}");
        }
    }

    #[test]
    fn no_schema_is_written_twice() {
        fn count(schema: &mut Value, counts: &mut HashMap<String, usize>) {
            *counts.entry(schema.to_string()).or_default() += 1;
            for (_, inner) in inner_schemas(schema) {
                count(inner, counts);
            }
        }
        let mut counts = HashMap::new();
        count(&mut json_schema(), &mut counts);
        counts.retain(|text, count| *count > 1 && text.len() >= SHARED_BYTES);
        assert_eq!(counts, HashMap::new());
    }

    #[test]
    fn every_reference_has_a_definition() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    let reference = map.get("$ref").and_then(Value::as_str);
                    found.extend(reference.map(str::to_owned));
                    map.values().for_each(|inner| references(inner, found));
                }
                Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
                _ => {}
            }
        }
        let (schema, mut found) = (json_schema(), Vec::new());
        references(&schema, &mut found);
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(schema.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn schema_file_is_current() {
        let written = std::fs::read_to_string("../../docs/scenario.schema.json").unwrap();
        let current = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
        assert!(
            written == current,
            "write it again: llmscen schema > docs/scenario.schema.json"
        );
    }

    #[test]
    fn variables_are_allowed_for_any_value() {
        assert!(valid(
            &SMALLEST.replace("concurrency: 8", "concurrency: \"${N:-8}\"")
        ));
        assert!(valid("extends: base.yaml\nload: {duration: 5s}\n"));
        assert!(valid(&format!(
            "{SMALLEST}matrix: {{load.rate: [8/s, burst], zip: {{dataset.tokens: [1, 2], vars.x: [a, b]}}}}\n"
        )));
    }
}
