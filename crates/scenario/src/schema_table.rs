//! The types that describe the sections of a scenario. There is one table per block; validation, defaults, the paths
//! of a matrix and the JSON Schema are all derived from it.

use crate::fault::Review;
use crate::tree::Node;
use serde_json::Value;

/// A mapping with known keys.
#[derive(Debug)]
pub(crate) struct Block {
    /// Description for editors.
    pub doc: &'static str,
    /// Its keys, in the order in which the resolved plan has them.
    pub fields: &'static [Field],
    /// The key that a plain text in place of the block sets: `dataset: openqa` is `dataset: { kind: openqa }`.
    pub short: Option<&'static str>,
}

impl Block {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Whether the items of a list of such blocks have names.
    fn has_names(&self) -> bool {
        self.fields
            .first()
            .is_some_and(|field| field.name == "name")
    }

    /// The names of all fields that are implemented.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields
            .iter()
            .filter(|field| !matches!(field.kind, Kind::Planned))
            .map(|field| field.name)
    }

    /// The kind of the value at a dotted path.
    pub fn kind_at(&self, path: &str) -> Option<&'static Kind> {
        let (head, rest) = path
            .split_once('.')
            .map_or((path, None), |(head, rest)| (head, Some(rest)));
        let kind: &'static Kind = &self.fields.iter().find(|field| field.name == head)?.kind;
        match (kind, rest) {
            (kind, None) => Some(kind),
            (
                Kind::Block(block)
                | Kind::OneOrMore(block)
                | Kind::SecretOr(block)
                | Kind::Over(block),
                Some(rest),
            ) => block.kind_at(rest),
            (Kind::List(Kind::Block(block)), Some(rest)) if block.has_names() => {
                block.kind_at(rest.split_once('.')?.1)
            }
            (Kind::Map(Kind::Over(block)), Some(rest)) if rest.contains('.') => {
                block.kind_at(rest.split_once('.')?.1)
            }
            (Kind::Map(kind), Some(_)) => Some(kind),
            (Kind::Json | Kind::Template, Some(_)) => Some(&Kind::Json),
            _ => None,
        }
    }

    /// The dotted paths that a matrix may sweep, without those of free mappings (`vars`, `target.headers`).
    pub fn scalar_paths(&self) -> Vec<(String, &'static Field)> {
        self.fields
            .iter()
            .flat_map(|field| match &field.kind {
                Kind::Block(block) | Kind::OneOrMore(block) => {
                    let inner = block.scalar_paths().into_iter();
                    inner
                        .map(|(path, inner)| (format!("{}.{path}", field.name), inner))
                        .collect()
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
    pub name: &'static str,
    pub kind: Kind,
    /// One or two sentences for editors.
    pub doc: &'static str,
    pub default: Default,
    pub required: bool,
    /// A key that can replace it where it is required.
    pub instead: Option<&'static str>,
    pub example: Option<&'static str>,
    pub rules: &'static [Rule],
}

/// A rule between a field and other keys: a name without dots is a key of the same block, a dotted path starts at the
/// root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub kind: RuleKind,
    pub others: &'static [&'static str],
    /// The values of the other key that the rule is about; a final `*` matches anything. Empty: all values.
    pub values: &'static [&'static str],
    /// The value of the field that the rule is about; without it all but the default.
    pub when: Option<&'static str>,
    /// The message, where the generated one would not be clear.
    pub message: Option<&'static str>,
    /// The label at the field.
    pub reason: &'static str,
    /// The label at the other key.
    pub other_reason: &'static str,
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RuleKind {
    /// The field needs one of the other keys.
    Requires,
    /// If the first of the other keys has one of the values, the field or one of the further keys is required.
    RequiredWith,
    /// At most one of the other keys, which include the field, may be set. Each of them has the rule, with its label.
    OneOf,
    /// The field cannot be combined with the other key, or with these values of it.
    ConflictsWith,
    /// The field has an effect only with these values of the other key.
    OnlyWith,
    /// The field has no effect with these values of the other key.
    UnusedWith,
}

const fn rule(
    kind: RuleKind,
    others: &'static [&'static str],
    values: &'static [&'static str],
) -> Rule {
    Rule {
        kind,
        others,
        values,
        when: None,
        message: None,
        reason: "",
        other_reason: "",
        help: "",
    }
}

pub(crate) const fn requires(others: &'static [&'static str]) -> Rule {
    rule(RuleKind::Requires, others, &[])
}

/// The first of these keys requires the field, or one of the further keys, if it has one of the values.
pub(crate) const fn required_with(
    others: &'static [&'static str],
    values: &'static [&'static str],
) -> Rule {
    rule(RuleKind::RequiredWith, others, values)
}

/// At most one of these keys, which include the field, may be set; `label` describes the field.
pub(crate) const fn one_of(keys: &'static [&'static str], label: &'static str) -> Rule {
    rule(RuleKind::OneOf, keys, &[]).reason(label)
}

/// The field cannot be combined with this key, or with these values of it.
pub(crate) const fn conflicts_with(
    other: &'static [&'static str; 1],
    values: &'static [&'static str],
) -> Rule {
    rule(RuleKind::ConflictsWith, other, values)
}

/// The field has an effect only with these values of this key.
pub(crate) const fn only_with(
    other: &'static [&'static str; 1],
    values: &'static [&'static str],
) -> Rule {
    rule(RuleKind::OnlyWith, other, values)
}

/// The field has no effect with these values of this key.
pub(crate) const fn unused_with(
    other: &'static [&'static str; 1],
    values: &'static [&'static str],
) -> Rule {
    rule(RuleKind::UnusedWith, other, values)
}

impl Rule {
    /// Restricts the rule to this value of the field.
    pub const fn when(self, value: &'static str) -> Rule {
        Rule {
            when: Some(value),
            ..self
        }
    }

