//! Checks the rules between fields that the schema table declares, for each case with its values of the matrix.

use crate::defaults;
use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Default, Field, Kind, Rule, RuleKind};
use crate::suggest::list;
use crate::tree::{Entry, Node, last_segment};
use std::borrow::Cow;

/// Checks the rules of all fields in a section of a case. Missing keys are not reported in a section with errors: the
/// erroneous key may be the missing one.
pub(crate) fn check(draft: &Draft<'_>, section: &str, is_sound: bool, review: &mut Review) {
    let (Some(field), Some(node)) = (draft.table.field(section), draft.get(section)) else {
        return;
    };
    let scope = |node, table, path| RuleScope {
        draft,
        node,
        table,
        path,
        is_sound,
    };
    match field.kind {
        Kind::Block(table) => check_block(&scope(node, table, section.to_owned()), review),
        Kind::List(&Kind::Block(table)) => {
            for item in node.items() {
                let name = item.get("name").and_then(Node::string).unwrap_or_default();
                check_item(&scope(item, table, format!("{section}.{name}")), review);
            }
        }
        _ => {}
    }
}

/// Checks an item of a section, and its lists. Its blocks are checked with what they inherit.
fn check_item(scope: &RuleScope<'_>, review: &mut Review) {
    for field in scope.table.fields {
        check_field(scope, field, review);
        if let Kind::List(&Kind::Block(table)) = field.kind {
            for node in scope.node.items_at(field.name) {
                let inner = RuleScope {
                    draft: scope.draft,
                    node,
                    table,
                    path: format!("{}.{}", scope.path, field.name),
                    is_sound: scope.is_sound,
                };
                check_block(&inner, review);
            }
        }
    }
}

/// A block of a case, in which keys without dots are looked up.
struct RuleScope<'a> {
    draft: &'a Draft<'a>,
    node: &'a Node,
    table: &'static Block,
    path: String,
    is_sound: bool,
}

impl<'a> RuleScope<'a> {
    /// The entry of a key in the block, or at a dotted path from the root.
    fn entry(&self, key: &str) -> Option<&'a Entry> {
        match key.strip_prefix("dataset.") {
            Some(key) => self.draft.dataset_entry(key),
            None if key.contains('.') => self.draft.entry(key),
            None => self.node.entry_at(key),
        }
    }

    /// The same, where it is not a default.
    fn written(&self, key: &str) -> Option<&'a Entry> {
        self.entry(key).filter(|entry| entry.is_written())
    }

    /// Whether a value is one of the words of its key.
    fn is_known_value(&self, key: &str, value: &Node) -> bool {
        let kind = if key.contains('.') {
            self.draft.table.kind_at(key)
        } else {
            self.table.field(key).map(|field| &field.kind)
        };
        !matches!(kind, Some(Kind::Choice(words, _)) if words.iter().all(|(word, _)| value_text(value) != *word))
    }

    /// Whether the other key is in a section with errors.
    fn is_doubtful(&self, key: &str, review: &Review) -> bool {
        let section = key.split_once('.').map(|(section, _)| section);
        section.is_some_and(|section| {
            !self.path.starts_with(section) && !review.is_section_clean(section)
        })
    }

    fn is_swept(&self, key: &str) -> bool {
        if key.contains('.') {
            self.draft.is_swept(key)
        } else {
            self.draft.is_swept(&format!("{}.{key}", self.path))
        }
    }
}

fn check_block(scope: &RuleScope<'_>, review: &mut Review) {
    for field in scope.table.fields {
        check_field(scope, field, review);
        let Some(node) = scope.node.get(field.name) else {
            continue;
        };
        let inner = |node, table| RuleScope {
            draft: scope.draft,
            node,
            table,
            path: format!("{}.{}", scope.path, field.name),
            is_sound: scope.is_sound,
        };
        match field.kind {
            Kind::Block(table) | Kind::SecretOr(table) => check_block(&inner(node, table), review),
            Kind::OneOrMore(table) if node.items().is_empty() => {
                check_block(&inner(node, table), review);
            }
            Kind::List(&Kind::Block(table)) | Kind::OneOrMore(table) => node
                .items()
                .iter()
                .for_each(|item| check_block(&inner(item, table), review)),
            _ => {}
        }
    }
}

fn check_field(scope: &RuleScope<'_>, field: &Field, review: &mut Review) {
    for rule in field.rules {
        let is_need = matches!(rule.kind, RuleKind::Requires | RuleKind::RequiredWith);
        if is_need && !scope.is_sound {
            continue;
        }
        let Some(mistake) = check_rule(scope, field, rule, review) else {
            continue;
        };
        review.push(mistake);
        // A field that must be removed needs no further keys.
        if !is_need {
            return;
        }
    }
}

