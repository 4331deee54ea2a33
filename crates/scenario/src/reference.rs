//! The reference page of the format in Markdown, generated from the schema tables.

use crate::patch_names::PATCHES;
use crate::schema_table::{Block, Default, Field, Kind};
use crate::sections::scenario::{SCENARIO, section_of};
use crate::validate::{number_range, whole_range};
use std::fmt::Write;

const HEAD: &str = "# The scenario file

One YAML file is one versioned benchmark plan. `llmscen schema --markdown` prints this page from the tables that files are
checked with, and `llmscen schema` prints a JSON Schema for editors. Every example is valid.

```yaml
version: 1
name: chat
target: { url: http://127.0.0.1:8000/v1/chat/completions, model: qwen2.5 }
dataset: openqa
load: { concurrency: 8, requests: 100 }
slo: [ \"ttft.p95 < 500ms\", \"error_rate < 1%\" ]
```

`${ENV}` and `${ENV:-default}` in any text are variables of the environment, `{{ vars.x }}` is a value of `vars`; paths are
relative to the file that names them, then to the working directory. Unknown keys and keys that
contradict each other are errors.
";

/// How keys work together; follows the tables.
const GUIDE: &str = include_str!("reference/guide.md");

/// The reference page: every section with its keys, types, defaults, meaning and examples.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    write_section(&mut page, "", &SCENARIO);
    page + GUIDE
}

/// Writes the table of a block, the words of its choices, and its inner blocks.
fn write_section(page: &mut String, path: &str, table: &'static Block) {
    let fields = || {
        table
            .fields
            .iter()
            .filter(|field| !matches!(field.kind, Kind::Planned))
    };
    let heading = if path.is_empty() {
        "The file".to_owned()
    } else {
        format!("`{path}`")
    };
    let _ = write!(page, "\n## {heading}\n\n{}\n\n", table.doc);
    page.push_str("| field | type | default | what it means | example |\n|---|---|---|---|---|\n");
    for field in fields() {
        write_row(page, field);
    }
    for field in fields() {
        if let Some(words) = choice_words(&field.kind) {
            let _ = write!(page, "\n`{}` is one of:\n\n", field.name);
            words
                .iter()
                .for_each(|(word, doc)| _ = writeln!(page, "- `{word}`: {doc}"));
        }
    }
    for field in fields() {
        let inner = if path.is_empty() {
            field.name.to_owned()
        } else {
            format!("{path}.{}", field.name)
        };
        match &field.kind {
            // Sections of a mix entry are described at the top level.
            Kind::Block(block) if !path.is_empty() && section_of(block).is_some() => {}
            Kind::Block(block) | Kind::OneOrMore(block) | Kind::SecretOr(block) => {
                write_section(page, &inner, block)
            }
            Kind::List(Kind::Block(block)) if section_of(block).is_none() || path.is_empty() => {
                write_section(page, &format!("{inner}[]"), block)
            }
            // Variants and workloads have the same keys.
            Kind::Map(Kind::Over(block)) if field.name == PATCHES[0].section => {
                write_section(page, &format!("{inner}.NAME"), block);
            }
            _ => {}
        }
    }
}

fn choice_words(kind: &'static Kind) -> Option<&'static [(&'static str, &'static str)]> {
    match kind {
        Kind::Choice(words, _) => Some(words),
        Kind::List(inner) => choice_words(inner),
        _ => None,
    }
}

fn write_row(page: &mut String, field: &'static Field) {
    let default = default_text(field);
    let example = field.example.map_or(String::new(), |yaml| {
        code(&format!("{}: {yaml}", field.name))
    });
    let kind = describe_kind(&field.kind).replace('|', "\\|");
    let doc = field.doc.replace('|', "\\|");
    let _ = writeln!(
        page,
        "| `{}` | {kind} | {default} | {doc} | {example} |",
        field.name
    );
}

/// A field of the scenario, for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldHelp {
    /// Dotted path.
    pub path: String,
    /// What its values are.
    pub values: String,
    /// The default; empty if there is none.
    pub default: String,
    /// What it means.
    pub meaning: &'static str,
    /// `key: value`; None for a block.
    pub example: Option<String>,
    /// The words that it may be, each with its meaning.
    pub words: &'static [(&'static str, &'static str)],
    /// The keys of a block.
    pub keys: Vec<&'static str>,
}