    pub const fn message(self, message: &'static str) -> Rule {
        Rule {
            message: Some(message),
            ..self
        }
    }

    pub const fn reason(self, reason: &'static str) -> Rule {
        Rule { reason, ..self }
    }

    pub const fn beside(self, other_reason: &'static str) -> Rule {
        Rule {
            other_reason,
            ..self
        }
    }

    pub const fn help(self, help: &'static str) -> Rule {
        Rule { help, ..self }
    }
}

/// The default of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Default {
    None,
    /// This YAML.
    Yaml(&'static str),
    /// An empty block, which has its own defaults.
    Empty,
    /// This YAML if that key of the block is set or swept.
    With(&'static str, &'static str),
    /// This YAML if that key of the block, or of an item of that list, is set or swept.
    WithIn(&'static str, &'static str, &'static str),
    /// This YAML if that key of the block has one of these values, or is swept.
    Where(&'static str, &'static [&'static str], &'static str),
}

pub(crate) const fn field(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field {
        name,
        kind,
        doc,
        default: Default::None,
        required: false,
        instead: None,
        example: None,
        rules: &[],
    }
}

/// A key that is reserved for a later version.
pub(crate) const fn planned(name: &'static str) -> Field {
    field(name, Kind::Planned, "")
}

impl Field {
    pub const fn default(self, yaml: &'static str) -> Field {
        Field {
            default: Default::Yaml(yaml),
            ..self
        }
    }

    /// A conditional default.
    pub const fn defaults(self, default: Default) -> Field {
        Field { default, ..self }
    }

    /// Required, unless that key of the block is set.
    pub const fn required_unless(self, instead: &'static str) -> Field {
        Field {
            required: true,
            instead: Some(instead),
            ..self
        }
    }

    pub const fn required(self) -> Field {
        Field {
            required: true,
            ..self
        }
    }

    pub const fn rules(self, rules: &'static [Rule]) -> Field {
        Field { rules, ..self }
    }

    pub const fn example(self, yaml: &'static str) -> Field {
        Field {
            example: Some(yaml),
            ..self
        }
    }
}

/// The type of a value.
#[derive(Debug)]
pub(crate) enum Kind {
    Bool,
    /// A whole number, with bounds.
    Whole(i64, i64),
    /// A number, with bounds.
    Number(f64, f64),
    Text,
    /// Text that must not be stored.
    Secret,
    /// Text that must not be stored, or a mapping that says where it comes from.
    SecretOr(&'static Block),
    /// The path of an existing file or folder.
    File,
    /// The path of an existing file or folder, or data of the hub: `hub:org/name`.
    Data,
    /// The path of an existing file or folder, or a name on a hub: `org/name`.
    Hub,
    /// A word with its description; then words that are reserved for a later version.
    Choice(
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
    ),
    /// A value with its own notation.
    Leaf(&'static Leaf),
    List(&'static Kind),
    /// A mapping with known keys.
    Block(&'static Block),
    /// A block, or a list of such blocks.
    OneOrMore(&'static Block),
    /// Some keys of a block, which override those of another one; without defaults.
    Over(&'static Block),
    /// A mapping with free keys.
    Map(&'static Kind),
    /// Any value.
    Json,
    /// A request body: a file, or the body itself.
    Template,
    Matrix,
    /// Reserved for a later version.
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
            | Kind::Data
            | Kind::Hub
            | Kind::Choice(..)
            | Kind::Template
            | Kind::Json => true,
            Kind::Leaf(leaf) => leaf.sweepable,
            Kind::Secret
            | Kind::SecretOr(_)
            | Kind::List(_)
            | Kind::Block(_)
            | Kind::OneOrMore(_)
            | Kind::Over(_)
            | Kind::Map(_)
            | Kind::Matrix
            | Kind::Planned => false,
        }
    }
}

/// A value with its own notation.
pub(crate) struct Leaf {
    /// Such as "a duration such as `30s`".
    pub expected: &'static str,
    /// Whether a matrix may sweep it.
    pub sweepable: bool,
    pub schema: fn() -> Value,
    /// Reports an invalid value.
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
        assert!(matches!(
            SCENARIO.kind_at("load.concurrency"),
            Some(Kind::Whole(1, _))
        ));
        assert!(matches!(
            SCENARIO.kind_at("target.headers.X-Team"),
            Some(Kind::Secret)
        ));
        assert!(matches!(
            SCENARIO.kind_at("request.extra.response_format.type"),
            Some(Kind::Json)
        ));
        assert!(matches!(
            SCENARIO.kind_at("mix.chat.weight"),
            Some(Kind::Number(..))
        ));
        assert!(matches!(
            SCENARIO.kind_at("mix.0.request.retry.max"),
            Some(Kind::Whole(1, _))
        ));
        assert!(matches!(
            SCENARIO.kind_at("target.simulator.faults.error"),
            Some(Kind::Leaf(_))
        ));
        for absent in [
            "load.concurency",
            "load.concurrency.x",
            "concurrency",
            "",
            "mix.chat",
            "mix.chat.x",
            "slo.0.expr",
        ] {
            assert!(SCENARIO.kind_at(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn only_scalars_are_swept() {
        let paths: Vec<String> = SCENARIO
            .scalar_paths()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        for path in [
            "load.concurrency",
            "load.rate",
            "request.max_tokens",
            "dataset.tokens",
            "target.model",
            "target.simulator.alpha",
        ] {
            assert!(paths.iter().any(|known| known == path), "{path}");
        }
        for path in ["slo", "target.api_key", "matrix", "load", "search"] {
            assert!(!paths.iter().any(|known| known == path), "{path}");
        }
    }
}