/// The error of a broken rule.
fn check_rule(
    scope: &RuleScope<'_>,
    field: &Field,
    rule: &Rule,
    review: &Review,
) -> Option<Mistake> {
    match rule.kind {
        RuleKind::Requires => requires(scope, field, rule, review),
        RuleKind::RequiredWith => required_with(scope, field, rule),
        RuleKind::OneOf => one_of(scope, field, rule),
        RuleKind::ConflictsWith => conflicts_with(scope, field, rule, review),
        RuleKind::OnlyWith | RuleKind::UnusedWith => without_effect(scope, field, rule),
    }
}

/// The entry of the field if the rule applies. A written default counts as absent.
fn subject<'a>(scope: &RuleScope<'a>, field: &Field, rule: &Rule) -> Option<&'a Entry> {
    let entry = scope.written(field.name)?;
    let applies = match (rule.when, field.default) {
        (Some(when), _) => value_text(&entry.value) == when,
        (None, Default::Yaml(yaml)) => {
            defaults::value(yaml, entry.value.at).json() != entry.value.json()
        }
        (None, _) => true,
    };
    applies.then_some(entry)
}

/// The error at a field.
fn at_field(
    field: &Field,
    entry: &Entry,
    rule: &Rule,
    message: impl FnOnce(&str) -> String,
    label: &str,
) -> Mistake {
    let (at, key) = match rule.when {
        Some(when) => (entry.value.at, format!("`{}: {when}`", field.name)),
        None => (entry.key_at, format!("`{}`", field.name)),
    };
    let message = rule.message.map_or_else(|| message(&key), str::to_owned);
    let mistake = Mistake::new(
        at,
        message,
        if rule.reason.is_empty() {
            label
        } else {
            rule.reason
        },
    );
    if rule.help.is_empty() {
        mistake
    } else {
        mistake.help(rule.help)
    }
}

/// Adds the other key to an error, where it is written.
fn add_other(mistake: Mistake, rule: &Rule, other: Option<&Entry>) -> Mistake {
    match other.filter(|other| other.is_written() && !rule.other_reason.is_empty()) {
        Some(other) => mistake.also(
            if rule.values.is_empty() {
                other.key_at
            } else {
                other.value.at
            },
            rule.other_reason,
        ),
        None => mistake,
    }
}

fn requires(scope: &RuleScope<'_>, field: &Field, rule: &Rule, review: &Review) -> Option<Mistake> {
    let entry = subject(scope, field, rule)?;
    let prefix = format!("{}.{}.", scope.path, field.name);
    let missing = rule
        .others
        .iter()
        .all(|key| scope.entry(key).is_none() && !scope.is_doubtful(key, review));
    let names = list(
        rule.others
            .iter()
            .map(|key| key.strip_prefix(&prefix).unwrap_or(key)),
        "or",
    );
    missing.then(|| {
        at_field(
            field,
            entry,
            rule,
            |key| format!("{key} needs {names}"),
            &format!("{names} is missing"),
        )
    })
}

fn required_with(scope: &RuleScope<'_>, field: &Field, rule: &Rule) -> Option<Mistake> {
    let (other, alternatives) = rule.others.split_first()?;
    let control = scope
        .entry(other)
        .filter(|control| is_one_of(&control.value, rule.values))?;
    let absent = |key: &&str| scope.entry(key).is_none();
    if !absent(&field.name) || !alternatives.iter().all(absent) {
        return None;
    }
    let field_path = if other.contains('.') {
        format!("{}.{}", scope.path, field.name)
    } else {
        field.name.to_owned()
    };
    let names = list(
        std::iter::once(field_path.as_str()).chain(alternatives.iter().copied()),
        "or",
    );
    let mistake = Mistake::new(
        control.value.at,
        format!("{} needs {names}", show_setting(other, control)),
        format!("{names} is missing"),
    );
    Some(mistake.help(if rule.help.is_empty() {
        field.doc
    } else {
        rule.help
    }))
}

/// One error for all keys of the group, at the last one.
fn one_of(scope: &RuleScope<'_>, field: &Field, rule: &Rule) -> Option<Mistake> {
    let label = |name: &str| {
        let rules = scope.table.field(name).map_or(&[][..], |field| field.rules);
        rules
            .iter()
            .find(|rule| rule.kind == RuleKind::OneOf)
            .map_or("", |rule| rule.reason)
    };
    let given: Vec<(&str, &Entry)> = rule
        .others
        .iter()
        .filter_map(|key| Some((*key, scope.entry(key)?)))
        .collect();
    let ((last, entry), others) = given
        .split_last()
        .filter(|((last, _), others)| *last == field.name && !others.is_empty())?;
    let names = list(given.iter().map(|(name, _)| *name), "and");
    let mut mistake = at_field(
        field,
        entry,
        rule,
        |_| format!("{names} are mutually exclusive"),
        label(last),
    );
    mistake = mistake.help(
        rule.help
            .replace("{first}", given.first().map_or("", |(name, _)| name)),
    );
    Some(others.iter().fold(mistake, |mistake, (name, entry)| {
        mistake.also(entry.key_at, label(name))
    }))
}

