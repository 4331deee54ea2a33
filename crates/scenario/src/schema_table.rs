//! The words in which the sections of a scenario are described. One table per block says what may stand in it; the check of
//! a file, the defaults, the paths that a matrix may sweep and the JSON Schema are all read from it.

use crate::fault::Review;
use crate::tree::Node;
use serde_json::Value;

/// A mapping with known keys.
#[derive(Debug)]
pub(crate) struct Block {
    /// What it describes, for editors.
    pub doc: &'static str,
    /// Its keys, in the order in which a resolved plan writes them.
    pub fields: &'static [Field],
    /// The key that a plain text in the block's place stands for: `dataset: openqa` is `dataset: { kind: openqa }`.
    pub short: Option<&'static str>,
}

impl Block {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Whether blocks of a list are told apart by their names.
    fn named(&self) -> bool {
        self.fields.first().is_some_and(|field| field.name == "name")
    }

    /// The names of the fields that exist today.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().filter(|field| !matches!(field.kind, Kind::Planned)).map(|field| field.name)
    }

    /// The kind of the value at a dotted path.
    pub fn kind_at(&self, path: &str) -> Option<&'static Kind> {
        let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
        let kind: &'static Kind = &self.fields.iter().find(|field| field.name == head)?.kind;
        match (kind, rest) {
            (kind, None) => Some(kind),
            (Kind::Block(block) | Kind::Over(block), Some(rest)) => block.kind_at(rest),
            (Kind::List(Kind::Block(block)), Some(rest)) if block.named() => block.kind_at(rest.split_once('.')?.1),
            (Kind::Map(kind), Some(_)) => Some(kind),
            (Kind::Json | Kind::Template, Some(_)) => Some(&Kind::Json),
            _ => None,
        }
    }

    /// The dotted paths of the values that a matrix may sweep; free mappings (`vars`, `target.headers`) are left out.
    pub fn scalar_paths(&self) -> Vec<(String, &'static Field)> {
        self.fields
            .iter()
            .flat_map(|field| match &field.kind {
                Kind::Block(block) => {
                    let inner = block.scalar_paths().into_iter();
                    inner.map(|(path, inner)| (format!("{}.{path}", field.name), inner)).collect()
                }
                kind if kind.is_scalar() => vec![(field.name.to_owned(), field)],
                _ => Vec::new(),
            })
            .collect()
    }
}

/// One key of a block.
#[derive(Debug)]
pub(crate) struct Field {
    /// The key.
    pub name: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// One or two sentences for editors.
    pub doc: &'static str,
    /// What holds where it is left out.
    pub default: Default,
    /// Whether it must be there.
    pub required: bool,
    /// The key beside it that may take its place.
    pub instead: Option<&'static str>,
    /// An example, as YAML.
    pub example: Option<&'static str>,
    /// What it has to do with other keys.
    pub rules: &'static [Rule],
}

/// A rule between a field and other keys: a name is a key beside the field, a dotted path begins at the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// What the rule says.
    pub kind: RuleKind,
    /// The other keys.
    pub others: &'static [&'static str],
    /// The values of the other key that the rule is about; a `*` at the end of one stands for anything. Empty: all values.
    pub values: &'static [&'static str],
    /// The value of the field that the rule is about; without it all but the default.
    pub when: Option<&'static str>,
    /// The message, where the usual one would not be clear.
    pub message: Option<&'static str>,
    /// The label at the field.
    pub reason: &'static str,
    /// The label at the other key.
    pub other_reason: &'static str,
    /// What to do.
    pub help: &'static str,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RuleKind {
    /// The field needs one of the other keys.
    Requires,
    /// Where the first other key has one of the values, it needs the field, or one of the further other keys.
    RequiredWith,
    /// Only one of the other keys, of which the field is one, may be set. Each of them has the rule, with a label for itself.
    OneOf,
    /// The field cannot work with the other key, or with these values of it.
    ConflictsWith,
    /// The field has an effect only with these values of the other key.
    OnlyWith,
    /// The field has no effect with these values of the other key.
    UnusedWith,
}

