//! Writes defaults into the tree, so that the resolved plan shows them.

use crate::fault::Review;
use crate::parse::parse;
use crate::schema_table::{Block, Default, Field, Kind};
use crate::tree::{Data, Node, Span};

/// Fills in the defaults of a table. `swept` returns whether the matrix sets a path.
pub(crate) fn fill(node: &mut Node, table: &'static Block, swept: &dyn Fn(&str) -> bool) {
    fill_at(node, table, "", swept);
}

fn fill_at(node: &mut Node, table: &'static Block, prefix: &str, swept: &dyn Fn(&str) -> bool) {
    for field in table.fields {
        if node.get(field.name).is_none()
            && let Some(yaml) = default(node, field.default, prefix, swept)
        {
            let at = node.at.before();
            node.set_key(field.name, at, value(yaml, at));
        }
        inside(node, field, prefix, swept);
    }
}

/// Fills in the blocks below a field.
fn inside(node: &mut Node, field: &'static Field, prefix: &str, swept: &dyn Fn(&str) -> bool) {
    let Data::Map(entries) = &mut node.data else {
        return;
    };
    let Some(entry) = entries.iter_mut().find(|entry| entry.key == field.name) else {
        return;
    };
    match (&field.kind, &mut entry.value.data) {
        (Kind::Block(inner) | Kind::OneOrMore(inner) | Kind::SecretOr(inner), Data::Map(_)) => {
            fill_at(
                &mut entry.value,
                inner,
                &format!("{prefix}{}.", field.name),
                swept,
            )
        }
        (Kind::List(Kind::Block(inner)) | Kind::OneOrMore(inner), Data::List(items)) => items
            .iter_mut()
            .for_each(|item| fill_at(item, inner, "", swept)),
        (Kind::Over(inner), Data::Map(_)) => inner
            .fields
            .iter()
            .for_each(|inner_field| inside(&mut entry.value, inner_field, "", swept)),
        _ => {}
    }
}

fn default(
    node: &Node,
    default: Default,
    prefix: &str,
    swept: &dyn Fn(&str) -> bool,
) -> Option<&'static str> {
    match default {
        Default::None => None,
        Default::Yaml(yaml) => Some(yaml),
        Default::Empty => Some("{}"),
        Default::With(beside, yaml) => default_with(node, beside, yaml, prefix, swept),
        Default::WithIn(key, list, yaml) => {
            let within = node
                .get(list)
                .map(Node::items)
                .unwrap_or_default()
                .iter()
                .any(|item| item.get(key).is_some());
            if within {
                Some(yaml)
            } else {
                default_with(node, key, yaml, prefix, swept)
            }
        }
        Default::Where(beside, words, yaml) => {
            let fits = node
                .get(beside)
                .and_then(Node::text)
                .is_some_and(|word| words.contains(&word.as_ref()));
            (fits || swept(&format!("{prefix}{beside}"))).then_some(yaml)
        }
    }
}

/// `rate: burst` has no arrival process, so it gets no default.
fn default_with(
    node: &Node,
    beside: &str,
    yaml: &'static str,
    prefix: &str,
    swept: &dyn Fn(&str) -> bool,
) -> Option<&'static str> {
    let set = node
        .get(beside)
        .is_some_and(|node| node.text().as_deref() != Some("burst"));
    (set || swept(&format!("{prefix}{beside}"))).then_some(yaml)
}

/// Parses a default; its nodes get the span `at`.
pub(crate) fn value(yaml: &str, at: Span) -> Node {
    let mut node =
        parse(at.file, 0, yaml, &mut Review::default()).unwrap_or(Node::new(at, Data::Null));
    stamp(&mut node, at);
    node
}

fn stamp(node: &mut Node, at: Span) {
    node.at = at;
    match &mut node.data {
        Data::List(items) => items.iter_mut().for_each(|item| stamp(item, at)),
        Data::Map(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_at = at;
            stamp(&mut entry.value, at);
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::load::LOAD;
    use serde_json::json;

    fn filled(yaml: &str, swept: bool) -> serde_json::Value {
        let at = Span::default();
        let mut node = value(yaml, at);
        fill(&mut node, &LOAD, &|path| swept && path == "rate");
        node.json()
    }

    #[test]
    fn defaults_fill_missing_keys() {
        assert_eq!(
            filled("{warmup: 5}", false),
            json!({ "warmup": 5, "graceful_stop": "30s" })
        );
        assert_eq!(filled("{rate: 8/s}", false)["arrivals"], "poisson");
        assert_eq!(filled("{rate: burst}", false).get("arrivals"), None);
        assert_eq!(
            filled("{stages: [{rate: 1/s, for: 1s}]}", false)["arrivals"],
            "poisson"
        );
        assert_eq!(
            filled("{stages: [{concurrency: 1, for: 1s}]}", false).get("arrivals"),
            None
        );
        let swept = json!({ "warmup": 0, "arrivals": "poisson", "graceful_stop": "30s", "stop_when_saturated": false });
        assert_eq!(filled("{warmup: null}", true), swept);
    }
}