/// The field at a dotted path: `load.concurrency`. None if there is none.
pub fn field_help(path: &str) -> Option<FieldHelp> {
    let mut table: &'static Block = &SCENARIO;
    let mut found: Option<&'static Field> = None;
    for name in path.split('.') {
        let field = table
            .field(name)
            .filter(|field| !matches!(field.kind, Kind::Planned))?;
        if let Kind::Block(block)
        | Kind::OneOrMore(block)
        | Kind::SecretOr(block)
        | Kind::Over(block)
        | Kind::List(&Kind::Block(block)) = field.kind
        {
            table = block;
        }
        found = Some(field);
    }
    let field = found?;
    let keys = match &field.kind {
        Kind::Block(block)
        | Kind::OneOrMore(block)
        | Kind::SecretOr(block)
        | Kind::List(Kind::Block(block)) => block.names().collect(),
        _ => Vec::new(),
    };
    Some(FieldHelp {
        path: path.to_owned(),
        values: describe_kind(&field.kind),
        default: default_text(field),
        meaning: field.doc,
        example: field.example.map(|yaml| format!("{}: {yaml}", field.name)),
        words: choice_words(&field.kind).unwrap_or_default(),
        keys,
    })
}

fn code(yaml: &str) -> String {
    format!("`{}`", yaml.replace('|', "\\|"))
}

fn default_text(field: &Field) -> String {
    match field.default {
        _ if field.required => "required".to_owned(),
        Default::None | Default::Empty => String::new(),
        Default::Yaml(yaml) => code(yaml),
        Default::With(beside, yaml) | Default::WithIn(beside, _, yaml) => {
            format!("{} with `{beside}`", code(yaml))
        }
        Default::Where(_, _, "{}") => String::new(),
        Default::Where(beside, words, yaml) => {
            format!("{} with `{beside}: {}`", code(yaml), words.join("`, `"))
        }
    }
}

/// A short description of a kind.
fn describe_kind(kind: &'static Kind) -> String {
    match kind {
        Kind::Bool => "`true`, `false`".to_owned(),
        Kind::Whole(low, high) if low == high => format!("`{low}`"),
        Kind::Whole(low, high) => without_article(whole_range(*low, *high)),
        Kind::Number(low, high) => without_article(number_range(*low, *high)),
        Kind::Text => "text".to_owned(),
        Kind::Secret => "text, kept secret".to_owned(),
        Kind::SecretOr(_) => "text, kept secret, or a block".to_owned(),
        Kind::File => "file or folder".to_owned(),
        Kind::Data => "file, folder, or `hub:org/name`".to_owned(),
        Kind::Hub => "file, folder, or `org/name`".to_owned(),
        Kind::Choice(..) => "a word, see below".to_owned(),
        Kind::Leaf(leaf) => leaf.expected.to_owned(),
        Kind::List(Kind::Choice(..)) => "list of words, see below".to_owned(),
        Kind::List(Kind::Block(_)) => "list of blocks".to_owned(),
        Kind::List(inner) => format!("list: {}", describe_kind(inner)),
        Kind::Block(_) => "block".to_owned(),
        Kind::OneOrMore(_) => "block, or list of blocks".to_owned(),
        Kind::Over(_) => "block, a part of it".to_owned(),
        Kind::Map(inner) => format!("mapping to {}", describe_kind(inner)),
        Kind::Json => "any value".to_owned(),
        Kind::Template => "file, or mapping".to_owned(),
        Kind::Matrix => "mapping of paths to lists".to_owned(),
        Kind::Planned => String::new(),
    }
}

fn without_article(range: String) -> String {
    range.trim_start_matches("a ").to_owned()
}

#[cfg(test)]
mod tests;