fn conflicts_with(
    scope: &RuleScope<'_>,
    field: &Field,
    rule: &Rule,
    review: &Review,
) -> Option<Mistake> {
    let entry = subject(scope, field, rule)?;
    let other = rule.others.first()?;
    let found = scope
        .entry(other)
        .filter(|found| is_one_of(&found.value, rule.values))?;
    if rule.values.is_empty() && scope.is_doubtful(other, review) {
        return None;
    }
    let with = if rule.values.is_empty() {
        format!("`{other}`")
    } else {
        show_setting(other, found)
    };
    let mistake = at_field(
        field,
        entry,
        rule,
        |key| format!("{key} cannot be combined with {with}"),
        "cannot be combined",
    );
    Some(add_other(mistake, rule, Some(found)))
}

fn without_effect(scope: &RuleScope<'_>, field: &Field, rule: &Rule) -> Option<Mistake> {
    let entry = subject(scope, field, rule)?;
    let other = rule.others.first()?;
    let found = scope.entry(other);
    let listed = found.is_some_and(|found| is_one_of(&found.value, rule.values));
    // If the matrix sets the other key, the field may be for another case.
    let unknown = found.is_some_and(|found| !scope.is_known_value(other, &found.value));
    if listed == (rule.kind == RuleKind::OnlyWith) || unknown || scope.is_swept(other) {
        return None;
    }
    let message = |key: &str| match (found, rule.kind, rule.values) {
        (_, RuleKind::OnlyWith, [only]) => format!(
            "{key} needs `{}: {}`",
            last_segment(other),
            only.trim_end_matches('*')
        ),
        (Some(found), ..) => format!("{key} has no effect with {}", show_setting(other, found)),
        (None, ..) => format!("{key} has no effect without `{other}`"),
    };
    let mistake = add_other(
        at_field(field, entry, rule, message, "has no effect"),
        rule,
        found,
    );
    let listed = rule.kind == RuleKind::OnlyWith && rule.help.is_empty() && rule.values.len() > 1;
    let names = || list(rule.values.iter().copied(), "or");
    Some(if listed {
        mistake.help(format!("`{}` is used with {}.", field.name, names()))
    } else {
        mistake
    })
}

/// Whether a value is one of `values`, in which a final `*` matches anything; an empty list matches all.
fn is_one_of(node: &Node, values: &[&str]) -> bool {
    let text = value_text(node);
    let one = |value: &&str| {
        value
            .strip_suffix('*')
            .map_or(text == *value, |start| text.starts_with(start))
    };
    values.is_empty() || values.iter().any(one)
}

fn value_text(node: &Node) -> Cow<'_, str> {
    node.text()
        .unwrap_or_else(|| Cow::Owned(node.json().to_string()))
}

fn show_setting(path: &str, entry: &Entry) -> String {
    format!("`{}: {}`", last_segment(path), value_text(&entry.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::scenario::SCENARIO;
    use llmscen_core::api::Api;

    /// Every field with its block, its path, and whether it is in a list.
    fn fields(
        table: &'static Block,
        path: &str,
        found: &mut Vec<(&'static Block, &'static Field, String)>,
    ) {
        for field in table.fields {
            let field_path = if path.is_empty() {
                field.name.to_owned()
            } else {
                format!("{path}.{}", field.name)
            };
            found.push((table, field, field_path.clone()));
            match field.kind {
                Kind::Block(inner) | Kind::OneOrMore(inner) | Kind::SecretOr(inner) => {
                    fields(inner, &field_path, found)
                }
                Kind::List(Kind::Block(inner)) => fields(inner, &field_path, found),
                _ => {}
            }
        }
    }

    #[test]
    fn rules_refer_to_existing_keys_and_values() {
        let mut all = Vec::new();
        fields(&SCENARIO, "", &mut all);
        let rules = all.iter().flat_map(|(table, field, path)| {
            field.rules.iter().map(move |rule| (table, path, rule))
        });
        let mut count = 0;
        for (table, path, rule) in rules {
            count += 1;
            assert!(!rule.others.is_empty(), "{path}");
            for other in rule.others {
                let kind = if other.contains('.') {
                    SCENARIO.kind_at(other)
                } else {
                    table.field(other).map(|field| &field.kind)
                };
                let kind = kind.unwrap_or_else(|| panic!("{path}: no key `{other}`"));
                let known = |value: &&&str| {
                    matches!(kind, Kind::Choice(words,
                    _) if words.iter().all(|(word, _)| word != *value))
                };
                assert_eq!(
                    rule.values.iter().find(known),
                    None,
                    "{path}: no value of `{other}`"
                );
            }
        }
        assert!(count > 60, "{count} rules");
    }

    #[test]
    fn protocols_without_a_stream_generate_nothing() {
        let silent: Vec<&str> = Api::ALL
            .iter()
            .filter(|api| !api.generates())
            .map(|api| api.name())
            .collect();
        assert_eq!(silent, crate::sections::request::WITHOUT_STREAM);
    }
}