const fn rule(kind: RuleKind, others: &'static [&'static str], values: &'static [&'static str]) -> Rule {
    Rule { kind, others, values, when: None, message: None, reason: "", other_reason: "", help: "" }
}

/// The field needs one of these keys.
pub(crate) const fn requires(others: &'static [&'static str]) -> Rule {
    rule(RuleKind::Requires, others, &[])
}

/// The first of these keys needs the field where it has one of the values, or one of the further keys in its place.
pub(crate) const fn required_with(others: &'static [&'static str], values: &'static [&'static str]) -> Rule {
    rule(RuleKind::RequiredWith, others, values)
}

/// The field is one of these keys, of which only one may be set; `label` says what it is.
pub(crate) const fn one_of(keys: &'static [&'static str], label: &'static str) -> Rule {
    rule(RuleKind::OneOf, keys, &[]).reason(label)
}

/// The field cannot work with this key, or with these values of it.
pub(crate) const fn conflicts_with(other: &'static [&'static str; 1], values: &'static [&'static str]) -> Rule {
    rule(RuleKind::ConflictsWith, other, values)
}

/// The field has an effect only with these values of this key.
pub(crate) const fn only_with(other: &'static [&'static str; 1], values: &'static [&'static str]) -> Rule {
    rule(RuleKind::OnlyWith, other, values)
}

/// The field has no effect with these values of this key.
pub(crate) const fn unused_with(other: &'static [&'static str; 1], values: &'static [&'static str]) -> Rule {
    rule(RuleKind::UnusedWith, other, values)
}

impl Rule {
    /// About this value of the field alone.
    pub const fn when(self, value: &'static str) -> Rule {
        Rule { when: Some(value), ..self }
    }

    /// With a message of its own.
    pub const fn message(self, message: &'static str) -> Rule {
        Rule { message: Some(message), ..self }
    }

    /// With a label at the field.
    pub const fn reason(self, reason: &'static str) -> Rule {
        Rule { reason, ..self }
    }

    /// With a label at the other key.
    pub const fn beside(self, other_reason: &'static str) -> Rule {
        Rule { other_reason, ..self }
    }

    /// With what to do.
    pub const fn help(self, help: &'static str) -> Rule {
        Rule { help, ..self }
    }
}

