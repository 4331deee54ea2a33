use super::*;

#[test]
fn a_field_is_explained_by_its_path() {
    let help = field_help("load.concurrency").unwrap();
    assert!(
        !help.meaning.is_empty() && help.example.is_some(),
        "{help:?}"
    );
    assert!(field_help("load").unwrap().keys.contains(&"concurrency"));
    assert!(!field_help("dataset.kind").unwrap().words.is_empty());
    assert_eq!(field_help("load.nothing"), None);
    assert_eq!(field_help(""), None);
}

use crate::fault::Review;
use crate::tree::{Entry, Node, Span};
use crate::{defaults, validate};
use serde_json::{Value, json};

/// Every field with its path; `[]` is an item of a list.
fn fields(prefix: &str, table: &'static Block) -> Vec<(String, &'static Field)> {
    let known = table
        .fields
        .iter()
        .filter(|field| !matches!(field.kind, Kind::Planned));
    let inner = |field: &'static Field| {
        let path = format!("{prefix}{}", field.name);
        let below = match &field.kind {
            Kind::Block(block) | Kind::OneOrMore(block) | Kind::SecretOr(block) => {
                fields(&format!("{path}."), block)
            }
            Kind::List(Kind::Block(block)) => fields(&format!("{path}.[]."), block),
            _ => Vec::new(),
        };
        std::iter::once((path, field))
            .chain(below)
            .collect::<Vec<_>>()
    };
    known.flat_map(inner).collect()
}

/// A file with only this value.
fn placed(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |value, key| {
        if key == "[]" {
            json!([value])
        } else {
            json!({ key: value })
        }
    })
}

#[test]
fn every_field_has_a_valid_example() {
    let schema = crate::json_schema();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let all = fields("", &SCENARIO);
    assert!(all.len() > 120, "{} fields", all.len());
    for (path, field) in all {
        let example = field
            .example
            .unwrap_or_else(|| panic!("`{path}` has no example"));
        let mut review = Review::default();
        review.partial = true;
        // The files of an example do not exist here; everything else is checked.
        review.sources.stored = true;
        let at = review
            .sources
            .add("example", example, std::path::PathBuf::new());
        let value = defaults::value(
            example,
            Span {
                file: at,
                start: 0,
                end: example.len(),
            },
        );
        let mut file = placed(&path, value.json());
        file["extends"] = json!("base.yaml");
        let errors: Vec<String> = schema
            .iter_errors(&file)
            .map(|error| error.to_string())
            .collect();
        assert!(
            errors.is_empty(),
            "`{path}: {example}` by the schema: {errors:?}"
        );
        check(&path, value, field, review);
    }
}

/// Checks an example as a file is checked.
fn check(path: &str, value: Node, field: &'static Field, mut review: Review) {
    let at = value.at;
    // Short forms of blocks are expanded before the check.
    let short = |node: &Node| node.text().is_some();
    match &field.kind {
        Kind::Block(block) | Kind::OneOrMore(block) if block.short.is_some() && short(&value) => {
            return;
        }
        Kind::List(Kind::Block(_)) if value.items().iter().all(short) => return,
        Kind::Matrix => {
            let mut root = Node::new(at, crate::tree::Data::Map(Vec::new()));
            root.set_key(field.name, at, value);
            crate::sweep::check(&root, &SCENARIO, &mut review);
        }
        // A key of a patch may be a path.
        Kind::Map(Kind::Over(_)) => {}
        kind => validate::value(
            &Entry {
                key: field.name.to_owned(),
                key_at: at,
                value,
            },
            kind,
            &SCENARIO,
            &mut review,
        ),
    }
    if !review.is_clean() {
        panic!("`{path}`: {}", review.faults());
    }
}

#[test]
fn every_default_is_valid() {
    for (path, field) in fields("", &SCENARIO) {
        let (Default::Yaml(yaml)
        | Default::With(_, yaml)
        | Default::WithIn(_, _, yaml)
        | Default::Where(_, _, yaml)) = field.default
        else {
            continue;
        };
        let mut review = Review::default();
        review.partial = true;
        let at = Span {
            file: review
                .sources
                .add("default", yaml, std::path::PathBuf::new()),
            start: 0,
            end: yaml.len(),
        };
        let entry = Entry {
            key: field.name.to_owned(),
            key_at: at,
            value: defaults::value(yaml, at),
        };
        validate::value(&entry, &field.kind, &SCENARIO, &mut review);
        assert!(review.is_clean(), "`{path}: {yaml}`: {}", review.faults());
    }
}

#[test]
fn reference_page_is_current() {
    let written = std::fs::read_to_string("../../docs/reference/scenario.md").unwrap_or_default();
    assert!(
        written == markdown(),
        "write it again: llmscen schema --markdown > docs/reference/scenario.md"
    );
}

#[test]
fn blocks_of_the_guide_are_scenarios() {
    let rest = [
        "target: { url: simulator, model: m }",
        "dataset: { kind: prompt, text: x }",
        "load: { concurrency: 1, requests: 4 }",
    ];
    let blocks = GUIDE
        .split("```yaml\n")
        .skip(1)
        .filter_map(|block| block.split("```").next());
    let cases = blocks.map(|block| {
        let given = |line: &str| block.starts_with(line.split(' ').next().unwrap_or_default());
        let rest: String = rest
            .iter()
            .filter(|line| !given(line))
            .map(|line| format!("{line}\n"))
            .collect();
        crate::tests::plan(&format!("version: 1\nname: t\n{rest}{block}"))
            .cases
            .len()
    });
    assert_eq!(cases.collect::<Vec<_>>(), [4, 6, 6, 1, 1, 1]);
}

#[test]
fn reference_page_has_every_field_and_word() {
    let page = markdown();
    for (path, field) in fields("", &SCENARIO) {
        assert!(page.contains(&format!("| `{}` |", field.name)), "{path}");
        for (word, doc) in choice_words(&field.kind).unwrap_or_default() {
            assert!(
                page.contains(&format!("- `{word}`: {doc}\n")),
                "{path} {word}"
            );
        }
    }
}
