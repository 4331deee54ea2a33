//! JSONPaths (RFC 9535) into a response, and the end marker of a stream. Paths are compiled with the protocol; here
//! only their form is checked.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::suggest::{meant_or, nearest};
use crate::tree::{Data, Node};
use crate::values::{expect, object_schema};
use llmscen_core::bounds;
use llmscen_core::request::Done;
use serde_json::json;
use std::ops::Range;

const EXPECTED: &str = "a JSONPath such as `$.choices[0].text`";
const MANY: &str = "a JSONPath such as `$.choices[0].text`, or a list of them";
const MARKER: &str =
    "an end marker: `\"[DONE]\"`, `{ event: name }`, a JSONPath or `{ path: …, equals: … }`";
const MARKS: [&str; 3] = ["event", "path", "equals"];

pub(crate) static PATH: Leaf = Leaf {
    expected: EXPECTED,
    sweepable: false,
    schema: path_schema,
    check: check_path,
};

pub(crate) static PATHS: Leaf = Leaf {
    expected: MANY,
    sweepable: false,
    schema: || json!({ "anyOf": [path_schema(), { "type": "array", "minItems": 1, "items": path_schema() }] }),
    check: |node, review| match &node.data {
        Data::List(items) if items.is_empty() => expect(node, MANY, "", review),
        Data::List(items) => items.iter().for_each(|item| check_path(item, review)),
        _ => check_path(node, review),
    },
};

pub(crate) static DONE: Leaf = Leaf {
    expected: MARKER,
    sweepable: false,
    schema: done_schema,
    check: check_done,
};

pub(crate) fn paths(node: &Node) -> Vec<String> {
    let one = |node: &Node| node.string();
    if let Data::List(items) = &node.data {
        items.iter().filter_map(one).collect()
    } else {
        one(node).into_iter().collect()
    }
}

/// The end marker of a node. A text that starts with `$` is a path, any other is the data of the last event.
pub(crate) fn done(node: &Node) -> Option<Done> {
    if let Some(text) = node.text() {
        let text = text.into_owned();
        return Some(if text.starts_with('$') {
            Done::Value {
                path: text,
                equals: None,
            }
        } else {
            Done::Data(text)
        });
    }
    if let [only] = node.entries()
        && only.key == "event"
    {
        return only.value.text().map(|name| Done::Event(name.into_owned()));
    }
    let known = node
        .entries()
        .iter()
        .all(|entry| ["path", "equals"].contains(&entry.key.as_str()));
    let path = node.get("path").and_then(Node::text).filter(|_| known)?;
    Some(Done::Value {
        path: path.into_owned(),
        equals: node.entry("equals").map(|entry| entry.value.json()),
    })
}

fn check_path(node: &Node, review: &mut Review) {
    let Some(text) = node.text() else {
        return expect(node, EXPECTED, "", review);
    };
    let message = format!("`{}` must be {EXPECTED}", review.key);
    if !text.starts_with('$') {
        let label = match text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            true => format!("did you mean `$.{text}`?"),
            false => "a JSONPath begins with `$`".to_owned(),
        };
        review.push(Mistake::new(node.at, message, label));
    } else if let Some((range, label)) = unbalanced(&text) {
        let at = review.sources.part(node, &text, range);
        review.push(Mistake::new(at, message, label));
    } else if let Err((range, label)) = bounds::check_path(&text) {
        let at = review.sources.part(node, &text, range);
        review.push(Mistake::new(at, message, label));
    }
}

/// The first unbalanced bracket or quote.
fn unbalanced(text: &str) -> Option<(Range<usize>, &'static str)> {
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '[' | '(' => open.push((at, letter)),
            ']' | ')' => {
                let partner = if letter == ']' { '[' } else { '(' };
                if open.pop().is_none_or(|(_, other)| other != partner) {
                    return Some((at..at + 1, "closes nothing"));
                }
            }
            '\'' | '"' => {
                let mut escaped = false;
                let closes = letters.any(|(_, next)| {
                    let closes = next == letter && !escaped;
                    escaped = next == '\\' && !escaped;
                    closes
                });
                if !closes {
                    return Some((at..at + 1, "this quote is not closed"));
                }
            }
            _ => {}
        }
    }
    open.last()
        .map(|(at, _)| (*at..*at + 1, "this bracket is not closed"))
}

fn check_done(node: &Node, review: &mut Review) {
    let path = match &node.data {
        Data::Text(text) if text.starts_with('$') => Some(node),
        Data::Map(_) => node.get("path"),
        _ => None,
    };
    if let Some(path) = path {
        check_path(path, review);
    }
    if let Some(strange) = node
        .entries()
        .iter()
        .find(|entry| !MARKS.contains(&entry.key.as_str()))
    {
        let label = meant_or(nearest(&strange.key, MARKS), "does not exist");
        let mistake = Mistake::new(
            strange.key_at,
            format!("unknown key `{}`", strange.key),
            label,
        );
        return review.push(mistake.help(format!("`{}` is {MARKER}.", review.key)));
    }
    if done(node).is_none_or(|done| done == Done::Data(String::new())) {
        expect(node, MARKER, "", review);
    }
}

fn path_schema() -> serde_json::Value {
    json!({ "type": "string", "pattern": r"^\$" })
}

fn done_schema() -> serde_json::Value {
    json!({ "anyOf": [
        { "type": "string", "minLength": 1 },
        object_schema(json!({ "event": { "type": "string" } }), &["event"]),
        object_schema(json!({ "path": path_schema(), "equals": {} }), &["path"]),
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn node(text: &str) -> Node {
        parse(0, 0, text, &mut Review::default()).unwrap()
    }

    #[test]
    fn every_end_marker_is_parsed() {
        let value = |path: &str, equals| {
            Some(Done::Value {
                path: path.to_owned(),
                equals,
            })
        };
        assert_eq!(done(&node("'[DONE]'")), Some(Done::Data("[DONE]".into())));
        assert_eq!(
            done(&node("{event: message_stop}")),
            Some(Done::Event("message_stop".into()))
        );
        assert_eq!(done(&node("$.done")), value("$.done", None));
        assert_eq!(
            done(&node("{path: $.type, equals: end}")),
            value("$.type", Some(json!("end")))
        );
        assert_eq!(
            done(&node("{path: $.left, equals: 0}")),
            value("$.left", Some(json!(0)))
        );
        for bad in [
            "{}",
            "[a]",
            "{equals: 1}",
            "{event: [a]}",
            "{event: a, path: $.b}",
            "7",
        ] {
            assert_eq!(done(&node(bad)), None, "{bad}");
        }
    }

    #[test]
    fn brackets_and_quotes_must_be_balanced() {
        for sound in [
            "$",
            "$.a[0]['b]']",
            "$..[?(@.type == \"a\\\")\")].text",
            "$['it\\'s']",
        ] {
            assert_eq!(unbalanced(sound), None, "{sound}");
        }
        for (text, at, label) in [
            ("$.a[0", 3, "this bracket is not closed"),
            ("$.a]", 3, "closes nothing"),
            ("$[?(@.a]", 7, "closes nothing"),
            ("$['a]", 2, "this quote is not closed"),
        ] {
            assert_eq!(unbalanced(text), Some((at..at + 1, label)), "{text}");
        }
    }
}