/// What holds where a key is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Default {
    /// Nothing.
    None,
    /// This YAML.
    Yaml(&'static str),
    /// An empty block, whose own defaults hold.
    Empty,
    /// This YAML where the key beside it is set, or swept.
    With(&'static str, &'static str),
    /// This YAML where the key beside it is set, or swept, or set in an item of that list beside it.
    WithIn(&'static str, &'static str, &'static str),
    /// This YAML where the key beside it is one of these words, or swept.
    Where(&'static str, &'static [&'static str], &'static str),
}

/// A key, what may stand there, and what it means.
pub(crate) const fn field(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field { name, kind, doc, default: Default::None, required: false, instead: None, example: None, rules: &[] }
}

/// A key of the format that this version does not know yet.
pub(crate) const fn planned(name: &'static str) -> Field {
    field(name, Kind::Planned, "")
}

impl Field {
    /// With a default.
    pub const fn default(self, yaml: &'static str) -> Field {
        Field { default: Default::Yaml(yaml), ..self }
    }

    /// With a default of its own kind.
    pub const fn defaults(self, default: Default) -> Field {
        Field { default, ..self }
    }

    /// Must be there, unless that key beside it is.
    pub const fn required_unless(self, instead: &'static str) -> Field {
        Field { required: true, instead: Some(instead), ..self }
    }

    /// Must be there.
    pub const fn required(self) -> Field {
        Field { required: true, ..self }
    }

    /// With rules between it and other keys.
    pub const fn rules(self, rules: &'static [Rule]) -> Field {
        Field { rules, ..self }
    }

    /// With an example.
    pub const fn example(self, yaml: &'static str) -> Field {
        Field { example: Some(yaml), ..self }
    }
}

/// What may stand in a place.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number, from and to.
    Whole(i64, i64),
    /// A number, from and to.
    Number(f64, f64),
    /// Text.
    Text,
    /// Text that must not be stored.
    Secret,
    /// The path of a file or folder that is there.
    File,
    /// Likewise, or `org/name`: what a hub calls it.
    Hub,
    /// One of some words, and words that a later version will know.
    Choice(&'static [(&'static str, &'static str)], &'static [&'static str]),
    /// A value with a notation of its own.
    Leaf(&'static Leaf),
    /// A list.
    List(&'static Kind),
    /// A mapping with known keys.
    Block(&'static Block),
    /// Keys of that mapping, each in place of what stands there: nothing is filled in.
    Over(&'static Block),
    /// A mapping with free keys.
    Map(&'static Kind),
    /// Any value, as it goes into a request body.
    Json,
    /// A request body: a file, or the body itself.
    Template,
    /// The sweep.
    Matrix,
    /// A later version will know it.
    Planned,
}

impl Kind {
    /// Whether a matrix may sweep it.
    pub fn is_scalar(&self) -> bool {
        match self {
            Kind::Bool
            | Kind::Whole(..)
            | Kind::Number(..)
            | Kind::Text
            | Kind::File
            | Kind::Hub
            | Kind::Choice(..)
            | Kind::Template
            | Kind::Json => true,
            Kind::Leaf(leaf) => leaf.sweepable,
            Kind::Secret | Kind::List(_) | Kind::Block(_) | Kind::Over(_) | Kind::Map(_) | Kind::Matrix | Kind::Planned => false,
        }
    }
}

/// A value with a notation of its own.
pub(crate) struct Leaf {
    /// "a duration such as `30s`".
    pub expected: &'static str,
    /// Whether one scalar can say it.
    pub sweepable: bool,
    /// Its JSON Schema.
    pub schema: fn() -> Value,
    /// Files what is wrong with it.
    pub check: fn(&Node, &mut Review),
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.expected)
    }
}

#[cfg(test)]
mod tests {
    use crate::schema_table::Kind;
    use crate::sections::scenario::SCENARIO;

    #[test]
    fn paths_reach_into_blocks_and_free_mappings() {
        assert!(matches!(SCENARIO.kind_at("load.concurrency"), Some(Kind::Whole(1, _))));
        assert!(matches!(SCENARIO.kind_at("target.headers.X-Team"), Some(Kind::Secret)));
        assert!(matches!(SCENARIO.kind_at("request.extra.response_format.type"), Some(Kind::Json)));
        assert!(matches!(SCENARIO.kind_at("mix.chat.weight"), Some(Kind::Number(..))));
        assert!(matches!(SCENARIO.kind_at("mix.0.request.retry.max"), Some(Kind::Whole(1, _))));
        assert!(matches!(SCENARIO.kind_at("target.simulator.faults.error"), Some(Kind::Leaf(_))));
        for absent in ["load.concurency", "load.concurrency.x", "concurrency", "", "mix.chat", "mix.chat.x", "slo.0.expr"] {
            assert!(SCENARIO.kind_at(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn only_scalars_are_swept() {
        let paths: Vec<String> = SCENARIO.scalar_paths().into_iter().map(|(path, _)| path).collect();
        for path in
            ["load.concurrency", "load.rate", "request.max_tokens", "dataset.tokens", "target.model", "target.simulator.alpha"]
        {
            assert!(paths.iter().any(|own| own == path), "{path}");
        }
        for path in ["slo", "target.api_key", "matrix", "load", "search"] {
            assert!(!paths.iter().any(|own| own == path), "{path}");
        }
    }
}
